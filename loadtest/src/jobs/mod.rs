//! What worker processes do: agents, callers, and the relay that is the floor of a comparison.
//!
//! A worker is this program once more, with its job as an argument. It reads orders from stdin, a line of
//! JSON each, answers each with a line on stdout, and ends (its connections with it) when stdin is closed.

mod agents;
mod callers;
pub(crate) mod canary;
mod deaf;
mod generous;
mod http;
mod ledger;
mod mixed;
mod provide;
mod relay;
mod slots;
mod steady;
mod submit;
mod unsteady;
mod waiters;

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub(crate) use agents::AgentsJob;
pub(crate) use callers::{CallersJob, Plan};
pub(crate) use deaf::DeafJob;
pub(crate) use generous::GenerousJob;
pub(crate) use http::HttpJob;
pub(crate) use ledger::Account;
pub(crate) use mixed::MixedJob;
pub(crate) use relay::RelayJob;
pub(crate) use slots::{Hands, SlotsJob, Worked};
pub(crate) use steady::{Choice, SteadyJob};
pub(crate) use submit::{Pace, SubmitJob, Until};
pub(crate) use unsteady::UnsteadyJob;
pub(crate) use waiters::{Waited, WaitersJob};

/// The job of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Connects agents, keeps them alive and answers their calls.
    Agents(AgentsJob),
    /// Connects callers and keeps calls in flight.
    Callers(CallersJob),
    /// Connects callers that do everything at once, and checks what comes back.
    Mixed(MixedJob),
    /// Agents that come and go, callers that do not read.
    Unsteady(UnsteadyJob),
    /// Agents whose work takes time.
    Slots(SlotsJob),
    /// Callers that ask for more than can be taken at once.
    Waiters(WaitersJob),
    /// A caller that asks at its own pace.
    Steady(SteadyJob),
    /// Callers of tasks.
    Submit(SubmitJob),
    /// An agent whose answers are large.
    Generous(GenerousJob),
    /// A caller that does not read them.
    Deaf(DeafJob),
    /// Callers over HTTP.
    Http(HttpJob),
    /// Serves as the bare relay.
    Relay(RelayJob),
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin to connect. Answered when all are.
    Connect,
    /// Begin to call.
    Start,
    /// Tell what was done since the last time, and count from nothing again.
    Count,
    /// Begin nothing new. Answered when all that is under way has ended.
    Stop,
}

/// What a worker answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Connections that are open.
    pub(crate) connected: u64,
    /// Connections that could not be opened, or broke; calls that failed.
    pub(crate) failed: u64,
    /// The first failure, in words.
    pub(crate) failure: Option<String>,
    /// Keepalive frames that were sent.
    pub(crate) keepalives: u64,
    /// Calls and messages that agents got.
    pub(crate) heard: u64,
    /// Chunks that callers got.
    pub(crate) chunks: u64,
    /// Calls that completed.
    pub(crate) calls: u64,
    /// Of those: median, 99th and 99.9th percentile of the time to the result, in nanoseconds.
    pub(crate) latency_ns: [u64; 3],
    /// Agents that came and went.
    pub(crate) lives: u64,
    /// Bytes that were sent in large answers.
    pub(crate) bytes: u64,
    /// What each agent did whose work takes time.
    pub(crate) worked: Vec<Worked>,
    /// How calls waited.
    pub(crate) waited: Waited,
    /// What came back of what was sent.
    pub(crate) account: Account,
    /// Where the relay listens.
    pub(crate) address: Option<std::net::SocketAddr>,
}

impl Tally {
    fn fail(&mut self, error: &anyhow::Error) {
        self.failed += 1;
        self.failure.get_or_insert_with(|| format!("{error:#}"));
    }
}

/// Runs a job until stdin is closed.
///
/// # Errors
/// When it cannot begin.
pub(crate) fn run(job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("the job")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (orders, inbox) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str::<Order>(&line) else { break };
            if orders.blocking_send(order).is_err() {
                break;
            }
        }
    });
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        match job {
            Job::Agents(job) => agents::run(job, inbox).await,
            Job::Callers(job) => callers::run(job, inbox).await,
            Job::Mixed(job) => mixed::run(job, inbox).await,
            Job::Unsteady(job) => unsteady::run(job, inbox).await,
            Job::Slots(job) => slots::run(job, inbox).await,
            Job::Waiters(job) => waiters::run(job, inbox).await,
            Job::Steady(job) => steady::run(job, inbox).await,
            Job::Submit(job) => submit::run(job, inbox).await,
            Job::Generous(job) => generous::run(job, inbox).await,
            Job::Deaf(job) => deaf::run(job, inbox).await,
            Job::Http(job) => http::run(job, inbox).await,
            Job::Relay(job) => relay::run(job, inbox).await,
        }
    })
}

fn answer(tally: &Tally) -> Result<()> {
    let mut line = serde_json::to_vec(tally)?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    Ok(out.flush()?)
}
