//! Calls while a store full of ended tasks removes them, beside calls while it has none.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_reach::store::sqlite::{SqliteFile, SqliteStore};
use agent_reach::store::{Store as _, StoreOptions};
use agent_reach_core::{Change, NewTask, TaskEnd, TaskId, TaskState};
use anyhow::{Context, Result, bail};

use super::TasksLoad;
use crate::dialect::{FIRST_CALLER, RequestIds, end_of_task, request_id, submit};
use crate::hub::Hub;
use crate::report::Bar;
use crate::scenarios::call;
use crate::scenarios::{Run, Server, counted};

pub(super) const MEASUREMENTS: usize = 2;
/// The slowest hundredth of calls, beside that of a hub with an empty store.
const RATIO: Bar = Bar { limit: 1.2, aim: 1.1 };
/// Tasks in one transaction.
const TOGETHER: u64 = 2000;
/// Their owners.
const OWNERS: u64 = 8;
const STATES: usize = TaskState::ALL.len();

/// # Errors
/// When the hub does not start, a call fails, or the tasks are gone before the calls are measured.
pub(super) fn measure(load: &TasksLoad, repeats: u32, run: &mut Run) -> Result<()> {
    run.progress.say("ended tasks are written");
    let mut full = run.hub_on("", |store| fill(store, u64::from(load.ended), load.body))?;
    let calls = load.calls(RequestIds::Sdk);
    let server = |name, hub: &Hub| Server { name, ..Server::hub(hub) };
    for repeat in 0..repeats {
        if repeat > 0 {
            full.start_again()?;
        }
        let before = ended(&full)?;
        let began = std::time::Instant::now();
        let busy = call::measure(&calls, &server("tasks expire", &full), load.in_flight, run)?;
        let (after, span) = (ended(&full)?, began.elapsed());
        full.stop()?;
        if after == 0 {
            bail!(
                "all tasks were gone before the calls ended: ask for more than {before}, or a shorter time"
            );
        }
        let hub = run.hub()?;
        let quiet = call::measure(&calls, &server("nothing expires", &hub), load.in_flight, run)?;
        let rate = counted(before - after) / span.as_secs_f64();
        let report = &mut run.report;
        report.add("expiry: tasks at the start of the calls", "", counted(before));
        report.add("expiry: tasks removed meanwhile", "/s", rate);
        report.put("expiry: p99 of calls, over that without", "x", busy.p99_us / quiet.p99_us, Some(RATIO));
        report.add("expiry: p50 of calls, over that without", "x", busy.p50_us / quiet.p50_us);
        report.add("expiry: CPU for each call, over that without", "x", busy.cpu_us / quiet.cpu_us);
    }
    Ok(())
}

/// How many ended tasks a hub's store has.
fn ended(hub: &Hub) -> Result<u64> {
    let [.., succeeded, failed] = SqliteStore::beside_a_hub(&hub.store())?.counts();
    Ok(succeeded + failed)
}

/// Writes so many tasks that have ended, were confirmed, and expire now.
fn fill(path: &Path, count: u64, body: usize) -> Result<()> {
    let mut store = SqliteFile::take(&StoreOptions::new(path))?.open_writer()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = u64::try_from(now.as_millis())?;
    let body: Vec<u8> = (0..=255).cycle().take(body).collect();
    for first in (0..count).step_by(usize::try_from(TOGETHER)?) {
        let numbers = first..count.min(first + TOGETHER);
        let changes = numbers.flat_map(|number| task(number, now, &body));
        let changes: Vec<_> = (1..).zip(changes).collect();
        let ignored = store.write(&changes)?;
        if ignored > 0 {
            bail!("the store ignored {ignored} changes");
        }
        store.checkpoint()?;
    }
    let [.., succeeded, _]: [u64; STATES] = store.counts();
    (succeeded == count).then_some(()).context("not all tasks are there")
}

/// All that is written of a task in its life.
fn task(number: u64, now: u64, body: &[u8]) -> [Change; 3] {
    let caller = FIRST_CALLER + u32::try_from(number % OWNERS).unwrap_or_default();
    let agent: Arc<str> = format!("past-{caller:06}").into();
    let id = TaskId::new(now - 1000, number, number);
    let request_id = request_id(caller, number);
    let new = NewTask {
        id,
        identity: format!("spiffe://agent-reach/agent/{agent}").into(),
        agent: Arc::clone(&agent),
        request_id: request_id.as_str().into(),
        capability: "load.work-00000".into(),
        fingerprint: u128::from(number),
        keep_until: now,
        created: now - 1000,
        budget_until: now + u64::try_from(Duration::from_secs(3600).as_millis()).unwrap_or(u64::MAX),
        call: submit(caller, number, 0, body),
        callback_url: None,
        reply_to: None,
        retry_of: None,
    };
    let end = TaskEnd {
        task: id,
        at: now - 1000,
        outcome: "completed",
        attempt: 1,
        expires: now,
        keep_until: now,
        end: end_of_task(&id.to_string(), &request_id),
    };
    [
        Change::Task(Box::new(new)),
        Change::Ended(Box::new(end)),
        Change::Receipt { task: id, agent, at: now - 1000 },
    ]
}
