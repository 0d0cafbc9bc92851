//! What happens to one task, as it happens.

use std::collections::VecDeque;

use serde::Deserialize;

use super::info::TaskInfo;
use crate::errors::{CallError, Code};
use crate::payload::{IntoPayload, Payload};
use crate::pending::ResultStream;

/// One thing that happened to a task.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TaskEvent {
    /// Where it stands: first as it is now, then after each step.
    State(Box<TaskInfo>),
    /// What its handler said of how far it is.
    Progress(Payload),
}

/// A chunk of `hub.tasks.watch`: the state now in pieces, then one event each.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    event: String,
    tasks: Vec<TaskInfo>,
    task: Option<TaskInfo>,
    progress: Option<rmpv::Value>,
}

/// Watches one task: where it stands now, each change from then on, and its end, after which it gives nothing more.
/// After a lost connection it begins anew with the state as it is then, so no change is missed but those that were
/// over already. Dropping it ends the watch.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct TaskWatch {
    task_id: String,
    stream: ResultStream<Payload, Payload>,
    waiting: VecDeque<TaskEvent>,
    over: bool,
}

impl TaskWatch {
    pub(super) const fn new(task_id: String, stream: ResultStream<Payload, Payload>) -> Self {
        Self { task_id, stream, waiting: VecDeque::new(), over: false }
    }

    /// The next event. `None` after the end of the task, or after an error. Cancel-safe.
    ///
    /// # Errors
    /// `invalid_request` when the identity of this agent has no such task, and whatever ends the watch.
    pub async fn next(&mut self) -> Option<Result<TaskEvent, CallError>> {
        loop {
            if self.over {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                self.over = matches!(&event, TaskEvent::State(info) if info.state.is_over());
                return Some(Ok(event));
            }
            match self.stream.next().await {
                Some(Ok(chunk)) => match chunk.body.decode() {
                    Ok(told) => self.take(told),
                    Err(problem) => {
                        self.over = true;
                        let text = format!("an event of the watch cannot be read: {problem}");
                        return Some(Err(CallError::new(Code::Decode, text)));
                    }
                },
                Some(Err(error)) => {
                    self.over = true;
                    return Some(Err(error));
                }
                None => {
                    self.over = true;
                    let text = "the hub ended the watch before the task had ended";
                    return Some(Err(CallError::new(Code::Interrupted, text)));
                }
            }
        }
    }

    fn take(&mut self, told: Told) {
        let states = told.tasks.into_iter().chain(told.task);
        let own = states.filter(|info| info.task_id == self.task_id);
        self.waiting.extend(own.map(|info| TaskEvent::State(Box::new(info))));
        if told.event == "task.progress" {
            let value = told.progress.unwrap_or(rmpv::Value::Nil);
            self.waiting.extend(value.into_payload().ok().map(TaskEvent::Progress));
        }
    }
}
