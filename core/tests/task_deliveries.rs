//! What becomes of deliveries when answers of the store come late.
#![cfg(test)]

mod world;

use agent_reach_core::{Answer, Input, Settings, StoreNews};
use world::*;

#[test]
fn an_answer_that_comes_after_a_reconnect_does_not_hide_what_the_agent_is_owed() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.lose("c");
    w.say("p", &completed(1));
    w.write();
    // The first connection's question is answered when the second one has put its own.
    w.join("c#2", caller("c"));
    w.lose("c#2");
    w.join("c#3", caller("c"));
    w.input(Input::Store(StoreNews::Answered { number: 1, answer: Answer::Owed(Vec::new()) }));
    w.write();
    assert_eq!(w.heard("c#3"), ["RESULT - completed of=p task"]);
}

#[test]
fn an_answer_that_takes_longer_than_the_next_look_is_waited_for() {
    let mut w = World::with_store(Settings { redeliver_ms: 100, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &completed(1));
    w.write();
    assert_eq!(w.heard("c").last().map(String::as_str), Some("RESULT 1 completed of=p task"));
    // It is not confirmed, so the store is asked again; before it answers it is time to look once more.
    w.advance(250);
    w.write();
    assert_eq!(w.heard("c"), ["RESULT - completed of=p task"]);
}

#[test]
fn what_is_confirmed_does_not_come_again_though_the_store_has_not_written_that_yet() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &completed(1));
    w.write();
    w.heard("c");
    let task_id = w.only_task();
    w.say("c", &receipt(&task_id));
    // It comes back, and the store answers, before the receipt is written.
    w.lose("c");
    w.join("c#2", caller("c"));
    w.answer();
    assert_eq!(w.heard("c#2"), [""; 0]);
    w.write();
    w.advance_alive(40_000);
    w.write();
    assert_eq!((w.heard("c#2"), w.hub.gauges().tasks), (vec![], [0; 3]));
}
