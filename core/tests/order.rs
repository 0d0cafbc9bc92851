//! What goes first, and what happens to who does not read. Kinds of danger: ordering, backpressure.
#![cfg(test)]

mod world;

use agent_reach_core::Settings;
use agent_reach_protocol::{Call, Hello};
use world::*;

#[test]
fn control_goes_ahead_of_queued_bodies() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("c", &Call { stream: true, credit: Some(4), ..call(2, "echo") });
    w.heard("p");
    w.say_with("p", &completed(1), "a body");
    w.say("p", &accept(2));
    w.say_with("p", &chunk(2, 0), "another");
    assert_eq!(
        w.heard("c"),
        ["ACCEPT 2 of=p try=1", "RESULT 1 completed of=p \"a body\"", "CHUNK 2 #0 \"another\""]
    );
    w.say("c", &call(3, "echo"));
    w.say("c", &credit(2, 1));
    w.say("c", &credit(2, 2));
    assert_eq!(w.heard("p"), ["CREDIT 2 +1", "CREDIT 2 +2", "CALL 3 echo by=c try=1"]);
}

#[test]
fn who_does_not_read_is_ended_at_the_bound_and_its_calls_wait_for_it() {
    let mut w = World::with(Settings { outbound_bytes: 4096, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    let body = "x".repeat(1500);
    for id in 1..=2 {
        w.say_with("c", &call(id, "echo"), &body);
    }
    assert!(w.hub.gauges().outbound_bytes <= 4096);
    w.say_with("c", &call(3, "echo"), &body);
    assert_eq!(w.all_heard(), ["p: GOODBYE slow_consumer", "p: CLOSE 4002 slow_consumer"]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().outbound_bytes), (3, 0));
    w.lose("p");
    w.open("p#2");
    w.say("p#2", &provider("p", "echo"));
    assert_eq!(w.heard("p#2"), ["GOODBYE slow_consumer", "CLOSE 4002 slow_consumer"], "it is too much still");
    w.lose("p#2");
    w.join("p#3", Hello { instance: "life-2", ..provider("p", "echo") });
    let ends: Vec<String> = (1..=3).map(|id| format!("RESULT {id} agent_lost retryable of=p")).collect();
    assert_eq!(w.heard("c"), ends);
}

#[test]
fn one_who_does_not_read_costs_nobody_else_anything() {
    let mut w = World::with(Settings { outbound_bytes: 4096, ..Settings::default() });
    for name in ["p1", "p2"] {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    let to = |id, agent| Call { agents: Some(vec![agent]), ..call(id, "echo") };
    for id in 1..=20 {
        w.say_with("c", &to(2 * id, "p1"), &"x".repeat(1000));
        w.say("c", &to(2 * id + 1, "p2"));
        assert_eq!(w.heard("p2"), [format!("CALL {id} echo by=c try=1")]);
    }
}

#[test]
fn the_bytes_of_all_open_calls_have_one_bound() {
    let mut w = World::with(Settings { open_bytes: 8000, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for id in 1..=3 {
        w.say_with("c", &call(id, "echo"), &"x".repeat(1200));
    }
    w.heard("p");
    assert_eq!(w.heard("c"), ["RESULT 3 overloaded retryable"]);
    w.say("p", &completed(1));
    w.say_with("c", &call(4, "echo"), &"x".repeat(1200));
    assert_eq!(w.heard("c"), ["RESULT 1 completed of=p"]);
    assert!(w.hub.gauges().open_bytes <= 8000);
}

#[test]
fn the_calls_of_one_connection_have_a_bound() {
    let mut w = World::with(Settings { max_in_flight: 2, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for id in 1..=3 {
        w.say("c", &call(id, "echo"));
    }
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 3 overloaded retryable", "p: CALL 1 echo by=c try=1", "p: CALL 2 echo by=c try=1"]
    );
}
