//! What one peer can pile up is bounded, at the bound and one over.
#![cfg(test)]

mod world;

use agent_reach_core::Settings;
use agent_reach_protocol::{Call, Select, Update};

use world::*;

#[test]
fn a_result_for_many_who_wait_is_not_copied_past_the_bound_of_a_queue() {
    let bound = 100_000;
    let mut w = World::with(Settings { outbound_bytes: bound, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for id in 1..=16 {
        w.say("c", &Call { request_id: Some("r"), ..call(id, "echo") });
    }
    let body = "x".repeat(60_000);
    w.say_with("p", &completed(1), &body);
    assert!(w.hub.gauges().outbound_bytes < bound + body.len(), "{:?}", w.hub.gauges());
    assert_eq!(w.heard("c"), ["GOODBYE slow_consumer", "CLOSE 4002 slow_consumer"]);
}

#[test]
fn sixteen_ids_wait_for_one_call_and_the_next_is_refused() {
    let mut w = World::pair("echo");
    for id in 1..=17 {
        w.say("c", &Call { request_id: Some("r"), ..call(id, "echo") });
    }
    assert_eq!(w.heard("c"), ["RESULT 17 overloaded retryable"]);
    w.say("p", &completed(1));
    assert_eq!(w.heard("c").len(), 16);
}

#[test]
fn sixteen_watches_are_open_and_the_next_is_refused() {
    let mut w = World::new();
    w.join("c", caller("c"));
    for id in 1..=16 {
        w.say("c", &Call { stream: true, credit: Some(0), ..call(id, "hub.events.watch") });
    }
    assert_eq!(w.heard("c").len(), 16, "an ACCEPT each");
    w.say("c", &Call { stream: true, ..call(17, "hub.events.watch") });
    assert_eq!(w.heard("c"), ["RESULT 17 overloaded retryable"]);
}

#[test]
fn the_copies_of_a_fan_out_count_before_they_are_made() {
    let mut w = World::with(Settings { open_bytes: 40_000, ..Settings::default() });
    for name in ["p1", "p2", "p3"] {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    let all = |id| Call { select: Some(Select::All), ..call(id, "echo") };
    w.say_with("c", &all(1), &"x".repeat(14_000));
    assert_eq!(w.heard("c"), ["RESULT 1 overloaded retryable"]);
    w.say_with("c", &all(2), &"x".repeat(9_000));
    assert_eq!(w.heard("c"), Vec::<String>::new());
    assert_eq!(w.heard("p3").len(), 1);
}

#[test]
fn more_accepts_than_any_negotiation_needs_are_not_forwarded() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    for _ in 0..20 {
        w.say("p", &accept(1));
    }
    w.heard("p");
    assert_eq!(w.heard("c").len(), 16);
}

#[test]
fn a_credit_of_nothing_is_passed_over() {
    let mut w = World::pair("echo");
    w.say("c", &Call { stream: true, ..call(1, "echo") });
    w.heard("p");
    w.say("c", &credit(1, 0));
    assert_eq!(w.heard("p"), Vec::<String>::new());
}

#[test]
fn an_agent_has_1024_capabilities_and_no_more() {
    let mut w = World::new();
    w.join("p", caller("p"));
    let names: Vec<String> = (0..1025).map(|n| format!("c{n}")).collect();
    let (first, last) = names.split_at(1024);
    w.say("p", &Update { add: first.iter().map(|name| capability(name)).collect(), ..update() });
    assert_eq!(w.heard("p"), Vec::<String>::new());
    w.say("p", &Update { add: vec![capability(&last[0])], ..update() });
    assert_eq!(w.heard("p"), ["ERROR invalid_request kind=3"]);
    w.join("c", caller("c"));
    w.say("c", &call(1, "c1023"));
    w.say("c", &call(2, "c1024"));
    assert_eq!(w.heard("c"), ["RESULT 2 no_capability"]);
    w.say("p", &Update { remove: names.iter().map(String::as_str).collect(), ..update() });
    let heard = w.heard("p");
    assert_eq!(heard.len(), 2, "the CALL, and an ERROR for the one it never had: {heard:?}");
}

#[test]
fn what_was_left_open_on_an_earlier_connection_counts_until_it_is_settled() {
    let mut w = World::with(Settings { max_in_flight: 2, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &call(1, "echo"));
    w.say("c", &call(2, "echo"));
    w.lose("c");
    w.join("c#2", caller("c"));
    w.say("c#2", &call(1, "echo"));
    assert_eq!(w.heard("c#2"), ["RESULT 1 overloaded retryable"]);
    w.advance_alive(10_000);
    w.heard("c#2");
    w.say("c#2", &call(2, "echo"));
    assert_eq!(w.heard("c#2"), Vec::<String>::new(), "settled after resume_ms");
}

#[test]
fn one_agent_has_a_share_of_what_all_may_have_open() {
    let mut w = World::with(Settings { open_bytes_each: 6000, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("greedy", caller("greedy"));
    w.join("c", caller("c"));
    for id in 1..=3 {
        w.say_with("greedy", &call(id, "echo"), &"x".repeat(1900));
    }
    assert_eq!(w.heard("greedy"), ["RESULT 2 overloaded retryable", "RESULT 3 overloaded retryable"]);
    w.say_with("c", &call(1, "echo"), &"x".repeat(1900));
    assert_eq!(w.heard("c"), Vec::<String>::new());
    w.say("p", &completed(1));
    assert_eq!(w.heard("greedy"), ["RESULT 1 completed of=p"]);
    w.say_with("greedy", &call(4, "echo"), &"x".repeat(1900));
    assert_eq!(w.heard("greedy"), Vec::<String>::new(), "its share is free again");
}

#[test]
fn a_deep_body_of_a_call_to_the_hub_fails_that_call() {
    let mut w = World::new();
    w.join("c", caller("c"));
    for (id, depth) in [(1, 33), (2, 1000), (3, 100_000)] {
        let mut body = [0x81, 0xa1, b'a'].repeat(depth);
        body.push(0xc0);
        w.say_bytes("c", agent_reach_protocol::encode(&call(id, "hub.agents.list"), Some(&body)));
        assert_eq!(w.heard("c"), [format!("RESULT {id} invalid_request")]);
    }
    for (id, body) in [(4, &[0x91, 0xa1, b'c'][..]), (5, &[0x80, 0xc0]), (6, &[0xc1])] {
        w.say_bytes("c", agent_reach_protocol::encode(&call(id, "hub.capabilities.list"), Some(body)));
        assert_eq!(w.heard("c"), [format!("RESULT {id} invalid_request")]);
    }
}

#[test]
fn when_all_queues_together_are_full_the_fullest_is_ended_and_the_others_go_on() {
    let bound = 300_000;
    let mut w = World::with(Settings { outbound_total: bound, ..Settings::default() });
    w.join("c", caller("c"));
    for name in ["p", "q", "r"] {
        w.join(name, provider(name, name));
    }
    let body = "x".repeat(50_000);
    for (id, to) in ["p", "q", "p", "r", "p", "q"].into_iter().enumerate() {
        w.say_with("c", &call(id as u64 + 1, to), &body);
        assert!(w.hub.gauges().outbound_bytes <= bound);
    }
    assert_eq!(w.heard("p"), ["GOODBYE slow_consumer", "CLOSE 4002 slow_consumer"]);
    assert_eq!((w.heard("q").len(), w.heard("r").len()), (2, 1));
}
