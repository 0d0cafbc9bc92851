//! Spans of calls that are part of a trace: what the steps of a call say, as a tree.
//!
//! The core decides when a CALL comes whether it is traced, and says in each CALL to a provider which span is its
//! parent. Everything else is made of the call's log after it has ended, by whoever exports it.

mod build;
mod context;

use std::sync::Arc;

use agent_reach_protocol::{Call as Asking, CallMode, ErrorCode};

pub(crate) use context::{Sampler, SpanContext, Traceparent};
pub use context::{Sampling, SpanId};

use crate::calls::Call;
use crate::effects::{Fact, Outcome};
use crate::hub::{Hub, Turn};
use crate::store::TaskId;
use crate::time::Now;
use crate::trace_id::TraceId;
use crate::traces::Log;

/// Most spans that one step of a call makes: a delivery, its acceptance and its processing.
const SPANS_PER_STEP: usize = 3;

/// A call that has ended, as part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    /// Hub-wide name of the call.
    pub call_id: Box<str>,
    /// Of a task, its name.
    pub task: Option<TaskId>,
    /// One intent of the caller.
    pub request_id: Arc<str>,
    /// The caller's agent_id.
    pub caller: Arc<str>,
    /// As asked for.
    pub capability: Arc<str>,
    /// Some agent has offered it: a name made up by a caller has no end of variants.
    pub known: bool,
    /// What the caller waited for.
    pub mode: CallMode,
    /// How it ended.
    pub outcome: Outcome,
    /// When it came; of a task from before a restart of the hub, when the hub took it up again.
    pub started: Now,
    /// When it ended.
    pub ended: Now,
    directed: bool,
    context: SpanContext,
    log: Log,
}

/// One hop of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Its name.
    pub id: SpanId,
    /// The span that it is a part of; of [`Hop::Receive`] the caller's, and `None` where the trace begins here.
    pub parent: Option<SpanId>,
    /// Which.
    pub hop: Hop<'a>,
    /// From when.
    pub start: Now,
    /// Until when. A choice takes no time: the hub's clock stands still while it handles a message.
    pub end: Now,
    /// How it ended, where that can be told of it.
    pub outcome: Option<Outcome>,
    /// What happened within it.
    pub events: Vec<SpanEvent<'a>>,
}

/// What a span is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop<'a> {
    /// All of the call in the hub, from CALL to RESULT.
    Receive,
    /// A choice among the agents that offer the capability.
    Route {
        /// How it was chosen.
        policy: &'static str,
        /// Agents that offer it.
        offering: u32,
        /// Of those, able to take it.
        able: u32,
        /// The others, by reason.
        excluded: Vec<(&'static str, u32)>,
        /// Who was chosen; the first of many.
        chosen: Vec<&'a str>,
        /// All of it in one line.
        reason: String,
    },
    /// It waited for who can take it.
    Queue {
        /// So many were before it.
        before: u32,
    },
    /// It was with one agent. The parent of what that agent does.
    Deliver {
        /// Whom.
        target: &'a str,
        /// From 1.
        attempt: u32,
        /// Slots taken, and slots there are, before it.
        load: (u32, u32),
    },
    /// Phase one: from its CALL until the agent accepted, or did not.
    Accept,
    /// Phase two: from there until the agent answered.
    Process,
    /// From the last answer until the caller has its RESULT, or the store its end.
    Result,
}

/// What happened within a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanEvent<'a> {
    /// When.
    pub at: Now,
    /// What: a word of `hub.traces.get`.
    pub name: &'static str,
    /// About whom.
    pub target: Option<&'a str>,
    /// Why, or how long.
    pub reason: Option<String>,
}

impl CallTrace {
    /// The trace that the call is a part of.
    pub const fn trace_id(&self) -> TraceId {
        self.context.trace_id
    }

    /// `trace-flags` of W3C Trace Context.
    pub const fn flags(&self) -> u8 {
        self.context.flags
    }

    /// The caller's `tracestate`, if it is short.
    pub fn tracestate(&self) -> Option<&str> {
        self.context.tracestate.as_deref()
    }

    /// The call's spans, the whole call first. The same each time.
    pub fn spans(&self) -> Vec<Span<'_>> {
        build::spans(self)
    }

    /// About what it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = [&*self.call_id, &*self.request_id, &*self.caller, &*self.capability];
        let texts = texts.iter().map(|text| text.len()).sum::<usize>();
        size_of::<Self>() + texts + self.tracestate().map_or(0, str::len) + self.log.bytes()
    }
}

impl Hub {
    /// The span of a CALL that is traced.
    pub(crate) fn sample(&mut self, asking: &Asking<'_>) -> Option<Box<SpanContext>> {
        self.sampler.as_mut()?.sample(asking.traceparent, asking.tracestate)
    }

    /// Tells of a call that has ended.
    pub(crate) fn trace_end(&self, turn: &mut Turn<'_>, context: SpanContext, call: &Call, outcome: Outcome) {
        turn.fx.facts.push(Fact::CallTraced(Arc::new(CallTrace {
            call_id: (&*self.call_id(call.number)).into(),
            task: call.task.as_deref().map(|task| task.id),
            request_id: Arc::clone(&call.request_id),
            caller: Arc::clone(&call.caller),
            capability: Arc::clone(&call.capability),
            known: self.registry.names.get(&call.capability).is_some(),
            mode: call.mode,
            outcome,
            started: call.started,
            ended: turn.now,
            directed: call.directed,
            context,
            log: call.log.clone(),
        })));
    }

    /// Tells of a CALL that was refused right now.
    pub(crate) fn trace_refusal(
        &mut self,
        turn: &mut Turn<'_>,
        asking: &Asking<'_>,
        mode: CallMode,
        code: ErrorCode,
    ) {
        let Some(context) = self.sample(asking) else { return };
        // What was kept of it for `hub.traces.get` has all that there is to say.
        let Some(kept) = self.traces.latest().filter(|kept| kept.number + 1 == self.next_call) else {
            return;
        };
        turn.fx.facts.push(Fact::CallTraced(Arc::new(CallTrace {
            call_id: (&*self.call_id(kept.number)).into(),
            task: None,
            request_id: (&*kept.request_id).into(),
            caller: Arc::clone(&kept.caller),
            capability: Arc::clone(&kept.capability),
            known: self.registry.names.get(&kept.capability).is_some(),
            mode,
            outcome: Outcome::Failed(code),
            started: kept.started,
            ended: turn.now,
            directed: asking.agents.is_some(),
            context: *context,
            log: kept.log.clone(),
        })));
    }
}
