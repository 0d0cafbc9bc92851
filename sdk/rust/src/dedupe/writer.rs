//! The thread that writes the file, so that no disk holds up a connection: what is there when it comes is written in
//! one go.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::file::DedupeFile;
use crate::session::{Note, Work};

/// What waits to be written. Bounded by the handlers that run: each has its begin or its end here.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    notes: Vec<Note>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
    }

    /// All that waits, when there is something. `None` at the end.
    fn take(&self) -> Option<Vec<Note>> {
        let mut state = self.lock();
        while state.notes.is_empty() && !state.closed {
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (!state.notes.is_empty()).then(|| std::mem::take(&mut state.notes))
    }
}

/// The connection's end of the thread.
#[derive(Debug)]
pub(crate) struct Writer {
    queue: Arc<Queue>,
    ended: Option<oneshot::Receiver<()>>,
}

impl Writer {
    /// Starts the thread; it tells `events` what is written.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub(crate) fn start(file: DedupeFile, events: mpsc::Sender<Work>) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let (end, ended) = oneshot::channel();
        let own = Arc::clone(&queue);
        std::thread::Builder::new().name("agent-reach-dedupe".to_owned()).spawn(move || {
            write_all(file, &own, &events);
            let _nobody_waits = end.send(());
        })?;
        Ok(Self { queue, ended: Some(ended) })
    }

    pub(crate) fn write(&self, note: Note) {
        self.queue.lock().notes.push(note);
        self.queue.news.notify_one();
    }

    /// Waits until all is written and the file is let go.
    pub(crate) async fn close(mut self) {
        self.queue.close();
        if let Some(ended) = self.ended.take() {
            // An error means that the thread is gone already.
            drop(ended.await);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn write_all(mut file: DedupeFile, queue: &Queue, events: &mpsc::Sender<Work>) {
    while let Some(notes) = queue.take() {
        let runs: Vec<_> = notes.iter().filter_map(|note| note.run).collect();
        if let Err(error) = file.append(notes) {
            // The work goes on: an agent that does nothing is worse than one that may do a thing twice after a crash.
            tracing::error!(%error, "the dedupe file cannot be written");
        }
        for run in runs {
            if events.blocking_send(Work::Noted(run)).is_err() {
                break;
            }
        }
    }
}
