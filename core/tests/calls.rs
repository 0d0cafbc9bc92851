//! CALL, ACCEPT, CHUNK, CREDIT, RESULT between one caller and one provider.
#![cfg(test)]

mod world;

use agent_reach_protocol::{Accept, Call, CallMode, Hello};
use bytes::Bytes;
use world::*;

fn stream(id: u64, credit: u64) -> Call<'static> {
    Call { stream: true, credit: Some(credit), ..call(id, "echo") }
}

#[test]
fn a_call_goes_to_its_provider_and_each_answer_comes_back_under_the_callers_id() {
    let mut w = World::pair("echo");
    w.say_with("c", &call(7, "echo"), "ping");
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 \"ping\""]);
    w.say("p", &accept(1));
    assert_eq!(w.all_heard(), ["c: ACCEPT 7 of=p try=1"]);
    w.say_with("p", &completed(1), "pong");
    assert_eq!(w.all_heard(), ["c: RESULT 7 completed of=p \"pong\""]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight, w.hub.gauges().open_bytes), (0, 0, 0));
}

#[test]
fn every_accept_of_the_provider_is_forwarded_and_none_is_invented() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.heard("p");
    w.say("p", &Accept { would_timeout: true, wait_ms: Some(900), ..accept(1) });
    w.say("p", &accept(1));
    w.say("p", &completed(1));
    w.say("c", &call(2, "echo"));
    w.say("p", &completed(2));
    assert_eq!(
        w.heard("c"),
        ["ACCEPT 1 of=p try=1", "ACCEPT 1 of=p try=1", "RESULT 1 completed of=p", "RESULT 2 completed of=p"]
    );
}

#[test]
fn a_stream_flows_within_its_credit_and_its_credit_reaches_the_provider() {
    let mut w = World::pair("echo");
    w.say("c", &stream(1, 2));
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 credit=2"]);
    w.say("p", &accept(1));
    w.say_with("p", &chunk(1, 0), "a");
    w.say_with("p", &chunk(1, 1), "b");
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 of=p try=1", "c: CHUNK 1 #0 \"a\"", "c: CHUNK 1 #1 \"b\""]);
    w.say("c", &credit(1, 1));
    assert_eq!(w.all_heard(), ["p: CREDIT 1 +1"]);
    w.say("p", &chunk(1, 2));
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: CHUNK 1 #2", "c: RESULT 1 completed of=p"]);
}

#[test]
fn a_chunk_past_the_credit_fails_the_call_and_not_the_connection() {
    let mut w = World::pair("echo");
    w.say("c", &stream(1, 1));
    w.say("p", &chunk(1, 0));
    w.say("p", &chunk(1, 1));
    w.heard("p");
    assert_eq!(w.all_heard(), ["c: CHUNK 1 #0", "c: RESULT 1 handler_error of=p"]);
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 2 echo by=c try=1"]);
}

#[test]
fn a_chunk_of_a_call_that_is_no_stream_fails_it() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.heard("p");
    w.say("p", &chunk(1, 0));
    assert_eq!(w.all_heard(), ["c: RESULT 1 handler_error of=p", "p: CANCEL 1 handler_error"]);
}

#[test]
fn a_gap_or_a_repetition_in_the_pieces_fails_the_call() {
    for wrong in [0, 2] {
        let mut w = World::pair("echo");
        w.say("c", &stream(1, 9));
        w.say("p", &chunk(1, 0));
        w.all_heard();
        w.say("p", &chunk(1, wrong));
        assert_eq!(w.all_heard(), ["c: RESULT 1 handler_error of=p", "p: CANCEL 1 handler_error"]);
    }
}

#[test]
fn frames_for_an_id_that_has_ended_are_dropped_and_counted() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &completed(1));
    w.all_heard();
    w.say("p", &completed(1));
    w.say("p", &accept(1));
    w.say("p", &chunk(1, 0));
    w.say("c", &cancel(1));
    w.say("c", &credit(1, 5));
    assert_eq!((w.all_heard(), w.hub.counters().late), (vec![], 5));
}

#[test]
fn an_id_that_is_still_open_is_not_taken_twice() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("c", &call(1, "echo"));
    assert_eq!(w.all_heard(), ["c: ERROR invalid_request kind=10 id=1", "p: CALL 1 echo by=c try=1"]);
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
}

#[test]
fn a_providers_own_code_becomes_handler_error_and_known_ones_pass() {
    let mut w = World::pair("echo");
    for (id, said, retryable, heard) in [
        (1, "my-own-code", true, "RESULT 1 handler_error retryable of=p"),
        (2, "my-own-code", false, "RESULT 2 handler_error of=p"),
        (3, "schema_mismatch", true, "RESULT 3 schema_mismatch of=p"),
        (4, "overloaded", false, "RESULT 4 overloaded retryable of=p"),
        (5, "internal", false, "RESULT 5 handler_error of=p"),
        (6, "agent_lost", true, "RESULT 6 handler_error retryable of=p"),
    ] {
        w.say("c", &call(id, "echo"));
        w.say("p", &failed(id, said, retryable));
        assert_eq!(w.heard("c"), [heard]);
    }
}

#[test]
fn notify_ends_with_phase_one_and_its_work_keeps_its_slot() {
    let mut w = World::new();
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.join("c", caller("c"));
    w.say("c", &Call { mode: Some(CallMode::Notify), ..call(1, "echo") });
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 notify"]);
    w.say("p", &accept(1));
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 of=p try=1", "c: RESULT 1 completed of=p"]);
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["c: RESULT 2 overloaded retryable"]);
    w.say("p", &completed(1));
    w.say("c", &call(3, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 2 echo by=c try=1"]);
}

#[test]
fn a_notify_that_nobody_accepts_fails() {
    let mut w = World::pair("echo");
    w.say("c", &Call { mode: Some(CallMode::Notify), ..call(1, "echo") });
    w.heard("p");
    w.advance(3000);
    assert_eq!(w.all_heard(), ["c: RESULT 1 accept_timeout retryable of=p", "p: CANCEL 1 accept_timeout"]);
}

#[test]
fn a_malformed_answer_fails_its_call_and_a_malformed_call_gets_a_result() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.heard("p");
    // [14, {"id": 1}, nil]: a RESULT without a status.
    w.say_bytes("p", Bytes::from_static(b"\x93\x0e\x81\xa2id\x01\xc0"));
    assert_eq!(
        w.all_heard(),
        [
            "c: RESULT 1 handler_error of=p",
            "p: CANCEL 1 handler_error",
            "p: ERROR invalid_request kind=14 id=1"
        ]
    );
    // [10, {"id": 2}, nil]: a CALL without a capability.
    w.say_bytes("c", Bytes::from_static(b"\x93\x0a\x81\xa2id\x02\xc0"));
    assert_eq!(w.all_heard(), ["c: RESULT 2 invalid_request"]);
}
