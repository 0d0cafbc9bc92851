//! How values of the core stand in columns, and come back.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_core::{TaskId, TaskState};
use bytes::Bytes;
use rusqlite::Row;

use crate::store::{StoreError, StoreErrorKind};

/// Texts that come again and again (identities, agents, capabilities), each in memory once.
#[derive(Default)]
pub(super) struct Texts(BTreeSet<Arc<str>>);

impl Texts {
    pub(super) fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// A moment or a number; what is beyond SQLite's integers is as good as for ever.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Big-endian, so that blobs sort as ids do.
pub(super) const fn id(task: TaskId) -> [u8; 16] {
    task.bits().to_be_bytes()
}

pub(super) fn state(state: TaskState) -> i64 {
    match state {
        TaskState::Queued => 0,
        TaskState::Received => 1,
        TaskState::Processing => 2,
        TaskState::Succeeded => 3,
        TaskState::Failed => 4,
    }
}

pub(super) fn state_of(column: i64) -> Result<TaskState, StoreError> {
    let state = usize::try_from(column).ok().and_then(|at| TaskState::ALL.get(at).copied());
    state.ok_or_else(|| corrupt("a state"))
}

pub(super) fn bits(row: &Row<'_>, column: usize) -> Result<u128, StoreError> {
    Ok(u128::from_be_bytes(row.get(column)?))
}

pub(super) fn task(row: &Row<'_>, column: usize) -> Result<TaskId, StoreError> {
    bits(row, column).map(TaskId::from_bits)
}

pub(super) fn optional_task(row: &Row<'_>, column: usize) -> Result<Option<TaskId>, StoreError> {
    let bits: Option<[u8; 16]> = row.get(column)?;
    Ok(bits.map(|bits| TaskId::from_bits(u128::from_be_bytes(bits))))
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, StoreError> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| corrupt("a number"))
}

pub(super) fn bytes(row: &Row<'_>, column: usize) -> Result<Bytes, StoreError> {
    let blob = row.get_ref(column)?.as_blob().map_err(rusqlite::Error::from)?;
    Ok(Bytes::copy_from_slice(blob))
}

pub(super) fn text(row: &Row<'_>, column: usize) -> Result<Arc<str>, StoreError> {
    Ok(str_of(row, column)?.into())
}

pub(super) fn str_of<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, StoreError> {
    Ok(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)
}

pub(super) fn optional_text(row: &Row<'_>, column: usize) -> Result<Option<Arc<str>>, StoreError> {
    let text = row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    Ok(text.map(Arc::from))
}

/// Several ends as one blob: each behind its length, four bytes, big-endian.
pub(super) fn joined(ends: &[Bytes]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(ends.iter().map(|end| end.len() + 4).sum());
    for end in ends {
        // An end is a WebSocket message, far below four GiB.
        blob.extend_from_slice(&u32::try_from(end.len()).unwrap_or(u32::MAX).to_be_bytes());
        blob.extend_from_slice(end);
    }
    blob
}

pub(super) fn parted(blob: Bytes) -> Result<Vec<Bytes>, StoreError> {
    let mut rest = blob;
    let mut ends = Vec::new();
    while !rest.is_empty() {
        let (length, _) = rest.split_first_chunk::<4>().ok_or_else(|| corrupt("the ends of a call"))?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        let mut end = rest.split_off(4);
        if end.len() < length {
            return Err(corrupt("the ends of a call"));
        }
        rest = end.split_off(length);
        ends.push(end);
    }
    Ok(ends)
}

pub(super) fn corrupt(what: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("{what} cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_apart_as_they_were_joined() {
        for ends in [vec![], vec![Bytes::new()], vec![Bytes::from("a"), Bytes::new(), Bytes::from("bc")]] {
            assert_eq!(parted(joined(&ends).into()), Ok(ends));
        }
    }

    #[test]
    fn ends_that_are_cut_are_damage() {
        let whole = joined(&[Bytes::from("abc")]);
        for length in 1..whole.len() {
            let cut = parted(Bytes::copy_from_slice(&whole[..length]));
            assert_eq!(cut.unwrap_err().kind, StoreErrorKind::Corrupt, "{length}");
        }
    }
}
