//! Several agents, directed or selected: a RESULT for each, then a summary.
#![cfg(test)]

mod world;

use agent_reach_core::Settings;
use agent_reach_protocol::{Call, CallMode, Hello, Select};
use world::*;

fn three() -> World {
    let mut w = World::new();
    for name in ["p1", "p2", "p3"] {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    w
}

#[test]
fn a_fan_out_has_a_result_for_each_target_and_a_summary_that_ends_it() {
    let mut w = three();
    w.say("c", &Call { select: Some(Select::All), ..call(1, "echo") });
    assert_eq!(
        w.all_heard(),
        ["p1: CALL 1 echo by=c try=1", "p2: CALL 1 echo by=c try=1", "p3: CALL 1 echo by=c try=1"]
    );
    w.say_with("p2", &completed(1), "two");
    w.say("p1", &failed(1, "unsupported", false));
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 1 completed of=p2 more \"two\"", "c: RESULT 1 unsupported of=p1 more"]
    );
    w.say("p3", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p3 more", "c: RESULT 1 completed summary=3/2/1"]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight), (0, 0));
}

#[test]
fn named_agents_that_cannot_take_it_fail_alone() {
    let mut w = three();
    w.join("other", provider("other", "sum"));
    let agents = Some(vec!["p1", "nobody", "other", "p1"]);
    w.say("c", &Call { agents, ..call(1, "echo") });
    assert_eq!(
        w.all_heard(),
        [
            "c: RESULT 1 no_instance retryable of=nobody more",
            "c: RESULT 1 no_instance retryable of=other more",
            "p1: CALL 1 echo by=c try=1"
        ]
    );
    w.say("p1", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p1 more", "c: RESULT 1 completed summary=3/1/2"]);
}

#[test]
fn a_count_of_named_agents_none_of_which_can_take_it_still_ends() {
    let mut w = three();
    w.say("c", &Call { agents: Some(vec!["x", "y"]), select: Some(Select::Count(2)), ..call(1, "echo") });
    assert_eq!(w.all_heard(), ["c: RESULT 1 no_instance retryable"]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().open_bytes), (0, 0));
}

#[test]
fn a_count_goes_to_so_many_different_agents() {
    let mut w = three();
    w.say("c", &Call { select: Some(Select::Count(2)), ..call(1, "echo") });
    assert_eq!(w.all_heard(), ["p1: CALL 1 echo by=c try=1", "p2: CALL 1 echo by=c try=1"]);
}

#[test]
fn the_end_of_a_notify_does_not_reach_into_a_later_call_that_got_its_place() {
    let mut w = three();
    let agents = Some(vec!["p1", "p2"]);
    w.say("c", &Call { agents, mode: Some(CallMode::Notify), ..call(1, "echo") });
    w.say("p1", &accept(1));
    w.say("p1", &completed(1));
    // The next call takes the place of p1's part, which is over.
    w.say("c", &Call { agents: Some(vec!["p3"]), ..call(2, "echo") });
    w.all_heard();
    w.say("c", &cancel(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 cancelled summary=2/1/1", "p2: CANCEL 1 the caller cancelled"]);
    w.say("p3", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 2 completed of=p3"]);
}

#[test]
fn a_lost_target_fails_only_its_own_part() {
    let mut w = three();
    w.say("c", &Call { agents: Some(vec!["p1", "p2"]), ..call(1, "echo") });
    w.say("p1", &accept(1));
    w.lose("p1");
    w.join("p1#2", Hello { instance: "life-2", ..provider("p1", "echo") });
    w.say("p2", &completed(1));
    w.heard("p2");
    assert_eq!(
        w.heard("c"),
        [
            "ACCEPT 1 of=p1 try=1",
            "RESULT 1 agent_lost of=p1 more",
            "RESULT 1 completed of=p2 more",
            "RESULT 1 completed summary=2/1/1"
        ]
    );
}

#[test]
fn the_parts_of_a_fan_out_are_kept_within_the_bound_of_open_bytes_or_not_at_all() {
    let mut w = World::with(Settings { open_bytes: 8000, ..Settings::default() });
    for name in ["p1", "p2", "p3"] {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    let asking = |id| Call { select: Some(Select::All), request_id: Some("r"), ..call(id, "echo") };
    w.say("c", &asking(1));
    w.say_with("p1", &completed(1), &"x".repeat(2000));
    w.heard("c");
    assert!(w.hub.gauges().open_bytes > 2000);
    w.say("c", &asking(2));
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].starts_with("RESULT 2 completed of=p1 more \"xxx"), "{heard:?}");
    w.say_with("p2", &completed(1), &"x".repeat(4000));
    assert!(w.hub.gauges().open_bytes < 3000, "{:?}", w.hub.gauges());
    w.say("p3", &completed(1));
    assert_eq!((w.hub.gauges().open_bytes, w.hub.gauges().remembered), (0, 0));
    // What was not kept cannot be repeated: the intent is free again.
    w.all_heard();
    w.say("c", &asking(3));
    assert_eq!(w.heard("p1"), ["CALL 2 echo by=c try=1"]);
}
