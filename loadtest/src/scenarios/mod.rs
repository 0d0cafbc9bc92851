//! What is measured. Each scenario drives workers against one server and reads that server's costs.

pub(crate) mod call;
pub(crate) mod idle;
pub(crate) mod relay;
pub(crate) mod storm;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Arguments of every scenario.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The hub; default: `agent-reach` beside this program
    #[arg(long, value_name = "FILE")]
    pub(crate) hub: Option<PathBuf>,
    /// The hub's `tracing.log`; its default is what users get
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) hub_log: String,
    /// How often everything is measured, each time with a new hub; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) repeats: u32,
    /// Where the figures are also written, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Common {
    /// The hub's binary.
    ///
    /// # Errors
    /// When this program cannot find itself.
    pub(crate) fn binary(&self) -> anyhow::Result<PathBuf> {
        match &self.hub {
            Some(hub) => Ok(hub.canonicalize()?),
            None => Ok(std::env::current_exe()?.with_file_name("agent-reach")),
        }
    }
}

/// `span` shared by `count`, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "counts of a load are far below 2^53")]
pub(crate) fn micros_each(span: Duration, count: u64) -> f64 {
    span.as_secs_f64() * 1e6 / count.max(1) as f64
}

/// How many of `count` a second.
#[expect(clippy::cast_precision_loss, reason = "counts of a load are far below 2^53")]
pub(crate) fn per_second(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64().max(1e-9)
}

/// What `after` has more than `before`, shared by `count`, in KiB.
#[expect(clippy::cast_precision_loss, reason = "bytes of one machine are far below 2^53")]
pub(crate) fn kib_each(before: u64, after: u64, count: u64) -> f64 {
    (after as f64 - before as f64) / 1024.0 / count.max(1) as f64
}

/// Bytes as MiB.
#[expect(clippy::cast_precision_loss, reason = "bytes of one machine are far below 2^53")]
pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / 1_048_576.0
}
