//! One message to a thousand agents: what each delivery costs the hub, in bursts and one message at a time.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::call::WARM_UP;
use super::relay::Relay;
use super::{Common, Run, Server, check_room, micros_each, per_second, seconds};
use crate::dialect::RequestIds;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::meter::Meter;
use crate::report::Bar;
use crate::worker::{Agents, Worker};

const BURST_US: Bar = Bar { limit: 5.0, aim: 2.5 };
const ONE_US: Bar = Bar { limit: 20.0, aim: 12.0 };

/// A sender gets a part from every agent for every message: of a burst, more than a queue holds by default. On a slow
/// machine it also takes longer than phase one may by default.
const ROOM: &str = "[limits]\noutbound_bytes = 268435456\n[calls]\naccept_timeout_ms = 60000\n";
const DELIVERIES: &str = "on the hub each is a CALL, its agent's RESULT and a part for the sender, on the relay the \
     message alone; the hub's limits.outbound_bytes is 256 MiB, since so much waits for the sender of a burst";

/// The load of `loadtest fanout`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct FanoutLoad {
    /// How many agents get each message
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..200_000))]
    agents: u32,
    /// How many messages are sent at a time, all of which end before the next; one measurement for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 200])]
    burst: Vec<u32>,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    body: usize,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
}

/// Arguments of `loadtest fanout`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FanoutArgs {
    #[command(flatten)]
    load: FanoutLoad,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a message does not reach all.
pub(crate) fn run(args: &FanoutArgs) -> Result<()> {
    let load = &args.load;
    check_room(load.agents)?;
    let each = if args.no_relay { 1 } else { 2 };
    let mut run = Run::new("fanout", load, &args.common, each * load.burst.len())?;
    for _ in 0..args.common.repeats {
        for burst in &load.burst {
            let floor = if args.no_relay {
                None
            } else {
                let relay = Relay::start(&run.binary, load.agents)?;
                Some(measure(load, &relay.server(), *burst, &mut run)?)
            };
            let hub = run.hub_with(ROOM)?;
            let cost = measure(load, &Server::hub(&hub), *burst, &mut run)?;
            if let Some(floor) = floor {
                run.report.add(&format!("hub over relay, {burst} at a time: CPU"), "x", cost / floor);
            }
        }
    }
    run.report.note("deliveries", Some(DELIVERIES.into()));
    run.finish()
}

/// The server's CPU for each delivery, in microseconds.
fn measure(load: &FanoutLoad, server: &Server, burst: u32, run: &mut Run) -> Result<f64> {
    let about = format!("{}, {burst} at a time", server.name);
    run.progress.say(&about);
    let mut agents = Agents::start(&AgentsJob {
        endpoint: server.endpoint.clone(),
        first: 0,
        count: load.agents,
        groups: 1,
        at_a_time: 32,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let mut sender = Worker::start(&Job::Callers(CallersJob {
        endpoint: server.endpoint.clone(),
        callers: 1,
        in_flight: burst,
        body: load.body,
        request_ids: RequestIds::Sdk,
        plan: Plan::Notices { agents: load.agents },
        bursts: true,
    }))?;
    sender.ask(Order::Connect)?;
    sender.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(load.seconds));

    sender.ask(Order::Count)?;
    agents.count()?;
    let meter = Meter::start(server.pid, [sender.pid()].into_iter().chain(agents.pids()))?;
    let tally = run.watch(load.seconds, || sender.ask(Order::Count), |tally| tally.calls)?;
    let delivered = agents.count()?.heard;
    let usage = meter.stop()?;
    if tally.failed > 0 || delivered == 0 {
        bail!("{} messages failed, {delivered} were delivered; {:?}", tally.failed, tally.failure);
    }
    let name = |what: &str| format!("{about}: {what}");
    let cost = micros_each(usage.server, delivered);
    let bar = match (server.name, burst) {
        ("hub", 1) => Some(ONE_US),
        ("hub", 200) => Some(BURST_US),
        _ => None,
    };
    run.report.put(&name("CPU for each delivery"), "us", cost, bar);
    run.report.add(&name("deliveries"), "/s", per_second(delivered, usage.span));
    let [p50, p99, _] = tally.latency_ns.map(|ns| micros_each(Duration::from_nanos(ns), 1));
    run.report.add(&name("p50 until all have it"), "us", p50);
    run.report.add(&name("p99 until all have it"), "us", p99);
    run.report.add(&name("CPU of the load for each delivery"), "us", micros_each(usage.clients(), delivered));
    run.report.note(&about, usage.bottleneck());
    run.progress.done();
    Ok(cost)
}
