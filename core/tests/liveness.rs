//! Silence: suspect, alive again, gone. Kinds of danger: liveness.
#![cfg(test)]

mod world;

use agent_reach_core::{Fact, Input, Liveness, Settings};
use world::*;

fn liveness(world: &mut World) -> Vec<(String, &'static str)> {
    let mut seen = Vec::new();
    for fact in world.take_facts() {
        if let Fact::Liveness { agent, to } = fact {
            seen.push((agent.to_string(), to.as_str()));
        }
    }
    seen
}

#[test]
fn a_silent_agent_is_pinged_and_gets_nothing_new_and_any_frame_makes_it_alive_again() {
    let mut w = World::pair("echo");
    w.advance(14_999);
    w.input(Input::Alive { connection: w.connection("c") });
    assert_eq!((w.all_heard(), liveness(&mut w)), (vec![], vec![]));
    w.advance(1);
    assert_eq!(w.all_heard(), ["p: PING"]);
    assert_eq!(liveness(&mut w), [("p".to_owned(), Liveness::Suspect.as_str())]);
    w.say("c", &call(1, "echo"));
    assert_eq!(w.all_heard(), ["c: RESULT 1 no_instance retryable"]);
    w.input(Input::Alive { connection: w.connection("p") });
    assert_eq!(liveness(&mut w), [("p".to_owned(), "ready")]);
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1"]);
}

#[test]
fn an_agent_silent_for_gone_ms_is_removed_and_its_calls_are_settled_at_once() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.all_heard();
    for _ in 0..29 {
        w.advance(1000);
        w.input(Input::Alive { connection: w.connection("c") });
    }
    w.say("c", &credit(1, 1));
    w.advance(999);
    assert_eq!(w.all_heard(), ["p: PING"]);
    w.advance(1);
    assert_eq!(w.all_heard(), ["c: RESULT 1 agent_lost of=p", "p: GOODBYE gone", "p: CLOSE 4001 gone"]);
    assert_eq!(liveness(&mut w), [("p".to_owned(), "suspect"), ("p".to_owned(), "gone")]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight), (0, 0));
}

#[test]
fn a_second_silence_is_noticed_as_fast_as_the_first_however_long_gone_ms_is() {
    let mut w = World::with(Settings { gone_ms: 120_000, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.advance(16_000);
    assert_eq!(w.all_heard(), ["p: PING"]);
    w.input(Input::Alive { connection: w.connection("p") });
    w.advance(14_999);
    assert_eq!(w.hub.gauges().agents_suspect, 0);
    w.advance(1);
    assert_eq!((w.all_heard(), w.hub.gauges().agents_suspect), (vec!["p: PING".to_owned()], 1));
}

#[test]
fn frames_do_not_move_the_timer_of_a_session() {
    let mut w = World::new();
    w.join("p", provider("p", "echo"));
    let due = w.hub.next_timeout();
    for _ in 0..100 {
        w.advance(10);
        w.input(Input::Alive { connection: w.connection("p") });
        assert_eq!(w.hub.next_timeout(), due);
    }
}

#[test]
fn a_connection_that_says_no_hello_is_ended_in_time() {
    let mut w = World::new();
    w.open("p");
    w.advance(4999);
    w.input(Input::Alive { connection: w.connection("p") });
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["p: GOODBYE protocol_error", "p: CLOSE 4501 protocol_error"]);
    w.lose("p");
    assert_eq!((w.hub.gauges().connections, w.hub.gauges().timers), (0, 0));
}
