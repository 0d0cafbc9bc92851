//! How much of one peer is read before the others of its thread have their turn.

/// After so many bytes of one peer the others of its thread have their turn: about one full read.
const FAIR_BYTES: usize = 64 * 1024;
/// And after so many frames: thousands of small ones fit into one read, and each costs as if it were large.
const FAIR_FRAMES: usize = 256;

/// What is left of it in one poll. When it is used, the connection lines up
/// ([`line_up`](crate::transport::line::line_up)).
pub(super) struct Share {
    bytes: usize,
    /// Frames that may still be begun.
    pub(super) frames: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { bytes: FAIR_BYTES, frames: FAIR_FRAMES }
    }
}

impl Share {
    /// Takes off what was read, and gives it on.
    pub(super) const fn take(&mut self, read: usize) -> usize {
        self.bytes = self.bytes.saturating_sub(read);
        read
    }

    /// Whether nothing more may be read.
    pub(super) const fn is_used(&self) -> bool {
        self.bytes == 0 || self.frames == 0
    }
}
