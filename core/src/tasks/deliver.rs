//! Results come home: to the caller's agent wherever it now is, again after each reconnect and every so often, until
//! it says that it has them.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_protocol::{ErrorCode, Kind, Receipt};
use bytes::Bytes;

use super::questions::Waits;
use super::writing::After;
use crate::hub::{Complaint, Hub, Turn};
use crate::session::Lane;
use crate::store::{Change, Question, TaskId};
use crate::time::{Now, Timer};

/// Most results that one agent is sent without having confirmed any.
const UNCONFIRMED_MAX: usize = 256;
/// Most results that are read from the store at once for one agent, and about the most bytes of them.
const PAGE: (usize, usize) = (32, 256 * 1024);
/// While more than this waits for an agent to take, it is sent no further page.
const AHEAD_BYTES: usize = 512 * 1024;

/// What one agent that is here was sent.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Not confirmed.
    sent: BTreeSet<TaskId>,
    /// The store may have more for it, behind this one.
    more: Option<Option<TaskId>>,
    /// The question that the store is being asked.
    asking: Option<u64>,
    timer_at: Now,
}

impl Hub {
    /// Sends the end of a task to an agent that is here, without an id. `false`: it has no room for it now.
    pub(super) fn deliver(&mut self, turn: &mut Turn<'_>, key: usize, task: TaskId, end: &Bytes) -> bool {
        let Some(ahead) = self.ahead_of(key) else { return false };
        let own = self.tasks.deliveries.entry(key).or_default();
        if own.sent.len() >= UNCONFIRMED_MAX || ahead >= AHEAD_BYTES {
            // It is read from the store when there is room: results must not make a slow consumer of anybody.
            own.more.get_or_insert(None);
            self.look_again(turn, key);
            return false;
        }
        self.send_to_agent(turn, key, Kind::Result, Lane::Data, end.clone());
        self.sent_to(turn, key, task);
        true
    }

    /// Notes that an agent was sent the end of a task.
    pub(super) fn sent_to(&mut self, turn: &Turn<'_>, key: usize, task: TaskId) {
        let own = self.tasks.deliveries.entry(key).or_default();
        if own.sent.len() < UNCONFIRMED_MAX {
            own.sent.insert(task);
        }
        self.look_again(turn, key);
    }

    /// Arranges for the next look at what an agent has not confirmed.
    fn look_again(&mut self, turn: &Turn<'_>, key: usize) {
        let at = turn.now.plus_ms(self.settings.redeliver_ms);
        if let Some(own) = self.tasks.deliveries.get_mut(&key)
            && own.timer_at == Now::default()
        {
            own.timer_at = at;
            self.timers.set(at, Timer::Delivery(key));
        }
    }

    /// How much waits for an agent to take; `None` when it is not here.
    fn ahead_of(&self, key: usize) -> Option<usize> {
        let connection = self.registry.agents.get(key)?.session?;
        self.session(connection).map(|session| session.outbound.bytes())
    }

    /// An agent is here: what the store keeps for it is sent.
    pub(crate) fn start_deliveries(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        if self.tasks.owed.contains(&agent.id) {
            self.ask_owed(turn, key, None);
        }
    }

    fn ask_owed(&mut self, turn: &mut Turn<'_>, key: usize, after: Option<TaskId>) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        let agent = Arc::clone(&agent.id);
        let own = self.tasks.deliveries.entry(key).or_default();
        if own.asking.is_some() {
            return;
        }
        own.more = None;
        let question = Question::Owed { agent: Arc::clone(&agent), after, most: PAGE };
        let number = self.question(turn, question, Waits::Owed(agent));
        if let Some(own) = self.tasks.deliveries.get_mut(&key) {
            own.asking = Some(number);
        }
    }

    /// The store has written that an agent has the end of a task. What it was asked before it may answer from before.
    pub(super) fn confirmation_written(&mut self, agent: Arc<str>, task: TaskId) {
        let key = self.registry.find(&agent);
        let own = key.and_then(|key| self.tasks.deliveries.get(&key));
        if own.is_some_and(|own| own.asking.is_some()) {
            self.tasks.confirmed.insert((agent, task), true);
        } else {
            self.tasks.confirmed.remove(&(agent, task));
        }
    }

    /// No question of an agent's is open that was asked before what is written now.
    fn settle_confirmed(&mut self, agent: &Arc<str>) {
        let first = (Arc::clone(agent), TaskId::from_bits(0));
        let own = self.tasks.confirmed.range(first..).take_while(|((of, _), _)| of == agent);
        let written: Vec<_> =
            own.filter(|(_, written)| **written).map(|(confirmed, _)| confirmed.clone()).collect();
        for confirmed in written {
            self.tasks.confirmed.remove(&confirmed);
        }
    }

    /// The store says what an agent is owed.
    pub(super) fn deliver_owed(&mut self, turn: &mut Turn<'_>, agent: &Arc<str>, ends: Vec<(TaskId, Bytes)>) {
        let Some(key) = self.registry.find(agent) else { return };
        let Some(own) = self.tasks.deliveries.get_mut(&key) else { return };
        own.asking = None;
        if ends.is_empty() {
            self.settle_confirmed(agent);
            let Some(own) = self.tasks.deliveries.get(&key) else { return };
            if own.sent.is_empty() && own.more.is_none() {
                self.tasks.owed.remove(agent);
                self.forget_delivery(key);
            }
            return self.deliver_more(turn, key);
        }
        for (task, end) in ends {
            let sent = self.tasks.deliveries.get(&key).is_some_and(|own| own.sent.contains(&task));
            let has_it = sent || self.tasks.confirmed.contains_key(&(Arc::clone(agent), task));
            if !has_it && !self.deliver(turn, key, task, &end) {
                break;
            }
            if let Some(own) = self.tasks.deliveries.get_mut(&key) {
                own.more = Some(Some(task));
            }
        }
        self.settle_confirmed(agent);
        self.deliver_more(turn, key);
    }

    /// The store cannot say now what an agent is owed: the next look comes with the timer.
    pub(super) fn owed_later(&mut self, turn: &Turn<'_>, agent: &Arc<str>) {
        let Some(key) = self.registry.find(agent) else { return };
        let Some(own) = self.tasks.deliveries.get_mut(&key) else { return };
        own.asking = None;
        self.settle_confirmed(agent);
        let Some(own) = self.tasks.deliveries.get_mut(&key) else { return };
        own.more = Some(None);
        self.look_again(turn, key);
    }

    /// Asks for the next page, if there may be one and the agent keeps up.
    fn deliver_more(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(own) = self.tasks.deliveries.get(&key) else { return };
        let Some(after) = own.more else { return };
        let keeps_up = self.ahead_of(key).is_some_and(|ahead| ahead < AHEAD_BYTES);
        if own.sent.len() + PAGE.0 <= UNCONFIRMED_MAX && keeps_up {
            self.ask_owed(turn, key, after);
        }
    }

    /// What was sent and not confirmed is due again.
    pub(crate) fn on_delivery_timer(&mut self, turn: &mut Turn<'_>, key: usize) {
        let keeps_up = self.ahead_of(key).is_some_and(|ahead| ahead < AHEAD_BYTES);
        let Some(own) = self.tasks.deliveries.get_mut(&key) else { return };
        own.timer_at = Now::default();
        if own.asking.is_some() {
            // What the store is about to say must not come to nobody.
            return self.look_again(turn, key);
        }
        if own.sent.is_empty() && own.more.is_none() {
            return self.forget_delivery(key);
        }
        self.look_again(turn, key);
        if keeps_up && let Some(own) = self.tasks.deliveries.get_mut(&key) {
            // All of it is said again, from the store.
            own.sent.clear();
            self.ask_owed(turn, key, None);
        }
    }

    pub(crate) fn on_receipt(&mut self, turn: &mut Turn<'_>, key: usize, receipt: &Receipt<'_>) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        let Ok(task) = receipt.task_id.parse() else {
            let Some(connection) = agent.session else { return };
            let complaint = Complaint {
                kind: Kind::Receipt.number(),
                id: None,
                code: ErrorCode::InvalidRequest,
                message: "task_id names no task",
                field: Some("task_id"),
            };
            return self.complain(turn, connection, &complaint);
        };
        let agent = Arc::clone(&agent.id);
        let at = self.unix(turn.now);
        let own = self.tasks.deliveries.get_mut(&key);
        // Only what was sent is confirmed: nobody can have the store written to for nothing.
        if own.is_some_and(|own| own.sent.remove(&task)) {
            self.tasks.confirmed.insert((Arc::clone(&agent), task), false);
            let change = Change::Receipt { task, agent: Arc::clone(&agent), at };
            self.change_then(turn, change, After::Confirmed(agent, task));
            self.deliver_more(turn, key);
        } else {
            self.counters.late += 1;
        }
    }

    /// An agent is gone from its connection.
    pub(crate) fn stop_deliveries(&mut self, key: usize) {
        self.forget_delivery(key);
    }

    fn forget_delivery(&mut self, key: usize) {
        let Some(own) = self.tasks.deliveries.remove(&key) else { return };
        if own.timer_at != Now::default() {
            self.timers.clear(own.timer_at, Timer::Delivery(key));
        }
        // An answer that comes late says nothing of a later connection.
        if let Some(number) = own.asking {
            self.forget_question(number);
            if let Some(agent) = self.registry.agents.get(key).map(|agent| Arc::clone(&agent.id)) {
                self.settle_confirmed(&agent);
            }
        }
    }
}
