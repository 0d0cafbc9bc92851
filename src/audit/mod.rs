//! The audit: one line of JSON for each call that ended, each refusal, registration and act, in a file that rotates.
//!
//! Who hands something over never waits: it goes into a queue with a bound in bytes, and past that it is dropped and
//! counted. One thread takes it from there, makes the lines and writes them in batches. A disk that is full or cannot be
//! written loses lines, which are counted, and the hub goes on.

mod event;
mod file;
mod line;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::Builder;
use std::time::Duration;

use agent_reach_core::Fact;
use tracing::warn;

use crate::config;
use crate::keeping::unix_ms;
use crate::transport::refusals::Refusals;
use event::Event;
pub use event::{Reload, Trigger};
use file::AuditFile;
pub use file::{check, rotated};
pub use line::EVENTS;
use writer::{Queued, Word, Writer};

/// Most bytes that wait to be written: at 50,000 calls a second about as much as comes in a second.
const QUEUE_BYTES: u64 = 16 << 20;
/// What has gathered is written at once when it is so much.
const HURRY_BYTES: u64 = QUEUE_BYTES / 4;
/// How long the end of the hub waits for a disk that hangs.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Why there is no audit.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("audit.path = {path:?}: {source}; write a path that the hub may write, or audit.enabled = false")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system has no thread for it.
    #[error("the audit has no thread: {0}")]
    Thread(std::io::Error),
}

/// What the thread shares with those who hand over.
#[derive(Debug, Default)]
struct Shared {
    /// Bytes in the queue.
    waiting: AtomicU64,
    /// Lines that were dropped, for whatever reason.
    dropped: AtomicU64,
    /// Those of them that the queue had no room for.
    overflowed: AtomicU64,
}

/// The audit of a hub at work.
pub struct Audit {
    queue: Sender<Queued>,
    words: Sender<Word>,
    shared: Arc<Shared>,
    bound: u64,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Audit").field(&self.shared).finish()
    }
}

impl Audit {
    /// Opens the file and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread. Later on, a file that cannot be written ends nothing.
    pub fn start(settings: &config::Audit) -> Result<Self, AuditError> {
        Self::with(settings, QUEUE_BYTES)
    }

    fn with(settings: &config::Audit, bound: u64) -> Result<Self, AuditError> {
        let config::Audit { path, rotate_bytes, keep, flush_ms, .. } = settings;
        let mut file = AuditFile::new(path, *rotate_bytes, *keep);
        file.open().map_err(|source| AuditError::File { path: path.clone(), source })?;
        let (queue, queued) = channel();
        let (words, told) = channel();
        let shared = Arc::new(Shared::default());
        let writer = Writer::new(queued, told, Arc::clone(&shared), file, Duration::from_millis(*flush_ms));
        let spawned = Builder::new().name("audit".into()).spawn(move || writer.run());
        spawned.map_err(AuditError::Thread)?;
        Ok(Self { queue, words, shared, bound })
    }

    /// Takes what the hub says has happened, if it is for the audit.
    pub fn fact(&self, fact: &Fact) {
        if let Some(event) = Event::of(fact) {
            self.add(event);
        }
    }

    /// A hub starts, by a policy of this version.
    pub fn started(&self, policy_version: u64) {
        self.add(Event::Started { policy_version });
    }

    /// A certificate was refused in the TLS handshake. The name in it is only what it says of itself: whoever comes may
    /// show any, so that more than a few lines a second of this kind are dropped.
    pub fn certificate_refused(&self, identity: &str, reason: &'static str) {
        self.add(Event::Certificate { identity: identity.into(), reason });
    }

    /// Certificates, revocation lists and the policy were read again, well or not.
    pub fn reloaded(&self, reload: Reload) {
        self.add(Event::Reload(Box::new(reload)));
    }

    /// How many lines were dropped since the start: for want of room in the queue, or on a disk that could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Who hears of certificates that are refused.
    pub fn refusals(self: &Arc<Self>) -> Refusals {
        let audit = Arc::clone(self);
        Refusals::new(move |identity, reason| audit.certificate_refused(identity, reason))
    }

    /// Writes all that waits, and a last line. Waits for the disk, but not for one that hangs, which the log tells of.
    /// What is handed over afterwards is lost.
    pub fn close(&self) {
        self.add(Event::Stopped);
        let (tell, told) = channel();
        if self.words.send(Word::Close(tell)).is_err() {
            // Closed before.
            return;
        }
        if told.recv_timeout(LAST_LINES).is_err() {
            warn!("a write to the audit does not come back");
        }
    }

    fn add(&self, event: Event) {
        let size = event.size();
        if self.shared.waiting.load(Relaxed).saturating_add(size) > self.bound {
            self.shared.dropped.fetch_add(1, Relaxed);
            self.shared.overflowed.fetch_add(1, Relaxed);
            return;
        }
        let before = self.shared.waiting.fetch_add(size, AcqRel);
        // Nobody is told whose thread has ended: the hub is ending.
        let (Ok(()) | Err(_)) = self.queue.send(Queued { at_ms: unix_ms(), size, event });
        // Once for a batch: waking a thread costs more than all the rest here.
        let first = before == 0;
        let hurry = before < HURRY_BYTES && before.saturating_add(size) >= HURRY_BYTES;
        if first || hurry {
            let word = if hurry { Word::Hurry } else { Word::First };
            let (Ok(()) | Err(_)) = self.words.send(word);
        }
    }
}

/// The folder that a file is in.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
