//! `hub.tasks.retry`: the CALL of a task that failed, made once more as a task of its own.
//!
//! It is an operator's act and on purpose a second run, whatever came of the first: the new task has a request id of
//! its own, so that neither the hub nor a provider answers it from memory. Its owner stays who submitted the first one,
//! and its rights are those that the owner has now, never the operator's.

use std::sync::Arc;

use agent_reach_protocol::{Call as Asking, CallMode, ErrorCode, Policy, ToHub, limits, read_to_hub};
use serde::Serialize;

use super::accept::Origin;
use super::questions::{Waiter, Waits};
use crate::authz;
use crate::calls::{Asker, Failure, Refusal, is_fan_out};
use crate::fingerprint::Fingerprint;
use crate::hub::{Hub, Turn, clip_to};
use crate::routing::Note;
use crate::rows::StoredCall;
use crate::store::{NewTask, TaskId, TaskState};
use crate::views::pack;

/// The capability.
pub(super) const RETRY: &str = "hub.tasks.retry";
/// Between the request id that a task had and what tells its retry from it: twelve hexadecimal digits.
const MARK: char = '~';
const DIGITS: usize = 12;

fn refused(message: &str) -> Refusal {
    Refusal::invalid("task_id", message)
}

/// Only what has ended is made again.
pub(super) fn still_open() -> Refusal {
    refused("the task has not ended")
}

impl Hub {
    /// The store says what a task was that is to be made again.
    pub(super) fn retry_task(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, stored: &StoredCall) {
        if let Err(refusal) = self.make_again(turn, waiter, stored) {
            self.fail_waiter(turn, waiter, &refusal);
        }
    }

    fn make_again(
        &mut self,
        turn: &mut Turn<'_>,
        waiter: &Waiter,
        StoredCall { task, state }: &StoredCall,
    ) -> Result<(), Refusal> {
        match state {
            TaskState::Queued | TaskState::Received | TaskState::Processing => return Err(still_open()),
            TaskState::Succeeded => return Err(refused("the task has succeeded")),
            TaskState::Failed => {}
        }
        if let Some(again) = self.tasks.retried.get(&task.id) {
            return Err(refused(&format!("the retry of the task is open: {again}")));
        }
        let kept = read_to_hub(&task.call, None);
        let Ok((ToHub::Call(asking), body)) = kept else {
            return Err(refused("the CALL of the task is not kept any more"));
        };
        if asking.mode != Some(CallMode::Task) || is_fan_out(&asking) {
            return Err(refused("the CALL of the task cannot be read any more"));
        }
        self.owner_may(task)?;
        let callback = self.check_delivery(&asking)?;
        self.make_room_for_task_of(&task.identity, &asking, task.call.len())?;
        let request_id = self.request_id_again(task);
        let asker = Asker {
            key: usize::MAX,
            serial: 0,
            agent: Arc::clone(&task.agent),
            identity: Arc::clone(&task.identity),
        };
        let asking = Asking { request_id: Some(&request_id), ..asking };
        let note = Note::new(asking.policy.unwrap_or(Policy::LeastLoaded));
        let fingerprint = Fingerprint::from_bits(task.fingerprint);
        let bytes = task.call.len();
        let call = self.open_call(turn, asker, &asking, &task.capability, bytes, fingerprint, note);
        if let Some(call) = self.calls.get_mut(call) {
            // Nobody's CALL is open for it.
            call.listeners.clear();
        }
        let origin = Origin { identity: Arc::clone(&task.identity), retry_of: Some(task.id) };
        let message = (&task.call, body);
        let new = self.store_task_of(turn, call, &asking, message, fingerprint, callback, origin);
        let Some(new) = new else { return Ok(()) };
        self.note_act(turn, waiter.key, RETRY, &format!("{} as {new}", task.id));
        if let Some(number) = self.wait_on(Waits::Retry(waiter.clone(), task.id)) {
            self.tasks.retries.insert(new, number);
        }
        Ok(())
    }

    /// Whether the owner of a task may ask for it by the rules of now: an operator's word gives nobody a right.
    fn owner_may(&self, task: &NewTask) -> Result<(), Refusal> {
        let grant = self.policy.grant(&task.identity, &task.agent, &task.agent);
        let names = [&*task.capability, self.policy.resolve(&task.capability)];
        let granted = grant.is_some_and(|grant| names.iter().all(|name| authz::covers(&grant.call, name)));
        if granted {
            return Ok(());
        }
        let message = format!("{}, whose task it is, may not call {} any more", task.agent, task.capability);
        Err(Refusal::new(ErrorCode::Unauthorized, message))
    }

    /// The request id that a task had, and chance: nobody's memory knows it. A retry of a retry has the first one's.
    fn request_id_again(&mut self, task: &NewTask) -> String {
        let own = &*task.request_id;
        let first = task.retry_of.and(own.rsplit_once(MARK)).map_or(own, |(first, _)| first);
        let first = clip_to(first, limits::ID_BYTES_MAX - DIGITS - MARK.len_utf8());
        loop {
            let again = format!("{first}{MARK}{:012x}", self.rng.next() >> 16);
            if !self.memory.has(&task.identity, &again) {
                return again;
            }
        }
    }

    /// A task that makes another's CALL again is in the store, or could not be written: who asked for it is told.
    pub(super) fn say_retried(&mut self, turn: &mut Turn<'_>, task: TaskId, stored: Result<(), Failure>) {
        #[derive(Serialize)]
        struct Retried {
            task_id: String,
            retry_of: String,
        }
        let Some(question) = self.tasks.retries.remove(&task) else { return };
        let Some(Waits::Retry(waiter, retry_of)) = self.no_longer_waits(question) else { return };
        match stored {
            Ok(()) => {
                let body = pack(&Retried { task_id: task.to_string(), retry_of: retry_of.to_string() });
                self.answer_waiter(turn, &waiter, &body);
            }
            Err(failure) => self.fail_waiter(turn, &waiter, &failure.into()),
        }
        self.close_if_idle(turn, waiter.connection);
    }
}
