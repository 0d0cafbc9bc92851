//! Lines that wait to be written.

use std::mem;

use super::event::Event;
use super::line::Lines;

/// So many bytes of lines are not to wait for more: they are still in the processor's caches.
pub(super) const MUCH_BYTES: usize = 256 * 1024;
/// Most lines a second of certificates that were refused. Whoever reaches the listener can show any number of them, and
/// must not push out of the files what they are kept for.
const CERTIFICATES_EACH_SECOND: u32 = 10;

/// Whole lines, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Where each line ends.
    pub(super) ends: Vec<usize>,
}

impl Batch {
    /// Empties it, and keeps about as much memory as a batch that came in time needs.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * MUCH_BYTES);
        self.ends.clear();
        self.ends.shrink_to(MUCH_BYTES / 64);
    }
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is the first of its batch.
    First,
    /// It is one more.
    More,
    /// With it there is enough to be written at once. Told once for a batch.
    Much,
    /// This second has enough of its kind.
    TooMany,
    /// As much waits as may.
    NoRoom,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Gathered {
    batch: Batch,
    bound: usize,
    lines: Lines,
    certificates: Certificates,
}

impl Gathered {
    /// `bound`: with so many bytes or more no line is added.
    pub(super) fn new(bound: usize) -> Self {
        let (batch, lines, certificates) = (Batch::default(), Lines::default(), Certificates::default());
        Self { batch, bound, lines, certificates }
    }

    /// Adds the line of an event, if it may be.
    pub(super) fn add(&mut self, at_ms: u64, event: &Event<'_>) -> Added {
        let before = self.batch.bytes.len();
        if before >= self.bound {
            return Added::NoRoom;
        }
        if matches!(event, Event::Certificate { .. }) && !self.certificates.may(at_ms) {
            return Added::TooMany;
        }
        self.lines.write(&mut self.batch.bytes, at_ms, event);
        let after = self.batch.bytes.len();
        self.batch.ends.push(after);
        match before {
            0 => Added::First,
            _ if before < MUCH_BYTES && after >= MUCH_BYTES => Added::Much,
            _ => Added::More,
        }
    }

    /// Gives what has gathered, for an empty batch whose memory is used again.
    pub(super) fn take(&mut self, batch: &mut Batch) {
        mem::swap(&mut self.batch, batch);
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
