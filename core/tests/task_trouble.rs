//! What random worlds came upon with tasks: a store that says nothing, hubs that end between two words to it, and rights
//! that go with who had them.
#![cfg(test)]

mod world;

use std::collections::BTreeMap;

use agent_reach_core::{Input, Policy, Settings, StoreNews, TaskState};
use agent_reach_protocol::{Call, CallMode, Capability, Hello, encode};
use world::*;

/// The hub of after so many restarts.
fn later(lives: u64) -> Settings {
    Settings { started_unix_ms: 2_000_000 * lives, seed: 1 + lives, ..Settings::default() }
}

/// A provider, a caller and a store.
fn pair() -> World {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w
}

fn keyed(id: u64) -> Call<'static> {
    Call { request_id: Some("r"), keep_ms: Some(3_600_000), ..call(id, "echo") }
}

#[test]
fn a_call_waits_for_a_silent_store_no_longer_than_for_any_other_to_accept() {
    let mut w = pair();
    w.say("c", &keyed(1));
    w.say("p", &completed(1));
    w.write();
    w.crash(later(1));
    w.join("c", caller("c"));
    w.say("c", &keyed(1));
    w.say("c", &Call { accept_timeout_ms: Some(500), ..call(2, "hub.tasks.list") });
    w.say("c", &Call { budget_ms: Some(1000), ..call(3, "hub.tasks.list") });
    assert_eq!(w.heard("c"), [""; 0]);
    w.advance_alive(499);
    assert_eq!(w.heard("c"), [""; 0]);
    w.advance_alive(1);
    assert_eq!(w.heard("c"), ["RESULT 2 accept_timeout retryable"]);
    w.advance_alive(500);
    assert_eq!(w.heard("c"), ["RESULT 3 budget_exhausted"]);
    w.advance_alive(2000);
    assert_eq!(w.heard("c"), ["RESULT 1 accept_timeout retryable"]);
    // Too late, and for nobody.
    w.write();
    assert_eq!(w.all_heard(), [""; 0]);
    w.say("c", &keyed(4));
    w.write();
    assert_eq!(w.heard("c"), ["RESULT 4 completed of=p duplicate"], "it is well again");
    assert_eq!(w.hub.gauges().timers, 2, "of a session and the sweep");
}

#[test]
fn who_waits_for_the_end_of_a_task_to_be_written_waits_as_long_as_its_budget() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &accept(1));
    w.write();
    drop(w.all_heard());
    let body = [b"\x81\xa7task_id\xd9\x24", w.only_task().as_bytes()].concat();
    let cancel = Call { budget_ms: Some(5000), ..call(2, "hub.tasks.cancel") };
    w.say_bytes("c", encode(&cancel, Some(&body)));
    w.say("p", &failed(1, "cancelled", false));
    w.advance_alive(4999);
    assert_eq!(w.heard("c"), [""; 0], "the end is not written");
    w.advance_alive(1);
    assert_eq!(w.heard("c"), ["RESULT 2 budget_exhausted"]);
    w.write();
    assert_eq!(w.heard("c"), ["RESULT 1 cancelled of=p task"], "what it was for has been done");
}

#[test]
fn a_task_whose_outcome_is_unknown_is_never_left_as_nobodys() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &accept(1));
    w.write();
    w.crash(later(1));
    w.advance(Settings::default().return_ms);
    // This hub ends too, when the first thing that it had to say of the task is written.
    w.write_some(1);
    w.crash(later(2));
    w.join("q", provider("q", "echo"));
    w.write();
    assert_eq!(w.heard("q"), [""; 0], "p may have run it");
    assert_eq!(w.stored().state, TaskState::Failed);
}

#[test]
fn a_task_whose_tries_are_spent_is_never_left_as_nobodys() {
    let mut w = pair();
    w.say("c", &Call { retries: Some(0), ..task(1, "echo") });
    w.write();
    w.say("p", &accept(1));
    w.write();
    w.say("p", &failed(1, "overloaded", true));
    w.write_some(1);
    w.crash(later(1));
    w.join("q", provider("q", "echo"));
    w.write();
    assert_eq!(w.heard("q"), [""; 0]);
    assert_eq!(w.stored().state, TaskState::Failed);
}

#[test]
fn who_has_a_task_has_it_again_as_what_it_was_whatever_its_alias_means_now() {
    let alias = |name: &str| Policy {
        aliases: BTreeMap::from([("say".to_owned(), name.to_owned())]),
        ..Policy::open()
    };
    let both = || Hello { capabilities: vec![capability("echo"), capability("echo.loud")], ..caller("p") };
    let mut w = World::with_store_under(Settings::default(), alias("echo"));
    w.join("p", both());
    w.join("c", caller("c"));
    w.say("c", &task(1, "say"));
    w.say("c", &Call { request_id: Some("other"), capability: "say", ..task(2, "nobody") });
    w.write();
    assert_eq!(w.heard("p").len(), 2);
    w.say("p", &accept(1));
    w.say("p", &failed(2, "overloaded", true));
    w.write();
    w.crash_under(later(1), alias("echo.loud"));
    w.join_and_hear("p", both(), &["WELCOME", "CALL 1 echo by=c try=2 task"]);
}

#[test]
fn a_task_is_no_longer_bound_by_what_its_caller_declared_when_that_is_gone() {
    let offer = || Capability { aliases: vec!["say"], ..capability("echo") };
    let mut w = World::with_store(Settings::default());
    w.join("p", Hello { capabilities: vec![offer()], ..caller("p") });
    w.join("q", Hello { max_concurrency: Some(1), ..provider("q", "say") });
    w.join("c", Hello { calls: Some(vec!["say"]), ..caller("c") });
    for (id, request_id) in [(1, "first"), (2, "second")] {
        w.say("c", &Call { request_id: Some(request_id), ..task(id, "say") });
    }
    w.write();
    assert_eq!(w.all_heard(), ["c: ACCEPT 1 task", "c: ACCEPT 2 task", "q: CALL 1 say by=c try=1 task"]);
    w.lose("c");
    w.write();
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1 task"]);
}

#[test]
fn an_agent_that_comes_back_and_declares_more_has_what_waits_for_it_looked_at_again() {
    let offer = || Capability { aliases: vec!["say"], ..capability("echo") };
    let mut w = World::with_store(Settings::default());
    w.join("p", Hello { capabilities: vec![offer()], ..caller("p") });
    w.join("q", Hello { max_concurrency: Some(1), ..provider("q", "say") });
    w.join("c", Hello { calls: Some(vec!["say"]), ..caller("c") });
    for id in 1..=2 {
        w.say("c", &Call { queue: None, ..call(id, "say") });
    }
    assert_eq!(w.all_heard(), ["q: CALL 1 say by=c try=1"]);
    w.join_and_hear("c#2", Hello { calls: Some(vec!["say", "echo"]), ..caller("c") }, &["WELCOME replaced"]);
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1"]);
}

#[test]
fn what_a_stopped_hub_still_has_written_goes_on_in_its_numbers() {
    let mut w = pair();
    w.say("c", &Call { budget_ms: Some(1000), ..keyed(1) });
    w.say("p", &accept(1));
    w.say("c", &Call { mode: Some(CallMode::Task), request_id: Some("task"), ..call(2, "echo") });
    w.lose("c");
    w.lose("p");
    let unwritten = w.disk.waiting();
    w.input(Input::Stop);
    w.input(Input::Store(StoreNews::Writable(true)));
    // The numbers of what is to be written count up: the store of this world asserts it.
    w.advance(60_000);
    assert_eq!((unwritten, w.disk.waiting()), (1, 2));
}
