//! The caller's side: calls that this agent asked for, from the first CALL to their one end.

mod open;
mod pace;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{Accept, CallResult, Cancel, Chunk, Credit, ErrorCode, encode};
use bytes::Bytes;

use open::{Arrival, Flow, Open};
use pace::{CUTS_MAX, Pace};

use super::answers::{acceptance, failure, reply};
use super::results::Results;
use super::time::{Now, millis};
use super::types::{CallEvent, CallKey, CallSpec, Effect, TaskEnd, status_ok};
use super::{Context, Rng};
use crate::errors::{Accepted, CallError, Code};
use crate::payload::Payload;

/// Most calls that wait for a connection, or for a place under the hub's `max_in_flight`.
const WAITING_MAX: usize = 1024;
/// The hub owns the budget. When it stays silent so long past it, the call ends here.
const GRACE: Duration = Duration::from_secs(5);
/// After a reconnect providers may still be on their way back, to a hub that was just started above all. For so
/// long a call that was open before is asked again when nobody is there.
const RETURN: Duration = Duration::from_secs(10);

/// All open calls of this agent.
#[derive(Debug)]
pub(crate) struct Asked {
    /// In the order they were made, which is also the order of sending them again.
    calls: BTreeMap<CallKey, Open>,
    by_id: HashMap<u64, CallKey>,
    /// Tasks that the hub has stored.
    results: Results,
    waiting: VecDeque<CallKey>,
    pace: Pace,
    deadlines: BTreeSet<(Now, CallKey)>,
    /// Calls that are asked again then.
    again: BTreeSet<(Now, CallKey)>,
    /// The present connection's calls that were open before are asked again until then.
    return_until: Now,
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
            results: Results::default(),
            waiting: VecDeque::new(),
            pace: Pace::default(),
            deadlines: BTreeSet::new(),
            again: BTreeSet::new(),
            return_until: Now::default(),
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
        let open = Open::new(cx.now, spec, request_id);
        if self.waiting.len() >= WAITING_MAX {
            let message = format!("{WAITING_MAX} calls wait for the connection already");
            let error = open.error(Code::Known(ErrorCode::Overloaded), &message);
            cx.effects.push(Effect::Tell(key, CallEvent::Ended(Err(error))));
            return;
        }
        self.deadlines.insert((open.deadline, key));
        self.calls.insert(key, open);
        self.waiting.push_back(key);
        self.send_waiting(cx);
    }

    /// A session is open: every call that is not on this connection goes out, the oldest first.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) {
        self.return_until = cx.now.after(RETURN);
        self.again.clear();
        self.waiting = self
            .calls
            .iter_mut()
            .filter(|(_, open)| open.id.is_none())
            .map(|(key, open)| {
                open.patient = true;
                *key
            })
            .collect();
        self.send_waiting(cx);
    }

    /// The connection is gone. What was on it waits for the next one.
    pub(crate) fn lost(&mut self, now: Now) {
        self.by_id.clear();
        self.again.clear();
        self.pace.go();
        for (key, open) in &mut self.calls {
            if open.again_at.take().is_none() && open.id.take().is_none() {
                continue;
            }
            open.resent = true;
            if open.spec.is_watch() {
                open.flow = Flow::new(&open.spec);
            }
            wait_anew(&mut self.deadlines, now, *key, open);
        }
    }

    /// The hub ends the connection, since more came for this agent than it took.
    pub(crate) fn cut(&mut self, cx: &mut Context<'_>) {
        self.pace.cut();
        // A session that lived is no part of a row of short ones.
        let in_a_row = cx.now < self.return_until;
        let mut too_often = Vec::new();
        for (key, open) in self.calls.iter_mut().filter(|(_, open)| open.id.is_some()) {
            open.cuts = if in_a_row { open.cuts + 1 } else { 1 };
            if open.cuts >= CUTS_MAX {
                too_often.push(*key);
            }
        }
        for key in too_often {
            let text = format!("more came at once than the hub holds, {CUTS_MAX} times in a row");
            self.fail(cx, key, Code::Known(ErrorCode::Overloaded), &text);
        }
    }

    fn send_waiting(&mut self, cx: &mut Context<'_>) {
        if !cx.ready {
            return;
        }
        while self.pace.at().is_none() && self.by_id.len() < cx.max_in_flight {
            let Some(key) = self.waiting.pop_front() else { break };
            self.send(cx, key);
        }
        if self.waiting.is_empty() {
            self.pace.caught_up();
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
        self.pace.sent(cx.now, open.cuts);
        cx.outbound.call(id, message);
        if open.withdrawn {
            // Behind its CALL, which the hub has to know first.
            cx.outbound.body(encode(&cancel(id), None));
        }
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
        for key in self.results.drain() {
            // The hub has the task, and goes on with it.
            let error = CallError::new(Code::Closed, message);
            cx.effects.push(Effect::Tell(key, CallEvent::Ended(Err(error))));
        }
    }

    fn remove(&mut self, key: CallKey) -> Option<Open> {
        let open = self.calls.remove(&key)?;
        self.deadlines.remove(&(open.deadline, key));
        self.deadlines.remove(&(open.deadline.after(GRACE), key));
        if let Some(id) = open.id {
            self.by_id.remove(&id);
            self.pace.go();
        } else if let Some(at) = open.again_at {
            self.again.remove(&(at, key));
        } else {
            self.waiting.retain(|waiting| *waiting != key);
        }
        Some(open)
    }

    /// Nobody waits any more. The call's end, which the hub will still send, is dropped when it comes.
    pub(crate) fn cancel(&mut self, cx: &mut Context<'_>, key: CallKey) {
        let Some(open) = self.remove(key) else {
            // Or it is a task that was stored before its caller let go, who does not know that yet.
            self.results.forget(key);
            return;
        };
        if let Some(id) = open.id
            && !cx.outbound.withdraw(id)
        {
            cx.outbound.control(encode(&Cancel { id, reason: None, wait: false }, None));
        }
        self.send_waiting(cx);
    }

    /// Nobody wants the result any more, but how it ends: what the provider answers to the cancelling.
    pub(crate) fn withdraw(&mut self, cx: &mut Context<'_>, key: CallKey) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        if std::mem::replace(&mut open.withdrawn, true) {
            return;
        }
        match open.id {
            // A provider may have it since before: it is asked for again, to learn its end.
            Some(id) if open.resent => cx.outbound.body(encode(&cancel(id), None)),
            None if open.resent => {}
            Some(id) if !cx.outbound.withdraw(id) => cx.outbound.control(encode(&cancel(id), None)),
            // It never left, or nobody was there to have it.
            Some(_) | None => {
                open.sent = false;
                self.fail(cx, key, Code::Known(ErrorCode::Cancelled), "cancelled before anybody had it");
                self.send_waiting(cx);
            }
        }
    }

    /// A task goes on, its handle is gone.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>, key: CallKey) {
        if !self.results.forget(key) {
            self.cancel(cx, key);
        }
    }

    /// A handle waits for the result of a task that was submitted elsewhere, or before.
    pub(crate) fn claim(&mut self, cx: &mut Context<'_>, key: CallKey, task_id: String) {
        self.results.claim(cx, key, task_id);
    }

    pub(crate) fn consumed(&mut self, cx: &mut Context<'_>, key: CallKey, n: u64, target: Option<&str>) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        if target.is_none() {
            open.flow.grant(n);
        }
        if let Some(id) = open.id {
            cx.outbound.control(encode(&Credit { id, n, target }, None));
        }
    }

    /// A task's result is in the program's hands.
    pub(crate) fn received(&mut self, cx: &mut Context<'_>, task_id: &str) {
        self.results.taken(cx, task_id);
    }

    /// A handle got its task's result from the inbox.
    pub(crate) fn moved(&mut self, key: CallKey, task_id: &str) {
        self.results.moved(key, task_id);
    }

    /// A task's result was in a handle that nobody has any more.
    pub(crate) fn returned(&mut self, cx: &mut Context<'_>, end: TaskEnd) {
        self.results.returned(cx, end);
    }

    pub(crate) fn on_accept(&mut self, cx: &mut Context<'_>, header: &Accept<'_>) {
        let Some(key) = self.by_id.get(&header.id).copied() else { return };
        let Some(open) = self.calls.get_mut(&key) else { return };
        let accepted = acceptance(header, &open.request_id);
        cx.effects.push(Effect::Tell(key, CallEvent::Accepted(accepted)));
        if let Some(task_id) = header.task_id.filter(|_| open.spec.is_task()) {
            // Stored: from here on it is the hub's affair. Its result comes by itself, on whatever connection; a
            // second CALL could begin a second task once the first one is forgotten.
            self.remove(key);
            self.results.wait(key, task_id);
            return self.send_waiting(cx);
        }
        open.accepted = true;
        open.call_id = header.call_id.map(str::to_owned).or(open.call_id.take());
        open.target = header.target.map(str::to_owned).or(open.target.take());
    }

    pub(crate) fn on_chunk(&mut self, cx: &mut Context<'_>, header: &Chunk<'_>, body: Option<Bytes>) {
        let Some(key) = self.by_id.get(&header.id).copied() else { return };
        let Some(open) = self.calls.get_mut(&key) else { return };
        open.accepted = true;
        let target = header.target.filter(|_| open.spec.is_fan_out());
        match open.flow.arrives(target, header.seq) {
            Arrival::Due => {}
            Arrival::Stale => {
                // Sent again after a reconnect. Its credit goes back, or the rest would never come.
                return cx.outbound.control(encode(&Credit { id: header.id, n: 1, target }, None));
            }
            Arrival::Gap(due) => {
                let text = format!("chunk {} came where {due} was due", header.seq);
                return match target {
                    Some(target) => self.break_off_target(cx, key, target, &text),
                    None => self.break_off(cx, key, Code::Interrupted, &text),
                };
            }
        }
        let payload =
            Payload { body: body.unwrap_or_default(), content_type: header.content_type.map(str::to_owned) };
        let target = header.target.map(str::to_owned);
        cx.effects.push(Effect::Tell(key, CallEvent::Chunk { seq: header.seq, target, payload }));
    }

    /// Ends one target's part of a fan-out here; the others go on.
    fn break_off_target(&mut self, cx: &mut Context<'_>, key: CallKey, target: &str, message: &str) {
        let Some(open) = self.calls.get_mut(&key) else { return };
        let mut error = open.error(Code::Interrupted, message);
        error.target = Some(target.to_owned());
        open.flow.end(target);
        let part = CallEvent::Part { target: Some(target.to_owned()), result: Err(error) };
        cx.effects.push(Effect::Tell(key, part));
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
        let key = header.id.and_then(|id| self.by_id.get(&id)).copied();
        if let Some(task_id) = header.task_id {
            return self.on_task_result(cx, key, task_id, header, body);
        }
        let Some(key) = key else { return };
        let Some(open) = self.calls.get_mut(&key) else { return };
        let fan_out = header.more || header.summary.is_some();
        let result = if status_ok(header.status) || header.summary.is_some() {
            Ok(reply(header, body, &open.request_id))
        } else {
            Err(open.failure(header))
        };
        if header.more {
            if header.target.is_some_and(|target| !open.flow.end(target)) {
                return;
            }
            let target = header.target.map(str::to_owned);
            cx.effects.push(Effect::Tell(key, CallEvent::Part { target, result }));
            return;
        }
        if let Err(error) = &result
            && self.holds_on(cx, key, error)
        {
            return self.send_waiting(cx);
        }
        let summary = if fan_out { header.summary } else { None };
        self.remove(key);
        cx.effects.push(Effect::Tell(key, CallEvent::Ended(result.map(|reply| (reply, summary)))));
        self.send_waiting(cx);
    }

    /// The result of a task: by the id of its CALL when that was a repetition of an ended one, else by its own name.
    fn on_task_result(
        &mut self,
        cx: &mut Context<'_>,
        key: Option<CallKey>,
        task_id: &str,
        header: &CallResult<'_>,
        body: Option<Bytes>,
    ) {
        let request_id = header.request_id.unwrap_or_default();
        let result = match status_ok(header.status) {
            true => Ok(reply(header, body, request_id)),
            false => Err(failure(header, request_id, Accepted::Unknown)),
        };
        if let Some(key) = key {
            self.remove(key);
        }
        self.results.arrive(cx, key, task_id, TaskEnd { task_id: task_id.to_owned(), result });
        self.send_waiting(cx);
    }

    /// Whether a failed call stays open, since it failed only because of a reconnect. Such failures say that no
    /// provider was given it, so nothing runs twice by asking again.
    fn holds_on(&mut self, cx: &Context<'_>, key: CallKey, error: &CallError) -> bool {
        let Some(open) = self.calls.get_mut(&key) else { return false };
        let Some(id) = open.id else { return false };
        if open.withdrawn || !error.attempts.is_empty() {
            return false;
        }
        if !cx.ready && error.code == ErrorCode::ShuttingDown && !open.accepted {
            // It crossed the hub's GOODBYE: the next connection carries it.
            open.id = None;
            self.by_id.remove(&id);
            wait_anew(&mut self.deadlines, cx.now, key, open);
            return true;
        }
        let nobody = error.code == ErrorCode::NoInstance || error.code == ErrorCode::NoCapability;
        let at = cx.now.after(open.wait_again());
        let in_budget = open.spec.budget.is_none() || at < open.deadline;
        if !(cx.ready && nobody && open.patient && at < self.return_until && in_budget) {
            return false;
        }
        open.asked_again += 1;
        open.id = None;
        open.again_at = Some(at);
        self.by_id.remove(&id);
        self.again.insert((at, key));
        true
    }

    /// The hub could not use our CALL, or sent an answer that cannot be read: that call ends, no other.
    pub(crate) fn on_fault(&mut self, cx: &mut Context<'_>, id: u64, code: Code, message: &str) {
        if let Some(key) = self.by_id.get(&id).copied() {
            self.break_off(cx, key, code, message);
        }
    }

    pub(crate) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.pace.passes(cx.now);
        while let Some((at, key)) = self.again.first().copied().filter(|(at, _)| *at <= cx.now) {
            self.again.remove(&(at, key));
            if let Some(open) = self.calls.get_mut(&key) {
                open.again_at = None;
                self.waiting.push_back(key);
            }
        }
        self.send_waiting(cx);
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
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let again = self.again.first().map(|(at, _)| *at);
        deadline.into_iter().chain(again).chain(self.pace.at()).min()
    }

    /// Calls that are on the present connection.
    pub(crate) fn on_wire(&self) -> usize {
        self.by_id.len()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
            && self.by_id.is_empty()
            && self.results.is_empty()
            && self.waiting.is_empty()
            && self.deadlines.is_empty()
            && self.again.is_empty()
    }
}

/// Nobody wants this call's result, but how it ends.
const fn cancel(id: u64) -> Cancel<'static> {
    Cancel { id, reason: None, wait: true }
}

/// Not on the wire any more: without a budget of its own a call has so long from now.
fn wait_anew(deadlines: &mut BTreeSet<(Now, CallKey)>, now: Now, key: CallKey, open: &mut Open) {
    if open.spec.budget.is_none() {
        deadlines.remove(&(open.deadline, key));
        open.deadline = now.after(open.patience());
        deadlines.insert((open.deadline, key));
    }
}
