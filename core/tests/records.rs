//! What the hub says of calls that have ended, and of acts, for records and the audit.
#![cfg(test)]

mod world;

use agent_reach_core::{CallRecord, Fact, Settings};
use agent_reach_protocol::{Call, Select};
use rmpv::Value;
use world::*;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn settings() -> Settings {
    Settings { records: true, ..Settings::default() }
}

fn world() -> World {
    let mut w = World::with(settings());
    for name in ["p1", "p2"] {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    w.take_facts();
    w
}

fn ask(w: &mut World, call: &Call<'_>, entries: &[(&str, &str)]) {
    let body =
        Value::Map(entries.iter().map(|(key, value)| (Value::from(*key), Value::from(*value))).collect());
    let mut packed = Vec::new();
    rmpv::encode::write_value(&mut packed, &body).unwrap();
    w.say_bytes("c", agent_reach_protocol::encode(call, Some(&packed)));
}

/// Records of the calls and watches that have ended, with how.
fn ended(w: &mut World) -> Vec<(CallRecord, &'static str)> {
    let of = |fact| match fact {
        Fact::CallEnded { record: Some(record), outcome, .. }
        | Fact::WatchEnded { record: Some(record), outcome, .. } => Some((record, outcome.as_str())),
        Fact::CallEnded { .. }
        | Fact::WatchEnded { .. }
        | Fact::Registered { .. }
        | Fact::Refused { .. }
        | Fact::Left { .. }
        | Fact::Liveness { .. }
        | Fact::SlowConsumer { .. }
        | Fact::Act { .. }
        | Fact::TaskEnded { .. }
        | Fact::Dedupe(_)
        | Fact::Evicted { .. }
        | Fact::CallTraced(_)
        | Fact::Retry(_) => None,
    };
    w.take_facts().into_iter().filter_map(of).collect()
}

fn acts(w: &mut World) -> Vec<String> {
    let of = |fact| match fact {
        Fact::Act { capability, agent, identity, subject } => {
            Some(format!("{agent} ({identity}): {capability} {subject}"))
        }
        Fact::CallEnded { .. }
        | Fact::WatchEnded { .. }
        | Fact::Registered { .. }
        | Fact::Refused { .. }
        | Fact::Left { .. }
        | Fact::Liveness { .. }
        | Fact::SlowConsumer { .. }
        | Fact::TaskEnded { .. }
        | Fact::Dedupe(_)
        | Fact::Evicted { .. }
        | Fact::CallTraced(_)
        | Fact::Retry(_) => None,
    };
    w.take_facts().into_iter().filter_map(of).collect()
}

#[test]
fn a_call_that_is_refused_or_answered_by_the_hub_itself_is_recorded_with_its_trace_as_any_other() {
    let mut w = world();
    let traceparent = Some(TRACEPARENT);
    w.say("c", &Call { traceparent, request_id: Some("r1"), ..call(1, "echo") });
    let to = if w.heard("p1").is_empty() { "p2" } else { "p1" };
    w.say(to, &completed(1));
    w.say("c", &Call { traceparent, request_id: Some("r2"), ..call(2, "made-up") });
    w.say("c", &Call { traceparent, request_id: Some("r3"), ..call(3, "hub.stats") });
    let ended = ended(&mut w);
    let shown: Vec<_> = ended
        .iter()
        .map(|(record, outcome)| {
            let target = record.target.as_deref();
            (&*record.request_id, &*record.capability, target, record.attempts, record.by_hub, *outcome)
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("r1", "echo", Some(to), 1, false, "completed"),
            ("r2", "made-up", None, 0, false, "no_capability"),
            ("r3", "hub.stats", Some("hub"), 1, true, "completed"),
        ]
    );
    for (record, _) in &ended {
        assert_eq!(record.trace.unwrap().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(&*record.caller == "c" && !record.call_id.is_empty(), "{record:?}");
    }
}

#[test]
fn a_fan_out_names_all_whom_it_was_given_to_also_those_that_never_answered() {
    let mut w = world();
    w.say("c", &Call { select: Some(Select::All), ..call(1, "echo") });
    w.say("p2", &completed(1));
    w.say("c", &cancel(1));
    let ended = ended(&mut w);
    let targets: Vec<&str> = ended[0].0.targets.iter().map(|target| &**target).collect();
    assert_eq!((ended.len(), targets, ended[0].1), (1, vec!["p1", "p2"], "cancelled"));
}

#[test]
fn a_watch_is_recorded_when_it_ends_whether_its_caller_cancels_or_is_gone() {
    for gone in [false, true] {
        let mut w = world();
        w.say("c", &Call { stream: true, credit: Some(100), ..call(1, "hub.events.watch") });
        assert_eq!(ended(&mut w), []);
        w.advance_alive(20);
        w.take_facts();
        if gone {
            w.lose("c");
        } else {
            w.say("c", &cancel(1));
        }
        let ended = ended(&mut w);
        let (record, outcome) = &ended[0];
        assert_eq!((ended.len(), *outcome, &*record.capability), (1, "cancelled", "hub.events.watch"));
        assert!(record.by_hub && record.ended_ms - record.started_ms >= 20, "{record:?}");
    }
}

#[test]
fn nothing_is_recorded_where_nobody_wants_records() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "hub.stats"));
    w.say("c", &call(2, "made-up"));
    w.say("c", &call(3, "echo"));
    w.say("p", &completed(1));
    assert_eq!(ended(&mut w), []);
}

#[test]
fn a_disconnect_names_who_did_it_and_to_whom_and_one_that_failed_is_no_act() {
    let mut w = world();
    ask(&mut w, &call(1, "hub.agents.disconnect"), &[("agent_id", "nobody")]);
    assert_eq!(acts(&mut w), Vec::<String>::new());
    ask(&mut w, &call(2, "hub.agents.disconnect"), &[("agent_id", "p1")]);
    assert_eq!(acts(&mut w), ["c (spiffe://d/agent/c): hub.agents.disconnect p1"]);
}

#[test]
fn a_drain_is_an_act_where_it_changes_something() {
    let mut w = world();
    for (id, agent) in [(1, "nobody"), (2, "p1"), (3, "p1")] {
        ask(&mut w, &call(id, "hub.agents.drain"), &[("agent_id", agent)]);
    }
    assert_eq!(acts(&mut w), ["c (spiffe://d/agent/c): hub.agents.drain p1"]);
}

#[test]
fn cancelling_an_open_task_is_an_act_and_cancelling_one_that_has_ended_is_none() {
    let mut w = World::with_store(settings());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    let own = w.only_task();
    w.take_facts();
    ask(&mut w, &call(2, "hub.tasks.cancel"), &[("task_id", &own)]);
    assert_eq!(acts(&mut w), [format!("c (spiffe://d/agent/c): hub.tasks.cancel {own}")]);
    w.write();
    ask(&mut w, &call(3, "hub.tasks.cancel"), &[("task_id", &own)]);
    w.write();
    assert_eq!(acts(&mut w), Vec::<String>::new());
}
