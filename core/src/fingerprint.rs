//! What a repetition has to agree in with what it repeats.

use xxhash_rust::xxh3::xxh3_128;

/// What a CALL asks for, as far as a repetition has to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    /// Of the capability asked for and the body. The caller alone could make two collide, to its own harm.
    pub(crate) fn of(capability: &str, body: Option<&[u8]>) -> Self {
        let body = body.map_or(0, xxh3_128);
        Self(body ^ xxh3_128(capability.as_bytes()).rotate_left(1))
    }

    /// The same of a task, which is another intent than a call.
    pub(crate) const fn of_task(self) -> Self {
        Self(!self.0)
    }

    /// As the store keeps it.
    pub(crate) const fn bits(self) -> u128 {
        self.0
    }

    /// As the store gave it back.
    pub(crate) const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}
