//! Commands as a shell runs them: to their end, or line by line.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The longest that a test waits for a line or an exit. A debug binary makes keys in this time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Stdout as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Every line of stdout as JSON.
    pub(crate) fn json_lines(&self) -> Vec<serde_json::Value> {
        let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        self.stdout.lines().map(read).collect()
    }
}

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    errors: mpsc::Receiver<String>,
}

impl Running {
    /// `agent-reach ARGUMENTS` in `dir`, with nothing of the environment that names a hub.
    pub(crate) fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with(dir, arguments, &[], "")
    }

    /// The same with variables and an input.
    pub(crate) fn start_with(
        dir: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        input: &str,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent-reach"));
        command.args(arguments).current_dir(dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["HUB", "CERT", "KEY", "CA"] {
            command.env_remove(format!("AGENT_REACH_{name}"));
        }
        command.envs(variables.iter().copied());
        let mut child = command.spawn().expect("the binary");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // A command that reads no input may be gone already.
        let _unread = stdin.write_all(input.as_bytes());
        drop(stdin);
        let stdout = child.stdout.take().expect("stdout is piped");
        let lines = read_lines(BufReader::new(stdout));
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let (whole, errors) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut text = String::new();
            let _until_it_ends = stderr.read_to_string(&mut text);
            let _nobody_asks = whole.send(text);
        });
        Self { child, lines, errors }
    }

    /// The next line of stdout; `None` at its end.
    pub(crate) fn line(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("waited {PATIENCE:?} in vain for a line"),
        }
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-INT", &pid]).status().expect("kill");
        assert!(status.success(), "the command was gone before Ctrl-C");
    }

    /// Waits for the end.
    pub(crate) fn ended(mut self) -> Ended {
        let mut stdout = String::new();
        while let Some(line) = self.line() {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        let stderr = self.errors.recv_timeout(PATIENCE).expect("the end of stderr");
        // Both pipes are closed: the process is ending.
        let status: ExitStatus = self.child.wait().expect("the child");
        Ended { code: status.code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Lines as they come.
fn read_lines(from: impl BufRead + Send + 'static) -> mpsc::Receiver<String> {
    let (lines, received) = mpsc::sync_channel(1024);
    std::thread::spawn(move || {
        for line in from.lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    received
}

/// Runs a command to its end.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Ended {
    Running::start(dir, arguments).ended()
}
