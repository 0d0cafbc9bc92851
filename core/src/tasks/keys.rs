//! Request ids that the store keeps: of tasks, and of calls that are to be known for long.

use std::sync::Arc;

use agent_reach_protocol::{
    Accept, Call as Asking, CallMode, Kind, ToHub, encode, limits, names, read_to_hub,
};
use bytes::Bytes;

use super::questions::{Waiter, Waits};
use crate::calls::{Call, Failure, LISTENERS_MAX, Listener, Refusal};
use crate::effects::{DedupeOutcome, Fact};
use crate::fingerprint::Fingerprint;
use crate::hub::{Hub, Turn};
use crate::idempotency::Ends;
use crate::registry::Asked;
use crate::rows::{TaskRow, Whose};
use crate::session::Lane;
use crate::settings::Durable;
use crate::store::{Change, Kept, KeptCall, Question, TaskId};
use crate::time::Now;

impl Hub {
    /// Has the end of a call written, if it is to be known for long: the number of that change.
    pub(crate) fn store_call(
        &mut self,
        turn: &mut Turn<'_>,
        call: &Call,
        ends: &Ends,
        until: Now,
    ) -> Option<u64> {
        let durable = match self.settings.durable {
            Durable::Tasks => false,
            Durable::Keyed => call.keep_ms > limits::KEEP_MS_MADE,
            Durable::All => true,
        };
        if !durable || !self.settings.store || !self.tasks.writable {
            return None;
        }
        let (identity, fingerprint) = self.memory.asked(call.entry)?;
        let kept = KeptCall {
            identity,
            request_id: Arc::clone(&call.request_id),
            fingerprint: fingerprint.bits(),
            until: self.unix(until),
            ends: ends.to_vec(),
        };
        Some(self.change(turn, Change::Call(Box::new(kept))))
    }

    /// A request id that only the store may know: the CALL waits for what it says.
    pub(crate) fn look_elsewhere(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        message: &Bytes,
    ) -> Result<(), Refusal> {
        let Some(agent) = self.registry.agents.get(key) else { return Ok(()) };
        let question = Question::Key {
            identity: Arc::clone(&agent.identity),
            request_id: asking.request_id.unwrap_or_default().into(),
            now: self.unix(turn.now),
        };
        let message = Bytes::copy_from_slice(message);
        self.ask_store(turn, key, asking, question, |waiter| Waits::Key(waiter, message))?;
        self.memory.elsewhere.asks(self.tasks.questions.latest());
        Ok(())
    }

    /// The store knows a request id, or does not any more: then the CALL is a new one.
    pub(super) fn on_key(
        &mut self,
        turn: &mut Turn<'_>,
        waiter: &Waiter,
        message: &Bytes,
        kept: Option<Kept>,
    ) {
        let Some(agent) = self.registry.agents.get(waiter.key) else { return };
        let identity = Arc::clone(&agent.identity);
        // It was read once already.
        let Ok((ToHub::Call(asking), body)) = read_to_hub(message, None) else { return };
        let Some(kept) = kept else {
            self.memory.is_nowhere(&identity, &waiter.request_id);
            return self.on_new_call(turn, waiter.key, &asking, message, body);
        };
        let fingerprint = Fingerprint::of(&names::fold(asking.capability), body);
        let is_task = asking.mode == Some(CallMode::Task);
        let fingerprint = if is_task { fingerprint.of_task() } else { fingerprint };
        let outcome = if kept.fingerprint != fingerprint.bits() {
            turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Conflict));
            Err(Self::conflict(&waiter.request_id))
        } else {
            turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Replayed));
            match kept.task {
                Some(task) => self.replay_task(turn, waiter.key, &asking, task),
                None => {
                    self.replay(turn, waiter.key, waiter.id, &kept.ends.into(), true);
                    Ok(())
                }
            }
        };
        if let Err(refusal) = outcome {
            self.fail_waiter(turn, waiter, &refusal);
        }
    }

    /// A CALL repeats a task that has ended: its end is read from the store.
    pub(crate) fn replay_task(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        task: TaskId,
    ) -> Result<(), Refusal> {
        let Some(agent) = self.registry.agents.get(key) else { return Ok(()) };
        let question = Question::Task { whose: Whose::One(Arc::clone(&agent.identity)), task };
        self.ask_store(turn, key, asking, question, Waits::Replay)
    }

    /// A CALL waits for the end of a task that the store has not seen ending.
    fn listen(&mut self, waiter: &Waiter, task: TaskId) {
        let listener = Listener { agent: waiter.key, id: waiter.id };
        let open = self.tasks.find(task);
        if let Some(ended) = self.ending_task(task).filter(|ended| ended.listeners.len() < LISTENERS_MAX) {
            ended.listeners.push((waiter.connection, waiter.key, waiter.id));
        } else if let Some(index) = open
            && let Some(call) = self.calls.get_mut(index).filter(|call| call.listeners.len() < LISTENERS_MAX)
        {
            call.listeners.push(listener);
            if let Some(agent) = self.registry.agents.get_mut(waiter.key) {
                agent.asked.insert(waiter.id, Asked::Call(index));
                agent.tasks += 1;
            }
        }
    }

    pub(super) fn on_replay(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, row: Option<&TaskRow>) {
        let Some(row) = row else {
            let failure = Failure::overloaded("the end of this task is not kept any more");
            return self.fail_waiter(turn, waiter, &failure.into());
        };
        match &row.end {
            Some(end) => {
                self.send_end(turn, waiter.key, waiter.id, end, true);
                self.sent_to(turn, waiter.key, row.id);
            }
            None if self.ask_once_more(turn, waiter, row, Waits::Replay) => {}
            None => {
                self.listen(waiter, row.id);
                let number = self.number();
                let call_id = self.call_id(number);
                let task_id = row.id.to_string();
                let accept = Accept {
                    request_id: Some(&row.request_id),
                    call_id: Some(&call_id),
                    task_id: Some(&task_id),
                    ..Accept::of(waiter.id)
                };
                let message = encode(&accept, None);
                self.send_to_agent(turn, waiter.key, Kind::Accept, Lane::Control, message);
            }
        }
    }
}
