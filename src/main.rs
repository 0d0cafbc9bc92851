//! The `agent-reach` command.

use std::process::ExitCode;

use agent_reach::cli::Cli;
use clap::Parser;

/// glibc's allocator keeps what a storm needed for ever; this one gives it back (`.cargo/config.toml` says when), and is
/// cheaper where one thread frees what another allocated. Under the C libraries as well: TLS keys are made there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    Cli::parse().run()
}
