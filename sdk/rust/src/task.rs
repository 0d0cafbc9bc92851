//! Durable tasks, from the side of who asked.

use std::marker::PhantomData;

use crate::client::Agent;
use crate::errors::{CallError, Code};
use crate::inbox::Receiver;
use crate::payload::{FromPayload, Payload};
use crate::pending::{ResultStream, ended, typed};
use crate::session::{CallEvent, Reply};

/// A task that the hub has stored. Dropping the handle leaves the task alone.
#[derive(Debug)]
pub struct Task<T> {
    agent: Agent,
    inbox: Receiver,
    task_id: String,
    end: Option<Result<Reply<Payload>, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T: FromPayload> Task<T> {
    /// Waits until the task is stored. A duplicate of an ended one has its end at once.
    pub(crate) async fn stored(agent: Agent, inbox: Receiver) -> Result<Self, CallError> {
        let (task_id, end) = loop {
            match inbox.next().await {
                Some(CallEvent::Accepted(acceptance)) => {
                    let Some(task_id) = acceptance.task_id else { continue };
                    break (task_id, None);
                }
                Some(CallEvent::Ended(Ok((reply, _)))) => {
                    break (reply.task_id.clone().unwrap_or_default(), Some(Ok(reply)));
                }
                Some(CallEvent::Ended(Err(error))) => return Err(error),
                Some(CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
                None => return Err(ended()),
            }
        };
        inbox.keep_running();
        Ok(Self { agent, inbox, task_id, end, result: PhantomData })
    }

    /// The task's id, for `hub.tasks.get`.
    pub fn task_id(&self) -> &str {
        &self.task_id
    }

    /// Waits for the task's result, over reconnects and restarts of the hub, and tells the hub that it
    /// arrived.
    ///
    /// # Errors
    /// The task's failure.
    pub async fn result(mut self) -> Result<Reply<T>, CallError> {
        let end = loop {
            if let Some(end) = self.end.take() {
                break end;
            }
            match self.inbox.next().await {
                Some(CallEvent::Ended(end)) => break end.map(|(reply, _)| reply),
                Some(CallEvent::Accepted(_) | CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
                None => break Err(ended()),
            }
        };
        // An end that this side made itself is no result: the hub still has the task.
        if !matches!(&end, Err(error) if error.code == Code::Closed) {
            self.inbox.receipt(&self.task_id);
        }
        end.and_then(typed)
    }

    /// Cancels the task in the hub and at its provider.
    ///
    /// # Errors
    /// The failure of the call to `hub.tasks.cancel`.
    pub async fn cancel(&self) -> Result<(), CallError> {
        let input = TaskId { task_id: &self.task_id };
        self.agent.call::<Payload>("hub.tasks.cancel", &input).reply().await.map(drop)
    }

    /// Watches the task: the state now, then each change, as `hub.tasks.watch` gives them.
    ///
    /// # Errors
    /// When the call cannot be made.
    pub async fn watch<C: FromPayload>(&self) -> Result<ResultStream<C, Payload>, CallError> {
        let input = TaskId { task_id: &self.task_id };
        self.agent.call::<Payload>("hub.tasks.watch", &input).stream().await
    }
}

#[derive(serde::Serialize)]
struct TaskId<'a> {
    task_id: &'a str,
}
