//! Calls, streams, notices, keepalives, agents that come and go and callers that do not read, all at once: every
//! number sent has to come back exactly once.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::call::WARM_UP;
use super::{Common, LOOK, PATIENCE, Run, counted, left, mib, micros_each, per_second, seconds};
use crate::hub::Hub;
use crate::jobs::{Account, AgentsJob, Job, MixedJob, Order, Tally, UnsteadyJob};
use crate::meter::{Meter, Usage};
use crate::process;
use crate::worker::{Agents, Worker};

/// Calls to who has gone for good are over soon, so that the end need not be waited for long; others have time, however
/// slow the machine is.
const TIMES: &str = "[liveness]\nresume_ms = 1000\n[calls]\naccept_timeout_ms = 30000\n";
const SLOW_CONSUMERS: &str = "agent_reach_slow_consumers_total";

/// The load of `loadtest mixed`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct MixedLoad {
    /// How many agents stay
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..100_000))]
    agents: u32,
    /// How many connections call
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: u32,
    /// Calls in flight of each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// How many agents come and go at a time
    #[arg(long, value_name = "N", default_value_t = 20)]
    fleeting: u32,
    /// How many callers do not read
    #[arg(long, value_name = "N", default_value_t = 1)]
    slow: u32,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
    /// How long everything goes on, in seconds
    #[arg(long, value_name = "N", default_value = "30", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
}

/// Arguments of `loadtest mixed`.
#[derive(Clone, Debug, Args)]
pub(crate) struct MixedArgs {
    #[command(flatten)]
    load: MixedLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a number does not come back exactly once.
pub(crate) fn run(args: &MixedArgs) -> Result<()> {
    let mut run = Run::new("mixed", &args.load, &args.common, 1)?;
    let mut account = Account::default();
    for _ in 0..args.common.repeats {
        account += once(&args.load, &mut run)?;
        run.progress.done();
    }
    run.finish()?;
    if !account.is_balanced() {
        bail!("not every number came back exactly once: {account:?}");
    }
    Ok(())
}

fn once(load: &MixedLoad, run: &mut Run) -> Result<Account> {
    run.progress.say("everything at once");
    let hub = run.hub_with(TIMES)?;
    let endpoint = hub.endpoint();
    let mut agents = Agents::start(&AgentsJob {
        endpoint: endpoint.clone(),
        first: 0,
        count: load.agents,
        groups: 1,
        at_a_time: 8,
        keepalive_ms: 1000,
    })?;
    agents.connect()?;
    let mut unsteady = Worker::start(&Job::Unsteady(UnsteadyJob {
        endpoint: endpoint.clone(),
        fleeting: load.fleeting,
        slow: load.slow,
    }))?;
    unsteady.ask(Order::Start)?;
    let mut callers = Worker::start(&Job::Mixed(MixedJob {
        endpoint,
        agents: load.agents,
        callers: load.callers,
        window: load.window,
        body: load.body,
    }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(load.seconds));

    for worker in [&mut callers, &mut unsteady] {
        worker.ask(Order::Count)?;
    }
    agents.count()?;
    let clients = [callers.pid(), unsteady.pid()].into_iter().chain(agents.pids());
    let meter = Meter::start(hub.pid(), clients)?;
    let tally = run.watch(load.seconds, || callers.ask(Order::Count), |tally| tally.calls)?;
    let usage = meter.stop()?;

    run.progress.say("waiting for what is under way");
    let end = callers.ask(Order::Stop)?;
    if load.slow > 0 {
        until("a caller that did not read was ended", || Ok(hub.metric(SLOW_CONSUMERS)? > 0.0))?;
    }
    let others = unsteady.ask(Order::Stop)?;
    let stayed = agents.count()?;
    let heard = Heard { tally, end: end.clone(), others, stayed };
    figures(&heard, &usage, run);
    run.report.add("hub: memory, at most", "MiB", mib(process::peak(hub.pid())?));
    let slow = hub.metric(SLOW_CONSUMERS)?;
    run.report.add("callers that did not read, ended by the hub", "", slow);
    if end.failed > 0 {
        bail!("a caller lost its connection: {:?}", end.failure);
    }
    drop((callers, unsteady, agents));
    left(&hub)?;
    settled(&hub)?;
    Ok(end.account)
}

/// Waits until a hub holds nothing more of calls and agents.
fn settled(hub: &Hub) -> Result<()> {
    const GAUGES: [&str; 4] = [
        "agent_reach_connections",
        "agent_reach_agents",
        "agent_reach_in_flight",
        "agent_reach_outbound_bytes",
    ];
    until("the hub holds nothing more of those that left", || {
        let held = GAUGES.iter().map(|gauge| hub.metric(gauge)).collect::<Result<Vec<_>>>()?;
        Ok(held.iter().all(|value| *value == 0.0))
    })
}

/// Waits for something to be so.
fn until(what: &str, so: impl Fn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !so()? {
        if began.elapsed() > PATIENCE {
            bail!("{PATIENCE:?} have passed, and it is not so: {what}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// What the workers said.
struct Heard {
    /// The callers, of the time that was measured.
    tally: Tally,
    /// The callers, when all had ended.
    end: Tally,
    /// The unsteady ones.
    others: Tally,
    /// The agents that stayed.
    stayed: Tally,
}

fn figures(heard: &Heard, usage: &Usage, run: &mut Run) {
    let Heard { tally, end, others, stayed } = heard;
    let report = &mut run.report;
    let span = usage.span;
    let [p50, p99, p999] = tally.latency_ns.map(|ns| micros_each(Duration::from_nanos(ns), 1));
    report.add("calls of all kinds", "/s", per_second(tally.calls, span));
    report.add("chunks", "/s", per_second(tally.chunks, span));
    report.add("agents that came and went", "", counted(others.lives));
    report.add("those that were refused", "", counted(others.failed));
    report.add("keepalives of those that stayed", "", counted(stayed.keepalives));
    report.add("plain call: p50", "us", p50);
    report.add("plain call: p99", "us", p99);
    report.add("plain call: p99.9", "us", p999);
    report.add("hub: CPU for each call of any kind", "us", micros_each(usage.server, tally.calls));
    let account = &end.account;
    for (what, count) in [
        ("sent", account.sent),
        ("came back", account.good),
        ("lost with their agents", account.lost),
        ("failed", account.failed),
        ("wrong", account.wrong),
        ("twice", account.twice),
        ("missing", account.missing),
    ] {
        report.add(&format!("numbers: {what}"), "", counted(count));
    }
    report.note("mixed", usage.bottleneck());
    report.note("agents that come and go", others.failure.clone());
    report.note("numbers", account.fault.clone());
}
