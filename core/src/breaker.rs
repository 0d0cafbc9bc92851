//! Takes one capability of one agent out of the choice while too few of its calls succeed.

use crate::time::Now;

/// When to trip and for how long. All times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerSettings {
    /// Calls that ended within this count. Default 30000.
    pub window_ms: u64,
    /// The least share of them that has to succeed, 0 to 1. Default 0.6.
    pub min_success: f64,
    /// Fewer calls say nothing. Default 20.
    pub min_calls: u32,
    /// How long nothing is given before a trial; doubled after each trial that fails, up to 32 times. Default 10000.
    pub open_ms: u64,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { window_ms: 30_000, min_success: 0.6, min_calls: 20, open_ms: 10_000 }
    }
}

/// Parts of the window; what is older than the whole of it goes a part at a time.
const PARTS: usize = 10;
/// Most doublings of the time between trials.
const DOUBLINGS_MAX: u32 = 5;

/// Calls that ended within one part of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// Which part of all time.
    number: u64,
    completed: u32,
    failed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Calls are given.
    Closed,
    /// None is given until then.
    Open { until: Now },
    /// One is given to find out. The next may be when that has taken until then.
    Trial { until: Now },
}

/// What is known of one capability of one agent.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    parts: [Part; PARTS],
    state: State,
    /// Trials that failed in a row.
    reopened: u32,
}

/// How a call ended, for a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With a result.
    Success,
    /// By the agent's fault.
    Failure,
    /// In a way that says nothing about the agent.
    Neither,
}

impl Breaker {
    pub(crate) const fn new() -> Self {
        let part = Part { number: 0, completed: 0, failed: 0 };
        Self { parts: [part; PARTS], state: State::Closed, reopened: 0 }
    }

    /// Whether calls are given as to any other.
    pub(crate) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Whether a trial is under way.
    pub(crate) const fn has_trial(&self) -> bool {
        matches!(self.state, State::Trial { .. })
    }

    /// Whether a call may be given at `now`.
    pub(crate) fn admits(&self, now: Now) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } | State::Trial { until } => until <= now,
        }
    }

    /// When a trial may be given, unless calls are given anyway.
    pub(crate) const fn opens_at(&self) -> Option<Now> {
        match self.state {
            State::Closed => None,
            State::Open { until } | State::Trial { until } => Some(until),
        }
    }

    /// A call is given. `true`: it is the trial, and its end has to be told as such.
    pub(crate) fn give(&mut self, now: Now, settings: &BreakerSettings) -> bool {
        if self.is_closed() {
            return false;
        }
        // A trial that never ends must not be the last.
        self.state = State::Trial { until: now.plus_ms(self.open_ms(settings)) };
        true
    }

    /// A call that was given has ended.
    pub(crate) fn end(&mut self, now: Now, settings: &BreakerSettings, trial: bool, verdict: Verdict) {
        match (self.state, trial, verdict) {
            (State::Closed, _, verdict) => {
                self.count(now, settings, verdict);
                if verdict == Verdict::Failure && self.is_bad(now, settings) {
                    self.open(now, settings);
                }
            }
            (_, true, Verdict::Success) => *self = Self::new(),
            (_, true, Verdict::Failure) => {
                self.reopened = self.reopened.saturating_add(1);
                self.open(now, settings);
            }
            // The trial said nothing: the next call is one.
            (_, true, Verdict::Neither) => self.state = State::Open { until: now },
            // Given before it tripped: what it says was not asked for.
            (_, false, _) => {}
        }
    }

    fn open(&mut self, now: Now, settings: &BreakerSettings) {
        self.state = State::Open { until: now.plus_ms(self.open_ms(settings)) };
    }

    fn open_ms(&self, settings: &BreakerSettings) -> u64 {
        settings.open_ms.saturating_mul(1 << self.reopened.min(DOUBLINGS_MAX))
    }

    fn number(now: Now, settings: &BreakerSettings) -> u64 {
        now.micros() / (settings.window_ms.max(1).saturating_mul(1000) / PARTS as u64).max(1)
    }

    fn count(&mut self, now: Now, settings: &BreakerSettings, verdict: Verdict) {
        let number = Self::number(now, settings);
        let place = usize::try_from(number % PARTS as u64).unwrap_or_default();
        let Some(part) = self.parts.get_mut(place) else { return };
        if part.number != number {
            *part = Part { number, ..Part::default() };
        }
        match verdict {
            Verdict::Success => part.completed = part.completed.saturating_add(1),
            Verdict::Failure => part.failed = part.failed.saturating_add(1),
            Verdict::Neither => {}
        }
    }

    fn is_bad(&self, now: Now, settings: &BreakerSettings) -> bool {
        let number = Self::number(now, settings);
        let recent = self.parts.iter().filter(|part| part.number + PARTS as u64 > number);
        let (completed, failed) = recent.fold((0_u32, 0_u32), |(completed, failed), part| {
            (completed.saturating_add(part.completed), failed.saturating_add(part.failed))
        });
        let all = completed.saturating_add(failed);
        all >= settings.min_calls.max(1) && f64::from(completed) < settings.min_success * f64::from(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: BreakerSettings =
        BreakerSettings { window_ms: 30_000, min_success: 0.6, min_calls: 20, open_ms: 10_000 };

    fn at(ms: u64) -> Now {
        Now::from_millis(1_000_000 + ms)
    }

    fn end(breaker: &mut Breaker, ms: u64, verdict: Verdict) {
        assert!(!breaker.give(at(ms), &SETTINGS));
        breaker.end(at(ms), &SETTINGS, false, verdict);
    }

    fn tripped() -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..20 {
            end(&mut breaker, 0, Verdict::Failure);
        }
        assert!(!breaker.admits(at(0)));
        breaker
    }

    #[test]
    fn it_trips_below_the_share_and_not_at_it_and_not_with_too_few_calls() {
        let mut breaker = Breaker::new();
        for _ in 0..19 {
            end(&mut breaker, 0, Verdict::Failure);
        }
        assert!(breaker.is_closed(), "19 calls say nothing");
        let mut breaker = Breaker::new();
        for verdict in [Verdict::Success; 12].into_iter().chain([Verdict::Failure; 8]) {
            end(&mut breaker, 0, verdict);
        }
        assert!(breaker.is_closed(), "12 of 20 are enough");
        end(&mut breaker, 0, Verdict::Failure);
        assert!(!breaker.is_closed(), "12 of 21 are not");
    }

    #[test]
    fn what_ended_before_the_window_does_not_count() {
        let mut breaker = Breaker::new();
        for _ in 0..19 {
            end(&mut breaker, 0, Verdict::Failure);
        }
        end(&mut breaker, 30_000, Verdict::Failure);
        assert!(breaker.is_closed());
        for ms in 0..19 {
            end(&mut breaker, 30_000 + 1000 * ms, Verdict::Failure);
        }
        assert!(!breaker.is_closed(), "20 within 30 s");
    }

    #[test]
    fn ends_that_say_nothing_are_not_counted() {
        let mut breaker = Breaker::new();
        for _ in 0..100 {
            end(&mut breaker, 0, Verdict::Neither);
        }
        for _ in 0..19 {
            end(&mut breaker, 0, Verdict::Failure);
        }
        assert!(breaker.is_closed());
    }

    #[test]
    fn after_the_pause_exactly_one_trial_is_given_and_its_success_closes() {
        let mut breaker = tripped();
        assert_eq!(breaker.opens_at(), Some(at(10_000)));
        assert!(!breaker.admits(at(9_999)));
        assert!(breaker.admits(at(10_000)) && breaker.give(at(10_000), &SETTINGS));
        assert!(!breaker.admits(at(10_001)), "one trial at a time");
        // A call of before it tripped ends well: that is not the answer.
        breaker.end(at(10_002), &SETTINGS, false, Verdict::Success);
        assert!(!breaker.admits(at(10_002)));
        breaker.end(at(12_000), &SETTINGS, true, Verdict::Success);
        assert!(breaker.is_closed());
        end(&mut breaker, 12_000, Verdict::Failure);
        assert!(breaker.is_closed(), "what was before it closed is forgotten");
    }

    #[test]
    fn each_failed_trial_doubles_the_pause_up_to_a_bound() {
        let mut breaker = tripped();
        let mut now = 10_000;
        for pause in [20_000, 40_000, 80_000, 160_000, 320_000, 320_000] {
            assert!(breaker.give(at(now), &SETTINGS));
            breaker.end(at(now), &SETTINGS, true, Verdict::Failure);
            assert_eq!(breaker.opens_at(), Some(at(now + pause)));
            now += pause;
        }
    }

    #[test]
    fn a_trial_that_says_nothing_is_given_back_and_one_that_never_ends_is_not_the_last() {
        let mut breaker = tripped();
        assert!(breaker.give(at(10_000), &SETTINGS));
        breaker.end(at(10_500), &SETTINGS, true, Verdict::Neither);
        assert!(breaker.admits(at(10_500)) && breaker.give(at(10_500), &SETTINGS));
        assert!(!breaker.admits(at(20_499)));
        assert!(breaker.admits(at(20_500)), "the trial's own time is over");
    }
}
