//! The handle of one task.

use std::marker::PhantomData;

use agent_reach_protocol::{ErrorCode, limits::CREDIT_DEFAULT};
use serde::Deserialize;

use super::TaskId;
use super::info::{TaskInfo, TaskState};
use super::watch::{TaskEvent, TaskWatch};
use crate::client::Agent;
use crate::errors::{CallError, Code};
use crate::inbox::Receiver;
use crate::payload::{FromPayload, Payload};
use crate::pending::{ended, typed};
use crate::session::{CallEvent, Reply};

/// A task that the hub has stored. It goes on without the handle: dropping it changes nothing, and the result goes
/// to the agent's [`crate::Inbox`] then.
///
/// The result comes over lost connections and over restarts of the hub, and after a restart of this program to
/// [`Agent::task`] with the same id.
#[derive(Debug)]
pub struct TaskHandle<T> {
    agent: Agent,
    id: String,
    /// Where the result comes to.
    inbox: Option<Receiver>,
    /// The hub must still be asked whether the task has ended already.
    unasked: bool,
    end: Option<Result<Reply<Payload>, CallError>>,
    result: PhantomData<fn() -> T>,
}

impl<T> TaskHandle<T> {
    /// Waits until the task is stored. A repetition of an ended one has its end at once.
    pub(crate) async fn stored(agent: Agent, inbox: Receiver) -> Result<Self, CallError> {
        let (id, end) = loop {
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
        Ok(Self { agent, id, inbox: Some(inbox), unasked: false, end, result: PhantomData })
    }

    pub(crate) const fn known(agent: Agent, id: String) -> Self {
        Self { agent, id, inbox: None, unasked: true, end: None, result: PhantomData }
    }

    /// The task's id. Whoever keeps it can get the result in another life of the program.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Cancels the task in the hub and at its provider. `true`: that ended it. `false`: it had ended before.
    ///
    /// # Errors
    /// `invalid_request` when the identity of this agent has no such task; the failure of `hub.tasks.cancel`.
    pub async fn cancel(&self) -> Result<bool, CallError> {
        #[derive(Deserialize)]
        struct Cancelled {
            cancelled: bool,
        }
        let task_id = TaskId { task_id: &self.id };
        let answer: Cancelled = self.agent.call("hub.tasks.cancel", &task_id).await?;
        Ok(answer.cancelled)
    }

    /// Where the task stands now, with its tries and its end.
    ///
    /// # Errors
    /// `invalid_request` when the identity of this agent has no such task; the failure of `hub.tasks.get`.
    pub async fn info(&self) -> Result<TaskInfo, CallError> {
        self.agent.call("hub.tasks.get", &TaskId { task_id: &self.id }).await
    }

    /// Watches the task until it ends. The hub lets an agent have 16 watches at a time.
    ///
    /// # Errors
    /// When the call cannot be made; what the hub says of it comes with [`TaskWatch::next`].
    pub async fn watch(&self) -> Result<TaskWatch, CallError> {
        let call = self.agent.call::<Payload>("hub.tasks.watch", &TaskId { task_id: &self.id });
        let stream = call.window(CREDIT_DEFAULT).stream::<Payload>().await?;
        Ok(TaskWatch::new(self.id.clone(), stream))
    }

    /// Waits for the end, and keeps it for whoever asks again.
    async fn ended(&mut self) -> Result<Reply<Payload>, CallError> {
        loop {
            if let Some(end) = &self.end {
                return end.clone();
            }
            let inbox = match &self.inbox {
                Some(inbox) => inbox,
                None => {
                    // Before the hub is asked, lest the result come between the two.
                    let inbox = self.agent.claim(&self.id).await?;
                    self.inbox.insert(inbox)
                }
            };
            if self.unasked {
                let end = self.look().await?;
                self.unasked = false;
                self.end = end;
                continue;
            }
            match inbox.next().await {
                Some(CallEvent::Ended(end)) => self.end = Some(end.map(|(reply, _)| reply)),
                Some(CallEvent::Accepted(_) | CallEvent::Chunk { .. } | CallEvent::Part { .. }) => {}
                None => self.end = Some(Err(ended())),
            }
        }
    }

    /// Asks the hub how the task ended. `None`: it has not, and its end comes to this agent by itself.
    async fn look(&self) -> Result<Option<Result<Reply<Payload>, CallError>>, CallError> {
        let mut info = match self.info().await {
            Ok(info) => info,
            // Its result has no room beside all else that this shows of it; it has in a message of its own.
            Err(error) if error.code == ErrorCode::PayloadTooLarge => return Ok(None),
            Err(error) => return Err(error),
        };
        if !info.state.is_over() {
            if info.caller == self.agent.agent_id() {
                return Ok(None);
            }
            // Another agent of the same identity submitted it: the result goes there.
            let mut watch = self.watch().await?;
            while let Some(event) = watch.next().await {
                drop::<TaskEvent>(event?);
            }
            info = self.info().await?;
        }
        self.agent.received(&self.id);
        Ok(Some(end_of(info)))
    }
}

impl<T: FromPayload> TaskHandle<T> {
    /// Waits for the task's result. Cancel-safe: it can be waited for again, and asked for again when it is there.
    ///
    /// # Errors
    /// The task's failure; `invalid_request` when the identity of this agent has no such task; `closed` when the
    /// agent is closed, which does not end the task.
    pub async fn result(&mut self) -> Result<T, CallError> {
        self.reply().await.map(|reply| reply.body)
    }

    /// The same, with how it got there.
    ///
    /// # Errors
    /// As [`TaskHandle::result`].
    pub async fn reply(&mut self) -> Result<Reply<T>, CallError> {
        self.ended().await.and_then(typed)
    }
}

/// The end of a task as `hub.tasks.get` shows it.
fn end_of(info: TaskInfo) -> Result<Reply<Payload>, CallError> {
    let body = info.payload();
    if info.state == TaskState::Succeeded {
        return Ok(Reply {
            body,
            target: info.target,
            call_id: None,
            request_id: info.request_id,
            attempts: info.attempts,
            route: info.route,
            execution: info.execution,
            cached: false,
            duplicate: false,
            task_id: Some(info.task_id),
        });
    }
    let told = info.error.unwrap_or_default();
    let code = if told.code.is_empty() { info.outcome.unwrap_or_default() } else { told.code };
    let mut error = CallError::new(Code::of(&code), told.message);
    error.retryable = told.retryable;
    error.details = told.details.map(|details| details.body);
    error.request_id = info.request_id;
    error.target = info.target;
    error.attempts = info.attempts;
    Err(error)
}
