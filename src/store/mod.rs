//! What outlives the process: tasks, kept outcomes, deliveries and execution records.
//!
//! [`Store`] is what a store can do, one call after the other; [`sqlite`] and [`memory`] do it. [`StoreHandle`] is how the
//! hub has one: threads of its own write in batches and answer questions, and nobody waits for a disk.

mod desk;
#[cfg(test)]
mod desk_tests;
mod error;
mod figures;
mod handle;
#[cfg(test)]
mod handle_tests;
mod job;
pub mod memory;
mod options;
mod record;
mod records;
pub mod sqlite;
mod threads;

use std::sync::Arc;

use agent_reach_core::{Answer, Change, OpenTask, Question, TaskId, TaskState};
use bytes::Bytes;

use crate::callbacks::Busy;

pub use error::{StoreError, StoreErrorKind};
pub use figures::StoreFigures;
pub use handle::StoreHandle;
pub use options::StoreOptions;
pub use record::{BlockWriter, Record, RecordBlock, StoredRecord};

/// Writes down and finds again. Every call may wait for a disk.
///
/// A store is used by one thread at a time; several may stand before the same data, of which one writes. Moments are
/// milliseconds since the Unix epoch.
pub trait Store: Send {
    /// Writes all of these, in their order, or none. When it returns they are safe from a crash of the machine.
    /// Returns how many were ignored: they named a task that is not there, or not in a state for it.
    ///
    /// # Errors
    /// Nothing was written.
    fn write(&mut self, changes: &[(u64, Change)]) -> Result<u64, StoreError>;

    /// Writes a little, as a real write would, to find out whether it can.
    ///
    /// # Errors
    /// It cannot.
    fn probe(&mut self) -> Result<(), StoreError>;

    /// What it knows.
    ///
    /// # Errors
    /// It cannot be read.
    fn answer(&mut self, question: &Question) -> Result<Answer, StoreError>;

    /// Tells every task that has not ended, in the order of their ids.
    ///
    /// # Errors
    /// It cannot be read.
    fn open_tasks(&mut self, each: &mut dyn FnMut(OpenTask)) -> Result<(), StoreError>;

    /// Tells every agent that is owed ends of tasks, in order.
    ///
    /// # Errors
    /// It cannot be read.
    fn owed_agents(&mut self, each: &mut dyn FnMut(Arc<str>)) -> Result<(), StoreError>;

    /// Tells every request_id that is kept at this moment, those of open tasks included, in order.
    ///
    /// # Errors
    /// It cannot be read.
    fn kept_keys(&mut self, now: u64, each: &mut dyn FnMut(KeptKey)) -> Result<(), StoreError>;

    /// Removes what has expired, at most so many tasks, keys and blocks of records each.
    ///
    /// # Errors
    /// Nothing was removed.
    fn sweep(&mut self, now: u64, bounds: SweepBounds) -> Result<Swept, StoreError>;

    /// Ends of tasks whose delivery to a URL is due, the longest due first, without those that are busy: at most so many,
    /// and no more than [`MAX_DUE_BYTES`] of them, the first in any case.
    ///
    /// # Errors
    /// It cannot be read.
    fn due_callbacks(&mut self, now: u64, most: usize, busy: &Busy) -> Result<Vec<DueCallback>, StoreError>;

    /// The first moment after this one at which a delivery becomes due.
    ///
    /// # Errors
    /// It cannot be read.
    fn next_callback(&mut self, after: u64) -> Result<Option<u64>, StoreError>;

    /// Notes a delivery: how many there were, how it went, and when the next one is due. `None`: there will be none.
    /// A delivery that is no longer wanted (the end was confirmed meanwhile) is not begun again.
    ///
    /// # Errors
    /// Nothing was written.
    fn callback_tried(
        &mut self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next: Option<u64>,
    ) -> Result<(), StoreError>;

    /// Adds records.
    ///
    /// # Errors
    /// Nothing was written.
    fn write_records(&mut self, block: &RecordBlock) -> Result<(), StoreError>;

    /// Blocks of records behind this one, the oldest first, with their places: at most so many.
    ///
    /// # Errors
    /// It cannot be read.
    fn records(&mut self, after: u64, most: usize) -> Result<Vec<(u64, RecordBlock)>, StoreError>;

    /// Brings what is in the log of writes to its place, if it is enough to matter. Asked of a store of its own, beside
    /// the one that writes. A store without a log has nothing to do.
    ///
    /// # Errors
    /// It cannot be done; nothing is lost.
    fn checkpoint(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Lets the log of writes begin anew, if it is long and nobody reads from it for a moment. Asked of the store that
    /// writes.
    ///
    /// # Errors
    /// It cannot be done; nothing is lost.
    fn shorten_log(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How many tasks are in each state, in the order of [`TaskState::ALL`]. Costs nothing.
    fn counts(&self) -> [u64; TaskState::ALL.len()];

    /// How long the log of writes is. Bytes. Costs next to nothing.
    fn log_bytes(&self) -> u64;

    /// Figures that are looked up.
    ///
    /// # Errors
    /// It cannot be read.
    fn stats(&mut self) -> Result<StoreStats, StoreError>;

    /// What is wrong with it: nothing, when all is well.
    ///
    /// # Errors
    /// It cannot be read at all.
    fn check(&mut self) -> Result<Vec<String>, StoreError>;
}

/// Makes stores before the same data: again, when one has failed.
pub trait OpenStore: Send + Sync + 'static {
    /// One that writes.
    ///
    /// # Errors
    /// It cannot be opened.
    fn writer(&self) -> Result<Box<dyn Store>, StoreError>;

    /// One that only reads, while the other writes.
    ///
    /// # Errors
    /// It cannot be opened.
    fn reader(&self) -> Result<Box<dyn Store>, StoreError>;
}

/// Most bytes of ends in one answer of [`Store::due_callbacks`]; the first is given in any case.
pub const MAX_DUE_BYTES: usize = 16 << 20;

/// A request_id that is kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptKey {
    /// Whose.
    pub identity: Arc<str>,
    /// Which.
    pub request_id: Arc<str>,
    /// Until when; of an open task, at least.
    pub until: u64,
}

/// What the hub has to know when it starts.
#[derive(Debug, Default)]
pub struct Restored {
    /// Every task that has not ended, in the order of their ids.
    pub open: Vec<OpenTask>,
    /// Every agent that is owed ends of tasks, in order.
    pub owed: Vec<Arc<str>>,
    /// Every request_id that is kept, in order.
    pub keys: Vec<KeptKey>,
}

/// How much a step of [`Store::sweep`] does, and what of the records is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepBounds {
    /// Most rows of each kind in a step.
    pub rows: usize,
    /// Most bytes of bodies in a step; the first row goes in any case.
    pub bytes: usize,
    /// Records that ended before this moment go.
    pub records_before: u64,
    /// The oldest records go while there are more bytes of them.
    pub records_bytes: u64,
}

/// What a step of [`Store::sweep`] removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Tasks, with all that belongs to them.
    pub tasks: usize,
    /// Kept outcomes.
    pub keys: usize,
    /// Blocks of records.
    pub blocks: usize,
    /// Whether there is more.
    pub more: bool,
    /// Of what it removed that had a time to end: the earliest. Milliseconds since the Unix epoch.
    pub oldest: Option<u64>,
}

/// The end of a task that is to be delivered to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCallback {
    /// Which.
    pub task: TaskId,
    /// Where to.
    pub url: Arc<str>,
    /// Deliveries so far.
    pub attempt: u32,
    /// The RESULT without an id.
    pub end: Bytes,
    /// One intent of its owner.
    pub request_id: Arc<str>,
    /// As asked for.
    pub capability: Arc<str>,
}

/// Figures of a store, as it is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Tasks by state, in the order of [`TaskState::ALL`].
    pub tasks: [u64; TaskState::ALL.len()],
    /// Request_ids that are kept.
    pub keys: u64,
    /// Ends that are not confirmed.
    pub owed: u64,
    /// Deliveries to URLs that are not over.
    pub callbacks: u64,
    /// Execution records.
    pub records: u64,
    /// Bytes of them.
    pub record_bytes: u64,
    /// Bytes of the whole, its log left out.
    pub bytes: u64,
    /// Bytes in it that are free to be used again.
    pub free_bytes: u64,
    /// Bytes of the log of writes.
    pub log_bytes: u64,
    /// When the oldest task was accepted.
    pub oldest_task: Option<u64>,
    /// When the oldest open task was accepted.
    pub oldest_open: Option<u64>,
    /// When the oldest record ended.
    pub oldest_record: Option<u64>,
}

/// Reads what the hub has to know when it starts.
///
/// # Errors
/// It cannot be read.
pub fn restore(store: &mut dyn Store, now: u64) -> Result<Restored, StoreError> {
    let mut restored = Restored::default();
    store.open_tasks(&mut |task| restored.open.push(task))?;
    store.owed_agents(&mut |agent| restored.owed.push(agent))?;
    store.kept_keys(now, &mut |key| restored.keys.push(key))?;
    Ok(restored)
}
