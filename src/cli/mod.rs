//! The commands of `agent-reach`, one file for each.

pub mod agents;
pub mod audit;
pub mod bridge;
pub mod call;
pub mod call_options;
pub mod capabilities;
pub mod certs;
pub mod check;
pub mod demo;
pub mod dev;
pub mod hub;
mod output;
pub mod policy;
pub mod serve;
pub mod stats;
pub mod store;
mod submit;
mod table;
pub mod tail;
pub mod tasks;
pub mod token;
pub mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A message hub for systems of many AI agents: one WebSocket for each agent, calls by name or by capability.
#[derive(Debug, Parser)]
#[command(name = "agent-reach", version, max_term_width = 100)]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// See it work: a hub, three sample agents and a caller, in one command
    Demo(demo::DemoArgs),
    /// Run a hub from a configuration file
    Serve(serve::ServeArgs),
    /// Run a hub with no configuration, for development: makes its own certificates
    Dev(dev::DevArgs),
    /// Check a configuration file and the policy it names
    Check(check::CheckArgs),
    /// Say what a policy allows, and by which rule
    Policy(policy::PolicyArgs),
    /// Make tokens for who comes over HTTP
    Token(token::TokenArgs),
    /// Make and revoke certificates with a small authority of your own
    Certs(certs::CertsArgs),
    /// Call a capability and print its result
    Call(Box<call::CallArgs>),
    /// Make a web service or a command an agent, without changing it
    Bridge(bridge::BridgeArgs),
    /// List the agents that are connected
    Agents(agents::AgentsArgs),
    /// List what can be called
    Capabilities(capabilities::CapabilitiesArgs),
    /// List tasks, look at one, cancel it, or watch them
    Tasks(tasks::TasksArgs),
    /// Watch agents and calls as it happens
    Tail(tail::TailArgs),
    /// Show every decision of one call
    Trace(trace::TraceArgs),
    /// Show figures of the hub
    Stats(stats::StatsArgs),
    /// Read the audit log: who did what, to whom, when, and how it ended
    Audit(audit::AuditArgs),
    /// Look into the database of tasks: check it, count it, export it
    Store(store::StoreArgs),
}

impl Cli {
    /// Runs the command to its end.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Demo(args) => demo::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Dev(args) => dev::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Policy(args) => policy::run(&args),
            Command::Token(args) => token::run(&args),
            Command::Certs(args) => certs::run(&args),
            Command::Call(args) => call::run(&args),
            Command::Bridge(args) => bridge::run(&args),
            Command::Agents(args) => agents::run(&args),
            Command::Capabilities(args) => capabilities::run(&args),
            Command::Tasks(args) => tasks::run(&args),
            Command::Tail(args) => tail::run(&args),
            Command::Trace(args) => trace::run(&args),
            Command::Stats(args) => stats::run(&args),
            Command::Audit(args) => audit::run(&args),
            Command::Store(args) => store::run(&args),
        }
    }
}
