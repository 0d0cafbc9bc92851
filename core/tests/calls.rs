//! CALL, ACCEPT, CHUNK, CREDIT, RESULT between one caller and one provider.
#![cfg(test)]

mod world;

use world::*;

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
