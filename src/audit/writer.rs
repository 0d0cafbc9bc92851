//! The thread that writes the audit.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use tracing::{error, info, warn};

use super::Shared;
use super::event::Event;
use super::file::{AuditFile, Written};
use super::line::Lines;

/// About the most that is written at once. Bytes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Most lines a second of certificates that were refused. Whoever reaches the listener can show any number of them, and
/// must not push out of the files what they are kept for.
const CERTIFICATES_EACH_SECOND: u32 = 10;

/// An event on its way.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) at_ms: u64,
    pub(super) size: u64,
    pub(super) event: Event,
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Word {
    /// The queue was empty, and is not any more.
    First,
    /// Much has gathered: it is not to wait for more.
    Hurry,
    /// Write all there is, say so, and end.
    Close(Sender<()>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Receiver<Queued>,
    words: Receiver<Word>,
    shared: Arc<Shared>,
    file: AuditFile,
    flush: Duration,
    lines: Lines,
    buffer: Vec<u8>,
    ends: Vec<usize>,
    certificates: Certificates,
    episodes: Episodes,
}

impl Writer {
    pub(super) fn new(
        queue: Receiver<Queued>,
        words: Receiver<Word>,
        shared: Arc<Shared>,
        file: AuditFile,
        flush: Duration,
    ) -> Self {
        Self {
            queue,
            words,
            shared,
            file,
            flush,
            lines: Lines::default(),
            buffer: Vec::new(),
            ends: Vec::new(),
            certificates: Certificates::default(),
            episodes: Episodes::default(),
        }
    }

    /// Works until it is told to end, or nobody is left who could tell.
    pub(super) fn run(mut self) {
        let closer = loop {
            match self.words.recv() {
                Ok(Word::First | Word::Hurry) => {}
                Ok(Word::Close(closer)) => break Some(closer),
                Err(_) => break None,
            }
            if let Some(closer) = self.gather() {
                break closer;
            }
        };
        while self.batch() > 0 {}
        if let Some(closer) = closer {
            // Who no longer waits does not want to know.
            let (Ok(()) | Err(_)) = closer.send(());
        }
    }

    /// Lets lines gather and writes them, until the queue is empty. `Some`: it is to end, and whom to tell.
    fn gather(&mut self) -> Option<Option<Sender<()>>> {
        loop {
            match self.words.recv_timeout(self.flush) {
                Ok(Word::First | Word::Hurry) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Word::Close(closer)) => return Some(Some(closer)),
                Err(RecvTimeoutError::Disconnected) => return Some(None),
            }
            // A full batch leaves more behind it.
            while self.batch() >= CHUNK_BYTES {}
            if self.shared.waiting.load(Relaxed) == 0 {
                return None;
            }
        }
    }

    /// Writes what is in the queue, up to a chunk. How many bytes of lines that was.
    fn batch(&mut self) -> usize {
        self.buffer.clear();
        self.ends.clear();
        let (mut taken, mut dropped) = (0, 0);
        while self.buffer.len() < CHUNK_BYTES
            && let Ok(Queued { at_ms, size, event }) = self.queue.try_recv()
        {
            taken += size;
            if matches!(event, Event::Certificate { .. }) && !self.certificates.may(at_ms) {
                dropped += 1;
                continue;
            }
            let so_far = self.shared.dropped.load(Relaxed) + dropped;
            self.lines.write(&mut self.buffer, at_ms, &event, so_far);
            self.ends.push(self.buffer.len());
        }
        if !self.ends.is_empty() {
            let written = self.file.write(&self.buffer, &self.ends);
            let lost = (self.ends.len() - written.lines) as u64;
            dropped += lost;
            self.episodes.tell(&self.file, &written, lost);
        }
        self.shared.dropped.fetch_add(dropped, Relaxed);
        self.episodes.tell_overflow(self.shared.overflowed.load(Relaxed));
        // Last: who finds the queue empty may take the lines for written.
        self.shared.waiting.fetch_sub(taken, AcqRel);
        self.buffer.len()
    }
}

/// How many lines of refused certificates this second has.
#[derive(Debug, Default)]
struct Certificates {
    second: u64,
    count: u32,
}

impl Certificates {
    fn may(&mut self, at_ms: u64) -> bool {
        let second = at_ms / 1000;
        if self.second != second {
            *self = Self { second, count: 0 };
        }
        self.count += 1;
        self.count <= CERTIFICATES_EACH_SECOND
    }
}

/// What is wrong, so that the log says it once each time.
#[derive(Debug, Default)]
struct Episodes {
    /// Lines lost since the file could be written last.
    ill: Option<u64>,
    stuck: bool,
    overflowed: u64,
    overflowing: bool,
}

impl Episodes {
    fn tell(&mut self, file: &AuditFile, written: &Written, lost: u64) {
        let path = file.path().display();
        match (&written.error, &mut self.ill) {
            (Some(_), Some(dropped)) => *dropped += lost,
            (Some(error), none) => {
                *none = Some(lost);
                error!(%error, %path, "the audit cannot be written");
            }
            (None, Some(dropped)) => {
                info!(%path, dropped, "the audit can be written again");
                self.ill = None;
            }
            (None, None) => {}
        }
        if let Some(error) = written.stuck.as_ref().filter(|_| !self.stuck) {
            warn!(%error, %path, "the audit cannot be rotated, and its file grows");
        }
        self.stuck = written.stuck.is_some();
    }

    /// `overflowed`: how many lines the queue has had no room for since the start.
    fn tell_overflow(&mut self, overflowed: u64) {
        let more = overflowed - self.overflowed;
        if more > 0 && !self.overflowing {
            warn!(dropped = more, "the audit is dropping lines, more come than can be written");
        }
        (self.overflowed, self.overflowing) = (overflowed, more > 0);
    }
}
