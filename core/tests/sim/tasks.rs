//! Tasks: what is known of each by what the hub has written and said, and what has to hold of it, through crashes too.

use std::collections::BTreeMap;

use agent_reach_core::{Change, ConnectionId, Moved, NewTask, Now, StoreNews, TaskEnd, TaskId, TaskState};
use agent_reach_protocol::codec::{Value, read_one};
use agent_reach_protocol::{
    Accept, CallResult, Receipt, ToAgent, ToHub, decode_to_agent, encode, read_to_hub,
};

use bytes::Bytes;

use super::Sim;
use super::callers::NUMBER;
use super::model::{Event, Given, Intent, On};
use super::store::ANSWER_MAX_MS;
use super::tries::Try;

/// How often what is not confirmed is sent again, in milliseconds.
pub(crate) const REDELIVER_MS: u64 = 1500;

/// One try of a task at a life of an agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    /// How many hubs there were before.
    epoch: u64,
    attempt: u64,
    agent: String,
    instance: String,
}

/// What the world knows of a task.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) number: u64,
    pub(crate) agent: String,
    budget_until: u64,
    /// When an agent was chosen for each of its attempts.
    booked: BTreeMap<u64, Now>,
    /// The first try that the hub knows to be accepted, while it knows of no end of that.
    unknown: Option<At>,
    /// Who may have run it when an earlier hub ended.
    before: Option<At>,
    /// Hubs that were there before the one that accepted it.
    epoch: u64,
    /// The hub has decided on its end.
    ended: bool,
    /// It is harmless to run it again.
    harmless: bool,
}

/// All that is known of tasks.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    pub(crate) known: BTreeMap<TaskId, Known>,
    /// New ones that the hub has not heard to be written, by the number of their change.
    storing: BTreeMap<u64, TaskId>,
    /// Open ones and where they stand, by what the hub has written of them.
    pub(crate) open: BTreeMap<TaskId, TaskState>,
    /// Ends that the hub has not heard to be written, by the number of their change.
    pub(crate) ending: BTreeMap<u64, TaskId>,
    /// Who sent RECEIPT of what.
    confirmed: BTreeMap<(String, TaskId), Now>,
    /// How often somebody was chosen.
    pub(crate) booked: u64,
}

impl Tasks {
    /// Tasks that the hub holds as calls.
    pub(crate) fn held(&self) -> usize {
        self.open.len() + self.storing.len()
    }
}

fn number_of(new: &NewTask) -> u64 {
    let Ok((ToHub::Call(call), _)) = read_to_hub(&new.call, None) else {
        panic!("a CALL is stored: {new:?}")
    };
    let number = call.private.0.iter().find(|(key, _)| *key == NUMBER).map(|(_, raw)| read_one(raw.0));
    if let Some(Ok(Value::UInt(number))) = number { number } else { 0 }
}

/// What the hub has written, and what it heard to be.
impl Sim {
    pub(super) fn task_changes(&mut self, number: u64, change: &Change) {
        match change {
            Change::Task(new) => self.task_is_new(number, new),
            Change::Moved(moved) => self.task_moves(moved),
            Change::Ended(end) => self.task_ends(number, end),
            Change::Receipt { task, agent, .. } => {
                let said = self.tasks.confirmed.contains_key(&(agent.to_string(), *task));
                assert!(said, "only_who_confirms_has_confirmed: {task} by {agent}");
            }
            Change::Call(_) => {}
        }
    }

    fn task_is_new(&mut self, number: u64, new: &NewTask) {
        *self.met.entry("task").or_default() += 1;
        let intent = self.intent(number_of(new));
        let harmless = self.rules.iter().any(|(_, rules)| rules.resolve(&new.capability) == "x.three");
        let known = Known {
            number: intent.map_or(0, |intent| intent.number),
            agent: new.agent.to_string(),
            budget_until: new.budget_until,
            booked: BTreeMap::new(),
            unknown: None,
            before: None,
            epoch: self.epoch,
            ended: false,
            harmless,
        };
        assert!(self.tasks.known.insert(new.id, known).is_none(), "a_task_id_is_made_once: {new:?}");
        self.tasks.storing.insert(number, new.id);
    }

    fn task_moves(&mut self, moved: &Moved) {
        let (now, drained) = (self.now, self.drained);
        let known = self.tasks.known.get_mut(&moved.task);
        let Some(known) = known.filter(|known| !known.ended) else {
            panic!("a_task_ends_exactly_once: a move of what is not open: {moved:?}")
        };
        if moved.holder.is_some() && moved.state == TaskState::Queued {
            self.tasks.booked += 1;
            known.booked.insert(u64::from(moved.attempt), now);
            let allowed = moved.attempt > 1 || drained.is_none_or(|at| at == now);
            assert!(allowed, "nothing_new_after_a_drain_began: {moved:?}");
        }
        if self.tasks.open.insert(moved.task, moved.state).is_none() {
            panic!("nothing_moves_before_it_is_written: {moved:?}")
        }
    }

    fn task_ends(&mut self, number: u64, end: &TaskEnd) {
        *self.met.entry("task_end").or_default() += 1;
        let unix = self.unix();
        let Some(known) = self.tasks.known.get_mut(&end.task) else {
            panic!("a_task_ends_exactly_once: {end:?} of nothing")
        };
        assert!(!known.ended, "a_task_ends_exactly_once: {end:?} of {known:?}");
        let early = end.outcome == "budget_exhausted" && unix + 1 < known.budget_until;
        assert!(!early, "no_deadline_comes_early: {end:?} of {known:?} at {unix}");
        known.ended = true;
        let number_of = known.number;
        self.tasks.open.remove(&end.task);
        self.tasks.ending.insert(number, end.task);
        let said = said_of(&end.end);
        assert!(said.outcome == end.outcome, "an_end_is_what_is_written: {} of {end:?}", said.outcome);
        let freed = end.keep_until <= end.at;
        assert!(!said.retryable || freed, "a_retryable_failure_frees_its_request_id: {end:?}");
        if end.outcome == "cancelled" {
            let asked = self.intent(number_of).is_none_or(|intent| intent.cancelled);
            assert!(asked, "only_the_asker_cancels: task {}", end.task);
        }
        if end.outcome == "orphaned" {
            *self.met.entry("orphaned").or_default() += 1;
        }
    }

    /// The hub is about to hear this.
    pub(super) fn task_news(&mut self, news: &StoreNews) {
        match news {
            StoreNews::Written { up_to } => {
                let later = self.tasks.storing.split_off(&(up_to + 1));
                for task in std::mem::replace(&mut self.tasks.storing, later).into_values() {
                    if self.tasks.known.get(&task).is_some_and(|known| !known.ended) {
                        self.tasks.open.insert(task, TaskState::Queued);
                    }
                }
                self.tasks.ending = self.tasks.ending.split_off(&(up_to + 1));
            }
            StoreNews::Refused { numbers, .. } => {
                for task in numbers.iter().filter_map(|number| self.tasks.storing.remove(number)) {
                    if let Some(known) = self.tasks.known.get_mut(&task) {
                        known.ended = true;
                    }
                }
            }
            StoreNews::Writable(_) | StoreNews::Answered { .. } => {}
        }
    }

    /// The hub has stopped: it leaves them as they are.
    pub(super) fn tasks_are_left(&mut self) {
        self.tasks.open.clear();
        self.tasks.storing.clear();
        self.tasks.ending.clear();
    }

    /// A new hub begins with what is written.
    pub(super) fn tasks_are_restored(&mut self) {
        self.tasks_are_left();
        let epoch = self.epoch;
        for (id, stored) in &self.store.tasks {
            let Some(known) = self.tasks.known.get_mut(id) else { panic!("nobody_made_this_task: {id}") };
            known.ended = stored.end.is_some();
            if known.ended {
                continue;
            }
            self.tasks.open.insert(*id, stored.moved.state);
            known.before = stored.moved.holder.as_ref().map(|holder| At {
                epoch: epoch - 1,
                attempt: u64::from(stored.moved.attempt),
                agent: holder.agent.to_string(),
                instance: holder.instance.to_string(),
            });
            if known.before.is_some() {
                *self.met.entry("returning").or_default() += 1;
            }
        }
    }
}

/// After every step.
pub(super) fn after_every_step(sim: &Sim) {
    let gauges = sim.hub.gauges();
    let mut counts = [0; 3];
    for state in sim.tasks.open.values() {
        match state {
            TaskState::Queued => counts[0] += 1,
            TaskState::Received => counts[1] += 1,
            TaskState::Processing => counts[2] += 1,
            TaskState::Succeeded | TaskState::Failed => panic!("an open task has no end"),
        }
    }
    assert!(gauges.tasks == counts, "open_tasks_are_counted: {:?} where {counts:?} are open", gauges.tasks);
    let none = sim.tasks.held() == 0;
    let storing_that_ended = sim.tasks.storing.values().any(|id| sim.tasks.known[id].ended);
    assert!(
        storing_that_ended || none == (gauges.task_bytes == 0),
        "open_tasks_have_their_bytes: {} bytes of {}",
        gauges.task_bytes,
        sim.tasks.held()
    );
    assert!(gauges.task_bytes <= sim.settings.task_bytes + 4096, "open_tasks_have_their_bytes: {gauges:?}");
    every_task_ends_in_its_budget(sim);
}

/// The hub decides on the end of each task when its budget is over at the latest.
fn every_task_ends_in_its_budget(sim: &Sim) {
    if sim.drained.is_some() || sim.hub.next_timeout().is_some_and(|next| next <= sim.now) {
        return;
    }
    let unix = sim.unix();
    let late = sim.tasks.open.keys().filter_map(|id| Some((id, sim.tasks.known.get(id)?)));
    for (id, known) in late {
        assert!(unix <= known.budget_until + 2, "every_task_ends_in_its_budget: {id} {known:?} at {unix}");
    }
}

/// What a stored end says.
struct Said {
    outcome: String,
    retryable: bool,
    body: Option<Bytes>,
}

fn said_of(end: &Bytes) -> Said {
    let Ok((ToAgent::Result(result), body)) = decode_to_agent(end) else {
        panic!("an end is a RESULT: {end:?}")
    };
    assert!(result.id.is_none() && result.task_id.is_some() && !result.duplicate, "a_stored_end: {result:?}");
    let retryable = result.error.as_ref().is_some_and(|error| error.retryable);
    Said { outcome: result.error.map_or("completed", |error| error.code).to_owned(), retryable, body }
}

fn id_of(text: &str) -> TaskId {
    text.parse().unwrap_or_else(|_| panic!("a task_id: {text}"))
}

/// What providers read and say.
impl Sim {
    /// A provider reads the CALL of a task. Since when it may have been meant for it.
    pub(super) fn task_given(&mut self, id: ConnectionId, given: &Given) -> Option<Now> {
        let task = given.task?;
        let conn = self.conns.get(&id)?;
        let at = self.at_of(id, given)?;
        let stored = self.store.tasks.get(&task);
        let written =
            stored.is_some_and(|stored| stored.holders.contains(&(at.agent.clone(), at.instance.clone())));
        assert!(
            written,
            "nothing_is_given_before_that_is_written: {task} to {at:?}; written is {:?}",
            stored.map(|stored| &stored.holders)
        );
        let known = &self.tasks.known[&task];
        for other in [&known.unknown, &known.before].into_iter().flatten() {
            let same = other.agent == at.agent && other.instance == at.instance;
            let later = (other.epoch, other.attempt) < (at.epoch, at.attempt);
            assert!(
                same || !later || known.harmless,
                "no_task_that_may_have_run_is_given_to_another: {task} to {at:?}: {known:?}"
            );
        }
        if at.epoch > known.epoch {
            *self.met.entry("given_after_restart").or_default() += 1;
        }
        known.booked.get(&given.attempt).map(|booked| (*booked).min(conn.taken_since))
    }

    /// Which try of a task a CALL is.
    pub(super) fn task_tried(&self, task: TaskId, attempt: u64, life: u64, agent: usize) -> Try {
        let came_back = self.players[agent].lived.get(&life).is_some_and(|times| *times > 1);
        let restored = self.tasks.known.get(&task).is_some_and(|known| known.epoch < self.epoch);
        match attempt {
            0 | 1 if !restored => Try::First,
            _ if came_back || restored => Try::Resumed,
            _ => Try::Again,
        }
    }

    fn at_of(&self, id: ConnectionId, given: &Given) -> Option<At> {
        let conn = self.conns.get(&id)?;
        Some(At {
            epoch: self.epoch,
            attempt: given.attempt,
            agent: self.players[conn.agent].name.clone(),
            instance: format!("life-{}", conn.life),
        })
    }

    /// The hub took a provider's word that it has a task, or that it has ended there: `over`.
    pub(super) fn task_answered(&mut self, id: ConnectionId, task: Option<TaskId>, attempt: u64, over: bool) {
        let Some(task) = task else { return };
        let Some(conn) = self.conns.get(&id) else { return };
        let at = At {
            epoch: self.epoch,
            attempt,
            agent: self.players[conn.agent].name.clone(),
            instance: format!("life-{}", conn.life),
        };
        let Some(known) = self.tasks.known.get_mut(&task) else { return };
        if over {
            (known.unknown, known.before) = (None, None);
        } else {
            known.unknown.get_or_insert(at);
        }
    }
}

/// What callers read and say.
impl Sim {
    /// A caller reads that its task is accepted.
    pub(super) fn task_accepted(&mut self, id: ConnectionId, accept: &Accept<'_>) {
        let Some(text) = accept.task_id else { return };
        let task = id_of(text);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let stored = self.store.tasks.get(&task);
        assert!(stored.is_some(), "nothing_is_accepted_before_it_is_written: {accept:?}");
        let own = &self.players[conn.agent].name;
        assert!(
            stored.is_some_and(|stored| *stored.new.agent == **own),
            "a_task_is_told_to_nobody_else: {accept:?} to {own}"
        );
        let Some(asked) = conn.asked.get_mut(&accept.id) else { return };
        asked.task = Some(task);
        let intent = asked.intent.map(|place| self.players[conn.agent].intents[place].number);
        let known = &self.tasks.known[&task];
        assert!(intent == Some(known.number), "an_answer_is_of_its_own_call: {accept:?} of {known:?}");
    }

    /// Somebody reads the end of a task.
    pub(super) fn task_ended(&mut self, id: ConnectionId, result: &CallResult<'_>, body: Option<&[u8]>) {
        let Some(text) = result.task_id else { return };
        let task = id_of(text);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let own = self.players[conn.agent].name.clone();
        let code = result.error.as_ref().map_or("completed", |error| error.code);
        let Some(stored) = self.store.tasks.get(&task) else {
            // It was never accepted, and its caller did not want it any more.
            let refused = self.store.refused.contains(&task) && code == "cancelled";
            assert!(refused, "no_end_is_said_before_it_is_written: {result:?}");
            return self.task_is_over(id, result, task);
        };
        let Some(end) = &stored.end else {
            panic!("no_end_is_said_before_it_is_written: {result:?} of {stored:?}")
        };
        let said = said_of(&end.end);
        assert!(
            said.outcome == code && said.body.as_deref() == body,
            "a_task_ends_exactly_once: {result:?} where {end:?} is written"
        );
        let inbox = stored.new.reply_to.as_deref() == Some(&*own);
        assert!(*stored.new.agent == *own || inbox, "a_task_is_told_to_nobody_else: {result:?} to {own}");
        if let Some(written) = stored.receipts.get(&*own).filter(|_| result.id.is_none()) {
            // What was read before may still be on its way.
            let late = conn.taken_since > written.plus_ms(ANSWER_MAX_MS + 1);
            assert!(!late, "nothing_is_delivered_after_its_receipt: {result:?}, confirmed at {written:?}");
        }
        if inbox {
            *self.met.entry("inbox").or_default() += 1;
        }
        if result.duplicate {
            *self.met.entry("task_replayed").or_default() += 1;
        }
        self.task_is_over(id, result, task);
        let Some(known) = self.tasks.known.get(&task) else { return };
        if let Some(intent) = self.intent(known.number) {
            attempts_of_a_task_stay_within_their_bound(self, known, intent, result);
        }
        let most = self.dice.pick(&[0, 100, 4000]);
        if self.quiet || self.dice.percent(70) {
            self.later(0, if self.quiet { 0 } else { most }, Event::Receipt(id, task));
        }
    }

    /// A CALL for it has ended: the one named. The others know how.
    fn task_is_over(&mut self, id: ConnectionId, result: &CallResult<'_>, task: TaskId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match result.id {
            Some(call) => {
                super::invariants::every_call_ends_exactly_once(conn, call);
                conn.asked.remove(&call);
            }
            None => {
                let others = conn.asked.values_mut().filter(|asked| asked.task == Some(task));
                others.for_each(|asked| asked.delivered = true);
            }
        }
    }

    pub(super) fn confirm(&mut self, id: ConnectionId, task: TaskId) {
        if !self.later_when_heard(id, Event::Receipt(id, task)) {
            return;
        }
        self.say_receipt(id, task);
    }

    fn say_receipt(&mut self, id: ConnectionId, task: TaskId) {
        let text = task.to_string();
        let message = encode(&Receipt { task_id: &text }, None);
        self.send(id, message, On::Receipt(task), |_| format!("RECEIPT {text}"));
    }

    /// RECEIPT of any task there is, or was.
    pub(super) fn any_receipt(&mut self, id: ConnectionId) {
        let all: Vec<TaskId> = self.store.tasks.keys().copied().collect();
        if !all.is_empty() {
            let task = self.dice.pick(&all);
            self.say_receipt(id, task);
        }
    }

    /// A RECEIPT is with the hub, which may take it.
    pub(super) fn receipt_arrives(&mut self, id: ConnectionId, task: TaskId) {
        let Some(conn) = self.conns.get(&id) else { return };
        let agent = self.players[conn.agent].name.clone();
        self.tasks.confirmed.insert((agent, task), self.now);
    }
}

/// `attempts` holds no more tries than the caller allowed, for each hub that had the task, beside those that were lost
/// with a connection.
fn attempts_of_a_task_stay_within_their_bound(
    sim: &Sim,
    known: &Known,
    intent: &Intent,
    result: &CallResult<'_>,
) {
    let lost = ["its connection was lost", "the hub was restarted"];
    let tries = result.attempts.iter().filter(|tried| !lost.contains(&tried.reason)).count() as u64;
    let hubs = 1 + sim.epoch - known.epoch;
    let most = hubs * intent.terms.tries();
    assert!(
        tries <= most,
        "attempts_stay_within_their_bound: {tries} of {most}: {result:?} of {known:?} {intent:?}"
    );
}

/// What has to be true when everybody was heard and everything written.
pub(super) fn every_task_has_come_home(sim: &Sim) {
    for (id, stored) in &sim.store.tasks {
        assert!(stored.end.is_some(), "an_accepted_task_is_never_lost: {id} has no end: {stored:?}");
    }
    for conn in sim.conns.values().filter(|conn| conn.welcomed && !conn.left && !conn.ended) {
        let agent = sim.players[conn.agent].name.as_str();
        let owed = sim.store.owed.iter().find(|(of, _)| **of == *agent);
        assert!(owed.is_none(), "an_end_is_delivered_until_its_receipt: {agent} has not had {owed:?}");
        let waits = conn.asked.iter().find(|(_, asked)| asked.task.is_some() && !asked.delivered);
        assert!(waits.is_none(), "every_task_that_is_asked_for_answers: {waits:?} of {agent}");
    }
}
