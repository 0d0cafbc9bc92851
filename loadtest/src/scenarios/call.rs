//! Thirty agents, eight callers, 1 KB both ways: what a call costs the hub.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::relay::Relay;
use super::{Common, Run, Server, mib, micros_each, per_second, seconds};
use crate::dialect::RequestIds;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::meter::Meter;
use crate::process;
use crate::report::Bar;
use crate::worker::{Agents, Worker};

/// Time before counting begins.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
/// What the median round trip of a lone call may cost, as a multiple of the relay's on the same core.
const RATIO: Bar = Bar { limit: 2.0, aim: 1.3 };
/// What a call may cost with audit and records, as a multiple of what it costs without.
const AUDITED: Bar = Bar { limit: 1.1, aim: 1.05 };
/// The configuration of a hub that writes nothing down about calls.
const UNAUDITED: &str = "[audit]\nenabled = false\n[store]\nrecords = false\n";

/// The load of `loadtest call` and `loadtest relay`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct LoadArgs {
    /// How many agents offer capabilities
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) agents: u32,
    /// Agents of one group offer the same three capabilities; 1: the hub chooses among all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) groups: u32,
    /// How many connections call
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) callers: u32,
    /// Calls in flight over all callers; one measurement for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 64, 256])]
    pub(crate) in_flight: Vec<u32>,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub(crate) body: usize,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    #[serde(skip)]
    pub(crate) seconds: Duration,
    /// What names a call
    #[arg(long, value_enum, default_value_t = RequestIds::Sdk)]
    pub(crate) request_ids: RequestIds,
}

/// Arguments of `loadtest call`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    /// Also measure the hub without audit and records, to tell what they cost
    #[arg(long)]
    audit: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call fails.
pub(crate) fn run(args: &CallArgs) -> Result<()> {
    let each = 1 + usize::from(!args.no_relay) + usize::from(args.audit);
    let mut run = Run::new("call", &args.load, &args.common, each * args.load.in_flight.len())?;
    for repeat in 0..args.common.repeats {
        for in_flight in &args.load.in_flight {
            // The relay right beside the hub, so that both see the machine alike.
            let floor = if args.no_relay {
                None
            } else {
                let relay = Relay::start(&run.binary, args.load.agents)?;
                Some(measure(&args.load, &relay.server(), *in_flight, &mut run)?)
            };
            // Now one first, now the other: whatever the machine does meanwhile takes no side.
            let first = if args.audit && repeat % 2 == 0 {
                Some(unaudited(args, *in_flight, &mut run)?)
            } else {
                None
            };
            let hub = run.hub()?;
            let found = measure(&args.load, &Server::hub(&hub), *in_flight, &mut run)?;
            drop(hub);
            let second = args.audit && first.is_none();
            let without = if second { Some(unaudited(args, *in_flight, &mut run)?) } else { first };
            if let Some(without) = without {
                let name = |what: &str| format!("audit and records over none, {in_flight} in flight: {what}");
                // A lone call is mostly waking up, which says nothing of what is done for it.
                let bar = (*in_flight > 1).then_some(AUDITED);
                run.report.put(&name("CPU"), "x", found.cpu_us / without.cpu_us, bar);
                run.report.add(&name("p50"), "x", found.p50_us / without.p50_us);
            }
            if let Some(floor) = floor {
                let name = |what: &str| format!("hub over relay, {in_flight} in flight: {what}");
                run.report.add(&name("CPU"), "x", found.cpu_us / floor.cpu_us);
                // Only on one core: elsewhere it is the waking of another that is measured.
                let bar = (*in_flight == 1 && args.common.pin.is_some()).then_some(RATIO);
                run.report.put(&name("p50"), "x", found.p50_us / floor.p50_us, bar);
            }
        }
    }
    run.finish()
}

/// The same load on a hub that writes nothing down about calls.
fn unaudited(args: &CallArgs, in_flight: u32, run: &mut Run) -> Result<Costs> {
    let hub = run.hub_with(UNAUDITED)?;
    let server = Server { name: "hub without audit and records", ..Server::hub(&hub) };
    measure(&args.load, &server, in_flight, run)
}

/// What a server costs.
pub(crate) struct Costs {
    /// Its processor time for each call, in microseconds.
    pub(crate) cpu_us: f64,
    /// The median time to the result, in microseconds.
    pub(crate) p50_us: f64,
    /// The 99th percentile of it.
    pub(crate) p99_us: f64,
}

/// Puts a server under load and reads what it costs.
///
/// # Errors
/// When a connection cannot be made, or a call fails.
pub(crate) fn measure(args: &LoadArgs, server: &Server, in_flight: u32, run: &mut Run) -> Result<Costs> {
    let about = format!("{}, {in_flight} in flight", server.name);
    run.progress.say(&about);
    let mut agents = Agents::start(&AgentsJob {
        endpoint: server.endpoint.clone(),
        first: 0,
        count: args.agents,
        groups: args.groups,
        at_a_time: 8,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let mut callers = Worker::start(&Job::Callers(CallersJob {
        endpoint: server.endpoint.clone(),
        callers: args.callers,
        in_flight,
        body: args.body,
        request_ids: args.request_ids,
        plan: Plan::Capabilities { agents: args.agents, groups: args.groups },
        bursts: false,
    }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(args.seconds));

    callers.ask(Order::Count)?;
    let meter = Meter::start(server.pid, [callers.pid()].into_iter().chain(agents.pids()))?;
    let tally = run.watch(args.seconds, || callers.ask(Order::Count), |tally| tally.calls)?;
    let usage = meter.stop()?;
    agents.count()?;
    if tally.failed > 0 || tally.calls == 0 {
        bail!("{} calls failed, {} completed; {:?}", tally.failed, tally.calls, tally.failure);
    }

    let name = |what: &str| format!("{about}: {what}");
    let report = &mut run.report;
    let cpu_us = micros_each(usage.server, tally.calls);
    let bar = (server.name == "hub").then(|| bar(in_flight)).flatten();
    report.put(&name("CPU for each call"), "us", cpu_us, bar);
    report.add(&name("calls"), "/s", per_second(tally.calls, usage.span));
    let [p50_us, p99_us, p999_us] = tally.latency_ns.map(|ns| micros_each(Duration::from_nanos(ns), 1));
    report.add(&name("p50"), "us", p50_us);
    report.add(&name("p99"), "us", p99_us);
    report.add(&name("p99.9"), "us", p999_us);
    report.add(&name("memory then"), "MiB", mib(process::memory(server.pid)?.resident));
    report.add(&name("CPU of the load for each call"), "us", micros_each(usage.clients(), tally.calls));
    report.note(&about, usage.bottleneck());
    run.progress.done();
    Ok(Costs { cpu_us, p50_us, p99_us })
}

const fn bar(in_flight: u32) -> Option<Bar> {
    match in_flight {
        64 => Some(Bar { limit: 20.0, aim: 12.0 }),
        256 => Some(Bar { limit: 12.0, aim: 8.0 }),
        _ => None,
    }
}
