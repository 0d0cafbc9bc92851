//! Tasks: accepted when stored, given when that is stored, ended when that is stored; results that come home.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, Settings, StoreNews, TaskState};
use agent_reach_protocol::{Call, Capability, Hello};
use world::*;

/// A provider, a caller and a store.
fn pair() -> World {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w
}

fn idempotent() -> Hello<'static> {
    Hello {
        capabilities: vec![Capability { idempotent: true, ..capability("echo") }],
        ..provider("p", "echo")
    }
}

/// The hub of after a restart.
fn later() -> Settings {
    Settings { started_unix_ms: 2_000_000, seed: 2, ..Settings::default() }
}

#[test]
fn each_step_is_written_before_it_is_said() {
    let mut w = pair();
    w.say_with("c", &task(1, "echo"), "x");
    assert_eq!(w.all_heard(), [""; 0], "not stored, not accepted");
    w.write_some(1);
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 task"]);
    assert_eq!(w.stored().state, TaskState::Queued);
    w.write_some(1);
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 task \"x\""], "the store knows who is given it");
    assert_eq!(w.stored().holder.as_deref(), Some("p"));
    w.say("p", &accept(1));
    assert_eq!(w.all_heard(), [""; 0], "its caller has the hub's own ACCEPT");
    w.write();
    assert_eq!(w.stored().state, TaskState::Received);
    w.say_with("p", &completed(1), "y");
    assert_eq!(w.all_heard(), [""; 0], "the end is not stored");
    w.write();
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p task \"y\""]);
    assert_eq!(w.stored().state, TaskState::Succeeded);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().in_flight, w.hub.gauges().task_bytes), (0, 0, 0));
}

#[test]
fn a_store_that_cannot_write_refuses_new_tasks_and_lets_calls_through() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.refuse_writing();
    assert_eq!(w.all_heard(), ["c: RESULT 1 overloaded retryable"]);
    w.say("c", &task(2, "echo"));
    assert_eq!(w.all_heard(), ["c: RESULT 2 overloaded retryable"], "without another try");
    w.say("c", &Call { request_id: None, mode: None, ..task(3, "echo") });
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 3 completed of=p", "p: CALL 1 echo by=c try=1"]);
    let gauges = w.hub.gauges();
    assert_eq!((gauges.calls, gauges.task_bytes, gauges.open_bytes, gauges.store_ill), (0, 0, 0, true));
}

#[test]
fn without_anybody_it_waits_for_who_comes_and_its_budget_ends_it() {
    let mut w = World::with_store(Settings::default());
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.say("c", &Call { request_id: Some("other"), budget_ms: Some(60_000), ..task(2, "nobody") });
    w.write();
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 task", "c: ACCEPT 2 task"]);
    w.advance_alive(60_000);
    w.write();
    assert_eq!(w.all_heard(), ["c: RESULT 2 budget_exhausted task"]);
    w.advance_alive(3_600_000);
    w.join("p", provider("p", "echo"));
    w.write();
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1 task"]);
}

#[test]
fn its_result_finds_the_caller_on_a_later_connection_and_comes_again_until_it_is_confirmed() {
    let mut w = pair();
    w.say("c", &Call { timeout_ms: Some(60_000), ..task(1, "echo") });
    w.write();
    w.lose("c");
    w.say("p", &accept(1));
    w.advance_alive(60_000);
    w.say_with("p", &completed(1), "y");
    w.write();
    let result = "RESULT - completed of=p task \"y\"";
    w.join_and_hear("c#2", caller("c"), &["WELCOME"]);
    w.write();
    assert_eq!(w.heard("c#2"), [result]);
    w.advance_alive(30_000);
    w.write();
    assert_eq!(w.heard("c#2"), [result], "again, since nobody confirmed it");
    w.lose("c#2");
    w.join("c#3", caller("c"));
    w.write();
    assert_eq!(w.heard("c#3"), [result]);
    let id = w.only_task();
    w.say("c#3", &receipt(&id));
    w.advance_alive(120_000);
    w.write();
    assert_eq!(w.heard("c#3"), [""; 0]);
    w.lose("c#3");
    w.join("c#4", caller("c"));
    w.write();
    assert_eq!(w.heard("c#4"), [""; 0]);
    assert_eq!(w.hub.gauges().timers, 3, "the silence of two sessions, the sweep, and nothing of deliveries");
}

#[test]
fn a_receipt_for_what_was_never_sent_is_late_and_writes_nothing() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    let id = w.only_task();
    w.say("c", &receipt(&id));
    w.say("p", &receipt(&id));
    assert_eq!((w.hub.counters().late, w.disk.waiting()), (2, 0));
    w.all_heard();
    w.say("c", &receipt("nonsense"));
    assert_eq!(w.all_heard(), ["c: ERROR invalid_request kind=16"]);
}

#[test]
fn an_open_repetition_is_told_the_task_and_an_ended_one_its_end() {
    let mut w = pair();
    w.say_with("c", &task(1, "echo"), "x");
    w.say_with("c", &task(2, "echo"), "x");
    w.write();
    w.say_with("c", &task(3, "echo"), "x");
    assert_eq!(w.heard("c"), ["ACCEPT 1 task", "ACCEPT 2 task", "ACCEPT 3 task"]);
    assert_eq!(w.heard("p").len(), 1, "it runs once");
    w.say("c", &task(4, "echo"));
    w.say_with("c", &Call { mode: None, ..task(5, "echo") }, "x");
    assert_eq!(
        w.heard("c"),
        ["RESULT 4 idempotency_conflict", "RESULT 5 idempotency_conflict"],
        "another body, and another mode"
    );
    w.say("p", &completed(1));
    w.write();
    assert_eq!(w.heard("c").len(), 3, "each CALL has its end");
    w.say_with("c", &task(6, "echo"), "x");
    w.write();
    assert_eq!(w.heard("c"), ["RESULT 6 completed of=p task duplicate"]);
    assert_eq!(w.disk.tasks.len(), 1);
}

#[test]
fn a_retryable_failure_frees_the_request_id_and_a_final_one_does_not() {
    let mut w = pair();
    w.say("c", &Call { retries: Some(0), ..task(1, "echo") });
    w.write();
    w.say("p", &failed(1, "handler_error", true));
    w.write();
    w.say("c", &Call { retries: Some(0), ..task(2, "echo") });
    w.write();
    w.say("p", &failed(2, "handler_error", false));
    w.write();
    w.say("c", &task(3, "echo"));
    w.write();
    assert_eq!(
        w.heard("c"),
        [
            "ACCEPT 1 task",
            "ACCEPT 2 task",
            "RESULT 1 handler_error retryable of=p task",
            "RESULT 2 handler_error of=p task",
            "RESULT 3 handler_error of=p task duplicate"
        ]
    );
}

#[test]
fn what_no_agent_had_is_queued_after_a_crash_and_its_caller_need_not_be_there() {
    let mut w = World::with_store(Settings::default());
    w.join("c", caller("c"));
    w.say_with("c", &task(1, "echo"), "x");
    w.write();
    w.crash(later());
    w.join("p", provider("p", "echo"));
    w.write();
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1 task \"x\""]);
    w.say_with("p", &completed(1), "y");
    w.write();
    w.join("c", caller("c"));
    w.write();
    assert_eq!(w.heard("c"), ["RESULT - completed of=p task \"y\""]);
}

#[test]
fn after_a_crash_the_same_process_gets_its_task_again_and_no_other_one_does() {
    for given_only in [true, false] {
        let mut w = pair();
        w.say_with("c", &task(1, "echo"), "x");
        w.write();
        if !given_only {
            w.say("p", &accept(1));
            w.write();
        }
        w.crash(later());
        w.join("q", provider("q", "echo"));
        w.write();
        assert_eq!(w.heard("q"), [""; 0], "p may have run it");
        // That it has the task is written already.
        w.join_and_hear("p", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 task \"x\""]);
        w.write();
        w.say("p", &completed(1));
        w.write();
        assert_eq!(w.stored().state, TaskState::Succeeded);
        assert_eq!(w.stored().attempt, 2);
    }
}

#[test]
fn after_a_crash_a_task_whose_process_is_lost_fails_unless_it_may_run_again() {
    for (may_run_again, in_time) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut w = World::with_store(Settings::default());
        w.join("p", if may_run_again { idempotent() } else { provider("p", "echo") });
        w.join("c", caller("c"));
        w.say("c", &task(1, "echo"));
        w.write();
        w.crash(later());
        w.join("c", caller("c"));
        w.join("q", Hello { agent_id: "q", ..idempotent() });
        if in_time {
            // The same agent, another life of its process.
            w.join("p", Hello { instance: "life-2", ..provider("p", "other") });
        } else {
            w.advance_alive(Settings::default().return_ms);
        }
        w.write();
        match may_run_again {
            true => assert_eq!(w.heard("q"), ["CALL 1 echo by=c try=2 task"]),
            false => assert_eq!(w.heard("c"), ["RESULT - agent_lost of=p task"]),
        }
    }
}

#[test]
fn a_task_that_was_not_accepted_is_queued_again_when_its_agent_is_lost() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.lose("p");
    w.advance_alive(10_000);
    w.write();
    assert_eq!(w.stored().holder, None);
    w.join("q", provider("q", "echo"));
    w.write();
    assert_eq!(w.heard("q"), ["CALL 1 echo by=c try=2 task"]);
    w.say("q", &accept(1));
    w.lose("q");
    w.advance_alive(10_000);
    w.write();
    assert_eq!(w.heard("c"), ["ACCEPT 1 task", "RESULT 1 agent_lost of=q task"], "its outcome is unknown");
}

#[test]
fn past_twice_its_processing_time_without_a_sign_it_is_orphaned() {
    let mut w = pair();
    w.say("c", &Call { timeout_ms: Some(1000), stream: true, ..task(1, "echo") });
    w.write();
    w.say("p", &accept(1));
    w.advance_alive(1999);
    w.say_with("p", &chunk(1, 0), "half");
    w.write();
    assert_eq!(w.stored().state, TaskState::Processing);
    w.advance_alive(1999);
    w.write();
    assert_eq!(w.heard("c"), ["ACCEPT 1 task"]);
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1 credit=16 task", "CREDIT 1 +1"]);
    w.advance_alive(1);
    w.write();
    assert_eq!(w.heard("c"), ["RESULT 1 orphaned of=p task"]);
    assert_eq!(w.heard("p"), ["CANCEL 1 orphaned"]);
}

#[test]
fn a_caller_that_goes_away_takes_its_calls_with_it_and_not_its_tasks() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.say("c", &Call { accept_timeout_ms: Some(60_000), ..call(2, "echo") });
    w.write();
    w.say("p", &accept(2));
    w.write();
    w.lose("c");
    w.advance_alive(10_000);
    assert_eq!(
        w.heard("p"),
        ["CALL 1 echo by=c try=1", "CALL 2 echo by=c try=1 task", "CANCEL 1 the caller went away"]
    );
    assert_eq!(w.stored().state, TaskState::Received);
}

#[test]
fn while_the_hub_drains_waiting_tasks_stay_stored_and_running_ones_may_end() {
    let mut w = World::with_store(Settings::default());
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.say("c", &Call { request_id: Some("s"), ..task(2, "echo") });
    w.write();
    w.say("c", &Call { request_id: Some("t"), ..task(3, "echo") });
    w.heard("c");
    w.input(Input::Drain { drain_ms: 5000 });
    w.write();
    w.say("p", &completed(1));
    w.write();
    let p = w.heard("p");
    assert_eq!(p.iter().filter(|line| line.starts_with("CALL")).count(), 1, "{p:?}");
    assert_eq!(p.last().map(String::as_str), Some("CLOSE 4000 draining"), "nothing holds it any more");
    let states: Vec<bool> = w.disk.tasks.values().map(|task| task.end.is_some()).collect();
    assert_eq!(states.iter().filter(|ended| **ended).count(), 1, "{states:?}");
    w.input(Input::Stop);
    assert_eq!(w.disk.waiting(), 0, "a stop ends no task");
}

#[test]
fn a_stop_leaves_open_tasks_as_they_are() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &accept(1));
    w.write();
    w.input(Input::Stop);
    assert_eq!(w.disk.waiting(), 0);
    assert_eq!(w.stored().state, TaskState::Received);
    let gauges = w.hub.gauges();
    assert_eq!((gauges.calls, gauges.in_flight), (0, 0));
}

#[test]
fn its_result_goes_to_the_inbox_as_well_and_each_confirms_for_itself() {
    let mut w = pair();
    w.join("box", caller("box"));
    w.say("c", &Call { reply_to: Some("agent:box"), ..task(1, "echo") });
    w.write();
    w.say("p", &completed(1));
    w.write();
    assert_eq!(w.heard("box"), ["RESULT - completed of=p task"]);
    assert_eq!(w.heard("c"), ["ACCEPT 1 task", "RESULT 1 completed of=p task"]);
    let id = w.only_task();
    w.say("c", &receipt(&id));
    w.advance_alive(30_000);
    w.write();
    assert_eq!((w.heard("box"), w.heard("c")), (vec!["RESULT - completed of=p task".to_owned()], vec![]));
}

#[test]
fn what_only_tasks_have_is_refused_for_calls_and_what_tasks_have_not_for_them() {
    let mut w = pair();
    w.say("c", &Call { reply_to: Some("agent:box"), ..call(1, "echo") });
    w.say("c", &Call { callback_url: Some("https://x.test/"), ..call(2, "echo") });
    w.say("c", &Call { reply_to: Some("box"), ..task(3, "echo") });
    w.say("c", &Call { agents: Some(vec!["p", "q"]), ..task(4, "echo") });
    w.say("c", &Call { callback_url: Some("https://x.test/"), ..task(5, "echo") });
    assert_eq!(
        w.heard("c"),
        [
            "RESULT 1 invalid_request",
            "RESULT 2 invalid_request",
            "RESULT 3 invalid_request",
            "RESULT 4 invalid_request",
            "RESULT 5 unauthorized",
        ]
    );
    assert_eq!(w.disk.waiting(), 0);
}

#[test]
fn while_the_store_cannot_be_written_tasks_hold_no_slots_and_afterwards_they_go_on() {
    let mut w = World::with_store(Settings::default());
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.join("c", caller("c"));
    for (id, request_id) in [(1, "r"), (2, "s")] {
        w.say("c", &Call { request_id: Some(request_id), ..task(id, "echo") });
    }
    w.write_some(2);
    w.heard("c");
    assert_eq!(w.hub.gauges().in_flight, 1, "the slot is taken until the store knows");
    w.refuse_writing();
    assert_eq!(w.hub.gauges().in_flight, 0);
    w.say("c", &Call { queue: Some(false), ..call(3, "echo") });
    w.say("p", &completed(1));
    assert_eq!(
        (w.heard("p"), w.heard("c")),
        (vec!["CALL 1 echo by=c try=1".to_owned()], vec!["RESULT 3 completed of=p".to_owned()],)
    );
    w.advance_alive(60_000);
    w.input(Input::Store(StoreNews::Writable(true)));
    w.advance(10);
    w.write();
    assert_eq!(w.heard("p"), ["CALL 2 echo by=c try=1 task"]);
    w.say("p", &completed(2));
    w.write();
    assert_eq!(w.heard("p"), ["CALL 3 echo by=c try=1 task"]);
}

#[test]
fn who_returns_while_the_store_cannot_be_written_has_its_task_again_and_its_slot_taken() {
    let mut w = World::with_store(Settings::default());
    let one_slot = || Hello { max_concurrency: Some(1), ..provider("p", "echo") };
    w.join("p", one_slot());
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.crash(later());
    w.refuse_writing();
    w.join_and_hear("p", one_slot(), &["WELCOME", "CALL 1 echo by=c try=2 task"]);
    w.join("c", caller("c"));
    w.say("c", &Call { queue: Some(false), ..call(1, "echo") });
    assert_eq!(w.heard("c"), ["RESULT 1 overloaded retryable"], "its one slot is taken by the task");
    // Nobody else is given it, whatever becomes of the store.
    w.join("q", provider("q", "echo"));
    w.input(Input::Store(StoreNews::Writable(true)));
    w.refuse_writing();
    w.input(Input::Store(StoreNews::Writable(true)));
    w.write();
    w.advance_alive(100);
    w.write();
    assert_eq!((w.heard("p"), w.heard("q")), (vec![], vec![]));
}

#[test]
fn results_do_not_make_a_slow_consumer_of_who_reads_late() {
    let mut w = World::with_store(Settings { outbound_bytes: 1 << 20, ..Settings::default() });
    w.join("p", Hello { max_concurrency: Some(100), ..provider("p", "echo") });
    w.join("c", caller("c"));
    for n in 0..20 {
        let request_id = format!("r{n}");
        w.say("c", &Call { request_id: Some(&request_id), ..task(n + 1, "echo") });
    }
    w.write();
    w.lose("c");
    w.join("c#2", caller("c"));
    let large = "x".repeat(100_000);
    for id in 1..=20 {
        w.say_with("p", &completed(id), &large);
    }
    w.write();
    let mut got = 0;
    for _ in 0..20 {
        let results = w.heard("c#2");
        assert!(results.iter().all(|line| line.starts_with("RESULT - completed")), "{results:?}");
        got += results.len();
        for task in w.disk.tasks.keys().map(ToString::to_string).collect::<Vec<_>>() {
            w.say("c#2", &receipt(&task));
        }
        w.write();
    }
    assert_eq!(got, 20, "each once");
}
