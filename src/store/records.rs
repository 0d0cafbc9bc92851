//! Records that wait to be written.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{BlockWriter, Record, RecordBlock};

/// How much memory a block keeps for the next records. Bytes.
const KEPT_BYTES: usize = 1 << 20;

/// What gathers between two writes, as it will be stored. Two blocks go round between who adds and who writes, so that no
/// memory is allocated, freed or given to another thread for a record.
#[derive(Debug)]
pub(super) struct Records {
    gathered: Mutex<BlockWriter>,
    bound: usize,
}

impl Records {
    /// `bound`: with so many bytes or more none is added.
    pub(super) fn new(bound: usize) -> Self {
        Self { gathered: Mutex::default(), bound }
    }

    fn gathered(&self) -> MutexGuard<'_, BlockWriter> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds some. Gives how many of them were not taken, since too many wait.
    pub(super) fn add<'a>(&self, records: impl IntoIterator<Item = Record<'a>>) -> u64 {
        let mut gathered = self.gathered();
        let mut dropped = 0;
        for record in records {
            dropped += u64::from(gathered.len() >= self.bound || !gathered.add(record));
        }
        dropped
    }

    /// Gives what has gathered, for a block that is not needed any more.
    pub(super) fn take(&self, block: &mut RecordBlock) {
        let mut spare = mem::take(&mut block.bytes);
        spare.clear();
        spare.shrink_to(KEPT_BYTES);
        *block = self.gathered().take(spare);
    }
}
