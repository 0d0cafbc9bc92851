//! The caller's side: calls that this agent asked for, from the first CALL to their one end.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{
    Accept, Call, CallResult, Cancel, Chunk, Credit, ErrorCode, Private, Receipt, encode,
};
use bytes::Bytes;

use super::answers::{acceptance, failure, reply};
use super::time::{Now, millis};
use super::types::{CallEvent, CallKey, CallSpec, Effect, borrowed, raw, status_ok};
use super::{Context, Rng};
use crate::errors::{Accepted, CallError, Code};
use crate::payload::Payload;

/// Most calls that wait for a connection, or for a place under the hub's `max_in_flight`.
const WAITING_MAX: usize = 1024;
/// A call without a budget of its own waits so long for a connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// A task may wait longer, as it may in the hub.
const TASK_PATIENCE: Duration = Duration::from_secs(86_400);
/// The hub owns the budget. When it stays silent so long past it, the call ends here.
const GRACE: Duration = Duration::from_secs(5);
/// Outcomes of ids that the SDK made need to outlive a reconnect only.
const KEEP_MADE: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Open {
    spec: Arc<CallSpec>,
    request_id: String,
    /// On the present connection.
    id: Option<u64>,
    /// It left at least once.
    sent: bool,
    accepted: bool,
    /// When it ends here, if it is not on the wire.
    deadline: Now,
    next_seq: u64,
    /// Chunks allowed since seq 0.
    granted: u64,
    task_id: Option<String>,
    call_id: Option<String>,
    target: Option<String>,
}

impl Open {
    fn error(&self, code: Code, message: &str) -> CallError {
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

    fn patience(&self) -> Duration {
        if self.spec.is_task() { TASK_PATIENCE } else { PATIENCE }
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
            credit: spec.window.map(|_| self.granted),
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
            private: Private::default(),
        }
    }

    fn encode(&self, id: u64, budget: Option<u64>) -> Bytes {
        encode(&self.header(id, budget), Some(&self.spec.payload.body))
    }
}

/// All open calls of this agent.
#[derive(Debug)]
pub(crate) struct Asked {
    /// In the order they were made, which is also the order of sending them again.
    calls: BTreeMap<CallKey, Open>,
    by_id: HashMap<u64, CallKey>,
    by_task: HashMap<String, CallKey>,
    waiting: VecDeque<CallKey>,
    deadlines: BTreeSet<(Now, CallKey)>,
    next_id: u64,
    /// Makes ids of this life unlike those of every other.
    prefix: u64,
    made: u64,
}

impl Asked {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            calls: BTreeMap::new(),
            by_id: HashMap::new(),
            by_task: HashMap::new(),
            waiting: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next_id: 0,
            prefix: rng.next(),
            made: 0,
        }
    }

    pub(crate) fn open(&mut self, cx: &mut Context<'_>, key: CallKey, spec: Arc<CallSpec>) {
        let request_id = spec.request_id.clone().unwrap_or_else(|| {
            self.made += 1;
            format!("{:016x}-{:x}", self.prefix, self.made)
        });
        let granted = spec.window.unwrap_or(0);
        let mut open = Open {
            request_id,
            id: None,
            sent: false,
            accepted: false,
            deadline: cx.now,
            next_seq: 0,
            granted,
            task_id: None,
            call_id: None,
            target: None,
            spec,
        };
        if self.waiting.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} calls wait for the connection already");
            let error = open.error(Code::Known(ErrorCode::Overloaded), &message);
            cx.effects.push(Effect::Tell(key, CallEvent::Ended(Err(error))));
            return;
        }
        open.deadline = cx.now.after(open.spec.budget.unwrap_or_else(|| open.patience()));
        self.deadlines.insert((open.deadline, key));
        self.calls.insert(key, open);
        self.waiting.push_back(key);
        self.send_waiting(cx);
    }

    /// A session is open: every call that is not on this connection goes out, the oldest first.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) {
        self.waiting = self
            .calls
            .iter()
            // A stored task needs no second CALL: its result comes by itself, and a late second CALL could
            // begin a second task.
            .filter(|(_, open)| open.id.is_none() && open.task_id.is_none())
            .map(|(key, _)| *key)
            .collect();
        self.send_waiting(cx);
    }

    /// The connection is gone. What was on it waits for the next one.
    pub(crate) fn lost(&mut self, now: Now) {
        self.by_id.clear();
        for (key, open) in &mut self.calls {
            if open.id.take().is_some() && open.spec.budget.is_none() && open.task_id.is_none() {
                self.deadlines.remove(&(open.deadline, *key));
                open.deadline = now.after(open.patience());
                self.deadlines.insert((open.deadline, *key));
            }
        }
    }

    fn send_waiting(&mut self, cx: &mut Context<'_>) {
        while cx.ready && self.by_id.len() < cx.max_in_flight {
            let Some(key) = self.waiting.pop_front() else { return };
            self.send(cx, key);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, key: CallKey) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        let budget = open.spec.budget.map(|_| millis(open.deadline.since(cx.now)));
        if budget == Some(0) {
            return self.fail(
                cx,
                key,
                Code::Known(ErrorCode::BudgetExhausted),
                "spent before it could be sent",
            );
        }
        self.next_id += 1;
        let id = self.next_id;
        let message = open.encode(id, budget);
        if message.len() > cx.max_message {
            let text = format!("the message has {} bytes, the hub takes {}", message.len(), cx.max_message);
            return self.fail(cx, key, Code::Known(ErrorCode::PayloadTooLarge), &text);
        }
        open.id = Some(id);
        open.sent = true;
        self.by_id.insert(id, key);
        cx.outbound.call(id, message);
    }

    pub(crate) fn fail(&mut self, cx: &mut Context<'_>, key: CallKey, code: Code, message: &str) {
        if let Some(open) = self.remove(key) {
            let error = open.error(code, message);
            cx.effects.push(Effect::Tell(key, CallEvent::Ended(Err(error))));
        }
    }

    /// The agent ends: so does every call.
    pub(crate) fn fail_all(&mut self, cx: &mut Context<'_>, message: &str) {
        while let Some((key, _)) = self.calls.first_key_value() {
            self.fail(cx, *key, Code::Closed, message);
        }
    }

    fn remove(&mut self, key: CallKey) -> Option<Open> {
        let open = self.calls.remove(&key)?;
        self.deadlines.remove(&(open.deadline, key));
        self.deadlines.remove(&(open.deadline.after(GRACE), key));
        if let Some(id) = open.id {
            self.by_id.remove(&id);
        } else {
            self.waiting.retain(|waiting| *waiting != key);
        }
        if let Some(task_id) = &open.task_id {
            self.by_task.remove(task_id);
        }
        Some(open)
    }

    /// Nobody waits any more. The call's end, which the hub will still send, is dropped when it comes.
    pub(crate) fn cancel(&mut self, cx: &mut Context<'_>, key: CallKey) {
        let Some(open) = self.remove(key) else { return };
        if let Some(id) = open.id
            && !cx.outbound.withdraw(id)
        {
            cx.outbound.control(encode(&Cancel { id, reason: None, wait: false }, None));
        }
        self.send_waiting(cx);
    }

    /// A task goes on, its handle is gone.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>, key: CallKey) {
        if self.calls.get(&key).is_some_and(|open| open.task_id.is_some()) {
            self.remove(key);
            self.send_waiting(cx);
        } else {
            self.cancel(cx, key);
        }
    }

    pub(crate) fn consumed(&mut self, cx: &mut Context<'_>, key: CallKey, n: u64) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        open.granted = open.granted.saturating_add(n);
        if let Some(id) = open.id {
            cx.outbound.control(encode(&Credit { id, n, target: None }, None));
        }
    }

    pub(crate) fn received(cx: &mut Context<'_>, task_id: &str) {
        if cx.ready {
            cx.outbound.control(encode(&Receipt { task_id }, None));
        }
    }

    pub(crate) fn on_accept(&mut self, cx: &mut Context<'_>, header: &Accept<'_>) {
        let Some(key) = self.by_id.get(&header.id).copied() else { return };
        let Some(open) = self.calls.get_mut(&key) else { return };
        open.accepted = true;
        open.call_id = header.call_id.map(str::to_owned).or(open.call_id.take());
        open.target = header.target.map(str::to_owned).or(open.target.take());
        if open.spec.is_task()
            && let Some(task_id) = header.task_id
            && open.task_id.is_none()
        {
            open.task_id = Some(task_id.to_owned());
            self.by_task.insert(task_id.to_owned(), key);
            // Stored: from here on its time is the hub's affair.
            self.deadlines.remove(&(open.deadline, key));
        }
        let accepted = acceptance(header, &open.request_id);
        cx.effects.push(Effect::Tell(key, CallEvent::Accepted(accepted)));
    }

    pub(crate) fn on_chunk(&mut self, cx: &mut Context<'_>, header: &Chunk<'_>, body: Option<Bytes>) {
        let Some(key) = self.by_id.get(&header.id).copied() else { return };
        let Some(open) = self.calls.get_mut(&key) else { return };
        open.accepted = true;
        if header.seq < open.next_seq {
            return; // Sent again after a reconnect.
        }
        if header.seq > open.next_seq {
            let text = format!("chunk {} came where {} was due", header.seq, open.next_seq);
            return self.break_off(cx, key, Code::Interrupted, &text);
        }
        open.next_seq += 1;
        let payload =
            Payload { body: body.unwrap_or_default(), content_type: header.content_type.map(str::to_owned) };
        let target = header.target.map(str::to_owned);
        cx.effects.push(Effect::Tell(key, CallEvent::Chunk { seq: header.seq, target, payload }));
    }

    /// Ends a call here, and at the hub.
    fn break_off(&mut self, cx: &mut Context<'_>, key: CallKey, code: Code, message: &str) {
        if let Some(id) = self.calls.get(&key).and_then(|open| open.id)
            && !cx.outbound.withdraw(id)
        {
            cx.outbound.control(encode(&Cancel { id, reason: Some(message), wait: false }, None));
        }
        self.fail(cx, key, code, message);
        self.send_waiting(cx);
    }

    pub(crate) fn on_result(&mut self, cx: &mut Context<'_>, header: &CallResult<'_>, body: Option<Bytes>) {
        let by_id = header.id.and_then(|id| self.by_id.get(&id));
        let by_task = || header.task_id.and_then(|task| self.by_task.get(task));
        let Some(key) = by_id.or_else(by_task).copied() else {
            if let Some(task_id) = header.task_id {
                cx.effects.push(Effect::Unclaimed(task_id.to_owned()));
            }
            return;
        };
        let Some(open) = self.calls.get_mut(&key) else { return };
        let accepted = if open.accepted { Accepted::Yes } else { Accepted::Unknown };
        let fan_out = header.more || header.summary.is_some();
        let result = if status_ok(header.status) || header.summary.is_some() {
            Ok(reply(header, body, &open.request_id))
        } else {
            Err(failure(header, &open.request_id, accepted))
        };
        if header.more {
            let target = header.target.map(str::to_owned);
            cx.effects.push(Effect::Tell(key, CallEvent::Part { target, result }));
            return;
        }
        let summary = if fan_out { header.summary } else { None };
        self.remove(key);
        cx.effects.push(Effect::Tell(key, CallEvent::Ended(result.map(|reply| (reply, summary)))));
        self.send_waiting(cx);
    }

    /// The hub could not use our CALL, or sent an answer that cannot be read: that call ends, no other.
    pub(crate) fn on_fault(&mut self, cx: &mut Context<'_>, id: u64, code: Code, message: &str) {
        if let Some(key) = self.by_id.get(&id).copied() {
            self.break_off(cx, key, code, message);
        }
    }

    pub(crate) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        while let Some((at, key)) = self.deadlines.first().copied().filter(|(at, _)| *at <= cx.now) {
            self.deadlines.remove(&(at, key));
            let Some(open) = self.calls.get_mut(&key) else { continue };
            if open.id.is_some() && open.spec.budget.is_none() {
                continue; // The hub's own default counts.
            }
            let spent = open.spec.budget.is_some() && cx.now >= open.deadline.after(GRACE);
            if open.id.is_some() && !spent {
                self.deadlines.insert((open.deadline.after(GRACE), key));
                continue;
            }
            let text = if open.id.is_some() { "the hub did not answer" } else { "not connected in time" };
            self.break_off(cx, key, Code::Known(ErrorCode::BudgetExhausted), text);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<Now> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Calls that are on the present connection.
    pub(crate) fn on_wire(&self) -> usize {
        self.by_id.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.by_id.is_empty()
            && self.by_task.is_empty()
            && self.waiting.is_empty()
            && self.deadlines.is_empty()
    }
}
