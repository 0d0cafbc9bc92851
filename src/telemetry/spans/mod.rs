//! Spans of traced calls, exported to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! The core says what a call was when it has ended; a thread of connections puts that into a line with a bound and
//! goes on. Everything else is done by one task on the other runtime: making spans of it, batching, sending, waiting for
//! a collector that is busy or gone. What finds no room is counted and dropped: no call ever waits for a trace.

mod endpoint;
mod exporter;
mod otlp;
mod post;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_reach_core::{CallTrace, Sampling};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

pub use endpoint::{Endpoint, NoEndpoint};
use exporter::Exporter;
use post::Collector;

use crate::config::Tracing;
use crate::telemetry::metrics::{Metrics, SpanSeries};
use crate::transport::tls::provider;

/// Most memory of calls that wait for their export. Bytes.
const QUEUE_BYTES: usize = 16 << 20;
/// Most calls that wait for their export.
const QUEUE_CALLS: usize = 32_768;

/// Why no spans can be exported.
#[derive(Debug, thiserror::Error)]
pub enum SpansError {
    /// The address is none.
    #[error("tracing.otlp_endpoint {0}")]
    Endpoint(#[from] NoEndpoint),
    /// TLS cannot be used.
    #[error("tracing.otlp_endpoint: {0}")]
    Tls(#[from] rustls::Error),
    /// The system has no randomness.
    #[error("no random numbers from the system")]
    Random,
}

/// A call that waits for its export.
#[derive(Debug)]
struct Waiting {
    trace: Arc<CallTrace>,
    /// Nanoseconds since the Unix epoch.
    ended: u64,
    bytes: usize,
}

/// Where ended calls are left.
#[derive(Debug, Clone)]
pub struct SpanQueue {
    line: mpsc::Sender<Waiting>,
    /// Bytes in the line.
    bytes: Arc<AtomicUsize>,
    series: Arc<SpanSeries>,
}

impl SpanQueue {
    /// Leaves a call that has ended right now. Never waits: without room its spans are counted and dropped.
    pub fn leave(&self, trace: &Arc<CallTrace>) {
        let bytes = trace.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = Waiting { trace: Arc::clone(trace), ended: unix_nanos(), bytes };
        if before.saturating_add(bytes) <= QUEUE_BYTES && self.line.try_send(waiting).is_ok() {
            return;
        }
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.series.dropped(trace.spans().len());
    }
}

/// Ends an export.
#[derive(Debug)]
pub struct Flush {
    stop: watch::Sender<bool>,
    /// Bytes in the line.
    bytes: Arc<AtomicUsize>,
}

impl Flush {
    /// Has everything sent that waits, without a pause and once, for at most this time.
    pub async fn within(self, bound: Duration) {
        self.stop.send_replace(true);
        // The task that exports lets go of its side when it is done.
        let done = tokio::time::timeout(bound, self.stop.closed()).await.is_ok();
        if !done || self.bytes.load(Ordering::Relaxed) > 0 {
            warn!("not all traces could be exported");
        }
    }
}

/// Which calls the core is to tell of; `None` where nobody wants to know.
///
/// # Errors
/// [`SpansError::Random`].
pub fn sampling(tracing: &Tracing) -> Result<Option<Sampling>, SpansError> {
    if tracing.otlp_endpoint.is_none() {
        return Ok(None);
    }
    let seed = u64::from_ne_bytes(random()?);
    Ok(Some(Sampling { ratio: tracing.sample_ratio, seed }))
}

/// Begins the export to the collector of a configuration, as one of these tasks; `None` where there is none. Reads files:
/// for the start.
///
/// # Errors
/// [`SpansError`] when the address is none, or TLS or randomness cannot be had.
pub fn export(
    tracing: &Tracing,
    metrics: &Metrics,
    tasks: &mut JoinSet<()>,
) -> Result<Option<(SpanQueue, Flush)>, SpansError> {
    let Some(endpoint) = &tracing.otlp_endpoint else { return Ok(None) };
    let collector = Collector::new(Endpoint::parse(endpoint)?)?;
    let (queue, exporter, flush) = Exporter::new(collector, &instance_id()?, &metrics.spans());
    tasks.spawn(exporter.run());
    Ok(Some((queue, flush)))
}

/// Names this life of the hub: a random UUID, as the semantic conventions want it.
fn instance_id() -> Result<String, SpansError> {
    let mut bits = u128::from_ne_bytes(random()?);
    // Version 4, variant 1.
    bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let text = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|place| text.get(place).unwrap_or_default());
    Ok(parts.join("-"))
}

fn random<const N: usize>() -> Result<[u8; N], SpansError> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes).map_err(|_| SpansError::Random)?;
    Ok(bytes)
}

/// The wall clock, in nanoseconds since the Unix epoch.
fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
