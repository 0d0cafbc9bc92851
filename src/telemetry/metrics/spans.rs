//! Series of the export of spans.

use std::sync::Arc;

use agent_reach_protocol::ErrorCode;
use metrics::Counter;

use super::series::{CountersByWord, Registrar};
use super::{Metrics, names};

/// Words of `spans_exported_total{outcome}`. The last one takes what is not among them.
const OUTCOMES: [&str; 8] = [
    "completed",
    ErrorCode::InvalidRequest.as_str(),
    ErrorCode::Unauthorized.as_str(),
    ErrorCode::RateLimited.as_str(),
    ErrorCode::Overloaded.as_str(),
    ErrorCode::NoInstance.as_str(),
    ErrorCode::Timeout.as_str(),
    ErrorCode::HandlerError.as_str(),
];

/// What becomes of spans. Each counts once.
#[derive(Debug)]
pub struct SpanSeries {
    exported: CountersByWord,
    dropped: Counter,
}

impl SpanSeries {
    pub(super) fn new(registrar: &Registrar) -> Self {
        Self {
            exported: registrar.counters(names::SPANS_EXPORTED_TOTAL, "outcome", &OUTCOMES),
            dropped: registrar.counter(names::SPANS_DROPPED_TOTAL, &[]),
        }
    }

    /// Counts spans that the collector was sent, by `completed` or the error code that is the nearest.
    pub fn exported(&self, outcome: &'static str, count: usize) {
        self.exported.add(outcome, count as u64);
    }

    /// Counts spans for which there was no room.
    pub fn dropped(&self, count: usize) {
        self.dropped.increment(count as u64);
    }
}

impl Metrics {
    /// Counts what becomes of spans.
    #[must_use]
    pub fn spans(&self) -> Arc<SpanSeries> {
        Arc::clone(&self.spans)
    }
}
