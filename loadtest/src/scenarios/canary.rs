//! The canary, seen from who measures: a pair that calls all the while in a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;

use super::{PATIENCE, micros_each};
use crate::client::Endpoint;
use crate::worker::Place;

/// Lines before what it says counts: connections are made and code is loaded.
const WARM_UP_LINES: usize = 20;

/// A canary at work. It ends when this is dropped.
pub(super) struct Canary {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

/// What a canary's calls took since the last time.
#[derive(Debug)]
pub(super) struct Song {
    /// How many.
    pub(super) calls: u64,
    /// Half of them at most, in microseconds.
    pub(super) p50_us: f64,
    /// All but one in a hundred at most.
    pub(super) p99_us: f64,
    /// The longest.
    pub(super) longest_us: f64,
}

impl Canary {
    /// Starts this program once more, as a canary.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn start(endpoint: &Endpoint, place: Place) -> Result<Self> {
        let mut child = place
            .command()?
            .arg("canary")
            .args(["--hub", &endpoint.address.to_string(), "--certs"])
            .arg(&endpoint.certs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the canary's stdout")?;
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, stdin, lines })
    }

    /// Waits until it has sung itself in.
    ///
    /// # Errors
    /// When it fails, which it has said why.
    pub(super) fn warm_up(&mut self) -> Result<()> {
        for _ in 0..WARM_UP_LINES {
            let Ok(_line) = self.lines.recv_timeout(PATIENCE) else { bail!("the canary is silent") };
        }
        Ok(())
    }

    /// What its calls took since the last time: at least one line of it.
    ///
    /// # Errors
    /// When a call failed, or it says nothing any more.
    pub(super) fn heard(&mut self) -> Result<Song> {
        let Ok(first) = self.lines.recv_timeout(PATIENCE) else { bail!("the canary is silent") };
        let mut times = Histogram::<u64>::new(3)?;
        for line in std::iter::once(first).chain(self.lines.try_iter()) {
            for nanos in line.split_whitespace() {
                times.record(nanos.parse()?)?;
            }
        }
        if let Some(status) = self.child.try_wait()? {
            bail!("the canary ended: {status}");
        }
        let micros = |ns| micros_each(Duration::from_nanos(ns), 1);
        Ok(Song {
            calls: times.len(),
            p50_us: micros(times.value_at_quantile(0.5)),
            p99_us: micros(times.value_at_quantile(0.99)),
            longest_us: micros(times.max()),
        })
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
