//! A task ends: first in the store, then for everybody who waits.

use std::sync::Arc;

use bytes::Bytes;

use crate::calls::{Call, Ended};
use crate::effects::{Fact, Outcome};
use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::rows::TaskRow;
use crate::store::{Change, TaskEnd, TaskState};

use super::writing::After;

/// A task that has ended, until its end is stored and said.
#[derive(Debug)]
pub(super) struct EndedTask {
    pub(super) row: TaskRow,
    pub(super) identity: Arc<str>,
    reply_to: Option<Arc<str>>,
    callback: bool,
    end: Bytes,
    /// CALLs that wait for it: connection, agent and id.
    pub(super) listeners: Vec<(ConnectionId, usize, u64)>,
    /// Who had it cancelled, and waits for that.
    pub(super) cancels: Vec<u64>,
}

impl Hub {
    /// A task's call has ended: has the end written.
    pub(crate) fn end_task(
        &mut self,
        turn: &mut Turn<'_>,
        call: &Call,
        target: Option<&Arc<str>>,
        ended: &Ended<'_>,
        end: Bytes,
    ) {
        let Some(task) = &call.task else { return };
        self.tasks.leave(task);
        let at = self.unix(turn.now);
        let expires = at.saturating_add(self.settings.task_keep_ms);
        // A failure that another try may mend frees the id.
        let retryable = ended.failure.as_ref().is_some_and(|failure| failure.retryable);
        let keep_ms = if retryable { 0 } else { call.keep_ms.min(self.settings.task_keep_ms) };
        let outcome = ended.outcome();
        let state = if outcome == Outcome::Completed { TaskState::Succeeded } else { TaskState::Failed };
        let attempt = u32::try_from(task.earlier + call.attempts.len()).unwrap_or(u32::MAX);
        let listeners = call.listeners.iter().filter_map(|listener| {
            let connection = self.registry.agents.get(listener.agent)?.session?;
            Some((connection, listener.agent, listener.id))
        });
        let waiting = EndedTask {
            row: TaskRow {
                id: task.id,
                state,
                agent: Arc::clone(&call.caller),
                request_id: Arc::clone(&call.request_id),
                capability: Arc::clone(&call.capability),
                created: task.created,
                updated: at,
                attempt,
                holder: target.cloned(),
                outcome: Some(outcome.as_str().into()),
                end: None,
                callback: None,
                retry_of: task.retry_of,
            },
            identity: Arc::clone(&task.identity),
            reply_to: task.reply_to.clone(),
            callback: task.callback,
            end: end.clone(),
            listeners: listeners.collect(),
            cancels: self.tasks.cancels.remove(&task.id).unwrap_or_default(),
        };
        let change = TaskEnd {
            task: task.id,
            at,
            outcome: outcome.as_str(),
            attempt,
            expires,
            keep_until: at.saturating_add(keep_ms),
            end,
        };
        let change = self.change_then(turn, Change::Ended(Box::new(change)), After::End(Box::new(waiting)));
        match keep_ms {
            0 => self.memory.remove(call.entry),
            _ => {
                let until = turn.now.plus_ms(keep_ms);
                let forgotten = self.memory.end_task(call.entry, task.id, until, change);
                self.forgot(turn, forgotten);
                self.sweep_later(turn.now);
            }
        }
    }

    /// The store has the end of a task: everybody who waits is told.
    pub(super) fn say_end(&mut self, turn: &mut Turn<'_>, ended: EndedTask) {
        let event = match ended.row.outcome.as_deref() {
            Some("completed") => "task.succeeded",
            Some("orphaned") => "hub.task.orphaned",
            _ => "task.failed",
        };
        self.tasks.ending.remove(&ended.row.id);
        self.announce_task_end(turn, &ended, event);
        turn.fx.facts.push(Fact::TaskEnded { callback: ended.callback });
        let task = ended.row.id;
        let recipients: Vec<Arc<str>> =
            [Some(Arc::clone(&ended.row.agent)), ended.reply_to].into_iter().flatten().collect();
        let mut told = Vec::new();
        for (connection, key, id) in ended.listeners {
            if self.registry.agents.get(key).is_some_and(|agent| agent.session == Some(connection)) {
                self.send_end(turn, key, id, &ended.end, false);
                self.sent_to(turn, key, task);
                told.push(key);
            }
        }
        for agent in recipients {
            if let Some(key) = self.registry.find(&agent).filter(|key| !told.contains(key)) {
                self.deliver(turn, key, task, &ended.end);
                told.push(key);
            }
            self.tasks.owed.insert(agent);
        }
        for question in ended.cancels {
            self.say_cancelled(turn, question, &ended.row);
        }
    }
}
