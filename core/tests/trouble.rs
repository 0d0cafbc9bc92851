//! What random worlds came upon: calls that waited for nothing, and calls that ran where they should not have.
#![cfg(test)]

mod world;

use agent_reach_core::{BreakerSettings, Input, Policy, Rule, Settings};
use agent_reach_protocol::{Call, Capability, Hello, Priority, ToAgent, decode_to_agent};
use world::{World, accept, call, caller, cancel, capability, completed, failed};

/// A breaker that trips soon, and tries that come at known moments.
fn settings() -> Settings {
    let breaker = BreakerSettings { window_ms: 2000, min_success: 0.6, min_calls: 3, open_ms: 500 };
    Settings { breaker, retry_jitter_ms: 0, ..Settings::default() }
}

/// A caller, and a provider of one capability with so many slots.
fn world(offer: Capability<'_>, slots: u64) -> World {
    let mut w = World::with(settings());
    w.join("c", caller("c"));
    w.join("p", Hello { capabilities: vec![offer], max_concurrency: Some(slots), ..caller("p") });
    w
}

fn waits(id: u64) -> Call<'static> {
    Call { queue: None, ..call(id, "a") }
}

#[test]
fn a_tick_leaves_nothing_due_though_it_made_room_for_who_has_no_time() {
    let mut w = world(capability("a"), 1);
    w.say("c", &Call { timeout_ms: Some(100), ..waits(1) });
    w.say("c", &cancel(1));
    w.say("c", &Call { accept_timeout_ms: Some(0), ..waits(2) });
    // It asserts that no timer is left of what was due.
    w.advance(100);
    assert_eq!(w.heard("c").len(), 2);
}

#[test]
fn who_waited_for_a_slot_and_then_for_the_quota_goes_when_that_has_room() {
    let mut w = world(Capability { qps_limit: Some(2.0), ..capability("a") }, 1);
    for id in 1..=3 {
        w.say("c", &waits(id));
    }
    w.say("p", &completed(1));
    w.say("p", &completed(2));
    assert_eq!(w.heard("p").len(), 2, "the bucket is empty");
    w.advance(510);
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn who_waits_for_an_agent_that_trips_meanwhile_is_its_next_trial() {
    let mut w = world(capability("a"), 1);
    for id in 1..=4 {
        w.say("c", &waits(id));
    }
    for id in 1..=3 {
        w.say("p", &failed(id, "handler_error", true));
    }
    assert_eq!(w.heard("p").len(), 3);
    w.advance(499);
    assert_eq!(w.heard("p"), [""; 0], "it is tripped");
    w.advance(1);
    assert_eq!(w.heard("p"), ["CALL 4 a by=c try=1"]);
}

#[test]
fn where_only_a_quota_lets_calls_go_the_urgent_do_not_starve_the_others() {
    let mut w = world(Capability { qps_limit: Some(1.0), ..capability("a") }, 50);
    w.say("c", &waits(1));
    w.say("c", &Call { priority: Some(Priority::Low), ..waits(2) });
    for id in 3..=30 {
        w.say("c", &Call { priority: Some(Priority::High), ..waits(id) });
    }
    w.heard("p");
    w.advance_alive(9000);
    let given = w.take("p");
    let low = given.iter().filter(|outgoing| {
        let message = outgoing.message();
        let read = message.as_ref().map(decode_to_agent);
        matches!(read, Some(Ok((ToAgent::Call(call), _))) if call.priority == Priority::Low)
    });
    assert_eq!(low.count(), 1, "every eighth turn is its own");
}

#[test]
fn who_waits_behind_a_trial_goes_when_that_is_given_back() {
    let mut w = world(capability("a"), 3);
    for id in 1..=7 {
        w.say("c", &waits(id));
    }
    for id in 1..=3 {
        w.say("p", &failed(id, "handler_error", true));
    }
    for id in 4..=5 {
        w.say("p", &completed(id));
    }
    w.heard("p");
    w.advance(500);
    assert_eq!(w.heard("p"), ["CALL 6 a by=c try=1"], "one trial at a time");
    w.say("c", &cancel(6));
    assert_eq!(w.heard("p"), ["CANCEL 6 the caller cancelled", "CALL 7 a by=c try=1"]);
}

#[test]
fn what_was_accepted_before_a_connection_was_lost_is_not_run_again_elsewhere() {
    let mut w = world(capability("a"), 1);
    w.say("c", &Call { allow_fallback: true, retries: Some(1), ..call(1, "a") });
    w.say("p", &accept(1));
    w.join("q", Hello { capabilities: vec![capability("a")], ..caller("q") });
    w.lose("p");
    w.join_and_hear(
        "p#2",
        Hello { capabilities: vec![capability("a")], ..caller("p") },
        &["WELCOME", "CALL 1 a by=c try=2"],
    );
    w.advance(3000);
    w.advance(2000);
    assert_eq!(w.heard("q"), [""; 0]);
    let heard = w.heard("c");
    assert!(heard[1].contains("accept_timeout"), "{heard:?}");
}

#[test]
fn a_result_that_was_too_large_for_its_caller_is_no_older_result() {
    let mut w = World::with(Settings { max_message: 2000, ..settings() });
    w.join("c", caller("c"));
    w.join("p", Hello { capabilities: vec![capability("a")], ..caller("p") });
    w.say("c", &call(1, "a"));
    w.say_with("p", &completed(1), &"x".repeat(1980));
    assert_eq!(w.heard("c"), ["RESULT 1 payload_too_large of=p"]);
    w.say("c", &Call { allow_cached_ms: Some(60_000), ..call(2, "a") });
    w.say("p", &failed(2, "handler_error", true));
    let heard = w.heard("c");
    assert!(heard[0].contains("degraded"), "{heard:?}");
}

#[test]
fn a_caller_that_may_not_have_what_it_waits_for_holds_up_nobody() {
    let mut w = World::with(settings());
    for name in ["c", "d"] {
        w.join(name, Hello { calls: (name == "c").then(|| vec!["also"]), ..caller(name) });
    }
    let own = Capability { aliases: vec!["also"], ..capability("a") };
    let slots = |name| Hello { max_concurrency: Some(1), ..caller(name) };
    w.join("p", Hello { capabilities: vec![own], ..slots("p") });
    w.join("q", Hello { capabilities: vec![capability("also")], ..slots("q") });
    for id in 1..=3 {
        w.say("d", &Call { capability: "also", ..waits(id) });
        if id == 2 {
            // Only q will do for c, which came before the third of d.
            w.say("c", &Call { capability: "also", ..waits(1) });
        }
    }
    assert_eq!((w.heard("p").len(), w.heard("q").len()), (1, 1));
    w.say("p", &completed(1));
    assert_eq!(w.heard("p"), ["CALL 2 a by=d try=1"]);
}

#[test]
fn a_call_that_waits_is_not_sent_for_a_caller_that_the_rules_know_no_longer() {
    for away in [false, true] {
        let mut w = world(capability("a"), 1);
        w.join("d", caller("d"));
        w.say("d", &waits(1));
        w.say("c", &waits(1));
        if away {
            w.lose("c");
        }
        let all = || vec!["*".parse().unwrap()];
        let rule = |agent_ids, name: Option<&str>| Rule {
            identity: name.map(|name| format!("spiffe://d/agent/{name}")),
            agent_ids,
            provide: all(),
            call: all(),
        };
        let rules = vec![rule(Some(Vec::new()), Some("c")), rule(None, None)];
        w.input(Input::SetPolicy(Policy { rules, ..Policy::open() }));
        w.say("p", &completed(1));
        assert_eq!(w.heard("p").len(), 1, "away: {away}");
    }
}
