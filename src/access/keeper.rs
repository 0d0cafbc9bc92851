//! Writes sessions down as they change, on no thread of the runtime.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::kept::Kept;
use super::{Access, kept};

/// Pause after each write: what changes meanwhile is written together.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause after one that failed.
const ILL_PAUSE: Duration = Duration::from_secs(5);
/// How long somebody who logs in or out waits for a disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where sessions are kept, and how far that is. Changes are counted from 1.
#[derive(Debug)]
pub(super) struct Keeper {
    path: PathBuf,
    changed: watch::Sender<u64>,
    /// Up to where writing was tried, and up to where it was done.
    tried: watch::Sender<u64>,
    done: watch::Sender<u64>,
    is_ill: AtomicBool,
}

impl Keeper {
    /// Over a file, in which nothing has changed yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let none = || watch::Sender::new(0);
        Self { path, changed: none(), tried: none(), done: none(), is_ill: AtomicBool::new(false) }
    }

    /// Sessions are others than before. Called while they are held, so that who is told finds them changed.
    pub(super) fn note(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Ends when what has changed up to now is written, or the disk has said that it cannot be, or says nothing.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + use<> {
        let (changes, mut tried) = (*self.changed.borrow(), self.tried.subscribe());
        async move {
            let written = timeout(PATIENCE, tried.wait_for(|tried| *tried >= changes)).await;
            if written.is_err() {
                warn!("sessions of browsers wait to be written");
            }
        }
    }

    /// Writes sessions after so many changes. Whether that was done; the log says when it cannot be, and when again.
    fn write(&self, changes: u64, sessions: &[Kept]) -> bool {
        let written = kept::write(&self.path, sessions);
        let was_ill = self.is_ill.swap(written.is_err(), Relaxed);
        match &written {
            Ok(()) if was_ill => info!("sessions of browsers can be written again"),
            Err(error) if !was_ill => warn!(%error, "sessions of browsers cannot be written"),
            Ok(()) | Err(_) => {}
        }
        if written.is_ok() {
            self.done.send_replace(changes);
        }
        self.tried.send_replace(changes);
        written.is_ok()
    }
}

impl Access {
    /// Writes sessions down as they change, for as long as it is polled; for ever, where they are not kept.
    pub async fn keep_sessions(self: Arc<Self>) {
        let Some(mut changed) = self.keeper.as_ref().map(|keeper| keeper.changed.subscribe()) else {
            return std::future::pending().await;
        };
        loop {
            let done = self.keeper.as_ref().map_or(0, |keeper| *keeper.done.borrow());
            // This holds the sender itself: it is never gone.
            drop(changed.wait_for(|changes| *changes > done).await);
            let own = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || own.write_sessions()).await;
            sleep(if written.unwrap_or(false) { PAUSE } else { ILL_PAUSE }).await;
        }
    }

    /// Writes what has changed and is not written. Waits for the disk. Whether all of it is written now.
    fn write_sessions(&self) -> bool {
        let Some(keeper) = &self.keeper else { return true };
        if *keeper.done.borrow() >= *keeper.changed.borrow() {
            return true;
        }
        let (changes, sessions) = {
            let state = self.state();
            (*keeper.changed.borrow(), state.sessions.kept())
        };
        keeper.write(changes, &sessions)
    }
}
