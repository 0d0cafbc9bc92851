//! Calls that wait for who can take them: nobody waits in vain, or too long, or behind too many.

use agent_reach_core::{Gauges, Input};
use agent_reach_protocol::Kind;

use super::Sim;
use super::model::Event;
use super::setting::Rules;

/// How long a quota may hold back what it lets through: its moments are whole milliseconds, rounded up.
const QUOTA_ROUNDING_MS: u64 = 3;

pub(super) fn after_every_step(sim: &mut Sim, gauges: &Gauges) {
    queues_stay_within_their_bound(sim, gauges);
    no_trial_without_a_call(gauges);
    for (what, there) in
        [("waited", gauges.waiting), ("tripped", gauges.breakers_open), ("trial", gauges.breakers_half_open)]
    {
        if there > 0 {
            *sim.met.entry(what).or_default() += 1;
        }
    }
}

/// No capability has more calls waiting than its queue takes, beside tasks, and the gauge counts them all.
fn queues_stay_within_their_bound(sim: &Sim, gauges: &Gauges) {
    let queued = sim.hub.queued();
    let all: usize = queued.iter().map(|(_, len)| len).sum();
    let longest = queued.iter().map(|(_, len)| *len).max().unwrap_or_default();
    assert!(
        all == gauges.waiting
            && longest <= sim.settings.queue_len + sim.tasks.open.len()
            && all <= gauges.calls,
        "queues_stay_within_their_bound: {queued:?} of {}, {gauges:?}",
        sim.settings.queue_len
    );
}

/// A trial is a call that somebody has: when that ends, in whatever way, the trial does.
fn no_trial_without_a_call(gauges: &Gauges) {
    assert!(gauges.breakers_half_open <= gauges.in_flight, "no_trial_without_a_call: {gauges:?}");
}

impl Sim {
    /// The same rules once more. The hub looks then for somebody for each call that waits, as if it had just come:
    /// it must find nobody, or somebody was left waiting for who could have taken it.
    pub(super) fn poke(&mut self) {
        self.later(10, 300, Event::Poke);
        let soon = self.now.plus_ms(QUOTA_ROUNDING_MS);
        if self.hub.gauges().waiting == 0 || self.hub.next_timeout().is_some_and(|next| next <= soon) {
            return;
        }
        let Some((_, rules)) = self.rules.last().copied() else { return };
        let calls = self.hub.counters().frames_out(Kind::Call) + self.tasks.booked;
        let moved = self.fallbacks();
        self.say_rules(rules);
        *self.met.entry("poked").or_default() += 1;
        let given = self.hub.counters().frames_out(Kind::Call) + self.tasks.booked - calls;
        // One that gives up its agent may go to another now.
        let moved = self.fallbacks() - moved;
        assert!(given <= moved, "nobody_waits_for_who_could_take_it: {given} calls could go, {moved} moved");
    }

    fn fallbacks(&self) -> u64 {
        self.met.get("fallback").copied().unwrap_or_default()
    }

    /// Says which rules hold: every call that waits goes on waiting, is given, or ends.
    pub(super) fn say_rules(&mut self, rules: Rules) {
        let before = self.account();
        self.input(Input::SetPolicy(rules.policy()), || format!("rules: {rules:?}"));
        let after = self.account();
        let gone = before.0.saturating_sub(after.0) as u64;
        let told = (after.1 - before.1) + (after.2 - before.2);
        assert!(
            gone <= told,
            "a_change_of_rules_loses_no_call: {gone} wait no more, {told} are accounted for"
        );
    }

    /// Calls that wait, that ended, that were given.
    fn account(&self) -> (usize, u64, u64) {
        let given = self.hub.counters().frames_out(Kind::Call) + self.tasks.booked;
        (self.hub.gauges().waiting, self.ends, given)
    }
}
