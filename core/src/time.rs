//! Time as an argument, and the one ordered set of everything that is due.

use std::collections::BTreeSet;

use crate::input::ConnectionId;

/// A moment on the hub's monotonic clock, in microseconds since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(u64);

impl Now {
    /// The moment `micros` microseconds after the hub's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The moment `ms` milliseconds after the hub's start.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Microseconds since the hub's start.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// This moment and `ms` milliseconds.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Microseconds from `earlier` to this moment; 0 when it is not earlier.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds from `earlier` to this moment; 0 when it is not earlier.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.micros_since(earlier) / 1000
    }
}

/// What is due when a timer fires. The owner removes its timer before it goes, so an index is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// HELLO has to have come, or the next look at the silence of a session.
    Session(ConnectionId),
    /// The next deadline of a leg.
    Leg(usize),
    /// The end of an absent agent's resume window.
    Agent(usize),
    /// Periodic removal of what has expired.
    Sweep,
    /// The end of a drain.
    Drain,
}

/// All timers of the hub.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Now, Timer)>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Now, timer: Timer) {
        self.due.insert((at, timer));
    }

    pub(crate) fn clear(&mut self, at: Now, timer: Timer) {
        self.due.remove(&(at, timer));
    }

    pub(crate) fn next(&self) -> Option<Now> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes the first timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, timer)| timer)
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }
}
