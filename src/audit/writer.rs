//! The thread that writes the audit.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use tracing::{error, info, warn};

use super::Shared;
use super::event::Event;
use super::file::{AuditFile, Written};
use super::gathered::Batch;
use super::line::Lines;
use crate::keeping::unix_ms;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Word {
    /// There was no line, and now there is one.
    First,
    /// Much has gathered: it is not to wait for more.
    Hurry,
    /// Write all there is, say so, and end.
    Close(Sender<()>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Writer {
    words: Receiver<Word>,
    shared: Arc<Shared>,
    file: AuditFile,
    flush: Duration,
    batch: Batch,
    episodes: Episodes,
}

impl Writer {
    pub(super) fn new(words: Receiver<Word>, shared: Arc<Shared>, file: AuditFile, flush: Duration) -> Self {
        Self { words, shared, file, flush, batch: Batch::default(), episodes: Episodes::default() }
    }

    /// Works until it is told to end, or nobody is left who could tell.
    pub(super) fn run(mut self) {
        let closer = loop {
            match self.words.recv() {
                Ok(Word::First) => {}
                // Of lines that are written already.
                Ok(Word::Hurry) => continue,
                Ok(Word::Close(closer)) => break Some(closer),
                Err(_) => break None,
            }
            // More lines gather. What comes while they are written has a first of its own.
            match self.words.recv_timeout(self.flush) {
                Ok(Word::First | Word::Hurry) | Err(RecvTimeoutError::Timeout) => self.write_gathered(),
                Ok(Word::Close(closer)) => break Some(closer),
                Err(RecvTimeoutError::Disconnected) => break None,
            }
        };
        self.write_gathered();
        if let Some(closer) = closer {
            self.write_last();
            // Who no longer waits does not want to know.
            let (Ok(()) | Err(_)) = closer.send(());
        }
    }

    fn write_gathered(&mut self) {
        self.shared.gathered().take(&mut self.batch);
        self.write();
        self.episodes.tell_overflow(self.shared.overflowed.load(Relaxed));
    }

    /// The last line says how many are missing, those of the last batch included.
    fn write_last(&mut self) {
        let dropped = self.shared.dropped.load(Relaxed);
        Lines::default().write(&mut self.batch.bytes, unix_ms(), &Event::Stopped { dropped });
        self.batch.ends.push(self.batch.bytes.len());
        self.write();
    }

    fn write(&mut self) {
        let Batch { bytes, ends } = &self.batch;
        if !ends.is_empty() {
            let written = self.file.write(bytes, ends);
            let lost = (ends.len() - written.lines) as u64;
            self.episodes.tell(&self.file, &written, lost);
            self.shared.dropped.fetch_add(lost, Relaxed);
        }
        self.batch.clear();
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

    /// `overflowed`: how many lines there was no room for since the start.
    fn tell_overflow(&mut self, overflowed: u64) {
        let more = overflowed - self.overflowed;
        if more > 0 && !self.overflowing {
            warn!(dropped = more, "the audit is dropping lines, more come than can be written");
        }
        (self.overflowed, self.overflowing) = (overflowed, more > 0);
    }
}
