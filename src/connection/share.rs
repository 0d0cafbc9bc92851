//! How much is read and written for one peer before the others of its thread have their turn.

/// What is left of it in one poll. When it is used, the connection lines up
/// ([`line_up`](crate::transport::line::line_up)).
///
/// Frames are counted as well as bytes: thousands of small ones fit into one read, and each costs as if it were large.
pub(super) struct Share {
    /// Most bytes of one read.
    pub(super) most: usize,
    to_read: usize,
    /// Frames that may still be begun to be read.
    pub(super) frames: usize,
    /// Bytes of payload that may still be written.
    pub(super) to_write: usize,
}

impl Share {
    /// Of one that comes without having waited: about what is there of a peer that waits for answers.
    pub(super) const fn first() -> Self {
        Self { most: 64 * 1024, to_read: 64 * 1024, frames: 256, to_write: 64 * 1024 }
    }

    /// Of one that has had its share and waited in line. Whoever lines up has much to say or to hear, and each piece of
    /// it is what somebody else's call waits for. More is written than read, so that who has fallen behind catches up.
    pub(super) const fn next() -> Self {
        Self { most: 16 * 1024, to_read: 16 * 1024, frames: 64, to_write: 32 * 1024 }
    }

    /// Takes off what was read, and gives it on.
    pub(super) const fn take(&mut self, read: usize) -> usize {
        self.to_read = self.to_read.saturating_sub(read);
        read
    }

    /// Whether nothing more may be read.
    pub(super) const fn is_read(&self) -> bool {
        self.to_read == 0 || self.frames == 0
    }

    /// Whether nothing more may be written.
    pub(super) const fn is_written(&self) -> bool {
        self.to_write == 0
    }
}
