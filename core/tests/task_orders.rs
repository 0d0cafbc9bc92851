//! Tasks while the store is slow: what was written for one try says nothing of the next one.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, Policy, Rule, Settings, StoreNews};
use agent_reach_protocol::names::Pattern;
use agent_reach_protocol::{AgentStatus, Hello, Update};
use world::*;

#[test]
fn a_process_that_came_back_as_another_is_given_a_task_only_when_that_is_written_of_itself() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write_some(1);
    // The first life is chosen, and gone before that is written.
    w.lose("p");
    w.join("p#2", Hello { instance: "life-2", ..provider("p", "echo") });
    w.write_some(2);
    assert_eq!(w.heard("p#2"), [""; 0], "the store names the first life, and then nobody");
    w.write_some(1);
    assert_eq!(w.heard("p#2"), ["CALL 1 echo by=c try=2 task"]);
}

#[test]
fn a_process_that_takes_over_as_another_is_the_one_that_the_store_names() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.join_and_hear("p#2", Hello { instance: "life-2", ..provider("p", "echo") }, &["WELCOME replaced"]);
    w.write();
    assert_eq!(w.heard("p#2"), ["CALL 1 echo by=c try=2 task"]);
    let holders: Vec<&str> =
        w.disk.tasks.values().filter_map(|task| Some(&*task.moved.holder.as_ref()?.instance)).collect();
    assert_eq!(holders, ["life-2"]);
}

#[test]
fn what_a_process_may_have_accepted_before_a_crash_goes_to_nobody_else_though_it_says_nothing_now() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &accept(1));
    w.write();
    w.crash(Settings { started_unix_ms: 2_000_000, seed: 2, ..Settings::default() });
    w.join("q", provider("q", "echo"));
    w.join_and_hear("p", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 task"]);
    w.advance_alive(60_000);
    w.write();
    assert_eq!(w.heard("q"), [""; 0]);
    assert_eq!(w.stored().outcome.as_deref(), Some("accept_timeout"));
}

#[test]
fn what_was_written_for_one_booking_lets_no_later_one_go_though_it_is_the_same_try_in_the_same_place() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write_some(1);
    // p is chosen; before that is written the store is ill and well again, and p is gone: it is q's turn.
    w.input(Input::Store(StoreNews::Writable(false)));
    w.say("p", &Update { status: Some(AgentStatus::Draining), ..update() });
    w.join("q", provider("q", "echo"));
    w.input(Input::Store(StoreNews::Writable(true)));
    w.advance(10);
    // p, and then nobody.
    w.write_some(2);
    assert_eq!((w.heard("p"), w.heard("q")), (vec![], vec![]), "the store knows nothing of q yet");
    w.write();
    assert_eq!(w.heard("q"), ["CALL 1 echo by=c try=1 task"]);
}

#[test]
fn while_a_booking_is_written_the_rules_of_its_caller_may_change() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write_some(1);
    assert_eq!(w.heard("c"), ["ACCEPT 1 task"]);
    let all = Rule { identity: None, agent_ids: None, provide: vec![Pattern::All], call: Vec::new() };
    w.input(Input::SetPolicy(Policy { rules: vec![all], ..Policy::default() }));
    w.write();
    assert_eq!((w.heard("p"), w.heard("c")), (vec![], vec!["RESULT 1 unauthorized task".to_owned()]));
}

#[test]
fn while_a_booking_is_written_its_agent_may_have_taken_itself_out() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write_some(1);
    w.say("p", &Update { status: Some(AgentStatus::Draining), ..update() });
    w.join("q", provider("q", "echo"));
    w.write();
    assert_eq!((w.heard("p"), w.heard("q")), (vec![], vec!["CALL 1 echo by=c try=1 task".to_owned()]));
}
