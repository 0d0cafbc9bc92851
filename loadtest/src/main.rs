//! Load on a real Agent-Reach hub, and what it costs the hub.
//!
//! The program starts the release hub itself, drives it from worker processes (this program once more), and
//! reads from `/proc` what the hub used: processor time for each call, connect and keepalive, and memory for
//! each connection. Those repeat on a shared machine far better than calls a second do.

mod client;
mod compare;
mod dialect;
mod frame;
mod hub;
mod jobs;
mod machine;
mod meter;
mod process;
mod progress;
mod report;
mod scenarios;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use jobs::canary;
use scenarios::{call, deaf, fanout, http, idle, mixed, policy, queue, relay, reload, storm, stream, tasks};

/// Puts load on a hub and measures what it costs
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// Memory for each idle connection, CPU for each keepalive
    Idle(idle::IdleArgs),
    /// CPU for each call, and its latency, beside those of a bare relay
    Call(call::CallArgs),
    /// CPU for each connect, and what memory a storm of them leaves
    Storm(storm::StormArgs),
    /// CPU for each delivery of a message to many agents
    Fanout(fanout::FanoutArgs),
    /// CPU for each chunk of a streamed result
    Stream(stream::StreamArgs),
    /// More calls than an agent has slots: how they wait, and how long a slot stays empty
    Queue(queue::QueueArgs),
    /// A slow agent among three: the slowest calls under `least_loaded` and `round_robin`
    Policy(policy::PolicyArgs),
    /// A new policy and a new revocation list while many are connected: how long that takes, and what others notice
    Reload(reload::ReloadArgs),
    /// A caller that does not read while a lot is aimed at it: memory, and what others notice
    Deaf(deaf::DeafArgs),
    /// Tasks and the store: durable accepts, a restart, expiry, and what request ids cost
    Tasks(tasks::TasksArgs),
    /// The same calls over a WebSocket and over HTTP: what the second way costs more
    Http(http::HttpArgs),
    /// Everything at once: every number sent has to come back exactly once
    Mixed(mixed::MixedArgs),
    /// The floor alone: a bare relay under the load of `call`
    Relay(relay::RelayArgs),
    /// A pair that calls while something else attacks the hub, for `make hostile`
    #[command(hide = true)]
    Canary(canary::CanaryArgs),
    /// What this program starts as its own helpers
    #[command(hide = true)]
    Worker {
        /// The job, as JSON
        job: String,
    },
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where in this program it was noticed helps nobody: the chain of causes does.
            let _nobody_listens = writeln!(std::io::stderr(), "loadtest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    worker::raise_descriptors()?;
    match &cli.command {
        Scenario::Idle(args) => idle::run(args),
        Scenario::Call(args) => call::run(args),
        Scenario::Storm(args) => storm::run(args),
        Scenario::Fanout(args) => fanout::run(args),
        Scenario::Stream(args) => stream::run(args),
        Scenario::Queue(args) => queue::run(args),
        Scenario::Policy(args) => policy::run(args),
        Scenario::Reload(args) => reload::run(args),
        Scenario::Deaf(args) => deaf::run(args),
        Scenario::Tasks(args) => tasks::run(args),
        Scenario::Http(args) => http::run(args),
        Scenario::Mixed(args) => mixed::run(args),
        Scenario::Relay(args) => relay::run(args),
        Scenario::Canary(args) => canary::run(args),
        Scenario::Worker { job } => jobs::run(job),
    }
}
