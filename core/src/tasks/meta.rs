//! `hub.tasks.*`: what an owner, or an operator, sees of tasks, and how one is ended.
//!
//! What is open is known here; what has ended only the store knows, and the CALL waits for its answer.

use std::sync::Arc;

use agent_reach_protocol::names::Pattern;
use agent_reach_protocol::{Call as Asking, ErrorCode};
use serde::{Deserialize, Serialize};

use super::questions::{Waiter, Waits};
use super::retry::{RETRY, still_open};
use super::view::TaskView;
use crate::calls::Refusal;
use crate::events::Watch;
use crate::hub::{Hub, Turn};
use crate::meta::{Answered, Page, read, read_text};
use crate::registry::Agent;
use crate::rows::{TaskRow, Whose};
use crate::store::{Answer, Question, TaskId, TaskState};
use crate::views::{WatchFilter, pack};

/// Most tasks of one list, unless fewer are asked for.
const PAGE: usize = 100;
/// Most that may be asked for.
const PAGE_MAX: usize = 1000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TaskFilter {
    state: Option<String>,
    capability: Option<String>,
    /// Continue before this task_id: the newest come first.
    before: Option<String>,
    limit: Option<usize>,
    /// Everybody's, not only one's own: for operators.
    all: bool,
}

/// A right, and no capability: to see and cancel the tasks of everybody. No pattern covers it but its own name, since
/// who may ask the hub for everything is not thereby to read what others were told.
pub const ALL_TASKS: &str = "hub.tasks.all";

pub(super) fn sees_all(agent: &Agent) -> bool {
    let is_it = |pattern: &Pattern| matches!(pattern, Pattern::Name(name) if name.as_str() == ALL_TASKS);
    agent.grant.call.iter().any(is_it) && agent.may_call(ALL_TASKS)
}

/// Whose tasks are meant: one's own, or with `all` everybody's.
fn whose(agent: &Agent, all: bool) -> Result<Whose, Refusal> {
    match (all, sees_all(agent)) {
        (false, _) => Ok(Whose::One(Arc::clone(&agent.identity))),
        (true, true) => Ok(Whose::Everybodys),
        (true, false) => {
            let message = format!("tasks of others are shown to who is granted {ALL_TASKS} by its name");
            Err(Refusal::new(ErrorCode::Unauthorized, message))
        }
    }
}

impl TaskFilter {
    /// Whose tasks are listed. The store finds one identity's tasks by every filter at once, everybody's only where they
    /// are open or follow each other.
    fn whose(&self, agent: &Agent, state: Option<TaskState>) -> Result<Whose, Refusal> {
        let is_open = state.is_some_and(|state| state <= TaskState::Processing);
        if self.all && (state.is_some() || self.capability.is_some()) && !is_open {
            return Err(Refusal::invalid(
                "all",
                "with all, state must be one of an open task, or there is no filter",
            ));
        }
        whose(agent, self.all)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OneTask {
    /// Whoever's it is: for operators.
    all: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TaskWatch {
    task_id: Option<String>,
}

/// What is asked of the store for a `hub.tasks.*`.
#[derive(Debug)]
pub(crate) enum Query {
    List {
        state: Option<TaskState>,
        limit: usize,
    },
    Get,
    /// Of a task that is not open any more.
    Cancel,
    /// The CALL of a task that has ended, which is to be made again.
    Retry,
    /// Of a task that is not open any more.
    Watch(Box<Watch>),
}

#[derive(Serialize)]
struct Cancelled<'a> {
    task_id: String,
    state: &'static str,
    /// Whether this ended it.
    cancelled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
}

/// One answer for a task that is not there and for one that is another's.
pub(super) fn unknown_task() -> Refusal {
    Refusal::invalid("task_id", "task_id names no task of yours")
}

fn task_of(text: &str) -> Result<TaskId, Refusal> {
    text.parse().map_err(|_| unknown_task())
}

impl Hub {
    pub(crate) fn ask_tasks(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        name: &str,
        body: Option<&[u8]>,
    ) -> Result<(), Refusal> {
        let Some(agent) = self.registry.agents.get(key) else { return Ok(()) };
        match name {
            "hub.tasks.list" => {
                let filter: TaskFilter = read(body)?;
                let state = filter.state.as_deref().map(|word| {
                    let unknown = || Refusal::invalid("state", &format!("{word:?} is no state of a task"));
                    TaskState::parse(word).ok_or_else(unknown)
                });
                let state = state.transpose()?;
                let before = filter.before.as_deref().map(task_of).transpose();
                let before = before.map_err(|_| Refusal::invalid("before", "before must be a task_id"))?;
                let limit = filter.limit.unwrap_or(PAGE).min(PAGE_MAX);
                let question = Question::Tasks {
                    whose: filter.whose(agent, state)?,
                    state,
                    capability: filter.capability.as_deref().map(Into::into),
                    before,
                    most: limit + 1,
                };
                self.ask_store(turn, key, asking, question, |waiter| {
                    Waits::Query(waiter, Query::List { state, limit })
                })
            }
            "hub.tasks.watch" => {
                let identity = Arc::clone(&agent.identity);
                self.watch_tasks(turn, key, asking, identity, read(body)?)
            }
            _ => {
                let task = task_of(read_text(body, "task_id")?)?;
                // Who operates on tasks means everybody's where it may.
                let all = read::<OneTask>(body)?.all || (name == RETRY && sees_all(agent));
                let whose = whose(agent, all)?;
                match (name, self.open_task(&whose, task)) {
                    (RETRY, Some(_)) => Err(still_open()),
                    (RETRY, None) => {
                        let question = Question::Call { whose, task };
                        self.ask_store(turn, key, asking, question, |waiter| {
                            Waits::Query(waiter, Query::Retry)
                        })
                    }
                    ("hub.tasks.cancel", Some(index)) => self.cancel_task(turn, key, asking, task, index),
                    (_, Some(index)) => {
                        let Some(call) = self.calls.get(index) else { return Ok(()) };
                        let Some(own) = call.task.as_deref() else { return Ok(()) };
                        let view = pack(&TaskView::of_open(self, turn, call, own).in_full(call));
                        self.answer_for_hub(turn, key, &Answered::of(self, asking), name, &view);
                        Ok(())
                    }
                    (_, None) => {
                        let cancel = name == "hub.tasks.cancel";
                        let query = if cancel { Query::Cancel } else { Query::Get };
                        let question = Question::Task { whose, task };
                        self.ask_store(turn, key, asking, question, |waiter| Waits::Query(waiter, query))
                    }
                }
            }
        }
    }

    /// The call of an open task.
    fn open_task(&self, whose: &Whose, task: TaskId) -> Option<usize> {
        let index = self.tasks.find(task)?;
        let own = self.calls.get(index)?.task.as_ref()?;
        (own.stored && whose.is(&own.identity)).then_some(index)
    }

    fn watch_tasks(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        identity: Arc<str>,
        watch: TaskWatch,
    ) -> Result<(), Refusal> {
        let task = watch.task_id.as_deref().map(task_of).transpose()?;
        let whose = Whose::One(Arc::clone(&identity));
        if let Some(task) = task.filter(|task| self.open_task(&whose, *task).is_none()) {
            // It has ended, or is nobody's.
            let filter = WatchFilter::of_tasks(Arc::clone(&identity), Some(task));
            let query = Query::Watch(Box::new(self.new_watch(key, asking, filter)?));
            let question = Question::Task { whose, task };
            return self.ask_store(turn, key, asking, question, |waiter| Waits::Query(waiter, query));
        }
        let watch = self.new_watch(key, asking, WatchFilter::of_tasks(identity, task))?;
        self.start_watch(turn, watch, None);
        Ok(())
    }

    fn cancel_task(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        task: TaskId,
        index: usize,
    ) -> Result<(), Refusal> {
        let waiter = self.let_wait(turn.now, key, asking)?;
        let number = self.waits(Waits::Cancel(waiter));
        self.note_act(turn, key, "hub.tasks.cancel", &task.to_string());
        self.tasks.cancels.entry(task).or_default().push(number);
        self.cancel_call(turn, index, "the task was cancelled");
        Ok(())
    }

    /// A task that was cancelled has its end in the store.
    pub(super) fn say_cancelled(&mut self, turn: &mut Turn<'_>, question: u64, row: &TaskRow) {
        if let Some(Waits::Cancel(waiter)) = self.no_longer_waits(question) {
            let cancelled = row.outcome.as_deref() == Some("cancelled");
            self.answer_cancel(turn, &waiter, row, cancelled);
            self.close_if_idle(turn, waiter.connection);
        }
    }

    fn answer_cancel(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, row: &TaskRow, cancelled: bool) {
        let body = pack(&Cancelled {
            task_id: row.id.to_string(),
            state: row.state.as_str(),
            cancelled,
            outcome: row.outcome.as_deref(),
        });
        self.answer_waiter(turn, waiter, &body);
    }

    /// The store was asked about a task that is to be cancelled, since it was not open when that was asked.
    fn cancel_stored(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, row: &TaskRow) {
        if row.outcome.is_some() {
            return self.answer_cancel(turn, waiter, row, false);
        }
        let (open, ending) = (self.tasks.find(row.id), self.ending_task(row.id).is_some());
        if open.is_none() && !ending {
            if !self.ask_once_more(turn, waiter, row, |waiter| Waits::Query(waiter, Query::Cancel)) {
                self.answer_cancel(turn, waiter, row, false);
            }
            return;
        }
        // Its end is on its way into the store, or is to be.
        let Some(number) = self.wait_on(Waits::Cancel(waiter.clone())) else { return };
        if let Some(ended) = self.ending_task(row.id) {
            ended.cancels.push(number);
        } else if let Some(index) = open {
            self.tasks.cancels.entry(row.id).or_default().push(number);
            self.note_act(turn, waiter.key, "hub.tasks.cancel", &row.id.to_string());
            self.cancel_call(turn, index, "the task was cancelled");
        }
    }

    pub(crate) fn answer_waiter(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, body: &[u8]) {
        let Waiter { id, trace, .. } = *waiter;
        let answered = Answered { id, request_id: Some(&waiter.request_id), trace };
        self.answer_for_hub(turn, waiter.key, &answered, &waiter.capability, body);
    }

    pub(super) fn on_query(&mut self, turn: &mut Turn<'_>, waiter: &Waiter, query: Query, answer: Answer) {
        match (query, answer) {
            (Query::List { state, limit }, Answer::Tasks(rows)) => {
                let body = self.list_of(turn, rows, state, limit);
                self.answer_waiter(turn, waiter, &body);
            }
            (Query::Get, Answer::Task(Some(row))) => {
                if self.ask_once_more(turn, waiter, &row, |waiter| Waits::Query(waiter, Query::Get)) {
                    return;
                }
                let body = pack(&TaskView::of_row(self.unix(turn.now), &row));
                self.answer_waiter(turn, waiter, &body);
            }
            (Query::Retry, Answer::Call(Some(stored))) => self.retry_task(turn, waiter, &stored),
            (Query::Cancel, Answer::Task(Some(row))) => self.cancel_stored(turn, waiter, &row),
            (Query::Watch(watch), Answer::Task(Some(row))) => {
                let again = watch.clone();
                if self.ask_once_more(turn, waiter, &row, |waiter| Waits::Query(waiter, Query::Watch(again)))
                {
                    return;
                }
                match self.may_watch(waiter.key) {
                    Ok(()) => {
                        // One that is open here is shown as it is here.
                        let view = self.tasks.find(row.id).is_none();
                        let view = view.then(|| TaskView::of_row(self.unix(turn.now), &row));
                        self.start_watch(turn, *watch, view);
                    }
                    Err(refusal) => self.fail_waiter(turn, waiter, &refusal),
                }
            }
            _ => self.fail_waiter(turn, waiter, &unknown_task()),
        }
    }

    /// What the store lists, with what is newer here.
    fn list_of(
        &self,
        turn: &Turn<'_>,
        mut rows: Vec<TaskRow>,
        state: Option<TaskState>,
        limit: usize,
    ) -> Vec<u8> {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let mut page = Page::new(Some(limit), self.answer_bound());
        for row in &rows {
            let open = self.tasks.find(row.id).and_then(|index| self.calls.get(index));
            let taken = match open.and_then(|call| Some((call, call.task.as_deref()?))) {
                Some((_, task)) if state.is_some_and(|state| state != task.state) => continue,
                Some((call, task)) => page.push(&TaskView::of_open(self, turn, call, task)),
                None => page.push(&TaskView::of_row(self.unix(turn.now), row)),
            };
            if !taken {
                break;
            }
        }
        page.has_more(more);
        page.into_body("tasks")
    }
}
