//! What stands for the text of a request id.

/// Stands for the text of a request id. The seed is the hub's secret, and only ids of one identity are ever compared
/// by it: who could make two meet would take its own for another of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u128);

impl Key {
    /// Of a hash.
    pub(crate) const fn new(hash: u128) -> Self {
        Self(hash)
    }

    /// What its place in the index goes by.
    pub(crate) const fn tag(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// What stands for it where only the store keeps more.
    pub(crate) const fn number(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0.to_le_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
