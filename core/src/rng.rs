//! Random choices from a seed that comes in: SplitMix64 (Steele, Lea, Flood 2014).

/// What the state grows by with each number.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The same, `n` numbers on.
    pub(crate) const fn skip(self, n: u64) -> Self {
        Self(self.0.wrapping_add(GAMMA.wrapping_mul(n)))
    }

    /// A number below `bound`; 0 when the bound is 0. The bias is below 2^-32 for the small bounds in use.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = (u128::from(self.next()) * bound as u128) >> 64;
        usize::try_from(wide).unwrap_or(0)
    }
}
