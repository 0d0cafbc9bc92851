//! A store for the core's tests: what it is told waits until a test lets it be written, and a test may lose it.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_core::{
    Answer, Ask, CallbackRow, Change, Effects, Hub, Input, Kept, KeptCall, Moved, NewTask, Now, OpenTask,
    Policy, Question, Settings, StoreNews, StoredCall, TaskEnd, TaskId, TaskRow, TaskState,
};

use super::World;

/// A task as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredTask {
    pub(crate) new: NewTask,
    pub(crate) moved: Moved,
    pub(crate) end: Option<TaskEnd>,
    /// Who has confirmed the end.
    pub(crate) receipts: Vec<Arc<str>>,
}

/// What is written, and what waits to be.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) tasks: BTreeMap<TaskId, StoredTask>,
    pub(crate) calls: Vec<KeptCall>,
    waiting: Vec<(u64, Change)>,
    asks: Vec<Ask>,
}

impl Disk {
    pub(crate) fn hear(&mut self, changes: Vec<(u64, Change)>, asks: Vec<Ask>) {
        for (number, change) in changes {
            assert!(self.waiting.last().is_none_or(|(last, _)| *last < number), "numbers count up");
            self.waiting.push((number, change));
        }
        self.asks.extend(asks);
    }

    /// How many changes wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Task(new) => {
                let moved = Moved {
                    task: new.id,
                    at: new.created,
                    state: TaskState::Queued,
                    attempt: 0,
                    holder: None,
                };
                let task = StoredTask { new: *new, moved, end: None, receipts: Vec::new() };
                assert!(self.tasks.insert(task.new.id, task).is_none(), "an id is made once");
            }
            Change::Moved(moved) => {
                let task = self.tasks.get_mut(&moved.task).expect("a task that is stored");
                assert!(task.end.is_none(), "nothing moves after its end");
                task.moved = moved;
            }
            Change::Ended(end) => {
                let task = self.tasks.get_mut(&end.task).expect("a task that is stored");
                assert!(task.end.is_none(), "a task ends once");
                task.end = Some(*end);
            }
            Change::Receipt { task, agent, .. } => {
                let task = self.tasks.get_mut(&task).expect("a task that is stored");
                task.receipts.push(agent);
            }
            Change::Call(kept) => self.calls.push(*kept),
        }
    }

    fn owed(&self, agent: &str) -> impl Iterator<Item = (TaskId, &TaskEnd)> {
        self.tasks.values().filter_map(move |task| {
            let end = task.end.as_ref()?;
            let inbox = task.new.reply_to.as_deref();
            let is_for = *task.new.agent == *agent || inbox == Some(agent);
            let confirmed = task.receipts.iter().any(|own| **own == *agent);
            (is_for && !confirmed).then_some((task.new.id, end))
        })
    }

    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Key { identity, request_id, now } => {
                let tasks = self
                    .tasks
                    .values()
                    .filter(|task| task.new.identity == *identity && task.new.request_id == *request_id);
                let task = tasks
                    .filter(|task| task.end.as_ref().is_none_or(|end| end.keep_until > *now))
                    .map(|task| Kept {
                        fingerprint: task.new.fingerprint,
                        until: task.end.as_ref().map_or(u64::MAX, |end| end.keep_until),
                        task: Some(task.new.id),
                        ends: Vec::new(),
                    });
                let calls = self.calls.iter().filter(|call| {
                    call.identity == *identity && call.request_id == *request_id && call.until > *now
                });
                let calls = calls.map(|call| Kept {
                    fingerprint: call.fingerprint,
                    until: call.until,
                    task: None,
                    ends: call.ends.clone(),
                });
                Answer::Key(task.chain(calls).last())
            }
            Question::Owed { agent, after, most } => {
                let owed = self.owed(agent).filter(|(task, _)| after.is_none_or(|after| *task > after));
                Answer::Owed(owed.take(most.0).map(|(task, end)| (task, end.end.clone())).collect())
            }
            Question::Task { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                Answer::Task(task.map(|task| Box::new(row(task, true))))
            }
            Question::Call { whose, task } => {
                let task = self.tasks.get(task).filter(|task| whose.is(&task.new.identity));
                let stored =
                    |task: &StoredTask| StoredCall { task: task.new.clone(), state: row(task, false).state };
                Answer::Call(task.map(|task| Box::new(stored(task))))
            }
            Question::Tasks { whose, state, capability, before, most } => {
                let tasks = self.tasks.values().rev().filter(|task| {
                    whose.is(&task.new.identity)
                        && capability.as_ref().is_none_or(|own| *own == task.new.capability)
                        && before.is_none_or(|before| task.new.id < before)
                });
                let rows = tasks.map(|task| row(task, false));
                let rows = rows.filter(|row| state.is_none_or(|state| row.state == state));
                Answer::Tasks(rows.take(*most).collect())
            }
        }
    }
}

fn row(task: &StoredTask, with_end: bool) -> TaskRow {
    let end = task.end.as_ref();
    let state = match end.map(|end| end.outcome) {
        None => task.moved.state,
        Some("completed") => TaskState::Succeeded,
        Some(_) => TaskState::Failed,
    };
    TaskRow {
        id: task.new.id,
        state,
        agent: Arc::clone(&task.new.agent),
        request_id: Arc::clone(&task.new.request_id),
        capability: Arc::clone(&task.new.capability),
        created: task.new.created,
        updated: end.map_or(task.moved.at, |end| end.at),
        attempt: end.map_or(task.moved.attempt, |end| end.attempt),
        holder: task.moved.holder.as_ref().map(|holder| Arc::clone(&holder.agent)),
        outcome: end.map(|end| end.outcome.into()),
        end: end.filter(|_| with_end).map(|end| end.end.clone()),
        // This store tries once, in vain.
        callback: task.new.callback_url.as_ref().filter(|_| with_end).map(|url| CallbackRow {
            url: Arc::clone(url),
            attempts: 1,
            outcome: Some("503".into()),
            next: Some(1_000_000),
        }),
        retry_of: task.new.retry_of,
    }
}

impl World {
    /// A world whose hub has a store that can be written.
    pub(crate) fn with_store(settings: Settings) -> Self {
        Self::with_store_under(settings, Policy::open())
    }

    /// The same under a policy.
    pub(crate) fn with_store_under(settings: Settings, policy: Policy) -> Self {
        let mut world = Self::under(Settings { store: true, started_unix_ms: 1_000_000, ..settings }, policy);
        world.input(Input::Store(StoreNews::Writable(true)));
        world
    }

    /// Writes everything that waits, and what comes of that, and answers all questions.
    pub(crate) fn write(&mut self) {
        while self.disk.waiting() > 0 || !self.disk.asks.is_empty() {
            self.write_some(usize::MAX);
            self.answer();
        }
    }

    /// Answers all questions, by what is written.
    pub(crate) fn answer(&mut self) {
        for Ask { number, question } in std::mem::take(&mut self.disk.asks) {
            let answer = self.disk.answer(&question);
            self.input(Input::Store(StoreNews::Answered { number, answer }));
        }
    }

    /// Writes so many changes.
    pub(crate) fn write_some(&mut self, most: usize) {
        let most = most.min(self.disk.waiting.len());
        let changes: Vec<_> = self.disk.waiting.drain(..most).collect();
        let Some(up_to) = changes.last().map(|(number, _)| *number) else { return };
        for (_, change) in changes {
            self.disk.apply(change);
        }
        self.input(Input::Store(StoreNews::Written { up_to }));
    }

    /// The store can write nothing: new tasks are refused.
    pub(crate) fn refuse_writing(&mut self) {
        let is_task = |change: &(u64, Change)| matches!(change.1, Change::Task(_));
        let numbers = self.disk.waiting.iter().filter(|c| is_task(c)).map(|(number, _)| *number).collect();
        self.disk.waiting.retain(|change| !is_task(change));
        self.input(Input::Store(StoreNews::Refused { numbers, reason: "disk full".to_owned() }));
        self.input(Input::Store(StoreNews::Writable(false)));
    }

    /// The process dies, with all that was not written, and a new one takes over what is stored.
    pub(crate) fn crash(&mut self, settings: Settings) {
        self.crash_under(settings, Policy::open());
    }

    /// The same, and the new one has other rules.
    pub(crate) fn crash_under(&mut self, settings: Settings, policy: Policy) {
        let started = settings.started_unix_ms;
        let mut hub = Hub::new(Settings { store: true, ..settings }, policy);
        self.disk.waiting.clear();
        self.disk.asks.clear();
        self.connections.clear();
        self.now = Now::from_millis(0);
        let mut effects = Effects::default();
        for task in self.disk.tasks.values() {
            match &task.end {
                None => {
                    let open = OpenTask { task: task.new.clone(), moved: task.moved.clone() };
                    hub.restore_task(self.now, open, &mut effects);
                }
                Some(end) => {
                    hub.restore_owed(Arc::clone(&task.new.agent));
                    let (identity, request_id) = (&task.new.identity, &task.new.request_id);
                    hub.restore_key(self.now, identity, request_id, end.keep_until);
                }
            }
        }
        for call in &self.disk.calls {
            hub.restore_key(self.now, &call.identity, &call.request_id, call.until);
        }
        assert!(started > 0, "a hub that has a store knows the time");
        self.hub = hub;
        self.disk.hear(effects.changes, effects.asks);
        self.input(Input::Store(StoreNews::Writable(true)));
    }

    /// The name of the one task there is.
    pub(crate) fn only_task(&self) -> String {
        assert_eq!(self.disk.tasks.len(), 1, "{:?}", self.disk.tasks);
        self.disk.tasks.keys().next().unwrap().to_string()
    }

    /// Where that task stands in the store.
    pub(crate) fn stored(&self) -> TaskRow {
        assert_eq!(self.disk.tasks.len(), 1, "{:?}", self.disk.tasks);
        row(self.disk.tasks.values().next().unwrap(), true)
    }
}
