//! How legs and calls end: exactly once.

use std::sync::Arc;

use agent_reach_protocol::codec::Raw;
use agent_reach_protocol::{
    Attempt, CallError, CallMode, CallResult, ErrorCode, Kind, Private, ResultStatus, ToAgent,
    decode_to_agent, encode,
};
use bytes::Bytes;

use super::{Call, Failure, LEG_BYTES, Leg, Listener, Refusal, Tried};
use crate::effects::{CallRecord, Fact, Outcome};
use crate::hub::{Hub, Turn};
use crate::idempotency::Kept;
use crate::session::Lane;
use crate::time::{Now, Timer};
use crate::traces::{Log, Step, Trace};

/// How one target's part ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended<'a> {
    pub(crate) failure: Option<Failure>,
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) private: Private<'a>,
    pub(crate) execution_ms: Option<u64>,
    /// It is an older result.
    pub(crate) cached: bool,
}

impl Ended<'_> {
    /// Well, with nothing to say.
    pub(crate) fn done() -> Self {
        Self::default()
    }

    pub(crate) fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.failure.as_ref().map_or(Outcome::Completed, |failure| Outcome::Failed(failure.code))
    }
}

/// What a leg knows of its try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Try {
    given_at: Now,
    pub(crate) accepted_at: Option<Now>,
    ended_at: Now,
    attempt: u32,
    load: (u32, u32),
    pub(crate) idempotent: bool,
    /// Pieces of its result went to the caller.
    pub(crate) streamed: bool,
}

impl Leg {
    pub(crate) const fn tried(&self, now: Now) -> Try {
        Try {
            given_at: self.given_at,
            accepted_at: self.accepted_at,
            ended_at: now,
            attempt: self.attempt,
            load: self.load,
            idempotent: self.idempotent,
            streamed: self.next_seq > 0,
        }
    }
}

impl Hub {
    /// Ends a leg with its provider's answer, or because the provider is lost.
    pub(crate) fn end_leg(&mut self, turn: &mut Turn<'_>, index: usize, ended: &Ended<'_>) {
        let Some(leg) = self.legs.get(index) else { return };
        let tried = leg.tried(turn.now);
        if let Some(agent) = self.registry.agents.get_mut(leg.agent) {
            // From the CALL: quick work lets RESULT stand for ACCEPT.
            let latency_us = tried.ended_at.micros_since(tried.given_at);
            agent.figures.record(ended.failure.is_none(), latency_us);
        }
        self.tell_breaker(turn, index, ended.failure.as_ref());
        let Some(leg) = self.take_leg(turn, index) else { return };
        if let Some(call_index) = leg.call {
            if let Some(call) = self.calls.get_mut(call_index) {
                call.legs.remove(index);
            }
            self.conclude(turn, call_index, Some(&leg.target), Some(tried), ended);
        }
    }

    /// Removes a leg and gives its slot back.
    pub(crate) fn free_leg(&mut self, turn: &mut Turn<'_>, index: usize) {
        self.take_leg(turn, index);
    }

    fn take_leg(&mut self, turn: &mut Turn<'_>, index: usize) -> Option<Leg> {
        if self.legs.get(index).is_some_and(|leg| leg.trial) {
            // Nobody said how it went.
            self.give_trial_back(turn.now, index);
        }
        let leg = self.legs.try_remove(index)?;
        self.may_take_more(leg.agent);
        self.timers.clear(leg.timer_at, Timer::Leg(index));
        self.open_bytes = self.open_bytes.saturating_sub(LEG_BYTES);
        if let Some(agent) = self.registry.agents.get_mut(leg.agent) {
            agent.in_flight = agent.in_flight.saturating_sub(1);
            if agent.given.get(leg.id) == Some(index) {
                agent.given.remove(leg.id);
            } else {
                agent.orphaned.retain(|other| *other != index);
            }
            if let Some(id) = agent.session {
                self.close_if_idle(turn, id);
            }
        }
        Some(leg)
    }

    /// One target's part of a call has ended. Ends the call with it, or says it and waits for the others.
    pub(crate) fn conclude(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        target: Option<&Arc<str>>,
        tried: Option<Try>,
        ended: &Ended<'_>,
    ) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.open = call.open.saturating_sub(1);
        let outcome = ended.outcome();
        match outcome {
            Outcome::Completed => call.summary.completed += 1,
            Outcome::Failed(_) => call.summary.failed += 1,
        }
        if let Some(target) = target {
            call.log.step(turn.now, Step::Answered { target, outcome });
            call.attempts.push(tried_entry(call, target, tried, ended));
        }
        call.is_final |= ended.failure.as_ref().is_none_or(|failure| !failure.retryable);
        if !call.fan_out {
            if let (Some(target), Some(tried), Some(failure)) = (target, &tried, &ended.failure)
                && self.go_on(turn, call_index, target, failure, tried)
            {
                return;
            }
            return match &ended.failure {
                Some(failure) if self.may_settle(call_index) => {
                    self.settle(turn, call_index, failure.clone())
                }
                _ => self.finish(turn, call_index, target, tried, ended),
            };
        }
        let last = call.open == 0;
        let (message, _) = self.encode_end(call_index, target, tried, ended, End::Part);
        self.keep_part(call_index, &message);
        self.give_end(turn, call_index, message);
        if last {
            self.finish(turn, call_index, None, None, &Ended::done());
        }
    }

    /// Ends the call: the one end for each who waits, the memory of its request id, its trace and its fact.
    pub(crate) fn finish(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        target: Option<&Arc<str>>,
        tried: Option<Try>,
        ended: &Ended<'_>,
    ) {
        let fan_out = self.calls.get(call_index).is_some_and(|call| call.fan_out);
        let end = if fan_out { End::Summary } else { End::Whole };
        let (message, whole) = self.encode_end(call_index, target, tried, ended, end);
        let is_task = self.calls.get(call_index).is_some_and(|call| call.task.is_some());
        let task_end = match is_task {
            true => Some(message),
            false => {
                self.keep_last(call_index, &message, ended);
                self.give_end(turn, call_index, message);
                None
            }
        };
        self.stop_waiting(call_index);
        self.clear_call_timer(call_index);
        let Some(mut call) = self.calls.try_remove(call_index) else { return };
        let outcome = ended.outcome();
        call.log.step(turn.now, Step::Ended(outcome));
        if let Some(end) = task_end {
            // What is written says what the RESULT says.
            let too_large = Ended::failed(too_large());
            self.end_task(turn, &call, target, if whole { ended } else { &too_large }, end);
        } else {
            self.open_bytes = self.open_bytes.saturating_sub(call.cost() + call.ends_bytes);
            let (owner, serial) = call.owner;
            if let Some(owner) = self.registry.agents.get_mut(owner).filter(|owner| owner.serial == serial) {
                owner.open_bytes = owner.open_bytes.saturating_sub(call.cost());
            }
            self.remember(turn, &mut call, ended, whole);
            self.announce_ended(turn, &call, outcome);
        }
        match outcome {
            Outcome::Completed => self.counters.calls_completed += 1,
            Outcome::Failed(code) => self.counters.call_failed(code),
        }
        let times = self.note_times(turn.now, &call);
        if let Some(span) = call.span.take() {
            self.trace_end(turn, *span, &call, outcome);
        }
        let (mode, detached_from) = (call.mode, call.detached_from);
        let listeners = std::mem::take(&mut call.listeners);
        let (trace, record) = self.what_stays(turn.now, call, target);
        turn.fx.facts.push(Fact::CallEnded {
            capability: Some(Arc::clone(&trace.capability)),
            mode,
            outcome,
            accept_us: times.accept,
            process_us: times.process,
            total_us: times.total,
            record,
        });
        self.traces.push(trace);
        if let Some(from) = detached_from
            && let Some(agent) = self.registry.agents.get_mut(from)
        {
            agent.detached.retain(|other| *other != call_index);
            if let Some(session) = agent.session {
                self.close_if_idle(turn, session);
            }
        }
        for Listener { agent, id } in listeners {
            let Some(agent) = self.registry.agents.get_mut(agent) else { continue };
            agent.asked.remove(&id);
            agent.tasks = agent.tasks.saturating_sub(u32::from(is_task));
            if let Some(session) = agent.session {
                self.close_if_idle(turn, session);
            }
        }
    }

    /// What stays of an ended call: its trace, and what is written down of it.
    fn what_stays(&self, now: Now, mut call: Call, target: Option<&Arc<str>>) -> (Trace, Option<CallRecord>) {
        let trace = Trace {
            number: call.number,
            request_id: (&*call.request_id).into(),
            caller: call.caller,
            capability: call.capability,
            started: call.started,
            log: call.log,
        };
        if !self.settings.records {
            return (trace, None);
        }
        let task = call.task.as_deref();
        let attempts = call.attempts.len() + task.map_or(0, |task| task.earlier);
        // Nearly always the same, which is handed on and not counted once more.
        let last = call.attempts.pop().map(|tried| tried.target);
        let target = match target {
            Some(target) if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, target)) => {
                Some(target.clone())
            }
            _ => last,
        };
        let record = CallRecord {
            call_id: self.call_id(call.number),
            task: task.map(|task| task.id),
            request_id: call.request_id,
            caller: Arc::clone(&trace.caller),
            target,
            capability: Arc::clone(&trace.capability),
            started_ms: task.map_or_else(|| self.unix(call.started), |task| task.created),
            ended_ms: self.unix(now),
            attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            targets: if call.fan_out { trace.log.targets().into() } else { Box::default() },
            trace: call.trace,
            by_hub: false,
        };
        (trace, Some(record))
    }

    /// Keeps the end for `keep_ms`, unless it is a failure that another try may mend: that frees the id. `whole`: with
    /// the body that it came with.
    fn remember(&mut self, turn: &mut Turn<'_>, call: &mut Call, ended: &Ended<'_>, whole: bool) {
        let Some(ends) = call.ends.take().filter(|_| call.is_kept(ended)) else {
            return self.memory.remove(call.entry);
        };
        let good = whole && !call.fan_out && call.mode == CallMode::Call && !ended.cached;
        let good = good && ended.failure.is_none();
        let until = turn.now.plus_ms(call.keep_ms);
        let stored = self.store_call(turn, call, &ends, until);
        let kept = Kept { ends, until, good_at: good.then_some(turn.now), stored };
        let forgotten = self.memory.end(call.entry, kept);
        self.forgot(turn, forgotten);
        self.sweep_later(turn.now);
    }

    /// Tells of ends that were forgotten early.
    pub(crate) fn forgot(&self, turn: &mut Turn<'_>, count: usize) {
        if count > 0 {
            turn.fx.facts.push(Fact::Evicted { count });
        }
    }

    /// Keeps one target's end with its call.
    fn keep_part(&mut self, call_index: usize, message: &Bytes) {
        let bound = self.settings.open_bytes;
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let Some(ends) = &mut call.ends else { return };
        ends.push(message.clone());
        if call.open > 0 {
            // Kept until the other targets have ended too, which may be large: it counts as open.
            call.ends_bytes += message.len();
            self.open_bytes += message.len();
            if self.open_bytes > bound {
                self.open_bytes = self.open_bytes.saturating_sub(std::mem::take(&mut call.ends_bytes));
                call.ends = None;
            }
        }
    }

    /// Keeps the last end, where the memory is to have it.
    fn keep_last(&mut self, call_index: usize, message: &Bytes, ended: &Ended<'_>) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        if call.is_kept(ended)
            && let Some(ends) = &mut call.ends
        {
            ends.push(self.memory.pack.keep(message, call.keep_ms));
        }
    }

    /// Sends an end to everyone who waits.
    fn give_end(&mut self, turn: &mut Turn<'_>, call_index: usize, message: Bytes) {
        let Some(call) = self.calls.get(call_index) else { return };
        let listeners = call.listeners.clone();
        let Some((newest, others)) = listeners.split_last() else { return };
        // A second owner costs an allocation, and nearly always there is none.
        let repeated = if others.is_empty() { Bytes::new() } else { message.clone() };
        self.send_to_agent(turn, newest.agent, Kind::Result, Lane::Data, message);
        for Listener { agent, id } in others {
            self.send_end(turn, *agent, *id, &repeated, false);
        }
    }

    /// Sends a stored end under another id.
    pub(crate) fn send_end(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        id: u64,
        end: &Bytes,
        duplicate: bool,
    ) {
        // Its session ends with this turn: no further copy is made for it.
        if self.is_overfull(key) {
            return;
        }
        let Ok((ToAgent::Result(mut result), body)) = decode_to_agent(end) else { return };
        result.id = Some(id);
        result.duplicate = duplicate;
        let message = encode(&result, body.as_deref());
        self.send_to_agent(turn, key, Kind::Result, Lane::Data, message);
    }

    /// Writes an end, under the id of the newest who waits. `false`: it says that what it was to say has no room.
    fn encode_end(
        &self,
        call_index: usize,
        target: Option<&Arc<str>>,
        tried: Option<Try>,
        ended: &Ended<'_>,
        end: End,
    ) -> (Bytes, bool) {
        let Some(call) = self.calls.get(call_index) else { return (Bytes::new(), false) };
        let call_id = self.call_id(call.number);
        let load = tried.map(|tried| tried.load);
        let route = (end != End::Summary).then(|| call.note.line(call.directed, load));
        let processed = tried.and_then(|tried| Some(tried.ended_at.ms_since(tried.accepted_at?)));
        let attempts = match end {
            End::Part => call.attempts.last().into_iter().map(Tried::entry).collect(),
            End::Whole => call.attempts.iter().map(Tried::entry).collect(),
            End::Summary => Vec::new(),
        };
        let mut result = CallResult {
            id: call.listeners.last().filter(|_| call.task.is_none()).map(|listener| listener.id),
            task_id: call.task.as_ref().map(|task| &*task.text),
            request_id: Some(&call.request_id),
            call_id: Some(&call_id),
            target: target.map(|target| &**target),
            execution_ms: ended.execution_ms.or(processed),
            attempts,
            route: route.as_deref(),
            error: ended.failure.as_ref().map(Failure::entry),
            cached: ended.cached,
            more: matches!(end, End::Part),
            summary: matches!(end, End::Summary).then_some(call.summary),
            content_type: ended.content_type,
            private: ended.private.clone(),
            ..CallResult::of(status_of(ended.failure.as_ref()))
        };
        let message = encode(&result, ended.body);
        let most = self.settings.max_message;
        if message.len() <= most {
            return (message, true);
        }
        // The provider's message was within the limit; only the hub's keys can have pushed it over. The
        // explaining ones go first, then the body.
        result.attempts = Vec::new();
        result.route = None;
        let message = encode(&result, ended.body);
        if message.len() <= most {
            return (message, true);
        }
        let failure = too_large();
        result.status = ResultStatus::Failed;
        result.error = Some(failure.entry());
        result.private = Private::default();
        (encode(&result, None), false)
    }

    /// Answers a CALL that did not become a call.
    pub(crate) fn send_refusal(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        id: u64,
        request_id: Option<&str>,
        capability: &str,
        refusal: &Refusal,
    ) -> Option<CallRecord> {
        let number = self.number();
        let made = request_id.is_none().then(|| self.made_request_id(number));
        let call_id = self.call_id(number);
        let route = refusal.note.map(|note| note.line(false, None));
        let result = CallResult {
            id: Some(id),
            request_id: request_id.or(made.as_deref()),
            call_id: Some(&call_id),
            route: route.as_deref(),
            error: Some(refusal.failure.entry()),
            ..CallResult::of(status_of(Some(&refusal.failure)))
        };
        let message = encode(&result, None);
        self.send_to_agent(turn, key, Kind::Result, Lane::Data, message);
        let agent = self.registry.agents.get(key)?;
        let mut log = Log::new(turn.now, refusal.note);
        log.step(turn.now, Step::Ended(Outcome::Failed(refusal.failure.code)));
        let request_id: Arc<str> = request_id.or(made.as_deref()).unwrap_or_default().into();
        let (caller, capability): (Arc<str>, Arc<str>) = (Arc::clone(&agent.id), capability.into());
        let now_ms = self.unix(turn.now);
        let record = self.settings.records.then(|| CallRecord {
            call_id,
            task: None,
            request_id: Arc::clone(&request_id),
            caller: Arc::clone(&caller),
            target: None,
            capability: Arc::clone(&capability),
            started_ms: now_ms,
            ended_ms: now_ms,
            attempts: 0,
            targets: Box::default(),
            trace: None,
            by_hub: false,
        });
        self.announce_refused(turn, key, (call_id, &request_id, &capability), refusal);
        let request_id = (&*request_id).into();
        self.traces.push(Trace { number, request_id, caller, capability, started: turn.now, log });
        record
    }

    pub(crate) fn record_refusal(
        &mut self,
        turn: &mut Turn<'_>,
        capability: Option<Arc<str>>,
        mode: CallMode,
        refusal: &Refusal,
        record: Option<CallRecord>,
    ) {
        self.counters.call_failed(refusal.failure.code);
        turn.fx.facts.push(Fact::CallEnded {
            capability,
            mode,
            outcome: Outcome::Failed(refusal.failure.code),
            accept_us: None,
            process_us: None,
            total_us: 0,
            record,
        });
    }
}

/// Which RESULT of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The only one.
    Whole,
    /// One target's of a fan-out.
    Part,
    /// The last of a fan-out.
    Summary,
}

fn too_large() -> Failure {
    Failure::new(ErrorCode::PayloadTooLarge, "with the hub's keys the result is over the message limit")
}

const fn status_of(failure: Option<&Failure>) -> ResultStatus {
    match failure {
        None => ResultStatus::Completed,
        Some(Failure { code: ErrorCode::NoInstance, .. }) => ResultStatus::NoInstance,
        Some(_) => ResultStatus::Failed,
    }
}

fn tried_entry(call: &Call, target: &Arc<str>, tried: Option<Try>, ended: &Ended<'_>) -> Tried {
    let reason = match (&ended.failure, tried) {
        (Some(failure), _) => failure.message.to_string().into(),
        (None, Some(tried)) if tried.attempt > 1 => "given again".into(),
        (None, _) => call.policy.as_str().into(),
    };
    let ms = tried.map_or(0, |tried| tried.ended_at.ms_since(tried.given_at));
    Tried { target: Arc::clone(target), outcome: ended.outcome(), ms, reason }
}

impl Tried {
    fn entry(&self) -> Attempt<'_> {
        Attempt { target: &self.target, outcome: self.outcome.as_str(), ms: self.ms, reason: &self.reason }
    }
}

impl Failure {
    pub(crate) fn entry(&self) -> CallError<'_> {
        CallError {
            code: self.code.as_str(),
            message: &self.message,
            retryable: self.retryable,
            details: self.details.as_deref().map(Raw),
        }
    }
}
