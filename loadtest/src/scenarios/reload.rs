//! New files for a hub that has many agents: how long it takes to be governed by them, and what others notice.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::canary::{Canary, Song};
use super::{Common, PATIENCE, Run, check_room, counted, mib};
use crate::dialect::agent;
use crate::hub::{Hub, POLICY};
use crate::jobs::AgentsJob;
use crate::process;
use crate::report::Bar;
use crate::worker::{Agents, Place};

/// From the signal to the new rules, in milliseconds.
const TIME: Bar = Bar { limit: 200.0, aim: 100.0 };
/// How often is asked whether it is done.
const LOOK: Duration = Duration::from_millis(2);
/// How often an agent says that it lives: much more often than it has to, so that a hub which does not listen shows.
const KEEPALIVE_MS: u64 = 1000;
/// How long the canary is listened to before.
const QUIET: Duration = Duration::from_secs(2);

/// The load of `loadtest reload`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct ReloadLoad {
    /// How many agents are connected, each with a rule of its own in the new policy
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..100_000))]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
}

/// Arguments of `loadtest reload`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    load: ReloadLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, loses an agent, or fails a call of the canary.
pub(crate) fn run(args: &ReloadArgs) -> Result<()> {
    check_room(args.load.agents)?;
    let mut run = Run::new("reload", &args.load, &args.common, 1)?;
    for _ in 0..args.common.repeats {
        once(&args.load, &mut run)?;
        run.progress.done();
    }
    run.finish()
}

fn once(load: &ReloadLoad, run: &mut Run) -> Result<()> {
    let hub = run.hub()?;
    run.progress.say(format!("{} agents connect", load.agents));
    let mut agents = Agents::start(&AgentsJob {
        endpoint: hub.endpoint(),
        // The canary has the first number.
        first: 1,
        count: load.agents,
        groups: load.groups,
        at_a_time: 32,
        keepalive_ms: KEEPALIVE_MS,
    })?;
    agents.connect()?;
    let mut canary = Canary::start(&hub.endpoint(), Place::Anywhere)?;
    canary.warm_up()?;
    run.progress.wait(QUIET);
    tell("before", &canary.heard()?, run);

    run.progress.say("a new policy");
    hub.write("policy.toml", &policy(load.agents))?;
    let took = reload(&hub)?;
    let song = canary.heard()?;
    run.report.put("a new policy: from the signal to its rules", "ms", took.as_secs_f64() * 1e3, Some(TIME));
    tell("a new policy", &song, run);

    run.progress.say("a new revocation list");
    hub.revoke("nobody")?;
    let took = reload(&hub)?;
    run.report.add(
        "a new revocation list: from the signal until all are judged",
        "ms",
        took.as_secs_f64() * 1e3,
    );
    tell("a new revocation list", &canary.heard()?, run);

    // Lost connections fail here.
    agents.count()?;
    let silent = hub.metric("agent_reach_liveness_transitions_total")?;
    let refused = hub.metric("agent_reach_registrations_refused_total")?;
    if silent > 0.0 || refused > 0.0 {
        bail!("{silent} sessions changed their liveness, {refused} registrations were refused");
    }
    run.report.add("memory at most", "MiB", mib(process::peak(hub.pid())?));
    Ok(())
}

fn tell(when: &str, song: &Song, run: &mut Run) {
    run.report.add(&format!("{when}: canary's calls"), "", counted(song.calls));
    run.report.add(&format!("{when}: canary's p99"), "us", song.p99_us);
    run.report.add(&format!("{when}: canary's longest call"), "us", song.longest_us);
}

/// Sends SIGHUP and waits until the hub says that it has read its files.
fn reload(hub: &Hub) -> Result<Duration> {
    const DONE: &str = "agent_reach_config_reloads_total";
    let before = hub.metric(DONE)?;
    let began = Instant::now();
    hub.hang_up()?;
    while hub.metric(DONE)? <= before {
        if began.elapsed() > PATIENCE {
            bail!("the hub has not reloaded in {PATIENCE:?}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(began.elapsed())
}

/// A rule for each agent, and then what is for everybody.
fn policy(agents: u32) -> String {
    let mut text = "version = 2\n".to_owned();
    for number in 0..=agents {
        let name = agent(number);
        // Writing to memory does not fail.
        let _written = write!(
            text,
            "[[rules]]\nidentity = \"spiffe://agent-reach/agent/{name}\"\nprovide = [\"*\"]\ncall = [\"*\"]\n"
        );
    }
    text + POLICY.strip_prefix("version = 1\n").unwrap_or(POLICY)
}
