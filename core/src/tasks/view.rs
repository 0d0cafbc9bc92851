//! Tasks as `hub.tasks.*` and watches show them.

use std::sync::Arc;

use agent_reach_protocol::codec::Raw;
use agent_reach_protocol::{CallResult, ToAgent, decode_to_agent};
use serde::Serialize;

use super::Task;
use super::end::EndedTask;
use crate::calls::Call;
use crate::hub::{Hub, Turn};
use crate::rows::{CallbackRow, TaskRow};
use crate::store::TaskId;
use crate::views::{About, Audience, Event, WatchFilter, pack};

/// One task.
#[derive(Debug, Serialize)]
pub(crate) struct TaskView<'a> {
    task_id: String,
    state: &'static str,
    capability: &'a str,
    request_id: &'a str,
    caller: &'a str,
    /// Tries so far.
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    /// Since it was accepted, and since it moved last.
    age_ms: u64,
    unchanged_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
    /// The task whose CALL this one makes again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_of: Option<String>,
    /// Of one task only.
    #[serde(flatten)]
    details: Option<Details>,
}

/// What is shown of one task that is asked for.
#[derive(Debug, Default, Serialize)]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
    attempts: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// The result's body: the value, where it is MessagePack.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<rmpv::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<CallbackView>,
}

/// Deliveries of the end to the task's URL.
#[derive(Debug, Serialize)]
struct CallbackView {
    url: String,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// Left out where there will be none.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_in_ms: Option<u64>,
}

impl CallbackView {
    fn of(unix: u64, row: &CallbackRow) -> Self {
        Self {
            url: row.url.to_string(),
            attempts: row.attempts,
            outcome: row.outcome.as_deref().map(str::to_owned),
            next_in_ms: row.next.map(|next| next.saturating_sub(unix)),
        }
    }
}

#[derive(Debug, Serialize)]
struct ErrorView {
    code: String,
    message: String,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<rmpv::Value>,
}

#[derive(Debug, Serialize)]
struct AttemptView {
    target: String,
    outcome: String,
    ms: u64,
    reason: String,
}

/// Most levels of a body that are shown as a value; a deeper one is shown as its bytes.
const DEPTH_MAX: usize = 64;

fn value_of(bytes: &[u8]) -> rmpv::Value {
    let mut rest = bytes;
    match rmpv::decode::read_value_with_max_depth(&mut rest, DEPTH_MAX) {
        Ok(value) if rest.is_empty() => value,
        _ => rmpv::Value::Binary(bytes.to_vec()),
    }
}

impl Details {
    fn of_end(result: &CallResult<'_>, body: Option<&[u8]>) -> Self {
        let error = result.error.as_ref().map(|error| ErrorView {
            code: error.code.to_owned(),
            message: error.message.to_owned(),
            retryable: error.retryable,
            details: error.details.map(|Raw(details)| value_of(details)),
        });
        let attempts = result.attempts.iter().map(|attempt| AttemptView {
            target: attempt.target.to_owned(),
            outcome: attempt.outcome.to_owned(),
            ms: attempt.ms,
            reason: attempt.reason.to_owned(),
        });
        Self {
            error,
            attempts: attempts.collect(),
            execution_ms: result.execution_ms,
            route: result.route.map(str::to_owned),
            result: body.map(|body| match result.content_type {
                None => value_of(body),
                Some(_) => rmpv::Value::Binary(body.to_vec()),
            }),
            content_type: result.content_type.map(str::to_owned),
            callback: None,
        }
    }
}

impl<'a> TaskView<'a> {
    /// Of an open task.
    pub(super) fn of_open(hub: &'a Hub, turn: &Turn<'_>, call: &'a Call, task: &'a Task) -> Self {
        let leg = call.legs.iter().filter_map(|index| hub.legs.get(index)).next();
        let tries = u32::try_from(task.earlier + call.attempts.len()).unwrap_or(u32::MAX);
        let unix = hub.unix(turn.now);
        Self {
            task_id: task.id.to_string(),
            state: task.state.as_str(),
            capability: &call.capability,
            request_id: &call.request_id,
            caller: &call.caller,
            attempt: leg.map_or(tries, |leg| leg.attempt),
            target: leg.map(|leg| &*leg.target),
            age_ms: unix.saturating_sub(task.created),
            unchanged_ms: unix.saturating_sub(task.updated),
            budget_left_ms: Some(call.budget_at.ms_since(turn.now)),
            outcome: None,
            retry_of: task.retry_of.map(|of| of.to_string()),
            details: None,
        }
    }

    /// The same with what is shown of one task only.
    pub(super) fn in_full(mut self, call: &Call) -> Self {
        let attempts = call.attempts.iter().map(|tried| AttemptView {
            target: tried.target.to_string(),
            outcome: tried.outcome.as_str().to_owned(),
            ms: tried.ms,
            reason: tried.reason.to_string(),
        });
        self.details = Some(Details { attempts: attempts.collect(), ..Details::default() });
        self
    }

    /// Of a task that the store knows; with its end, if the row has it.
    pub(super) fn of_row(unix: u64, row: &'a TaskRow) -> Self {
        let details = row.end.as_ref().and_then(|end| match decode_to_agent(end) {
            Ok((ToAgent::Result(result), body)) => {
                let callback = row.callback.as_ref().map(|callback| CallbackView::of(unix, callback));
                Some(Details { callback, ..Details::of_end(&result, body.as_deref()) })
            }
            _ => None,
        });
        Self {
            task_id: row.id.to_string(),
            state: row.state.as_str(),
            capability: &row.capability,
            request_id: &row.request_id,
            caller: &row.agent,
            attempt: row.attempt,
            target: row.holder.as_deref(),
            age_ms: unix.saturating_sub(row.created),
            unchanged_ms: unix.saturating_sub(row.updated),
            budget_left_ms: None,
            outcome: row.outcome.as_deref(),
            retry_of: row.retry_of.map(|of| of.to_string()),
            details,
        }
    }
}

/// The body of one CHUNK of a watch that shows a piece of a task's stream.
#[derive(Debug, Serialize)]
struct Progress<'a> {
    event: &'static str,
    task_id: &'a str,
    progress: Option<rmpv::Value>,
}

/// Most bytes of a piece that a watch shows.
const PROGRESS_MAX: usize = 64 * 1024;

impl Hub {
    /// Open tasks that a watch wants to see, in the order of their ids.
    pub(crate) fn tasks_for(&self, turn: &Turn<'_>, filter: &WatchFilter) -> Vec<TaskView<'_>> {
        let calls = self.tasks.by_id.values().filter_map(|index| self.calls.get(*index));
        let open = calls.filter_map(|call| Some((call, call.task.as_deref()?)));
        let wanted = open.filter(|(call, task)| {
            task.stored
                && filter.wants_task(&task.identity, task.id)
                && filter.matches(&call.caller, Some(&call.capability))
        });
        wanted.map(|(call, task)| TaskView::of_open(self, turn, call, task)).collect()
    }

    pub(super) fn announce_task(&mut self, turn: &mut Turn<'_>, index: usize, event: &'static str) {
        if self.watches.is_empty() {
            return;
        }
        let Some(call) = self.calls.get(index) else { return };
        let Some(task) = &call.task else { return };
        let view = TaskView::of_open(self, turn, call, task);
        let packed = pack(&Event::Task { event, task: view });
        self.announce_about(turn, index, Audience::All, packed);
    }

    pub(super) fn announce_progress(&mut self, turn: &mut Turn<'_>, index: usize, body: Option<&[u8]>) {
        if self.watches.is_empty() {
            return;
        }
        let Some(task) = self.calls.get(index).and_then(|call| call.task.as_ref()) else { return };
        let progress = |progress| Progress { event: "task.progress", task_id: &task.text, progress };
        let whole = pack(&progress(body.filter(|body| body.len() <= PROGRESS_MAX).map(value_of)));
        // What is in it is its owner's alone, as results are.
        let bare = pack(&progress(None));
        self.announce_about(turn, index, Audience::Owner, whole);
        self.announce_about(turn, index, Audience::Others, bare);
    }

    fn announce_about(&mut self, turn: &mut Turn<'_>, index: usize, audience: Audience, packed: Vec<u8>) {
        let Some(call) = self.calls.get(index) else { return };
        let Some(task) = &call.task else { return };
        let (caller, capability) = (Arc::clone(&call.caller), Arc::clone(&call.capability));
        let (owner, id): (Arc<str>, TaskId) = (Arc::clone(&task.identity), task.id);
        let (capability, task) = (Some(&*capability), Some((&*owner, id)));
        let about = About { subject: "tasks", agent_id: &caller, capability, task, audience };
        self.announce(turn, &about, packed);
    }

    pub(super) fn announce_task_end(&mut self, turn: &mut Turn<'_>, ended: &EndedTask, event: &'static str) {
        if self.watches.is_empty() {
            return;
        }
        let row = &ended.row;
        let packed = pack(&Event::Task { event, task: TaskView::of_row(self.unix(turn.now), row) });
        let (capability, task) = (Some(&*row.capability), Some((&*ended.identity, row.id)));
        let audience = Audience::All;
        let about = About { subject: "tasks", agent_id: &row.agent, capability, task, audience };
        self.announce(turn, &about, packed);
    }
}
