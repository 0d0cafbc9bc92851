//! What a restart brings back: open tasks, who had them, who is owed results, and request ids.

use std::sync::Arc;

use agent_reach_protocol::{
    Call, CallMode, CallResult, ErrorCode, Policy, ResultStatus, ToHub, encode, read_to_hub,
};

use super::{TASK_BYTES, Task};
use crate::calls::{Asker, Ended, Failure, LegState, Stage, Tried, is_fan_out};
use crate::effects::{Effects, Outcome};
use crate::fingerprint::Fingerprint;
use crate::hub::{Hub, Turn};
use crate::routing::{Choice, Note};
use crate::store::{Change, Holder, OpenTask, TaskEnd, TaskState};
use crate::time::Now;

impl Hub {
    /// Takes an open task over from an earlier life of the hub, before anybody connects. What cannot be read any more
    /// ends as `internal`.
    pub fn restore_task(&mut self, now: Now, open: OpenTask, effects: &mut Effects) {
        let turn = &mut Turn { now, fx: effects };
        let OpenTask { task, moved } = &open;
        let read = read_to_hub(&task.call, None);
        let Ok((ToHub::Call(asking), body)) = read else { return self.end_unreadable(turn, &open) };
        if asking.mode != Some(CallMode::Task) || is_fan_out(&asking) {
            return self.end_unreadable(turn, &open);
        }
        let asker = Asker {
            key: usize::MAX,
            serial: 0,
            agent: Arc::clone(&task.agent),
            identity: Arc::clone(&task.identity),
        };
        let fingerprint = Fingerprint::from_bits(task.fingerprint);
        let asking = Call { request_id: Some(&task.request_id), ..asking };
        let bytes = task.call.len();
        let note = Note::new(asking.policy.unwrap_or(Policy::LeastLoaded));
        let index = self.open_call(turn, asker, &asking, &task.capability, bytes, fingerprint, note);
        self.keep_asked(index, &asking, body);
        let Some(call) = self.calls.get_mut(index) else { return };
        call.listeners.clear();
        call.keep_ms = task.keep_until.saturating_sub(task.created);
        let cost = call.given.len() + TASK_BYTES;
        let own = Task {
            id: task.id,
            text: task.id.to_string().into(),
            identity: Arc::clone(&task.identity),
            state: moved.state,
            stored: true,
            earlier: usize::try_from(moved.attempt).unwrap_or(usize::MAX),
            created: task.created,
            updated: moved.at,
            reply_to: task.reply_to.clone(),
            callback: task.callback_url.is_some(),
            bytes: cost,
            retry_of: task.retry_of,
        };
        self.tasks.enter(&own, index);
        call.task = Some(Box::new(own));
        let budget_at = self.moment(task.budget_until);
        let Some(call) = self.calls.get_mut(index) else { return };
        call.budget_at = budget_at;
        call.wait_until = budget_at;
        self.tasks.moved(None, Some(moved.state));
        if budget_at <= now {
            let failure = Failure::new(ErrorCode::BudgetExhausted, "the total budget of the task is spent");
            return self.settle(turn, index, failure);
        }
        match &moved.holder {
            None => self.try_now_or_wait(turn, index, None),
            Some(holder) => self.await_holder(turn, index, holder.clone()),
        }
    }

    /// A stored CALL cannot be read any more: the task ends, and says so.
    fn end_unreadable(&mut self, turn: &mut Turn<'_>, open: &OpenTask) {
        let OpenTask { task, moved } = open;
        let failure = Failure::new(ErrorCode::Internal, "the stored CALL of the task cannot be read");
        let text = task.id.to_string();
        let result = CallResult {
            request_id: Some(&task.request_id),
            task_id: Some(&text),
            error: Some(failure.entry()),
            ..CallResult::of(ResultStatus::Failed)
        };
        let at = self.unix(turn.now);
        let end = TaskEnd {
            task: task.id,
            at,
            outcome: ErrorCode::Internal.as_str(),
            attempt: moved.attempt,
            expires: at.saturating_add(self.settings.task_keep_ms),
            keep_until: at.saturating_add(self.settings.task_keep_ms),
            end: encode(&result, None),
        };
        self.change(turn, Change::Ended(Box::new(end)));
        self.tasks.owed.insert(Arc::clone(&task.agent));
    }

    /// Notes that the store keeps results for an agent.
    pub fn restore_owed(&mut self, agent: Arc<str>) {
        self.tasks.owed.insert(agent);
    }

    /// Notes that the store keeps a request id, until this moment in milliseconds since the Unix epoch.
    pub fn restore_key(&mut self, now: Now, identity: &str, request_id: &str, until: u64) {
        let until = self.moment(until);
        if until > now {
            self.memory.is_elsewhere(identity, request_id, until);
            self.sweep_later(now);
        }
    }

    /// An agent had a task, and may come back with it.
    fn await_holder(&mut self, turn: &mut Turn<'_>, index: usize, holder: Holder) {
        let until = turn.now.plus_ms(self.settings.return_ms);
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(task) = call.task.as_ref().map(|task| task.id) else { return };
        self.tasks.returning.entry(Arc::clone(&holder.agent)).or_default().push(task);
        call.stage = Stage::Returning { holder: Box::new(holder) };
        let until = until.min(call.budget_at);
        self.set_call_timer(index, until);
    }

    /// An agent registered: it is given what it had in an earlier life of the hub, if it is still the same process.
    ///
    /// At once, whether the store can be written or not: that it has the task is written already. Its slots are taken
    /// by its work, so nobody else may have them meanwhile.
    pub(crate) fn give_back(&mut self, turn: &mut Turn<'_>, key: usize) {
        if self.tasks.returning.is_empty() || self.draining.is_some() {
            return;
        }
        let Some(agent) = self.registry.agents.get(key) else { return };
        let (id, instance) = (Arc::clone(&agent.id), agent.instance.clone());
        for task in self.tasks.returning.remove(&id).unwrap_or_default() {
            let Some(index) = self.tasks.find(task) else { continue };
            let Some(call) = self.calls.get(index) else { continue };
            let Stage::Returning { holder } = call.stage.clone() else { continue };
            // What it has is what it was asked for then, whatever the name that was called leads to now.
            let name = holder.capability.as_deref().unwrap_or_else(|| self.policy.resolve(&call.capability));
            let agent = self.registry.agents.get(key);
            let offers = agent.zip(self.registry.names.get(name));
            let offer = offers
                .and_then(|(agent, (name, _))| agent.offers.iter().position(|offer| offer.answers_to(name)));
            match offer {
                Some(offer) if *holder.instance == *instance => {
                    let load = agent.map_or((0, 0), |agent| (agent.in_flight, agent.max_concurrency));
                    let choice = Choice { agent: key, offer, load, weight: 0.0 };
                    self.note_lost(turn, index, &holder);
                    self.give_stored(turn, index, choice);
                    self.is_at_work(turn, index);
                }
                // Another life of the process has lost it, or it does not do this any more.
                _ => self.lost_in_restart(turn, index, &holder),
            }
        }
    }

    /// Who was given a task in an earlier life of the hub counts as having accepted it then, whatever comes of this try,
    /// for which nothing has to be written first.
    fn is_at_work(&mut self, turn: &mut Turn<'_>, index: usize) {
        let Some(place) = self.calls.get(index).and_then(|call| call.legs.iter().next()) else { return };
        let Some(leg) = self.legs.get_mut(place) else { return };
        leg.accepted_at = Some(turn.now);
        if matches!(leg.state, LegState::Booked(_)) {
            self.give_written(turn, index, place);
        }
    }

    /// Who had a task when the hub ended did not come back in time.
    pub(crate) fn holder_is_lost(&mut self, turn: &mut Turn<'_>, index: usize, holder: &Holder) {
        // Nobody of that agent is waited for any longer than this one was.
        self.tasks.returning.remove(&holder.agent);
        self.lost_in_restart(turn, index, holder);
    }

    /// The try that the hub's end interrupted is one of the task's attempts.
    fn note_lost(&mut self, turn: &Turn<'_>, index: usize, holder: &Holder) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.attempts.push(Tried {
            target: Arc::clone(&holder.agent),
            outcome: Outcome::Failed(ErrorCode::AgentLost),
            ms: turn.now.ms_since(call.started),
            reason: "the hub was restarted".into(),
        });
        if let Some(task) = &mut call.task {
            // It is in the list now.
            task.earlier = task.earlier.saturating_sub(1);
        }
    }

    fn lost_in_restart(&mut self, turn: &mut Turn<'_>, index: usize, holder: &Holder) {
        self.note_lost(turn, index, holder);
        let target = &holder.agent;
        let Some(call) = self.calls.get_mut(index) else { return };
        call.stage = Stage::Given;
        let received = call.task.as_ref().is_some_and(|task| task.state > TaskState::Queued);
        let retryable = holder.idempotent;
        let message = match (retryable, received) {
            (true, _) => format!("agent {target} did not come back after a restart of the hub"),
            (false, true) => format!(
                "agent {target} did not come back after a restart of the hub; it had accepted, so the outcome is unknown"
            ),
            (false, false) => format!(
                "agent {target} did not come back after a restart of the hub; whether it had accepted is unknown"
            ),
        };
        let failure = Failure { retryable, ..Failure::new(ErrorCode::AgentLost, message) };
        call.tiers.last = Some(Box::new(failure.clone()));
        self.clear_call_timer(index);
        if retryable && self.queue_again(turn, index) {
            return;
        }
        self.finish(turn, index, Some(target), None, &Ended::failed(failure));
    }
}
