//! What is written down about a call or task once it has ended.

use std::sync::Arc;

use agent_reach_core::CallRecord;
use serde::{Deserialize, Serialize};

use super::{StoreError, StoreErrorKind};

/// One call or task, for whoever asks afterwards what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What the hub says of it.
    pub call: Arc<CallRecord>,
    /// `call`, `task` or `notify`.
    pub mode: &'static str,
    /// `completed`, or an error code.
    pub outcome: &'static str,
}

impl Record {
    /// About how much memory it takes. Bytes.
    pub fn size(&self) -> usize {
        let CallRecord { call_id, request_id, caller, target, capability, .. } = &*self.call;
        let texts = [call_id, request_id, caller, capability];
        let texts = texts.into_iter().chain(target).map(|text| text.len()).sum::<usize>();
        size_of::<Self>() + size_of::<CallRecord>() + texts
    }
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

/// Records that were gathered and are stored as one.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The block of some records; `None` without any.
    pub fn of(records: &[Record]) -> Option<Self> {
        let ends = || records.iter().map(|record| record.call.ended_ms);
        let rows: Vec<Row<'_>> = records.iter().map(row).collect();
        // Writing texts and numbers into memory does not fail.
        let bytes = rmp_serde::to_vec(&rows).ok()?;
        Some(Self {
            first_ms: ends().min()?,
            last_ms: ends().max()?,
            count: u32::try_from(records.len()).unwrap_or(u32::MAX),
            bytes,
        })
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

fn row(record: &Record) -> Row<'_> {
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
