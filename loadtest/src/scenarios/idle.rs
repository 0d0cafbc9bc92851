//! Many registered agents that say nothing but that they live: what each of them costs the hub.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::relay::Relay;
use super::{Common, LOOK, PATIENCE, Run, Server, check_room, kib_each, left, mib, micros_each, seconds};
use crate::client::Endpoint;
use crate::dialect::RequestIds;
use crate::hub::Hub;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::meter::Meter;
use crate::process;
use crate::report::Bar;
use crate::worker::{Agents, Worker};

const MEMORY_KIB: Bar = Bar { limit: 12.0, aim: 7.0 };
const KEEPALIVE_US: Bar = Bar { limit: 20.0, aim: 12.0 };
/// What is remembered of ended calls is memory of calls, up to 256 MiB by default, and would hide what connections
/// keep of their traffic.
const FORGETFUL: &str = "[dedupe]\nmax_bytes = 1048576\n";
const FORGETFUL_NOTE: &str = "the hub's dedupe.max_bytes is 1 MiB, so that this is what connections keep";
/// Agents of the warm-up, after which the empty server is measured.
const WARM_UP: u32 = 100;

/// The load of `loadtest idle`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct IdleLoad {
    /// How many agents connect
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..200_000))]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    /// How long their keepalives are watched, in seconds
    #[arg(long, value_name = "N", default_value = "20", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
    /// How long the server gets to settle before memory is read, in seconds
    #[arg(long, value_name = "N", default_value = "6", value_parser = seconds)]
    settle: Duration,
    /// Time between two keepalives of an agent, in milliseconds; the hub's are UPDATEs with load
    #[arg(long, value_name = "N", default_value_t = 5000)]
    keepalive_ms: u64,
    /// Afterwards every agent answers one call of so many bytes, and memory is read again
    #[arg(long, value_name = "BYTES")]
    traffic: Option<usize>,
}

/// Arguments of `loadtest idle`.
#[derive(Clone, Debug, Args)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    load: IdleLoad,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or loses an agent.
pub(crate) fn run(args: &IdleArgs) -> Result<()> {
    let load = &args.load;
    check_room(load.agents)?;
    let mut run = Run::new("idle", load, &args.common, if args.no_relay { 1 } else { 2 })?;
    for _ in 0..args.common.repeats {
        if !args.no_relay {
            let relay = Relay::start(&run.binary, load.agents)?;
            drop(once(load, &relay.server(), &mut run, || Ok(()))?);
            run.progress.done();
        }
        let hub = run.hub_with(if load.traffic.is_some() { FORGETFUL } else { "" })?;
        let (agents, empty) = once(load, &Server::hub(&hub), &mut run, || left(&hub))?;
        after(load, &hub, empty, agents, &mut run)?;
        run.progress.done();
    }
    run.report.note("memory after traffic", load.traffic.map(|_| FORGETFUL_NOTE.to_owned()));
    run.finish()
}

/// Memory and keepalives of a server with its agents, and its memory without them.
fn once(
    load: &IdleLoad,
    server: &Server,
    run: &mut Run,
    left: impl Fn() -> Result<()>,
) -> Result<(Agents, process::Memory)> {
    let (n, about) = (u64::from(load.agents), server.name);
    run.progress.say(format!("{about}: {n} agents connect"));
    // So that what a server allocates once is not counted as a connection's.
    let mut agents = Agents::start(&job(load, &server.endpoint, WARM_UP.min(load.agents)))?;
    agents.connect()?;
    drop(agents);
    left()?;
    run.progress.wait(load.settle);
    let empty = process::memory(server.pid)?;

    let mut agents = Agents::start(&job(load, &server.endpoint, load.agents))?;
    let kernel = process::kernel_memory()?;
    agents.connect()?;
    run.progress.wait(load.settle);
    let full = process::memory(server.pid)?;
    let name = |what: &str| format!("{about}: {what}");
    let hub = about == "hub";
    let each = kib_each(empty.resident, full.resident, n);
    run.report.put(&name("memory for each connection"), "KiB", each, hub.then_some(MEMORY_KIB));
    // Both ends of each connection are on this machine.
    let kernel = kib_each(kernel, process::kernel_memory()?, 2 * n);
    run.report.add(&name("kernel memory for each socket"), "KiB", kernel);

    run.progress.say(format!("{about}: {n} agents are idle"));
    agents.count()?;
    let meter = Meter::start(server.pid, agents.pids())?;
    let frames = run.watch(load.seconds, || agents.count(), |tally| tally.keepalives)?.keepalives;
    let usage = meter.stop()?;
    let cost = micros_each(usage.server, frames);
    run.report.put(&name("CPU for each keepalive"), "us", cost, hub.then_some(KEEPALIVE_US));
    run.report.add(&name("keepalives"), "/s", super::per_second(frames, usage.span));
    run.report.add(&name("memory, empty"), "MiB", mib(empty.resident));
    run.report.add(&name("memory, full"), "MiB", mib(full.resident));
    run.report.add(&name("of it heap and stacks"), "MiB", mib(full.anonymous));
    Ok((agents, empty))
}

/// What a hub keeps of traffic, and of agents that have left.
fn after(
    load: &IdleLoad,
    hub: &Hub,
    empty: process::Memory,
    mut agents: Agents,
    run: &mut Run,
) -> Result<()> {
    if let Some(bytes) = load.traffic {
        run.progress.say(format!("hub: every agent answers a call of {bytes} B"));
        traffic(load, hub, bytes)?;
        run.progress.wait(load.settle);
        let after = process::memory(hub.pid())?;
        let each = kib_each(empty.resident, after.resident, u64::from(load.agents));
        run.report.add(&format!("hub: memory for each after a call of {bytes} B to each"), "KiB", each);
        agents.count()?;
    }
    run.report.add("hub: memory, at most", "MiB", mib(process::peak(hub.pid())?));
    run.progress.say("hub: all have left");
    drop(agents);
    left(hub)?;
    run.progress.wait(load.settle);
    run.report.add("hub: memory, after all have left", "MiB", mib(process::memory(hub.pid())?.resident));
    Ok(())
}

fn job(load: &IdleLoad, endpoint: &Endpoint, count: u32) -> AgentsJob {
    AgentsJob {
        endpoint: endpoint.clone(),
        first: 0,
        count,
        groups: load.groups,
        at_a_time: 32,
        keepalive_ms: load.keepalive_ms,
    }
}

fn traffic(load: &IdleLoad, hub: &Hub, body: usize) -> Result<()> {
    let mut caller = Worker::start(&Job::Callers(CallersJob {
        endpoint: hub.endpoint(),
        callers: 1,
        in_flight: 16,
        body,
        request_ids: RequestIds::None,
        plan: Plan::EachAgentOnce { agents: load.agents, groups: load.groups },
        bursts: false,
    }))?;
    caller.ask(Order::Connect)?;
    caller.ask(Order::Start)?;
    let (began, mut done) = (Instant::now(), 0);
    while done < u64::from(load.agents) {
        std::thread::sleep(LOOK);
        let tally = caller.ask(Order::Count)?;
        done += tally.calls;
        if tally.failed > 0 || began.elapsed() > PATIENCE {
            bail!("{done} of {} agents were called; {:?}", load.agents, tally.failure);
        }
    }
    Ok(())
}
