//! Series of the store: what is kept, what waits, and whether it can be written.

use agent_reach_core::TaskState;
use metrics::{Counter, Gauge, Histogram};

use super::names;
use super::series::Registrar;
use crate::store::StoreFigures;

/// What is said of the store.
#[derive(Debug)]
pub(super) struct StoreSeries {
    pub(super) flush: Histogram,
    tasks: [Gauge; TaskState::ALL.len()],
    writable: Gauge,
    records_dropped: Counter,
    outcomes_dropped: Counter,
    backlog: Gauge,
    log: Gauge,
}

impl StoreSeries {
    pub(super) fn new(registrar: &Registrar) -> Self {
        let dropped =
            |what: &'static str| registrar.counter(names::STORE_DROPPED_TOTAL, &[("what", what.into())]);
        Self {
            // Registering it is enough: an empty histogram has all its lines.
            flush: registrar.histogram(names::STORE_FLUSH_SECONDS, &[]),
            tasks: TaskState::ALL.map(|state| {
                registrar.gauge(names::TASKS, &[("state", state.as_str().to_ascii_lowercase().into())])
            }),
            writable: registrar.gauge(names::STORE_WRITABLE, &[]),
            records_dropped: dropped("record"),
            outcomes_dropped: dropped("outcome"),
            backlog: registrar.gauge(names::STORE_BACKLOG_BYTES, &[]),
            log: registrar.gauge(names::STORE_LOG_BYTES, &[]),
        }
    }

    pub(super) fn set(&self, figures: &StoreFigures) {
        for (gauge, count) in self.tasks.iter().zip(figures.tasks) {
            gauge.set(count as f64);
        }
        self.writable.set(if figures.writable { 1.0 } else { 0.0 });
        self.records_dropped.absolute(figures.records_dropped);
        self.outcomes_dropped.absolute(figures.left_out);
        self.backlog.set(figures.backlog_bytes as f64);
        self.log.set(figures.log_bytes as f64);
    }
}
