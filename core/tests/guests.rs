//! Guests: they call as agents do, and are none.
#![cfg(test)]

mod world;

use agent_reach_core::{DedupeOutcome, Fact, Gauges, Input, Policy, Settings};
use agent_reach_protocol::Call;
use world::*;

/// A provider, an agent `c`, and a guest of the same name.
fn three() -> World {
    let mut w = World::pair("echo");
    w.open_guest("c#guest");
    w.take_facts();
    w
}

#[test]
fn a_guest_calls_beside_the_agent_of_its_name_and_does_not_disturb_it() {
    let mut w = three();
    w.say("c", &call(1, "echo"));
    w.say_with("c#guest", &call(1, "echo"), "x");
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1", "p: CALL 2 echo by=c try=1 \"x\""]);
    w.say_with("p", &completed(2), "y");
    assert_eq!(w.all_heard(), ["c#guest: RESULT 1 completed of=p \"y\""]);
    w.lose("c#guest");
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"], "the agent is where it was");
    w.say("c", &call(2, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 3 echo by=c try=1"]);
}

#[test]
fn nobody_is_told_of_a_guest_and_no_list_has_it() {
    let mut w = World::pair("echo");
    let before = w.hub.gauges();
    w.take_facts();
    w.open_guest("g");
    assert_eq!(w.take_facts().len(), 0, "it is not registered");
    assert_eq!(w.hub.gauges(), Gauges { guests: 1, ..before });
    w.say("c", &call(1, "hub.agents.list"));
    let shown = bodies(&w.take("c"))
        .iter()
        .map(|body| String::from_utf8_lossy(body).into_owned())
        .collect::<String>();
    assert!(shown.contains("agent_id") && !shown.contains("\u{a1}g"), "{shown}");
    w.say("c", &Call { agents: Some(vec!["g"]), ..call(2, "echo") });
    assert_eq!(w.heard("c"), ["RESULT 2 no_instance retryable"]);
    w.lose("g");
    assert!(!w.take_facts().iter().any(|fact| matches!(fact, Fact::Left { .. } | Fact::Registered { .. })));
    assert_eq!(Gauges { guests: 0, remembered: before.remembered, ..w.hub.gauges() }, before);
}

#[test]
fn a_guest_that_goes_has_its_call_cancelled_at_once() {
    let mut w = three();
    w.say("c#guest", &call(1, "echo"));
    w.say("p", &accept(1));
    w.all_heard();
    w.lose("c#guest");
    assert_eq!(w.all_heard(), ["p: CANCEL 1 the caller went away"], "nothing waits for it to come back");
    w.say("p", &completed(1));
    let gauges = w.hub.gauges();
    assert_eq!((gauges.calls, gauges.in_flight, gauges.open_bytes, gauges.guests), (0, 0, 0, 0));
}

#[test]
fn a_call_that_another_joined_goes_on_when_the_guest_goes() {
    let mut w = three();
    let asked = Call { request_id: Some("r"), ..call(1, "echo") };
    w.say("c#guest", &asked);
    w.open_guest("c#second");
    w.say("c#second", &asked);
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1"], "one run");
    w.lose("c#guest");
    w.say_with("p", &completed(1), "y");
    assert_eq!(w.all_heard(), ["c#second: RESULT 1 completed of=p \"y\""]);
    w.open_guest("c#third");
    w.say("c#third", &asked);
    assert_eq!(w.all_heard(), ["c#third: RESULT 1 completed of=p duplicate \"y\""]);
    let joined = |fact: &&Fact| matches!(fact, Fact::Dedupe(DedupeOutcome::Joined));
    assert_eq!(w.take_facts().iter().filter(joined).count(), 1);
}

#[test]
fn the_task_of_a_guest_goes_on_without_it_and_comes_home_to_the_agent_of_its_name() {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.open_guest("c#guest");
    w.say("c#guest", &task(1, "echo"));
    w.write();
    assert_eq!(w.heard("c#guest"), ["ACCEPT 1 task"]);
    w.lose("c#guest");
    w.write();
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1 task"]);
    w.say_with("p", &completed(1), "y");
    w.write();
    w.open_guest("c#guest");
    assert_eq!(w.all_heard(), [""; 0], "a guest gets nothing that it did not ask for");
    w.join("c", caller("c"));
    w.answer();
    assert_eq!(w.all_heard(), ["c: RESULT - completed of=p task \"y\""]);
}

#[test]
fn time_does_not_end_a_guest_and_a_policy_does() {
    let mut w = World::pair("echo");
    w.open_guest("g");
    w.say("g", &call(1, "echo"));
    w.advance_alive(59_000);
    assert!(w.heard("g").iter().all(|line| !line.starts_with("GOODBYE")), "silence is no crime of a guest");
    w.input(Input::SetPolicy(Policy::default()));
    assert!(w.heard("g")[0].starts_with("GOODBYE unauthorized"));
    w.open_guest("h");
    assert!(w.heard("h")[0].starts_with("GOODBYE unauthorized"), "nor does one come in");
}

#[test]
fn a_draining_hub_waits_for_the_call_of_a_guest_and_takes_no_new_one() {
    let mut w = three();
    w.say("c#guest", &call(1, "echo"));
    w.all_heard();
    w.input(Input::Drain { drain_ms: 10_000 });
    w.open_guest("c#late");
    w.say("c#late", &call(1, "echo"));
    assert_eq!(w.heard("c#late")[0], "RESULT 1 shutting_down retryable");
    w.say_with("p", &completed(1), "y");
    let heard = w.heard("c#guest");
    assert!(heard.contains(&"RESULT 1 completed of=p \"y\"".to_owned()), "{heard:?}");
    assert!(w.hub.is_over(w.connection("c#guest")));
}
