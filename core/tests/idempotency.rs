//! One intent runs once: joined while it is open, answered from memory after. Kinds of danger: duplicate.
#![cfg(test)]

mod world;

use agent_reach_core::{Outgoing, Settings};
use agent_reach_protocol::{Call, ToAgent, decode_to_agent};
use world::*;

fn intent<'a>(id: u64, request_id: &'a str) -> Call<'a> {
    Call { request_id: Some(request_id), ..call(id, "echo") }
}

#[test]
fn an_open_duplicate_joins_and_every_asker_gets_the_end() {
    let mut w = World::pair("echo");
    w.say_with("c", &intent(1, "r"), "x");
    w.say_with("c", &intent(2, "r"), "x");
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 \"x\""]);
    w.say("p", &accept(1));
    assert_eq!(w.all_heard(), ["c: ACCEPT 2 of=p try=1"]);
    w.say_with("p", &completed(1), "y");
    assert_eq!(w.all_heard(), ["c: RESULT 2 completed of=p \"y\"", "c: RESULT 1 completed of=p \"y\""]);
}

#[test]
fn an_ended_intent_is_answered_from_memory_until_keep_ms_is_over() {
    let mut w = World::pair("echo");
    w.say_with("c", &Call { keep_ms: Some(5000), ..intent(1, "r") }, "x");
    w.say_with("p", &completed(1), "y");
    w.all_heard();
    w.advance(4999);
    w.say_with("c", &intent(2, "r"), "x");
    assert_eq!(w.all_heard(), ["c: RESULT 2 completed of=p duplicate \"y\""]);
    w.advance(1);
    w.say_with("c", &intent(3, "r"), "x");
    assert_eq!(w.all_heard(), ["p: CALL 2 echo by=c try=1 \"x\""]);
}

#[test]
fn another_body_or_capability_under_the_same_id_conflicts() {
    let mut w = World::pair("echo");
    w.join("q", provider("q", "sum"));
    w.say_with("c", &intent(1, "r"), "x");
    w.all_heard();
    w.say_with("c", &intent(2, "r"), "other");
    w.say_with("c", &Call { capability: "sum", ..intent(3, "r") }, "x");
    assert_eq!(w.all_heard(), ["c: RESULT 2 idempotency_conflict", "c: RESULT 3 idempotency_conflict"]);
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
}

#[test]
fn a_retryable_failure_frees_the_id_and_another_is_kept() {
    let mut w = World::pair("echo");
    w.say("c", &intent(1, "r"));
    w.say("p", &failed(1, "overloaded", true));
    w.say("c", &intent(2, "r"));
    w.say("p", &failed(2, "invalid_request", false));
    w.say("c", &intent(3, "r"));
    assert_eq!(
        w.heard("c"),
        [
            "RESULT 1 overloaded retryable of=p",
            "RESULT 2 invalid_request of=p",
            "RESULT 3 invalid_request of=p duplicate"
        ]
    );
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1", "CALL 2 echo by=c try=1"]);
}

#[test]
fn other_identities_have_ids_of_their_own() {
    let mut w = World::pair("echo");
    w.join("d", caller("d"));
    w.say("c", &intent(1, "r"));
    w.say("d", &intent(1, "r"));
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1", "p: CALL 2 echo by=d try=1"]);
}

#[test]
fn an_id_that_the_hub_would_make_next_is_not_made_when_a_caller_took_it() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    let Some(Outgoing::Message(message)) = w.take("p").pop() else { panic!("no CALL") };
    let Ok((ToAgent::Call(given), _)) = decode_to_agent(&message) else { panic!("no CALL") };
    let made = given.request_id.to_owned();
    let (stem, number) = made.rsplit_once('r').unwrap();
    let next = u64::from_str_radix(number, 16).unwrap() + 2;
    let taken = format!("{stem}r{next:x}");
    // The call that takes the id, and the one for which the hub would make it.
    w.say("c", &Call { keep_ms: Some(20_000), ..intent(2, &taken) });
    w.say("c", &Call { keep_ms: Some(5000), ..call(3, "echo") });
    for id in 1..=3 {
        w.say_with("p", &completed(id), "done");
    }
    w.advance_alive(15_000);
    w.say("c", &intent(4, &taken));
    assert_eq!(
        w.heard("c"),
        [
            "RESULT 1 completed of=p \"done\"",
            "RESULT 2 completed of=p \"done\"",
            "RESULT 3 completed of=p \"done\"",
            "RESULT 4 completed of=p duplicate \"done\""
        ]
    );
    w.advance_alive(24 * 3_600_000);
    assert_eq!((w.hub.gauges().remembered, w.hub.gauges().remembered_bytes), (0, 0));
}

#[test]
fn duplicates_of_an_open_call_count_towards_the_limit_of_their_connection() {
    let mut w = World::with(Settings { max_in_flight: 2, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for id in 1..=3 {
        w.say("c", &intent(id, "r"));
    }
    assert_eq!(w.all_heard(), ["c: RESULT 3 overloaded retryable", "p: CALL 1 echo by=c try=1"]);
}

#[test]
fn past_the_bound_the_soonest_to_expire_is_forgotten_first() {
    let mut w = World::with(Settings { dedupe_bytes: 1500, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for (id, keep_ms) in [(1, 60_000), (2, 20_000), (3, 40_000)] {
        let request_id = format!("r{id}");
        w.say("c", &Call { keep_ms: Some(keep_ms), ..intent(id, &request_id) });
        w.say_with("p", &completed(id), "0123456789".repeat(30).as_str());
    }
    assert!(w.hub.gauges().remembered_bytes <= 1500, "{:?}", w.hub.gauges());
    w.all_heard();
    w.say("c", &intent(11, "r1"));
    w.say("c", &intent(12, "r2"));
    let heard = w.heard("c");
    assert!(heard.len() == 1 && heard[0].starts_with("RESULT 11 completed of=p duplicate"), "{heard:?}");
    assert_eq!(w.heard("p"), ["CALL 4 echo by=c try=1"]);
}
