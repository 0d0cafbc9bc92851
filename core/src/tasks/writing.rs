//! Between the hub and the store: what is written, what follows then, and what the store says.

use std::sync::Arc;

use agent_reach_protocol::ErrorCode;

use super::end::EndedTask;
use super::questions::Waits;
use crate::calls::Failure;
use crate::hub::{Hub, Turn};
use crate::store::{Answer, Change, StoreNews, TaskId};
use crate::time::Now;

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

    /// A task whose end is being written.
    pub(super) fn ending_task(&mut self, task: TaskId) -> Option<&mut EndedTask> {
        let number = self.tasks.ending.get(&task)?;
        let place = self.tasks.after.binary_search_by_key(number, |(number, _)| *number).ok()?;
        match self.tasks.after.get_mut(place)? {
            (_, After::End(ended)) => Some(ended),
            (_, After::Accept(_) | After::Give { .. } | After::Confirmed(..)) => None,
        }
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
