//! CANCEL: at once, or when the provider has answered. Kinds of danger: cancellation.
#![cfg(test)]

mod world;

use agent_reach_protocol::{Call, Cancel};
use world::*;

fn accepted() -> World {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.all_heard();
    w
}

#[test]
fn a_cancelled_call_ends_at_once_and_its_providers_late_answer_is_dropped() {
    let mut w = accepted();
    w.say("c", &cancel(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 cancelled of=p", "p: CANCEL 1 the caller cancelled"]);
    w.say("p", &completed(1));
    assert_eq!((w.all_heard(), w.hub.counters().late), (vec![], 1));
    assert_eq!((w.hub.counters().calls_completed, w.hub.counters().calls_failed), (0, 1));
}

#[test]
fn a_cancel_that_waits_is_answered_with_whatever_the_provider_answers() {
    let mut w = accepted();
    w.say("c", &Cancel { wait: true, ..cancel(1) });
    w.say("c", &Cancel { wait: true, ..cancel(1) });
    assert_eq!(w.all_heard(), ["p: CANCEL 1 the caller cancelled"]);
    w.say_with("p", &completed(1), "it was done already");
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p \"it was done already\""]);
}

#[test]
fn a_cancel_that_waits_can_be_followed_by_one_that_does_not() {
    let mut w = accepted();
    w.say("c", &Cancel { wait: true, ..cancel(1) });
    w.say("c", &cancel(1));
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 1 cancelled of=p", "p: CANCEL 1 the caller cancelled"],
        "the provider is told once"
    );
}

#[test]
fn a_cancel_that_waits_does_not_outlive_the_deadline() {
    let mut w = World::pair("echo");
    w.say("c", &Call { timeout_ms: Some(500), ..call(1, "echo") });
    w.say("p", &accept(1));
    w.say("c", &Cancel { wait: true, ..cancel(1) });
    w.all_heard();
    w.advance(500);
    assert_eq!(w.all_heard(), ["c: RESULT 1 timeout retryable of=p"]);
}

#[test]
fn a_cancel_follows_the_call_that_has_not_left_yet() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("c", &cancel(1));
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1", "CANCEL 1 the caller cancelled"]);
}

#[test]
fn a_cancelled_intent_is_remembered_as_cancelled() {
    let mut w = World::pair("echo");
    w.say("c", &Call { request_id: Some("r"), ..call(1, "echo") });
    w.say("c", &cancel(1));
    w.all_heard();
    w.say("c", &Call { request_id: Some("r"), ..call(2, "echo") });
    assert_eq!(w.all_heard(), ["c: RESULT 2 cancelled of=p duplicate"]);
}
