//! Calls that wait: for a slot, for a quota, for somebody to come.
#![cfg(test)]

mod world;

use agent_reach_core::{Policy, Rule, Settings};
use agent_reach_protocol::{AgentStatus, Call, Capability, Hello, Labels, Priority, Update};
use world::{World, accept, call, caller, cancel, capability, completed, provider, update};

/// A provider with one slot, and a caller.
fn narrow() -> World {
    let mut w = World::new();
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "a") });
    w.join("c", caller("c"));
    w
}

fn waits(id: u64) -> Call<'static> {
    Call { queue: None, ..call(id, "a") }
}

#[test]
fn a_call_to_a_busy_agent_waits_and_goes_when_the_slot_is_free() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say_with("c", &waits(2), "two");
    assert_eq!(w.heard("p"), ["CALL 1 a by=c try=1"]);
    assert_eq!(w.heard("c"), [""; 0], "nothing is said of a call that waits");
    w.say("p", &completed(1));
    assert_eq!(w.heard("p"), ["CALL 2 a by=c try=1 \"two\""]);
    w.say("p", &completed(2));
    assert_eq!(w.heard("c").len(), 2);
    assert_eq!(w.hub.gauges().calls, 0);
}

#[test]
fn with_queue_false_a_busy_agent_is_overloaded_at_once() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &Call { queue: Some(false), ..waits(2) });
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].contains("overloaded"), "{heard:?}");
}

#[test]
fn more_than_the_queue_takes_is_overloaded_with_when_to_come_again() {
    let mut w = World::with(Settings { queue_len: 2, ..Settings::default() });
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "a") });
    w.join("c", caller("c"));
    for id in 1..=4 {
        w.say("c", &waits(id));
    }
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].starts_with("RESULT 4 overloaded"));
    w.say("p", &completed(1));
    w.say("c", &waits(5));
    assert_eq!(w.heard("c").len(), 1, "there is room again: only the first has ended");
}

#[test]
fn an_agent_never_has_more_than_its_slots_and_everyone_gets_an_end() {
    let mut w = World::new();
    w.join("p", Hello { max_concurrency: Some(3), ..provider("p", "a") });
    w.join("c", caller("c"));
    for id in 1..=50 {
        w.say("c", &waits(id));
    }
    let mut given = 0;
    let mut ended = 0;
    while ended < 50 {
        given += w.heard("p").len() as u64;
        assert!(given - ended <= 3, "{given} given, {ended} ended");
        ended += 1;
        w.say("p", &completed(ended));
    }
    assert_eq!((given, w.heard("c").len()), (50, 50));
}

#[test]
fn the_urgent_overtake_and_the_others_still_get_their_turn() {
    let mut w = narrow();
    w.say("c", &waits(1));
    for n in 0..16 {
        w.say_with("c", &Call { priority: Some(Priority::Low), ..waits(100 + n) }, "low");
    }
    for n in 0..16 {
        w.say_with("c", &Call { priority: Some(Priority::High), ..waits(200 + n) }, "high");
    }
    let mut order = Vec::new();
    for id in 1..=16 {
        w.say("p", &completed(id));
        order.extend(w.heard("p").iter().map(|line| line.contains("low")));
    }
    assert!(!order[0], "the urgent first: {order:?}");
    let low = order.iter().filter(|low| **low).count();
    assert!((2..=4).contains(&low), "one in eight at least, and not the half: {order:?}");
}

#[test]
fn the_budget_ends_the_wait() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &Call { budget_ms: Some(700), ..waits(2) });
    w.advance(699);
    assert_eq!(w.heard("c"), [""; 0]);
    w.advance(1);
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].contains("budget_exhausted"), "{heard:?}");
    w.say("p", &completed(1));
    assert_eq!(w.heard("p").len(), 1, "the one that ended is not given");
}

#[test]
fn a_waiting_call_can_be_cancelled_and_leaves_no_trace_in_the_queue() {
    for wait in [false, true] {
        let mut w = narrow();
        w.say("c", &waits(1));
        w.say("c", &waits(2));
        w.say("c", &agent_reach_protocol::Cancel { wait, ..cancel(2) });
        let heard = w.heard("c");
        assert!(heard.len() == 1 && heard[0].contains("cancelled"), "{heard:?}");
        w.say("p", &completed(1));
        assert_eq!(w.heard("p").len(), 1);
        assert_eq!(w.hub.gauges().calls, 0);
    }
}

#[test]
fn a_line_of_calls_for_another_agent_holds_up_nobody() {
    let mut w = narrow();
    w.join("q", Hello { max_concurrency: Some(1), ..provider("q", "a") });
    w.say("c", &Call { agents: Some(vec!["p"]), ..waits(1) });
    for id in 2..40 {
        w.say("c", &Call { agents: Some(vec!["p"]), ..waits(id) });
    }
    w.say("c", &waits(50));
    w.say_with("c", &waits(51), "free");
    assert_eq!(w.heard("q"), ["CALL 1 a by=c try=1"]);
    w.say("q", &completed(1));
    assert_eq!(w.heard("q"), ["CALL 2 a by=c try=1 \"free\""]);
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn a_new_agent_gets_what_waits() {
    let mut w = narrow();
    for id in 1..=3 {
        w.say("c", &waits(id));
    }
    w.join_and_hear("q", provider("q", "a"), &["WELCOME", "CALL 1 a by=c try=1", "CALL 2 a by=c try=1"]);
}

#[test]
fn an_agent_that_is_ready_again_gets_what_waits() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &waits(2));
    w.join("q", Hello { status: Some(AgentStatus::Draining), ..provider("q", "a") });
    w.say("q", &Update { status: Some(AgentStatus::Ready), ..update() });
    assert_eq!(w.heard("q"), ["CALL 1 a by=c try=1"]);
}

#[test]
fn who_waits_for_an_agent_that_leaves_for_good_is_told() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &waits(2));
    w.say("p", &Update { status: Some(AgentStatus::Draining), ..update() });
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].contains("no_instance"), "{heard:?}");
    assert!(heard[0].starts_with("RESULT 2"), "{heard:?}");
}

#[test]
fn who_waits_stays_while_its_agent_may_come_back() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &waits(2));
    w.heard("p");
    w.lose("p");
    assert_eq!(w.heard("c"), [""; 0]);
    w.open("p#2");
    w.say("p#2", &Hello { max_concurrency: Some(1), ..provider("p", "a") });
    assert_eq!(w.heard("p#2").len(), 2, "WELCOME and the call it had");
    w.say("p#2", &completed(1));
    assert_eq!(w.heard("p#2").len(), 1);
}

#[test]
fn a_reached_quota_lets_calls_wait_until_it_has_room() {
    let mut w = World::new();
    let limited = Capability { qps_limit: Some(2.0), ..capability("a") };
    w.join("p", Hello { capabilities: vec![limited], ..caller("p") });
    w.join("c", caller("c"));
    for id in 1..=4 {
        w.say("c", &waits(id));
    }
    assert_eq!(w.heard("p").len(), 2);
    w.advance(499);
    assert_eq!(w.heard("p").len(), 0);
    w.advance(3);
    assert_eq!(w.heard("p").len(), 1);
    w.advance(503);
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn with_wait_ms_a_call_waits_for_somebody_to_come() {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.say_with("c", &Call { wait_ms: Some(2000), ..waits(1) }, "x");
    assert_eq!(w.heard("c"), [""; 0]);
    w.advance(1999);
    w.open("p");
    w.say("p", &provider("p", "a"));
    assert_eq!(w.heard("p")[1..], ["CALL 1 a by=c try=1 \"x\""]);
}

#[test]
fn after_wait_ms_the_call_fails_as_it_would_have_at_once() {
    let mut w = World::new();
    w.join("c", caller("c"));
    let timers = w.hub.gauges().timers;
    w.say("c", &Call { wait_ms: Some(2000), ..waits(1) });
    w.advance(2000);
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].contains("no_capability"), "{heard:?}");
    assert_eq!(w.hub.gauges().timers, timers);
}

#[test]
fn after_wait_ms_a_call_goes_on_waiting_for_an_agent_that_is_only_busy() {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.join(
        "p",
        Hello { max_concurrency: Some(1), status: Some(AgentStatus::Draining), ..provider("p", "a") },
    );
    w.say("c", &Call { wait_ms: Some(1000), ..waits(1) });
    w.say("c", &Call { wait_ms: Some(1000), ..waits(2) });
    w.say("p", &Update { status: Some(AgentStatus::Ready), ..update() });
    assert_eq!(w.heard("p").len(), 1);
    w.advance(1500);
    assert_eq!(w.heard("c"), [""; 0]);
    w.say("p", &completed(1));
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn a_call_that_waited_is_given_under_the_rights_of_that_moment() {
    let rule = |call: &str| Rule {
        identity: None,
        agent_ids: None,
        provide: vec!["*".parse().unwrap()],
        call: vec![call.parse().unwrap()],
    };
    let policy = |call: &str| Policy { rules: vec![rule(call)], ..Policy::default() };
    let mut w = World::under(Settings::default(), policy("*"));
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "a") });
    w.join("c", caller("c"));
    w.say("c", &waits(1));
    w.say("c", &waits(2));
    w.input(agent_reach_core::Input::SetPolicy(policy("b")));
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].starts_with("RESULT 2") && heard[0].contains("unauthorized"));
    w.say("p", &accept(1));
    w.say("p", &completed(1));
    assert_eq!(w.heard("c").len(), 2, "what runs goes on");
}

#[test]
fn lines_of_different_demands_go_to_whom_they_fit() {
    let mut w = World::new();
    for (name, zone) in [("p", "eu"), ("q", "us")] {
        w.join(
            name,
            Hello { max_concurrency: Some(1), labels: Labels(vec![("zone", zone)]), ..provider(name, "a") },
        );
    }
    w.join("c", caller("c"));
    w.say("c", &waits(1));
    w.say("c", &waits(2));
    let require = |id, zone| Call { require: Labels(vec![("zone", zone)]), ..waits(id) };
    w.say_with("c", &require(3, "us"), "us");
    w.say_with("c", &require(4, "eu"), "eu");
    w.all_heard();
    w.say("p", &completed(1));
    assert_eq!(w.heard("p"), ["CALL 2 a by=c try=1 \"eu\""]);
    w.say("q", &completed(1));
    assert_eq!(w.heard("q"), ["CALL 2 a by=c try=1 \"us\""]);
}

#[test]
fn credit_that_comes_while_a_stream_waits_is_not_lost() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &Call { stream: true, credit: Some(1), ..waits(2) });
    w.say("c", &world::credit(2, 4));
    w.heard("p");
    w.say("p", &completed(1));
    let heard = w.heard("p");
    assert!(heard.len() == 1 && heard[0].contains("credit=5"), "{heard:?}");
}

#[test]
fn a_stream_that_waited_has_the_window_it_asked_for() {
    let mut w = narrow();
    w.say("c", &waits(1));
    w.say("c", &Call { stream: true, credit: Some(7), ..waits(2) });
    w.heard("p");
    w.say("p", &completed(1));
    let heard = w.heard("p");
    assert!(heard.len() == 1 && heard[0].contains("credit=7"), "{heard:?}");
}
