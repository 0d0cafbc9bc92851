//! Open calls: their two phases, deadlines, and the one end each of them has.
//!
//! A call is what a caller asked for. A leg is one target's part of it: a CALL that the hub gave to a provider.
//! A leg outlives its call when the provider was cancelled and has not answered: its slot stays taken, so that
//! an agent never gets more than it has room for.

mod again;
mod answer;
mod ask;
mod asking;
mod away;
mod cancel;
mod deadline;
mod demand;
mod end;
mod give;
mod legs;
mod stored;
mod wait;

pub(crate) use ask::{Asker, LISTENERS_MAX, accept_timeout_ms, budget_ms};
pub(crate) use asking::is_fan_out;
pub use away::without_body;
pub(crate) use end::Ended;
pub(crate) use give::{Carried, Copies};

use std::borrow::Cow;
use std::sync::Arc;

use agent_reach_protocol::{CallMode, ErrorCode, Policy, Priority, Summary};
use bytes::Bytes;
use smallvec::SmallVec;

use crate::effects::Outcome;
use crate::hub::{clip, text_map};
use crate::idempotency::Ends;
use crate::outbound::Mark;
use crate::routing::Note;
use crate::spans::SpanContext;
use crate::store::Holder;
use crate::tasks::Task;
use crate::time::Now;
use crate::trace_id::TraceId;
use crate::traces::Log;
use crate::waiting::Place;
use again::Tiers;
use demand::Demand;
use legs::Legs;

/// Who waits for a call's end: an agent, by its own id for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) agent: usize,
    pub(crate) id: u64,
}

/// One open call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Hub-wide number: the call id without its epoch.
    pub(crate) number: u64,
    /// Who waits, the newest last: it gets everything, the others the end.
    pub(crate) listeners: SmallVec<[Listener; 1]>,
    /// The agent that went away while nobody else listened.
    pub(crate) detached_from: Option<usize>,
    pub(crate) caller: Arc<str>,
    /// The agent whose share it counts in, and its serial: its place may be another's before the call ends.
    pub(crate) owner: (usize, u64),
    pub(crate) request_id: Arc<str>,
    /// The caller's own trace, where records are wanted.
    pub(crate) trace: Option<TraceId>,
    /// Its entry in the memory of request ids, and for how long the end is kept, in milliseconds.
    pub(crate) entry: u32,
    pub(crate) keep_ms: u64,
    /// As asked for, folded.
    pub(crate) capability: Arc<str>,
    pub(crate) mode: CallMode,
    /// What a task has beside what every call has.
    pub(crate) task: Option<Box<Task>>,
    pub(crate) stream: bool,
    pub(crate) fan_out: bool,
    pub(crate) directed: bool,
    pub(crate) priority: Priority,
    pub(crate) policy: Policy,
    pub(crate) started: Now,
    pub(crate) accepted_at: Option<Now>,
    pub(crate) budget_at: Now,
    pub(crate) accept_timeout_ms: u64,
    pub(crate) timeout_ms: Option<u64>,
    /// Size of the CALL as it came.
    pub(crate) message_bytes: usize,
    /// The CALL as the hub sent it first: what has to be given again is read from it. Nothing of what the caller
    /// sent is held, which may be a small piece of a large buffer.
    pub(crate) given: Bytes,
    pub(crate) legs: Legs,
    /// Where it stands while it has no leg.
    pub(crate) stage: Stage,
    /// What it asks beside its capability, for another try.
    pub(crate) demand: Option<Box<Demand>>,
    /// First window of a stream.
    pub(crate) credit: u64,
    /// Whether it waits while all who could take it are busy.
    pub(crate) queue: bool,
    /// Until when it waits for somebody to come at all.
    pub(crate) wait_until: Now,
    /// When its own timer fires; 0 where there is none.
    pub(crate) timer_at: Now,
    /// What may still be done about a failure.
    pub(crate) tiers: Tiers,
    /// Targets whose part has not ended.
    pub(crate) open: u64,
    pub(crate) attempts: SmallVec<[Tried; 1]>,
    pub(crate) summary: Summary,
    pub(crate) note: Note,
    pub(crate) log: Log,
    /// Its span, while it is part of a trace.
    pub(crate) span: Option<Box<SpanContext>>,
    /// Ends of single targets of a fan-out, for who joins or repeats; `None` once they had no room.
    pub(crate) ends: Option<Ends>,
    /// What they count among the bytes of open calls.
    pub(crate) ends_bytes: usize,
    /// One part at least ended in a way that another try would not mend.
    pub(crate) is_final: bool,
    /// CANCEL came with `wait`: the end waits for the providers.
    pub(crate) cancelling: bool,
}

/// What a call takes beside its message, and a leg, at the most: counted into what is open.
pub(crate) const CALL_BYTES: usize = 2048;
/// See [`CALL_BYTES`].
pub(crate) const LEG_BYTES: usize = 512;

impl Call {
    /// What the call counts among all that is open.
    pub(crate) fn cost(&self) -> usize {
        self.message_bytes + CALL_BYTES
    }

    /// Whether the memory of its request id has how it ended: not, if another try may mend that.
    pub(crate) fn is_kept(&self, ended: &Ended<'_>) -> bool {
        let retryable = ended.failure.as_ref().is_some_and(|failure| failure.retryable);
        // A fan-out without parts ends by what it is given; one with parts is as final as any of them.
        self.keep_ms > 0 && !retryable && (self.is_final || self.summary.targets == 0)
    }
}

/// Where a call stands.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Given to its targets.
    Given,
    /// Nobody can take it now; narrowed to one agent for a further try.
    Waiting { place: Place, agent: Option<Arc<str>> },
    /// The next try on the same agent comes later.
    Backoff { agent: Arc<str> },
    /// A task that found no room to wait in tries again later.
    Later,
    /// A task that an agent had when an earlier life of the hub ended: it may come back with it.
    Returning { holder: Box<Holder> },
}

/// Phase of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LegState {
    /// Its slot is taken; the CALL leaves when the store has written who has the task, with the change of this number.
    Booked(u64),
    /// Given, not accepted.
    Given,
    /// Accepted, or answered in part.
    Accepted,
    /// Cancelled at the provider; nobody waits for its answer.
    Stranded,
}

/// One target's part of a call.
#[derive(Debug)]
pub(crate) struct Leg {
    /// `None` once the call has ended without this leg's answer.
    pub(crate) call: Option<usize>,
    pub(crate) agent: usize,
    pub(crate) target: Arc<str>,
    /// The provider's own name of the capability.
    pub(crate) capability: Arc<str>,
    pub(crate) idempotent: bool,
    /// The hub's id on the provider's connection.
    pub(crate) id: u64,
    /// Where its CALL is in the provider's queue.
    pub(crate) mark: Mark,
    pub(crate) state: LegState,
    pub(crate) attempt: u32,
    /// It is the trial of a breaker.
    pub(crate) trial: bool,
    pub(crate) load: (u32, u32),
    pub(crate) given_at: Now,
    pub(crate) accepted_at: Option<Now>,
    /// Processing time, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// When phase one, processing, or the stranded slot ends.
    pub(crate) deadline: Now,
    /// When the timer that is set fires; not later than the deadline, and found out when it fires.
    pub(crate) timer_at: Now,
    /// ACCEPTs that were forwarded.
    pub(crate) accepts: u8,
    pub(crate) next_seq: u64,
    /// Chunks that may still come, and all that were ever granted.
    pub(crate) credit: u64,
    pub(crate) granted: u64,
}

/// One try, for `attempts`.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub(crate) target: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) ms: u64,
    pub(crate) reason: Cow<'static, str>,
}

/// A failure, as RESULT says it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: Box<str>,
    pub(crate) retryable: bool,
    /// MessagePack.
    pub(crate) details: Option<Box<[u8]>>,
}

impl Failure {
    /// A failure whose code alone says whether it is retryable.
    pub(crate) fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        Self { code, message: clip(message.as_ref()).into(), retryable: code.retryable(), details: None }
    }

    pub(crate) fn with_details(mut self, details: Vec<u8>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// `overloaded` with when to come again.
    pub(crate) fn overloaded(message: &str) -> Self {
        let mut out = agent_reach_protocol::codec::Writer::default();
        out.map(1);
        out.str("retry_after_ms");
        out.uint(RETRY_AFTER_MS);
        Self::new(ErrorCode::Overloaded, message).with_details(out.into_bytes())
    }
}

/// When a refused caller may try again, in milliseconds.
const RETRY_AFTER_MS: u64 = 100;

/// A CALL that is refused before it becomes a call.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) failure: Failure,
    pub(crate) note: Option<Note>,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl AsRef<str>) -> Self {
        Self { failure: Failure::new(code, message), note: None }
    }

    /// `invalid_request` that names the key.
    pub(crate) fn invalid(field: &str, message: &str) -> Self {
        let failure =
            Failure::new(ErrorCode::InvalidRequest, message).with_details(text_map(&[("field", field)]));
        Self { failure, note: None }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { failure, note: None }
    }
}
