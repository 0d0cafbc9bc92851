//! How much an agent may have compiled.

use crate::time::Now;

/// Bytes that an agent may bring at once: some hundred ordinary schemas.
const BURST: u64 = 128 * 1024;
/// Bytes that it may bring again each second.
const RATE: u64 = 8 * 1024;

/// Bytes of schemas that nobody else uses. To compile them takes a microsecond for each byte at the worst, in which
/// all others wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    bytes: u64,
    at: Now,
}

impl Allowance {
    /// Of an agent that comes for the first time.
    pub(crate) const fn full(now: Now) -> Self {
        Self { bytes: BURST, at: now }
    }

    /// Takes so many bytes, if they are left.
    pub(crate) fn take(&mut self, now: Now, bytes: usize) -> bool {
        let more = now.ms_since(self.at).saturating_mul(RATE) / 1000;
        if more > 0 {
            self.bytes = self.bytes.saturating_add(more).min(BURST);
            self.at = now;
        }
        let left = self.bytes.checked_sub(bytes as u64);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_comes_back_with_time_and_never_beyond_the_burst() {
        let mut now = Now::from_millis(1000);
        let mut allowance = Allowance::full(now);
        assert!(allowance.take(now, 100 * 1024) && !allowance.take(now, 29 * 1024));
        assert!(allowance.take(now, 28 * 1024) && !allowance.take(now, 1));
        now = now.plus_ms(1000);
        assert!(allowance.take(now, 8 * 1024) && !allowance.take(now, 1));
        for _ in 0..1000 {
            now = now.plus_ms(1);
            assert!(!allowance.take(now, 9 * 1024), "many small looks lose nothing and win nothing");
        }
        assert!(allowance.take(now, 8000));
        now = now.plus_ms(1_000_000);
        assert!(!allowance.take(now, 128 * 1024 + 1) && allowance.take(now, 128 * 1024));
    }
}
