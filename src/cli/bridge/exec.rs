//! `agent-reach bridge exec`: each call starts a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_reach_sdk::{Agent, HandlerError, Payload};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, Command};
use tokio::time::Instant;

use super::Offer;
use super::body::{self, Input};
use super::job::{EXCERPT_BYTES_MAX, Job, excerpt};
use super::lines::Lines;
use super::pieces::Pieces;
use super::process::{Pipes, Process};
use super::serve::{self, Work};
use crate::cli::call_options::duration;
use crate::telemetry::logging::TEXT_BYTES_MAX;

/// Most bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;
/// Most lines of one call's stderr that the log gets.
const LOG_LINES_MAX: u32 = 1_000;
/// Exit code of a failure that passes (EX_TEMPFAIL of sysexits.h).
const TEMPORARY: i32 = 75;
/// Of the environment of a command: what it would take the bridge's place at the hub with.
const KEPT_BACK: [&str; 2] = ["AGENT_REACH_CERT", "AGENT_REACH_KEY"];

/// Arguments of `agent-reach bridge exec`.
#[derive(Debug, Args)]
#[command(after_help = "\
The command gets the body as JSON and a line end on stdin; no shell is between. Its stdout is the result: JSON, else text.
Its stderr goes to the log. Another exit code than 0 fails the call; 75 says that another try can succeed. It ends with
SIGTERM, then SIGKILL, together with all that it started, when the call is cancelled or out of time.

AGENT_REACH_CALLER, _CAPABILITY, _REQUEST_ID, _TRACEPARENT and _DEADLINE_MS say which call it is.

Examples:
  agent-reach bridge exec --capability text.sort -- jq -c sort
  agent-reach bridge exec --capability log.follow --stream -- python3 follow.py

Exit code: 0 after SIGTERM, 1 failed, 2 usage, 3 no hub or thrown out by it, 130 after a second signal")]
pub struct ExecArgs {
    /// Each line of stdout is a piece of the result, sent as it comes
    #[arg(long)]
    stream: bool,
    /// Time from SIGTERM to SIGKILL
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    grace: Duration,
    /// What is offered.
    #[command(flatten)]
    offer: Offer,
    /// The command and its arguments, the same for each call
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

struct Exec {
    program: OsString,
    arguments: Vec<OsString>,
    stream: bool,
    grace: Duration,
}

/// Runs the command.
pub(super) fn run(args: &ExecArgs) -> ExitCode {
    serve::run("exec", &args.offer, Exec::of(args))
}

impl Exec {
    fn of(args: &ExecArgs) -> Result<Self, String> {
        let (program, arguments) = args.command.split_first().ok_or("no command")?;
        if !is_there(program, std::env::var_os("PATH").as_deref()) {
            return Err(format!("there is no command {}", program.display()));
        }
        let (program, arguments) = (program.clone(), arguments.to_vec());
        Ok(Self { program, arguments, stream: args.stream, grace: args.grace })
    }

    fn command(&self, job: &Job, input: &Input) -> Result<Command, HandlerError> {
        let context = &job.context;
        let left = context.deadline().saturating_duration_since(Instant::now()).as_millis().to_string();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in KEPT_BACK {
            command.env_remove(name);
        }
        let variables = [
            ("AGENT_REACH_CALLER", Some(context.caller())),
            ("AGENT_REACH_CAPABILITY", Some(context.capability())),
            ("AGENT_REACH_REQUEST_ID", Some(context.request_id())),
            ("AGENT_REACH_TRACEPARENT", context.traceparent()),
            ("AGENT_REACH_DEADLINE_MS", Some(&*left)),
            ("AGENT_REACH_CONTENT_TYPE", (!input.is_json()).then_some(&*input.content_type)),
        ];
        for (name, value) in variables {
            match value {
                Some(value) if value.contains('\0') => {
                    return Err(HandlerError::invalid_request(format!("{name} would have a NUL in it")));
                }
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ok(command)
    }

    /// What comes on stdout, as the result.
    async fn answer(&self, job: &Job, stdout: impl AsyncRead + Unpin) -> Result<Payload, HandlerError> {
        if self.stream { pieces(job, stdout).await } else { whole(job, stdout).await }
    }
}

impl Work for Exec {
    fn title(&self) -> String {
        // Without arguments: there may be a key among them.
        self.program.display().to_string()
    }

    fn grace(&self) -> Duration {
        self.grace
    }

    fn concurrency(&self) -> u64 {
        std::thread::available_parallelism().map_or(1, |processors| processors.get() as u64)
    }

    async fn serve(&self, job: Job, payload: Payload) -> Result<Payload, HandlerError> {
        let input = Input::of(payload)?;
        let command = self.command(&job, &input)?;
        let (mut process, pipes) = Process::start(command).map_err(|error| {
            HandlerError::new("spawn", format!("the command cannot be started: {error}")).retryable()
        })?;
        let Pipes { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) } = pipes else {
            return Err(HandlerError::new("spawn", "the command has no pipes"));
        };
        let mut log = Log::new(&job);
        let done = {
            let listened = AtomicBool::new(false);
            let listening = async {
                log.listen(stderr).await;
                listened.store(true, Ordering::Relaxed);
            };
            tokio::pin!(listening);
            let work = async {
                let talk = async {
                    let (answer, ()) = tokio::join!(self.answer(&job, stdout), feed(stdin, &input));
                    answer
                };
                let ended = async {
                    let status = process.ended().await;
                    status.map_err(|error| job.unknown("wait", error.to_string()))
                };
                let listen = async {
                    listening.as_mut().await;
                    Ok(())
                };
                // The first failure drops the others.
                tokio::try_join!(ended, talk, listen)
            };
            // Cancel-safe: what is left of the command is stopped below.
            let done = tokio::select! {
                done = work => done,
                over = job.over() => Err(over),
            };
            if done.is_err() {
                let closed = async {
                    // What has ended must not be waited for again.
                    if !listened.load(Ordering::Relaxed) {
                        listening.await;
                    }
                };
                process.stop(self.grace, closed).await;
            }
            done
        };
        let (status, answer, ()) = done?;
        failure(&job, status, log.tail()).map_or(Ok(answer), Err)
    }

    async fn beside(&self, _: &Agent) {
        std::future::pending().await
    }
}

/// Whether a command can be found, as the system would look for it.
fn is_there(program: &OsStr, path: Option<&OsStr>) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    path.is_some_and(|path| std::env::split_paths(path).any(|folder| folder.join(program).is_file()))
}

/// Gives the body. A command need not read it.
async fn feed(mut stdin: ChildStdin, input: &Input) {
    let written = async {
        stdin.write_all(&input.bytes).await?;
        if input.is_json() {
            stdin.write_all(b"\n").await?;
        }
        stdin.shutdown().await
    };
    if let Err(error) = written.await {
        tracing::debug!(%error, "the command has not read all of its input");
    }
}

async fn whole(job: &Job, mut stdout: impl AsyncRead + Unpin) -> Result<Payload, HandlerError> {
    let mut output = Vec::new();
    let mut limited = (&mut stdout).take((job.answer_max as u64).saturating_add(1));
    let read = limited.read_to_end(&mut output).await;
    read.map_err(|error| job.unknown("read", error.to_string()))?;
    if output.len() > job.answer_max {
        return Err(job.too_large());
    }
    Ok(body::from_output(&Bytes::from(output)))
}

async fn pieces(job: &Job, mut stdout: impl AsyncRead + Unpin) -> Result<Payload, HandlerError> {
    let mut lines = Lines::new(job.answer_max);
    let mut pieces = Pieces::new(job);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = stdout.read(&mut buffer).await.map_err(|error| job.unknown("read", error.to_string()))?;
        lines.push(buffer.get(..read).unwrap_or_default());
        while let Some(line) = lines.next().map_err(|_| job.too_large())? {
            pieces.push(&line).await?;
        }
        if read == 0 {
            if let Some(line) = lines.rest() {
                pieces.push(&line).await?;
            }
            return Ok(pieces.end());
        }
    }
}

/// What a command says on stderr: line by line for the log, the end of it for the caller.
struct Log<'a> {
    job: &'a Job,
    tail: Vec<u8>,
    logged: u32,
}

impl<'a> Log<'a> {
    const fn new(job: &'a Job) -> Self {
        Self { job, tail: Vec::new(), logged: 0 }
    }

    /// Listens until nobody holds it open any more.
    async fn listen(&mut self, mut stderr: impl AsyncRead + Unpin) {
        let mut lines = Lines::new(TEXT_BYTES_MAX);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = stderr.read(&mut buffer).await.unwrap_or(0);
            let bytes = buffer.get(..read).unwrap_or_default();
            self.tail.extend_from_slice(bytes);
            let surplus = self.tail.len().saturating_sub(EXCERPT_BYTES_MAX);
            self.tail.drain(..surplus);
            lines.push(bytes);
            loop {
                match lines.next() {
                    Ok(Some(line)) => self.log(&line),
                    Ok(None) => break,
                    Err(_) => lines.rest().iter().for_each(|part| self.log(part)),
                }
            }
            if read == 0 {
                lines.rest().iter().for_each(|line| self.log(line));
                return;
            }
        }
    }

    fn log(&mut self, line: &[u8]) {
        self.logged = self.logged.saturating_add(1);
        let request_id = self.job.context.request_id();
        if self.logged <= LOG_LINES_MAX {
            let line = &*String::from_utf8_lossy(line);
            tracing::info!(capability = self.job.context.capability(), request_id, line, "the command says");
        } else if self.logged == LOG_LINES_MAX + 1 {
            tracing::warn!(request_id, "the command says more than the log takes of one call");
        }
    }

    fn tail(&self) -> String {
        excerpt(&self.tail)
    }
}

/// What a failure tells programs.
#[derive(Serialize)]
struct Details<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    /// The end of what the command said.
    stderr: String,
}

/// What a call fails with whose command has ended so. An exit code is the command's own word; after a signal nobody
/// knows what was done.
fn failure(job: &Job, status: ExitStatus, stderr: String) -> Option<HandlerError> {
    if status.success() {
        return None;
    }
    let (exit_code, signal) = (status.code(), status.signal());
    let message = match (exit_code, signal) {
        (Some(code), _) => format!("the command ended with exit code {code}"),
        (None, Some(signal)) => format!("the command was killed by signal {signal}"),
        (None, None) => "the command did not end well".to_owned(),
    };
    let code = "exit_status";
    let error = match exit_code {
        Some(TEMPORARY) => HandlerError::new(code, message.as_str()).retryable(),
        Some(_) => HandlerError::new(code, message.as_str()),
        None => job.unknown(code, message.as_str()),
    };
    Some(error.details(Details { code, message: &message, exit_code, signal, stderr }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_looked_for_in_the_path_unless_it_is_one() {
        let there = |program: &str, path: Option<&str>| is_there(OsStr::new(program), path.map(OsStr::new));
        assert!(there("sh", Some("/no/such:/bin")) && there("/bin/sh", None));
        assert!(!there("sh", Some("/no/such")) && !there("sh", None));
        assert!(!there("/bin", None) && !there("/no/such/sh", Some("/bin")));
    }
}
