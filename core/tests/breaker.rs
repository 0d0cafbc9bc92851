//! An agent that fails too many of the calls of a capability is given no more of them for a while.
#![cfg(test)]

mod world;

use agent_reach_core::Settings;
use agent_reach_protocol::{Call, Capability};
use world::{World, accept, call, caller, cancel, capability, completed, failed, provider};

/// A caller, and a provider whose breaker has tripped for `a`.
fn tripped() -> (World, u64) {
    let mut w = World::pair("a");
    for id in 1..=20 {
        w.say("c", &call(id, "a"));
        w.say("p", &failed(id, "handler_error", true));
    }
    w.all_heard();
    (w, 21)
}

fn refused(w: &mut World, id: u64) -> bool {
    w.say("c", &call(id, "a"));
    let heard = w.heard("c");
    assert!(heard.is_empty() || heard == [format!("RESULT {id} circuit_open retryable")], "{heard:?}");
    !heard.is_empty()
}

#[test]
fn it_opens_when_too_few_calls_succeed_and_the_agent_keeps_its_other_capabilities() {
    let (mut w, id) = tripped();
    assert!(refused(&mut w, id));
    let mut w = World::new();
    w.join("c", caller("c"));
    let offers = vec![capability("a"), capability("b")];
    w.join("p", agent_reach_protocol::Hello { capabilities: offers, ..caller("p") });
    for id in 1..=20 {
        w.say("c", &call(id, "a"));
        w.say("p", &failed(id, "handler_error", true));
    }
    w.all_heard();
    assert!(refused(&mut w, 21));
    w.say("c", &call(22, "b"));
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn a_lost_connection_closes_no_breaker_and_another_life_of_the_process_begins_anew() {
    for (instance, stays) in [("life-1", true), ("life-2", false)] {
        let (mut w, id) = tripped();
        w.join("b", provider("b", "b"));
        // It has work of another capability, so that it is waited for.
        w.say("p", &agent_reach_protocol::Update { add: vec![capability("own")], ..world::update() });
        w.say("c", &call(id, "own"));
        w.lose("p");
        w.open("p#2");
        let offers = vec![capability("a"), capability("own")];
        w.say("p#2", &agent_reach_protocol::Hello { instance, capabilities: offers, ..caller("p") });
        w.all_heard();
        assert_eq!(refused(&mut w, id + 1), stays, "{instance}");
    }
}

#[test]
fn other_agents_take_the_calls_of_one_that_is_tripped() {
    let (mut w, id) = tripped();
    w.join("q", provider("q", "a"));
    for id in id..id + 10 {
        w.say("c", &call(id, "a"));
    }
    assert_eq!((w.heard("p").len(), w.heard("q").len()), (0, 10));
}

#[test]
fn after_the_pause_fifty_calls_at_once_are_one_trial_and_49_refusals() {
    let (mut w, first) = tripped();
    w.advance_alive(10_000);
    w.all_heard();
    let refusals = (first..first + 50).filter(|id| refused(&mut w, *id)).count();
    assert_eq!((refusals, w.heard("p").len()), (49, 1));
    w.say("p", &completed(21));
    w.heard("c");
    assert!(!refused(&mut w, 100), "its success closes the breaker");
}

#[test]
fn a_trial_that_fails_doubles_the_pause() {
    let (mut w, id) = tripped();
    w.advance_alive(10_000);
    w.say("c", &call(id, "a"));
    w.say("p", &failed(21, "handler_error", true));
    w.all_heard();
    w.advance_alive(19_999);
    assert!(refused(&mut w, 50));
    w.advance_alive(1);
    assert!(!refused(&mut w, 51));
}

#[test]
fn a_trial_that_is_cancelled_is_given_back() {
    let (mut w, id) = tripped();
    w.advance_alive(10_000);
    w.say("c", &call(id, "a"));
    w.say("c", &cancel(id));
    w.all_heard();
    assert!(!refused(&mut w, 50), "the next is the trial");
}

#[test]
fn what_is_the_callers_fault_does_not_count() {
    let mut w = World::pair("a");
    for id in 1..=40 {
        w.say("c", &call(id, "a"));
        let (code, retryable) =
            if id % 2 == 0 { ("invalid_request", false) } else { ("handler_error", false) };
        w.say("p", &failed(id, code, retryable));
    }
    w.all_heard();
    assert!(!refused(&mut w, 100));
}

#[test]
fn a_timeout_counts_only_where_the_agent_had_the_time_it_asked_for() {
    for (timeout_ms, counts) in [(100, false), (5000, true), (4999, false)] {
        let mut w = World::with(Settings { max_in_flight: 100, ..Settings::default() });
        w.join("c", caller("c"));
        let own = Capability { timeout_ms: Some(5000), ..capability("a") };
        w.join("p", agent_reach_protocol::Hello { capabilities: vec![own], ..caller("p") });
        for id in 1..=20 {
            w.say("c", &Call { timeout_ms: Some(timeout_ms), ..call(id, "a") });
            w.say("p", &accept(id));
        }
        w.advance_alive(timeout_ms);
        w.all_heard();
        assert_eq!(refused(&mut w, 50), counts, "{timeout_ms}");
    }
}

#[test]
fn calls_that_nobody_accepts_count() {
    let mut w = World::pair("a");
    for id in 1..=20 {
        w.say("c", &call(id, "a"));
    }
    w.advance_alive(3000);
    w.all_heard();
    assert!(refused(&mut w, 50));
}
