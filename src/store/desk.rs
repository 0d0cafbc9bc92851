//! What the writer's thread does next, and what is told of it: a state machine without a thread, a disk or a clock.
//!
//! A batch gathers while the one before it is written, and begins no sooner than `flush` after that one began: alone a
//! change is written at once, under load in company. Between batches there is other work: the sweep, records, and what
//! deliveries note.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use agent_reach_core::{Change, KeptCall, NewTask, StoreNews};

use super::figures::Counters;
use super::job::{Batch, Done, Errand, Job, Left};
use super::{StoreError, StoreErrorKind, StoreOptions};

/// Most changes in a batch.
const BATCH_CHANGES: usize = 4096;
/// Bytes that make a batch full.
const BATCH_BYTES: usize = 8 << 20;
/// How long other work gives way to batches.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most notes of deliveries that wait.
const MOST_ERRANDS: usize = 1024;

/// What is under way, and what was heard of the store last.
enum Health {
    /// It can be written.
    Well,
    /// A job takes too long.
    Hung,
    /// It could not be written; the next try, and the pause behind that one.
    Ill { again: Instant, pause: Duration, reason: StoreError },
}

struct UnderWay {
    since: Instant,
    /// Of a batch: its last number, and its bytes.
    batch: Option<(u64, usize)>,
}

/// See the module.
pub(super) struct Desk {
    options: StoreOptions,
    counters: Arc<Counters>,
    waiting: VecDeque<(u64, Change)>,
    waiting_bytes: usize,
    errands: VecDeque<(Instant, Errand)>,
    health: Health,
    under_way: Option<UnderWay>,
    /// The highest number that was seen.
    seen: u64,
    /// When the last batch began.
    last_batch: Option<Instant>,
    next_sweep: Instant,
    next_records: Instant,
    /// From when on everything goes out without waiting, and a failure is the last.
    closing: Option<Instant>,
    gave_up: Option<StoreError>,
    news: Vec<StoreNews>,
}

impl Desk {
    pub(super) fn new(options: StoreOptions, counters: Arc<Counters>, now: Instant) -> Self {
        Self {
            last_batch: None,
            next_sweep: now,
            next_records: now + options.records_every,
            options,
            counters,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            errands: VecDeque::new(),
            health: Health::Well,
            under_way: None,
            seen: 0,
            closing: None,
            gave_up: None,
            news: Vec::new(),
        }
    }

    /// Takes changes in. New tasks are refused where they could not be written, ends of calls left out where there is no
    /// room; all others stay until they are written.
    pub(super) fn add(&mut self, changes: impl IntoIterator<Item = (u64, Change)>) {
        let mut refused = Vec::new();
        for (number, change) in changes {
            self.seen = self.seen.max(number);
            let full = self.backlog() >= self.options.backlog_bytes;
            match &change {
                Change::Task(_) if full || !matches!(self.health, Health::Well) => refused.push(number),
                Change::Call(_) if full => {
                    self.counters.left_out.fetch_add(1, Relaxed);
                }
                Change::Task(_)
                | Change::Call(_)
                | Change::Moved(_)
                | Change::Ended(_)
                | Change::Receipt { .. } => {
                    self.waiting_bytes += size(&change);
                    self.waiting.push_back((number, change));
                }
            }
        }
        self.refuse(refused);
        // What was left out is settled as well, and nothing behind it may come to say so.
        if self.waiting.is_empty() && self.under_way.as_ref().is_none_or(|job| job.batch.is_none()) {
            self.news.push(StoreNews::Written { up_to: self.seen });
        }
        self.count();
    }

    /// Takes an errand in.
    pub(super) fn add_errand(&mut self, now: Instant, errand: Errand) {
        if self.errands.len() < MOST_ERRANDS {
            self.errands.push_back((now, errand));
        } else {
            let error = StoreError::new(StoreErrorKind::Full, "too much waits to be noted");
            // Whoever asked has been told.
            let (Ok(()) | Err(_)) = errand(Err(error));
        }
    }

    /// From now on everything goes out at once.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing.get_or_insert(now);
        if let Health::Ill { again, .. } = &mut self.health {
            *again = now;
        }
    }

    /// Whether all that could be done is done, after [`Desk::close`]; and if not all of it, why.
    pub(super) fn closed(&mut self, now: Instant) -> Option<Result<(), StoreError>> {
        self.closing?;
        match &self.under_way {
            None if self.waiting.is_empty() && self.errands.is_empty() => Some(Ok(())),
            None => self.gave_up.clone().map(Err),
            Some(job) if now < job.since + self.options.hang => None,
            Some(_) => Some(Err(StoreError::new(StoreErrorKind::Io, "a write does not come back"))),
        }
    }

    /// What has happened since it was asked last, in order.
    pub(super) fn news(&mut self) -> Vec<StoreNews> {
        std::mem::take(&mut self.news)
    }

    /// What the writer's thread is to do now. It is busy until [`Desk::done`].
    pub(super) fn next(&mut self, now: Instant) -> Option<Job> {
        if let Some(job) = &self.under_way {
            if now >= job.since + self.options.hang && matches!(self.health, Health::Well) {
                self.health = Health::Hung;
                tracing::error!("a write to the store does not come back");
                self.unwritable();
            }
            return None;
        }
        let job = self.choose(now)?;
        let batch = match &job {
            Job::Batch(changes) => {
                let bytes = changes.iter().map(|(_, change)| size(change)).sum();
                self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
                changes.last().map(|(number, _)| (*number, bytes))
            }
            Job::Probe | Job::Sweep | Job::Records | Job::Errand(_) => None,
        };
        self.under_way = Some(UnderWay { since: now, batch });
        Some(job)
    }

    fn choose(&mut self, now: Instant) -> Option<Job> {
        let patient = |since: &Instant| now < *since + PATIENCE && self.closing.is_none();
        let batch = self.batch_at(now).is_some_and(|at| now >= at);
        if self.errands.front().is_some_and(|(since, _)| !(batch && patient(since))) {
            return self.errands.pop_front().map(|(_, errand)| Job::Errand(errand));
        }
        let due = |at: Instant| now >= at && !(batch && patient(&at));
        let well = matches!(self.health, Health::Well);
        if well && due(self.next_records) {
            self.next_records = now + self.options.records_every;
            return Some(Job::Records);
        }
        if due(self.next_sweep) && self.closing.is_none() {
            self.next_sweep = now + self.options.sweep_every.1;
            return Some(Job::Sweep);
        }
        if batch {
            self.last_batch = Some(now);
            return Some(if self.waiting.is_empty() { Job::Probe } else { Job::Batch(self.gather()) });
        }
        None
    }

    /// When the next batch, or a probe in its place, is due.
    fn batch_at(&self, now: Instant) -> Option<Instant> {
        match &self.health {
            Health::Ill { again, .. } => Some(*again).filter(|_| self.gave_up.is_none()),
            Health::Well | Health::Hung if self.waiting.is_empty() => None,
            Health::Well | Health::Hung => {
                let full = self.waiting_bytes >= BATCH_BYTES || self.waiting.len() >= BATCH_CHANGES;
                let gathers = !full && self.closing.is_none();
                Some(self.last_batch.filter(|_| gathers).map_or(now, |last| last + self.options.flush))
            }
        }
    }

    fn gather(&mut self) -> Batch {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES && batch.len() < BATCH_CHANGES {
            let Some(change) = self.waiting.pop_front() else { break };
            bytes += size(&change.1);
            batch.push(change);
        }
        batch
    }

    /// When to look again, even if nothing happens.
    pub(super) fn wake(&self, now: Instant) -> Instant {
        let well = matches!(self.health, Health::Well);
        if let Some(job) = &self.under_way {
            // One that hangs has been told of; then it is only waited for.
            return if well { job.since + self.options.hang } else { now + self.options.hang };
        }
        if !self.errands.is_empty() {
            return now;
        }
        let sweep = Some(self.next_sweep).filter(|_| self.closing.is_none());
        let records = Some(self.next_records).filter(|_| well);
        let first = [self.batch_at(now), sweep, records].into_iter().flatten().min();
        first.unwrap_or(now + self.options.hang)
    }

    /// Hears what came of the job that was under way.
    pub(super) fn done(&mut self, now: Instant, done: Done) {
        let job = self.under_way.take();
        match done {
            Done::Batch(Ok(ignored)) => {
                self.counters.ignored.fetch_add(ignored, Relaxed);
                if let Some(up_to) = job.and_then(|job| job.batch).map(|(number, _)| number) {
                    self.written(up_to);
                }
                match &mut self.health {
                    Health::Well => {}
                    Health::Hung => self.recovered(),
                    // Small changes may fit where a task does not: a probe says.
                    Health::Ill { again, .. } => *again = now,
                }
            }
            Done::Batch(Err((batch, error))) => {
                self.counters.failed.fetch_add(1, Relaxed);
                self.back(batch);
                self.failed(now, error);
            }
            Done::Probe(Ok(())) => self.recovered(),
            Done::Probe(Err(error)) => self.failed(now, error),
            Done::Sweep(more) => {
                let took = job.map_or(Duration::ZERO, |job| now.saturating_duration_since(job.since));
                let rest = match &more {
                    Ok(Left::Some) => Some(took.saturating_mul(self.options.sweep_rest)),
                    Ok(Left::Late) => Some(took),
                    Ok(Left::Nothing) | Err(_) => None,
                };
                if let Some(rest) = rest {
                    self.next_sweep = now + rest.max(self.options.sweep_every.0);
                }
                self.came_back(now, more.map(drop));
            }
            Done::Other(done) => self.came_back(now, done),
        }
        self.count();
    }

    /// A job that was no batch: only if it hung does it say anything about writing.
    fn came_back(&mut self, now: Instant, done: Result<(), StoreError>) {
        match (&self.health, done) {
            (Health::Hung, Ok(())) => self.recovered(),
            (Health::Hung, Err(error)) => self.failed(now, error),
            (Health::Well | Health::Ill { .. }, _) => {}
        }
    }

    fn written(&mut self, up_to: u64) {
        let up_to = if self.waiting.is_empty() { self.seen.max(up_to) } else { up_to };
        self.news.push(StoreNews::Written { up_to });
    }

    /// What could not be written waits again, before all others; the new tasks in it are refused.
    fn back(&mut self, batch: Batch) {
        for (number, change) in batch.into_iter().rev() {
            self.waiting_bytes += size(&change);
            self.waiting.push_front((number, change));
        }
    }

    fn failed(&mut self, now: Instant, reason: StoreError) {
        let (first, last) = self.options.again;
        let pause = match &self.health {
            Health::Well | Health::Hung => first,
            Health::Ill { pause, .. } => (*pause * 2).min(last),
        };
        if self.closing.is_some() {
            self.gave_up = Some(reason.clone());
        }
        let was_well = matches!(self.health, Health::Well);
        if was_well {
            tracing::error!(error = %reason, "the store cannot be written");
        }
        self.health = Health::Ill { again: now + pause, pause, reason };
        if was_well {
            self.unwritable();
        } else {
            self.refuse_waiting();
        }
    }

    fn unwritable(&mut self) {
        self.refuse_waiting();
        self.counters.unwritable.store(true, Relaxed);
        self.news.push(StoreNews::Writable(false));
    }

    fn recovered(&mut self) {
        tracing::info!("the store can be written again");
        self.health = Health::Well;
        self.counters.unwritable.store(false, Relaxed);
        self.news.push(StoreNews::Writable(true));
    }

    fn refuse_waiting(&mut self) {
        let is_task = |(_, change): &(u64, Change)| matches!(change, Change::Task(_));
        let tasks: Vec<_> = self.waiting.iter().filter(|change| is_task(change)).collect();
        let bytes: usize = tasks.iter().map(|(_, change)| size(change)).sum();
        let numbers = tasks.into_iter().map(|(number, _)| *number).collect();
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        self.waiting.retain(|change| !is_task(change));
        self.refuse(numbers);
    }

    fn refuse(&mut self, numbers: Vec<u64>) {
        if numbers.is_empty() {
            return;
        }
        let reason = match &self.health {
            Health::Well => "more waits to be stored than there is room for".to_owned(),
            Health::Hung => "the store does not answer".to_owned(),
            Health::Ill { reason, .. } => reason.kind.to_string(),
        };
        self.counters.refused.fetch_add(numbers.len() as u64, Relaxed);
        self.news.push(StoreNews::Refused { numbers, reason });
    }

    fn backlog(&self) -> usize {
        let under_way = self.under_way.as_ref().and_then(|job| job.batch).map_or(0, |(_, bytes)| bytes);
        self.waiting_bytes + under_way
    }

    fn count(&self) {
        self.counters.backlog_bytes.store(self.backlog() as u64, Relaxed);
    }
}

/// About how much memory a change takes. Bytes.
fn size(change: &Change) -> usize {
    let content = match change {
        Change::Task(task) => size_of::<NewTask>() + task.call.len(),
        Change::Ended(end) => size_of_val(&**end) + end.end.len(),
        Change::Call(call) => {
            size_of::<KeptCall>() + call.ends.iter().map(|end| end.len() + 32).sum::<usize>()
        }
        Change::Moved(_) | Change::Receipt { .. } => 0,
    };
    size_of::<(u64, Change)>() + content
}
