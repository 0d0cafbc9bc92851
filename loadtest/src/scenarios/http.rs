//! The same calls over a WebSocket and over HTTP: what the second way costs the hub more.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;

use super::call::{LoadArgs, WARM_UP, measure};
use super::{Common, Run, Server, micros_each, per_second, seconds};
use crate::dialect::RequestIds;
use crate::hub::{CONFIG, Hub};
use crate::jobs::{AgentsJob, HttpJob, Job, Order};
use crate::meter::Meter;
use crate::report::Bar;
use crate::worker::{Agents, Worker};

/// What a call over HTTP may cost the hub more than one over a WebSocket, in microseconds.
const MORE: Bar = Bar { limit: 60.0, aim: 30.0 };
/// The configuration of a hub that can be asked over HTTP.
const HTTP: &str = "[http]\nlisten = \"127.0.0.1:0\"\ntokens = \"tokens.toml\"\n";

/// The load of `loadtest http`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct Load {
    /// How many agents offer capabilities
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,
    /// Calls in flight: over HTTP as many connections, over WebSockets eight
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    in_flight: u32,
    /// Bytes of a body, both ways: over HTTP a text in JSON
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
}

/// Arguments of `loadtest http`.
#[derive(Clone, Debug, Args)]
pub(crate) struct HttpArgs {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a call fails.
pub(crate) fn run(args: &HttpArgs) -> Result<()> {
    let load = &args.load;
    let calls = LoadArgs {
        agents: load.agents,
        groups: 1,
        callers: 8,
        in_flight: vec![load.in_flight],
        body: load.body,
        seconds: load.seconds,
        request_ids: RequestIds::Sdk,
    };
    let mut run = Run::new("http", load, &args.common, 2)?;
    for _ in 0..args.common.repeats {
        let mut token = String::new();
        let binary = run.binary.clone();
        let hub = run.hub_on(HTTP, |store| {
            token = add_token(&binary, store.parent().context("the directory of the hub")?)?;
            Ok(())
        })?;
        let server = Server { name: "WebSocket", ..Server::hub(&hub) };
        let socket = measure(&calls, &server, load.in_flight, &mut run)?;
        let http = over_http(load, &hub, token, &mut run)?;
        run.report.put(
            "HTTP over WebSocket: CPU for each call, more",
            "us",
            http - socket.cpu_us,
            Some(MORE),
        );
    }
    run.finish()
}

/// A token for everything, made by the hub's own command.
fn add_token(binary: &Path, home: &Path) -> Result<String> {
    let mut command = Command::new(binary);
    command.args(["token", "add", "load", "--role", "operator", "--config", CONFIG]).current_dir(home);
    let output = command.output().with_context(|| binary.display().to_string())?;
    if !output.status.success() {
        bail!("token add: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Gives the hub's processor time for each call, in microseconds.
fn over_http(load: &Load, hub: &Hub, token: String, run: &mut Run) -> Result<f64> {
    let about = format!("HTTP, {} in flight", load.in_flight);
    run.progress.say(&about);
    let mut agents = Agents::start(&AgentsJob {
        endpoint: hub.endpoint(),
        first: 0,
        count: load.agents,
        groups: 1,
        at_a_time: 8,
        keepalive_ms: 5000,
    })?;
    agents.connect()?;
    let mut callers = Worker::start(&Job::Http(HttpJob {
        address: hub.http()?,
        token,
        connections: load.in_flight,
        body: load.body,
    }))?;
    callers.ask(Order::Connect)?;
    callers.ask(Order::Start)?;
    run.progress.wait(WARM_UP.min(load.seconds));
    callers.ask(Order::Count)?;
    let meter = Meter::start(hub.pid(), [callers.pid()].into_iter().chain(agents.pids()))?;
    let tally = run.watch(load.seconds, || callers.ask(Order::Count), |tally| tally.calls)?;
    let usage = meter.stop()?;
    agents.count()?;
    if tally.failed > 0 || tally.calls == 0 {
        bail!("{} calls failed, {} completed; {:?}", tally.failed, tally.calls, tally.failure);
    }
    let name = |what: &str| format!("{about}: {what}");
    let cpu_us = micros_each(usage.server, tally.calls);
    run.report.add(&name("CPU for each call"), "us", cpu_us);
    run.report.add(&name("calls"), "/s", per_second(tally.calls, usage.span));
    let [p50_us, p99_us, _] = tally.latency_ns.map(|ns| micros_each(Duration::from_nanos(ns), 1));
    run.report.add(&name("p50"), "us", p50_us);
    run.report.add(&name("p99"), "us", p99_us);
    run.report.note(&about, usage.bottleneck());
    run.progress.done();
    Ok(cpu_us)
}
