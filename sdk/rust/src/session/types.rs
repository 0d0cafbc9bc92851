//! What goes in and comes out of the session, owned.

use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{
    AgentStatus, CallMode, ErrorCode, Policy, Priority, ResultStatus, Select, Summary, codec::Raw,
};
use bytes::Bytes;

use super::notes::Note;
use crate::errors::{Attempt, CallError, CloseReason, ConnectError};
use crate::payload::Payload;
use crate::provide::Capability;

/// A caller's handle on one call, made where the call is made.
pub(crate) type CallKey = u64;
/// One execution of a handler.
pub(crate) type RunKey = u64;
/// Labels, owned.
pub(crate) type Pairs = Vec<(String, String)>;

/// Everything a CALL says but its id, its request_id and what is left of its budget.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSpec {
    pub(crate) request_id: Option<String>,
    pub(crate) keep: Option<Duration>,
    pub(crate) capability: String,
    pub(crate) version: Option<String>,
    pub(crate) agents: Vec<String>,
    pub(crate) select: Option<Select>,
    pub(crate) policy: Option<Policy>,
    pub(crate) labels: Pairs,
    pub(crate) require: Pairs,
    pub(crate) mode: Option<CallMode>,
    /// First window of a stream, in chunks; `None`: no stream.
    pub(crate) window: Option<u64>,
    pub(crate) accept_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) budget: Option<Duration>,
    pub(crate) preferred_timeout: Option<Duration>,
    pub(crate) priority: Option<Priority>,
    pub(crate) retries: Option<u64>,
    pub(crate) allow_fallback: bool,
    pub(crate) allow_cached: Option<Duration>,
    pub(crate) queue: Option<bool>,
    pub(crate) wait: Option<Duration>,
    pub(crate) affinity_key: Option<String>,
    pub(crate) expected_output: Option<Bytes>,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) callback_url: Option<String>,
    pub(crate) reply_to: Option<String>,
    /// Keys that begin with `x-`, with their encoded values.
    pub(crate) private: Vec<(String, Bytes)>,
    pub(crate) payload: Payload,
}

impl CallSpec {
    pub(crate) fn is_task(&self) -> bool {
        self.mode == Some(CallMode::Task)
    }

    /// Whether it watches something at the hub: asked again it begins anew, with the state as it is then.
    pub(crate) fn is_watch(&self) -> bool {
        self.capability.starts_with("hub.") && self.capability.ends_with(".watch")
    }

    /// Whether several targets answer, each with its own RESULT.
    pub(crate) fn is_fan_out(&self) -> bool {
        self.agents.len() > 1 || !matches!(self.select, None | Some(Select::One))
    }
}

/// Phase one: a provider has the call. Says nothing about success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Acceptance {
    /// The business intent.
    pub request_id: String,
    /// Hub-wide id, for `hub.traces.get`.
    pub call_id: Option<String>,
    /// Who accepted.
    pub target: Option<String>,
    /// Which try, from 1.
    pub attempt: Option<u64>,
    /// Calls that wait in the provider before this one.
    pub queue_depth: Option<u64>,
    /// The provider expects to miss `preferred_timeout`.
    pub would_timeout: bool,
    /// Then: how long the caller would have to wait, from now.
    pub wait: Option<Duration>,
    /// Of a task.
    pub task_id: Option<String>,
}

/// How a call ended, and how it got there.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Reply<T> {
    /// The result.
    pub body: T,
    /// Who did it.
    pub target: Option<String>,
    /// Hub-wide id, for `hub.traces.get`.
    pub call_id: Option<String>,
    /// The business intent.
    pub request_id: String,
    /// Every try in order, the good one too.
    pub attempts: Vec<Attempt>,
    /// Why it went where it went, in one line.
    pub route: Option<String>,
    /// How long the handler ran.
    pub execution: Option<Duration>,
    /// The result is an earlier call's with the same body.
    pub cached: bool,
    /// The `request_id` had ended before: this is its stored end.
    pub duplicate: bool,
    /// Of a task.
    pub task_id: Option<String>,
}

impl<T> Reply<T> {
    pub(crate) fn with_body<U>(self, body: U) -> (T, Reply<U>) {
        let Self {
            body: old,
            target,
            call_id,
            request_id,
            attempts,
            route,
            execution,
            cached,
            duplicate,
            task_id,
        } = self;
        let reply = Reply {
            body,
            target,
            call_id,
            request_id,
            attempts,
            route,
            execution,
            cached,
            duplicate,
            task_id,
        };
        (old, reply)
    }
}

/// What a caller learns of its call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallEvent {
    Accepted(Acceptance),
    Chunk {
        seq: u64,
        target: Option<String>,
        payload: Payload,
    },
    /// One target's end in a fan-out.
    Part {
        target: Option<String>,
        result: Result<Reply<Payload>, CallError>,
    },
    /// The end; of a fan-out with its summary.
    Ended(Result<(Reply<Payload>, Option<Summary>), CallError>),
}

/// How a task ended, wherever it is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskEnd {
    pub(crate) task_id: String,
    pub(crate) result: Result<Reply<Payload>, CallError>,
}

impl TaskEnd {
    /// What it takes in memory, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let body = match &self.result {
            Ok(reply) => reply.body.body.len(),
            Err(error) => error.message.len() + error.details.as_ref().map_or(0, Bytes::len),
        };
        body + 512
    }
}

/// A CALL for a handler of this agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Invocation {
    pub(crate) run: RunKey,
    pub(crate) request_id: String,
    pub(crate) call_id: String,
    pub(crate) capability: String,
    pub(crate) caller: String,
    pub(crate) attempt: u64,
    /// What was left when it came.
    pub(crate) deadline: Duration,
    pub(crate) preferred_timeout: Option<Duration>,
    pub(crate) stream: bool,
    /// Chunks that may be emitted at once.
    pub(crate) credit: u64,
    pub(crate) mode: CallMode,
    pub(crate) priority: Priority,
    pub(crate) labels: Pairs,
    pub(crate) traceparent: Option<String>,
    pub(crate) tracestate: Option<String>,
    pub(crate) task_id: Option<String>,
    /// Keys that begin with `x-`, with their encoded values.
    pub(crate) private: Vec<(String, Bytes)>,
    pub(crate) payload: Payload,
}

/// How a handler ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Completed(Payload),
    Failed(Failure),
}

/// A RESULT that is no result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) details: Option<Bytes>,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: code.retryable(), details: None }
    }
}

/// What the agent reports of its load. It weighs in routing; what the hub counts itself decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Calls that wait in the agent. The ones that run are counted by the SDK, and so are those that wait for
    /// [`crate::Capability::max_concurrency`] when this is `None`.
    pub queued: Option<u64>,
    /// Share of the processor, 0 to 1.
    pub cpu: Option<f64>,
    /// Share of the memory, 0 to 1.
    pub memory: Option<f64>,
    /// 0 to 100; below 60 the agent is out of routing.
    pub health: Option<u64>,
    /// Fill of single capabilities, 0 to 1.
    pub levels: Vec<(String, f64)>,
}

/// Everything that can happen to a session.
#[derive(Debug)]
pub(crate) enum Input {
    /// Begin: the first dial.
    Start,
    /// The socket is open and upgraded.
    Opened,
    /// Dialling failed.
    DialFailed(ConnectError),
    /// One WebSocket message.
    Message(Bytes),
    /// A text message, which this subprotocol does not have.
    Text,
    /// A ping or a pong.
    Alive,
    /// The socket is gone; with the close code, if one came.
    Lost(Option<u16>, String),
    /// Something was handed to the socket.
    Wrote,
    /// What callers and handlers do.
    Work(Work),
    /// New load figures.
    SetLoad(Load),
    /// New readiness.
    SetStatus(AgentStatus),
    /// One capability more, or another in its place.
    Add(Capability),
    /// One capability less.
    Remove(String),
    /// Drain and end, at the latest after this time.
    Close(Duration),
    /// The time of [`super::Session::next_timeout`] has come.
    Timeout,
}

/// What callers and handlers do.
#[derive(Debug)]
pub(crate) enum Work {
    /// A caller asks.
    Open(CallKey, Arc<CallSpec>),
    /// A caller no longer wants it.
    Cancel(CallKey),
    /// A caller no longer wants it, and waits for what becomes of it.
    Withdraw(CallKey),
    /// A caller lets go of a task, which goes on.
    Forget(CallKey),
    /// A handle waits for the result of the task of this id.
    Claim(CallKey, String),
    /// A caller took so many chunks; in a fan-out of this target.
    Consumed(CallKey, u64, Option<String>),
    /// A task's result is in the program's hands.
    Received(String),
    /// A handle got its task's result from the inbox.
    Moved(CallKey, String),
    /// A handle that had a task's result is gone, and nobody saw the result in it.
    Returned(Box<TaskEnd>),
    /// A handler sends a chunk.
    Emit(RunKey, Payload),
    /// A handler says how long it expects to take.
    WouldTake(RunKey, Duration),
    /// A handler ended.
    Finished(RunKey, Outcome),
    /// What a run waits for is in the dedupe file.
    Noted(RunKey),
}

impl From<Work> for Input {
    fn from(work: Work) -> Self {
        Self::Work(work)
    }
}

/// What the session wants done.
#[derive(Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "lives in a short list; a box for each event would cost more")]
pub(crate) enum Effect {
    /// Open a socket.
    Dial,
    /// Send a WebSocket ping.
    Ping,
    /// Write what is queued, close with this code, and let the socket go.
    Close(u16),
    /// Let the socket go at once: nobody is at the other end.
    Abort,
    /// Registered: HELLO was answered. With the largest message.
    Ready(usize),
    /// The hub goes: what is open may end, new calls wait for the next session.
    Leaving,
    /// Tell a caller.
    Tell(CallKey, CallEvent),
    /// A task's result for these handles. What none of them takes comes back as [`Work::Returned`].
    Deliver(Vec<CallKey>, Box<TaskEnd>),
    /// A task's result that no handle here waits for: for the inbox.
    Arrived(Box<TaskEnd>),
    /// Give this handle the result of its task from the inbox.
    Hand(CallKey, String),
    /// Run a handler.
    Run(Box<Invocation>),
    /// Write this into the dedupe file.
    Note(Box<Note>),
    /// Let a handler emit so many chunks more.
    Grant(RunKey, u64),
    /// Tell a handler that nobody wants its result.
    CancelRun(RunKey),
    /// Drop a handler's future.
    AbortRun(RunKey),
    /// The end.
    Stopped(CloseReason),
}

/// Sets a key, which a header has once: a repeated one would cost the connection.
pub(crate) fn put<V>(pairs: &mut Vec<(String, V)>, key: String, value: V) {
    pairs.retain(|(own, _)| *own != key);
    pairs.push((key, value));
}

pub(crate) fn owned(pairs: &[(&str, &str)]) -> Pairs {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(crate) fn borrowed(pairs: &Pairs) -> agent_reach_protocol::Labels<'_> {
    agent_reach_protocol::Labels(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect())
}

pub(crate) fn raw(bytes: Option<&Bytes>) -> Option<Raw<'_>> {
    bytes.map(|b| Raw(b))
}

pub(crate) const fn status_ok(status: ResultStatus) -> bool {
    matches!(status, ResultStatus::Completed)
}
