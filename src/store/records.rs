//! Records that wait to be written.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Record, RecordBlock};

/// How much memory a block keeps for the next records. Bytes.
const KEPT_BYTES: usize = 1 << 20;

/// What gathers between two writes, as it will be stored. Two blocks go round between who adds and who writes, so that no
/// memory is allocated, freed or given to another thread for a record.
#[derive(Debug)]
pub(super) struct Records {
    gathered: Mutex<RecordBlock>,
    bound: usize,
}

impl Records {
    /// `bound`: with so many bytes or more none is added.
    pub(super) fn new(bound: usize) -> Self {
        Self { gathered: Mutex::default(), bound }
    }

    fn gathered(&self) -> MutexGuard<'_, RecordBlock> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one. `false`: too many wait.
    pub(super) fn add(&self, record: Record<'_>) -> bool {
        let mut gathered = self.gathered();
        gathered.bytes.len() < self.bound && gathered.add(record)
    }

    /// Gives what has gathered, for a block that is not needed any more.
    pub(super) fn take(&self, block: &mut RecordBlock) {
        block.clear(KEPT_BYTES);
        mem::swap(&mut *self.gathered(), block);
    }
}
