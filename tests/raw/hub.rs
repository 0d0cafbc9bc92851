//! The hub as a child process: started on free ports, stopped when the test lets go of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use rmpv::Value;
use tempfile::TempDir;

use super::certs::{self, Identity};
use super::client::RawClient;
use super::dial::Dial;
use super::frame::Format;

/// How long a hub may take to end.
const EXIT_PATIENCE: Duration = Duration::from_secs(30);

/// A debug binary on a busy machine makes a CA and its certificates in this time.
const START: Duration = Duration::from_secs(30);

/// A policy under which everybody may do everything under the own name, operators' acts included.
pub(crate) const OPEN: &str =
    "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [\"*\", \"hub.*\"]\n";

/// A running hub.
#[derive(Debug)]
pub(crate) struct Hub {
    child: Child,
    dir: TempDir,
    arguments: Vec<String>,
    /// Hears when stdout is closed, which is when the process ends.
    ended: mpsc::Receiver<()>,
    identities: Mutex<BTreeMap<String, Identity>>,
    pub(crate) ready: serde_json::Value,
    pub(crate) agents: SocketAddr,
}

impl Hub {
    /// `agent-reach dev` on free ports in a directory of its own.
    pub(crate) fn dev() -> Self {
        Self::dev_with(&[])
    }

    /// The same with configuration overrides: `("LIVENESS__KEEPALIVE_MS", "100")`.
    pub(crate) fn dev_with(overrides: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a directory");
        let certs = certs::path(dir.path()).to_owned();
        let free = "127.0.0.1:0";
        let arguments = ["dev", "--dir", &certs, "--agents", free, "--http", free, "--metrics", free];
        Self::started(dir, &arguments, overrides)
    }

    /// `agent-reach serve` with this policy and these further lines of configuration.
    pub(crate) fn serve(policy: &str, config: &str) -> Self {
        Self::serve_in(policy, config, |_| {})
    }

    /// The same, after `prepare` has changed something in its directory.
    pub(crate) fn serve_in(policy: &str, config: &str, prepare: impl FnOnce(&Path)) -> Self {
        let dir = prepared(policy, config);
        prepare(dir.path());
        let file = dir.path().join("agent-reach.toml");
        Self::started(dir, &["serve", "--config", certs::path(&file)], &[])
    }

    /// Kills the hub with SIGKILL and starts it again, on what it left in its directory.
    pub(crate) fn kill_and_start_again(&mut self) {
        self.child.kill().expect("a hub that runs");
        self.child.wait().expect("the child");
        self.start_again();
    }

    /// Starts a hub that has ended again, on what it left in its directory.
    pub(crate) fn start_again(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let child = spawn(&arguments, &[], self.dir.path());
        let (child, ended, ready) = wait_ready(child, self.dir.path());
        self.agents = address(&ready, "agents");
        (self.child, self.ended, self.ready) = (child, ended, ready);
    }

    /// A hub that a test has started in its own way, in a directory that [`prepared`] made.
    pub(crate) fn of(dir: TempDir, child: Child) -> Self {
        let (child, ended, ready) = wait_ready(child, dir.path());
        let agents = address(&ready, "agents");
        Self { child, dir, arguments: Vec::new(), ended, identities: Mutex::default(), ready, agents }
    }

    fn started(dir: TempDir, arguments: &[&str], overrides: &[(&str, &str)]) -> Self {
        let child = spawn(arguments, overrides, dir.path());
        let (child, ended, ready) = wait_ready(child, dir.path());
        let agents = address(&ready, "agents");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { child, dir, arguments, ended, identities: Mutex::default(), ready, agents }
    }

    /// The directory with `ca.pem` and the rest.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where `/healthz` and `/readyz` are.
    pub(crate) fn http(&self) -> SocketAddr {
        address(&self.ready, "http")
    }

    /// Where `/metrics` is.
    pub(crate) fn metrics(&self) -> SocketAddr {
        address(&self.ready, "metrics")
    }

    /// A certificate for `name` from this hub's CA, issued when it is first asked for.
    pub(crate) fn identity(&self, name: &str) -> Identity {
        let mut identities = self.identities.lock().expect("no test fails while it issues");
        let issued = identities.entry(name.to_owned()).or_insert_with(|| Identity::issue(name, self.dir()));
        issued.copy()
    }

    /// A connection of `name` before its HELLO, on the MessagePack subprotocol.
    pub(crate) async fn connect(&self, name: &str) -> RawClient {
        self.connect_as(name, Format::MsgPack).await
    }

    /// A connection of `name` before its HELLO.
    pub(crate) async fn connect_as(&self, name: &str, format: Format) -> RawClient {
        self.connect_with(name, format, &self.identity(name)).await
    }

    /// A connection with this certificate before its HELLO; `name` will be its agent_id.
    pub(crate) async fn connect_with(&self, name: &str, format: Format, identity: &Identity) -> RawClient {
        let dial = Dial::new(self).identity(identity.copy()).protocols(format.subprotocol());
        let opened =
            dial.open().await.unwrap_or_else(|refused| panic!("{name} could not connect: {refused:?}"));
        RawClient::new(opened.stream, name, format)
    }

    /// A registered agent that provides `capabilities`.
    pub(crate) async fn agent(&self, name: &str, capabilities: &[&str]) -> RawClient {
        self.agent_as(name, Format::MsgPack, capabilities, map! {}).await
    }

    /// A registered agent whose HELLO has these further keys.
    pub(crate) async fn agent_with(&self, name: &str, capabilities: &[&str], hello: Value) -> RawClient {
        self.agent_as(name, Format::MsgPack, capabilities, hello).await
    }

    /// A registered agent on either subprotocol.
    pub(crate) async fn agent_as(
        &self,
        name: &str,
        format: Format,
        capabilities: &[&str],
        hello: Value,
    ) -> RawClient {
        let mut client = self.connect_as(name, format).await;
        client.hello(capabilities, hello).await;
        client.welcome().await;
        client
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
        assert!(status.success(), "the hub was gone before SIGTERM");
    }

    /// Waits until the process has ended: a drain alone may take ten seconds.
    pub(crate) fn exited(&mut self) -> ExitStatus {
        let ended = self.ended.recv_timeout(EXIT_PATIENCE);
        assert!(ended.is_ok(), "waited {EXIT_PATIENCE:?} in vain for the hub's exit");
        self.child.wait().expect("the child")
    }

    /// What the hub has logged.
    pub(crate) fn log(&self) -> String {
        log_of(self.dir())
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let start = log.len().saturating_sub(4000);
            eprintln!("the hub's log ends:\n{}", log.get(start..).unwrap_or(&log));
        }
    }
}

/// Waits for the line that says that a hub serves. Gives it, and what hears the end of the hub.
fn wait_ready(mut child: Child, dir: &Path) -> (Child, mpsc::Receiver<()>, serde_json::Value) {
    let stdout = child.stdout.take().expect("stdout is piped");
    let (lines, first) = mpsc::sync_channel(1);
    let (end, ended) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = stdout.read_line(&mut line).map(|_| line);
        // The test may be gone already; then nobody needs the line.
        let _gone = lines.send(read);
        // The pipe stays open for as long as the hub may write to it.
        let _rest = std::io::copy(&mut stdout, &mut std::io::sink());
        let _nobody_asks = end.send(());
    });
    let line = match first.recv_timeout(START) {
        Ok(Ok(line)) if !line.is_empty() => line,
        other => {
            let log = log_of(dir);
            let _killed = child.kill();
            let _reaped = child.wait();
            panic!("the hub wrote no ready line ({other:?}); its log:\n{log}");
        }
    };
    let ready: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("ready line {line:?}: {error}"));
    (child, ended, ready)
}

/// A directory with certificates, `policy.toml` and an `agent-reach.toml` that listens on free ports.
pub(crate) fn prepared(policy: &str, config: &str) -> TempDir {
    let dir = TempDir::new().expect("a directory");
    certs::run(&["certs", "init", "--dir", certs::path(dir.path())]);
    let file = |name: &str| dir.path().join(name).display().to_string();
    let listeners = format!(
        "version = 1\n[agents]\nlisten = \"127.0.0.1:0\"\ncert = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [http]\nlisten = \"127.0.0.1:0\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n[policy]\nfile = {:?}\n{config}",
        file("hub.pem"),
        file("hub-key.pem"),
        file("ca.pem"),
        file("policy.toml"),
    );
    std::fs::write(dir.path().join("policy.toml"), policy).expect("the policy");
    std::fs::write(dir.path().join("agent-reach.toml"), listeners).expect("the configuration");
    dir
}

/// Starts the binary; its log goes to a file, so that no full pipe can stop it.
pub(crate) fn spawn(arguments: &[&str], overrides: &[(&str, &str)], dir: &Path) -> Child {
    let log = File::create(log_path(dir)).expect("the log");
    // Another build of the hub, where a test is used to measure.
    let built =
        std::env::var_os("AGENT_REACH_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-reach").into());
    let mut command = Command::new(built);
    command.args(arguments).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    for (key, value) in overrides {
        command.env(format!("AGENT_REACH__{key}"), value);
    }
    command.spawn().expect("the binary")
}

/// What a process in `dir` has logged.
pub(crate) fn log_of(dir: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(log_path(dir)).unwrap_or_default()).into_owned()
}

/// Where it has.
pub(crate) fn log_path(dir: &Path) -> PathBuf {
    dir.join("hub.log")
}

/// The socket address in the ready line's URL under `key`.
fn address(ready: &serde_json::Value, key: &str) -> SocketAddr {
    let url = ready[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {ready}"));
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next());
    authority.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no address in {url}"))
}
