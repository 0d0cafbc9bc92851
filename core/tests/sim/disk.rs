//! What is written in the simulated world, and what is not yet: a store as a hub sees it, with what never may be written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use agent_reach_core::{
    Answer, Ask, Change, Effects, Kept, Moved, NewTask, Now, Question, StoreNews, StoredCall, TaskEnd,
    TaskId, TaskRow, TaskState,
};
use bytes::Bytes;

type KeyName = (Arc<str>, Arc<str>);

/// A task as it is written.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) new: NewTask,
    pub(crate) moved: Moved,
    pub(crate) end: Option<TaskEnd>,
    /// Every agent and instance that was ever written to have it.
    pub(crate) holders: BTreeSet<(String, String)>,
    /// Who has confirmed the end, and when that was written.
    pub(crate) receipts: BTreeMap<Arc<str>, Now>,
}

#[derive(Debug)]
pub(super) struct Key {
    fingerprint: u128,
    pub(super) until: u64,
    /// Held by a task that has not ended.
    pub(super) open: bool,
    task: Option<TaskId>,
    ends: Vec<Bytes>,
}

/// What is written, what waits to be, and what is on its way back.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) tasks: BTreeMap<TaskId, Stored>,
    pub(super) keys: BTreeMap<KeyName, Key>,
    pub(crate) owed: BTreeSet<(Arc<str>, TaskId)>,
    pub(super) waiting: VecDeque<(u64, Change)>,
    /// The number that the hub's next change has.
    pub(super) next_number: u64,
    /// What was read and is on its way.
    pub(super) read: BTreeMap<u64, Answer>,
    pub(super) asks: BTreeMap<u64, Ask>,
    pub(super) news: VecDeque<(Now, StoreNews)>,
    /// It takes no new tasks.
    pub(crate) ill: bool,
    /// Nor can it be read.
    pub(super) unreadable: bool,
    /// It does not answer any question.
    pub(super) silent: bool,
    pub(super) writes: bool,
    /// How long a batch and a word about it may take, in milliseconds.
    pub(crate) lag_ms: u64,
    /// How many hubs there were before: numbers begin anew with each.
    pub(super) epoch: u64,
    /// New tasks that were never written.
    pub(crate) refused: BTreeSet<TaskId>,
}

impl Stored {
    fn recipients(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.new.agent).chain(&self.new.reply_to)
    }

    /// As the store shows it.
    fn row(&self, with_end: bool) -> TaskRow {
        let end = self.end.as_ref();
        let state = match end.map(|end| end.outcome) {
            None => self.moved.state,
            Some("completed") => TaskState::Succeeded,
            Some(_) => TaskState::Failed,
        };
        TaskRow {
            id: self.new.id,
            state,
            agent: Arc::clone(&self.new.agent),
            request_id: Arc::clone(&self.new.request_id),
            capability: Arc::clone(&self.new.capability),
            created: self.new.created,
            updated: end.map_or(self.moved.at, |end| end.at),
            attempt: end.map_or(self.moved.attempt, |end| end.attempt),
            holder: self.moved.holder.as_ref().map(|holder| Arc::clone(&holder.agent)),
            outcome: end.map(|end| end.outcome.into()),
            end: end.filter(|_| with_end).map(|end| end.end.clone()),
            callback: None,
            retry_of: self.new.retry_of,
        }
    }
}

impl Store {
    /// An empty one, which takes so long at the most, in milliseconds.
    pub(crate) fn new(lag_ms: u64) -> Self {
        Self { lag_ms, ..Self::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.asks.is_empty() && self.read.is_empty() && self.news.is_empty()
    }

    /// Takes in what the hub has to say.
    pub(crate) fn hear(&mut self, effects: &mut Effects) {
        for (number, change) in effects.changes.drain(..) {
            self.next_number += 1;
            assert!(number == self.next_number, "changes_are_numbered_without_gaps: {number}: {change:?}");
            self.waiting.push_back((number, change));
        }
        for ask in effects.asks.drain(..) {
            let number = ask.number;
            let twice = self.asks.insert(number, ask).is_some() || self.read.contains_key(&number);
            assert!(!twice, "a_question_is_asked_once: {number}");
        }
    }

    /// Writes the first so many of what waits; gives the number of the last.
    pub(super) fn write(&mut self, now: Now, most: usize) -> Option<u64> {
        let mut last = None;
        for _ in 0..most {
            let Some((number, change)) = self.waiting.pop_front() else { break };
            self.apply(now, change);
            last = Some(number);
        }
        last
    }

    fn apply(&mut self, now: Now, change: Change) {
        match change {
            Change::Task(new) => self.insert(*new),
            Change::Moved(moved) => {
                let Some(task) = self.task_for(moved.task, "a move") else { return };
                if let Some(holder) = &moved.holder {
                    task.holders.insert((holder.agent.to_string(), holder.instance.to_string()));
                }
                assert!(moved.at >= task.moved.at && !moved.state.is_end(), "time_goes_on: {moved:?}");
                task.moved = moved;
            }
            Change::Ended(end) => self.end(*end),
            Change::Receipt { task, .. } if self.refused.contains(&task) => {}
            Change::Receipt { task, agent, .. } => {
                let Some(stored) = self.tasks.get_mut(&task) else {
                    panic!("only_what_is_owed_is_confirmed: {task} by {agent}")
                };
                let owed = stored.end.is_some() && stored.recipients().any(|own| *own == agent);
                assert!(owed, "only_what_is_owed_is_confirmed: {stored:?} by {agent}");
                stored.receipts.entry(Arc::clone(&agent)).or_insert(now);
                self.owed.remove(&(agent, task));
            }
            Change::Call(call) => {
                let name = (call.identity, call.request_id);
                if self.keys.get(&name).is_some_and(|key| key.open) {
                    return;
                }
                let (fingerprint, until, ends) = (call.fingerprint, call.until, call.ends);
                self.keys.insert(name, Key { fingerprint, until, open: false, task: None, ends });
            }
        }
    }

    /// A task that has not ended; `None` where it was refused.
    fn task_for(&mut self, id: TaskId, what: &str) -> Option<&mut Stored> {
        if self.refused.contains(&id) {
            return None;
        }
        let task = self.tasks.get_mut(&id);
        let open = task.filter(|task| task.end.is_none());
        assert!(open.is_some(), "a_task_ends_exactly_once: {what} of {id}, which is not open");
        open
    }

    fn insert(&mut self, new: NewTask) {
        let name = (Arc::clone(&new.identity), Arc::clone(&new.request_id));
        let kept = self.keys.get(&name).filter(|key| key.open || key.until > new.created);
        assert!(kept.is_none(), "a_repeated_request_id_makes_no_second_task: {new:?} beside {kept:?}");
        let moved =
            Moved { task: new.id, at: new.created, state: TaskState::Queued, attempt: 0, holder: None };
        let key = Key {
            fingerprint: new.fingerprint,
            until: new.keep_until,
            open: true,
            task: Some(new.id),
            ends: Vec::new(),
        };
        self.keys.insert(name, key);
        let task = Stored {
            moved,
            end: None,
            holders: BTreeSet::new(),
            receipts: BTreeMap::new(),
            new: new.clone(),
        };
        assert!(self.tasks.insert(new.id, task).is_none(), "a_task_id_is_made_once: {new:?}");
    }

    fn end(&mut self, end: TaskEnd) {
        let Some(task) = self.task_for(end.task, "a second end") else { return };
        let owed: Vec<_> = task.recipients().map(|agent| (Arc::clone(agent), end.task)).collect();
        let name = (Arc::clone(&task.new.identity), Arc::clone(&task.new.request_id));
        let (id, at, keep_until) = (end.task, end.at, end.keep_until.min(end.expires));
        task.end = Some(end);
        self.owed.extend(owed);
        let own = self.keys.get_mut(&name).filter(|key| key.task == Some(id));
        let Some(key) = own else { panic!("a_request_id_is_held_while_its_task_is_open: {name:?}") };
        (key.open, key.until) = (false, keep_until);
        if keep_until <= at {
            self.keys.remove(&name);
        }
    }

    pub(super) fn answer(&self, question: &Question) -> Answer {
        match question {
            _ if self.unreadable => Answer::Unreadable,
            Question::Key { identity, request_id, now } => {
                let key = self.keys.get(&(Arc::clone(identity), Arc::clone(request_id)));
                let kept = key.filter(|key| key.open || key.until > *now);
                Answer::Key(kept.map(|key| {
                    let task = key.task.and_then(|task| self.tasks.get(&task));
                    let end = task.and_then(|task| task.end.as_ref()).map(|end| end.end.clone());
                    let ends = key.ends.iter().cloned().chain(end).collect();
                    Kept { fingerprint: key.fingerprint, until: key.until, task: key.task, ends }
                }))
            }
            Question::Owed { agent, after, most } => {
                let own = self.owed.iter().filter(|(of, id)| of == agent && after.is_none_or(|a| *id > a));
                let ends =
                    own.filter_map(|(_, id)| Some((*id, self.tasks.get(id)?.end.as_ref()?.end.clone())));
                Answer::Owed(ends.take(most.0.min(3)).collect())
            }
            Question::Task { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                Answer::Task(task.map(|task| Box::new(task.row(true))))
            }
            Question::Call { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                let stored =
                    |task: &Stored| StoredCall { task: task.new.clone(), state: task.row(false).state };
                Answer::Call(task.map(|task| Box::new(stored(task))))
            }
            Question::Tasks { whose, state, capability, before, most } => {
                let newest_first = self.tasks.values().rev();
                let rows = newest_first
                    .filter(|task| whose.is(&task.new.identity))
                    .filter(|task| before.is_none_or(|before| task.new.id < before))
                    .filter(|task| capability.as_ref().is_none_or(|name| task.new.capability == *name))
                    .map(|task| task.row(false))
                    .filter(|row| state.is_none_or(|state| row.state == state));
                Answer::Tasks(rows.take(*most).collect())
            }
        }
    }
}
