//! Everything the hub makes happen, beside what it puts into outbound queues.

use std::sync::Arc;

use agent_reach_protocol::{CallMode, ErrorCode};

use crate::input::ConnectionId;
use crate::spans::CallTrace;
use crate::store::{Ask, Change, TaskId};
use crate::text::CallId;
use crate::trace_id::TraceId;

/// What one `handle` asks of the shell. The shell keeps one and clears it after use.
#[derive(Debug, Default)]
pub struct Effects {
    /// Connections whose outbound queue was empty and is not any more.
    pub wake: Vec<ConnectionId>,
    /// What happened, for metrics and audit.
    pub facts: Vec<Fact>,
    /// What the store is to write, with numbers that count up over all turns.
    pub changes: Vec<(u64, Change)>,
    /// What the store is asked.
    pub asks: Vec<Ask>,
    /// Reloads of the shell's files that are asked for; each is answered by [`crate::Input::Reloaded`].
    pub reloads: Vec<u64>,
}

impl Effects {
    /// Empties all lists and keeps their memory.
    pub fn clear(&mut self) {
        self.wake.clear();
        self.facts.clear();
        self.changes.clear();
        self.asks.clear();
        self.reloads.clear();
    }
}

/// How a call ended: `completed` or an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// With a result.
    Completed,
    /// Without one.
    Failed(ErrorCode),
}

impl Outcome {
    /// The word in `attempts`, metrics and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed(code) => code.as_str(),
        }
    }
}

/// The liveness of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Frames arrive.
    Ready,
    /// Silent for `suspect_ms`.
    Suspect,
    /// Silent for `gone_ms`.
    Gone,
}

impl Liveness {
    /// The word in metrics and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Gone => "gone",
        }
    }
}

/// How the hub's memory of request ids answered a CALL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DedupeOutcome {
    /// Joined the open call.
    Joined,
    /// Answered from the stored end.
    Replayed,
    /// Refused: another capability or body.
    Conflict,
}

impl DedupeOutcome {
    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Replayed => "replayed",
            Self::Conflict => "conflict",
        }
    }
}

/// What was done about a try that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Another try on the same agent.
    SameAgent,
    /// A try on another agent.
    OtherAgent,
    /// An older result was given.
    Cached,
}

impl Tier {
    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameAgent => "same_agent",
            Self::OtherAgent => "fallback",
            Self::Cached => "cached",
        }
    }
}

/// What records and the audit say of an ended call. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Hub-wide name of the call.
    pub call_id: CallId,
    /// Of a task, its name.
    pub task: Option<TaskId>,
    /// One intent of the caller.
    pub request_id: Arc<str>,
    /// The caller's agent_id.
    pub caller: Arc<str>,
    /// Who did it, or had it last.
    pub target: Option<Arc<str>>,
    /// As asked for.
    pub capability: Arc<str>,
    /// When it came.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// Tries in all.
    pub attempts: u32,
    /// Of a fan-out, all whom it was given to, each once.
    pub targets: Box<[Arc<str>]>,
    /// The trace of the caller's that it belongs to.
    pub trace: Option<TraceId>,
    /// The hub itself answered it.
    pub by_hub: bool,
}

/// Something that happened, told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An agent registered.
    Registered {
        /// Who.
        agent: Arc<str>,
        /// With which certificate identity.
        identity: Arc<str>,
        /// Whether an older connection gave way.
        replaced: bool,
    },
    /// A HELLO was refused.
    Refused {
        /// Of the certificate.
        identity: Arc<str>,
        /// As claimed; empty when HELLO could not be read.
        agent: String,
        /// The GOODBYE code.
        reason: &'static str,
    },
    /// A registered session ended.
    Left {
        /// Who.
        agent: Arc<str>,
        /// With which certificate identity.
        identity: Arc<str>,
        /// Why.
        reason: &'static str,
    },
    /// A session became silent, or was heard again.
    Liveness {
        /// Who.
        agent: Arc<str>,
        /// New state.
        to: Liveness,
    },
    /// An outbound queue passed its bound.
    SlowConsumer {
        /// Who.
        agent: Arc<str>,
    },
    /// A call ended.
    CallEnded {
        /// As asked for; `None` when no agent ever offered it, so that names made up by callers make no
        /// metric series.
        capability: Option<Arc<str>>,
        /// What the caller waited for.
        mode: CallMode,
        /// How.
        outcome: Outcome,
        /// From CALL to phase one, in microseconds.
        accept_us: Option<u64>,
        /// From phase one to the end, in microseconds.
        process_us: Option<u64>,
        /// From CALL to the end, in microseconds.
        total_us: u64,
        /// What is written down of it; none where nobody wants records.
        record: Option<CallRecord>,
    },
    /// A watch, which is a call to the hub itself, ended.
    WatchEnded {
        /// How.
        outcome: Outcome,
        /// From CALL to the end, in microseconds.
        total_us: u64,
        /// As of any call.
        record: Option<CallRecord>,
    },
    /// Somebody did to another's agent, or to a task, what is to be answered for.
    Act {
        /// The capability that does it.
        capability: &'static str,
        /// Whose agent.
        agent: Arc<str>,
        /// With which certificate identity.
        identity: Arc<str>,
        /// To whom or what: an agent_id, or a task_id.
        subject: Arc<str>,
    },
    /// A call ended, or was refused, that is part of a trace.
    CallTraced(Arc<CallTrace>),
    /// The end of a task is stored.
    TaskEnded {
        /// It goes to a URL as well.
        callback: bool,
    },
    /// A request id was seen before.
    Dedupe(DedupeOutcome),
    /// Ends were forgotten before their time, for room.
    Evicted {
        /// How many.
        count: usize,
    },
    /// A try of a call failed, and this was done about it.
    Retry(Tier),
}
