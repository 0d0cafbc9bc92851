//! How fast tasks are accepted, and how long an ACCEPT takes: it follows a commit that is on disk.

use std::time::Duration;

use anyhow::{Result, bail};

use super::TasksLoad;
use crate::hub::Hub;
use crate::jobs::{AgentsJob, Job, Order, Pace, SubmitJob, Tally, Until};
use crate::meter::{Meter, Usage};
use crate::process;
use crate::report::Bar;
use crate::scenarios::call::WARM_UP;
use crate::scenarios::{Run, mib, micros_each, per_second};
use crate::worker::{Agents, Worker};

pub(super) const MEASUREMENTS: usize = 6;
/// Accepts a second.
const RATE: Bar = Bar { limit: 5000.0, aim: 10_000.0 };
/// Half of the rate that is asked for: a hub as its operator plans it, at which the slowest ACCEPTs are looked at.
const HALF: f64 = RATE.limit / 2.0;
/// The slowest hundredth of ACCEPTs then, in milliseconds.
const P99: Bar = Bar { limit: 20.0, aim: 10.0 };
/// How long tasks are accepted at most that nobody works on: they stay open, and a hub has a bound for all of those.
const ALONE: Duration = Duration::from_secs(2);
/// Batches that were written.
const FLUSHES: &str = "agent_reach_store_flush_seconds_count";
const FLUSH_TIME: &str = "agent_reach_store_flush_seconds_sum";

/// Without workers, so that only accepts are measured, and with workers that complete what was accepted; each as fast as
/// it goes, at half of that, and at half of what is asked for.
///
/// # Errors
/// When the hub does not start, or a task goes wrong.
pub(super) fn measure(load: &TasksLoad, repeats: u32, run: &mut Run) -> Result<()> {
    for _ in 0..repeats {
        for (about, until) in [("accepts alone", Until::Accepted), ("with workers", Until::Ended)] {
            let pace = Pace::Window(load.window as usize, until);
            let (tally, usage) = once(load, about, pace, until, run)?;
            let rate = per_second(tally.calls, usage.span);
            run.report.put(&format!("{about}: tasks accepted"), "/s", rate, Some(RATE));
            costs(&format!("{about}, as fast as it goes"), &tally, &usage, None, run);

            for (name, rate, bar) in [("half that rate", rate / 2.0, None), ("2,500/s", HALF, Some(P99))] {
                let about = format!("{about}, {name}");
                let (tally, usage) = once(load, &about, Pace::Rate(rate), until, run)?;
                let reached = per_second(tally.calls, usage.span);
                run.report.add(&format!("{about}: tasks accepted"), "/s", reached);
                costs(&about, &tally, &usage, bar, run);
            }
        }
    }
    Ok(())
}

fn costs(about: &str, tally: &Tally, usage: &Usage, bar: Option<Bar>, run: &mut Run) {
    let name = |what: &str| format!("{about}: {what}");
    let [p50, p99, p999] = tally.latency_ns.map(|ns| Duration::from_nanos(ns).as_secs_f64() * 1e3);
    run.report.add(&name("ACCEPT p50"), "ms", p50);
    run.report.put(&name("ACCEPT p99"), "ms", p99, bar);
    run.report.add(&name("ACCEPT p99.9"), "ms", p999);
    run.report.add(&name("CPU for each task"), "us", micros_each(usage.server, tally.calls));
    run.report.note(about, usage.bottleneck());
}

/// One hub, one load.
fn once(load: &TasksLoad, about: &str, pace: Pace, until: Until, run: &mut Run) -> Result<(Tally, Usage)> {
    run.progress.say(about);
    let hub = run.hub()?;
    let endpoint = hub.endpoint();
    let (workers, span) = match until {
        Until::Accepted => (0, load.seconds.min(ALONE)),
        Until::Ended => (load.agents, load.seconds),
    };
    let mut agents = Agents::start(&AgentsJob {
        endpoint: endpoint.clone(),
        first: 0,
        count: workers,
        groups: 1,
        at_a_time: 8,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let (callers, body) = (load.callers, load.body);
    let mut callers = Worker::start(&Job::Submit(SubmitJob { endpoint, callers, body, pace, each: None }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(span));

    callers.ask(Order::Count)?;
    let flushes = batches(&hub)?;
    let meter = Meter::start(hub.pid(), [callers.pid()].into_iter().chain(agents.pids()))?;
    let tally = run.watch(span, || callers.ask(Order::Count), |tally| tally.calls)?;
    let usage = meter.stop()?;
    let [count, time] = batches(&hub)?;
    agents.count()?;
    if tally.failed > 0 || tally.calls == 0 {
        bail!("{} accepted, {} callers failed; {:?}", tally.calls, tally.failed, tally.failure);
    }
    let span = usage.span.as_secs_f64();
    let [count, time] = [count - flushes[0], time - flushes[1]];
    run.report.add(&format!("{about}: batches written"), "/s", count / span);
    run.report.add(&format!("{about}: time of a batch"), "ms", time * 1e3 / count.max(1.0));
    run.report.add(&format!("{about}: tasks ended"), "/s", per_second(tally.heard, usage.span));
    run.report.add(&format!("{about}: memory then"), "MiB", mib(process::memory(hub.pid())?.resident));
    run.progress.done();
    Ok((tally, usage))
}

/// How many batches the store has written, and the seconds that they took.
fn batches(hub: &Hub) -> Result<[f64; 2]> {
    Ok([hub.metric(FLUSHES)?, hub.metric(FLUSH_TIME)?])
}
