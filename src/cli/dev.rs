//! `agent-reach dev`: a hub with no configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::serve::{run_hub, write_line};
use crate::certs;
use crate::config::{self, Config};
use crate::server::Ready;

/// Where `dev` keeps its certificates, and client commands look for them.
pub const DIR: &str = ".agent-reach";
/// In that directory: the ready line of the hub that runs there.
pub const READY_FILE: &str = "dev.json";

/// Arguments of `agent-reach dev`.
#[derive(Debug, Clone, Args)]
pub struct DevArgs {
    /// Where certificates are kept, and made when absent
    #[arg(long, value_name = "DIR", default_value = DIR)]
    pub dir: PathBuf,
    /// Address for agents; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    pub agents: SocketAddr,
    /// Address for health; loopback only, since it is plain HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7080")]
    pub http: SocketAddr,
    /// Address for Prometheus
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464")]
    pub metrics: SocketAddr,
}

/// Runs the command. Exit codes as of `serve`.
#[must_use]
pub fn run(args: &DevArgs) -> ExitCode {
    match configure(args) {
        Ok(config) => run_hub(&config, Some(&args.dir), |ready| {
            announce(&args.dir, &ready);
            write_line(&ready);
        }),
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// Makes what is absent and the configuration that uses it.
///
/// # Errors
/// A message for people.
pub fn configure(args: &DevArgs) -> Result<Config, String> {
    certs::ensure_dev(&args.dir, &[]).map_err(|e| e.to_string())?;
    Config::for_dev(&args.dir, args.agents, args.http, args.metrics, config::environment())
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

/// Leaves the ready line where client commands in this directory find it.
pub fn announce(dir: &Path, ready: &Ready) {
    let path = dir.join(READY_FILE);
    // The link is for who started the hub, and not for who can read its files.
    let told = Ready { console: None, ..ready.clone() };
    let written =
        serde_json::to_vec(&told).map_err(std::io::Error::from).and_then(|line| std::fs::write(&path, line));
    if let Err(error) = written {
        tracing::warn!(%error, path = %path.display(), "client commands will need --hub");
    }
}
