//! The threads of a store: one that decides, one that writes, one that reads, and one that brings what was written into
//! the log to its place, so that no batch waits for that.
//!
//! The deciding one never waits for a disk, so that a write which hangs is noticed and new tasks are refused meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use agent_reach_core::{Answer, Ask, StoreNews};

use super::desk::Desk;
use super::figures::Counters;
use super::job::{Batch, Done, Errand, Job, Left};
use super::records::Records;
use super::{OpenStore, RecordBlock, Store, StoreError, StoreErrorKind, StoreOptions, SweepBounds};

/// Most bytes of bodies that a step of the sweep removes.
const SWEEP_BYTES: usize = 4 << 20;
/// What has been expired for so long is removed with less regard for the others.
const LATE_MS: u64 = 3_600_000;

/// Who hears the news. Called on the store's threads.
pub(super) type Sink = Arc<dyn Fn(StoreNews) + Send + Sync>;

/// What the deciding thread is told.
pub(super) enum ToDesk {
    Write(Batch),
    Errand(Errand),
    Done(Done),
    /// Ends everything; whoever asked for it is told when it has.
    Close(Option<Sender<Result<(), StoreError>>>),
}

/// What the reading thread is told.
pub(super) enum ToReader {
    Ask(Ask),
    /// A question too many, which is answered without being looked at.
    TooMany(u64),
    Errand(Errand),
    Close,
}

/// The ends of the threads' channels that the handle has.
pub(super) struct Ends {
    pub(super) desk: Sender<ToDesk>,
    pub(super) reader: Sender<ToReader>,
}

/// What all of them share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) options: StoreOptions,
    pub(super) counters: Arc<Counters>,
    pub(super) records: Arc<Records>,
    pub(super) sink: Sink,
    pub(super) open: Arc<dyn OpenStore>,
}

/// Milliseconds since the Unix epoch.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Starts the threads around two stores that are open.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn start(
    shared: &Shared,
    writer: Box<dyn Store>,
    reader: Box<dyn Store>,
) -> Result<Ends, StoreError> {
    let (to_desk, at_desk) = channel();
    let (to_reader, at_reader) = channel();
    let (to_writer, at_writer) = channel();
    // One word is enough: whoever hears it finds all there is to do.
    let (to_log, at_log) = sync_channel(1);
    let mut log = Keeper { open: Arc::clone(&shared.open), store: None, writes: true };
    let writing = Writing {
        keeper: Keeper { open: Arc::clone(&shared.open), store: Some(writer), writes: true },
        log: to_log,
        options: shared.options.clone(),
        counters: Arc::clone(&shared.counters),
        records: Arc::clone(&shared.records),
        block: RecordBlock::default(),
        done: to_desk.clone(),
    };
    let reading = Reading {
        keeper: Keeper { open: Arc::clone(&shared.open), store: Some(reader), writes: false },
        counters: Arc::clone(&shared.counters),
        sink: Arc::clone(&shared.sink),
    };
    let threads = Threads {
        writer: spawn("store-writer", move || writing.run(&at_writer))?,
        reader: spawn("store-reader", move || reading.run(&at_reader))?,
        log: spawn("store-log", move || {
            for () in at_log {
                // What it cannot do now it can do later; whether the store is well, writes find out.
                let (Ok(()) | Err(_)) = log.with(|store| store.checkpoint());
            }
        })?,
        to_writer,
        to_reader: to_reader.clone(),
    };
    let deciding = shared.clone();
    spawn("store-desk", move || decide(deciding, &at_desk, threads))?;
    Ok(Ends { desk: to_desk, reader: to_reader })
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    let spawned = Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|error| StoreError::new(StoreErrorKind::Io, format!("no thread for the store: {error}")))
}

struct Threads {
    writer: JoinHandle<()>,
    reader: JoinHandle<()>,
    /// Ends after the writer.
    log: JoinHandle<()>,
    to_writer: Sender<Job>,
    to_reader: Sender<ToReader>,
}

fn decide(shared: Shared, at_desk: &Receiver<ToDesk>, threads: Threads) {
    let mut desk = Desk::new(shared.options.clone(), Arc::clone(&shared.counters), Instant::now());
    let mut closers = Vec::new();
    let outcome = loop {
        let now = Instant::now();
        if let Some(outcome) = desk.closed(now) {
            break outcome;
        }
        if let Some(job) = desk.next(now)
            && threads.to_writer.send(job).is_err()
        {
            break Err(StoreError::new(StoreErrorKind::Io, "the writing thread has ended"));
        }
        desk.news().into_iter().for_each(|news| (shared.sink)(news));
        let wait = desk.wake(now).saturating_duration_since(Instant::now());
        let first = match at_desk.recv_timeout(wait) {
            Ok(told) => told,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => ToDesk::Close(None),
        };
        for told in std::iter::once(first).chain(at_desk.try_iter()) {
            let now = Instant::now();
            match told {
                ToDesk::Write(batch) => desk.add(batch),
                ToDesk::Errand(errand) => desk.add_errand(now, errand),
                ToDesk::Done(done) => desk.done(now, done),
                ToDesk::Close(closer) => {
                    desk.close(now);
                    closers.extend(closer);
                }
            }
        }
    };
    desk.news().into_iter().for_each(|news| (shared.sink)(news));
    let hangs = !threads.end(outcome.is_ok());
    drop(shared);
    let outcome = if hangs && outcome.is_ok() {
        Err(StoreError::new(StoreErrorKind::Io, "a thread of the store has failed"))
    } else {
        outcome
    };
    for closer in closers {
        // Who no longer listens does not want to know.
        let (Ok(()) | Err(_)) = closer.send(outcome.clone());
    }
}

impl Threads {
    /// Ends the threads; a writer that may hang is not waited for. False: one has not ended well.
    fn end(self, well: bool) -> bool {
        drop(self.to_writer);
        // A reader that is gone needs no word.
        let (Ok(()) | Err(_)) = self.to_reader.send(ToReader::Close);
        let read = self.reader.join().is_ok();
        let written =
            !(well || self.writer.is_finished()) || (self.writer.join().is_ok() && self.log.join().is_ok());
        read && written
    }
}

/// A store that is opened anew when it has failed.
struct Keeper {
    open: Arc<dyn OpenStore>,
    store: Option<Box<dyn Store>>,
    writes: bool,
}

impl Keeper {
    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let store = match &mut self.store {
            Some(store) => store,
            None => {
                let opened = if self.writes { self.open.writer() } else { self.open.reader() };
                self.store.insert(opened?)
            }
        };
        let done = work(&mut **store);
        if let Err(error) = &done
            && !matches!(error.kind, StoreErrorKind::Full | StoreErrorKind::Locked)
        {
            // Its caches and its view of the file may be what is wrong.
            self.store = None;
        }
        done
    }

    fn run(&mut self, errand: Errand) -> Result<(), StoreError> {
        let mut errand = Some(errand);
        let done = self.with(|store| errand.take().map_or(Ok(()), |errand| errand(Ok(store))));
        match (errand, done) {
            // It was not even opened.
            (Some(errand), Err(error)) => errand(Err(error)),
            (_, done) => done,
        }
    }
}

struct Writing {
    keeper: Keeper,
    options: StoreOptions,
    counters: Arc<Counters>,
    records: Arc<Records>,
    block: RecordBlock,
    done: Sender<ToDesk>,
    /// Tells the thread of the log that there may be something for it.
    log: SyncSender<()>,
}

impl Writing {
    fn run(mut self, jobs: &Receiver<Job>) {
        for job in jobs {
            let done = self.work(job);
            if let Some(store) = &self.keeper.store {
                self.counters.note(store.counts(), store.log_bytes());
            }
            if self.done.send(ToDesk::Done(done)).is_err() {
                return;
            }
            if self.keeper.store.is_some() {
                // As with checkpoints.
                let (Ok(()) | Err(_)) = self.keeper.with(|store| store.shorten_log());
                let (Ok(()) | Err(_)) = self.log.try_send(());
            }
        }
        // Those that came since; what is not written is counted.
        let (Ok(()) | Err(_)) = self.records();
    }

    fn work(&mut self, job: Job) -> Done {
        match job {
            Job::Batch(batch) => {
                let begun = Instant::now();
                let done = self.keeper.with(|store| store.write(&batch));
                if let Some(on_flush) = &self.options.on_flush {
                    on_flush(begun.elapsed());
                }
                if done.is_ok() {
                    self.counters.written.fetch_add(batch.len() as u64, Relaxed);
                }
                Done::Batch(done.map_err(|error| (batch, error)))
            }
            Job::Probe => Done::Probe(self.keeper.with(|store| store.probe())),
            Job::Sweep => Done::Sweep(self.sweep()),
            Job::Records => Done::Other(self.records()),
            Job::Errand(errand) => Done::Other(self.keeper.run(errand)),
        }
    }

    fn sweep(&mut self) -> Result<Left, StoreError> {
        let now = unix_ms();
        let keep = u64::try_from(self.options.records_for.as_millis()).unwrap_or(u64::MAX);
        let bounds = SweepBounds {
            rows: self.options.sweep_rows,
            bytes: SWEEP_BYTES,
            records_before: now.saturating_sub(keep),
            records_bytes: self.options.records_bytes,
        };
        let swept = self.keeper.with(|store| store.sweep(now, bounds))?;
        self.counters.swept.fetch_add((swept.tasks + swept.keys + swept.blocks) as u64, Relaxed);
        let late = swept.oldest.is_some_and(|at| at.saturating_add(LATE_MS) < now);
        Ok(match (swept.more, late) {
            (false, _) => Left::Nothing,
            (true, false) => Left::Some,
            (true, true) => Left::Late,
        })
    }

    fn records(&mut self) -> Result<(), StoreError> {
        let block = &mut self.block;
        self.records.take(block);
        if block.count == 0 {
            return Ok(());
        }
        let done = self.keeper.with(|store| store.write_records(block));
        let count =
            if done.is_ok() { &self.counters.records_written } else { &self.counters.records_dropped };
        count.fetch_add(u64::from(block.count), Relaxed);
        done
    }
}

struct Reading {
    keeper: Keeper,
    counters: Arc<Counters>,
    sink: Sink,
}

impl Reading {
    fn run(mut self, told: &Receiver<ToReader>) {
        for told in told {
            let (number, answer) = match told {
                ToReader::Close => return,
                ToReader::Errand(errand) => {
                    // Whoever asked has been told.
                    let (Ok(()) | Err(_)) = self.keeper.run(errand);
                    continue;
                }
                ToReader::TooMany(number) => (number, Answer::Unreadable),
                ToReader::Ask(ask) => {
                    let answer = self.keeper.with(|store| store.answer(&ask.question));
                    (ask.number, answer.unwrap_or(Answer::Unreadable))
                }
            };
            self.counters.asks_waiting.fetch_sub(1, Relaxed);
            (self.sink)(StoreNews::Answered { number, answer });
        }
    }
}
