//! What a store has done and what waits, for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use agent_reach_core::TaskState;

/// Figures of a store at work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFigures {
    /// Changes that are on disk.
    pub written: u64,
    /// New tasks that could not be written.
    pub refused: u64,
    /// Ends of calls that were left out for want of room.
    pub left_out: u64,
    /// Changes that named no such task, or one in another state.
    pub ignored: u64,
    /// Batches that could not be written.
    pub failed: u64,
    /// Records that are on disk.
    pub records_written: u64,
    /// Records that were dropped.
    pub records_dropped: u64,
    /// Tasks, keys and blocks of records that expired and were removed.
    pub swept: u64,
    /// Changes that wait to be written. Bytes.
    pub backlog_bytes: u64,
    /// The log of writes. Bytes.
    pub log_bytes: u64,
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub tasks: [u64; TaskState::ALL.len()],
    /// Whether new tasks can be written.
    pub writable: bool,
}

/// The same, as the threads of the store count them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) written: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) left_out: AtomicU64,
    pub(super) ignored: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) records_written: AtomicU64,
    pub(super) records_dropped: AtomicU64,
    /// Questions that wait to be answered.
    pub(super) asks_waiting: AtomicU64,
    pub(super) swept: AtomicU64,
    pub(super) backlog_bytes: AtomicU64,
    pub(super) log_bytes: AtomicU64,
    pub(super) tasks: [AtomicU64; TaskState::ALL.len()],
    pub(super) unwritable: AtomicBool,
}

impl Counters {
    pub(super) fn figures(&self) -> StoreFigures {
        StoreFigures {
            written: self.written.load(Relaxed),
            refused: self.refused.load(Relaxed),
            left_out: self.left_out.load(Relaxed),
            ignored: self.ignored.load(Relaxed),
            failed: self.failed.load(Relaxed),
            records_written: self.records_written.load(Relaxed),
            records_dropped: self.records_dropped.load(Relaxed),
            swept: self.swept.load(Relaxed),
            backlog_bytes: self.backlog_bytes.load(Relaxed),
            log_bytes: self.log_bytes.load(Relaxed),
            tasks: self.tasks.each_ref().map(|count| count.load(Relaxed)),
            writable: !self.unwritable.load(Relaxed),
        }
    }

    /// What a store says of itself.
    pub(super) fn note(&self, tasks: [u64; TaskState::ALL.len()], log_bytes: u64) {
        for (counter, count) in self.tasks.iter().zip(tasks) {
            counter.store(count, Relaxed);
        }
        self.log_bytes.store(log_bytes, Relaxed);
    }
}
