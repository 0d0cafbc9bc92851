//! The commands of `agent-reach`, one file for each.

pub mod certs;
pub mod check;
pub mod dev;
pub mod serve;

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
    /// Run a hub from a configuration file
    Serve(serve::ServeArgs),
    /// Run a hub with no configuration, for development: makes its own certificates
    Dev(dev::DevArgs),
    /// Check a configuration file and the policy it names
    Check(check::CheckArgs),
    /// Make and revoke certificates with a small authority of your own
    Certs(certs::CertsArgs),
}

impl Cli {
    /// Runs the command to its end.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(args) => serve::run(&args),
            Command::Dev(args) => dev::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Certs(args) => certs::run(&args),
        }
    }
}
