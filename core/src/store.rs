//! What the hub has written down and asks for again: the words between the core and a store.
//!
//! The core never waits for a store. It says what is to be written as [`Change`]s, each with a number that counts up,
//! and what it wants to know as [`Ask`]s; [`StoreNews`] come back as inputs. Moments are milliseconds since the Unix
//! epoch, on the hub's own clock: a store outlives the clock of one process.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::rows::{StoredCall, TaskRow, Whose};

/// Names a task, for ever. Its text is that of a UUID of version 7: ids sort by the time of their making.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u128);

impl TaskId {
    /// The id of these 128 bits, which came from [`TaskId::bits`].
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// An id of this moment, in milliseconds since the Unix epoch, and of chance.
    pub const fn new(unix_ms: u64, high: u64, low: u64) -> Self {
        let time = (unix_ms as u128 & 0xffff_ffff_ffff) << 80;
        let chance = ((high as u128 & 0x0fff) << 64) | (low as u128 & 0x3fff_ffff_ffff_ffff);
        Self(time | (0x7 << 76) | (0b10 << 62) | chance)
    }

    /// All of it.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e] = [
            self.0 >> 96,
            self.0 >> 80 & 0xffff,
            self.0 >> 64 & 0xffff,
            self.0 >> 48 & 0xffff,
            self.0 & 0xffff_ffff_ffff,
        ];
        write!(f, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTaskId;

impl FromStr for TaskId {
    type Err = NoTaskId;

    fn from_str(text: &str) -> Result<Self, NoTaskId> {
        let hyphens = |(at, byte): (usize, u8)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23);
        if text.len() != 36 || !text.bytes().enumerate().all(hyphens) {
            return Err(NoTaskId);
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NoTaskId);
        }
        u128::from_str_radix(&digits, 16).map(Self).map_err(|_| NoTaskId)
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskState {
    /// Stored; no agent is known to have it.
    Queued,
    /// An agent has accepted it.
    Received,
    /// An agent works on it.
    Processing,
    /// Its result is stored.
    Succeeded,
    /// The reason is stored.
    Failed,
}

impl TaskState {
    /// All, in order.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Received, Self::Processing, Self::Succeeded, Self::Failed];

    /// The word on the wire, in metrics and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Received => "RECEIVED",
            Self::Processing => "PROCESSING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }

    /// The state of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether nothing follows it.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Who was given a task: a process of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its agent_id.
    pub agent: Arc<str>,
    /// Its `instance`: another one never had it.
    pub instance: Arc<str>,
    /// The capability for which it was given the task, by the name that it has at this agent. `None`: an older version
    /// wrote it, which did not say.
    pub capability: Option<Arc<str>>,
    /// That capability lets it run again after an unknown outcome.
    pub idempotent: bool,
}

/// A task as it is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its name.
    pub id: TaskId,
    /// Of the caller's certificate: the owner.
    pub identity: Arc<str>,
    /// The caller's agent_id: where its result goes.
    pub agent: Arc<str>,
    /// One intent of the identity.
    pub request_id: Arc<str>,
    /// As asked for, folded.
    pub capability: Arc<str>,
    /// Of capability and body: a repetition has the same.
    pub fingerprint: u128,
    /// Until when a CALL with the same request_id is a repetition, if it does not end later.
    pub keep_until: u64,
    /// When it was accepted.
    pub created: u64,
    /// When its budget ends.
    pub budget_until: u64,
    /// The CALL as it came.
    pub call: Bytes,
    /// Where the result goes as well: a URL.
    pub callback_url: Option<Arc<str>>,
    /// Where the result goes as well: an agent_id.
    pub reply_to: Option<Arc<str>>,
    /// The task whose CALL an operator had made again, as this one.
    pub retry_of: Option<TaskId>,
}

/// A task has moved on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Which.
    pub task: TaskId,
    /// When.
    pub at: u64,
    /// Where to; no end.
    pub state: TaskState,
    /// Tries so far, the present one included.
    pub attempt: u32,
    /// Who has it, or may have it; `None`: nobody any more.
    pub holder: Option<Holder>,
}

/// A task has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnd {
    /// Which.
    pub task: TaskId,
    /// When.
    pub at: u64,
    /// `completed`, or an error code.
    pub outcome: &'static str,
    /// Tries in all.
    pub attempt: u32,
    /// Until when the end is kept, and with it all of the task.
    pub expires: u64,
    /// Until when its request_id is kept; no longer than the task. In the past: not at all, the id is free again.
    pub keep_until: u64,
    /// The RESULT without an id.
    pub end: Bytes,
}

/// How a call ended whose request_id is to be known for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// Of the caller's certificate.
    pub identity: Arc<str>,
    /// One intent of the identity.
    pub request_id: Arc<str>,
    /// Of capability and body.
    pub fingerprint: u128,
    /// Until when it is kept.
    pub until: u64,
    /// Its RESULTs: one, or one for each target of a fan-out and the summary.
    pub ends: Vec<Bytes>,
}

/// Something to be written down. Changes are written in the order of their numbers, and those of one batch together
/// or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A task, before its ACCEPT. A store that cannot write refuses it at once ([`StoreNews::Refused`]).
    Task(Box<NewTask>),
    /// Of a task that is stored. This and all that follows is kept by the shell until it can be written.
    Moved(Moved),
    /// Of a task that is stored.
    Ended(Box<TaskEnd>),
    /// A recipient (the caller's agent, or the one of `reply_to`) has the end of a task in its hands.
    Receipt {
        /// Which.
        task: TaskId,
        /// Whose agent_id.
        agent: Arc<str>,
        /// When.
        at: u64,
    },
    /// The end of a call. May be left out, and is then counted, when more waits to be written than there is room for.
    Call(Box<KeptCall>),
}

/// A question to the store. Questions are answered in any order, and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Names the answer.
    pub number: u64,
    /// What is asked.
    pub question: Question,
}

/// What the core may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What a request_id was used for, if it is still kept at this moment.
    Key {
        /// Whose.
        identity: Arc<str>,
        /// Which.
        request_id: Arc<str>,
        /// Milliseconds since the Unix epoch.
        now: u64,
    },
    /// Ends of tasks that an agent is to have and has not confirmed, in the order of their ids.
    Owed {
        /// Its agent_id.
        agent: Arc<str>,
        /// Only those behind this one.
        after: Option<TaskId>,
        /// At most so many, and about so many bytes of them; the first in any case.
        most: (usize, usize),
    },
    /// One task, in whatever state, with its end.
    Task {
        /// Only if it is theirs.
        whose: Whose,
        /// Which.
        task: TaskId,
    },
    /// One task as it was accepted, in whatever state.
    Call {
        /// Only if it is theirs.
        whose: Whose,
        /// Which.
        task: TaskId,
    },
    /// Tasks in whatever state, the newest first, without their ends.
    Tasks {
        /// Only theirs.
        whose: Whose,
        /// Only those in this state.
        state: Option<TaskState>,
        /// Only those of this capability.
        capability: Option<Arc<str>>,
        /// Only those with a smaller id than this one.
        before: Option<TaskId>,
        /// At most so many.
        most: usize,
    },
}

/// What the store says to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Key`].
    Key(Option<Kept>),
    /// To [`Question::Owed`].
    Owed(Vec<(TaskId, Bytes)>),
    /// To [`Question::Task`].
    Task(Option<Box<TaskRow>>),
    /// To [`Question::Call`].
    Call(Option<Box<StoredCall>>),
    /// To [`Question::Tasks`].
    Tasks(Vec<TaskRow>),
    /// To any: the store cannot be read now.
    Unreadable,
}

/// What a request_id was used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Of capability and body.
    pub fingerprint: u128,
    /// Until when it is kept.
    pub until: u64,
    /// For a task with this name.
    pub task: Option<TaskId>,
    /// RESULTs; none while a task has not ended.
    pub ends: Vec<Bytes>,
}

/// A task that has not ended, read when the hub starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTask {
    /// As it was accepted.
    pub task: NewTask,
    /// How far it has come.
    pub moved: Moved,
}

/// What happened to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreNews {
    /// All changes with numbers up to this one are on disk, but for those refused.
    Written {
        /// A number of a change.
        up_to: u64,
    },
    /// These new tasks cannot be written; they are not stored.
    Refused {
        /// Their changes' numbers.
        numbers: Vec<u64>,
        /// Why, for the caller.
        reason: String,
    },
    /// Whether new tasks can be written from now on.
    Writable(bool),
    /// The answer to a question.
    Answered {
        /// [`Ask::number`].
        number: u64,
        /// What the store says.
        answer: Answer,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_is_a_uuid_of_version_7_and_reads_as_it_writes() {
        let id = TaskId::new(0x0193_f1a2_b3c4, u64::MAX, u64::MAX);
        assert_eq!(id.to_string(), "0193f1a2-b3c4-7fff-bfff-ffffffffffff");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(TaskId::from_bits(id.bits()), id);
        assert!(TaskId::new(2, 0, 0) > TaskId::new(1, u64::MAX, u64::MAX));
        for wrong in [
            "",
            "0193f1a2-b3c4-7fff-bfff-fffffffffff",
            "0193F1A2-b3c4-7fff-bfff-ffffffffffff",
            "0193f1a2+b3c4-7fff-bfff-ffffffffffff",
        ] {
            assert_eq!(wrong.parse::<TaskId>(), Err(NoTaskId), "{wrong}");
        }
    }

    #[test]
    fn states_read_as_they_write() {
        for state in TaskState::ALL {
            assert_eq!(TaskState::parse(state.as_str()), Some(state));
        }
        assert_eq!(TaskState::parse("queued"), None);
    }
}
