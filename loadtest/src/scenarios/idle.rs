//! Many registered agents that say nothing but that they live: what each of them costs the hub.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use super::{Common, kib_each, mib, micros_each};
use crate::dialect::RequestIds;
use crate::hub::Hub;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::process;
use crate::report::{Bar, Report};
use crate::worker::{Agents, Worker};

const MEMORY_KIB: Bar = Bar { limit: 12.0, aim: 7.0 };
const KEEPALIVE_US: Bar = Bar { limit: 20.0, aim: 12.0 };
/// Agents of the warm-up, after which the empty hub is measured.
const WARM_UP: u32 = 100;
/// How long the hub gets to notice that its connections are gone, and a call to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `loadtest idle`.
#[derive(Clone, Debug, Args)]
pub(crate) struct IdleArgs {
    /// How many agents connect
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000)]
    groups: u32,
    /// How long their keepalives are watched, in seconds
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// How long the hub gets to settle before memory is read, in seconds
    #[arg(long, value_name = "N", default_value_t = 6)]
    settle: u64,
    /// Time between two UPDATEs of an agent, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 5000)]
    keepalive_ms: u64,
    /// Afterwards every agent answers one call of so many bytes, and memory is read again
    #[arg(long, value_name = "BYTES")]
    traffic: Option<usize>,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or loses an agent.
pub(crate) fn run(args: &IdleArgs) -> Result<()> {
    let mut report = Report::new()?;
    for _ in 0..args.common.repeats {
        once(args, &mut report)?;
    }
    report.publish(args.common.json.as_deref())
}

fn once(args: &IdleArgs, report: &mut Report) -> Result<()> {
    let settle = Duration::from_secs(args.settle);
    let n = u64::from(args.agents);
    let hub = Hub::start(&args.common.binary()?, &args.common.hub_log)?;
    warm_up(args, &hub)?;
    sleep(settle);
    let empty = process::memory(hub.pid())?;

    let mut agents = Agents::start(&job(args, &hub, args.agents))?;
    let kernel = process::kernel_memory()?;
    agents.connect()?;
    sleep(settle);
    let full = process::memory(hub.pid())?;
    let each = kib_each(empty.resident, full.resident, n);
    report.add_with_bar("hub memory for each connection", "KiB", each, MEMORY_KIB);
    // Both ends of each connection are on this machine.
    let kernel = kib_each(kernel, process::kernel_memory()?, 2 * n);
    report.add("kernel memory for each socket", "KiB", kernel);

    agents.count()?;
    let before = process::cpu(hub.pid())?;
    sleep(Duration::from_secs(args.seconds));
    let spent = process::cpu(hub.pid())? - before;
    let frames = agents.count()?.keepalives;
    report.add_with_bar("hub CPU for each keepalive", "us", micros_each(spent, frames), KEEPALIVE_US);
    report.add("keepalives a second", "", super::per_second(frames, Duration::from_secs(args.seconds)));

    if let Some(bytes) = args.traffic {
        traffic(args, &hub, bytes)?;
        sleep(settle);
        let after = process::memory(hub.pid())?;
        let each = kib_each(empty.resident, after.resident, n);
        report.add(&format!("the same, after a call of {bytes} B to each"), "KiB", each);
        agents.count()?;
    }

    report.add("hub memory, empty", "MiB", mib(empty.resident));
    report.add("hub memory, full", "MiB", mib(full.resident));
    report.add("of it heap and stacks", "MiB", mib(full.anonymous));
    report.add("hub memory, at most", "MiB", mib(process::peak(hub.pid())?));
    drop(agents);
    left(&hub)?;
    sleep(settle);
    report.add("hub memory, after all have left", "MiB", mib(process::memory(hub.pid())?.resident));
    Ok(())
}

fn job(args: &IdleArgs, hub: &Hub, count: u32) -> AgentsJob {
    AgentsJob {
        endpoint: hub.endpoint(),
        first: 0,
        count,
        groups: args.groups,
        at_a_time: 32,
        keepalive_ms: args.keepalive_ms,
    }
}

/// So that what a hub allocates once is not counted as a connection's.
fn warm_up(args: &IdleArgs, hub: &Hub) -> Result<()> {
    let mut agents = Agents::start(&job(args, hub, WARM_UP.min(args.agents)))?;
    agents.connect()?;
    drop(agents);
    left(hub)
}

/// Waits until the hub has closed every connection.
fn left(hub: &Hub) -> Result<()> {
    let began = Instant::now();
    while hub.connections()? > 0 {
        if began.elapsed() > PATIENCE {
            bail!("{} connections are open although their agents have left", hub.connections()?);
        }
        sleep(LOOK);
    }
    Ok(())
}

fn traffic(args: &IdleArgs, hub: &Hub, body: usize) -> Result<()> {
    let mut caller = Worker::start(&Job::Callers(CallersJob {
        endpoint: hub.endpoint(),
        callers: 1,
        in_flight: 16,
        body,
        request_ids: RequestIds::None,
        plan: Plan::EachAgentOnce { agents: args.agents, groups: args.groups },
    }))?;
    caller.ask(Order::Connect)?;
    caller.ask(Order::Start)?;
    let (began, mut done) = (Instant::now(), 0);
    while done < u64::from(args.agents) {
        sleep(LOOK);
        let tally = caller.ask(Order::Count)?;
        done += tally.calls;
        if tally.failed > 0 || began.elapsed() > PATIENCE {
            bail!("{done} of {} agents were called; {:?}", args.agents, tally.failure);
        }
    }
    Ok(())
}
