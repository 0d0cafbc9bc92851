//! `hub.config.reload`: the CALL is open until the shell has answered.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, RELOADS_MAX, Reloaded};
use agent_reach_protocol::Cancel;
use world::*;

fn reloaded(number: u64) -> Input {
    let outcome = Ok(Reloaded { policy_version: 7, changed: vec!["policy.file"] });
    Input::Reloaded { number, outcome }
}

#[test]
fn a_reload_is_answered_when_the_shell_has_read_its_files() {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.say("c", &call(1, "hub.config.reload"));
    assert_eq!((w.heard("c"), w.reloads.as_slice()), (vec![], [1].as_slice()));
    w.input(reloaded(1));
    let answer = w.take("c");
    assert!(shown(&answer[0]).starts_with("RESULT 1 completed of=hub"), "{}", shown(&answer[0]));
    let body = rmpv::decode::read_value(&mut &*bodies(&answer)[0]).unwrap();
    assert_eq!(
        (body["policy_version"].as_u64(), body["changed"][0].as_str()),
        (Some(7), Some("policy.file"))
    );
}

#[test]
fn a_file_that_cannot_be_used_fails_the_call_with_the_reason() {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.say("c", &call(1, "hub.config.reload"));
    w.input(Input::Reloaded { number: 1, outcome: Err("policy.toml:3: rules: no list".to_owned()) });
    assert_eq!(w.heard("c"), ["RESULT 1 handler_error"]);
}

#[test]
fn reloads_that_wait_are_bounded_until_the_shell_has_answered_also_those_that_nobody_waits_for() {
    let mut w = World::new();
    w.join("c", caller("c"));
    for id in 1..=RELOADS_MAX as u64 {
        w.say("c", &call(id, "hub.config.reload"));
    }
    w.say("c", &Cancel { id: 1, reason: None, wait: false });
    assert_eq!(w.heard("c"), ["RESULT 1 cancelled"]);
    w.say("c", &call(20, "hub.config.reload"));
    assert_eq!(w.heard("c"), ["RESULT 20 overloaded retryable"]);
    w.input(reloaded(1));
    assert_eq!(w.heard("c"), [""; 0], "nobody waits for it any more");
    w.say("c", &call(21, "hub.config.reload"));
    assert_eq!((w.heard("c"), w.reloads.len()), (vec![], RELOADS_MAX + 1));
}

#[test]
fn a_caller_that_leaves_is_not_waited_for() {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.say("c", &call(1, "hub.config.reload"));
    w.lose("c");
    w.advance(20_000);
    w.input(reloaded(1));
    assert_eq!((w.hub.gauges().connections, w.hub.gauges().agents_away), (0, 0));
}
