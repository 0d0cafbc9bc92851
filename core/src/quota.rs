//! `qps_limit`: how often one agent takes one capability.

use crate::time::Now;

/// A token bucket that holds one second's worth.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    /// Tokens a second; finite and positive.
    rate: f64,
    tokens: f64,
    at: Now,
}

impl Quota {
    /// A full bucket; `None` for a rate that limits nothing sensible. A rate below one call a second still
    /// holds one.
    pub(crate) fn new(rate: f64) -> Option<Self> {
        (rate.is_finite() && rate > 0.0).then(|| Self { rate, tokens: rate.max(1.0), at: Now::default() })
    }

    fn tokens_at(&self, now: Now) -> f64 {
        // A duration of more than 2^53 microseconds fills any bucket anyway.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let seconds = now.micros_since(self.at) as f64 / 1e6;
        (self.tokens + seconds * self.rate).min(self.rate.max(1.0))
    }

    /// When the next call may be taken; `now`, when one may.
    pub(crate) fn next_at(&self, now: Now) -> Now {
        let missing = (1.0 - self.tokens_at(now)).max(0.0);
        // Whole milliseconds, and one more for what rounding may have lost.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and saturating"
        )]
        let ms = (missing / self.rate * 1000.0).ceil() as u64;
        if missing > 0.0 { now.plus_ms(ms.saturating_add(1)) } else { now }
    }

    pub(crate) fn has_room(&self, now: Now) -> bool {
        self.tokens_at(now) >= 1.0
    }

    /// Takes a token that [`Quota::has_room`] said is there.
    pub(crate) fn take(&mut self, now: Now) {
        self.tokens = self.tokens_at(now) - 1.0;
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_the_rate_and_no_more() {
        let mut quota = Quota::new(3.0).unwrap();
        let now = Now::from_millis(500);
        let mut taken = 0;
        while quota.has_room(now) {
            quota.take(now);
            taken += 1;
        }
        assert_eq!(taken, 3);
        assert!(!quota.has_room(now.plus_ms(333)));
        assert!(quota.has_room(now.plus_ms(334)));
    }

    #[test]
    fn a_slow_rate_lets_one_through_and_then_waits() {
        let mut quota = Quota::new(0.5).unwrap();
        let now = Now::from_millis(0);
        quota.take(now);
        assert!(!quota.has_room(now.plus_ms(1999)));
        assert!(quota.has_room(now.plus_ms(2000)));
    }

    #[test]
    fn it_knows_when_the_next_may_be_taken() {
        for rate in [0.001, 0.3, 1.0, 7.0, 333.3, 1e5] {
            let mut quota = Quota::new(rate).unwrap();
            let mut now = Now::from_millis(5);
            while quota.has_room(now) {
                assert_eq!(quota.next_at(now), now);
                quota.take(now);
            }
            now = quota.next_at(now);
            assert!(quota.has_room(now), "{rate}");
        }
    }

    #[test]
    fn what_is_no_rate_limits_nothing() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Quota::new(rate).is_none());
        }
    }
}
