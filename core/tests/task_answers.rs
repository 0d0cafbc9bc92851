//! What the store says of a task may have been read before its end was written: no CALL waits in vain for that.
#![cfg(test)]

mod world;

use agent_reach_core::{Answer, Input, Settings, StoreNews, TaskRow};
use agent_reach_protocol::{Call, encode};
use world::*;

/// A task whose end is not written yet, and what the store knows of it.
fn ending() -> (World, TaskRow) {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &completed(1));
    w.all_heard();
    let row = w.stored();
    assert_eq!(row.end, None);
    (w, row)
}

/// The answer to the first question.
fn answer(w: &mut World, row: TaskRow) {
    w.input(Input::Store(StoreNews::Answered { number: 1, answer: Answer::Task(Some(Box::new(row))) }));
}

fn ask(w: &mut World, id: u64, capability: &str, row: &TaskRow) {
    let mut body = Vec::new();
    let task_id = rmpv::Value::Map(vec![("task_id".into(), row.id.to_string().into())]);
    rmpv::encode::write_value(&mut body, &task_id).unwrap();
    let stream = capability.ends_with("watch");
    w.say_bytes("c", encode(&Call { stream, credit: Some(9), ..call(id, capability) }, Some(&body)));
}

#[test]
fn a_repetition_while_the_end_is_being_written_has_the_end_under_its_own_id() {
    let (mut w, row) = ending();
    w.say("c", &task(2, "echo"));
    answer(&mut w, row);
    w.write();
    assert_eq!(
        w.heard("c"),
        ["ACCEPT 2 task", "RESULT 1 completed of=p task", "RESULT 2 completed of=p task"]
    );
}

#[test]
fn an_answer_from_before_the_end_that_comes_behind_it_is_asked_for_once_more() {
    let (mut w, row) = ending();
    w.say("c", &task(2, "echo"));
    w.write_some(1);
    answer(&mut w, row);
    w.write();
    assert_eq!(w.heard("c"), ["RESULT 1 completed of=p task", "RESULT 2 completed of=p task duplicate"]);
}

#[test]
fn a_cancel_while_the_end_is_being_written_is_answered_when_it_is() {
    let (mut w, row) = ending();
    ask(&mut w, 2, "hub.tasks.cancel", &row);
    answer(&mut w, row);
    assert_eq!(w.heard("c"), [""; 0]);
    w.write();
    let heard = w.heard("c");
    assert_eq!(heard[0], "RESULT 1 completed of=p task");
    assert!(heard[1].contains("SUCCEEDED") && heard.len() == 2, "{heard:?}");
}

#[test]
fn a_watch_of_a_task_whose_end_was_written_meanwhile_shows_the_end() {
    let (mut w, row) = ending();
    ask(&mut w, 2, "hub.tasks.watch", &row);
    w.write_some(1);
    answer(&mut w, row);
    w.write();
    let heard = w.heard("c");
    assert!(heard.iter().any(|line| line.starts_with("CHUNK 2") && line.contains("SUCCEEDED")), "{heard:?}");
}

#[test]
fn an_end_that_has_no_room_is_written_as_what_its_caller_is_told() {
    let mut w = World::with_store(Settings { max_message: 2000, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.say_with("p", &completed(1), &"x".repeat(1950));
    w.write();
    assert_eq!(w.heard("c"), ["ACCEPT 1 task", "RESULT 1 payload_too_large of=p task"]);
    assert_eq!(w.stored().outcome.as_deref(), Some("payload_too_large"));
}

#[test]
fn a_stop_leaves_no_timer_of_a_delivery() {
    let (mut w, _) = ending();
    w.write();
    w.input(Input::Stop);
    assert_eq!(w.hub.gauges().timers, 1, "the sweep");
}

#[test]
fn an_id_that_the_store_might_have_known_and_does_not_is_asked_for_once() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    for id in 1..=50 {
        let request_id = format!("kept-{id}");
        w.say("c", &Call { request_id: Some(&request_id), ..call(id, "echo") });
        w.say("p", &completed(id));
    }
    w.write();
    assert_eq!(w.disk.calls.len(), 50);
    // No room for the numbers of all of them.
    let small = Settings { dedupe_bytes: 1000, started_unix_ms: 2_000_000, ..Settings::default() };
    w.crash(small);
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &Call { request_id: Some("new"), ..call(1, "echo") });
    assert_eq!(w.heard("p"), [""; 0]);
    w.input(Input::Store(StoreNews::Answered { number: 1, answer: Answer::Key(None) }));
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1"]);
}

#[test]
fn an_id_whose_end_is_on_its_way_to_the_store_is_not_taken_for_a_new_one() {
    // No end has room in memory.
    let mut w = World::with_store(Settings { dedupe_bytes: 0, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    let kept = |id| Call { request_id: Some("r"), ..call(id, "echo") };
    w.say("c", &kept(1));
    w.say("p", &completed(1));
    assert_eq!((w.heard("p"), w.disk.waiting()), (vec!["CALL 1 echo by=c try=1".to_owned()], 1));
    let end = w.heard("c").pop();
    w.say("c", &kept(2));
    assert_eq!(w.heard("c"), ["RESULT 2 overloaded retryable"]);
    w.write();
    w.say("c", &kept(3));
    w.write();
    assert_eq!(w.heard("p"), [""; 0], "it ran once");
    assert_eq!(end.as_deref(), Some("RESULT 1 completed of=p"));
    assert_eq!(w.heard("c"), ["RESULT 3 completed of=p duplicate"]);
}

#[test]
fn an_answer_from_before_a_call_ran_does_not_have_it_run_again() {
    let mut w = World::with_store(Settings { dedupe_bytes: 0, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    let kept = |id| Call { request_id: Some("r"), ..call(id, "echo") };
    // The hub knows that the store may know "r", which it does not.
    w.say("c", &kept(1));
    w.say("p", &completed(1));
    w.write();
    w.disk.calls.clear();
    w.say("c", &kept(2));
    w.say("c", &kept(3));
    let asked = |number| Input::Store(StoreNews::Answered { number, answer: Answer::Key(None) });
    w.input(asked(1));
    w.say("p", &completed(2));
    w.write_some(1);
    w.heard("p");
    // Read before the second run was written.
    w.input(asked(2));
    assert_eq!(w.heard("p"), [""; 0]);
    assert_eq!(w.heard("c").last().map(String::as_str), Some("RESULT 3 overloaded retryable"));
}

#[test]
fn a_stored_call_that_asks_for_no_task_ends_as_what_cannot_be_read() {
    let mut w = World::with_store(Settings::default());
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    for stored in w.disk.tasks.values_mut() {
        stored.new.call = encode(&call(1, "echo"), None);
    }
    w.crash(Settings { started_unix_ms: 2_000_000, ..Settings::default() });
    w.write();
    assert_eq!(w.stored().outcome.as_deref(), Some("internal"));
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().open_bytes), (0, 0));
}
