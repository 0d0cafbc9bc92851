//! Tasks and the store: durable accepts, a restart on many tasks, their expiry, and what request ids cost calls.

mod accepts;
mod expiry;
mod ids;
mod restart;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::call::LoadArgs;
use super::{Common, Run, seconds};
use crate::dialect::RequestIds;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
enum Part {
    /// Durable accepts a second, and how long one takes at half that rate
    Accepts,
    /// The time until a hub serves that was killed with many open tasks
    Restart,
    /// Latency of calls while many ended tasks are removed
    Expiry,
    /// What request ids cost calls, by how long they are kept
    Ids,
}

/// The load of `loadtest tasks`.
#[derive(Clone, Debug, Args, Serialize)]
pub(crate) struct TasksLoad {
    /// What is measured; default: all
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART,…",
          default_values_t = [Part::Accepts, Part::Restart, Part::Expiry, Part::Ids])]
    parts: Vec<Part>,
    /// How many connections submit and call
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    callers: u32,
    /// Tasks under way of each: not accepted yet, or without an end where workers complete them
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    window: u32,
    /// How many agents complete tasks, and answer calls
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    agents: u32,
    /// Bytes of a body, both ways
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    body: usize,
    /// Calls in flight while tasks expire, and where request ids are compared
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: u32,
    /// Open tasks at the restart
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    open: u32,
    /// Ended tasks that expire
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    ended: u32,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "N", default_value = "5", value_parser = seconds)]
    #[serde(skip)]
    seconds: Duration,
}

impl TasksLoad {
    /// The calls of `loadtest call`, with this load's figures.
    fn calls(&self, request_ids: RequestIds) -> LoadArgs {
        LoadArgs {
            agents: self.agents,
            groups: 1,
            callers: self.callers,
            in_flight: vec![self.in_flight],
            body: self.body,
            seconds: self.seconds,
            request_ids,
        }
    }
}

/// Arguments of `loadtest tasks`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    load: TasksLoad,
    #[command(flatten)]
    common: Common,
}

/// Runs the scenario.
///
/// # Errors
/// When the hub does not start, or a task or call goes wrong.
pub(crate) fn run(args: &TasksArgs) -> Result<()> {
    let load = &args.load;
    let measurements = load.parts.iter().map(|part| match part {
        Part::Accepts => accepts::MEASUREMENTS,
        Part::Restart => restart::MEASUREMENTS,
        Part::Expiry => expiry::MEASUREMENTS,
        Part::Ids => ids::MEASUREMENTS,
    });
    let mut run = Run::new("tasks", load, &args.common, measurements.sum())?;
    for part in &load.parts {
        match part {
            Part::Accepts => accepts::measure(load, args.common.repeats, &mut run)?,
            Part::Restart => restart::measure(load, args.common.repeats, &mut run)?,
            Part::Expiry => expiry::measure(load, args.common.repeats, &mut run)?,
            Part::Ids => ids::measure(load, args.common.repeats, &mut run)?,
        }
    }
    run.finish()
}
