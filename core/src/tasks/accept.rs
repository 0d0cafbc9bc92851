//! A task is accepted: when the store has it, and not before.

use std::sync::Arc;

use agent_reach_protocol::{Accept, Call as Asking, CallMode, ErrorCode, Kind, encode, names};
use bytes::Bytes;

use super::writing::After;
use super::{OWNER_SHARE, TASK_BYTES, Task};
use crate::calls::{Failure, LISTENERS_MAX, Listener, Refusal, is_fan_out};
use crate::fingerprint::Fingerprint;
use crate::hub::{Hub, Turn, text_map};
use crate::registry::Asked;
use crate::session::Lane;
use crate::store::{Change, NewTask, TaskId, TaskState};
use crate::text::CallId;

/// Most new tasks that wait to be written at one time.
const STORING_MAX: usize = 16_384;
/// What `reply_to` begins with.
const INBOX: &str = "agent:";

/// Whose a new task is, and what it comes from.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) identity: Arc<str>,
    pub(super) retry_of: Option<TaskId>,
}

/// The agent_id in `reply_to`.
pub(super) fn inbox_of(reply_to: &str) -> Option<&str> {
    reply_to.strip_prefix(INBOX).filter(|agent| names::is_agent_id(agent))
}

impl Hub {
    /// Checks where a result is to go beside its caller, which only tasks may ask. Gives the URL in its one form.
    pub(crate) fn check_delivery(&self, asking: &Asking<'_>) -> Result<Option<Arc<str>>, Refusal> {
        let keys = [("callback_url", asking.callback_url), ("reply_to", asking.reply_to)];
        if asking.mode != Some(CallMode::Task) {
            return match keys.iter().find(|(_, value)| value.is_some()) {
                Some((field, _)) => Err(Refusal::invalid(field, &format!("{field}: only a task has one"))),
                None => Ok(None),
            };
        }
        let url = asking.callback_url.map(|url| (self.settings.callbacks.0)(url)).transpose();
        let url = url.map_err(|(code, reason)| {
            Failure::new(code, reason).with_details(text_map(&[("field", "callback_url")]))
        })?;
        if let Some(reply_to) = asking.reply_to
            && inbox_of(reply_to).is_none()
        {
            return Err(Refusal::invalid("reply_to", "reply_to must be agent: and an agent_id"));
        }
        Ok(url.map(Into::into))
    }

    /// Whether there is room for one more of this agent's, and a store that takes it.
    pub(crate) fn make_room_for_task(
        &self,
        key: usize,
        asking: &Asking<'_>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let identity = self.registry.agents.get(key).map_or("", |agent| &agent.identity);
        self.make_room_for_task_of(identity, asking, bytes)
    }

    /// The same for an identity that need not be here.
    pub(super) fn make_room_for_task_of(
        &self,
        identity: &str,
        asking: &Asking<'_>,
        bytes: usize,
    ) -> Result<(), Refusal> {
        if self.draining.is_some() {
            return Err(Refusal::new(ErrorCode::ShuttingDown, "the hub is draining"));
        }
        if is_fan_out(asking) {
            let field = if asking.select.is_some() { "select" } else { "agents" };
            return Err(Refusal::invalid(field, &format!("{field}: a task is for one agent")));
        }
        if !self.settings.store {
            return Err(Refusal::new(ErrorCode::Unsupported, "this hub has no store for tasks"));
        }
        if !self.tasks.writable {
            return Err(Failure::overloaded("the store cannot be written now").into());
        }
        if self.tasks.storing >= STORING_MAX {
            return Err(Failure::overloaded("too many new tasks wait to be written").into());
        }
        let cost = bytes + TASK_BYTES;
        if self.tasks.bytes + cost > self.settings.task_bytes {
            return Err(Failure::overloaded("the open tasks of all together fill their bound").into());
        }
        let own = self.tasks.by_owner.get(identity).copied().unwrap_or(0);
        if own + cost > self.settings.task_bytes / OWNER_SHARE {
            return Err(Failure::overloaded("the open tasks of this identity fill its share").into());
        }
        Ok(())
    }

    /// Has a new task written.
    pub(crate) fn store_task(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        asking: &Asking<'_>,
        message: (&Bytes, Option<&[u8]>),
        fingerprint: Fingerprint,
        callback_url: Option<Arc<str>>,
    ) {
        let owner = self.calls.get(call_index).and_then(|call| self.registry.agents.get(call.owner.0));
        let identity = owner.map_or_else(|| "".into(), |agent| Arc::clone(&agent.identity));
        let origin = Origin { identity, retry_of: None };
        self.store_task_of(turn, call_index, asking, message, fingerprint, callback_url, origin);
    }

    /// The same for an owner that need not be here.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one CALL, read once, and where it comes from"
    )]
    pub(super) fn store_task_of(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        asking: &Asking<'_>,
        (message, body): (&Bytes, Option<&[u8]>),
        fingerprint: Fingerprint,
        callback_url: Option<Arc<str>>,
        Origin { identity, retry_of }: Origin,
    ) -> Option<TaskId> {
        self.keep_asked(call_index, asking, body);
        let created = self.unix(turn.now);
        let id = TaskId::new(created, self.rng.next(), self.rng.next());
        let call = self.calls.get_mut(call_index)?;
        let reply_to: Option<Arc<str>> = asking.reply_to.and_then(inbox_of).map(Into::into);
        let bytes = call.given.len() + TASK_BYTES;
        let own = Task {
            id,
            text: id.to_string().into(),
            identity: Arc::clone(&identity),
            state: TaskState::Queued,
            stored: false,
            earlier: 0,
            created,
            updated: created,
            reply_to: reply_to.clone(),
            callback: asking.callback_url.is_some(),
            bytes,
            retry_of,
        };
        self.tasks.enter(&own, call_index);
        call.task = Some(Box::new(own));
        let new = NewTask {
            id,
            identity,
            agent: Arc::clone(&call.caller),
            request_id: Arc::clone(&call.request_id),
            capability: Arc::clone(&call.capability),
            fingerprint: fingerprint.bits(),
            keep_until: created.saturating_add(call.keep_ms),
            created,
            budget_until: created.saturating_add(call.budget_at.ms_since(turn.now)),
            // It is kept while it is open: not as a piece of a larger buffer.
            call: Bytes::copy_from_slice(message),
            callback_url,
            reply_to,
            retry_of,
        };
        self.tasks.storing += 1;
        self.change_then(turn, Change::Task(Box::new(new)), After::Accept(id));
        Some(id)
    }

    /// The store has a new task: it is accepted, and looks for who can take it.
    pub(super) fn task_stored(&mut self, turn: &mut Turn<'_>, id: TaskId) {
        self.tasks.storing = self.tasks.storing.saturating_sub(1);
        self.say_retried(turn, id, Ok(()));
        let Some(index) = self.tasks.find(id) else { return };
        let Some(call) = self.calls.get_mut(index) else { return };
        let Some(task) = &mut call.task else { return };
        task.stored = true;
        let listeners = call.listeners.clone();
        self.tasks.moved(None, Some(TaskState::Queued));
        for listener in listeners {
            self.say_accepted(turn, index, listener);
        }
        self.announce_task(turn, index, "task.queued");
        self.try_now_or_wait(turn, index, None);
    }

    /// The store could not write a new task: it never was.
    pub(super) fn task_refused(&mut self, turn: &mut Turn<'_>, id: TaskId, reason: &str) {
        self.tasks.storing = self.tasks.storing.saturating_sub(1);
        let failure = Failure::overloaded(&format!("the task could not be stored: {reason}"));
        self.say_retried(turn, id, Err(failure.clone()));
        let Some(index) = self.tasks.find(id) else { return };
        let Some(task) = self.calls.get_mut(index).and_then(|call| call.task.take()) else { return };
        self.tasks.leave(&task);
        let Some(call) = self.calls.get_mut(index) else { return };
        // It ends as a call does, which gives back what a call has.
        call.tiers.cached_ms = 0;
        self.open_bytes += call.cost();
        let (owner, serial) = call.owner;
        if let Some(owner) = self.registry.agents.get_mut(owner).filter(|owner| owner.serial == serial) {
            owner.open_bytes += call.cost();
        }
        for Listener { agent, .. } in &call.listeners {
            if let Some(agent) = self.registry.agents.get_mut(*agent) {
                agent.tasks = agent.tasks.saturating_sub(1);
            }
        }
        self.settle(turn, index, failure);
    }

    /// Says to one who waits that the task is accepted.
    fn say_accepted(&mut self, turn: &mut Turn<'_>, index: usize, to: Listener) {
        let epoch = self.epoch();
        let Some(call) = self.calls.get(index) else { return };
        let Some(task) = &call.task else { return };
        let call_id = CallId::new(epoch, call.number);
        let accept = Accept {
            request_id: Some(&call.request_id),
            call_id: Some(&call_id),
            task_id: Some(&task.text),
            attempt: Some(1),
            ..Accept::of(to.id)
        };
        let message = encode(&accept, None);
        self.send_to_agent(turn, to.agent, Kind::Accept, Lane::Control, message);
    }

    /// A CALL repeats an open task: it is told the task's name, and its end when that comes.
    pub(crate) fn join_task(&mut self, turn: &mut Turn<'_>, key: usize, asking: &Asking<'_>, index: usize) {
        let listener = Listener { agent: key, id: asking.id };
        let Some(call) = self.calls.get_mut(index) else { return };
        let stored = call.task.as_ref().is_some_and(|task| task.stored);
        if call.listeners.len() < LISTENERS_MAX {
            call.listeners.push(listener);
            if let Some(agent) = self.registry.agents.get_mut(key) {
                agent.asked.insert(asking.id, Asked::Call(index));
                agent.tasks += 1;
            }
        } else if !stored {
            let failure = Failure::overloaded(&format!("{LISTENERS_MAX} CALLs wait for this task already"));
            return self.refuse_asking(turn, key, asking, &failure.into());
        }
        if stored {
            self.say_accepted(turn, index, listener);
        }
    }
}
