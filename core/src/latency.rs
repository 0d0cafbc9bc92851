//! How long calls took in about the last minute: counts in fixed buckets, for quantiles.
//!
//! A sample is on the way of every call, so it is an addition for each phase, in arrays that never move. A bucket is a
//! quarter of a doubling: a quantile is told too high by a quarter at most.

use crate::calls::Call;
use crate::hub::Hub;
use crate::time::Now;

/// Slices of time; the newest is being filled.
const SLICES: usize = 6;
/// Microseconds of one slice.
const SLICE_US: u64 = 10_000_000;
/// Buckets of each doubling, as a power of two.
const FINENESS: u32 = 2;
/// Up to 2^33 microseconds, more than two hours; longer times count as that long.
const BUCKETS: usize = 128;

type Counts = [u32; BUCKETS];

/// Which part of a call's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// From CALL to phase one.
    Accept,
    /// From phase one to the end.
    Process,
    /// All of it.
    Total,
}

/// How long one call took, in microseconds; none of what it did not come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) accept: Option<u64>,
    pub(crate) process: Option<u64>,
    pub(crate) total: u64,
}

/// Times of calls that ended lately, by phase.
#[derive(Debug)]
pub(crate) struct Latency {
    slices: Box<[[Counts; 3]; SLICES]>,
    /// The slice that is being filled, and when it began.
    current: usize,
    began: Now,
}

impl Hub {
    /// Counts the times of a call that ends.
    pub(crate) fn note_times(&mut self, now: Now, call: &Call) -> Times {
        let times = Times {
            accept: call.accepted_at.map(|at| at.micros_since(call.started)),
            process: call.accepted_at.map(|at| now.micros_since(at)),
            total: now.micros_since(call.started),
        };
        if call.task.is_none() {
            // A task waits for as long as it has to.
            self.latency.add(now, times);
        }
        times
    }
}

/// What the times of a phase come to, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
}

/// The bucket of a time: its highest bits.
fn bucket_of(us: u64) -> usize {
    let doubling = us.max(1).ilog2().saturating_sub(FINENESS);
    // Below four there is a bucket for each time; from then on a doubling has as many.
    let within = usize::try_from(us >> doubling).unwrap_or_default();
    (((doubling as usize) << FINENESS) + within).min(BUCKETS - 1)
}

/// The longest time of a bucket.
const fn end_of(bucket: usize) -> u64 {
    let whole = 1 << FINENESS;
    if bucket < whole {
        return bucket as u64;
    }
    let doubling = (bucket >> FINENESS) - 1;
    ((((bucket & (whole - 1)) | whole) as u64 + 1) << doubling) - 1
}

impl Default for Latency {
    fn default() -> Self {
        Self { slices: Box::new([[[0; BUCKETS]; 3]; SLICES]), current: 0, began: Now::default() }
    }
}

impl Latency {
    /// The most milliseconds that it looks back.
    pub(crate) const WINDOW_MS: u64 = SLICES as u64 * SLICE_US / 1000;

    /// Counts a call that has ended.
    fn add(&mut self, now: Now, times: Times) {
        if now.micros_since(self.began) >= SLICE_US {
            self.turn_over(now);
        }
        let Some(slice) = self.slices.get_mut(self.current) else { return };
        let [accept, process, total] = slice;
        for (counts, us) in [(accept, times.accept), (process, times.process), (total, Some(times.total))] {
            if let Some(count) = us.and_then(|us| counts.get_mut(bucket_of(us))) {
                *count = count.saturating_add(1);
            }
        }
    }

    /// Begins the slice of this moment, and empties those in between: nothing may have ended for long.
    fn turn_over(&mut self, now: Now) {
        let passed = now.micros_since(self.began) / SLICE_US;
        self.began = Now::from_micros(self.began.micros() + passed * SLICE_US);
        for _ in 0..passed.min(SLICES as u64) {
            self.current = (self.current + 1) % SLICES;
            if let Some(slice) = self.slices.get_mut(self.current) {
                *slice = [[0; BUCKETS]; 3];
            }
        }
    }

    /// What the times of a phase come to now.
    pub(crate) fn quantiles(&self, now: Now, phase: Phase) -> Quantiles {
        // Slices that would have been emptied by now count no more.
        let passed = usize::try_from(now.micros_since(self.began) / SLICE_US).unwrap_or(SLICES);
        let kept = SLICES.saturating_sub(passed);
        let mut counts = [0_u64; BUCKETS];
        for back in 0..kept {
            let place = (self.current + SLICES - back) % SLICES;
            let Some([accept, process, total]) = self.slices.get(place) else { continue };
            let own = match phase {
                Phase::Accept => accept,
                Phase::Process => process,
                Phase::Total => total,
            };
            for (sum, count) in counts.iter_mut().zip(own) {
                *sum += u64::from(*count);
            }
        }
        let count = counts.iter().sum();
        let at = |percent| quantile(&counts, count, percent);
        Quantiles { count, p50: at(50), p90: at(90), p99: at(99) }
    }
}

/// The end of the bucket in which so many percent of all times are reached; 0 of none.
fn quantile(counts: &[u64; BUCKETS], count: u64, percent: u64) -> u64 {
    let mut left = (count * percent).div_ceil(100);
    for (bucket, own) in counts.iter().enumerate().filter(|(_, own)| **own > 0) {
        left = left.saturating_sub(*own);
        if left == 0 {
            return end_of(bucket);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn took(total: u64) -> Times {
        Times { accept: None, process: None, total }
    }

    const fn at(seconds: u64) -> Now {
        Now::from_millis(seconds * 1000)
    }

    #[test]
    fn every_time_lies_in_its_bucket_and_a_bucket_is_a_quarter_of_a_doubling_wide() {
        let times = (0..5000).chain((0..34).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for us in times.filter(|us| *us < 1 << 33) {
            let bucket = bucket_of(us);
            assert!(us <= end_of(bucket), "{us} is beyond {}", end_of(bucket));
            assert!(bucket == 0 || us > end_of(bucket - 1), "{us} is in the bucket before");
            assert!(end_of(bucket) <= us + us / 4, "{us} is told as {}", end_of(bucket));
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_times_counted() {
        let mut latency = Latency::default();
        for us in 1..=1000 {
            latency.add(at(1), Times { accept: (us > 990).then_some(us), ..took(us) });
        }
        let total = latency.quantiles(at(1), Phase::Total);
        assert_eq!(total.count, 1000);
        for (told, exact) in [(total.p50, 500), (total.p90, 900), (total.p99, 990)] {
            assert!((exact..=exact * 5 / 4).contains(&told), "{told} of {exact}");
        }
        assert_eq!(latency.quantiles(at(1), Phase::Accept).count, 10);
        assert_eq!(latency.quantiles(at(1), Phase::Process), Quantiles::default());
    }

    #[test]
    fn what_is_older_than_a_minute_counts_no_more_whether_calls_end_meanwhile_or_not() {
        let (mut busy, mut idle) = (Latency::default(), Latency::default());
        busy.add(at(3), took(1_000_000));
        idle.add(at(3), took(1_000_000));
        for second in 4..=63 {
            busy.add(at(second), took(10));
            assert_eq!(idle.quantiles(at(second), Phase::Total).count, u64::from(second < 60), "{second}");
        }
        let left = busy.quantiles(at(63), Phase::Total);
        assert_eq!((left.p99 < 20, left.count), (true, 54), "the slices of ten seconds since the tenth");
        busy.add(at(100_000), took(7));
        assert_eq!(busy.quantiles(at(100_000), Phase::Total).count, 1);
    }
}
