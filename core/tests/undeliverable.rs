//! Bodies that the shell cannot turn into the encoding of their receiver fail one thing each.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, Outgoing};
use agent_reach_protocol::{Call, Select};
use world::*;

/// Takes what waits for `name`, and reports the last of it as undeliverable.
fn undeliverable(w: &mut World, name: &str) {
    let Some(Outgoing::Message(message)) = w.take(name).pop() else { panic!("nothing to deliver") };
    let connection = w.connection(name);
    w.input(Input::Undeliverable { connection, message, reason: "a map key is repeated".to_owned() });
}

#[test]
fn a_call_that_cannot_be_delivered_fails_and_frees_its_slot() {
    let mut w = World::pair("echo");
    w.say_with("c", &call(1, "echo"), "bad");
    undeliverable(&mut w, "p");
    assert_eq!(w.all_heard(), ["c: RESULT 1 invalid_request of=p"]);
    assert_eq!(w.hub.gauges().in_flight, 0);
}

#[test]
fn a_chunk_that_cannot_be_delivered_fails_its_call_and_cancels_the_provider() {
    let mut w = World::pair("echo");
    w.say("c", &Call { stream: true, ..call(1, "echo") });
    w.say_with("p", &chunk(1, 0), "bad");
    w.take("p");
    undeliverable(&mut w, "c");
    assert_eq!(w.all_heard(), ["c: RESULT 1 handler_error of=p", "p: CANCEL 1 handler_error"]);
}

#[test]
fn a_result_that_cannot_be_delivered_ends_its_call_without_its_body() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say_with("p", &completed(1), "bad");
    w.take("p");
    undeliverable(&mut w, "c");
    assert_eq!(w.all_heard(), ["c: RESULT 1 handler_error of=p"]);
}

#[test]
fn a_part_of_a_fan_out_that_cannot_be_delivered_fails_only_that_part() {
    let mut w = World::pair("echo");
    w.join("q", provider("q", "echo"));
    w.say("c", &Call { select: Some(Select::All), ..call(1, "echo") });
    w.say_with("p", &completed(1), "bad");
    undeliverable(&mut w, "c");
    w.say("q", &completed(1));
    assert_eq!(
        w.heard("c"),
        [
            "RESULT 1 handler_error of=p more",
            "RESULT 1 completed of=q more",
            "RESULT 1 completed summary=2/2/0"
        ]
    );
}

#[test]
fn a_part_that_cannot_be_delivered_does_not_come_after_the_end() {
    let mut w = World::pair("echo");
    w.say("c", &Call { select: Some(Select::All), ..call(1, "echo") });
    w.say_with("p", &completed(1), "bad");
    w.take("p");
    let Some(Outgoing::Message(message)) = w.take("c").into_iter().next() else { panic!("no part") };
    let connection = w.connection("c");
    w.input(Input::Undeliverable { connection, message, reason: "a map key is repeated".to_owned() });
    assert_eq!(w.all_heard(), Vec::<String>::new(), "its end has left already");
}
