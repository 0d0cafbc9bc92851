//! What is written down about a call or task once it has ended.

use std::mem;
use std::sync::Arc;

use agent_reach_core::{CallId, CallRecord};
use agent_reach_protocol::codec::Writer;
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

/// Records that were gathered and are stored as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBlock {
    /// When the first of them ended. Milliseconds since the Unix epoch.
    pub first_ms: u64,
    /// When the last of them ended. Milliseconds since the Unix epoch.
    pub last_ms: u64,
    /// How many.
    pub count: u32,
    /// MessagePack: each record an array, one behind the other.
    pub bytes: Vec<u8>,
}

/// What the blocks of earlier versions begin with: an array of records, its length in four bytes.
const ARRAY_32: u8 = 0xdd;
const ARRAY_HEAD: usize = 5;

/// A record in a block of earlier versions: a [`StoredRecord`] as an array, in the order of its fields.
type Row = StoredRecord;

/// A record as it stands in a block: what [`BlockWriter::add`] writes. Nearly all of a block are texts that it has already.
#[derive(Debug, Deserialize)]
struct ShortRow(Id, String, Text, Option<Text>, Text, Text, Text, i64, i64, u32, Option<String>);

/// A call id in a block.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Id {
    /// Of the hub's life that the one before is of, and so much later among its calls.
    Later(i64),
    /// In full.
    Full(String),
}

/// A text in a block.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    /// The one that was written in full as the so many-eth of the block, from 0.
    Again(u32),
    /// In full.
    Full(String),
}

impl RecordBlock {
    /// The records in it.
    ///
    /// # Errors
    /// [`StoreErrorKind::Corrupt`] when it is not what was written.
    pub fn records(&self) -> Result<Vec<StoredRecord>, StoreError> {
        let corrupt =
            |what: String| StoreError::new(StoreErrorKind::Corrupt, format!("a block of records: {what}"));
        let is_old = self.bytes.first() == Some(&ARRAY_32);
        let rows = if is_old { self.bytes.get(ARRAY_HEAD..).unwrap_or_default() } else { &self.bytes };
        let mut read = rmp_serde::Deserializer::from_read_ref(rows);
        let mut reading = Reading::default();
        // As many as there are, and not as many as it says there are.
        let mut records = Vec::new();
        for _ in 0..self.count {
            let record = match is_old {
                true => Row::deserialize(&mut read),
                false => ShortRow::deserialize(&mut read).and_then(|row| {
                    let unknown = || serde::de::Error::custom("a text that it does not have");
                    reading.record(row).ok_or_else(unknown)
                }),
            };
            records.push(record.map_err(|error| corrupt(error.to_string()))?);
        }
        Ok(records)
    }
}

/// What the records before say of the next.
#[derive(Debug, Default)]
struct Reading {
    call_id: Option<CallId>,
    texts: Vec<String>,
    ended: u64,
}

impl Reading {
    fn call_id(&mut self, id: Id) -> Option<String> {
        match id {
            Id::Later(by) => {
                let before = self.call_id?;
                self.call_id = Some(CallId::new(before.epoch(), before.number().wrapping_add_signed(by)));
                self.call_id.map(|id| id.to_string())
            }
            Id::Full(text) => {
                self.call_id = CallId::parse(&text);
                Some(text)
            }
        }
    }

    fn text(&mut self, text: Text) -> Option<String> {
        match text {
            Text::Again(place) => self.texts.get(place as usize).cloned(),
            Text::Full(text) => {
                self.texts.push(text.clone());
                Some(text)
            }
        }
    }

    fn record(&mut self, row: ShortRow) -> Option<StoredRecord> {
        let ShortRow(
            call_id,
            request_id,
            caller,
            target,
            capability,
            mode,
            outcome,
            since,
            took,
            attempts,
            task,
        ) = row;
        self.ended = self.ended.checked_add_signed(since)?;
        Some(StoredRecord {
            call_id: self.call_id(call_id)?,
            request_id,
            // In the order in which they were written.
            caller: self.text(caller)?,
            target: match target {
                Some(target) => Some(self.text(target)?),
                None => None,
            },
            capability: self.text(capability)?,
            mode: self.text(mode)?,
            outcome: self.text(outcome)?,
            started_ms: self.ended.checked_sub_signed(took)?,
            ended_ms: self.ended,
            attempts,
            task,
        })
    }
}

/// Gathers records into a block.
///
/// This is done for every call that the hub carries, and what it makes is copied some times more on its way to the disk:
/// a name that stands in it already is written as its number.
#[derive(Debug, Default)]
pub struct BlockWriter {
    first_ms: u64,
    last_ms: u64,
    /// The id of the one before, and when that ended.
    before: Option<CallId>,
    before_ms: u64,
    count: u32,
    out: Writer,
    texts: Texts,
}

impl BlockWriter {
    /// Adds one. `false`: there is no room for more.
    pub fn add(&mut self, record: Record<'_>) -> bool {
        let Some(count) = self.count.checked_add(1) else { return false };
        let Record { call, mode, outcome } = record;
        let (out, texts) = (&mut self.out, &mut self.texts);
        out.array(11);
        match self.before.filter(|before| before.epoch() == call.call_id.epoch()) {
            Some(before) => out.int(call.call_id.number().wrapping_sub(before.number()).cast_signed()),
            None => out.str(&call.call_id),
        }
        out.str(&call.request_id);
        texts.name(out, &call.caller);
        match &call.target {
            Some(target) => texts.name(out, target),
            None => out.nil(),
        }
        texts.name(out, &call.capability);
        texts.word(out, Word::Mode, mode);
        texts.word(out, Word::Outcome, outcome);
        out.int(call.ended_ms.wrapping_sub(self.before_ms).cast_signed());
        out.int(call.ended_ms.wrapping_sub(call.started_ms).cast_signed());
        out.uint(u64::from(call.attempts));
        match call.task {
            Some(task) => out.str(&task.to_string()),
            None => out.nil(),
        }
        self.first_ms = if self.count == 0 { call.ended_ms } else { self.first_ms.min(call.ended_ms) };
        self.last_ms = self.last_ms.max(call.ended_ms);
        self.before = Some(call.call_id);
        self.before_ms = call.ended_ms;
        self.count = count;
        true
    }

    /// Bytes of the block so far.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives the block and begins another in the memory of `spare`.
    pub fn take(&mut self, spare: Vec<u8>) -> RecordBlock {
        let Self { first_ms, last_ms, count, out, .. } = mem::take(self);
        self.out = Writer::over(spare);
        RecordBlock { first_ms, last_ms, count, bytes: out.into_bytes() }
    }
}

/// Which names a block has already: of each only where it was seen last, and not of all, so that finding one is one look.
/// What is not found is written in full again.
#[derive(Debug)]
struct Texts {
    /// How many were written in full.
    count: u32,
    /// By where in memory a name stands. Held, so that no other comes to stand there while it is known.
    names: Box<[Option<Named>; Self::NAMES]>,
    words: [Option<(&'static str, u32)>; 2],
}

/// A name that was written in full, and as the how many-eth text of its block.
#[derive(Debug)]
struct Named {
    name: Arc<str>,
    number: u32,
}

/// A text of which there are few.
#[derive(Clone, Copy, Debug)]
enum Word {
    Mode,
    Outcome,
}

impl Default for Texts {
    fn default() -> Self {
        Self { count: 0, names: Box::new([const { None }; Self::NAMES]), words: [None; 2] }
    }
}

impl Texts {
    const NAMES: usize = 256;

    fn name(&mut self, out: &mut Writer, name: &Arc<str>) {
        // Multiplied, so that all bits of the address count for the place.
        let spread = (name.as_ptr().addr() as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = usize::try_from(spread >> 56).unwrap_or_default();
        let Some(slot) = self.names.get_mut(place) else { return out.str(name) };
        match slot {
            Some(known) if Arc::ptr_eq(&known.name, name) => out.uint(u64::from(known.number)),
            _ => {
                *slot = Some(Named { name: Arc::clone(name), number: self.count });
                self.count = self.count.saturating_add(1);
                out.str(name);
            }
        }
    }

    fn word(&mut self, out: &mut Writer, which: Word, word: &'static str) {
        let [mode, outcome] = &mut self.words;
        let slot = match which {
            Word::Mode => mode,
            Word::Outcome => outcome,
        };
        match slot {
            Some((known, number)) if *known == word => out.uint(u64::from(*number)),
            _ => {
                *slot = Some((word, self.count));
                self.count = self.count.saturating_add(1);
                out.str(word);
            }
        }
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
