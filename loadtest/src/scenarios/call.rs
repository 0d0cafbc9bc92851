//! Thirty agents, eight callers, 1 KB both ways: what a call costs the hub.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use super::{Common, mib, micros_each, per_second};
use crate::client::Endpoint;
use crate::dialect::RequestIds;
use crate::hub::Hub;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::process;
use crate::report::{Bar, Report};
use crate::worker::{Agents, Worker};

/// Time before counting begins.
const WARM_UP: Duration = Duration::from_secs(1);

/// The load of `loadtest call` and `loadtest relay`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// How many agents offer capabilities
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub(crate) agents: u32,
    /// Agents of one group offer the same three capabilities; 1: the hub chooses among all
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) groups: u32,
    /// How many connections call
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) callers: u32,
    /// Calls in flight over all callers; one measurement for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 64, 256])]
    pub(crate) in_flight: Vec<u32>,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    pub(crate) body: usize,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) seconds: u64,
    /// What names a call
    #[arg(long, value_enum, default_value_t = RequestIds::Sdk)]
    pub(crate) request_ids: RequestIds,
}

/// Arguments of `loadtest call`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CallArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call fails.
pub(crate) fn run(args: &CallArgs) -> Result<()> {
    let mut report = Report::new()?;
    let binary = args.common.binary()?;
    for _ in 0..args.common.repeats {
        for in_flight in &args.load.in_flight {
            // The relay right beside the hub, so that both see the machine alike.
            if !args.no_relay {
                super::relay::measure(&args.load, &binary, *in_flight, &mut report)?;
            }
            let hub = Hub::start(&binary, &args.common.hub_log)?;
            let server =
                Server { name: "hub", pid: hub.pid(), endpoint: hub.endpoint(), bar: bar(*in_flight) };
            measure(&args.load, &server, *in_flight, &mut report)?;
        }
    }
    report.publish(args.common.json.as_deref())
}

/// What is put under load.
pub(crate) struct Server {
    /// In the report.
    pub(crate) name: &'static str,
    /// Whose costs are read.
    pub(crate) pid: u32,
    /// How to get in.
    pub(crate) endpoint: Endpoint,
    /// What a call may cost it.
    pub(crate) bar: Option<Bar>,
}

/// Puts a server under load and reads what it costs.
///
/// # Errors
/// When a connection cannot be made, or a call fails.
pub(crate) fn measure(args: &LoadArgs, server: &Server, in_flight: u32, report: &mut Report) -> Result<()> {
    let mut agents = Agents::start(&AgentsJob {
        endpoint: server.endpoint.clone(),
        first: 0,
        count: args.agents,
        groups: args.groups,
        at_a_time: 8,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let mut callers = Worker::start(&Job::Callers(CallersJob {
        endpoint: server.endpoint.clone(),
        callers: args.callers,
        in_flight,
        body: args.body,
        request_ids: args.request_ids,
        plan: Plan::Capabilities { agents: args.agents, groups: args.groups },
    }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    sleep(WARM_UP.min(Duration::from_secs(args.seconds)));

    callers.ask(Order::Count)?;
    let clients = [callers.pid()].into_iter().chain(agents.pids()).collect::<Vec<_>>();
    let client_cpu = || clients.iter().map(|pid| process::cpu(*pid)).sum::<Result<Duration>>();
    let (began, before, before_clients) = (Instant::now(), process::cpu(server.pid)?, client_cpu()?);
    sleep(Duration::from_secs(args.seconds));
    let tally = callers.ask(Order::Count)?;
    let (span, spent) = (began.elapsed(), process::cpu(server.pid)? - before);
    let spent_clients = client_cpu()? - before_clients;
    agents.count()?;
    if tally.failed > 0 || tally.calls == 0 {
        bail!("{} calls failed, {} completed; {:?}", tally.failed, tally.calls, tally.failure);
    }

    let name = |what: &str| format!("{}, {in_flight} in flight: {what}", server.name);
    let cost = micros_each(spent, tally.calls);
    match server.bar {
        Some(bar) => report.add_with_bar(&name("CPU for each call"), "us", cost, bar),
        None => report.add(&name("CPU for each call"), "us", cost),
    }
    report.add(&name("calls"), "/s", per_second(tally.calls, span));
    for (what, us) in ["p50", "p99", "p99.9"].into_iter().zip(tally.latency_us) {
        report.add(&name(what), "us", micros_each(Duration::from_micros(us), 1));
    }
    report.add(&name("memory then"), "MiB", mib(process::memory(server.pid)?.resident));
    report.add(&name("CPU of the load for each call"), "us", micros_each(spent_clients, tally.calls));
    Ok(())
}

const fn bar(in_flight: u32) -> Option<Bar> {
    match in_flight {
        64 => Some(Bar { limit: 20.0, aim: 12.0 }),
        256 => Some(Bar { limit: 12.0, aim: 8.0 }),
        _ => None,
    }
}
