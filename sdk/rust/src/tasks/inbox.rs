//! Results that no handle waits for: of tasks that an earlier life of this program submitted, of handles that were
//! dropped, and of others' tasks whose `reply_to` names this agent.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::client::Agent;
use crate::control::{Control, Item};
use crate::errors::CallError;
use crate::payload::Payload;
use crate::session::{Reply, TaskEnd};

/// The end of a task, as [`Inbox::next`] gives it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskResult {
    /// Which task.
    pub task_id: String,
    /// The business intent that it was submitted under.
    pub request_id: String,
    /// Its result, or its failure.
    pub result: Result<Reply<Payload>, CallError>,
}

/// What has come and was not taken. The session bounds it.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    results: VecDeque<TaskEnd>,
    closed: bool,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock can panic; a poisoned state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, end: TaskEnd) {
        self.lock().results.push_back(end);
        self.news.notify_one();
    }

    /// Takes the result of one task out.
    pub(crate) fn take(&self, task_id: &str) -> Option<TaskEnd> {
        let mut state = self.lock();
        let place = state.results.iter().position(|end| end.task_id == task_id)?;
        state.results.remove(place)
    }

    /// Nothing more comes.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_waiters();
    }

    /// The oldest, when there is one. `None`: there will be none.
    async fn next(&self) -> Option<TaskEnd> {
        loop {
            let mut news = pin!(self.news.notified());
            // Counts from here: what comes between the look and the wait is not missed.
            news.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(end) = state.results.pop_front() {
                    if !state.results.is_empty() {
                        // A word for one of several may have met one that was leaving.
                        self.news.notify_one();
                    }
                    return Some(end);
                }
                if state.closed {
                    return None;
                }
            }
            news.await;
        }
    }
}

/// The agent's inbox: results of tasks that no [`crate::TaskHandle`] of this program waits for.
///
/// Each result is given out once in the agent's life, however often the hub sends it, and the hub hears that it
/// arrived when it is taken here and not before: what is left in the inbox when the program ends, the hub keeps and
/// sends to its next life, up to 24 h after the task's end. At most 256 results and 64 MiB wait here; the hub sends
/// the others again every 30 s, when there is room.
#[derive(Clone, Debug)]
pub struct Inbox {
    // Held, so that the agent lives for as long as somebody reads.
    _agent: Agent,
    mailbox: Arc<Mailbox>,
    control: Arc<Control>,
}

impl Inbox {
    pub(crate) const fn new(agent: Agent, mailbox: Arc<Mailbox>, control: Arc<Control>) -> Self {
        Self { _agent: agent, mailbox, control }
    }

    /// The next result, the oldest first. `None` when the agent is closed and the inbox is empty. Cancel-safe:
    /// nothing is lost when it is dropped.
    pub async fn next(&self) -> Option<TaskResult> {
        let TaskEnd { task_id, result } = self.mailbox.next().await?;
        self.control.push(Item::Received(task_id.clone()));
        let request_id = match &result {
            Ok(reply) => reply.request_id.clone(),
            Err(error) => error.request_id.clone(),
        };
        Some(TaskResult { task_id, request_id, result })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_reach_protocol::ErrorCode;
    use futures_util::FutureExt;

    fn end(task_id: &str) -> TaskEnd {
        let result = Err(CallError::known(ErrorCode::Cancelled, "m"));
        TaskEnd { task_id: task_id.to_owned(), result }
    }

    #[test]
    fn two_readers_take_each_result_once_and_both_hear_of_the_end() {
        let mailbox = Mailbox::default();
        let (mut first, mut second) = (Box::pin(mailbox.next()), Box::pin(mailbox.next()));
        assert_eq!(((&mut first).now_or_never(), (&mut second).now_or_never()), (None, None));
        mailbox.put(end("a"));
        mailbox.put(end("b"));
        let taken = [(&mut first).now_or_never(), (&mut second).now_or_never()];
        assert_eq!(taken, [Some(Some(end("a"))), Some(Some(end("b")))]);
        drop((first, second));
        let mut third = Box::pin(mailbox.next());
        assert_eq!((&mut third).now_or_never(), None);
        mailbox.close();
        assert_eq!(third.now_or_never(), Some(None));
    }

    #[test]
    fn a_result_that_its_handle_claims_is_not_given_out_again() {
        let mailbox = Mailbox::default();
        mailbox.put(end("a"));
        mailbox.put(end("b"));
        assert_eq!(mailbox.take("b"), Some(end("b")));
        assert_eq!(mailbox.take("b"), None);
        assert_eq!(mailbox.next().now_or_never(), Some(Some(end("a"))));
    }
}
