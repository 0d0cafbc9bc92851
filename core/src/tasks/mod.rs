//! Tasks: calls that outlive their caller's connection and the hub's process.
//!
//! An open task is a call like any other, with a line in the store for each step that must not be lost. The order is
//! always the same: first written, then said. ACCEPT follows the commit of the task, a provider's CALL that of who was
//! given it, and the RESULT that of the end.

mod accept;
mod deliver;
mod end;
mod hold;
mod keys;
mod meta;
mod questions;
mod rest;
mod restore;
mod retry;
mod view;
mod writing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::store::{TaskId, TaskState};

use deliver::Delivery;
pub use meta::ALL_TASKS;
use questions::Questions;
pub(crate) use questions::Waits;
pub(crate) use view::TaskView;
use writing::After;

/// What a task has beside what every call has.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    /// The same as text: it stands in many messages.
    pub(crate) text: Box<str>,
    /// Whose it is.
    pub(crate) identity: Arc<str>,
    pub(crate) state: TaskState,
    /// Whether the store has it.
    pub(crate) stored: bool,
    /// Tries that earlier lives of the hub made.
    pub(crate) earlier: usize,
    /// When it was accepted and when it moved last, in milliseconds since the Unix epoch.
    pub(crate) created: u64,
    pub(crate) updated: u64,
    /// The agent_id that gets its result as well.
    pub(crate) reply_to: Option<Arc<str>>,
    /// Whether a URL gets its result as well.
    pub(crate) callback: bool,
    /// What it counts among all open tasks.
    pub(crate) bytes: usize,
    /// The task whose CALL an operator had made again, as this one.
    pub(crate) retry_of: Option<TaskId>,
}

/// What one takes beside its messages, counted into what is open.
const TASK_BYTES: usize = 1536;
/// Which part of the room for all open tasks one identity may fill.
const OWNER_SHARE: usize = 2;

/// All that is known of tasks beside their calls.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    /// Whether the store takes new ones.
    writable: bool,
    /// Number of the latest change.
    changes: u64,
    /// What follows when a change is written, in the order of their numbers.
    after: VecDeque<(u64, After)>,
    /// Those that have ended, until that is written, with the number of that change.
    ending: BTreeMap<TaskId, u64>,
    /// Who waits for an answer.
    questions: Questions,
    /// Open ones, as calls.
    by_id: BTreeMap<TaskId, usize>,
    /// How many are in each state, those that end left out.
    counts: [usize; 3],
    /// New ones that are being written.
    storing: usize,
    bytes: usize,
    /// What each identity has of that.
    by_owner: BTreeMap<Arc<str>, usize>,
    /// Those that an agent had in an earlier life of the hub, by its agent_id; some may have ended.
    returning: BTreeMap<Arc<str>, Vec<TaskId>>,
    /// Questions of those who have one cancelled, and wait for its end.
    cancels: BTreeMap<TaskId, Vec<u64>>,
    /// Questions of those who have the CALL of a task made again, by the new task, until that is written.
    retries: BTreeMap<TaskId, u64>,
    /// Tasks whose CALL is made again, with the open one that does.
    retried: BTreeMap<TaskId, TaskId>,
    /// Agents for which the store may keep results that they have not confirmed.
    owed: BTreeSet<Arc<str>>,
    /// What agents that are here were sent and have not confirmed.
    deliveries: BTreeMap<usize, Delivery>,
    /// What an agent has confirmed and the store may still say that it is owed: until that is written, and what the
    /// store was asked before is answered. Whether it is written.
    confirmed: BTreeMap<(Arc<str>, TaskId), bool>,
}

impl Tasks {
    /// None yet. `writable`: there is a store, which was written to just now.
    pub(crate) fn new(writable: bool) -> Self {
        Self { writable, ..Self::default() }
    }

    /// The call of an open task.
    pub(crate) fn find(&self, task: TaskId) -> Option<usize> {
        self.by_id.get(&task).copied()
    }

    /// Whether an identity has open ones.
    pub(crate) fn are_of(&self, identity: &str) -> bool {
        self.by_owner.contains_key(identity)
    }

    /// How many are queued, received and processing.
    pub(crate) const fn counts(&self) -> [usize; 3] {
        self.counts
    }

    /// Bytes of all open ones.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether new ones are taken.
    pub(crate) const fn writable(&self) -> bool {
        self.writable
    }

    fn count(&mut self, state: TaskState) -> Option<&mut usize> {
        let place = match state {
            TaskState::Queued => 0,
            TaskState::Received => 1,
            TaskState::Processing => 2,
            TaskState::Succeeded | TaskState::Failed => return None,
        };
        self.counts.get_mut(place)
    }

    fn moved(&mut self, from: Option<TaskState>, to: Option<TaskState>) {
        if let Some(count) = from.and_then(|state| self.count(state)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = to.and_then(|state| self.count(state)) {
            *count += 1;
        }
    }

    /// Takes an open task into the books.
    fn enter(&mut self, task: &Task, call: usize) {
        self.by_id.insert(task.id, call);
        self.bytes += task.bytes;
        *self.by_owner.entry(Arc::clone(&task.identity)).or_default() += task.bytes;
        if let Some(of) = task.retry_of {
            self.retried.insert(of, task.id);
        }
    }

    /// Takes one out.
    fn leave(&mut self, task: &Task) {
        self.by_id.remove(&task.id);
        if let Some(of) = task.retry_of {
            self.retried.remove(&of);
        }
        self.bytes = self.bytes.saturating_sub(task.bytes);
        if let Some(own) = self.by_owner.get_mut(&task.identity) {
            *own = own.saturating_sub(task.bytes);
            if *own == 0 {
                self.by_owner.remove(&task.identity);
            }
        }
        if task.stored {
            self.moved(Some(task.state), None);
        }
    }
}
