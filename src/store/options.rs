//! How a store is to be kept.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What an operator, and a test, may decide about a store.
#[derive(Clone)]
pub struct StoreOptions {
    /// The file. Beside it stand its log (`-wal`, `-shm`) and the lock of the hub that has it (`.lock`).
    pub path: PathBuf,
    /// Longest time that a write waits to be batched. Default 5 ms; zero: it does not wait.
    pub flush: Duration,
    /// A write that takes longer counts as one that cannot be made, until it has come back. Default 5 s.
    pub hang: Duration,
    /// Pauses between tries while it cannot write: the first, doubled up to the last. Default 100 ms and 1 s.
    pub again: (Duration, Duration),
    /// How long a lock of somebody else is waited for. Default 2 s.
    pub busy: Duration,
    /// Most memory for changes that wait. Bytes, default 64 MiB.
    pub backlog_bytes: usize,
    /// Longest log of writes: past it nothing is written until whoever holds it has gone. Bytes, default 256 MiB.
    pub log_bytes: u64,
    /// Largest file; `None`: what the disk has. Bytes.
    pub max_bytes: Option<u64>,
    /// Most tasks, keys and blocks of records that one step of the sweep removes. Default 100.
    pub sweep_rows: usize,
    /// Pauses of the sweep: between its steps at least, and when nothing has expired. Default 20 ms and 1 s.
    pub sweep_every: (Duration, Duration),
    /// How many times as long as a step took the sweep rests after it, while nothing has been expired for more than an
    /// hour: calls are to notice little of it. What has been expired for longer is removed in half of the time.
    /// Default 32.
    pub sweep_rest: u32,
    /// How long records are kept. Default 7 days.
    pub records_for: Duration,
    /// How many bytes of records are kept. Default 256 MiB.
    pub records_bytes: u64,
    /// How long records are gathered. Default 200 ms.
    pub records_every: Duration,
    /// Most memory for records that wait. Bytes, default 8 MiB.
    pub records_waiting: usize,
    /// Told how long each batch took, from its begin to its being safe.
    pub on_flush: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

impl StoreOptions {
    /// A store in this file, everything else by default.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            flush: Duration::from_millis(5),
            hang: Duration::from_secs(5),
            again: (Duration::from_millis(100), Duration::from_secs(1)),
            busy: Duration::from_secs(2),
            backlog_bytes: 64 << 20,
            log_bytes: 256 << 20,
            max_bytes: None,
            sweep_rows: 100,
            sweep_every: (Duration::from_millis(20), Duration::from_secs(1)),
            sweep_rest: 32,
            records_for: Duration::from_secs(7 * 24 * 3600),
            records_bytes: 256 << 20,
            records_every: Duration::from_millis(200),
            records_waiting: 8 << 20,
            on_flush: None,
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("path", &self.path)
            .field("flush", &self.flush)
            .finish_non_exhaustive()
    }
}
