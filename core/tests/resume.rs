//! Calls whose caller or provider went away and came back, or did not.
#![cfg(test)]

mod world;

use agent_reach_protocol::{Call, Cancel, Capability, Hello};
use world::*;

fn stream(id: u64) -> Call<'static> {
    Call { stream: true, credit: Some(4), request_id: Some("r"), ..call(id, "echo") }
}

fn other_life() -> Hello<'static> {
    Hello { instance: "life-2", ..provider("p", "echo") }
}

#[test]
fn a_provider_that_returns_as_the_same_instance_is_given_its_calls_again() {
    let mut w = World::pair("echo");
    w.say_with("c", &call(1, "echo"), "x");
    w.say("p", &accept(1));
    w.all_heard();
    w.lose("p");
    w.advance(9999);
    w.join_and_hear("p#2", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 \"x\""]);
    w.say("p#2", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
    assert_eq!(w.hub.gauges().in_flight, 0);
}

#[test]
fn a_stream_that_is_said_again_from_the_start_goes_on_where_its_caller_is() {
    let mut w = World::pair("echo");
    w.say("c", &stream(1));
    for seq in 0..3 {
        w.say_with("p", &chunk(1, seq), "piece");
    }
    w.all_heard();
    w.lose("p");
    w.say("c", &credit(1, 2));
    w.join_and_hear("p#2", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 credit=6"]);
    for seq in 0..5 {
        w.say_with("p#2", &chunk(1, seq), "again");
    }
    assert_eq!(w.all_heard(), ["c: CHUNK 1 #3 \"again\"", "c: CHUNK 1 #4 \"again\""]);
    w.say("p#2", &chunk(1, 5));
    w.say("p#2", &chunk(1, 6));
    assert_eq!(
        w.all_heard(),
        ["c: CHUNK 1 #5", "c: RESULT 1 handler_error of=p", "p#2: CANCEL 1 handler_error"],
        "six were granted"
    );
}

#[test]
fn pieces_that_are_said_again_restart_the_processing_time() {
    let mut w = World::pair("echo");
    w.say("c", &Call { timeout_ms: Some(2000), ..stream(1) });
    for seq in 0..3 {
        w.say("p", &chunk(1, seq));
    }
    w.lose("p");
    w.join_and_hear("p#2", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 credit=4"]);
    w.all_heard();
    for seq in 0..3 {
        w.advance(1500);
        w.say("p#2", &chunk(1, seq));
    }
    w.say("p#2", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
}

#[test]
fn another_life_of_the_provider_has_lost_its_calls() {
    for (accepted, idempotent, end) in [
        (false, false, "RESULT 1 agent_lost retryable of=p"),
        (true, false, "RESULT 1 agent_lost of=p"),
        (true, true, "RESULT 1 agent_lost retryable of=p"),
    ] {
        let mut w = World::new();
        let offer = Capability { idempotent, ..capability("echo") };
        w.join("p", Hello { capabilities: vec![offer], ..caller("p") });
        w.join("c", caller("c"));
        w.say("c", &call(1, "echo"));
        if accepted {
            w.say("p", &accept(1));
        }
        w.all_heard();
        w.lose("p");
        assert_eq!(w.all_heard(), Vec::<String>::new());
        w.join("p#2", other_life());
        assert_eq!(w.all_heard(), [format!("c: {end}")]);
        assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight), (0, 0));
    }
}

#[test]
fn a_call_that_was_given_twice_and_never_accepted_is_safe_to_try_again() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.lose("p");
    w.join_and_hear("p#2", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2"]);
    w.lose("p#2");
    w.join("p#3", other_life());
    assert_eq!(w.all_heard(), ["c: RESULT 1 agent_lost retryable of=p"]);
}

#[test]
fn a_provider_that_does_not_return_in_time_is_lost() {
    let mut w = World::pair("echo");
    w.say("c", &Call { timeout_ms: Some(60_000), ..call(1, "echo") });
    w.say("p", &accept(1));
    w.lose("p");
    w.all_heard();
    w.advance_alive(9999);
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["c: RESULT 1 agent_lost of=p"]);
    assert_eq!((w.hub.gauges().agents_away, w.hub.gauges().in_flight), (0, 0));
}

#[test]
fn a_caller_that_returns_and_asks_again_has_its_answers_on_the_new_connection() {
    let mut w = World::pair("echo");
    w.say("c", &stream(1));
    w.say("p", &accept(1));
    w.say("p", &chunk(1, 0));
    w.all_heard();
    w.lose("c");
    w.say("p", &chunk(1, 1));
    w.join("c#2", caller("c"));
    w.say("c#2", &Call { credit: Some(8), ..stream(5) });
    assert_eq!(w.all_heard(), ["c#2: ACCEPT 5 of=p try=1", "p: CREDIT 1 +6"]);
    w.say("p", &chunk(1, 2));
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c#2: CHUNK 5 #2", "c#2: RESULT 5 completed of=p"]);
    assert_eq!(w.hub.gauges().agents_away, 0);
}

#[test]
fn a_caller_that_does_not_ask_again_cancels_its_calls() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.lose("c");
    w.all_heard();
    w.join("c#2", caller("c"));
    w.advance_alive(9999);
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["p: CANCEL 1 the caller went away"]);
    w.say("p", &failed(1, "cancelled", false));
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight, w.all_heard()), (0, 0, vec![]));
}

#[test]
fn a_call_that_ends_while_its_caller_is_away_is_answered_from_memory() {
    let mut w = World::pair("echo");
    w.say("c", &Call { request_id: Some("r"), ..call(1, "echo") });
    w.lose("c");
    w.say_with("p", &completed(1), "y");
    w.all_heard();
    w.join("c#2", caller("c"));
    w.say("c#2", &Call { request_id: Some("r"), ..call(1, "echo") });
    assert_eq!(w.all_heard(), ["c#2: RESULT 1 completed of=p duplicate \"y\""]);
}

#[test]
fn a_cancel_that_waits_reaches_the_provider_that_was_away() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.lose("p");
    w.say("c", &Cancel { wait: true, ..cancel(1) });
    w.join_and_hear(
        "p#2",
        provider("p", "echo"),
        &["WELCOME", "CALL 1 echo by=c try=2", "CANCEL 1 the caller cancelled"],
    );
    w.say("p#2", &failed(1, "cancelled", false));
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 of=p try=1", "c: RESULT 1 cancelled of=p"]);
}
