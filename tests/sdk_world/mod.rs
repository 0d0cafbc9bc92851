//! What tests of the Rust SDK stand on: agents with certificates of a hub, a hub that can be killed and started
//! again in its place, a link that can be cut or frozen, and doors that hold handlers.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod proxy;

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, Tls};
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::raw::{certs, hub};

/// The longest that anything may take, on a machine with much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for `future`, at most [`PATIENCE`].
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}

/// Asks until the answer is yes.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    within(what, async {
        while !ask().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// An agent of this name at the hub's address, with a certificate from the hub's directory. It comes back quickly.
pub(crate) fn agent(dir: &Path, hub: SocketAddr, name: &str) -> AgentBuilder {
    Agent::builder(format!("wss://{hub}"), name)
        .tls(tls(dir, name))
        .reconnect_waits(Duration::from_millis(10), Duration::from_millis(50))
}

/// The certificate of `name`, issued when it is first asked for.
pub(crate) fn tls(dir: &Path, name: &str) -> Tls {
    let file = |kind: &str| dir.join("agents").join(format!("{name}{kind}.pem"));
    if !file("").exists() {
        certs::run(&["certs", "issue", name, "--dir", certs::path(dir)]);
    }
    Tls::from_pem_files(dir.join("ca.pem"), file(""), file("-key")).expect("what was just issued")
}

/// A hub in one place, over several lives of its process.
pub(crate) struct Place {
    dir: TempDir,
    overrides: Vec<(&'static str, &'static str)>,
    hub: SocketAddr,
    child: Child,
}

impl Place {
    pub(crate) fn new(overrides: &[(&'static str, &'static str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (child, hub) = start(dir.path(), any, overrides);
        Self { dir, overrides: overrides.to_vec(), hub, child }
    }

    /// Another one, of the same authority.
    pub(crate) fn beside(&self, overrides: &[(&'static str, &'static str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        for file in ["ca.pem", "ca-key.pem", "crl.pem", "issued.txt", "hub.pem", "hub-key.pem"] {
            std::fs::copy(self.dir.path().join(file), dir.path().join(file))
                .expect("what the first has made");
        }
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (child, hub) = start(dir.path(), any, overrides);
        Self { dir, overrides: overrides.to_vec(), hub, child }
    }

    pub(crate) fn agent(&self, name: &str) -> AgentBuilder {
        agent(self.dir.path(), self.hub, name)
    }

    /// Where it listens, in all its lives.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.hub
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process is gone at once, and nothing was said.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ran");
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }

    /// Waits for the end of the process, off the runtime.
    pub(crate) async fn exited(&mut self) -> ExitStatus {
        let child = &mut self.child;
        within("the hub's end", async {
            loop {
                if let Some(status) = child.try_wait().expect("it ran") {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    pub(crate) fn restart(&mut self) {
        self.child = start(self.dir.path(), self.hub, &self.overrides).0;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let log = hub::log_of(self.dir.path());
            eprintln!("the hub's log ends:\n{}", log.get(log.len().saturating_sub(4000)..).unwrap_or(&log));
        }
    }
}

fn start(dir: &Path, at: SocketAddr, overrides: &[(&str, &str)]) -> (Child, SocketAddr) {
    let (at, free) = (at.to_string(), "127.0.0.1:0");
    let arguments = ["dev", "--dir", certs::path(dir), "--agents", &at, "--http", free, "--metrics", free];
    let mut child = hub::spawn(&arguments, overrides, dir);
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("its output");
    // The pipe stays open for as long as the hub may write to it.
    std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let Ok(ready) = serde_json::from_str::<serde_json::Value>(&line) else {
        panic!("no ready line; the hub's log:\n{}", hub::log_of(dir));
    };
    let url = ready["agents"].as_str().expect("an address");
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).expect("a host");
    (child, authority.parse().expect("host and port"))
}

/// Holds handlers until the test lets them go, and counts them.
#[derive(Clone)]
pub(crate) struct Door {
    open: Arc<Semaphore>,
    arrived: Arc<watch::Sender<u64>>,
}

impl Door {
    pub(crate) fn new() -> Self {
        Self { open: Arc::new(Semaphore::new(0)), arrived: Arc::new(watch::channel(0).0) }
    }

    /// For handlers: says that one came, and waits to be let through.
    pub(crate) async fn pass(&self) {
        self.arrived.send_modify(|count| *count += 1);
        self.open.acquire().await.expect("a door is never closed for good").forget();
    }

    /// Lets `n` through.
    pub(crate) fn let_go(&self, n: usize) {
        self.open.add_permits(n);
    }

    /// Waits until `n` have come.
    pub(crate) async fn arrived(&self, n: u64) {
        let mut arrived = self.arrived.subscribe();
        within("handlers at the door", arrived.wait_for(|count| *count >= n)).await.expect("the door stands");
    }

    /// How many came.
    pub(crate) fn count(&self) -> u64 {
        *self.arrived.borrow()
    }
}

/// Counts without end.
#[derive(Clone, Default)]
pub(crate) struct Count(Arc<AtomicU64>);

impl Count {
    pub(crate) fn up(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
