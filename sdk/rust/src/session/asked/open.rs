//! One call that this agent asked for: what it says, and what came of it so far.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{Call, CallResult, Private, codec::Raw, encode};
use bytes::Bytes;

use crate::errors::{Accepted, CallError, Code};
use crate::session::answers::failure;
use crate::session::time::{Now, millis};
use crate::session::types::{CallSpec, borrowed, raw};

/// A call without a budget of its own waits so long for a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// First and longest wait before a call whose provider may be on its way back is asked again; doubled each time.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MOST: Duration = Duration::from_secs(1);
/// A task may wait longer, as it may in the hub.
const TASK_PATIENCE: Duration = Duration::from_secs(86_400);
/// Outcomes of ids that the SDK made need to outlive a reconnect only.
const KEEP_MADE: Duration = Duration::from_secs(600);

/// One call, until its end.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) spec: Arc<CallSpec>,
    pub(super) request_id: String,
    /// On the present connection.
    pub(super) id: Option<u64>,
    /// It left at least once.
    pub(super) sent: bool,
    /// It may have left on an earlier connection: another provider, or another life of the hub, may have had it.
    pub(super) resent: bool,
    pub(super) accepted: bool,
    /// When it ends here, if it is not on the wire.
    pub(super) deadline: Now,
    /// Nobody wants its result any more; how it ends is still to be told.
    pub(super) withdrawn: bool,
    /// It was open when the present session began: providers may still be on their way back.
    pub(super) patient: bool,
    /// How often the hub was asked again because nobody was back yet.
    pub(super) asked_again: u32,
    /// How often in a row its connection was ended as a slow consumer's.
    pub(super) cuts: u32,
    /// When it goes out again, if it waits for providers to come back.
    pub(super) again_at: Option<Now>,
    pub(super) flow: Flow,
    pub(super) call_id: Option<String>,
    pub(super) target: Option<String>,
}

/// What came of a call's pieces and parts.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// The next chunk's number.
    next_seq: u64,
    /// Chunks allowed since seq 0.
    granted: u64,
    /// In a fan-out: the number of each target's next chunk.
    by_target: BTreeMap<String, u64>,
    /// In a fan-out: targets whose end was told.
    ended: BTreeSet<String>,
}

/// What a chunk is worth.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The one that was due.
    Due,
    /// Told already, or nobody waits for it.
    Stale,
    /// One before it is missing; this was due.
    Gap(u64),
}

impl Flow {
    /// Nothing came yet.
    pub(super) fn new(spec: &CallSpec) -> Self {
        Self { granted: spec.window.unwrap_or(0), ..Self::default() }
    }

    pub(super) fn arrives(&mut self, target: Option<&str>, seq: u64) -> Arrival {
        let next = match target {
            None => &mut self.next_seq,
            Some(target) if self.ended.contains(target) => return Arrival::Stale,
            Some(target) => {
                if !self.by_target.contains_key(target) {
                    self.by_target.insert(target.to_owned(), 0);
                }
                self.by_target.entry(target.to_owned()).or_default()
            }
        };
        match seq.cmp(next) {
            Ordering::Less => Arrival::Stale,
            Ordering::Greater => Arrival::Gap(*next),
            Ordering::Equal => {
                *next += 1;
                Arrival::Due
            }
        }
    }

    /// One target's end. `false` when it was told before: a hub that is asked again says it again.
    pub(super) fn end(&mut self, target: &str) -> bool {
        self.ended.insert(target.to_owned())
    }

    pub(super) const fn grant(&mut self, n: u64) {
        self.granted = self.granted.saturating_add(n);
    }
}

impl Open {
    pub(super) fn new(now: Now, spec: Arc<CallSpec>, request_id: String) -> Self {
        let mut open = Self {
            request_id,
            id: None,
            sent: false,
            resent: false,
            patient: false,
            withdrawn: false,
            accepted: false,
            deadline: now,
            asked_again: 0,
            cuts: 0,
            again_at: None,
            flow: Flow::new(&spec),
            call_id: None,
            target: None,
            spec,
        };
        open.deadline = now.after(open.spec.budget.unwrap_or_else(|| open.patience()));
        open
    }

    pub(super) fn error(&self, code: Code, message: &str) -> CallError {
        let mut error = CallError::new(code, message);
        error.request_id.clone_from(&self.request_id);
        error.call_id.clone_from(&self.call_id);
        error.target.clone_from(&self.target);
        error.accepted = match (self.accepted, self.sent) {
            (true, _) => Accepted::Yes,
            (false, true) => Accepted::Unknown,
            (false, false) => Accepted::No,
        };
        error
    }

    /// What the hub's RESULT says of a failure.
    pub(super) fn failure(&self, header: &CallResult<'_>) -> CallError {
        let seen = if self.accepted { Accepted::Yes } else { Accepted::Unknown };
        let mut error = failure(header, &self.request_id, seen);
        if self.resent && error.accepted == Accepted::No {
            // Nobody has it now; whoever had it before the reconnect may have run it.
            error.accepted = Accepted::Unknown;
        }
        error
    }

    /// How long to wait before the hub is asked again.
    pub(super) fn wait_again(&self) -> Duration {
        AGAIN.saturating_mul(1 << self.asked_again.min(5)).min(AGAIN_MOST)
    }

    pub(super) fn patience(&self) -> Duration {
        if self.spec.is_task() { TASK_PATIENCE } else { PATIENCE }
    }

    /// The window to ask for: what the caller has room for now. All of it in a fan-out, whose targets stand at
    /// different places; that can be one window too much for each, never more.
    fn window(&self, whole: u64) -> u64 {
        if self.spec.is_fan_out() { whole } else { self.flow.granted.saturating_sub(self.flow.next_seq) }
    }

    fn header(&self, id: u64, budget: Option<u64>) -> Call<'_> {
        let spec = &*self.spec;
        let ms = |d: Option<Duration>| d.map(millis);
        let made = spec.request_id.is_none() && spec.keep.is_none();
        Call {
            id,
            request_id: Some(&self.request_id),
            keep_ms: if made { Some(millis(KEEP_MADE)) } else { ms(spec.keep) },
            capability: &spec.capability,
            version: spec.version.as_deref(),
            agents: (!spec.agents.is_empty()).then(|| spec.agents.iter().map(String::as_str).collect()),
            select: spec.select,
            policy: spec.policy,
            labels: borrowed(&spec.labels),
            require: borrowed(&spec.require),
            mode: spec.mode,
            stream: spec.window.is_some(),
            credit: spec.window.map(|window| self.window(window)),
            accept_timeout_ms: ms(spec.accept_timeout),
            timeout_ms: ms(spec.timeout),
            budget_ms: budget,
            preferred_timeout_ms: ms(spec.preferred_timeout),
            priority: spec.priority,
            retries: spec.retries,
            allow_fallback: spec.allow_fallback,
            allow_cached_ms: ms(spec.allow_cached),
            queue: spec.queue,
            wait_ms: ms(spec.wait),
            affinity_key: spec.affinity_key.as_deref(),
            expected_output: raw(spec.expected_output.as_ref()),
            traceparent: spec.traceparent.as_deref(),
            tracestate: spec.tracestate.as_deref(),
            callback_url: spec.callback_url.as_deref(),
            reply_to: spec.reply_to.as_deref(),
            content_type: spec.payload.content_type.as_deref(),
            private: Private(spec.private.iter().map(|(key, value)| (key.as_str(), Raw(value))).collect()),
        }
    }

    pub(super) fn encode(&self, id: u64, budget: Option<u64>) -> Bytes {
        // No bytes are no body: nothing, which a schema can allow, and no MessagePack that breaks off.
        let body = &self.spec.payload.body;
        encode(&self.header(id, budget), (!body.is_empty()).then_some(body))
    }
}
