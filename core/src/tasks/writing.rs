//! Between the hub and the store: what is written, what follows then, what is asked and who waits for the answer.

use std::sync::Arc;

use agent_reach_protocol::{Call as Asking, CallMode, ErrorCode};
use bytes::Bytes;

use super::end::EndedTask;
use super::meta::Query;
use crate::calls::{Failure, Refusal};
use crate::effects::CallRecord;
use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::registry::Asked;
use crate::rows::{TaskRow, Whose};
use crate::store::{Answer, Ask, Change, Question, StoreNews, TaskId};
use crate::time::Now;
use crate::trace_id::TraceId;

/// What follows when a change is written.
#[derive(Debug)]
pub(super) enum After {
    /// The task is accepted.
    Accept(TaskId),
    /// The CALL of this leg leaves for its provider, if it is still this booking of the task that has its place.
    Give { task: TaskId, leg: usize },
    /// The end is said.
    End(Box<EndedTask>),
    /// The store no longer says that this agent is owed the end of this task.
    Confirmed(Arc<str>, TaskId),
}

/// The CALL of an agent that waits for the store.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) key: usize,
    pub(crate) connection: ConnectionId,
    /// Its id for the CALL.
    pub(crate) id: u64,
    pub(crate) request_id: Arc<str>,
    pub(crate) capability: Arc<str>,
    pub(crate) trace: Option<TraceId>,
    /// The store has been asked a second time.
    pub(crate) again: bool,
}

/// Who waits for an answer of the store.
#[derive(Debug)]
pub(crate) enum Waits {
    /// This CALL, to be looked at again then.
    Key(Waiter, Bytes),
    /// This CALL repeats a task that has ended.
    Replay(Waiter),
    /// A `hub.tasks.*`.
    Query(Waiter, Query),
    /// A `hub.tasks.cancel` of an open task: no answer of the store, but the task's end.
    Cancel(Waiter),
    /// A `hub.tasks.retry` of this task: no answer of the store, but the writing of the new one.
    Retry(Waiter, TaskId),
    /// A `hub.config.reload`, which the shell answers and not the store.
    Reload(Waiter),
    /// An agent that is owed results.
    Owed(Arc<str>),
}

impl Waits {
    const fn waiter(&self) -> Option<&Waiter> {
        match self {
            Self::Key(waiter, _)
            | Self::Replay(waiter)
            | Self::Query(waiter, _)
            | Self::Cancel(waiter)
            | Self::Retry(waiter, _)
            | Self::Reload(waiter) => Some(waiter),
            Self::Owed(_) => None,
        }
    }
}

/// Most questions that are open.
const QUESTIONS_MAX: usize = 4096;

impl Hub {
    /// A moment as it is stored: milliseconds since the Unix epoch.
    pub(crate) const fn unix(&self, now: Now) -> u64 {
        self.settings.started_unix_ms.saturating_add(now.micros() / 1000)
    }

    /// A stored moment on the hub's clock; its start for what was before.
    pub(super) const fn moment(&self, unix_ms: u64) -> Now {
        Now::from_millis(unix_ms.saturating_sub(self.settings.started_unix_ms))
    }

    /// Has something written.
    pub(super) fn change(&mut self, turn: &mut Turn<'_>, change: Change) -> u64 {
        self.tasks.changes += 1;
        turn.fx.changes.push((self.tasks.changes, change));
        self.tasks.changes
    }

    /// Has something written, and something follow then.
    pub(super) fn change_then(&mut self, turn: &mut Turn<'_>, change: Change, after: After) -> u64 {
        let number = self.change(turn, change);
        if let After::End(ended) = &after {
            self.tasks.ending.insert(ended.row.id, number);
        }
        self.tasks.after.push_back((number, after));
        number
    }

    /// Asks the store on behalf of a CALL, which is open until the answer comes.
    pub(super) fn ask_store(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        question: Question,
        waits: impl FnOnce(Waiter) -> Waits,
    ) -> Result<(), Refusal> {
        let waiter = self.let_wait(key, asking)?;
        self.question(turn, question, waits(waiter));
        Ok(())
    }

    /// A CALL is open until the next question is answered.
    pub(crate) fn let_wait(&mut self, key: usize, asking: &Asking<'_>) -> Result<Waiter, Refusal> {
        self.within_in_flight(key)?;
        if self.tasks.waits.len() >= QUESTIONS_MAX {
            return Err(Failure::overloaded("too many questions to the store are open").into());
        }
        let number = self.number();
        let made = self.made_request_id(number);
        let (next, trace) = (self.tasks.questions + 1, self.trace_of(asking));
        let gone = || Refusal::new(ErrorCode::Internal, "the caller is not registered");
        let agent = self.registry.agents.get_mut(key).ok_or_else(gone)?;
        let connection = agent.session.ok_or_else(gone)?;
        agent.asked.insert(asking.id, Asked::Question(next));
        Ok(Waiter {
            key,
            connection,
            id: asking.id,
            request_id: asking.request_id.unwrap_or(&made).into(),
            capability: asking.capability.into(),
            trace,
            again: false,
        })
    }

    /// A CALL goes on waiting, for the next answer.
    pub(super) fn wait_on(&mut self, waits: Waits) -> Option<u64> {
        let waiter = waits.waiter()?;
        let next = self.tasks.questions + 1;
        let agent = self.registry.agents.get_mut(waiter.key)?;
        agent.asked.insert(waiter.id, Asked::Question(next));
        Some(self.waits(waits))
    }

    /// What the store said of a task was read before its end was written, which has been said since: it is asked once
    /// more. `false`: there is no need to.
    pub(super) fn ask_once_more(
        &mut self,
        turn: &mut Turn<'_>,
        waiter: &Waiter,
        row: &TaskRow,
        waits: impl FnOnce(Waiter) -> Waits,
    ) -> bool {
        let task = row.id;
        let is_late = row.outcome.is_none() && self.tasks.find(task).is_none();
        if !is_late || waiter.again || self.tasks.ending.contains_key(&task) {
            return false;
        }
        let Some(number) = self.wait_on(waits(Waiter { again: true, ..waiter.clone() })) else {
            return false;
        };
        // It was found for who asked.
        let question = Question::Task { whose: Whose::Everybodys, task };
        turn.fx.asks.push(Ask { number, question });
        true
    }

    /// A task whose end is being written.
    pub(super) fn ending_task(&mut self, task: TaskId) -> Option<&mut EndedTask> {
        let number = self.tasks.ending.get(&task)?;
        let place = self.tasks.after.binary_search_by_key(number, |(number, _)| *number).ok()?;
        match self.tasks.after.get_mut(place)? {
            (_, After::End(ended)) => Some(ended),
            (_, After::Accept(_) | After::Give { .. } | After::Confirmed(..)) => None,
        }
    }

    /// Notes who waits for the next answer.
    pub(crate) fn waits(&mut self, waits: Waits) -> u64 {
        self.tasks.questions += 1;
        self.tasks.waits.insert(self.tasks.questions, waits);
        self.tasks.questions
    }

    pub(super) fn question(&mut self, turn: &mut Turn<'_>, question: Question, waits: Waits) -> u64 {
        let number = self.waits(waits);
        turn.fx.asks.push(Ask { number, question });
        number
    }

    /// The connection of a CALL that waits for the store is gone.
    pub(crate) fn forget_question(&mut self, number: u64) {
        self.memory.elsewhere.answered(number);
        self.tasks.waits.remove(&number);
    }

    /// The caller no longer wants to know.
    pub(crate) fn cancel_question(&mut self, turn: &mut Turn<'_>, number: u64) {
        self.memory.elsewhere.answered(number);
        let Some(waits) = self.tasks.waits.remove(&number) else { return };
        if let Some(waiter) = waits.waiter() {
            self.answered(waiter);
            self.fail_waiter(turn, waiter, &Failure::new(ErrorCode::Cancelled, "cancelled").into());
            self.close_if_idle(turn, waiter.connection);
        }
    }

    /// Takes out who waits for an answer; `None` when nobody does any more.
    pub(crate) fn no_longer_waits(&mut self, number: u64) -> Option<Waits> {
        let waits = self.tasks.waits.remove(&number)?;
        match waits.waiter() {
            Some(waiter) => self.answered(waiter).then_some(waits),
            None => Some(waits),
        }
    }

    /// A CALL waits no longer. `false`: its connection is gone.
    fn answered(&mut self, waiter: &Waiter) -> bool {
        let agent = self.registry.agents.get_mut(waiter.key);
        let Some(agent) = agent.filter(|agent| agent.session == Some(waiter.connection)) else {
            return false;
        };
        agent.asked.remove(&waiter.id);
        true
    }

    pub(crate) fn fail_waiter(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, refusal: &Refusal) {
        let (name, request_id) = (&*waiter.capability, Some(&*waiter.request_id));
        let record = self.send_refusal(turn, waiter.key, waiter.id, request_id, name, refusal);
        let record = record.map(|record| CallRecord { trace: waiter.trace, ..record });
        let capability = self.registry.names.get(name).map(|(own, _)| Arc::clone(own));
        self.record_refusal(turn, capability, CallMode::Call, refusal, record);
    }

    pub(crate) fn on_store(&mut self, turn: &mut Turn<'_>, news: StoreNews) {
        match news {
            StoreNews::Written { up_to } => {
                self.memory.elsewhere.written(up_to);
                while self.tasks.after.front().is_some_and(|(number, _)| *number <= up_to) {
                    let Some((number, after)) = self.tasks.after.pop_front() else { return };
                    match after {
                        After::Accept(task) => self.task_stored(turn, task),
                        After::Give { task, leg } => self.give_booked(turn, task, leg, number),
                        After::End(ended) => self.say_end(turn, *ended),
                        After::Confirmed(agent, task) => self.confirmation_written(agent, task),
                    }
                }
            }
            StoreNews::Refused { numbers, reason } => {
                self.memory.elsewhere.refused(&numbers);
                let refused: Vec<TaskId> = self
                    .tasks
                    .after
                    .iter()
                    .filter(|(number, _)| numbers.contains(number))
                    .filter_map(|(_, after)| match after {
                        After::Accept(task) => Some(*task),
                        After::Give { .. } | After::End(_) | After::Confirmed(..) => None,
                    })
                    .collect();
                self.tasks.after.retain(|(number, _)| !numbers.contains(number));
                for task in refused {
                    self.task_refused(turn, task, &reason);
                }
            }
            StoreNews::Writable(writable) => self.on_writable(turn, writable),
            StoreNews::Answered { number, answer } => self.on_answer(turn, number, answer),
        }
    }

    fn on_answer(&mut self, turn: &mut Turn<'_>, number: u64, answer: Answer) {
        let Some(waits) = self.no_longer_waits(number) else { return self.memory.elsewhere.answered(number) };
        let connection = waits.waiter().map(|waiter| waiter.connection);
        self.take_answer(turn, waits, answer);
        self.memory.elsewhere.answered(number);
        if let Some(connection) = connection {
            self.close_if_idle(turn, connection);
        }
    }

    fn take_answer(&mut self, turn: &mut Turn<'_>, waits: Waits, answer: Answer) {
        match (waits, answer) {
            (Waits::Owed(agent), Answer::Owed(ends)) => self.deliver_owed(turn, &agent, ends),
            (Waits::Owed(agent), _) => self.owed_later(turn, &agent),
            (
                Waits::Key(waiter, _)
                | Waits::Replay(waiter)
                | Waits::Query(waiter, _)
                | Waits::Cancel(waiter)
                | Waits::Retry(waiter, _)
                | Waits::Reload(waiter),
                Answer::Unreadable,
            ) => {
                let failure = Failure::overloaded("the store cannot be read now");
                self.fail_waiter(turn, &waiter, &failure.into());
            }
            (Waits::Key(waiter, message), Answer::Key(kept)) => {
                self.on_key(turn, &waiter, &message, kept);
            }
            (Waits::Replay(waiter), Answer::Task(row)) => self.on_replay(turn, &waiter, row.as_deref()),
            (Waits::Query(waiter, query), answer) => self.on_query(turn, &waiter, query, answer),
            (
                Waits::Key(waiter, _)
                | Waits::Replay(waiter)
                | Waits::Cancel(waiter)
                | Waits::Retry(waiter, _)
                | Waits::Reload(waiter),
                _,
            ) => {
                let failure = Failure::new(ErrorCode::Internal, "the store answered another question");
                self.fail_waiter(turn, &waiter, &failure.into());
            }
        }
    }
}
