//! Everybody connects at once: what a connect costs the hub, from TCP to WELCOME.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::{Common, kib_each, mib, micros_each, per_second};
use crate::client::Endpoint;
use crate::dialect::Dialect;
use crate::hub::{Certs, Hub};
use crate::jobs::{AgentsJob, Job, Order, RelayJob};
use crate::process;
use crate::report::{Bar, Report};
use crate::worker::{Agents, Worker};

const CONNECT_US: Bar = Bar { limit: 450.0, aim: 350.0 };
/// Agents that connect before counting begins.
const WARM_UP: u32 = 20;

/// Arguments of `loadtest storm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StormArgs {
    /// How many agents connect
    #[arg(long, value_name = "N", default_value_t = 5000)]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000)]
    groups: u32,
    /// How many connect at a time
    #[arg(long, value_name = "N", default_value_t = 512)]
    at_a_time: u32,
    /// How long the hub gets to settle before memory is read, in seconds
    #[arg(long, value_name = "N", default_value_t = 3)]
    settle: u64,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or an agent cannot connect.
pub(crate) fn run(args: &StormArgs) -> Result<()> {
    let mut report = Report::new()?;
    for _ in 0..args.common.repeats {
        floor(args, &mut report)?;
        once(args, &mut report)?;
    }
    report.publish(args.common.json.as_deref())
}

/// The bare relay: accepting, mutual TLS and one message each way.
fn floor(args: &StormArgs, report: &mut Report) -> Result<()> {
    let certs = Certs::new(&args.common.binary()?)?;
    let mut relay = Worker::start(&Job::Relay(RelayJob { certs: certs.path().to_owned() }))?;
    let address = relay.ask(Order::Count)?.address.context("the relay's address")?;
    let endpoint = Endpoint { address, certs: certs.path().to_owned(), dialect: Dialect::Relay };
    let (_warm, _empty) = warm_up(args, &endpoint, relay.pid())?;
    let (_agents, cost, _rate) = connect(args, &endpoint, relay.pid())?;
    report.add("relay CPU for each connect", "us", cost);
    Ok(())
}

fn once(args: &StormArgs, report: &mut Report) -> Result<()> {
    let hub = Hub::start(&args.common.binary()?, &args.common.hub_log)?;
    let (_warm, empty) = warm_up(args, &hub.endpoint(), hub.pid())?;
    let (mut agents, cost, rate) = connect(args, &hub.endpoint(), hub.pid())?;
    report.add_with_bar("hub CPU for each connect", "us", cost, CONNECT_US);
    report.add("connects", "/s", rate);
    sleep(Duration::from_secs(args.settle));
    let full = process::memory(hub.pid())?;
    let each = kib_each(empty.resident, full.resident, u64::from(args.agents));
    report.add("hub memory for each connection then", "KiB", each);
    report.add("hub memory, at most", "MiB", mib(process::peak(hub.pid())?));
    agents.count()?;
    Ok(())
}

fn job(args: &StormArgs, endpoint: &Endpoint, first: u32, count: u32) -> AgentsJob {
    let (groups, at_a_time) = (args.groups, args.at_a_time);
    AgentsJob { endpoint: endpoint.clone(), first, count, groups, at_a_time, keepalive_ms: 0 }
}

/// A few connections, and the memory that the server has with them.
fn warm_up(args: &StormArgs, endpoint: &Endpoint, pid: u32) -> Result<(Agents, process::Memory)> {
    let mut agents = Agents::start(&job(args, endpoint, args.agents, WARM_UP))?;
    agents.connect()?;
    Ok((agents, process::memory(pid)?))
}

/// Connects all: the agents, the server's CPU for each in microseconds, and how many a second.
fn connect(args: &StormArgs, endpoint: &Endpoint, pid: u32) -> Result<(Agents, f64, f64)> {
    let mut agents = Agents::start(&job(args, endpoint, 0, args.agents))?;
    let (began, before) = (Instant::now(), process::cpu(pid)?);
    agents.connect()?;
    let (span, spent) = (began.elapsed(), process::cpu(pid)? - before);
    let n = u64::from(args.agents);
    Ok((agents, micros_each(spent, n), per_second(n, span)))
}
