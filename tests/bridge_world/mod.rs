//! What tests of `agent-reach bridge` stand on: a bridge as a process, a web service, and a pipe that says whether a
//! command and all that it started are gone.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod service;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use agent_reach_sdk::{Agent, CallError};

use crate::raw::Hub;
use crate::sdk_world::{agent, within};

/// The longest that anything may take, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

/// The id of each test's bridge, and what it offers.
pub(crate) const NAME: &str = "old-code";
pub(crate) const CAPABILITY: [&str; 2] = ["--capability", "old.code"];

/// A bridge that is ready.
pub(crate) struct Bridge {
    child: Child,
    errors: mpsc::Receiver<String>,
}

/// How a bridge ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
}

impl Bridge {
    /// `agent-reach bridge KIND ARGUMENTS` at the hub of `dir` under this name, when it says that it is ready. `rest` is what
    /// stands at the end of the line.
    pub(crate) fn start(dir: &Path, kind: &str, name: &str, arguments: &[&str], rest: &[&str]) -> Self {
        let bridge = Self::begin(dir, kind, name, arguments, rest);
        bridge.says(": ready: ");
        bridge
    }

    /// The same before it is ready.
    pub(crate) fn begin(dir: &Path, kind: &str, name: &str, arguments: &[&str], rest: &[&str]) -> Self {
        let of_hub = dir.display().to_string();
        let at = ["bridge", kind, "--dir", &of_hub, "--name", name];
        Self::spawn(dir, &[&at, arguments, rest].concat())
    }

    /// `agent-reach ARGUMENTS` in `dir`.
    pub(crate) fn spawn(dir: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
        command.args(arguments).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for name in ["HUB", "CERT", "CA"] {
            command.env_remove(format!("AGENT_REACH_{name}"));
        }
        command.env("AGENT_REACH_KEY", "/no/key").env("BRIDGE_TEST_SECRET", "Bearer s3cret");
        let mut child = command.spawn().expect("the binary");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let (lines, errors) = mpsc::sync_channel(10_000);
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        Self { child, errors }
    }

    /// Waits for a line on stderr that has this text in it.
    pub(crate) fn says(&self, text: &str) -> String {
        let mut before = String::new();
        loop {
            match self.errors.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => before.push_str(&(line + "\n")),
                Err(error) => panic!("no {text:?}: {error}; but\n{before}"),
            }
        }
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    }

    /// Waits for the end of the process, off the runtime.
    pub(crate) async fn ended(mut self) -> Ended {
        let ended = tokio::task::spawn_blocking(move || {
            let mut stderr = String::new();
            loop {
                match self.errors.recv_timeout(PATIENCE) {
                    Ok(line) => stderr.push_str(&(line + "\n")),
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                    Err(mpsc::RecvTimeoutError::Timeout) => panic!("the bridge goes on:\n{stderr}"),
                }
            }
            Ended { code: self.child.wait().expect("the child").code(), stderr }
        });
        ended.await.expect("an end")
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
        if std::thread::panicking() {
            let said: Vec<String> = self.errors.try_iter().collect();
            eprintln!("the bridge said further:\n{}", said.join("\n"));
        }
    }
}

/// Who calls.
pub(crate) async fn caller(hub: &Hub) -> Agent {
    agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session")
}

/// One try.
pub(crate) async fn call(caller: &Agent, input: serde_json::Value) -> Result<serde_json::Value, CallError> {
    within("an end", caller.call("old.code", input).retries(0).into_future()).await
}

/// What a failure tells programs.
pub(crate) fn details(error: &CallError) -> serde_json::Value {
    error.details_as().expect("details")
}

/// A named pipe that a command and what it starts hold open: what they write into it, and when all of them are gone.
pub(crate) struct Life {
    path: PathBuf,
    words: Option<mpsc::Receiver<String>>,
}

impl Life {
    /// A pipe of this name in `dir`.
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let path = dir.join(name);
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        let (lines, words) = mpsc::sync_channel(1_000);
        let from = path.clone();
        std::thread::spawn(move || {
            // Opening waits for the first who writes.
            let pipe = BufReader::new(std::fs::File::open(from).expect("the pipe"));
            pipe.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        Self { path, words: Some(words) }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().expect("a path of letters")
    }

    /// Waits for the next word.
    pub(crate) async fn word(&mut self) -> Option<String> {
        let words = self.words.take().expect("one waits at a time");
        let waiting = tokio::task::spawn_blocking(move || {
            let word = match words.recv_timeout(PATIENCE) {
                Ok(word) => Some(word),
                Err(mpsc::RecvTimeoutError::Disconnected) => None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("no word in time"),
            };
            (word, words)
        });
        let (word, words) = within("a word", waiting).await.expect("a word");
        self.words = Some(words);
        word
    }

    /// Waits until nobody holds the pipe any more; what was written until then.
    pub(crate) async fn over(mut self) -> Vec<String> {
        let mut words = Vec::new();
        while let Some(word) = self.word().await {
            words.push(word);
        }
        words
    }
}

/// A pipe that holds whoever reads it until the test writes.
pub(crate) fn gate(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    path
}

/// Lets who waits at a gate go on.
pub(crate) async fn open(gate: &Path) {
    let gate = gate.to_owned();
    let opening = tokio::task::spawn_blocking(move || std::fs::write(gate, ""));
    within("somebody at the gate", opening).await.expect("opened").expect("the pipe");
}

/// All of a file.
pub(crate) fn contents(path: &Path) -> String {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    read.map(|_| text).unwrap_or_default()
}
