//! When to dial again, and the chance in it.

use std::time::Duration;

/// Ceiling of the first wait.
const FIRST: Duration = Duration::from_secs(1);
/// Ceiling of every later wait.
const MOST: Duration = Duration::from_secs(60);

/// Random numbers from a seed (splitmix64). Spreads reconnects and makes ids; guards no secret.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Anything from zero to `window`: full jitter.
    pub(crate) fn within(&mut self, window: Duration) -> Duration {
        let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let picked = (u128::from(self.next()) * (u128::from(nanos) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(picked).unwrap_or(nanos))
    }
}

/// Counts the failures in a row; the ceiling doubles with each.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST, MOST)
    }
}

impl Backoff {
    pub(crate) const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failures: 0 }
    }

    /// Ceiling of the next wait.
    pub(crate) fn window(&self) -> Duration {
        self.first.saturating_mul(1 << self.failures.min(20)).min(self.most)
    }

    /// The next wait: jittered from the first on, so that a fleet never comes back in one second.
    pub(crate) fn next(&mut self, rng: &mut Rng) -> Duration {
        let wait = rng.within(self.window());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// A session lived long enough to count as a success.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_from_one_second_to_sixty() {
        let mut backoff = Backoff::default();
        let mut rng = Rng::new(1);
        let mut windows = Vec::new();
        for _ in 0..8 {
            windows.push(backoff.window().as_secs());
            assert!(backoff.next(&mut rng).as_secs() <= *windows.last().unwrap());
        }
        assert_eq!(windows, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.reset();
        assert_eq!(backoff.window(), FIRST);
    }

    #[test]
    fn the_first_wait_is_already_spread_over_its_whole_window() {
        let waits: Vec<u64> = (0..500)
            .map(|seed| {
                let wait = Backoff::default().next(&mut Rng::new(seed));
                u64::try_from(wait.as_millis()).unwrap() / 100
            })
            .collect();
        for bin in 0..10 {
            let count = waits.iter().filter(|w| **w == bin).count();
            assert!((20..=90).contains(&count), "{count} of 500 agents wait for bin {bin}");
        }
    }
}
