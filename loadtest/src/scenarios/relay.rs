//! The floor: the same load on a relay that knows nothing of agents.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use super::Common;
use super::call::{LoadArgs, Server};
use crate::client::Endpoint;
use crate::dialect::Dialect;
use crate::hub::Certs;
use crate::jobs::{Job, Order, RelayJob};
use crate::report::Report;
use crate::worker::Worker;

/// Arguments of `loadtest relay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the relay does not start, or a call fails.
pub(crate) fn run(args: &RelayArgs) -> Result<()> {
    let mut report = Report::new()?;
    let binary = args.common.binary()?;
    for _ in 0..args.common.repeats {
        for in_flight in &args.load.in_flight {
            measure(&args.load, &binary, *in_flight, &mut report)?;
        }
    }
    report.publish(args.common.json.as_deref())
}

/// Puts a new relay under load. `binary` makes its certificates.
///
/// # Errors
/// When the relay does not start, or a call fails.
pub(crate) fn measure(args: &LoadArgs, binary: &Path, in_flight: u32, report: &mut Report) -> Result<()> {
    let certs = Certs::new(binary)?;
    let mut relay = Worker::start(&Job::Relay(RelayJob { certs: certs.path().to_owned() }))?;
    let address = relay.ask(Order::Count)?.address.context("the relay's address")?;
    let endpoint = Endpoint { address, certs: certs.path().to_owned(), dialect: Dialect::Relay };
    let server = Server { name: "relay", pid: relay.pid(), endpoint, bar: None };
    super::call::measure(args, &server, in_flight, report)
}
