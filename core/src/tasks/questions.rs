//! CALLs that wait for an answer that the hub has not got: of the store, of its own files, or of a task's end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_reach_protocol::{Call as Asking, CallMode, ErrorCode};
use bytes::Bytes;

use super::meta::Query;
use crate::calls::{Failure, Refusal, accept_timeout_ms, budget_ms};
use crate::effects::CallRecord;
use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::registry::Asked;
use crate::rows::{TaskRow, Whose};
use crate::store::{Ask, Question, TaskId};
use crate::time::{Now, Timer, Timers};
use crate::trace_id::TraceId;

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
    /// The end of its phase one, and of its whole budget.
    accept_by: Now,
    budget_at: Now,
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
    pub(super) const fn waiter(&self) -> Option<&Waiter> {
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

    /// Until when its CALL waits, and what it is told then. A question to the store is phase one: nothing has been done
    /// for the CALL yet, so that its caller may ask again.
    fn patience(&self) -> Option<(Now, ErrorCode)> {
        let waiter = self.waiter()?;
        let asks_store = matches!(self, Self::Key(..) | Self::Replay(_) | Self::Query(..));
        Some(match asks_store && waiter.accept_by < waiter.budget_at {
            true => (waiter.accept_by, ErrorCode::AcceptTimeout),
            false => (waiter.budget_at, ErrorCode::BudgetExhausted),
        })
    }
}

/// Most questions that are open.
const QUESTIONS_MAX: usize = 4096;

/// Questions that are open, by number.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Number of the latest.
    latest: u64,
    waits: BTreeMap<u64, Waits>,
    /// Those of a CALL, by the moment at which it waits no longer.
    due: BTreeSet<(Now, u64)>,
    /// When the hub looks at the first of them.
    timer: Option<Now>,
}

impl Questions {
    pub(super) const fn latest(&self) -> u64 {
        self.latest
    }

    fn insert(&mut self, timers: &mut Timers, waits: Waits) -> u64 {
        self.latest += 1;
        self.due.extend(waits.patience().map(|(due, _)| (due, self.latest)));
        self.waits.insert(self.latest, waits);
        self.look_at_first(timers);
        self.latest
    }

    fn remove(&mut self, timers: &mut Timers, number: u64) -> Option<Waits> {
        let waits = self.waits.remove(&number)?;
        if let Some((due, _)) = waits.patience() {
            self.due.remove(&(due, number));
            self.look_at_first(timers);
        }
        Some(waits)
    }

    fn look_at_first(&mut self, timers: &mut Timers) {
        let first = self.due.first().map(|(due, _)| *due);
        if first != self.timer {
            if let Some(at) = self.timer {
                timers.clear(at, Timer::Question);
            }
            if let Some(at) = first {
                timers.set(at, Timer::Question);
            }
            self.timer = first;
        }
    }

    /// The number of one whose CALL waits no longer at `now`, and what the CALL is told.
    fn first_due(&self, now: Now) -> Option<(u64, ErrorCode)> {
        let (_, number) = self.due.first().filter(|(due, _)| *due <= now)?;
        let (_, code) = self.waits.get(number)?.patience()?;
        Some((*number, code))
    }
}

impl Hub {
    /// Asks the store on behalf of a CALL, which is open until the answer comes.
    pub(super) fn ask_store(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        question: Question,
        waits: impl FnOnce(Waiter) -> Waits,
    ) -> Result<(), Refusal> {
        let waiter = self.let_wait(turn.now, key, asking)?;
        self.question(turn, question, waits(waiter));
        Ok(())
    }

    /// A CALL is open until the next question is answered.
    pub(crate) fn let_wait(&mut self, now: Now, key: usize, asking: &Asking<'_>) -> Result<Waiter, Refusal> {
        self.within_in_flight(key)?;
        if self.tasks.questions.waits.len() >= QUESTIONS_MAX {
            return Err(Failure::overloaded("too many questions to the store are open").into());
        }
        let number = self.number();
        let made = self.made_request_id(number);
        let (next, trace) = (self.tasks.questions.latest + 1, self.trace_of(asking));
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
            accept_by: now.plus_ms(accept_timeout_ms(asking, self.settings.accept_timeout_ms)),
            budget_at: now.plus_ms(budget_ms(asking, self.settings.budget_ms)),
            again: false,
        })
    }

    /// A CALL goes on waiting, for the next answer.
    pub(super) fn wait_on(&mut self, waits: Waits) -> Option<u64> {
        let waiter = waits.waiter()?;
        let next = self.tasks.questions.latest + 1;
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

    /// Notes who waits for the next answer.
    pub(crate) fn waits(&mut self, waits: Waits) -> u64 {
        self.tasks.questions.insert(&mut self.timers, waits)
    }

    pub(super) fn question(&mut self, turn: &mut Turn<'_>, question: Question, waits: Waits) -> u64 {
        let number = self.waits(waits);
        turn.fx.asks.push(Ask { number, question });
        number
    }

    /// The connection of a CALL that waits for the store is gone.
    pub(crate) fn forget_question(&mut self, number: u64) {
        self.memory.elsewhere.answered(number);
        self.tasks.questions.remove(&mut self.timers, number);
    }

    /// The caller no longer wants to know.
    pub(crate) fn cancel_question(&mut self, turn: &mut Turn<'_>, number: u64) {
        self.wait_no_longer(turn, number, Failure::new(ErrorCode::Cancelled, "cancelled"));
    }

    /// Some have waited for as long as they may: the store does not answer, or what they wait for does not end.
    pub(crate) fn on_question_timer(&mut self, turn: &mut Turn<'_>) {
        self.tasks.questions.timer = None;
        while let Some((number, code)) = self.tasks.questions.first_due(turn.now) {
            let message = if code == ErrorCode::AcceptTimeout {
                "the store did not answer within the time for accepting the call"
            } else {
                "the total budget of the call is spent"
            };
            self.wait_no_longer(turn, number, Failure::new(code, message));
        }
        self.tasks.questions.look_at_first(&mut self.timers);
    }

    /// Ends a CALL without the answer that it waits for.
    fn wait_no_longer(&mut self, turn: &mut Turn<'_>, number: u64, failure: Failure) {
        self.memory.elsewhere.answered(number);
        let Some(waits) = self.tasks.questions.remove(&mut self.timers, number) else { return };
        if let Some(waiter) = waits.waiter() {
            self.answered(waiter);
            self.fail_waiter(turn, waiter, &failure.into());
            self.close_if_idle(turn, waiter.connection);
        }
    }

    /// Takes out who waits for an answer; `None` when nobody does any more.
    pub(crate) fn no_longer_waits(&mut self, number: u64) -> Option<Waits> {
        let waits = self.tasks.questions.remove(&mut self.timers, number)?;
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
}
