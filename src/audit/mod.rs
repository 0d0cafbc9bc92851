//! The audit: one line of JSON for each call that ended, each refusal, registration and act, in a file that rotates.
//!
//! Who has something to tell makes the line of it, at the end of those that wait, and never waits for a disk: past a bound
//! in bytes a line is dropped and counted. One thread writes what has gathered. A disk that is full or cannot be written
//! loses lines, which are counted, and the hub goes on.
//!
//! Two buffers go round between who tells and who writes. An event of its own for each line, allocated here and freed
//! there, was most of what the audit cost a call.

mod event;
mod file;
mod gathered;
mod line;
mod writer;

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use gathered::{Added, Gathered};
pub use line::EVENTS;
use writer::{Word, Writer};

/// Most bytes of lines that wait while others are written: about what 50,000 calls a second leave in half of one.
const WAITING_BYTES: usize = 8 << 20;
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

/// What the thread shares with those who tell.
#[derive(Debug)]
struct Shared {
    gathered: Mutex<Gathered>,
    /// Lines that were dropped, for whatever reason.
    dropped: AtomicU64,
    /// Those of them that there was no room for.
    overflowed: AtomicU64,
}

impl Shared {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The audit of a hub at work.
pub struct Audit {
    words: Sender<Word>,
    shared: Arc<Shared>,
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
        Self::with(settings, WAITING_BYTES)
    }

    fn with(settings: &config::Audit, bound: usize) -> Result<Self, AuditError> {
        let config::Audit { path, rotate_bytes, keep, flush_ms, .. } = settings;
        let mut file = AuditFile::new(path, *rotate_bytes, *keep);
        file.open().map_err(|source| AuditError::File { path: path.clone(), source })?;
        let (words, told) = channel();
        let gathered = Mutex::new(Gathered::new(bound));
        let shared = Arc::new(Shared { gathered, dropped: AtomicU64::new(0), overflowed: AtomicU64::new(0) });
        let writer = Writer::new(told, Arc::clone(&shared), file, Duration::from_millis(*flush_ms));
        let spawned = Builder::new().name("audit".into()).spawn(move || writer.run());
        spawned.map_err(AuditError::Thread)?;
        Ok(Self { words, shared })
    }

    /// Takes what the hub says has happened, as far as it is for the audit.
    pub fn facts(&self, facts: &[Fact]) {
        self.add(facts.iter().filter_map(Event::of));
    }

    /// A hub starts, by a policy of this version.
    pub fn started(&self, policy_version: u64) {
        self.add([Event::Started { policy_version }]);
    }

    /// A certificate was refused in the TLS handshake. The name in it is only what it says of itself: whoever comes may
    /// show any, so that more than a few lines a second of this kind are dropped.
    pub fn certificate_refused(&self, identity: &str, reason: &'static str) {
        self.add([Event::Certificate { identity, reason }]);
    }

    /// Certificates, revocation lists and the policy were read again, well or not.
    pub fn reloaded(&self, reload: &Reload) {
        self.add([Event::Reload(reload)]);
    }

    /// How many lines were dropped since the start: for want of room, or on a disk that could not be written.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }

    /// Who hears of certificates that are refused.
    pub fn refusals(self: &Arc<Self>) -> Refusals {
        let audit = Arc::clone(self);
        Refusals::new(move |identity, reason| audit.certificate_refused(identity, reason))
    }

    /// Writes all that waits, and a last line. Waits for the disk, but not for one that hangs, which the log tells of.
    /// What is told afterwards is lost.
    pub fn close(&self) {
        let (tell, told) = channel();
        if self.words.send(Word::Close(tell)).is_err() {
            // Closed before.
            return;
        }
        if told.recv_timeout(LAST_LINES).is_err() {
            warn!("a write to the audit does not come back");
        }
    }

    fn add<'a>(&self, events: impl IntoIterator<Item = Event<'a>>) {
        let mut events = events.into_iter().peekable();
        if events.peek().is_none() {
            return;
        }
        let (mut first, mut much) = (false, false);
        let now_ms = unix_ms();
        let mut gathered = self.shared.gathered();
        for event in events {
            match gathered.add(now_ms, &event) {
                Added::More => {}
                Added::First => first = true,
                Added::Much => much = true,
                Added::TooMany => {
                    self.shared.dropped.fetch_add(1, Relaxed);
                }
                Added::NoRoom => {
                    self.shared.dropped.fetch_add(1, Relaxed);
                    self.shared.overflowed.fetch_add(1, Relaxed);
                }
            }
        }
        drop(gathered);
        // Once for a batch, or twice: waking a thread costs more than all the rest here.
        for word in [first.then_some(Word::First), much.then_some(Word::Hurry)].into_iter().flatten() {
            // Nobody is told whose thread has ended: the hub is ending.
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
