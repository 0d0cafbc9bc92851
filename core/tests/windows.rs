//! Several windows of one token: each is an agent of its own, and all are the token.
#![cfg(test)]

mod world;

use agent_reach_core::{Fact, Input, Policy, Rule, Settings, WINDOWS_MAX};
use world::*;

/// Of the tokens `alice` and `bob` and of everybody's certificate.
fn policy() -> Policy {
    let mut policy = Policy::open();
    let all = policy.rules[0].clone();
    let token = |identity: &str| Rule { identity: Some(identity.to_owned()), ..all.clone() };
    policy.rules.splice(0..0, [token("token:alice"), token("token:bob")]);
    policy
}

/// A provider of `echo` and windows of alice's token, by these names.
fn world(windows: &[&'static str]) -> World {
    let mut w = World::with_store(Settings::default());
    w.input(Input::SetPolicy(policy()));
    w.join("p", provider("p", "echo"));
    for window in windows {
        w.join(&format!("token:alice#{window}"), caller(window));
    }
    w
}

/// What the hub says of a task to one who asks.
fn ask_task(w: &mut World, who: &str, id: u64, task: &str) -> String {
    let mut body = Vec::new();
    let asked = rmpv::Value::Map(vec![("task_id".into(), task.into())]);
    rmpv::encode::write_value(&mut body, &asked).unwrap();
    w.say_bytes(who, agent_reach_protocol::encode(&call(id, "hub.tasks.get"), Some(&body)));
    w.write();
    let heard = w.take(who);
    bodies(&heard).iter().map(|body| String::from_utf8_lossy(body)).collect()
}

#[test]
fn windows_of_a_token_live_side_by_side_and_each_replaces_only_itself() {
    let mut w = world(&["alice", "alice/a", "alice/b"]);
    w.say("token:alice#alice/a", &call(1, "echo"));
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=alice/a try=1"]);
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["token:alice#alice/a: RESULT 1 completed of=p"]);
    w.join("token:alice#again", caller("alice/a"));
    assert_eq!(
        w.all_heard(),
        ["token:alice#alice/a: GOODBYE replaced", "token:alice#alice/a: CLOSE 4500 replaced"]
    );
}

#[test]
fn nobody_is_a_window_of_somebody_elses() {
    let mut w = world(&["alice/a"]);
    for (who, as_agent, code) in [
        ("token:bob", "alice/a", "unauthorized"),
        ("token:bob", "alice", "unauthorized"),
        ("alice", "alice/a", "protocol_error"),
        ("token:alice#2", "alice/a/b", "protocol_error"),
        ("token:alice#3", "alice/", "protocol_error"),
    ] {
        w.open(who);
        w.say(who, &caller(as_agent));
        assert_eq!(w.heard(who)[0], format!("GOODBYE {code}"), "{who} as {as_agent}");
    }
    assert_eq!(w.heard("token:alice#alice/a"), [""; 0], "the window is where it was");
}

#[test]
fn a_token_has_so_many_windows_and_one_that_comes_back_is_no_further_one() {
    let names: Vec<String> = (0..WINDOWS_MAX).map(|n| format!("alice/{n}")).collect();
    let mut w = world(&["alice"]);
    for name in &names {
        w.join(&format!("token:alice#{name}"), caller(name));
    }
    w.take_facts();
    w.open("token:alice#more");
    w.say("token:alice#more", &caller("alice/more"));
    assert_eq!(w.heard("token:alice#more"), ["GOODBYE unauthorized", "CLOSE 4503 unauthorized"]);
    assert!(w.take_facts().iter().any(|fact| matches!(fact, Fact::Refused { .. })));
    w.join("token:bob", caller("bob/0"));
    w.join("token:alice#2", caller("alice/0"));
    w.lose("token:alice#alice/1");
    w.join("token:alice#then", caller("alice/then"));
}

#[test]
fn a_window_that_is_away_and_awaited_keeps_its_place() {
    let names: Vec<String> = (0..WINDOWS_MAX).map(|n| format!("alice/{n}")).collect();
    let mut w = world(&[]);
    for name in &names {
        w.join(&format!("token:alice#{name}"), caller(name));
    }
    w.say("token:alice#alice/3", &call(1, "echo"));
    w.lose("token:alice#alice/3");
    w.open("token:alice#more");
    w.say("token:alice#more", &caller("alice/more"));
    assert_eq!(w.heard("token:alice#more")[0], "GOODBYE unauthorized");
    w.advance(Settings::default().resume_ms);
    w.join("token:alice#later", caller("alice/later"));
}

#[test]
fn names_that_are_made_up_each_time_are_no_way_around_the_bound_of_registrations() {
    let mut w = world(&[]);
    let most = Settings::default().registrations_per_10s * WINDOWS_MAX;
    for n in 0..most {
        let (who, name) = (format!("token:alice#{n}"), format!("alice/{n}"));
        w.join(&who, caller(&name));
        w.lose(&who);
    }
    w.open("token:alice#more");
    w.say("token:alice#more", &caller("alice/more"));
    assert_eq!(w.heard("token:alice#more")[0], "GOODBYE rate_limited after=10000");
    w.join("token:bob", caller("bob/0"));
    w.join("token:alice", caller("alice"));
}

#[test]
fn every_window_sees_the_tasks_of_its_token_and_the_result_goes_to_the_one_that_asked() {
    let mut w = world(&["alice/a", "alice/b"]);
    w.say("token:alice#alice/a", &task(1, "echo"));
    w.write();
    let task = w.only_task();
    w.lose("token:alice#alice/a");
    w.say_with("p", &completed(1), "y");
    w.write();
    let asked = ask_task(&mut w, "token:alice#alice/b", 1, &task);
    assert!(asked.contains("SUCCEEDED") && asked.contains("alice/a"), "{asked}");
    w.join("token:bob", caller("bob/a"));
    let foreign = ask_task(&mut w, "token:bob", 1, &task);
    assert!(!foreign.contains("SUCCEEDED"), "{foreign}");
    assert_eq!(w.heard("token:alice#alice/b"), [""; 0], "the result is the other's");
    w.join("token:alice#back", caller("alice/a"));
    w.write();
    assert_eq!(w.heard("token:alice#back"), ["RESULT - completed of=p task \"y\""]);
}

#[test]
fn a_token_that_is_taken_back_ends_all_its_windows() {
    let mut w = world(&["alice", "alice/a", "alice/b"]);
    w.join("token:bob", caller("bob/a"));
    let mut policy = policy();
    policy.rules.remove(0);
    w.input(Input::SetPolicy(policy));
    let mut heard = w.all_heard();
    heard.retain(|line| line.contains("GOODBYE"));
    assert_eq!(heard.len(), 3, "{heard:?}");
    assert!(heard.iter().all(|line| line.contains("alice") && line.ends_with("unauthorized")), "{heard:?}");
}
