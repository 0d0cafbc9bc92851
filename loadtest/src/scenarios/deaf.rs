//! A caller that does not read while a lot is aimed at it: what the hub holds for it, and what others notice.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::canary::Canary;
use super::{Common, LOOK, PATIENCE, Run, counted, mib, micros_each, seconds};
use crate::hub::Hub;
use crate::jobs::{DeafJob, GenerousJob, Job, Order};
use crate::process;
use crate::report::Bar;
use crate::worker::{Place, Worker};

/// Sessions that were ended since their reader does not read.
const SLOW_CONSUMERS: &str = "agent_reach_slow_consumers_total";
/// Agents that the deaf one calls are of the second of two groups: the canary has the first.
const GROUP: u32 = 1;
const GROUPS: u32 = 2;
/// What a canary's 99th percentile may be, as a multiple of that before.
const RATIO: Bar = Bar { limit: 2.0, aim: 1.2 };

/// The load of `loadtest deaf`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct DeafLoad {
    /// How much is aimed at it, in MB
    #[arg(long, value_name = "MB", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    aimed: u32,
    /// Bytes of one result
    #[arg(long, value_name = "BYTES", default_value_t = 900_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    result: u32,
    /// Bytes of one chunk of a stream
    #[arg(long, value_name = "BYTES", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunk: u32,
    /// The hub's `limits.queue_bytes`, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    queue: u32,
    /// The hub's `limits.outbound_bytes`, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    outbound: u32,
    /// How long the canary calls before, in seconds
    #[arg(long, value_name = "N", default_value = "3", value_parser = seconds)]
    #[serde(skip)]
    quiet: Duration,
    /// The canary has a core of its own, and agent and reader what the hub leaves of the second one: so what the hub
    /// does to the canary is told apart from what they do
    #[arg(long)]
    apart: bool,
}

/// Arguments of `loadtest deaf`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DeafArgs {
    #[command(flatten)]
    load: DeafLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call of the canary fails.
pub(crate) fn run(args: &DeafArgs) -> Result<()> {
    let mut run = Run::new("deaf", &args.load, &args.common, 3)?;
    for _ in 0..args.common.repeats {
        for how in [How::Read, How::Results, How::Stream] {
            once(&args.load, how, &mut run)?;
            run.progress.done();
        }
    }
    run.finish()
}

/// What is aimed, and at whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Results for a caller that reads them: what is to be blamed on their size alone.
    Read,
    /// Results for one that does not.
    Results,
    /// One stream, with credit for all of it, for one that does not.
    Stream,
}

impl How {
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "results, read",
            Self::Results => "results",
            Self::Stream => "a stream",
        }
    }
}

fn once(load: &DeafLoad, how: How, run: &mut Run) -> Result<()> {
    let (about, stream) = (how.name(), how == How::Stream);
    run.progress.say(about);
    // What is remembered of ended calls has a bound of its own, and is not what is looked at.
    let aimed = u64::from(load.aimed) * 1_000_000;
    let piece = if stream { load.chunk } else { load.result };
    let pieces = u32::try_from(aimed.div_ceil(u64::from(piece)))?;
    let hub = run.hub_with(&format!(
        "[limits]\nqueue_bytes = {}\noutbound_bytes = {}\nmax_in_flight = {pieces}\n[dedupe]\nmax_bytes = 1048576\n",
        u64::from(load.queue) << 20,
        u64::from(load.outbound) << 20
    ))?;
    let endpoint = hub.endpoint();
    let giver =
        GenerousJob { endpoint: endpoint.clone(), number: GROUP, groups: GROUPS, piece: piece as usize };
    let [own, theirs] = if load.apart { [Place::First, Place::Behind] } else { [Place::Anywhere; 2] };
    let mut giver = Worker::start_at(&Job::Generous(giver), theirs)?;
    giver.ask(Order::Count)?;
    let mut canary = Canary::start(&endpoint, own)?;
    canary.warm_up()?;
    run.progress.wait(load.quiet);
    let quiet = canary.heard()?;

    let before = process::memory(hub.pid())?.resident;
    let job = DeafJob { endpoint, group: GROUP, pieces, stream, reads: how == How::Read };
    let mut deaf = Worker::start_at(&Job::Deaf(job), theirs)?;
    deaf.ask(Order::Start)?;
    let began = Instant::now();
    let sent = aim(&mut giver, aimed, &hub)?;
    let took = began.elapsed();
    let attacked = canary.heard()?;
    let most = process::peak(hub.pid())?;
    let lives = deaf.ask(Order::Stop)?;
    drop(deaf);

    let name = |what: &str| format!("{about}: {what}");
    let report = &mut run.report;
    let budget = f64::from(load.queue);
    let bar = Bar { limit: budget, aim: budget / 4.0 };
    report.put(&name("hub's memory grew at most by"), "MiB", mib(most.saturating_sub(before)), Some(bar));
    report.add(&name("sent by the agent"), "MiB", mib(sent));
    report.add(&name("that took"), "ms", micros_each(took, 1) / 1000.0);
    report.add(&name("readers that the hub ended"), "", hub.metric(SLOW_CONSUMERS)?);
    report.add(&name("readers that could not come"), "", counted(lives.failed));
    for (when, heard) in [("before", &quiet), ("meanwhile", &attacked)] {
        report.add(&name(&format!("canary {when}: calls")), "", counted(heard.calls));
        report.add(&name(&format!("canary {when}: p50")), "us", heard.p50_us);
        report.add(&name(&format!("canary {when}: p99")), "us", heard.p99_us);
        report.add(&name(&format!("canary {when}: longest")), "us", heard.longest_us);
    }
    let ratio = attacked.p99_us / quiet.p99_us;
    report.put(&name("canary: p99, meanwhile over before"), "x", ratio, Some(RATIO));
    report.note(about, lives.failure);
    Ok(())
}

/// Waits until so much was sent. Says how much it was.
fn aim(giver: &mut Worker, aimed: u64, hub: &Hub) -> Result<u64> {
    let began = Instant::now();
    let mut sent = 0;
    loop {
        sent += giver.ask(Order::Count)?.bytes;
        if sent >= aimed {
            return Ok(sent);
        }
        if began.elapsed() > PATIENCE {
            let ended = hub.metric(SLOW_CONSUMERS)?;
            bail!("in {PATIENCE:?} only {sent} bytes were sent; {ended} readers were ended");
        }
        std::thread::sleep(LOOK);
    }
}
