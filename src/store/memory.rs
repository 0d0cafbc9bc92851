//! A store in memory: what a store does, in its plainest form. Nothing in it outlives the process.
//!
//! For tests of what stands on a store, and as the other half of the conformance suite.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use agent_reach_core::{
    Answer, CallbackRow, Change, Kept, Moved, NewTask, OpenTask, Question, StoredCall, TaskEnd, TaskId,
    TaskRow, TaskState,
};
use bytes::Bytes;

use super::{
    DueCallback, KeptKey, MAX_DUE_BYTES, RecordBlock, Store, StoreError, StoreStats, SweepBounds, Swept,
};
use crate::callbacks::{Busy, host_of};

type KeyName = (Arc<str>, Arc<str>);

/// See the module.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tasks: BTreeMap<TaskId, Task>,
    keys: BTreeMap<KeyName, Key>,
    owed: BTreeSet<(Arc<str>, TaskId)>,
    records: BTreeMap<u64, RecordBlock>,
    last_block: u64,
}

#[derive(Debug)]
struct Task {
    new: NewTask,
    moved: Moved,
    /// Who had it last.
    holder: Option<Arc<str>>,
    end: Option<TaskEnd>,
    deliveries: u32,
    /// How the last one went.
    delivered: Option<Arc<str>>,
    next_delivery: Option<u64>,
}

#[derive(Debug)]
struct Key {
    fingerprint: u128,
    until: u64,
    /// Held by a task that has not ended.
    open: bool,
    of: KeyOf,
}

#[derive(Debug)]
enum KeyOf {
    Task(TaskId),
    Call(Vec<Bytes>),
}

impl Key {
    const fn is_kept(&self, now: u64) -> bool {
        self.open || self.until > now
    }
}

impl Task {
    fn name(&self) -> KeyName {
        (Arc::clone(&self.new.identity), Arc::clone(&self.new.request_id))
    }

    fn recipients(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.new.agent).chain(&self.new.reply_to)
    }

    fn row(&self) -> TaskRow {
        TaskRow {
            id: self.new.id,
            state: self.moved.state,
            agent: Arc::clone(&self.new.agent),
            request_id: Arc::clone(&self.new.request_id),
            capability: Arc::clone(&self.new.capability),
            created: self.new.created,
            updated: self.moved.at,
            attempt: self.moved.attempt,
            holder: self.holder.clone(),
            outcome: self.end.as_ref().map(|end| end.outcome.into()),
            end: None,
            callback: None,
            retry_of: self.new.retry_of,
        }
    }

    /// The same, with all that is asked for of one task.
    fn row_in_full(&self) -> TaskRow {
        let callback = self.new.callback_url.as_ref().map(|url| CallbackRow {
            url: Arc::clone(url),
            attempts: self.deliveries,
            outcome: self.delivered.clone(),
            next: self.next_delivery,
        });
        TaskRow { end: self.end().cloned(), callback, ..self.row() }
    }

    fn end(&self) -> Option<&Bytes> {
        self.end.as_ref().map(|end| &end.end)
    }
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Task(new) => self.insert(new),
            Change::Moved(moved) => self.r#move(moved),
            Change::Ended(end) => self.finish(end),
            Change::Receipt { task, agent, .. } => {
                let of_caller = self.tasks.get_mut(task).filter(|task| task.new.agent == *agent);
                if let Some(task) = of_caller {
                    task.next_delivery = None;
                }
                self.owed.remove(&(Arc::clone(agent), *task))
            }
            Change::Call(call) => {
                let name = (Arc::clone(&call.identity), Arc::clone(&call.request_id));
                if self.keys.get(&name).is_some_and(|key| key.open) {
                    return false;
                }
                let of = KeyOf::Call(call.ends.clone());
                let key = Key { fingerprint: call.fingerprint, until: call.until, open: false, of };
                self.keys.insert(name, key);
                true
            }
        }
    }

    fn insert(&mut self, new: &NewTask) -> bool {
        if self.tasks.contains_key(&new.id) {
            return false;
        }
        let moved =
            Moved { task: new.id, at: new.created, state: TaskState::Queued, attempt: 0, holder: None };
        let task = Task {
            new: new.clone(),
            moved,
            holder: None,
            end: None,
            deliveries: 0,
            delivered: None,
            next_delivery: None,
        };
        let of = KeyOf::Task(new.id);
        let key = Key { fingerprint: new.fingerprint, until: new.keep_until, open: true, of };
        self.keys.insert(task.name(), key);
        self.tasks.insert(new.id, task);
        true
    }

    fn r#move(&mut self, moved: &Moved) -> bool {
        let open = self.tasks.get_mut(&moved.task).filter(|task| task.end.is_none());
        let Some(task) = open.filter(|_| !moved.state.is_end()) else { return false };
        if let Some(holder) = &moved.holder {
            task.holder = Some(Arc::clone(&holder.agent));
        }
        task.moved = moved.clone();
        true
    }

    fn finish(&mut self, end: &TaskEnd) -> bool {
        let open = self.tasks.get_mut(&end.task).filter(|task| task.end.is_none());
        let Some(task) = open else { return false };
        let state = if end.outcome == "completed" { TaskState::Succeeded } else { TaskState::Failed };
        let holder = task.moved.holder.take();
        task.moved = Moved { task: end.task, at: end.at, state, attempt: end.attempt, holder };
        task.next_delivery = task.new.callback_url.as_ref().map(|_| end.at);
        task.end = Some(end.clone());
        self.owed.extend(task.recipients().map(|agent| (Arc::clone(agent), end.task)));
        let name = task.name();
        let key = self.keys.get_mut(&name).filter(|key| matches!(key.of, KeyOf::Task(id) if id == end.task));
        if let Some(key) = key {
            (key.open, key.until) = (false, end.keep_until.min(end.expires));
            if end.keep_until <= end.at {
                self.keys.remove(&name);
            }
        }
        true
    }

    fn key(&self, name: &KeyName, now: u64) -> Option<Kept> {
        let key = self.keys.get(name).filter(|key| key.is_kept(now))?;
        let (task, ends) = match &key.of {
            KeyOf::Call(ends) => (None, ends.clone()),
            KeyOf::Task(id) => {
                let end = self.tasks.get(id).and_then(Task::end);
                (Some(*id), end.cloned().into_iter().collect())
            }
        };
        Some(Kept { fingerprint: key.fingerprint, until: key.until, task, ends })
    }

    fn remove(&mut self, id: TaskId) {
        let Some(task) = self.tasks.remove(&id) else { return };
        let name = task.name();
        if self.keys.get(&name).is_some_and(|key| matches!(key.of, KeyOf::Task(of) if of == id)) {
            self.keys.remove(&name);
        }
        for agent in task.recipients() {
            self.owed.remove(&(Arc::clone(agent), id));
        }
    }

    fn record_bytes(&self) -> u64 {
        self.records.values().map(|block| block.bytes.len() as u64).sum()
    }

    fn sweep_records(&mut self, bounds: SweepBounds) -> usize {
        for removed in 0..bounds.rows {
            let total = self.record_bytes();
            let Some(oldest) = self.records.first_entry() else { return removed };
            if oldest.get().last_ms >= bounds.records_before && total <= bounds.records_bytes {
                return removed;
            }
            oldest.remove();
        }
        bounds.rows
    }
}

/// As many as there may be, and as many bytes of them; the first in any case.
fn within<T>(
    items: impl Iterator<Item = T>,
    most: usize,
    most_bytes: usize,
    size: impl Fn(&T) -> usize,
) -> Vec<T> {
    let mut total = 0;
    let mut first = true;
    items
        .take(most)
        .take_while(|item| {
            total += size(item);
            std::mem::take(&mut first) || total <= most_bytes
        })
        .collect()
}

impl Store for MemoryStore {
    fn write(&mut self, changes: &[(u64, Change)]) -> Result<u64, StoreError> {
        let mut ignored = 0;
        for (_, change) in changes {
            ignored += u64::from(!self.apply(change));
        }
        Ok(ignored)
    }

    fn probe(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn answer(&mut self, question: &Question) -> Result<Answer, StoreError> {
        Ok(match question {
            Question::Key { identity, request_id, now } => {
                Answer::Key(self.key(&(Arc::clone(identity), Arc::clone(request_id)), *now))
            }
            Question::Owed { agent, after, most } => {
                let after = after.unwrap_or(TaskId::from_bits(0));
                let from = (Excluded((Arc::clone(agent), after)), Unbounded);
                let own = self.owed.range(from).take_while(|(of, _)| of == agent);
                let ends = own.filter_map(|(_, id)| Some((*id, self.tasks.get(id)?.end()?.clone())));
                Answer::Owed(within(ends, most.0, most.1, |(_, end)| end.len()))
            }
            Question::Task { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                Answer::Task(task.map(|task| Box::new(task.row_in_full())))
            }
            Question::Call { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                let call = |task: &Task| StoredCall { task: task.new.clone(), state: task.moved.state };
                Answer::Call(task.map(|task| Box::new(call(task))))
            }
            Question::Tasks { whose, state, capability, before, most } => {
                let newest = self.tasks.values().rev();
                let rows = newest
                    .filter(|task| whose.is(&task.new.identity))
                    .filter(|task| before.is_none_or(|before| task.new.id < before))
                    .filter(|task| state.is_none_or(|state| task.moved.state == state))
                    .filter(|task| capability.as_ref().is_none_or(|name| task.new.capability == *name));
                Answer::Tasks(rows.map(Task::row).take(*most).collect())
            }
        })
    }

    fn open_tasks(&mut self, each: &mut dyn FnMut(OpenTask)) -> Result<(), StoreError> {
        for task in self.tasks.values().filter(|task| task.end.is_none()) {
            each(OpenTask { task: task.new.clone(), moved: task.moved.clone() });
        }
        Ok(())
    }

    fn owed_agents(&mut self, each: &mut dyn FnMut(Arc<str>)) -> Result<(), StoreError> {
        let agents: BTreeSet<_> = self.owed.iter().map(|(agent, _)| Arc::clone(agent)).collect();
        agents.into_iter().for_each(each);
        Ok(())
    }

    fn kept_keys(&mut self, now: u64, each: &mut dyn FnMut(KeptKey)) -> Result<(), StoreError> {
        for ((identity, request_id), key) in self.keys.iter().filter(|(_, key)| key.is_kept(now)) {
            let (identity, request_id) = (Arc::clone(identity), Arc::clone(request_id));
            each(KeptKey { identity, request_id, until: key.until });
        }
        Ok(())
    }

    fn sweep(&mut self, now: u64, bounds: SweepBounds) -> Result<Swept, StoreError> {
        let mut expired: Vec<(u64, TaskId, usize)> = Vec::new();
        for task in self.tasks.values() {
            let size = task.new.call.len() + task.end().map_or(0, Bytes::len);
            let expires = task.end.as_ref().map(|end| end.expires);
            expired.extend(expires.filter(|at| *at <= now).map(|at| (at, task.new.id, size)));
        }
        expired.sort_unstable();
        let all = expired.len();
        let first = expired.first().map(|(at, ..)| *at);
        let gone = within(expired.into_iter(), bounds.rows, bounds.bytes, |(_, _, size)| *size);
        gone.iter().for_each(|(_, id, _)| self.remove(*id));
        let mut keys: Vec<_> = self.keys.iter().filter(|(_, key)| !key.is_kept(now)).collect();
        keys.sort_by_key(|(_, key)| key.until);
        let oldest = first.into_iter().chain(keys.first().map(|(_, key)| key.until)).min();
        let keys: Vec<_> = keys.into_iter().take(bounds.rows).map(|(name, _)| name.clone()).collect();
        keys.iter().for_each(|name| drop(self.keys.remove(name)));
        let blocks = self.sweep_records(bounds);
        let more = gone.len() < all || keys.len() == bounds.rows || blocks == bounds.rows;
        Ok(Swept { tasks: gone.len(), keys: keys.len(), blocks, more, oldest })
    }

    fn due_callbacks(&mut self, now: u64, most: usize, busy: &Busy) -> Result<Vec<DueCallback>, StoreError> {
        let due = |task: &Task| {
            let at = task.next_delivery.filter(|at| *at <= now)?;
            if busy.tasks.contains(&task.new.id)
                || busy.hosts.contains(&host_of(task.new.callback_url.as_deref()?))
            {
                return None;
            }
            let due = DueCallback {
                task: task.new.id,
                url: task.new.callback_url.clone()?,
                attempt: task.deliveries,
                end: task.end()?.clone(),
                request_id: Arc::clone(&task.new.request_id),
                capability: Arc::clone(&task.new.capability),
            };
            Some((at, due))
        };
        let mut found: Vec<_> = self.tasks.values().filter_map(due).collect();
        found.sort_by_key(|(at, _)| *at);
        let found = found.into_iter().map(|(_, due)| due);
        Ok(within(found, most, MAX_DUE_BYTES, |due| due.end.len()))
    }

    fn next_callback(&mut self, after: u64) -> Result<Option<u64>, StoreError> {
        Ok(self.tasks.values().filter_map(|task| task.next_delivery).filter(|at| *at > after).min())
    }

    fn callback_tried(
        &mut self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next: Option<u64>,
    ) -> Result<(), StoreError> {
        let wanted = self.tasks.get_mut(&task).filter(|task| task.next_delivery.is_some());
        if let Some(task) = wanted {
            (task.deliveries, task.next_delivery) = (attempt, next);
            task.delivered = Some(outcome.into());
        }
        Ok(())
    }

    fn write_records(&mut self, block: &RecordBlock) -> Result<(), StoreError> {
        self.last_block += 1;
        self.records.insert(self.last_block, block.clone());
        Ok(())
    }

    fn records(&mut self, after: u64, most: usize) -> Result<Vec<(u64, RecordBlock)>, StoreError> {
        let later = self.records.range((Excluded(after), Unbounded));
        Ok(later.take(most).map(|(place, block)| (*place, block.clone())).collect())
    }

    fn counts(&self) -> [u64; TaskState::ALL.len()] {
        let count = |state| self.tasks.values().filter(|task| task.moved.state == state).count() as u64;
        TaskState::ALL.map(count)
    }

    fn log_bytes(&self) -> u64 {
        0
    }

    fn stats(&mut self) -> Result<StoreStats, StoreError> {
        let first = |open: bool| {
            let mut tasks = self.tasks.values().filter(|task| !open || task.end.is_none());
            tasks.next().map(|task| task.new.created)
        };
        Ok(StoreStats {
            tasks: self.counts(),
            keys: self.keys.len() as u64,
            owed: self.owed.len() as u64,
            callbacks: self.tasks.values().filter(|task| task.next_delivery.is_some()).count() as u64,
            records: self.records.values().map(|block| u64::from(block.count)).sum(),
            record_bytes: self.record_bytes(),
            oldest_task: first(false),
            oldest_open: first(true),
            oldest_record: self.records.values().next().map(|block| block.first_ms),
            ..StoreStats::default()
        })
    }

    fn check(&mut self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
