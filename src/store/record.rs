//! What is written down about a call or task once it has ended.

use agent_reach_core::CallRecord;
use serde::{Deserialize, Serialize};

use super::{StoreError, StoreErrorKind};

/// One call or task, for whoever asks afterwards what happened.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What the hub says of it.
    pub call: &'a CallRecord,
    /// `call`, `task` or `notify`.
    pub mode: &'static str,
    /// `completed`, or an error code.
    pub outcome: &'static str,
}

/// A record as it is read back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRecord {
    /// Hub-wide name of the call.
    pub call_id: String,
    /// Of a task, the text of its name.
    pub task: Option<String>,
    /// One intent of the caller.
    pub request_id: String,
    /// Who asked: an agent_id.
    pub caller: String,
    /// Who did it, or had it last: an agent_id.
    pub target: Option<String>,
    /// As asked for.
    pub capability: String,
    /// `call`, `task` or `notify`.
    pub mode: String,
    /// When it came. Milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// When it ended. Milliseconds since the Unix epoch.
    pub ended_ms: u64,
    /// `completed`, or an error code.
    pub outcome: String,
    /// Tries in all.
    pub attempts: u32,
}

/// As it stands in a block: an array, in this order. A later version may add to its end.
type Row<'a> =
    (&'a str, Option<String>, &'a str, &'a str, Option<&'a str>, &'a str, &'a str, u64, u64, &'a str, u32);

/// What a block begins with: how many records follow, in four bytes.
const HEADER: [u8; 5] = [0xdd, 0, 0, 0, 0];

/// Records that were gathered and are stored as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBlock {
    /// When the first of them ended. Milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// When the last of them ended. Milliseconds since the Unix epoch.
    pub last_ms: u64,
    /// How many.
    pub count: u32,
    /// MessagePack: an array of records, each an array.
    pub bytes: Vec<u8>,
}

impl RecordBlock {
    /// Adds one. `false`: there is no room for more.
    pub fn add(&mut self, record: Record<'_>) -> bool {
        let Some(count) = self.count.checked_add(1) else { return false };
        let before = self.bytes.len();
        if before == 0 {
            self.bytes.extend_from_slice(&HEADER);
        }
        if rmp_serde::encode::write(&mut self.bytes, &row(record)).is_err() {
            // Writing texts and numbers into memory does not fail; half of one would spoil the others.
            self.bytes.truncate(before);
            return false;
        }
        let [kind, ..] = HEADER;
        let [a, b, c, d] = count.to_be_bytes();
        if let Some(header) = self.bytes.first_chunk_mut() {
            *header = [kind, a, b, c, d];
        }
        let ended = record.call.ended_ms;
        self.first_ms = if self.count == 0 { ended } else { self.first_ms.min(ended) };
        self.last_ms = self.last_ms.max(ended);
        self.count = count;
        true
    }

    /// Empties it, and keeps at most so much of its memory. Bytes.
    pub(super) fn clear(&mut self, keep: usize) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.shrink_to(keep);
        *self = Self { bytes, ..Self::default() };
    }

    /// The records in it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Corrupt`] when it is not what was written.
    pub fn records(&self) -> Result<Vec<StoredRecord>, StoreError> {
        rmp_serde::from_slice(&self.bytes)
            .map_err(|error| StoreError::new(StoreErrorKind::Corrupt, format!("a block of records: {error}")))
    }
}

fn row(record: Record<'_>) -> Row<'_> {
    let Record { call, mode, outcome } = record;
    (
        &call.call_id,
        call.task.map(|task| task.to_string()),
        &call.request_id,
        &call.caller,
        call.target.as_deref(),
        &call.capability,
        mode,
        call.started_ms,
        call.ended_ms,
        outcome,
        call.attempts,
    )
}
