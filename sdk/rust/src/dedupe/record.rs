//! Records of the dedupe file: length, checksum, and a MessagePack value.

use std::fmt;
use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use bytes::Bytes;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64;

use crate::payload::Payload;
use crate::session::{Failure, Note, Outcome, Says};

/// Version of the format.
pub(super) const VERSION: u32 = 1;
/// Bytes before the value: its length in 4, its checksum in 8, both little-endian.
const FRAME: usize = 12;

/// The first record.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub(super) version: u32,
    pub(super) agent_id: String,
    pub(super) instance: String,
}

/// Every other record.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    pub(super) task: bool,
    pub(super) intent: String,
    pub(super) fingerprint: u64,
    pub(super) word: Word,
}

/// What a record says of its intent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Word {
    Begun,
    Free,
    Completed { body: Bin, content_type: Option<String>, execution_ms: u64 },
    Failed { code: String, message: String, retryable: bool, details: Option<Bin>, execution_ms: u64 },
}

/// Bytes, which serde would write as a list of numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bin(pub(super) Bytes);

impl Serialize for Bin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Bin;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bin, E> {
                Ok(Bin(Bytes::copy_from_slice(bytes)))
            }
        }
        from.deserialize_bytes(Read)
    }
}

impl Line {
    pub(super) fn of(note: Note, at: u64) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let word = match note.says {
            Says::Begun => Word::Begun,
            Says::Free => Word::Free,
            Says::Ended(Outcome::Completed(payload), time) => Word::Completed {
                body: Bin(payload.body),
                content_type: payload.content_type,
                execution_ms: ms(time),
            },
            Says::Ended(Outcome::Failed(failure), time) => Word::Failed {
                code: failure.code.as_str().to_owned(),
                message: failure.message,
                retryable: failure.retryable,
                details: failure.details.map(Bin),
                execution_ms: ms(time),
            },
        };
        let Note { intent, fingerprint, task, .. } = note;
        Self { at, task, intent: (*intent).to_owned(), fingerprint, word }
    }

    /// How its intent ended; `None` when it did not.
    pub(super) fn outcome(self) -> Option<(Outcome, Duration)> {
        match self.word {
            Word::Begun | Word::Free => None,
            Word::Completed { body, content_type, execution_ms } => {
                let payload = Payload { body: body.0, content_type };
                Some((Outcome::Completed(payload), Duration::from_millis(execution_ms)))
            }
            Word::Failed { code, message, retryable, details, execution_ms } => {
                let code = ErrorCode::parse(&code).unwrap_or(ErrorCode::HandlerError);
                let failure = Failure { code, message, retryable, details: details.map(|details| details.0) };
                Some((Outcome::Failed(failure), Duration::from_millis(execution_ms)))
            }
        }
    }
}

/// Appends a record.
pub(super) fn write(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), String> {
    let value = rmp_serde::to_vec(value).map_err(|e| e.to_string())?;
    let length = u32::try_from(value.len()).map_err(|_| "a record of more than 4 GiB".to_owned())?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&xxh3_64(&value).to_le_bytes());
    out.extend_from_slice(&value);
    Ok(())
}

/// Takes the first record off `bytes`: the value, and how long the record was. `None` at the end of what is whole:
/// whatever follows was being written when the machine stopped.
pub(super) fn take<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (value, rest) = rest.split_at_checked(length)?;
    if xxh3_64(value) != u64::from_le_bytes(*sum) {
        return None;
    }
    *bytes = rest;
    Some((value, FRAME + length))
}

pub(super) fn read<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    rmp_serde::from_slice(value).ok()
}
