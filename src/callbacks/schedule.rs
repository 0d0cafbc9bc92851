//! When a delivery is made again. Pure.

use super::outcome::Outcome;
pub use super::outcome::RETRY_AFTER_MAX_MS;

/// Deliveries at most, the first one included.
pub const DELIVERIES_MAX: u32 = 5;

/// The pauses between deliveries: `[callbacks] schedule_ms`.
#[derive(Debug, Clone)]
pub struct Schedule(Vec<u64>);

impl Schedule {
    /// Of pauses in milliseconds: the first is the one before the second delivery. Those beyond
    /// [`DELIVERIES_MAX`] have no effect; none means one delivery.
    pub fn new(pauses_ms: &[u64]) -> Self {
        let further = DELIVERIES_MAX.saturating_sub(1) as usize;
        Self(pauses_ms.iter().copied().take(further).collect())
    }

    /// The moment of the next delivery, after `attempt` of them (from 1), the last of which ended so at `now_ms`.
    /// Both moments are in milliseconds since the Unix epoch. `None`: it is over.
    pub fn next(&self, attempt: u32, outcome: &Outcome, now_ms: u64) -> Option<u64> {
        let asked = match outcome {
            Outcome::Delivered { .. } | Outcome::Gone => return None,
            Outcome::Status { retry_after_ms, .. } => retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS),
            Outcome::Failed(_) => 0,
        };
        let at = usize::try_from(attempt.max(1) - 1).ok()?;
        let pause = self.0.get(at)?;
        Some(now_ms.saturating_add(asked.max(*pause)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Failure;
    use super::*;
    use crate::config::Callbacks;

    const FAILED: Outcome = Outcome::Failed(Failure::Timeout);

    /// When each delivery is made if all fail, in minutes after the first.
    fn deliveries(schedule: &Schedule) -> Vec<u64> {
        let mut moments = vec![0];
        while let Some(next) =
            schedule.next(u32::try_from(moments.len()).unwrap(), &FAILED, *moments.last().unwrap())
        {
            moments.push(next);
        }
        moments.into_iter().map(|ms| ms / 60_000).collect()
    }

    #[test]
    fn by_default_there_are_five_deliveries_in_all() {
        let schedule = Schedule::new(&Callbacks::default().schedule_ms);
        assert_eq!(deliveries(&schedule), [0, 1, 6, 36, 156]);
    }

    #[test]
    fn no_schedule_makes_more_than_five_and_an_empty_one_makes_one() {
        assert_eq!(deliveries(&Schedule::new(&[60_000; 16])), [0, 1, 2, 3, 4]);
        assert_eq!(deliveries(&Schedule::new(&[60_000])), [0, 1]);
        assert_eq!(deliveries(&Schedule::new(&[])), [0]);
        let schedule = Schedule::new(&[1; 16]);
        assert_eq!(schedule.next(u32::MAX, &FAILED, 0), None);
        assert_eq!(schedule.next(0, &FAILED, 0), Some(1), "a count from 0 is read as the first");
    }

    #[test]
    fn delivered_and_gone_end_it() {
        let schedule = Schedule::new(&[1_000; 4]);
        assert_eq!(schedule.next(1, &Outcome::Delivered { status: 200 }, 0), None);
        assert_eq!(schedule.next(1, &Outcome::Gone, 0), None);
    }

    #[test]
    fn a_receiver_may_ask_for_more_time_and_never_for_less_or_for_further_deliveries() {
        let schedule = Schedule::new(&[1_000; 4]);
        let busy = |ms| Outcome::Status { status: 503, retry_after_ms: Some(ms) };
        assert_eq!(schedule.next(1, &busy(5_000), 7), Some(5_007));
        assert_eq!(schedule.next(1, &busy(10), 7), Some(1_007));
        assert_eq!(schedule.next(1, &busy(u64::MAX), 7), Some(RETRY_AFTER_MAX_MS + 7));
        assert_eq!(schedule.next(5, &busy(5_000), 7), None);
        assert_eq!(schedule.next(1, &FAILED, u64::MAX), Some(u64::MAX));
    }
}
