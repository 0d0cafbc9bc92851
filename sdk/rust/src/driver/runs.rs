//! Handlers: started on the program's own runtime, each a task, told of credit and cancelling.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agent_reach_protocol::ErrorCode;
use futures_util::FutureExt;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Driver, FAR};
use crate::client::Agent;
use crate::errors::HandlerError;
use crate::provide;
use crate::session::{Failure, Invocation, Outcome, RunKey, Work};

/// What the connection holds of a handler that runs.
pub(super) struct RunHandle {
    abort: AbortHandle,
    credit: Arc<Semaphore>,
    cancel: watch::Sender<bool>,
}

impl Driver {
    pub(super) fn start(&mut self, call: Invocation) {
        let run = call.run;
        let Some(handler) = self.handlers.get(&call.capability).map(Arc::clone) else {
            let failure = Failure::new(ErrorCode::Unsupported, "the capability was just removed");
            return self.input(Work::Finished(run, Outcome::Failed(failure)));
        };
        let permits = usize::try_from(call.credit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let credit = Arc::new(Semaphore::new(permits));
        let (cancel, cancelled) = watch::channel(false);
        let events = self.events_sender.clone();
        let payload = call.payload.clone();
        let context = provide::Context {
            inner: Arc::new(provide::Inner {
                deadline: Instant::now() + call.deadline.min(FAR),
                credit: Arc::clone(&credit),
                cancelled,
                events: events.clone(),
                max_message: Arc::clone(&self.max_message),
                agent: Agent::new(Arc::clone(&self.shared)),
                call,
            }),
        };
        let work = async move {
            let work = async move { handler(context, payload).await };
            let outcome = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(Ok(payload)) => Outcome::Completed(payload),
                Ok(Err(error)) => Outcome::Failed(error.into()),
                Err(_) => Outcome::Failed(HandlerError::new("panic", "the handler panicked").into()),
            };
            if events.send(Work::Finished(run, outcome)).await.is_err() {
                tracing::debug!("a handler outlived its agent");
            }
        };
        let abort = self.tasks.spawn_on(work, &self.program);
        self.runs.insert(run, RunHandle { abort, credit, cancel });
    }

    /// Lets a handler emit so many chunks more.
    pub(super) fn grant_run(&self, run: RunKey, n: u64) {
        if let Some(handle) = self.runs.get(&run) {
            let room = Semaphore::MAX_PERMITS - handle.credit.available_permits();
            handle.credit.add_permits(usize::try_from(n).unwrap_or(usize::MAX).min(room));
        }
    }

    /// Tells a handler that nobody wants its result.
    pub(super) fn cancel_run(&self, run: RunKey) {
        if let Some(handle) = self.runs.get(&run) {
            handle.cancel.send_replace(true);
            handle.credit.close();
        }
    }

    /// Drops a handler's future.
    pub(super) fn abort_run(&mut self, run: RunKey) {
        if let Some(handle) = self.runs.remove(&run) {
            handle.abort.abort();
        }
    }
}
