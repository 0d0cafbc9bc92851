//! What is measured. Each scenario drives workers against one server and reads that server's costs.

pub(crate) mod call;
mod canary;
pub(crate) mod deaf;
pub(crate) mod fanout;
pub(crate) mod http;
pub(crate) mod idle;
pub(crate) mod mixed;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod relay;
pub(crate) mod reload;
pub(crate) mod storm;
pub(crate) mod stream;
pub(crate) mod tasks;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::client::Endpoint;
use crate::compare;
use crate::hub::Hub;
use crate::jobs::Tally;
use crate::progress::Progress;
use crate::report::Report;

/// How long a hub gets to notice that its connections are gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors that a server needs beside its connections.
const SPARE_DESCRIPTORS: u64 = 512;
/// How often is looked.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of every scenario.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The hub; default: `agent-reach` beside this program
    #[arg(long, value_name = "FILE")]
    hub: Option<PathBuf>,
    /// The hub's `tracing.log`; its default is what users get
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    hub_log: String,
    /// How often everything is measured, each time with a new hub; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) repeats: u32,
    /// Keep hub, relay and load on this one core: for latencies, which waking another core would hide
    #[arg(long, value_name = "CORE")]
    pub(crate) pin: Option<usize>,
    /// Where the figures are also written, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// JSON of an older run of the same load, to print the ratio to it of each figure
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

/// A run of a scenario.
#[derive(Debug)]
pub(crate) struct Run {
    /// Its figures.
    pub(crate) report: Report,
    /// How far it is.
    pub(crate) progress: Progress,
    /// The hub's binary.
    pub(crate) binary: PathBuf,
    older: Option<Report>,
    hub_log: String,
    json: Option<PathBuf>,
}

impl Run {
    /// Begins: pins this process where that is wanted, and reads the older run.
    ///
    /// # Errors
    /// When the hub is not there, or the older run was of another load.
    pub(crate) fn new(
        scenario: &str,
        load: &impl Serialize,
        common: &Common,
        measurements: usize,
    ) -> Result<Self> {
        if let Some(core) = common.pin {
            crate::worker::pin(core)?;
        }
        let mut report = Report::new(scenario, load)?;
        report.load.extend(common.pin.map(|core| ("pin".to_owned(), core.into())));
        let older = common.compare.as_deref().map(compare::read).transpose()?;
        if let Some(older) = &older {
            compare::same_load(older, &report)?;
        }
        let progress = Progress::new(measurements * usize::try_from(common.repeats)?);
        let binary = match &common.hub {
            Some(hub) => hub.clone(),
            None => std::env::current_exe()?.with_file_name("agent-reach"),
        };
        let Ok(binary) = binary.canonicalize() else {
            bail!("{} is not there: build it (cargo build --release --bin agent-reach)", binary.display());
        };
        let (hub_log, json) = (common.hub_log.clone(), common.json.clone());
        Ok(Self { report, progress, binary, older, hub_log, json })
    }

    /// Starts a hub.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn hub(&self) -> Result<Hub> {
        self.hub_with("")
    }

    /// Starts a hub with so much more in its configuration.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn hub_with(&self, more: &str) -> Result<Hub> {
        Hub::start(&self.binary, &self.hub_log, more)
    }

    /// Starts a hub with so much more in its configuration, in whose directory something is done before; `fill` is told
    /// the file of its store.
    ///
    /// # Errors
    /// When that fails, or the hub does not start.
    pub(crate) fn hub_on(&self, more: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<Hub> {
        Hub::start_on(&self.binary, &self.hub_log, more, fill)
    }

    /// Lets time pass and then counts what was done in it: at least something, however slow the machine is.
    ///
    /// # Errors
    /// When it cannot be counted.
    pub(crate) fn watch(
        &self,
        span: Duration,
        mut count: impl FnMut() -> Result<Tally>,
        done: impl Fn(&Tally) -> u64,
    ) -> Result<Tally> {
        let began = Instant::now();
        self.progress.wait(span);
        loop {
            let tally = count()?;
            if done(&tally) + tally.failed > 0 || began.elapsed() > PATIENCE {
                return Ok(tally);
            }
            self.progress.wait(LOOK);
        }
    }

    /// Prints the figures, and their ratios to those of the older run.
    ///
    /// # Errors
    /// When they cannot be written, or the older run has others.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.progress);
        self.report.publish(self.json.as_deref())?;
        if let Some(older) = &self.older {
            let table = compare::table(older, &self.report)?;
            write!(std::io::stdout().lock(), "\n{table}")?;
        }
        Ok(())
    }
}

/// What is put under load.
pub(crate) struct Server {
    /// In the report.
    pub(crate) name: &'static str,
    /// Whose costs are read.
    pub(crate) pid: u32,
    /// How to get in.
    pub(crate) endpoint: Endpoint,
}

impl Server {
    /// A hub.
    pub(crate) fn hub(hub: &Hub) -> Self {
        Self { name: "hub", pid: hub.pid(), endpoint: hub.endpoint() }
    }
}

/// A length of time, from seconds as a person writes them.
///
/// # Errors
/// When it is no number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration> {
    Ok(Duration::try_from_secs_f64(text.parse()?)?)
}

/// Whether a server on this machine may have so many connections. Its limit is that of this process.
///
/// # Errors
/// When it may not.
pub(crate) fn check_room(connections: u32) -> Result<()> {
    let most = crate::worker::descriptors_max().saturating_sub(SPARE_DESCRIPTORS);
    if u64::from(connections) > most {
        bail!("a process may have {most} connections here: raise `ulimit -n`, or ask for fewer agents");
    }
    Ok(())
}

/// Waits until a hub has closed every connection.
///
/// # Errors
/// When it does not.
pub(crate) fn left(hub: &Hub) -> Result<()> {
    let began = Instant::now();
    while hub.connections()? > 0 {
        if began.elapsed() > PATIENCE {
            bail!("{} connections are open although their agents have left", hub.connections()?);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// `span` shared by `count`, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "counts of a load are far below 2^53")]
pub(crate) fn micros_each(span: Duration, count: u64) -> f64 {
    span.as_secs_f64() * 1e6 / count.max(1) as f64
}

/// A count as a figure.
#[expect(clippy::cast_precision_loss, reason = "counts of a load are far below 2^53")]
pub(crate) fn counted(count: u64) -> f64 {
    count as f64
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
