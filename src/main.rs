//! The `agent-reach` command.

use std::process::ExitCode;

use agent_reach::cli::Cli;
use clap::Parser;

fn main() -> ExitCode {
    Cli::parse().run()
}
