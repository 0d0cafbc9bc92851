//! The breaker of one agent against a plain model of it.
#![cfg(test)]

mod world;

use agent_reach_core::{BreakerSettings, Now, Settings};
use proptest::prelude::*;
use world::{World, call, cancel, completed, failed};

const SETTINGS: BreakerSettings =
    BreakerSettings { window_ms: 2000, min_success: 0.6, min_calls: 3, open_ms: 500 };
/// The window is forgotten in so many parts.
const PARTS: u64 = 10;
/// The pause is doubled so often at the most.
const DOUBLINGS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    Open {
        until: Now,
    },
    /// A call is out to find out; none other is given before `until`.
    Trial {
        of: u64,
        until: Now,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Good,
    Bad,
    /// By the caller's fault or wish.
    Neither,
}

/// What should happen, from a list of all that did.
struct Model {
    state: State,
    /// Ends since it closed last.
    ends: Vec<(Now, bool)>,
    failed_trials: u32,
}

impl Model {
    fn pause(&self) -> u64 {
        SETTINGS.open_ms << self.failed_trials.min(DOUBLINGS)
    }

    /// A call is asked for: whether it is given.
    fn ask(&mut self, now: Now, id: u64) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { until } | State::Trial { until, .. } if now >= until => {
                self.state = State::Trial { of: id, until: now.plus_ms(self.pause()) };
                true
            }
            State::Open { .. } | State::Trial { .. } => false,
        }
    }

    fn end(&mut self, now: Now, trial: bool, end: End) {
        if self.state == State::Closed {
            if end != End::Neither {
                self.ends.push((now, end == End::Good));
            }
            if end == End::Bad && self.is_bad(now) {
                self.state = State::Open { until: now.plus_ms(self.pause()) };
            }
            return;
        }
        match end {
            _ if !trial => {}
            End::Good => (self.state, self.ends, self.failed_trials) = (State::Closed, Vec::new(), 0),
            End::Bad => {
                self.failed_trials += 1;
                self.state = State::Open { until: now.plus_ms(self.pause()) };
            }
            End::Neither => self.state = State::Open { until: now },
        }
    }

    fn is_bad(&self, now: Now) -> bool {
        let part = SETTINGS.window_ms * 1000 / PARTS;
        let first = (now.micros() / part).saturating_sub(PARTS - 1) * part;
        let recent = || self.ends.iter().filter(|(at, _)| at.micros() >= first);
        let (all, good) = (recent().count(), recent().filter(|(_, good)| *good).count());
        all >= SETTINGS.min_calls as usize && (good as f64) < SETTINGS.min_success * all as f64
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// It trips when the model does, gives one trial at a time and no call beside it, and closes by its success.
    #[test]
    fn an_agent_gets_what_the_plain_model_lets_through(
        steps in proptest::collection::vec((0_u8..10, any::<prop::sample::Index>(), 0_u64..400), 1..200),
    ) {
        let breaker = SETTINGS;
        let mut w = World::with(Settings { breaker, keepalive_ms: 100_000_000, suspect_ms: 400_000_000,
            gone_ms: 800_000_000, accept_timeout_ms: 60_000_000, budget_ms: 80_000_000, ..Settings::default() });
        w.join("p", world::provider("p", "a"));
        w.join("c", world::caller("c"));
        let mut model = Model { state: State::Closed, ends: Vec::new(), failed_trials: 0 };
        // The caller's ids, those of the hub, and whether it is a trial.
        let mut open: Vec<(u64, u64, bool)> = Vec::new();
        let (mut next, mut hubs) = (1, 0);
        for (what, which, ms) in &steps {
            let now = w.now;
            match what {
                0..=3 => {
                    w.say("c", &call(next, "a"));
                    let is_given = w.heard("p").len() == 1;
                    w.heard("c");
                    prop_assert_eq!(is_given, model.ask(now, next), "{:?} at {:?}", model.state, now);
                    if is_given {
                        hubs += 1;
                        let trial = matches!(model.state, State::Trial { of, .. } if of == next);
                        open.push((next, hubs, trial));
                    }
                    next += 1;
                }
                4..=8 if !open.is_empty() => {
                    let (own, hubs, trial) = open.swap_remove(which.index(open.len()));
                    let end = match what {
                        4 | 5 => { w.say("p", &failed(hubs, "handler_error", true)); End::Bad }
                        6 => { w.say("p", &completed(hubs)); End::Good }
                        7 => { w.say("p", &failed(hubs, "handler_error", false)); End::Neither }
                        _ => { w.say("c", &cancel(own)); w.say("p", &completed(hubs)); End::Neither }
                    };
                    model.end(now, trial, end);
                    w.all_heard();
                }
                _ => w.advance(*ms),
            }
            let gauges = w.hub.gauges();
            let shown = (gauges.breakers_open, gauges.breakers_half_open);
            let expected = match model.state {
                State::Closed => (0, 0),
                State::Open { .. } => (1, 0),
                State::Trial { .. } => (0, 1),
            };
            prop_assert_eq!(shown, expected);
        }
    }
}
