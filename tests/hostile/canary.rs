//! The canary: an unrelated pair of agents that calls all the while.
//!
//! By default it lives in the test's own process. Where latencies matter, `HOSTILE_CANARY` names a built `loadtest`,
//! and the pair has a process of its own: what it measures is then no longer its own waiting for the attackers.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{bounded, measure};
use crate::raw::{Hub, RawClient, certs, peer};

/// A pair that calls until it is told to stop, and takes the time of each call.
pub(crate) struct Canary {
    made: watch::Receiver<u64>,
    song: JoinHandle<Vec<Duration>>,
    end: End,
}

/// What makes it stop.
enum End {
    Here(Arc<AtomicBool>),
    /// The pipe, when it is closed.
    Apart(ChildStdin),
}

/// Whether the canary has a process of its own, because its latencies matter.
pub(crate) fn is_apart() -> bool {
    std::env::var_os("HOSTILE_CANARY").is_some()
}

impl Canary {
    pub(crate) async fn begin(hub: &Hub) -> Self {
        let (made, seen) = watch::channel(0);
        let (song, end) = match std::env::var_os("HOSTILE_CANARY") {
            Some(loadtest) => {
                let mut command = Command::new(&loadtest);
                if let Some((core, _)) = measure::cores() {
                    command = Command::new("taskset");
                    command.args(["-c", &core]).arg(&loadtest);
                }
                let mut child = command
                    .args(["canary", "--hub", &hub.agents.to_string(), "--certs", certs::path(hub.dir())])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("the load tool");
                let end = End::Apart(child.stdin.take().expect("a pipe"));
                (tokio::task::spawn_blocking(move || hear(child, &made)), end)
            }
            None => {
                let caller = hub.agent("canary-caller", &[]).await;
                let provider = hub.agent("canary-provider", &["canary"]).await;
                let over = Arc::new(AtomicBool::new(false));
                (tokio::spawn(sing(caller, provider, made, Arc::clone(&over))), End::Here(over))
            }
        };
        Self { made: seen, song, end }
    }

    /// How many calls it has made.
    pub(crate) fn made(&self) -> u64 {
        *self.made.borrow()
    }

    /// Waits until it has made so many.
    pub(crate) async fn until(&mut self, count: u64) {
        let reached = bounded("the canary's calls", self.made.wait_for(|made| *made >= count)).await;
        // A canary that is dead is found out by whoever ends it.
        drop(reached);
    }

    /// Whether it has stopped by itself, which it does at the first error.
    pub(crate) fn is_dead(&self) -> bool {
        self.song.is_finished()
    }

    /// Makes it stop: what each call took.
    pub(crate) async fn end(self) -> Vec<Duration> {
        match self.end {
            End::Here(over) => over.store(true, Ordering::Relaxed),
            End::Apart(pipe) => drop(pipe),
        }
        self.song.await.expect("a canary that saw no error")
    }
}

/// Calls until told otherwise, and takes the time of each.
async fn sing(
    mut caller: RawClient,
    mut provider: RawClient,
    made: watch::Sender<u64>,
    over: Arc<AtomicBool>,
) -> Vec<Duration> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        peer::canary(&mut caller, &mut provider, "canary").await;
        took.push(begun.elapsed());
        made.send_replace(took.len() as u64);
    }
    took
}

/// Hears from a process what each call took, to its end.
fn hear(mut child: Child, made: &watch::Sender<u64>) -> Vec<Duration> {
    let mut took = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        let nanos = line.split_whitespace().map(|nanos| nanos.parse().expect("nanoseconds"));
        took.extend(nanos.map(Duration::from_nanos));
        made.send_replace(took.len() as u64);
    }
    let status = child.wait().expect("the child");
    assert!(status.success(), "the canary saw an error: {status}");
    took
}
