//! Everybody connects at once: what a connect costs the hub, from TCP to WELCOME.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;

use super::{Common, kib_each, mib, micros_each, per_second};
use crate::hub::Hub;
use crate::jobs::AgentsJob;
use crate::process;
use crate::report::{Bar, Report};
use crate::worker::Agents;

const CONNECT_US: Bar = Bar { limit: 450.0, aim: 350.0 };
/// Agents that connect before counting begins.
const WARM_UP: u32 = 20;

/// Arguments of `loadtest storm`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StormArgs {
    /// How many agents connect
    #[arg(long, value_name = "N", default_value_t = 5000)]
    agents: u32,
    /// Agents of one group offer the same three capabilities
    #[arg(long, value_name = "N", default_value_t = 1000)]
    groups: u32,
    /// How many connect at a time
    #[arg(long, value_name = "N", default_value_t = 512)]
    at_a_time: u32,
    /// How long the hub gets to settle before memory is read, in seconds
    #[arg(long, value_name = "N", default_value_t = 3)]
    settle: u64,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or an agent cannot connect.
pub(crate) fn run(args: &StormArgs) -> Result<()> {
    let mut report = Report::new()?;
    for _ in 0..args.common.repeats {
        once(args, &mut report)?;
    }
    report.publish(args.common.json.as_deref())
}

fn once(args: &StormArgs, report: &mut Report) -> Result<()> {
    let hub = Hub::start(&args.common.binary()?, &args.common.hub_log)?;
    let job = |first, count| AgentsJob {
        endpoint: hub.endpoint(),
        first,
        count,
        groups: args.groups,
        at_a_time: args.at_a_time,
        keepalive_ms: 0,
    };
    let mut warm = Agents::start(&job(args.agents, WARM_UP))?;
    warm.connect()?;
    let empty = process::memory(hub.pid())?;
    let mut agents = Agents::start(&job(0, args.agents))?;
    let (began, before) = (Instant::now(), process::cpu(hub.pid())?);
    agents.connect()?;
    let (span, spent) = (began.elapsed(), process::cpu(hub.pid())? - before);
    let n = u64::from(args.agents);
    report.add_with_bar("hub CPU for each connect", "us", micros_each(spent, n), CONNECT_US);
    report.add("connects", "/s", per_second(n, span));
    sleep(Duration::from_secs(args.settle));
    let full = process::memory(hub.pid())?;
    report.add("hub memory for each connection then", "KiB", kib_each(empty.resident, full.resident, n));
    report.add("hub memory, at most", "MiB", mib(process::peak(hub.pid())?));
    agents.count()?;
    Ok(())
}
