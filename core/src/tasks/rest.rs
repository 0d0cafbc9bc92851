//! Tasks at rest: nobody is given one while the hub drains, or while the store cannot be written, so that none holds a
//! slot that calls could have.

use super::Tasks;
use crate::calls::{LegState, Stage};
use crate::hub::{Hub, Turn};

/// How many tasks that rested look for who can take them in each millisecond: a long backlog must not hold up calls.
const AWAKE_PER_MS: u64 = 50;

impl Hub {
    /// Whether nobody is given a task now.
    pub(crate) const fn tasks_rest(&self) -> bool {
        self.draining.is_some() || !self.tasks.writable
    }

    /// Takes tasks out of their lines, and out of the slots that they have not begun to use.
    pub(crate) fn rest_tasks(&mut self, turn: &mut Turn<'_>) {
        for index in self.waiting.all() {
            if self.calls.get(index).is_some_and(|call| call.task.is_some()) {
                self.stop_waiting(index);
                self.rest_task(index);
            }
        }
        let booked = self.legs.iter().filter(|(_, leg)| matches!(leg.state, LegState::Booked(_)));
        let booked: Vec<(usize, Option<usize>)> = booked.map(|(index, leg)| (index, leg.call)).collect();
        for (leg, call) in booked {
            let Some(index) = call else {
                self.free_leg(turn, leg);
                continue;
            };
            self.unbook(turn, index, leg);
            self.rest_task(index);
        }
    }

    /// Leaves a task that has no leg as it is. `false`: it is a call.
    pub(crate) fn rest_task(&mut self, index: usize) -> bool {
        let Some(call) = self.calls.get_mut(index).filter(|call| call.task.is_some()) else { return false };
        call.stage = Stage::Later;
        let budget_at = call.budget_at;
        self.set_call_timer(index, budget_at);
        true
    }

    /// The store can be written, or cannot.
    pub(super) fn on_writable(&mut self, turn: &mut Turn<'_>, writable: bool) {
        if std::mem::replace(&mut self.tasks.writable, writable) == writable {
            return;
        }
        if !writable {
            return self.rest_tasks(turn);
        }
        if self.draining.is_some() {
            return;
        }
        let resting =
            self.tasks.by_id.values().copied().filter(|index| {
                self.calls.get(*index).is_some_and(|call| matches!(call.stage, Stage::Later))
            });
        for (number, index) in (0..).zip(resting.collect::<Vec<_>>()) {
            let Some(budget_at) = self.calls.get(index).map(|call| call.budget_at) else { continue };
            self.set_call_timer(index, turn.now.plus_ms(1 + number / AWAKE_PER_MS).min(budget_at));
        }
    }

    /// The hub stops at once: open tasks are left as the store has them, whatever becomes of connections.
    pub(crate) fn leave_tasks(&mut self, turn: &mut Turn<'_>) {
        let open: Vec<usize> = self.tasks.by_id.values().copied().collect();
        for index in open {
            self.stop_waiting(index);
            self.clear_call_timer(index);
            let Some(call) = self.calls.try_remove(index) else { continue };
            for leg in call.legs.to_row() {
                if let Some(leg) = self.legs.get_mut(leg) {
                    leg.call = None;
                }
                self.free_leg(turn, leg);
            }
            self.memory.remove(call.entry);
            for listener in call.listeners {
                if let Some(agent) = self.registry.agents.get_mut(listener.agent) {
                    agent.asked.remove(&listener.id);
                    agent.tasks = agent.tasks.saturating_sub(1);
                }
            }
        }
        for key in self.tasks.deliveries.keys().copied().collect::<Vec<_>>() {
            self.stop_deliveries(key);
        }
        // What still is written has its numbers, and who waits for an answer is told with its connection's end.
        let Tasks { changes, questions, .. } = std::mem::take(&mut self.tasks);
        self.tasks = Tasks { changes, questions, ..Tasks::default() };
    }
}
