//! Everybody connects at once: what a connect costs the hub, from TCP to WELCOME, and what it keeps of a storm.

use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::relay::Relay;
use super::{Common, Run, Server, check_room, kib_each, left, mib, micros_each, per_second, seconds};
use crate::client::Endpoint;
use crate::jobs::AgentsJob;
use crate::meter::Meter;
use crate::process::{self, Memory};
use crate::report::Bar;
use crate::worker::Agents;

const CONNECT_US: Bar = Bar { limit: 450.0, aim: 350.0 };
/// What memory may be after a storm, as a multiple of what it is without one.
const MEMORY: Bar = Bar { limit: 1.2, aim: 1.1 };
/// Agents that connect before counting begins.
const WARM_UP: u32 = 20;
/// How many connect at a time where there is no storm.
const CALM: u32 = 4;

/// The load of `loadtest storm`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct StormLoad {
    /// How many agents connect
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..200_000))]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    /// How many connect at a time
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    at_a_time: u32,
    /// How long the hub gets to settle before memory is read, in seconds
    #[arg(long, value_name = "N", default_value = "3", value_parser = seconds)]
    settle: Duration,
}

/// Arguments of `loadtest storm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StormArgs {
    #[command(flatten)]
    load: StormLoad,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    /// Leave out the calm that memory after the storm is compared with
    #[arg(long)]
    no_calm: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or an agent cannot connect.
pub(crate) fn run(args: &StormArgs) -> Result<()> {
    let load = &args.load;
    check_room(load.agents)?;
    let measurements = 1 + usize::from(!args.no_relay) + usize::from(!args.no_calm);
    let mut run = Run::new("storm", load, &args.common, measurements)?;
    for _ in 0..args.common.repeats {
        let floor = if args.no_relay { None } else { Some(floor(load, &mut run)?) };
        let calm = if args.no_calm { None } else { Some(calm(load, &mut run)?) };
        storm(load, floor, calm, &mut run)?;
    }
    run.finish()
}

/// The bare relay: accepting, mutual TLS and one message each way.
fn floor(load: &StormLoad, run: &mut Run) -> Result<f64> {
    run.progress.say("relay: a storm of connects");
    let relay = Relay::start(&run.binary, load.agents + WARM_UP)?;
    let server = relay.server();
    let warm = warm_up(load, &server.endpoint)?;
    let (agents, cost) = connect(load, &server, run)?;
    drop((warm, agents));
    run.progress.done();
    Ok(cost)
}

/// Memory of a hub with all agents, and after they have left.
#[derive(Clone, Copy)]
struct Kept {
    full: Memory,
    left: Memory,
}

/// The same agents on a hub that has time for each.
fn calm(load: &StormLoad, run: &mut Run) -> Result<Kept> {
    run.progress.say("hub: all connect, a few at a time");
    let hub = run.hub()?;
    let warm = warm_up(load, &hub.endpoint())?;
    let mut agents = Agents::start(&job(load, &hub.endpoint(), 0, load.agents, CALM))?;
    agents.connect()?;
    run.progress.wait(load.settle);
    let full = process::memory(hub.pid())?;
    drop((agents, warm));
    left(&hub)?;
    run.progress.wait(load.settle);
    let left = process::memory(hub.pid())?;
    run.report.add("hub: memory, full, no storm", "MiB", mib(full.resident));
    run.report.add("hub: memory, after all have left, no storm", "MiB", mib(left.resident));
    run.progress.done();
    Ok(Kept { full, left })
}

fn storm(load: &StormLoad, floor: Option<f64>, calm: Option<Kept>, run: &mut Run) -> Result<()> {
    run.progress.say("hub: a storm of connects");
    let hub = run.hub()?;
    let server = Server::hub(&hub);
    let warm = warm_up(load, &server.endpoint)?;
    let empty = process::memory(hub.pid())?;
    let (mut agents, cost) = connect(load, &server, run)?;
    if let Some(floor) = floor {
        run.report.add("hub over relay: CPU", "x", cost / floor);
    }
    run.progress.wait(load.settle);
    let full = process::memory(hub.pid())?;
    agents.count()?;
    let each = kib_each(empty.resident, full.resident, u64::from(load.agents));
    let report = &mut run.report;
    report.add("hub: memory for each connection then", "KiB", each);
    report.add("hub: memory, empty", "MiB", mib(empty.resident));
    report.add("hub: memory, full", "MiB", mib(full.resident));
    report.add("hub: memory, at most", "MiB", mib(process::peak(hub.pid())?));

    run.progress.say("hub: all have left");
    drop((agents, warm));
    left(&hub)?;
    run.progress.wait(load.settle);
    let gone = process::memory(hub.pid())?;
    let report = &mut run.report;
    report.add("hub: memory, after all have left", "MiB", mib(gone.resident));
    report.put("memory after all have left, over empty", "x", ratio(gone, empty), Some(MEMORY));
    if let Some(Kept { full: calm, left }) = calm {
        report.put("memory with all, storm over no storm", "x", ratio(full, calm), Some(MEMORY));
        report.put("memory after all have left, storm over no storm", "x", ratio(gone, left), Some(MEMORY));
    }
    run.progress.done();
    Ok(())
}

fn ratio(memory: Memory, to: Memory) -> f64 {
    mib(memory.resident) / mib(to.resident).max(0.001)
}

fn job(load: &StormLoad, endpoint: &Endpoint, first: u32, count: u32, at_a_time: u32) -> AgentsJob {
    AgentsJob { endpoint: endpoint.clone(), first, count, groups: load.groups, at_a_time, keepalive_ms: 0 }
}

/// A few connections that stay.
fn warm_up(load: &StormLoad, endpoint: &Endpoint) -> Result<Agents> {
    let mut agents = Agents::start(&job(load, endpoint, load.agents, WARM_UP, WARM_UP))?;
    agents.connect()?;
    Ok(agents)
}

/// Connects all: the agents, and the server's CPU for each in microseconds.
fn connect(load: &StormLoad, server: &Server, run: &mut Run) -> Result<(Agents, f64)> {
    let mut agents = Agents::start(&job(load, &server.endpoint, 0, load.agents, load.at_a_time))?;
    let (began, meter) = (Instant::now(), Meter::start(server.pid, agents.pids())?);
    agents.connect()?;
    let (span, usage) = (began.elapsed(), meter.stop()?);
    let n = u64::from(load.agents);
    let cost = micros_each(usage.server, n);
    let name = |what: &str| format!("{}: {what}", server.name);
    let bar = (server.name == "hub").then_some(CONNECT_US);
    run.report.put(&name("CPU for each connect"), "us", cost, bar);
    run.report.add(&name("connects"), "/s", per_second(n, span));
    run.report.add(&name("CPU of the load for each connect"), "us", micros_each(usage.clients(), n));
    run.report.note(server.name, usage.bottleneck());
    Ok((agents, cost))
}
