//! Tasks as a store shows them, and whose are meant.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::{NewTask, TaskId, TaskState};

/// Whose tasks are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Those of one identity.
    One(Arc<str>),
    /// Those of everybody, for operators.
    Everybodys,
}

impl Whose {
    /// Whether a task of this identity is meant.
    pub fn is(&self, identity: &str) -> bool {
        match self {
            Self::One(own) => **own == *identity,
            Self::Everybodys => true,
        }
    }
}

/// A task with its CALL, for another try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCall {
    /// As it was accepted; `call` is empty where it is not kept any more.
    pub task: NewTask,
    /// Where it stands.
    pub state: TaskState,
}

/// A task as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Its name.
    pub id: TaskId,
    /// Where it stands.
    pub state: TaskState,
    /// The caller's agent_id.
    pub agent: Arc<str>,
    /// One intent of its owner.
    pub request_id: Arc<str>,
    /// As asked for.
    pub capability: Arc<str>,
    /// When it was accepted, and when it moved last.
    pub created: u64,
    /// See `created`.
    pub updated: u64,
    /// Tries so far.
    pub attempt: u32,
    /// The agent_id of who has it, or had it last.
    pub holder: Option<Arc<str>>,
    /// `completed`, or an error code; `None` while it has not ended.
    pub outcome: Option<Arc<str>>,
    /// The RESULT without an id, where it was asked for.
    pub end: Option<Bytes>,
    /// How its end is delivered to a URL, where it is to be and was asked for.
    pub callback: Option<CallbackRow>,
    /// The task whose CALL this one makes again.
    pub retry_of: Option<TaskId>,
}

/// Deliveries of a task's end to a URL, as they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackRow {
    /// Where to.
    pub url: Arc<str>,
    /// Deliveries so far.
    pub attempts: u32,
    /// How the last one went.
    pub outcome: Option<Arc<str>>,
    /// When the next one is due, in milliseconds since the Unix epoch; `None`: there will be none, or the task has not
    /// ended.
    pub next: Option<u64>,
}
