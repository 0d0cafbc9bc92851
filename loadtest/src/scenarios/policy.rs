//! Three agents of which one is slow: what the choice among them does to the slowest calls.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::{Common, Run, counted, micros_each};
use crate::jobs::{Choice, Hands, Job, Order, SlotsJob, SteadyJob};
use crate::meter::Meter;
use crate::report::Bar;
use crate::worker::Worker;

/// What the agents say that they take, so that it is not the hub that lets calls wait.
const SLOTS: u64 = 1024;
/// What the 99th percentile under `least_loaded` may be, as a share of that under `round_robin`.
const RATIO: Bar = Bar { limit: 0.6, aim: 0.4 };

/// The load of `loadtest policy`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct PolicyLoad {
    /// How long each agent works on a call, in microseconds
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [2000, 2000, 10_000])]
    work_us: Vec<u32>,
    /// How many calls each works on at a time; the others wait with it
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    hands: u32,
    /// Calls a second, at random, whether others are answered or not; a third of the default is 90 % of what the slow
    /// agent can do
    #[arg(long, value_name = "N", default_value_t = 540, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Calls under each policy
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
}

/// Arguments of `loadtest policy`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    load: PolicyLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call fails.
pub(crate) fn run(args: &PolicyArgs) -> Result<()> {
    let mut run = Run::new("policy", &args.load, &args.common, 2)?;
    for _ in 0..args.common.repeats {
        let least_loaded = once(&args.load, Choice::LeastLoaded, &mut run)?;
        let round_robin = once(&args.load, Choice::RoundRobin, &mut run)?;
        let [p50, p99, p999] = [0, 1, 2].map(|at: usize| {
            let of = |values: [f64; 3]| values.get(at).copied().unwrap_or(f64::NAN);
            of(least_loaded) / of(round_robin)
        });
        run.report.add("least_loaded over round_robin: p50", "x", p50);
        run.report.put("least_loaded over round_robin: p99", "x", p99, Some(RATIO));
        run.report.add("least_loaded over round_robin: p99.9", "x", p999);
    }
    run.finish()
}

/// Median, 99th and 99.9th percentile of the time to the result, in milliseconds.
fn once(load: &PolicyLoad, policy: Choice, run: &mut Run) -> Result<[f64; 3]> {
    run.progress.say(policy.name());
    let hub = run.hub()?;
    let endpoint = hub.endpoint();
    let hands = |work_us: &u32| Hands { slots: SLOTS, hands: load.hands, work_us: u64::from(*work_us) };
    let agents = load.work_us.iter().map(hands).collect();
    let mut agents = Worker::start(&Job::Slots(SlotsJob { endpoint: endpoint.clone(), agents }))?;
    agents.ask(Order::Connect)?;
    let (calls, rate) = (load.calls, f64::from(load.rate));
    let mut caller =
        Worker::start(&Job::Steady(SteadyJob { endpoint, policy, calls, rate, body: load.body }))?;
    caller.ask(Order::Connect)?;

    let meter = Meter::start(hub.pid(), [agents.pid(), caller.pid()])?;
    let ended = caller.ask(Order::Stop)?;
    let usage = meter.stop()?;
    if ended.failed > 0 || ended.calls != u64::from(calls) {
        bail!("of {calls} calls {} came back; {} failed: {:?}", ended.calls, ended.failed, ended.failure);
    }
    let worked = agents.ask(Order::Count)?;
    if let Some(failure) = worked.failure {
        bail!("an agent: {failure}");
    }
    let name = |what: &str| format!("{}: {what}", policy.name());
    let report = &mut run.report;
    let millis = ended.latency_ns.map(|ns| micros_each(Duration::from_nanos(ns), 1) / 1000.0);
    for (what, value) in ["p50", "p99", "p99.9"].into_iter().zip(millis) {
        report.add(&name(what), "ms", value);
    }
    for ((place, worked), work_us) in (1..).zip(worked.worked).zip(&load.work_us) {
        let share = 100.0 * counted(worked.calls) / f64::from(calls);
        report.add(&name(&format!("calls of agent {place}, {work_us} us each")), "%", share);
    }
    report.note(policy.name(), usage.bottleneck());
    run.progress.done();
    Ok(millis)
}
