//! Time as an argument: the session never looks at a clock.

use std::time::Duration;

/// A moment, as the time since the agent's life began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Now(pub(crate) Duration);

impl Now {
    /// The moment `wait` later.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Whole milliseconds, as the wire counts.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
