//! Who has a task: written before it is given, so that no restart gives it to a second agent.

use std::sync::Arc;

use agent_reach_protocol::{ToAgent, decode_to_agent};

use super::writing::After;
use crate::calls::{Carried, Copies, LegState, Stage};
use crate::hub::{Hub, Turn};
use crate::store::{Change, Holder, Moved, TaskId, TaskState};

/// How soon a task that found no room to wait in tries again, in milliseconds.
const LATER_MS: u64 = 1000;

impl Hub {
    /// The store hears where an open task stands. `leg`: who has it; `None`: nobody.
    fn moved(&mut self, turn: &Turn<'_>, call_index: usize, leg: Option<usize>) -> Option<Moved> {
        let at = self.unix(turn.now);
        let call = self.calls.get_mut(call_index)?;
        let task = call.task.as_mut()?;
        task.updated = at;
        let leg = leg.and_then(|leg| self.legs.get(leg));
        let holder = leg.and_then(|leg| {
            let agent = self.registry.agents.get(leg.agent)?;
            Some(Holder {
                agent: Arc::clone(&agent.id),
                instance: (&*agent.instance).into(),
                capability: Some(Arc::clone(&leg.capability)),
                idempotent: leg.idempotent,
            })
        });
        let tries = u32::try_from(task.earlier + call.attempts.len()).unwrap_or(u32::MAX);
        let attempt = leg.map_or(tries, |leg| leg.attempt);
        Some(Moved { task: task.id, at, state: task.state, attempt, holder })
    }

    /// A leg of a task has its slot, and waits for the store to know of it.
    pub(crate) fn book(&mut self, turn: &mut Turn<'_>, index: usize) {
        let Some(call_index) = self.legs.get(index).and_then(|leg| leg.call) else { return };
        let Some(budget_at) = self.calls.get(call_index).map(|call| call.budget_at) else { return };
        let Some(moved) = self.moved(turn, call_index, Some(index)) else { return };
        let after = After::Give { task: moved.task, leg: index };
        let number = self.change_then(turn, Change::Moved(moved), after);
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.state = LegState::Booked(number);
        // On no connection yet: lost with its agent, as what an earlier connection had.
        if let Some(agent) = self.registry.agents.get_mut(leg.agent) {
            agent.orphaned.push(index);
        }
        self.set_leg_deadline(index, budget_at);
    }

    /// The store has written who is given the task. The change tells this booking from a later one of the same task, which
    /// may stand in the same place and be the same try.
    pub(super) fn give_booked(&mut self, turn: &mut Turn<'_>, task: TaskId, index: usize, change: u64) {
        let Some(call_index) = self.tasks.find(task) else { return };
        let Some(leg) = self.legs.get_mut(index) else { return };
        if leg.call != Some(call_index) || leg.state != LegState::Booked(change) {
            return;
        }
        // What was written while the disk took its time may be the choice of another moment.
        if let Err(failure) = self.still_allowed(call_index) {
            self.unbook(turn, call_index, index);
            return self.settle(turn, call_index, failure);
        }
        if !self.takes_still(index) {
            self.unbook(turn, call_index, index);
            return self.try_now_or_wait(turn, call_index, None);
        }
        self.give_written(turn, call_index, index);
    }

    /// Whether an agent would still be chosen for what it was booked for.
    fn takes_still(&self, index: usize) -> bool {
        let Some(leg) = self.legs.get(index) else { return false };
        let agent = self.registry.agents.get(leg.agent);
        agent.is_some_and(|agent| {
            agent.takes_work()
                && !agent.suspect
                && agent.offers.iter().any(|offer| offer.answers_to(&leg.capability))
        })
    }

    /// A leg that waits for the store gives its slot back; the task is nobody's.
    pub(super) fn unbook(&mut self, turn: &mut Turn<'_>, call_index: usize, leg: usize) {
        self.free_leg(turn, leg);
        if let Some(call) = self.calls.get_mut(call_index) {
            call.legs.remove(leg);
            call.open = 0;
        }
        self.nobody_has(turn, call_index);
    }

    /// The store knows that the agent of a leg has the task: its CALL leaves.
    pub(super) fn give_written(&mut self, turn: &mut Turn<'_>, call_index: usize, index: usize) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.state = LegState::Given;
        let Some(agent) = self.registry.agents.get_mut(leg.agent) else { return };
        if agent.session.is_none() {
            // It has it when it comes back.
            return;
        }
        agent.orphaned.retain(|other| *other != index);
        let Some(call) = self.calls.get(call_index) else { return };
        let (given, cancelling) = (call.given.clone(), call.cancelling);
        // The hub wrote it, so it reads.
        if let Ok((ToAgent::Call(before), body)) = decode_to_agent(&given) {
            let carried = Carried::again(&before);
            self.dispatch(turn, index, &carried, body.as_deref(), &mut Copies::default());
        }
        if cancelling {
            self.send_cancel(turn, index, "the caller cancelled");
        }
    }

    /// A provider that came back was given its task again.
    pub(crate) fn held_again(&mut self, turn: &mut Turn<'_>, index: usize) {
        let Some(call_index) = self.legs.get(index).and_then(|leg| leg.call) else { return };
        if let Some(moved) = self.moved(turn, call_index, Some(index)) {
            self.change(turn, Change::Moved(moved));
        }
    }

    /// An agent says how far it is with a task.
    pub(crate) fn task_moves(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        call_index: usize,
        state: TaskState,
    ) {
        let Some(task) = self.calls.get_mut(call_index).and_then(|call| call.task.as_mut()) else { return };
        if task.state >= state {
            return;
        }
        let before = std::mem::replace(&mut task.state, state);
        self.tasks.moved(Some(before), Some(state));
        if let Some(moved) = self.moved(turn, call_index, Some(index)) {
            self.change(turn, Change::Moved(moved));
        }
        let event = if state == TaskState::Received { "task.received" } else { "task.processing" };
        self.announce_task(turn, call_index, event);
    }

    /// A piece of a task's stream: a sign of life, shown to who watches. The hub reads all of it.
    pub(crate) fn task_progress(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        call_index: usize,
        body: Option<&[u8]>,
    ) {
        self.task_moves(turn, index, call_index, TaskState::Processing);
        self.announce_progress(turn, call_index, body);
        self.grant(turn, index, 1);
    }

    /// The last try of a task is over, and there will be another; of a call that is no task, nothing. Not to be said of a task
    /// that is not tried again: a hub that ends before the end is written as well would leave it to the next one as nobody's.
    pub(crate) fn nobody_has(&mut self, turn: &mut Turn<'_>, call_index: usize) {
        let Some(task) = self.calls.get_mut(call_index).and_then(|call| call.task.as_mut()) else { return };
        let before = std::mem::replace(&mut task.state, TaskState::Queued);
        self.tasks.moved(Some(before), Some(TaskState::Queued));
        if let Some(moved) = self.moved(turn, call_index, None) {
            self.change(turn, Change::Moved(moved));
        }
        if before != TaskState::Queued {
            self.announce_task(turn, call_index, "task.queued");
        }
    }

    /// Lets a task that its agent was lost with wait for whoever can take it, for one of its further tries. `false`:
    /// it has none left.
    pub(crate) fn queue_again(&mut self, turn: &mut Turn<'_>, call_index: usize) -> bool {
        let Some(call) = self.calls.get_mut(call_index) else { return false };
        if call.tiers.retries == 0 {
            return false;
        }
        call.tiers.retries -= 1;
        call.tiers.used = true;
        self.nobody_has(turn, call_index);
        self.try_now_or_wait(turn, call_index, None);
        true
    }

    /// A task found no room to wait in.
    pub(crate) fn try_later(&mut self, turn: &Turn<'_>, call_index: usize) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.stage = Stage::Later;
        let at = turn.now.plus_ms(LATER_MS).min(call.budget_at);
        self.set_call_timer(call_index, at);
    }
}
