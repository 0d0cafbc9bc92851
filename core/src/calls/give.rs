//! A call is given to a provider: for the first time, or again after it came back.

use std::sync::Arc;

use agent_reach_protocol::{
    Call as Asking, Dispatch, ErrorCode, Kind, Labels, Priority, Private, Shared, encode, limits,
};
use bytes::Bytes;

use super::end::Ended;
use super::{Call, Failure, LEG_BYTES, Leg, LegState};
use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::offer::Offer;
use crate::outbound::{Mark, Outgoing};
use crate::routing::Choice;
use crate::session::Lane;
use crate::spans::Traceparent;
use crate::text::CallId;
use crate::time::{Now, Timer};
use crate::traces::Step;

impl Hub {
    /// Makes a leg of the call and sends it.
    pub(crate) fn give(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        carried: &Carried<'_>,
        body: Option<&[u8]>,
        choice: Choice,
        copies: &mut Copies,
    ) {
        let default_ms = self.settings.timeout_ms;
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let Some(agent) = self.registry.agents.get_mut(choice.agent) else { return };
        let Some(offer) = agent.offers.get_mut(choice.offer) else { return };
        if let Some(quota) = offer.quota_mut() {
            quota.take(turn.now);
        }
        let trial = offer.give(turn.now, &self.settings.breaker);
        let credit = if call.stream { call.credit } else { 0 };
        // Each try of a call for one target counts, whoever it is given to.
        let before = if call.fan_out { 0 } else { call.attempts.len() };
        let before = before + call.task.as_ref().map_or(0, |task| task.earlier);
        let leg = Leg {
            call: Some(call_index),
            agent: choice.agent,
            target: Arc::clone(&agent.id),
            capability: Arc::clone(&offer.name),
            idempotent: offer.idempotent,
            id: 0,
            mark: Mark::default(),
            state: LegState::Given,
            attempt: u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1),
            trial,
            load: choice.load,
            given_at: turn.now,
            accepted_at: None,
            timeout_ms: processing_ms(call, offer, default_ms),
            deadline: turn.now,
            timer_at: Now::default(),
            accepts: 0,
            next_seq: 0,
            credit,
            granted: credit,
        };
        agent.in_flight += 1;
        self.open_bytes += LEG_BYTES;
        let index = self.legs.insert(leg);
        call.legs.push(index);
        if call.task.is_some() {
            return self.book(turn, index);
        }
        self.dispatch(turn, index, carried, body, copies);
    }

    /// Keeps the CALL of a caller that nobody has been given yet, as it will be given.
    pub(crate) fn keep_asked(&mut self, call_index: usize, asking: &Asking<'_>, body: Option<&[u8]>) {
        let epoch = self.epoch();
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let carried = Carried::of(asking);
        let call_id = CallId::new(epoch, call.number);
        let none = Given {
            id: 0,
            capability: &call.capability,
            attempt: 1,
            deadline_ms: 0,
            credit: None,
            traceparent: None,
        };
        let dispatch = carried.dispatch(call, &call_id, &none);
        call.given = encode(&dispatch, body);
    }

    /// Sends the leg's CALL under a new id of its provider's connection and starts phase one.
    pub(crate) fn dispatch(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        carried: &Carried<'_>,
        body: Option<&[u8]>,
        copies: &mut Copies,
    ) {
        let epoch = self.epoch();
        let Some(leg) = self.legs.get_mut(index) else { return };
        let Some(call) = leg.call.and_then(|call| self.calls.get_mut(call)) else { return };
        let Some(agent) = self.registry.agents.get_mut(leg.agent) else { return };
        let Some(connection) = agent.session else { return };
        leg.id = agent.next_id;
        agent.next_id += 1;
        agent.given.insert(leg.id, index);
        leg.state = LegState::Given;
        let (target, attempt, load) = (&leg.target, leg.attempt, leg.load);
        let step = call.log.step(turn.now, Step::Given { target, attempt, load });
        let deadline = turn.now.plus_ms(call.accept_timeout_ms).min(call.budget_at);
        if let Some(copy) = copies.for_leg(leg) {
            return self.post(turn, index, connection, deadline, Outgoing::Shared(copy));
        }
        let call_id = CallId::new(epoch, call.number);
        let given = Given {
            id: if copies.wanted { Shared::PLACEHOLDER } else { leg.id },
            capability: &leg.capability,
            attempt: leg.attempt,
            deadline_ms: deadline_ms(turn.now, call, leg),
            credit: call.stream.then_some(leg.granted),
            traceparent: call.span.as_ref().map(|span| span.traceparent(step)),
        };
        let dispatch = carried.dispatch(call, &call_id, &given);
        let message = encode(&dispatch, body);
        if message.len() > self.settings.max_message {
            self.set_leg_deadline(index, deadline);
            let failure = Failure::new(
                ErrorCode::PayloadTooLarge,
                format!(
                    "with the hub's keys the call has {} bytes; {} are allowed",
                    message.len(),
                    self.settings.max_message
                ),
            );
            return self.end_leg(turn, index, &Ended::failed(failure));
        }
        if call.given.is_empty() {
            call.given = message.clone();
        }
        let outgoing = match copies.keep(leg, &message) {
            Some(copy) => Outgoing::Shared(copy),
            None => Outgoing::Message(message),
        };
        self.post(turn, index, connection, deadline, outgoing);
    }

    /// Sends a leg's CALL, and gives its provider until `deadline` for phase one.
    fn post(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        connection: ConnectionId,
        deadline: Now,
        outgoing: Outgoing,
    ) {
        self.set_leg_deadline(index, deadline);
        self.counters.sent(Kind::Call);
        self.counters.bytes_out += outgoing.len() as u64;
        let mark = self.send(turn, connection, Lane::Data, outgoing);
        if let Some(leg) = self.legs.get_mut(index) {
            leg.mark = mark;
        }
    }

    /// Moves a leg's deadline. A timer that is set for earlier stays: when it fires it sees the new deadline.
    pub(crate) fn set_leg_deadline(&mut self, index: usize, deadline: Now) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.deadline = deadline;
        let set = leg.timer_at != Now::default();
        if set && leg.timer_at <= deadline {
            return;
        }
        if set {
            self.timers.clear(leg.timer_at, Timer::Leg(index));
        }
        leg.timer_at = deadline;
        self.timers.set(deadline, Timer::Leg(index));
    }
}

/// The CALL of a fan-out as it was last written: the next target gets a copy when its own would say the same.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    wanted: bool,
    last: Option<(Arc<str>, u64, Shared)>,
}

impl Copies {
    /// For a call to this many targets.
    pub(crate) fn for_targets(count: usize) -> Self {
        Self { wanted: count > 1, last: None }
    }

    /// A copy for a leg of this moment's giving: such legs differ in the provider's name of the capability and in the
    /// processing time.
    fn for_leg(&self, leg: &Leg) -> Option<Shared> {
        let (capability, timeout_ms, shared) = self.last.as_ref()?;
        let same = Arc::ptr_eq(capability, &leg.capability) && *timeout_ms == leg.timeout_ms;
        same.then(|| shared.with_id(leg.id))
    }

    /// Keeps what was written for a leg, under the placeholder's id.
    fn keep(&mut self, leg: &Leg, message: &Bytes) -> Option<Shared> {
        let shared = if self.wanted { Shared::of(message.clone()) } else { None }?;
        let copy = shared.with_id(leg.id);
        self.last = Some((Arc::clone(&leg.capability), leg.timeout_ms, shared));
        Some(copy)
    }
}

/// What a leg's CALL says of its own.
struct Given<'a> {
    id: u64,
    capability: &'a str,
    attempt: u32,
    deadline_ms: u64,
    credit: Option<u64>,
    /// In the place of the caller's, in a call that is traced.
    traceparent: Option<Traceparent>,
}

/// What the hub carries from a caller to its providers and does not look at.
pub(crate) struct Carried<'a> {
    preferred_timeout_ms: Option<u64>,
    labels: &'a Labels<'a>,
    traceparent: Option<&'a str>,
    tracestate: Option<&'a str>,
    content_type: Option<&'a str>,
    private: &'a Private<'a>,
}

impl<'a> Carried<'a> {
    pub(crate) fn of(asking: &'a Asking<'a>) -> Self {
        Self {
            preferred_timeout_ms: asking.preferred_timeout_ms,
            labels: &asking.labels,
            traceparent: asking.traceparent,
            tracestate: asking.tracestate,
            content_type: asking.content_type,
            private: &asking.private,
        }
    }

    /// The CALL as a provider gets it.
    fn dispatch<'b>(&'b self, call: &'b Call, call_id: &'b str, given: &'b Given<'b>) -> Dispatch<'b> {
        let keeps_tracestate = call.span.as_ref().is_none_or(|span| span.keeps_tracestate());
        Dispatch {
            id: given.id,
            request_id: &call.request_id,
            call_id,
            capability: given.capability,
            caller: &call.caller,
            attempt: u64::from(given.attempt),
            deadline_ms: given.deadline_ms,
            preferred_timeout_ms: self.preferred_timeout_ms,
            stream: call.stream,
            credit: given.credit,
            mode: call.mode,
            priority: call.priority,
            labels: self.labels.clone(),
            traceparent: given.traceparent.as_deref().or(self.traceparent),
            tracestate: self.tracestate.filter(|_| keeps_tracestate),
            content_type: self.content_type,
            task_id: call.task.as_ref().map(|task| &*task.text),
            private: self.private.clone(),
        }
    }

    /// As it was carried before.
    pub(crate) fn again(before: &'a Dispatch<'a>) -> Self {
        Self {
            preferred_timeout_ms: before.preferred_timeout_ms,
            labels: &before.labels,
            traceparent: before.traceparent,
            tracestate: before.tracestate,
            content_type: before.content_type,
            private: &before.private,
        }
    }
}

/// Processing time of a call at a provider: the call's own, else the capability's, else the default; scaled by
/// priority; never more than the capability's with 20 % grace.
fn processing_ms(call: &Call, offer: &Offer, default_ms: u64) -> u64 {
    let asked = call.timeout_ms.or(offer.timeout_ms()).unwrap_or(default_ms).min(limits::TIME_MS_MAX);
    let scaled = match call.priority {
        Priority::Low => asked / 2,
        Priority::Normal => asked,
        Priority::High => asked.saturating_mul(2),
    };
    match offer.timeout_ms() {
        Some(own) => scaled.min(own.saturating_add(own / 5)),
        None => scaled,
    }
}

/// What is left for the provider. A chunk restarts the processing time of a stream, so only the budget bounds it.
fn deadline_ms(now: Now, call: &Call, leg: &Leg) -> u64 {
    let budget = call.budget_at.ms_since(now);
    // For a task the processing time is a promise, not a limit.
    if call.stream || call.task.is_some() { budget } else { budget.min(leg.timeout_ms) }
}
