//! `agent-reach serve`: a hub from a configuration file. And what every command that runs a hub shares.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{self, Config};
use crate::server::{Ready, Server};
use crate::supervisor::{Sockets, State, Supervisor};
use crate::telemetry::logging;

/// Exit code of a hub that was told twice to stop.
const STOPPED: u8 = 130;
/// How long connections get to hear that the hub stops at once.
const LAST_WORD: Duration = Duration::from_millis(250);
/// Exit code of a start that failed.
const FAILED: u8 = 1;

/// Arguments of `agent-reach serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the command. Exit 0 after a drain, 1 when it could not start, 130 when it was stopped at once.
#[must_use]
pub fn run(args: &ServeArgs) -> ExitCode {
    match Config::load(&args.config, config::environment()) {
        Ok(config) => run_hub(&config, None, |ready| write_line(&ready)),
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Runs a hub until it is told to stop.
pub fn run_hub(config: &Config, dir: Option<&Path>, on_ready: impl FnOnce(Ready)) -> ExitCode {
    // Before there are threads: it takes variables out of the environment.
    let sockets = match Sockets::inherited() {
        Ok(sockets) => sockets,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(FAILED);
        }
    };
    if let Err(error) = logging::init(&config.tracing) {
        eprintln!("tracing.log: {error}");
        return ExitCode::from(FAILED);
    }
    let runtime = match runtime(config.agents.threads) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            return ExitCode::from(FAILED);
        }
    };
    runtime.block_on(serve(config, dir, sockets, on_ready))
}

/// The runtime of everything but connections. It leaves a core to each of their threads, as far as there are enough:
/// a storm of handshakes must not take the processor from the calls of those who are there.
fn runtime(connection_threads: u32) -> std::io::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.saturating_sub(connection_threads as usize).max(1);
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

async fn serve(
    config: &Config,
    dir: Option<&Path>,
    sockets: Sockets,
    on_ready: impl FnOnce(Ready),
) -> ExitCode {
    let supervisor = Supervisor::from_env();
    // Before the ready line: whoever reads it may send a signal at once.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("cannot listen for signals: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let mut server = match Server::start(config, dir, sockets).await {
        Ok(server) => server,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(FAILED);
        }
    };
    on_ready(server.ready().clone());
    supervisor.tell(&[State::Ready, State::Status(&format!("serving {}", server.ready().agents))]);
    let (driver, pulse, audit) = (server.driver(), server.pulse.clone(), server.audit());
    let draining = Cell::new(false);
    let watchdog = supervisor.feed(async || {
        driver.clock_ticks().await;
        // A thread that is gone at the end of a drain has done its work.
        pulse.beats().await || draining.get()
    });
    tokio::pin!(watchdog);
    loop {
        // Cancel-safe: a signal that is not taken now is taken by the next turn.
        let signal = tokio::select! {
            signal = signals.next() => signal,
            () = server.broken() => {
                audit.iter().for_each(|audit| audit.close());
                return ExitCode::from(FAILED);
            }
            never = &mut watchdog => match never {},
        };
        match signal {
            Told::Stop => break,
            Told::Reload => server.reload(),
        }
    }
    draining.set(true);
    supervisor.tell(&[State::Stopping, State::Status("draining")]);
    // Cancel-safe: whichever comes first ends the process.
    tokio::select! {
        never = &mut watchdog => match never {},
        () = server.stop() => return ExitCode::SUCCESS,
        () = signals.stop() => {}
    }
    driver.stop();
    if tokio::time::timeout(LAST_WORD, driver.emptied()).await.is_err() {
        tracing::debug!("stopped with connections open");
    }
    audit.iter().for_each(|audit| audit.close());
    ExitCode::from(STOPPED)
}

/// What a signal tells a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGTERM, SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that a hub listens to.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one. Cancel-safe.
    pub async fn next(&mut self) -> Told {
        // Cancel-safe: a signal that is not taken now is taken by the next call.
        tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
        }
    }

    /// Waits for the next one that ends the hub.
    pub async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
    }
}

/// Prints a line of JSON for programs.
pub fn write_line<T: serde::Serialize>(value: &T) {
    let Ok(mut line) = serde_json::to_vec(value) else { return };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    // Nobody reads it when the pipe is closed; the hub serves all the same.
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        tracing::debug!("nobody reads the ready line");
    }
}
