//! What providers answer: ACCEPT, CHUNK, RESULT. And CREDIT, the caller's side of a stream.

use std::sync::Arc;

use agent_reach_protocol::codec::Writer;
use agent_reach_protocol::{
    Accept, CallError, CallMode, CallResult, Chunk, Credit, ErrorCode, Kind, ResultStatus, Retry, encode,
    limits,
};
use bytes::Bytes;

use super::end::Ended;
use super::{Failure, LegState, Listener};
use crate::hub::{Complaint, Hub, Turn};
use crate::outbound::Outgoing;
use crate::registry::Asked;
use crate::session::Lane;
use crate::store::TaskState;
use crate::text::CallId;
use crate::traces::Step;

/// After how many processing times without a sign a task is given up.
const ORPHANED_AFTER: u64 = 2;
/// Most ACCEPTs of one provider that are forwarded for one call.
const ACCEPTS_MAX: u8 = 16;

impl Hub {
    fn leg_of(&self, key: usize, id: u64) -> Option<usize> {
        self.registry.agents.get(key)?.given.get(id)
    }

    /// The leg, if somebody still waits for its answer. Counts a late frame otherwise.
    fn awaited(&mut self, key: usize, id: u64) -> Option<(usize, usize)> {
        let found = self.leg_of(key, id).and_then(|index| Some((index, self.legs.get(index)?.call?)));
        if found.is_none() {
            self.counters.late += 1;
        }
        found
    }

    pub(crate) fn on_accept(&mut self, turn: &mut Turn<'_>, key: usize, accept: &Accept<'_>) {
        let Some((index, call_index)) = self.awaited(key, accept.id) else { return };
        self.start_processing(turn, index, call_index);
        let epoch = self.epoch();
        let Some(call) = self.calls.get(call_index) else { return };
        let Some(leg) = self.legs.get_mut(index) else { return };
        if leg.accepts >= ACCEPTS_MAX {
            // Enough to negotiate by; more would only fill the caller's queue ahead of everything else.
            self.counters.late += 1;
            return;
        }
        leg.accepts += 1;
        if call.task.is_some() {
            // Its caller has the hub's own ACCEPT. Work that is not queued has begun.
            let begun = accept.queue_depth == Some(0);
            let state = if begun { TaskState::Processing } else { TaskState::Received };
            return self.task_moves(turn, index, call_index, state);
        }
        let call_id = CallId::new(epoch, call.number);
        let mut told = Accept {
            queue_depth: accept.queue_depth,
            would_timeout: accept.would_timeout,
            wait_ms: accept.wait_ms,
            request_id: Some(&call.request_id),
            call_id: Some(&call_id),
            target: Some(&leg.target),
            attempt: Some(u64::from(leg.attempt)),
            private: accept.private.clone(),
            ..Accept::of(0)
        };
        if let Some(Listener { agent, id }) = call.listeners.last().copied() {
            told.id = id;
            let message = encode(&told, None);
            self.send_to_agent(turn, agent, Kind::Accept, Lane::Control, message);
        }
        self.end_if_notify(turn, index, call_index);
    }

    /// Phase one is done, by ACCEPT or by what stands for it: processing starts.
    fn start_processing(&mut self, turn: &mut Turn<'_>, index: usize, call_index: usize) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let Some(leg) = self.legs.get_mut(index) else { return };
        if leg.state != LegState::Given {
            return;
        }
        leg.state = LegState::Accepted;
        leg.accepted_at = Some(turn.now);
        call.accepted_at.get_or_insert(turn.now);
        call.log.step(turn.now, Step::Accepted { target: &leg.target });
        self.restart_processing(turn, index, call_index);
    }

    /// Processing time counts from now, within the budget.
    fn restart_processing(&mut self, turn: &Turn<'_>, index: usize, call_index: usize) {
        let Some(leg) = self.legs.get(index) else { return };
        let Some(call) = self.calls.get(call_index) else { return };
        let patience = if call.task.is_some() { ORPHANED_AFTER } else { 1 };
        let deadline = turn.now.plus_ms(leg.timeout_ms.saturating_mul(patience)).min(call.budget_at);
        self.set_leg_deadline(index, deadline);
    }

    /// `notify` ends with phase one; the provider works on, in its slot.
    fn end_if_notify(&mut self, turn: &mut Turn<'_>, index: usize, call_index: usize) {
        let notify = self.calls.get(call_index).is_some_and(|call| call.mode == CallMode::Notify);
        if !notify {
            return;
        }
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.call = None;
        let (target, tried) = (Arc::clone(&leg.target), leg.tried(turn.now));
        if let Some(call) = self.calls.get_mut(call_index) {
            // The leg goes its own way: its place may be another call's while this one still waits for others.
            call.legs.remove(index);
        }
        self.conclude(turn, call_index, Some(&target), Some(tried), &Ended::done());
    }

    /// Tells the newest asker of a call in phase two that it was accepted.
    pub(crate) fn tell_accepted_again(&mut self, turn: &mut Turn<'_>, call_index: usize) {
        let epoch = self.epoch();
        let Some(call) = self.calls.get(call_index) else { return };
        let Some(Listener { agent, id }) = call.listeners.last().copied() else { return };
        let call_id = CallId::new(epoch, call.number);
        let mut messages: Vec<Bytes> = Vec::new();
        for leg in call.legs.iter().filter_map(|index| self.legs.get(index)) {
            if leg.state == LegState::Accepted {
                let told = Accept {
                    request_id: Some(&call.request_id),
                    call_id: Some(&call_id),
                    target: Some(&leg.target),
                    attempt: Some(u64::from(leg.attempt)),
                    ..Accept::of(id)
                };
                messages.push(encode(&told, None));
            }
        }
        for message in messages {
            self.send_to_agent(turn, agent, Kind::Accept, Lane::Control, message);
        }
    }

    pub(crate) fn on_chunk(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        chunk: &Chunk<'_>,
        body: Option<&[u8]>,
    ) {
        let Some((index, call_index)) = self.awaited(key, chunk.id) else { return };
        let Some(leg) = self.legs.get_mut(index) else { return };
        if leg.attempt > 1 && chunk.seq < leg.next_seq {
            // A provider that came back says its stream again from the start: this piece was forwarded.
            self.start_processing(turn, index, call_index);
            return self.restart_processing(turn, index, call_index);
        }
        if chunk.seq != leg.next_seq {
            let message = format!("the agent sent chunk {} where {} was due", chunk.seq, leg.next_seq);
            return self.fail_leg(turn, index, Failure::new(ErrorCode::HandlerError, message));
        }
        if leg.credit == 0 {
            let message = format!("the agent sent chunk {} past its credit", chunk.seq);
            return self.fail_leg(turn, index, Failure::new(ErrorCode::HandlerError, message));
        }
        leg.credit -= 1;
        leg.next_seq += 1;
        self.start_processing(turn, index, call_index);
        let Some(leg) = self.legs.get(index) else { return };
        let Some(call) = self.calls.get_mut(call_index) else { return };
        if chunk.seq == 0 {
            call.log.step(turn.now, Step::FirstChunk { target: &leg.target });
        }
        if call.task.is_some() {
            self.restart_processing(turn, index, call_index);
            return self.task_progress(turn, index, call_index, body);
        }
        if let Some(Listener { agent, id }) = call.listeners.last().copied() {
            let told = Chunk {
                id,
                seq: chunk.seq,
                target: call.fan_out.then_some(&*leg.target),
                content_type: chunk.content_type,
                private: chunk.private.clone(),
            };
            let message = encode(&told, body);
            if message.len() > self.settings.max_message {
                let message = "with the hub's keys a chunk is over the message limit";
                return self.fail_leg(turn, index, Failure::new(ErrorCode::PayloadTooLarge, message));
            }
            self.send_to_agent(turn, agent, Kind::Chunk, Lane::Data, message);
        }
        self.restart_processing(turn, index, call_index);
        self.end_if_notify(turn, index, call_index);
    }

    pub(crate) fn on_result(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        result: &CallResult<'_>,
        body: Option<&[u8]>,
    ) {
        let Some(id) = result.id else {
            let Some(connection) = self.registry.agents.get(key).and_then(|agent| agent.session) else {
                return;
            };
            let complaint = Complaint {
                kind: Kind::Result.number(),
                id: None,
                code: ErrorCode::InvalidRequest,
                message: "a RESULT of an agent names the CALL it answers",
                field: Some("id"),
            };
            return self.complain(turn, connection, &complaint);
        };
        let Some(index) = self.leg_of(key, id) else {
            self.counters.late += 1;
            return;
        };
        let Some(call_index) = self.legs.get(index).and_then(|leg| leg.call) else {
            // Nobody waits, but the slot was still taken.
            self.counters.late += 1;
            if self.legs.get(index).is_some_and(|leg| leg.state == LegState::Accepted) {
                // The work of a notify, which ended for its caller when it was accepted.
                self.tell_breaker(turn, index, failure_of(result).as_ref());
            }
            return self.free_leg(turn, index);
        };
        self.start_processing(turn, index, call_index);
        let ended = Ended {
            failure: failure_of(result),
            body,
            content_type: result.content_type,
            private: result.private.clone(),
            execution_ms: result.execution_ms,
            cached: false,
        };
        self.end_leg(turn, index, &ended);
    }

    pub(crate) fn on_credit(&mut self, turn: &mut Turn<'_>, key: usize, credit: &Credit<'_>) {
        if credit.n == 0 {
            return;
        }
        match self.asked(key, credit.id) {
            Some(Asked::Watch(watch)) => self.on_watch_credit(turn, watch, credit.n),
            Some(Asked::Call(call))
                if self.calls.get(call).is_some_and(|call| call.stream && call.task.is_none()) =>
            {
                let Some(call) = self.calls.get_mut(call) else { return };
                // A try that is yet to come begins with all of it: nothing was used of it before.
                call.credit = call.credit.saturating_add(credit.n);
                for index in call.legs.to_row() {
                    let meant = |leg: &super::Leg| credit.target.is_none_or(|target| target == &*leg.target);
                    if self.legs.get(index).is_some_and(meant) {
                        self.grant(turn, index, credit.n);
                    }
                }
            }
            _ => self.counters.late += 1,
        }
    }

    /// Adds to a leg's window and tells its provider.
    pub(crate) fn grant(&mut self, turn: &mut Turn<'_>, index: usize, n: u64) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.credit = leg.credit.saturating_add(n);
        leg.granted = leg.granted.saturating_add(n);
        let message = encode(&Credit { id: leg.id, n, target: None }, None);
        let (agent, mark) = (leg.agent, leg.mark);
        self.send_to_agent(turn, agent, Kind::Credit, Lane::About(mark), message);
    }

    /// A caller that joined brought a new window: the old one's credit went with its connection.
    pub(crate) fn open_window(&mut self, turn: &mut Turn<'_>, call_index: usize, window: u64) {
        let Some(call) = self.calls.get(call_index).filter(|call| call.stream) else { return };
        for index in call.legs.to_row() {
            let left = self.legs.get(index).map_or(0, |leg| leg.credit);
            if window > left {
                self.grant(turn, index, window - left);
            }
        }
    }

    /// Sends an envelope on the agent's present connection, if it has one.
    pub(crate) fn send_to_agent(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        kind: Kind,
        lane: Lane,
        message: Bytes,
    ) {
        let Some(id) = self.registry.agents.get(key).and_then(|agent| agent.session) else { return };
        self.counters.sent(kind);
        self.counters.bytes_out += message.len() as u64;
        self.send(turn, id, lane, Outgoing::Message(message));
    }
}

/// What a provider's RESULT says of failure; `None` when it completed.
fn failure_of(result: &CallResult<'_>) -> Option<Failure> {
    if result.status == ResultStatus::Completed {
        return None;
    }
    let Some(error) = &result.error else {
        return Some(Failure::new(ErrorCode::HandlerError, "the agent failed and gave no error"));
    };
    let passing = ErrorCode::parse(error.code).filter(|code| code.passes_from_provider());
    let code = passing.unwrap_or(ErrorCode::HandlerError);
    // A code of the agent's own goes into the details, with what it said beside it.
    let details = match passing {
        Some(_) => error.details.map(|details| details.0.into()),
        None => Some(own_error(error).into()),
    };
    // The table says of each code whether to try again; only a handler's own failure says so itself.
    let retryable = if code.retry() == Retry::ByHandler { error.retryable } else { code.retryable() };
    Some(Failure { code, message: error.message.into(), retryable, details })
}

/// `{code, message, details?}` as the agent said them. Details that would pass the bound with it are left out.
fn own_error(error: &CallError<'_>) -> Vec<u8> {
    let details = error.details.filter(|details| details.0.len() < limits::SCHEMA_BYTES_MAX / 2);
    let mut out = Writer::with_capacity(64);
    out.map(2 + usize::from(details.is_some()));
    out.str("code");
    out.str(error.code);
    out.str("message");
    out.str(error.message);
    if let Some(details) = details {
        out.str("details");
        out.raw(details.0);
    }
    out.into_bytes()
}
