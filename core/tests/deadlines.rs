//! Phase one, processing, budget, and the slots of those who missed them.
#![cfg(test)]

mod world;

use agent_reach_core::Outgoing;
use agent_reach_protocol::{Call, Capability, Hello, Priority, ToAgent, decode_to_agent};
use world::*;

fn one_slot() -> World {
    let mut w = World::new();
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.join("c", caller("c"));
    w
}

/// Milliseconds from ACCEPT to the end of a call that its provider never finishes.
fn processing_ms(timeout_ms: Option<u64>, own: Option<u64>, priority: Option<Priority>) -> u64 {
    let mut w = World::new();
    let offer = Capability { timeout_ms: own, ..capability("echo") };
    w.join("p", Hello { capabilities: vec![offer], ..caller("p") });
    w.join("c", caller("c"));
    w.say("c", &Call { timeout_ms, priority, budget_ms: Some(1_000_000), ..call(1, "echo") });
    w.say("p", &accept(1));
    w.all_heard();
    let mut waited = 0;
    loop {
        w.advance_alive(100);
        waited += 100;
        let heard = w.heard("c");
        if !heard.is_empty() {
            assert_eq!(heard, ["RESULT 1 timeout retryable of=p"]);
            return waited;
        }
    }
}

#[test]
fn a_provider_that_does_not_accept_in_time_is_cancelled() {
    let mut w = World::pair("echo");
    w.say("c", &Call { accept_timeout_ms: Some(250), ..call(1, "echo") });
    w.heard("p");
    w.advance(249);
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["c: RESULT 1 accept_timeout retryable of=p", "p: CANCEL 1 accept_timeout"]);
}

#[test]
fn processing_time_is_the_calls_own_else_the_capabilitys_else_the_default_scaled_by_priority() {
    assert_eq!(processing_ms(None, None, None), 30_000);
    assert_eq!(processing_ms(Some(5000), None, None), 5000);
    assert_eq!(processing_ms(None, Some(2000), None), 2000);
    assert_eq!(processing_ms(Some(4000), None, Some(Priority::Low)), 2000);
    assert_eq!(processing_ms(Some(4000), None, Some(Priority::High)), 8000);
}

#[test]
fn no_call_gets_more_than_its_capabilitys_time_and_a_fifth() {
    assert_eq!(processing_ms(Some(60_000), Some(2000), None), 2400);
    assert_eq!(processing_ms(None, Some(2000), Some(Priority::High)), 2400);
}

#[test]
fn each_chunk_restarts_the_processing_time_and_never_the_budget() {
    let mut w = World::pair("echo");
    let asking = Call { stream: true, timeout_ms: Some(1000), budget_ms: Some(2500), ..call(1, "echo") };
    w.say("c", &asking);
    for seq in 0..3 {
        w.advance(800);
        w.say("p", &chunk(1, seq));
    }
    w.all_heard();
    w.advance(99);
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["c: RESULT 1 budget_exhausted of=p", "p: CANCEL 1 budget_exhausted"]);
}

#[test]
fn a_stream_that_stops_is_timed_out() {
    let mut w = World::pair("echo");
    w.say("c", &Call { stream: true, timeout_ms: Some(1000), ..call(1, "echo") });
    w.say("p", &chunk(1, 0));
    w.all_heard();
    w.advance(1000);
    assert_eq!(w.all_heard(), ["c: RESULT 1 timeout retryable of=p", "p: CANCEL 1 timeout"]);
}

#[test]
fn the_provider_is_told_what_is_left_for_it() {
    let mut w = World::pair("echo");
    for (asking, left) in [
        (Call { timeout_ms: Some(700), ..call(1, "echo") }, 700),
        (Call { timeout_ms: Some(9000), budget_ms: Some(800), ..call(2, "echo") }, 800),
        (Call { timeout_ms: Some(700), stream: true, budget_ms: Some(5000), ..call(3, "echo") }, 5000),
    ] {
        w.say("c", &asking);
        let Some(Outgoing::Message(message)) = w.take("p").pop() else { panic!("no CALL") };
        let Ok((ToAgent::Call(given), _)) = decode_to_agent(&message) else { panic!("no CALL") };
        assert_eq!(given.deadline_ms, left);
    }
}

#[test]
fn the_slot_of_a_timed_out_call_stays_taken_until_the_provider_answers() {
    let mut w = one_slot();
    w.say("c", &Call { accept_timeout_ms: Some(100), ..call(1, "echo") });
    w.advance(100);
    w.all_heard();
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["c: RESULT 2 overloaded retryable"]);
    w.say("p", &failed(1, "cancelled", false));
    w.say("c", &call(3, "echo"));
    assert_eq!((w.all_heard(), w.hub.counters().late), (vec!["p: CALL 2 echo by=c try=1".to_owned()], 1));
}

#[test]
fn the_slot_of_a_cancelled_call_is_free_again_timeout_ms_after_the_cancel_at_the_latest() {
    let mut w = one_slot();
    w.say("c", &Call { timeout_ms: Some(4000), ..call(1, "echo") });
    w.say("p", &accept(1));
    w.advance(1000);
    w.say("c", &cancel(1));
    w.all_heard();
    w.advance(3999);
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["c: RESULT 2 overloaded retryable"]);
    w.advance(1);
    assert_eq!(w.hub.gauges().in_flight, 0);
    w.say("c", &call(3, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 2 echo by=c try=1"]);
}

#[test]
fn the_slot_of_a_cancelled_call_is_free_when_its_connection_is_lost() {
    let mut w = one_slot();
    w.say("c", &call(1, "echo"));
    w.say("c", &cancel(1));
    w.lose("p");
    assert_eq!((w.hub.gauges().in_flight, w.hub.gauges().agents_away), (0, 0));
    w.join("p#2", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.say("c", &call(2, "echo"));
    assert_eq!(w.heard("p#2"), ["CALL 1 echo by=c try=1"]);
}

#[test]
fn a_single_slot_is_free_again_after_every_way_a_call_can_end() {
    let mut w = one_slot();
    let mut id = 0;
    let mut given = 0;
    for ending in 0..7 {
        id += 1;
        given += 1;
        w.say("c", &Call { accept_timeout_ms: Some(100), timeout_ms: Some(200), ..call(id, "echo") });
        assert_eq!(w.heard("p"), [format!("CALL {given} echo by=c try=1")], "after ending {ending}");
        match ending {
            0 => w.say("p", &completed(given)),
            1 => w.say("p", &failed(given, "unsupported", false)),
            2 => w.advance(100),
            3 => {
                w.say("p", &accept(given));
                w.advance(200);
            }
            4 => w.say("c", &cancel(id)),
            5 => w.say("p", &chunk(given, 0)),
            _ => {
                w.say("p", &chunk(given, 7));
                w.say("p", &completed(given));
            }
        }
        w.advance(200);
        assert_eq!((w.hub.gauges().in_flight, w.hub.gauges().calls), (0, 0), "after ending {ending}");
        w.all_heard();
    }
}
