//! How quickly calls go out after the hub ended the connection as a slow consumer's.
//!
//! Everything that was open would be answered at once, and would be too much at once again. So the next call goes out
//! when one has ended, or when its pause is over: results of any size come one after the other, and what takes long
//! holds up nothing.

use std::time::Duration;

use crate::session::time::Now;

/// The pause after a call, doubled by each time that this call was cut off.
const STEP: Duration = Duration::from_millis(100);
/// No pause is longer.
const MOST: Duration = Duration::from_secs(2);
/// A call that was cut off so often, by sessions that lived shortly, fails.
pub(super) const CUTS_MAX: u32 = 5;

/// Whether the next call may go out.
#[derive(Debug, Default)]
pub(super) struct Pace {
    slow: bool,
    at: Option<Now>,
}

impl Pace {
    /// When the next call may go out at the latest; `None`: now.
    pub(super) const fn at(&self) -> Option<Now> {
        self.at
    }

    /// The connection was ended as a slow consumer's.
    pub(super) const fn cut(&mut self) {
        self.slow = true;
        self.at = None;
    }

    /// A call went out, which was cut off so often.
    pub(super) fn sent(&mut self, now: Now, cuts: u32) {
        if self.slow {
            self.at = Some(now.after(STEP.saturating_mul(1 << cuts.min(CUTS_MAX)).min(MOST)));
        }
    }

    /// A call ended, or the connection.
    pub(super) const fn go(&mut self) {
        self.at = None;
    }

    /// Time passes.
    pub(super) fn passes(&mut self, now: Now) {
        self.at = self.at.filter(|at| *at > now);
    }

    /// Everything went out.
    pub(super) const fn caught_up(&mut self) {
        self.slow = false;
        self.at = None;
    }
}
