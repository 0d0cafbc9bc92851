//! A hub that was killed with many open tasks: how long until it serves again.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::runtime::Runtime;

use super::TasksLoad;
use crate::client::{Connector, Identity};
use crate::dialect::{Dialect, FIRST_CALLER, Outcome, Told, stats_call};
use crate::hub::Hub;
use crate::jobs::{Job, Order, Pace, SubmitJob, Until};
use crate::process;
use crate::report::Bar;
use crate::scenarios::{Run, counted, mib};
use crate::worker::Worker;

pub(super) const MEASUREMENTS: usize = 1;
/// From exec to the first answer, in seconds.
const SERVES: Bar = Bar { limit: 2.0, aim: 1.0 };
/// Who asks first.
const NAME: &str = "caller-999999";
/// Open tasks in each state.
const TASKS: &str = "agent_reach_tasks";

/// Fills a hub over the wire with tasks that nobody can take, kills it, and starts it again.
///
/// # Errors
/// When the hub does not start, or a task is refused or lost.
pub(super) fn measure(load: &TasksLoad, repeats: u32, run: &mut Run) -> Result<()> {
    run.progress.say("many open tasks");
    let mut hub = run.hub()?;
    let open = fill(load, &hub)?;
    let filled = process::memory(hub.pid())?.resident;
    for _ in 0..repeats {
        hub.stop()?;
        run.progress.say("a restart");
        let again = again(&mut hub)?;
        let kept = hub.metric(TASKS)?;
        if kept < counted(open) {
            bail!("of {open} tasks that were accepted {kept} are there after a restart");
        }
        let report = &mut run.report;
        report.add("restart: open tasks", "", kept);
        report.add("restart: exec to ready line", "s", again.ready.as_secs_f64());
        report.put(
            "restart: exec to the first answered call",
            "s",
            again.answered.as_secs_f64(),
            Some(SERVES),
        );
        report.add("restart: CPU until then", "s", again.cpu.as_secs_f64());
        report.add("restart: memory before", "MiB", mib(filled));
        report.add("restart: memory after", "MiB", mib(process::memory(hub.pid())?.resident));
        report.add("restart: memory after, at most", "MiB", mib(process::peak(hub.pid())?));
        run.progress.done();
    }
    Ok(())
}

/// How many tasks were accepted.
fn fill(load: &TasksLoad, hub: &Hub) -> Result<u64> {
    let mut callers = Worker::start(&Job::Submit(SubmitJob {
        endpoint: hub.endpoint(),
        callers: load.callers,
        body: load.body,
        pace: Pace::Window(load.window as usize, Until::Accepted),
        each: Some(u64::from(load.open.div_ceil(load.callers))),
    }))?;
    callers.ask(Order::Connect)?;
    let mut accepted = callers.ask(Order::Start)?.calls;
    let tally = callers.ask(Order::Stop)?;
    accepted += tally.calls;
    if tally.failed > 0 || accepted < u64::from(load.open) {
        bail!("{accepted} of {} tasks were accepted; {:?}", load.open, tally.failure);
    }
    Ok(accepted)
}

struct Again {
    ready: Duration,
    answered: Duration,
    cpu: Duration,
}

fn again(hub: &mut Hub) -> Result<Again> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Before the time runs.
    let identity = Connector::new(hub.endpoint())?.identity(NAME)?;
    let began = Instant::now();
    let ready = hub.start_again()?;
    first_answer(hub, &runtime, identity)?;
    Ok(Again { ready, answered: began.elapsed(), cpu: process::cpu(hub.pid())? })
}

fn first_answer(hub: &Hub, runtime: &Runtime, identity: Identity) -> Result<()> {
    // Its address is another one now.
    let connector = Connector::new(hub.endpoint())?;
    runtime.block_on(async {
        let mut link = connector.register(NAME, identity, FIRST_CALLER, None).await?;
        link.push(&stats_call(1));
        loop {
            match Dialect::Hub.told(&link.next().await?)? {
                Told::Ended(1, Outcome::Completed(_)) => return Ok(()),
                Told::Ended(_, outcome) => bail!("the first call ended as {outcome:?}"),
                Told::Accepted(_) | Told::Chunk(..) | Told::Part(_) | Told::Nothing => {}
            }
        }
    })
}
