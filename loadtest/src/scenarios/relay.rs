//! The floor: the same load on a relay that knows nothing of agents.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use super::call::LoadArgs;
use super::{Common, Run, Server};
use crate::client::Endpoint;
use crate::dialect::Dialect;
use crate::hub::Certs;
use crate::jobs::{Job, Order, RelayJob};
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
    let mut run = Run::new("relay", &args.load, &args.common, args.load.in_flight.len())?;
    for _ in 0..args.common.repeats {
        for in_flight in &args.load.in_flight {
            let relay = Relay::start(&run.binary, args.load.agents)?;
            super::call::measure(&args.load, &relay.server(), *in_flight, &mut run)?;
        }
    }
    run.finish()
}

/// A running relay. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    worker: Worker,
    endpoint: Endpoint,
    _certs: Certs,
}

impl Relay {
    /// Starts one for so many agents. `binary` makes its certificates.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(binary: &Path, agents: u32) -> Result<Self> {
        let certs = Certs::new(binary)?;
        let mut worker = Worker::start(&Job::Relay(RelayJob { certs: certs.path().to_owned(), agents }))?;
        let address = worker.ask(Order::Count)?.address.context("the relay's address")?;
        let endpoint = Endpoint { address, certs: certs.path().to_owned(), dialect: Dialect::Relay };
        Ok(Self { worker, endpoint, _certs: certs })
    }

    /// What is put under load.
    pub(crate) fn server(&self) -> Server {
        Server { name: "relay", pid: self.worker.pid(), endpoint: self.endpoint.clone() }
    }
}
