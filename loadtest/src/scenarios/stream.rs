//! Results in pieces: what a chunk costs the hub, with its share of the credit that comes the other way.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use super::call::WARM_UP;
use super::relay::Relay;
use super::{Common, Run, Server, mib, micros_each, per_second, seconds};
use crate::dialect::RequestIds;
use crate::jobs::{AgentsJob, CallersJob, Job, Order, Plan};
use crate::meter::Meter;
use crate::process;
use crate::worker::{Agents, Worker};

/// The load of `loadtest stream`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct StreamLoad {
    /// How many agents offer capabilities
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,
    /// How many connections read streams
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: u32,
    /// Streams under way over all callers; one measurement for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 64])]
    streams: Vec<u32>,
    /// Chunks of a stream
    #[arg(long, value_name = "N", default_value_t = 256)]
    chunks: u64,
    /// The window of a stream, in chunks; half of it is given again when it has been read
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    credit: u64,
    /// Bytes of a chunk
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
}

/// Arguments of `loadtest stream`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    load: StreamLoad,
    /// Leave out the relay that the hub is compared with
    #[arg(long)]
    no_relay: bool,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a stream fails.
pub(crate) fn run(args: &StreamArgs) -> Result<()> {
    let load = &args.load;
    let each = if args.no_relay { 1 } else { 2 };
    let mut run = Run::new("stream", load, &args.common, each * load.streams.len())?;
    for _ in 0..args.common.repeats {
        for streams in &load.streams {
            let floor = if args.no_relay {
                None
            } else {
                let relay = Relay::start(&run.binary, load.agents)?;
                Some(measure(load, &relay.server(), *streams, &mut run)?)
            };
            let hub = run.hub()?;
            let cost = measure(load, &Server::hub(&hub), *streams, &mut run)?;
            if let Some(floor) = floor {
                run.report.add(&format!("hub over relay, {streams} streams: CPU"), "x", cost / floor);
            }
        }
    }
    run.finish()
}

/// The server's CPU for each chunk, in microseconds.
fn measure(load: &StreamLoad, server: &Server, streams: u32, run: &mut Run) -> Result<f64> {
    let about = format!("{}, {streams} streams", server.name);
    run.progress.say(&about);
    let mut agents = Agents::start(&AgentsJob {
        endpoint: server.endpoint.clone(),
        first: 0,
        count: load.agents,
        groups: 1,
        at_a_time: 8,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let mut callers = Worker::start(&Job::Callers(CallersJob {
        endpoint: server.endpoint.clone(),
        callers: load.callers,
        in_flight: streams,
        body: load.body,
        request_ids: RequestIds::Sdk,
        plan: Plan::Streams { agents: load.agents, chunks: load.chunks, credit: load.credit },
        bursts: false,
    }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(load.seconds));

    callers.ask(Order::Count)?;
    let meter = Meter::start(server.pid, [callers.pid()].into_iter().chain(agents.pids()))?;
    let tally = run.watch(load.seconds, || callers.ask(Order::Count), |tally| tally.chunks)?;
    let usage = meter.stop()?;
    agents.count()?;
    if tally.failed > 0 || tally.chunks == 0 {
        bail!("{} streams failed, {} chunks came; {:?}", tally.failed, tally.chunks, tally.failure);
    }
    let name = |what: &str| format!("{about}: {what}");
    let cost = micros_each(usage.server, tally.chunks);
    run.report.add(&name("CPU for each chunk"), "us", cost);
    run.report.add(&name("chunks"), "/s", per_second(tally.chunks, usage.span));
    run.report.add(&name("memory then"), "MiB", mib(process::memory(server.pid)?.resident));
    run.report.add(&name("CPU of the load for each chunk"), "us", micros_each(usage.clients(), tally.chunks));
    run.report.note(&about, usage.bottleneck());
    run.progress.done();
    Ok(cost)
}
