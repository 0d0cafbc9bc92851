//! The store as the hub meets it: it writes, refuses, answers, and says what no store should.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_core::{
    Answer, Ask, Change, Effects, Holder, Hub, Input, Kept, Moved, NewTask, OpenTask, Question, StoreNews,
    StoredCall, TaskEnd, TaskId, TaskRow, TaskState,
};
use agent_reach_protocol::{CallResult, ResultStatus, encode};
use bytes::Bytes;

use super::envelopes::{self, AGENTS};
use super::script::Script;
use super::{World, policy};

/// Most that a script may bring back after a restart, beside what is stored.
const RESTORED_MAX: u8 = 4;

/// A task as it is written.
#[derive(Debug)]
struct Row {
    new: NewTask,
    moved: Moved,
    end: Option<TaskEnd>,
}

/// What was said to it, and what it made of that.
#[derive(Debug, Default)]
pub(crate) struct Store {
    rows: BTreeMap<TaskId, Row>,
    waiting: Vec<(u64, Change)>,
    asks: Vec<Ask>,
    /// How many tasks a hub may ever have had.
    pub(crate) tasks: usize,
    made: u128,
}

impl Store {
    pub(crate) fn hear(&mut self, effects: &mut Effects) {
        self.tasks += effects.changes.iter().filter(|(_, change)| matches!(change, Change::Task(_))).count();
        self.waiting.append(&mut effects.changes);
        self.asks.append(&mut effects.asks);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.asks.is_empty()
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
                self.rows.insert(new.id, Row { new: *new, moved, end: None });
            }
            Change::Moved(moved) => {
                if let Some(row) = self.rows.get_mut(&moved.task) {
                    row.moved = moved;
                }
            }
            Change::Ended(end) => {
                if let Some(row) = self.rows.get_mut(&end.task) {
                    row.end = Some(*end);
                }
            }
            Change::Receipt { .. } | Change::Call(_) => {}
        }
    }

    /// What it knows; of ids nothing, and of everything else what there is.
    fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::Key { .. } => Answer::Key(None),
            Question::Owed { after, .. } => {
                let ended = self.rows.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
                let ends = ended.filter_map(|(id, row)| Some((*id, row.end.as_ref()?.end.clone())));
                Answer::Owed(ends.take(3).collect())
            }
            Question::Task { task, .. } => Answer::Task(self.rows.get(task).map(|row| Box::new(row.shown()))),
            Question::Call { task, .. } => Answer::Call(self.rows.get(task).map(|row| Box::new(row.call()))),
            Question::Tasks { .. } => Answer::Tasks(self.rows.values().map(Row::shown).collect()),
        }
    }
}

impl Row {
    fn shown(&self) -> TaskRow {
        TaskRow {
            id: self.new.id,
            state: self.moved.state,
            agent: Arc::clone(&self.new.agent),
            request_id: Arc::clone(&self.new.request_id),
            capability: Arc::clone(&self.new.capability),
            created: self.new.created,
            updated: self.moved.at,
            attempt: self.moved.attempt,
            holder: self.moved.holder.as_ref().map(|holder| Arc::clone(&holder.agent)),
            outcome: self.end.as_ref().map(|end| end.outcome.into()),
            end: self.end.as_ref().map(|end| end.end.clone()),
            callback: None,
            retry_of: self.new.retry_of,
        }
    }

    fn call(&self) -> StoredCall {
        let state = if self.end.is_some() { TaskState::Failed } else { self.moved.state };
        StoredCall { task: self.new.clone(), state }
    }
}

fn some_end() -> Bytes {
    encode(&CallResult { task_id: Some("t1"), ..CallResult::of(ResultStatus::Completed) }, None)
}

fn some_row(id: TaskId, script: &mut Script<'_>) -> TaskRow {
    let name: Arc<str> = script.pick(&AGENTS).into();
    TaskRow {
        id,
        state: script.pick(&TaskState::ALL),
        agent: Arc::clone(&name),
        request_id: "r1".into(),
        capability: "a".into(),
        created: script.pick(&[0, u64::MAX]),
        updated: 7,
        attempt: script.pick(&[0, 1, u32::MAX]),
        holder: Some(name),
        outcome: script.maybe(&["completed", "cancelled"]).map(Into::into),
        end: script.maybe(&[()]).map(|()| some_end()),
        callback: None,
        retry_of: None,
    }
}

/// Any answer, to whatever it was that was asked.
fn some_answer(id: TaskId, script: &mut Script<'_>) -> Answer {
    match script.byte() % 6 {
        0 => Answer::Unreadable,
        1 => Answer::Key(None),
        2 => Answer::Key(Some(Kept {
            fingerprint: u128::from(script.byte()),
            until: script.pick(&[0, u64::MAX]),
            task: script.maybe(&[id]),
            ends: script.maybe(&[()]).map(|()| some_end()).into_iter().collect(),
        })),
        3 => Answer::Owed(vec![(id, some_end()); usize::from(script.byte() % 3)]),
        4 => Answer::Task(script.maybe(&[()]).map(|()| Box::new(some_row(id, script)))),
        _ => Answer::Tasks(vec![some_row(id, script); usize::from(script.byte() % 3)]),
    }
}

impl<'a> World<'a> {
    /// The store does something, as the operation's number says.
    pub(super) fn at_the_store(&mut self, what: u8) {
        match what >> 4 {
            7 => self.write_all(),
            8 => self.answer_all(),
            9 => self.any_news(),
            _ => self.restart(),
        }
    }

    pub(super) fn write_all(&mut self) {
        let waiting = std::mem::take(&mut self.store.waiting);
        let Some(up_to) = waiting.last().map(|(number, _)| *number) else { return };
        waiting.into_iter().for_each(|(_, change)| self.store.apply(change));
        self.input(Input::Store(StoreNews::Written { up_to }));
    }

    pub(super) fn answer_all(&mut self) {
        for Ask { number, question } in std::mem::take(&mut self.store.asks) {
            let answer = self.store.answer(&question);
            self.input(Input::Store(StoreNews::Answered { number, answer }));
        }
    }

    /// Some task that there is, or none.
    fn some_task(&mut self) -> TaskId {
        let place = usize::from(self.script.byte());
        self.store.rows.keys().nth(place).copied().unwrap_or(TaskId::from_bits(7))
    }

    fn any_news(&mut self) {
        let numbers = [0, 1, 2, 3, 10, u64::MAX];
        let news = match self.script.byte() % 4 {
            0 => StoreNews::Written { up_to: self.script.pick(&numbers) },
            1 => {
                let numbers = vec![self.script.pick(&numbers), self.script.pick(&numbers)];
                StoreNews::Refused { numbers, reason: "the disk is full".to_owned() }
            }
            2 => StoreNews::Writable(self.script.byte().is_multiple_of(2)),
            _ => {
                let task = self.some_task();
                let number = match self.script.maybe(&numbers) {
                    Some(number) => number,
                    None => self.store.asks.first().map_or(1, |ask| ask.number),
                };
                StoreNews::Answered { number, answer: some_answer(task, &mut self.script) }
            }
        };
        self.input(Input::Store(news));
    }

    /// The process dies; another one takes up what is stored, and what never was.
    fn restart(&mut self) {
        self.places = [const { None }; super::PLACES];
        self.store.waiting.clear();
        self.store.asks.clear();
        let mut hub = Hub::new(self.settings.clone(), policy(self.rules));
        let mut effects = Effects::default();
        for _ in 0..self.script.byte() % RESTORED_MAX {
            let name = self.script.pick(&AGENTS);
            hub.restore_key(
                self.now,
                name,
                self.script.pick(&["r1", "r2", ""]),
                self.script.pick(&[0, 5_000_000]),
            );
            hub.restore_owed(name.into());
            let open = self.some_open_task();
            self.store.rows.insert(open.task.id, Row { new: open.task, moved: open.moved, end: None });
        }
        for row in self.store.rows.values().filter(|row| row.end.is_none()) {
            self.store.tasks += 1;
            let open = OpenTask { task: row.new.clone(), moved: row.moved.clone() };
            hub.restore_task(self.now, open, &mut effects);
        }
        self.hub = hub;
        self.store.hear(&mut effects);
    }

    /// A task that nobody submitted, of whatever the script makes of it.
    fn some_open_task(&mut self) -> OpenTask {
        self.store.made += 1;
        let id = TaskId::from_bits(self.store.made);
        let script = &mut self.script;
        let name: Arc<str> = script.pick(&AGENTS).into();
        let call = match script.maybe(&[()]) {
            Some(()) => Bytes::copy_from_slice(script.bytes()),
            None => envelopes::call(script),
        };
        let holder = script.maybe(&[true, false]).map(|idempotent| Holder {
            agent: script.pick(&AGENTS).into(),
            instance: script.pick(&["life-1", "life-2"]).into(),
            capability: script.maybe(&envelopes::CAPABILITIES).map(Into::into),
            idempotent,
        });
        let moved = Moved {
            task: id,
            at: script.pick(&[0, u64::MAX]),
            state: script.pick(&[TaskState::Queued, TaskState::Received, TaskState::Processing]),
            attempt: script.pick(&[0, 1, u32::MAX]),
            holder,
        };
        let new = NewTask {
            id,
            identity: format!("spiffe://d/agent/{name}").into(),
            agent: name,
            request_id: format!("restored-{}", self.store.made).into(),
            capability: script.pick(&envelopes::CAPABILITIES).into(),
            fingerprint: u128::from(script.byte()),
            keep_until: script.pick(&[0, u64::MAX]),
            created: script.pick(&[0, u64::MAX]),
            budget_until: script.pick(&[0, 1000, 100_000_000]),
            call,
            callback_url: script.maybe(&["https://x.test/"]).map(Into::into),
            reply_to: script.maybe(&AGENTS).map(Into::into),
            retry_of: None,
        };
        OpenTask { task: new, moved }
    }
}
