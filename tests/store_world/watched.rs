//! A store in a file that can be held up, made read-only, and watched at its work.
#![allow(dead_code, reason = "each test binary takes what it needs")]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use agent_reach::callbacks::Busy;
use agent_reach::store::sqlite::SqliteFile;
use agent_reach::store::{
    DueCallback, KeptKey, OpenStore, RecordBlock, Store, StoreError, StoreStats, SweepBounds, Swept,
};
use agent_reach_core::{Answer, Change, OpenTask, Question, TaskId};

/// What was asked of it, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Did {
    Wrote(usize),
    Swept(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Switches {
    pub(crate) read_only: AtomicBool,
    pub(crate) gate: Mutex<()>,
    pub(crate) log: Mutex<Vec<Did>>,
}

pub(crate) struct Watched {
    file: SqliteFile,
    pub(crate) switches: Arc<Switches>,
}

impl Watched {
    pub(crate) fn new(file: SqliteFile) -> Self {
        Self { file, switches: Arc::default() }
    }

    /// Writes wait until what this gives is dropped.
    pub(crate) fn shut(&self) -> MutexGuard<'_, ()> {
        self.switches.gate.lock().unwrap()
    }
}

impl OpenStore for Watched {
    fn writer(&self) -> Result<Box<dyn Store>, StoreError> {
        let read_only = self.switches.read_only.load(SeqCst);
        let store = if read_only { self.file.reader()? } else { self.file.writer()? };
        Ok(Box::new(Writer { store, switches: Arc::clone(&self.switches) }))
    }

    fn reader(&self) -> Result<Box<dyn Store>, StoreError> {
        self.file.reader()
    }
}

struct Writer {
    store: Box<dyn Store>,
    switches: Arc<Switches>,
}

impl Store for Writer {
    fn write(&mut self, changes: &[(u64, Change)]) -> Result<u64, StoreError> {
        drop(self.switches.gate.lock().unwrap());
        let ignored = self.store.write(changes)?;
        self.switches.log.lock().unwrap().push(Did::Wrote(changes.len()));
        Ok(ignored)
    }

    fn probe(&mut self) -> Result<(), StoreError> {
        self.store.probe()
    }

    fn answer(&mut self, question: &Question) -> Result<Answer, StoreError> {
        self.store.answer(question)
    }

    fn open_tasks(&mut self, each: &mut dyn FnMut(OpenTask)) -> Result<(), StoreError> {
        self.store.open_tasks(each)
    }

    fn owed_agents(&mut self, each: &mut dyn FnMut(Arc<str>)) -> Result<(), StoreError> {
        self.store.owed_agents(each)
    }

    fn kept_keys(&mut self, now: u64, each: &mut dyn FnMut(KeptKey)) -> Result<(), StoreError> {
        self.store.kept_keys(now, each)
    }

    fn sweep(&mut self, now: u64, bounds: SweepBounds) -> Result<Swept, StoreError> {
        let swept = self.store.sweep(now, bounds)?;
        if swept.tasks > 0 {
            self.switches.log.lock().unwrap().push(Did::Swept(swept.tasks));
        }
        Ok(swept)
    }

    fn due_callbacks(&mut self, now: u64, most: usize, busy: &Busy) -> Result<Vec<DueCallback>, StoreError> {
        self.store.due_callbacks(now, most, busy)
    }

    fn next_callback(&mut self, now: u64) -> Result<Option<u64>, StoreError> {
        self.store.next_callback(now)
    }

    fn callback_tried(
        &mut self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next: Option<u64>,
    ) -> Result<(), StoreError> {
        self.store.callback_tried(task, attempt, outcome, next)
    }

    fn write_records(&mut self, block: &RecordBlock) -> Result<(), StoreError> {
        self.store.write_records(block)
    }

    fn records(&mut self, after: u64, most: usize) -> Result<Vec<(u64, RecordBlock)>, StoreError> {
        self.store.records(after, most)
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.store.checkpoint()
    }

    fn shorten_log(&mut self) -> Result<(), StoreError> {
        self.store.shorten_log()
    }

    fn counts(&self) -> [u64; 5] {
        self.store.counts()
    }

    fn log_bytes(&self) -> u64 {
        self.store.log_bytes()
    }

    fn stats(&mut self) -> Result<StoreStats, StoreError> {
        self.store.stats()
    }

    fn check(&mut self) -> Result<Vec<String>, StoreError> {
        self.store.check()
    }
}
