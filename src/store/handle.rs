//! The store as the hub has it: nothing here waits for a disk, but [`StoreHandle::open`] and [`StoreHandle::close`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;

use agent_reach_core::{Ask, Change, StoreNews, TaskId};
use tokio::sync::oneshot;

use crate::callbacks::Busy;

use super::figures::Counters;
use super::job::Errand;
use super::records::Records;
use super::sqlite::SqliteFile;
use super::threads::{Ends, Shared, ToDesk, ToReader, start, unix_ms};
use super::{
    DueCallback, OpenStore, Record, Restored, Store, StoreError, StoreErrorKind, StoreFigures, StoreOptions,
    StoreStats, restore,
};

/// Most questions that wait; one more is answered at once, with [`agent_reach_core::Answer::Unreadable`].
const MOST_ASKS: u64 = 65_536;

/// A store at work. Clones are the same store; it is closed when the last is dropped, or by [`StoreHandle::close`].
#[derive(Clone)]
pub struct StoreHandle {
    inner: Arc<Inner>,
}

struct Inner {
    ends: Ends,
    counters: Arc<Counters>,
    records: Arc<Records>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A thread that has ended needs no word.
        let (Ok(()) | Err(_)) = self.ends.desk.send(ToDesk::Close(None));
    }
}

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StoreHandle").field(&self.figures()).finish()
    }
}

impl StoreHandle {
    /// Opens the store in a file, reads what the hub has to know, and starts the store's threads. `sink` hears the news,
    /// on those threads: it must not wait.
    ///
    /// # Errors
    /// The file is another hub's, another program's or a newer version's, or cannot be read and written.
    pub fn open(
        options: StoreOptions,
        sink: impl Fn(StoreNews) + Send + Sync + 'static,
    ) -> Result<(Self, Restored), StoreError> {
        let file = SqliteFile::take(&options)?;
        Self::over(Arc::new(file), options, sink)
    }

    /// The same with any store.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn over(
        open: Arc<dyn OpenStore>,
        options: StoreOptions,
        sink: impl Fn(StoreNews) + Send + Sync + 'static,
    ) -> Result<(Self, Restored), StoreError> {
        let mut writer = open.writer()?;
        let reader = open.reader()?;
        let restored = restore(&mut *writer, unix_ms())?;
        let counters = Arc::new(Counters::default());
        counters.note(writer.counts(), writer.log_bytes());
        let records = Arc::new(Records::new(options.records_waiting));
        let (counted, gathered) = (Arc::clone(&counters), Arc::clone(&records));
        let shared = Shared { options, counters: counted, records: gathered, sink: Arc::new(sink), open };
        let ends = start(&shared, writer, reader)?;
        Ok((Self { inner: Arc::new(Inner { ends, counters, records }) }, restored))
    }

    /// Takes changes, whose numbers count up. What comes of them is told to the sink.
    pub fn write(&self, changes: impl IntoIterator<Item = (u64, Change)>) {
        let changes: Vec<_> = changes.into_iter().collect();
        if !changes.is_empty() {
            // A store that is closed writes nothing; the hub has let go of it.
            let (Ok(()) | Err(_)) = self.inner.ends.desk.send(ToDesk::Write(changes));
        }
    }

    /// Takes a question, whose answer is told to the sink.
    pub fn ask(&self, ask: Ask) {
        let waiting = self.inner.counters.asks_waiting.fetch_add(1, Relaxed);
        let told = if waiting < MOST_ASKS { ToReader::Ask(ask) } else { ToReader::TooMany(ask.number) };
        // As above.
        let (Ok(()) | Err(_)) = self.inner.ends.reader.send(told);
    }

    /// Takes records, which are written within [`StoreOptions::records_every`], or dropped and counted where too many wait.
    pub fn record<'a>(&self, records: impl IntoIterator<Item = Record<'a>>) {
        let dropped = self.inner.records.add(records);
        if dropped > 0 {
            self.inner.counters.records_dropped.fetch_add(dropped, Relaxed);
        }
    }

    /// See [`Store::due_callbacks`].
    ///
    /// # Errors
    /// It cannot be read, or is closed.
    pub async fn due_callbacks(
        &self,
        now: u64,
        most: usize,
        busy: Busy,
    ) -> Result<Vec<DueCallback>, StoreError> {
        self.read(move |store| store.due_callbacks(now, most, &busy)).await
    }

    /// See [`Store::next_callback`].
    ///
    /// # Errors
    /// It cannot be read, or is closed.
    pub async fn next_callback(&self, after: u64) -> Result<Option<u64>, StoreError> {
        self.read(move |store| store.next_callback(after)).await
    }

    /// See [`Store::callback_tried`].
    ///
    /// # Errors
    /// It was not written; or the store is closed.
    pub async fn callback_tried(
        &self,
        task: TaskId,
        attempt: u32,
        outcome: String,
        next: Option<u64>,
    ) -> Result<(), StoreError> {
        let (errand, answer) = errand(move |store| store.callback_tried(task, attempt, &outcome, next));
        // What is not taken is not answered.
        let (Ok(()) | Err(_)) = self.inner.ends.desk.send(ToDesk::Errand(errand));
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// See [`Store::stats`]. Counts rows, so it may take a while; questions wait meanwhile.
    ///
    /// # Errors
    /// It cannot be read, or is closed.
    pub async fn stats(&self) -> Result<StoreStats, StoreError> {
        self.read(|store| store.stats()).await
    }

    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (errand, answer) = errand(work);
        // What is not taken is not answered.
        let (Ok(()) | Err(_)) = self.inner.ends.reader.send(ToReader::Errand(errand));
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// What it has done so far, and what waits. Costs next to nothing.
    pub fn figures(&self) -> StoreFigures {
        self.inner.counters.figures()
    }

    /// Writes all that waits, ends the threads and lets go of the file. Waits for the disk, but not for one that hangs.
    ///
    /// # Errors
    /// Not all of it could be written.
    pub fn close(&self) -> Result<(), StoreError> {
        let (closer, closing) = channel();
        if self.inner.ends.desk.send(ToDesk::Close(Some(closer))).is_err() {
            return Ok(());
        }
        // Closed by somebody else between the two.
        closing.recv().unwrap_or(Ok(()))
    }
}

type Answered<T> = oneshot::Receiver<Result<T, StoreError>>;

/// Work for a thread of the store, and where its outcome comes.
fn errand<T: Send + 'static>(
    work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError> + Send + 'static,
) -> (Errand, Answered<T>) {
    let (answer, answered) = oneshot::channel();
    let errand = move |store: Result<&mut dyn Store, StoreError>| {
        let done = store.and_then(work);
        let outcome = done.as_ref().map(drop).map_err(Clone::clone);
        // Who no longer waits does not want to know.
        let (Ok(()) | Err(_)) = answer.send(done);
        outcome
    };
    (Box::new(errand), answered)
}

fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Io, "the store is closed")
}
