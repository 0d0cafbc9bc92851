//! Many callers, one agent with few slots: how calls wait, and how long a slot stays empty.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::{Common, Run, counted, mib, micros_each};
use crate::hub::Hub;
use crate::jobs::{Hands, Job, Order, SlotsJob, Tally, WaitersJob, Worked};
use crate::meter::{Meter, Usage};
use crate::process::{self, now_ns};
use crate::report::Bar;
use crate::worker::Worker;

/// Time between two looks at the metrics page.
const LOOK: Duration = Duration::from_millis(100);
/// How many calls wait.
const QUEUED: &str = "agent_reach_queued";
/// From when a slot is free to the ACCEPT of the call that gets it: half of them, in milliseconds.
const AFTER_SLOT: Bar = Bar { limit: 5.0, aim: 1.0 };

/// The load of `loadtest queue`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct QueueLoad {
    /// How many connections call
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: u32,
    /// Calls of each
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: u32,
    /// Calls in flight of each; default: all at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    in_flight: Option<u32>,
    /// How many calls the agent takes at a time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// How long it works on each, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=10_000))]
    work_ms: u32,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
}

/// Arguments of `loadtest queue`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(flatten)]
    load: QueueLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call is lost or fails.
pub(crate) fn run(args: &QueueArgs) -> Result<()> {
    let mut run = Run::new("queue", &args.load, &args.common, 1)?;
    for _ in 0..args.common.repeats {
        once(&args.load, &mut run)?;
        run.progress.done();
    }
    run.finish()
}

fn once(load: &QueueLoad, run: &mut Run) -> Result<()> {
    run.progress.say("calls wait for a slot");
    let all = u64::from(load.callers) * u64::from(load.calls);
    let in_flight = load.in_flight.unwrap_or(load.calls).min(load.calls);
    // The line of one capability may hold them all, and a connection its own.
    let hub =
        run.hub_with(&format!("[limits]\nqueue_len = {all}\nmax_in_flight = {}\n", in_flight.max(1)))?;
    let endpoint = hub.endpoint();
    let hands =
        Hands { slots: load.slots.into(), hands: load.slots, work_us: u64::from(load.work_ms) * 1000 };
    let mut agent = Worker::start(&Job::Slots(SlotsJob { endpoint: endpoint.clone(), agents: vec![hands] }))?;
    agent.ask(Order::Connect)?;
    let job = WaitersJob { endpoint, callers: load.callers, calls: load.calls, in_flight, body: load.body };
    let mut callers = Worker::start(&Job::Waiters(job))?;
    callers.ask(Order::Connect)?;

    let meter = Meter::start(hub.pid(), [agent.pid(), callers.pid()])?;
    let began = now_ns()?;
    callers.ask(Order::Start)?;
    let (ended, depths) = watched(&hub, || callers.ask(Order::Stop))?;
    let usage = meter.stop()?;
    let worked = agent.ask(Order::Count)?;
    if let Some(failure) = worked.failure {
        bail!("the agent: {failure}");
    }
    let worked = worked.worked.into_iter().next().context("an agent")?;
    check(all, &ended, &worked)?;
    figures(load, &Seen { began, ended, worked, depths, usage }, run);
    run.report.add("hub: memory, at most", "MiB", mib(process::peak(hub.pid())?));
    Ok(())
}

/// Looks at the depth of the queue while something goes on. Each look: when, on the machine's clock, and how deep.
fn watched<T>(hub: &Hub, goes_on: impl FnOnce() -> Result<T>) -> Result<(T, Vec<(u64, f64)>)> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut depths = Vec::new();
            while !over.load(Ordering::Relaxed) {
                depths.push((now_ns()?, hub.metric(QUEUED)?));
                std::thread::sleep(LOOK);
            }
            depths.push((now_ns()?, hub.metric(QUEUED)?));
            Ok(depths)
        });
        let done = goes_on();
        over.store(true, Ordering::Relaxed);
        let depths: Result<Vec<_>> = looks.join().unwrap_or_else(|_| bail!("nobody looked at the queue"));
        Ok((done?, depths?))
    })
}

fn check(all: u64, ended: &Tally, worked: &Worked) -> Result<()> {
    if ended.failed > 0 {
        bail!("{} of {all} calls failed; {:?}", ended.failed, ended.failure);
    }
    if (ended.calls, worked.calls) != (all, all) {
        bail!("of {all} calls the agent answered {}, and {} came back", worked.calls, ended.calls);
    }
    if worked.over > 0 {
        bail!("{} calls came to an agent whose slots were all taken", worked.over);
    }
    Ok(())
}

/// What was seen.
struct Seen {
    began: u64,
    ended: Tally,
    worked: Worked,
    depths: Vec<(u64, f64)>,
    usage: Usage,
}

fn figures(load: &QueueLoad, seen: &Seen, run: &mut Run) {
    let Seen { began, ended, worked, depths, usage } = seen;
    let report = &mut run.report;
    let millis = |ns: u64| micros_each(Duration::from_nanos(ns), 1) / 1000.0;
    let share = |part: u64, whole: u64| 100.0 * counted(part) / counted(whole).max(1.0);
    let [p50, p99, p999] = ended.waited.after_slot_ns.map(millis);
    report.put("ACCEPT after its slot was free: p50", "ms", p50, Some(AFTER_SLOT));
    report.add("ACCEPT after its slot was free: p99", "ms", p99);
    report.add("ACCEPT after its slot was free: p99.9", "ms", p999);
    let [p50, p99] = worked.empty_ns.map(millis);
    report.add("slot empty between two calls: p50", "ms", p50);
    report.add("slot empty between two calls: p99", "ms", p99);
    let slots = u64::from(load.slots);
    report.add("slots taken", "%", share(worked.busy_ns, worked.span_ns * slots));
    let mean = worked.busy_ns / worked.calls.max(1);
    report.add("work as the agent's timer made it", "ms", millis(mean));
    let ideal = ended.calls.div_ceil(slots) * mean;
    report.add("all calls, over those slots never empty", "x", share(worked.span_ns, ideal) / 100.0);
    let [p50, p99, _] = ended.waited.to_accept_ns.map(millis);
    report.add("ACCEPT after CALL: p50", "ms", p50);
    report.add("ACCEPT after CALL: p99", "ms", p99);
    report.add("calls that overtook one of the same caller", "", counted(worked.overtaken));
    let sent = ended.waited.sent_at_ns.saturating_sub(*began);
    report.add("all were sent after", "ms", millis(sent));
    let Depth { most, after, rise } = depth(depths);
    report.add("queue: at most", "", most);
    report.add("queue: at most after", "ms", millis(after.saturating_sub(*began)));
    report.put("queue: largest rise after that", "", rise, Some(Bar { limit: 0.0, aim: 0.0 }));
    report.add("hub: CPU for each call", "us", micros_each(usage.server, ended.calls));
    report.note("queue", usage.bottleneck());
}

/// How deep a queue was.
#[derive(Debug, PartialEq)]
struct Depth {
    most: f64,
    /// When it was deepest.
    after: u64,
    /// The most that it grew again between two looks after that.
    rise: f64,
}

fn depth(looks: &[(u64, f64)]) -> Depth {
    let mut depth = Depth { most: 0.0, after: 0, rise: 0.0 };
    let mut before = 0.0;
    for (at, deep) in looks {
        if *deep > depth.most {
            depth = Depth { most: *deep, after: *at, rise: 0.0 };
        } else {
            depth.rise = depth.rise.max(deep - before);
        }
        before = *deep;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_depth_of_a_queue_is_followed_from_its_deepest() {
        let looks = |depths: &[f64]| (1..).zip(depths.iter().copied()).collect::<Vec<_>>();
        let flat = looks(&[0.0, 5.0, 9.0, 9.0, 7.0, 0.0]);
        assert_eq!(depth(&flat), Depth { most: 9.0, after: 3, rise: 0.0 });
        let grows_again = looks(&[9.0, 2.0, 6.0, 0.0]);
        assert_eq!(depth(&grows_again), Depth { most: 9.0, after: 1, rise: 4.0 });
    }
}
