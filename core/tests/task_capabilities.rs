//! `hub.tasks.*`, and request ids that only the store remembers.
#![cfg(test)]

mod world;

use std::sync::Arc;

use agent_reach_core::{Callbacks, Policy, Rule, Settings};
use agent_reach_protocol::{Call, ToAgent, decode_to_agent};
use rmpv::Value;
use world::*;

fn pair() -> World {
    let mut w = World::with_store(Settings::default());
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w
}

/// Asks the hub, and gives the bodies of all it says.
fn ask(w: &mut World, name: &str, id: u64, capability: &str, body: &Value) -> Vec<Value> {
    let stream = capability.ends_with("watch");
    let mut packed = Vec::new();
    rmpv::encode::write_value(&mut packed, body).unwrap();
    let asking = Call { stream, credit: Some(100), ..call(id, capability) };
    w.say_bytes(name, agent_reach_protocol::encode(&asking, Some(&packed)));
    w.write();
    heard_values(w, name)
}

fn heard_values(w: &mut World, name: &str) -> Vec<Value> {
    let batch = w.take(name);
    let body = |outgoing: &agent_reach_core::Outgoing| {
        let message = outgoing.message()?;
        match decode_to_agent(&message).unwrap() {
            (ToAgent::Result(result), None) => Some(Value::from(result.error?.code)),
            (_, body) => rmpv::decode::read_value(&mut &*body?).ok(),
        }
    };
    batch.iter().filter_map(body).collect()
}

fn map(entries: &[(&str, &str)]) -> Value {
    Value::Map(entries.iter().map(|(key, value)| (Value::from(*key), Value::from(*value))).collect())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// A value as a body.
fn packed(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    rmpv::encode::write_value(&mut out, &Value::from(text)).unwrap();
    out
}

#[test]
fn the_owner_sees_its_tasks_open_and_ended_the_newest_first_and_nobody_else_does() {
    let mut w = pair();
    for id in 1..=5 {
        let request_id = format!("r{id}");
        w.say("c", &Call { request_id: Some(&request_id), ..task(id, "echo") });
        w.write();
        w.advance_alive(1);
    }
    w.say_bytes("p", agent_reach_protocol::encode(&completed(1), Some(&packed("done"))));
    w.say("p", &accept(2));
    w.write();
    w.heard("c");
    let all = ask(&mut w, "c", 10, "hub.tasks.list", &map(&[]));
    let tasks = all[0]["tasks"].as_array().unwrap();
    let states: Vec<&str> = tasks.iter().map(|task| text(task, "state")).collect();
    assert_eq!(states, ["QUEUED", "QUEUED", "QUEUED", "RECEIVED", "SUCCEEDED"]);
    let queued = ask(&mut w, "c", 11, "hub.tasks.list", &map(&[("state", "SUCCEEDED")]));
    assert_eq!(queued[0]["tasks"].as_array().unwrap().len(), 1);
    let before = text(&tasks[2], "task_id");
    let older = ask(&mut w, "c", 12, "hub.tasks.list", &map(&[("before", before)]));
    assert_eq!(older[0]["tasks"].as_array().unwrap().len(), 2);
    let theirs = ask(&mut w, "p", 13, "hub.tasks.list", &map(&[]));
    assert_eq!(theirs.last().unwrap()["tasks"].as_array().unwrap().len(), 0);
    let ended = text(&tasks[4], "task_id");
    let one = ask(&mut w, "c", 14, "hub.tasks.get", &map(&[("task_id", ended)]));
    assert_eq!((text(&one[0], "result"), text(&one[0], "outcome")), ("done", "completed"));
    assert_eq!(one[0]["attempts"].as_array().unwrap().len(), 1);
    let open = text(&tasks[3], "task_id");
    let two = ask(&mut w, "c", 15, "hub.tasks.get", &map(&[("task_id", open)]));
    assert_eq!((text(&two[0], "state"), text(&two[0], "target")), ("RECEIVED", "p"));
}

#[test]
fn another_s_task_an_unknown_one_and_no_task_id_at_all_answer_alike() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.all_heard();
    let own = w.only_task();
    let unknown = "00000000-0000-7000-8000-000000000000";
    let mut id = 10;
    for capability in ["hub.tasks.get", "hub.tasks.cancel", "hub.tasks.watch"] {
        for (who, task_id) in [("p", &*own), ("c", unknown), ("c", "nonsense")] {
            id += 1;
            let answer = ask(&mut w, who, id, capability, &map(&[("task_id", task_id)]));
            assert_eq!(answer, [Value::from("invalid_request")], "{capability} {task_id}");
        }
    }
    assert_eq!(w.hub.gauges().watches, 0);
}

/// A provider, a caller, somebody who may ask the hub for all by a pattern, and an operator with the right by its name.
fn with_an_operator() -> World {
    let rule = |who: &str, call: &[&str]| Rule {
        identity: Some(format!("spiffe://d/agent/{who}")),
        agent_ids: None,
        provide: vec!["*".parse().unwrap()],
        call: call.iter().map(|pattern| pattern.parse().unwrap()).collect(),
    };
    let rules = vec![
        rule("p", &["*", "hub.*"]),
        rule("c", &["*", "hub.*"]),
        rule("op", &["*", "hub.*", "hub.tasks.all"]),
    ];
    let mut w = World::with_store_under(Settings::default(), Policy { rules, ..Policy::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.join("op", caller("op"));
    w
}

#[test]
fn an_operator_sees_and_cancels_the_tasks_of_everybody() {
    let mut w = with_an_operator();
    w.say("c", &Call { request_id: Some("r1"), ..task(1, "echo") });
    w.advance_alive(1);
    w.say("c", &Call { request_id: Some("r2"), ..task(2, "echo") });
    w.write();
    w.say_bytes("p", agent_reach_protocol::encode(&completed(1), Some(&packed("done"))));
    w.write();
    w.all_heard();
    let all = Value::Map(vec![("all".into(), true.into())]);
    let listed = ask(&mut w, "op", 1, "hub.tasks.list", &all);
    let tasks = listed[0]["tasks"].as_array().unwrap().clone();
    let seen: Vec<_> = tasks.iter().map(|task| (text(task, "state"), text(task, "caller"))).collect();
    assert_eq!(seen, [("QUEUED", "c"), ("SUCCEEDED", "c")]);
    let queued = Value::Map(vec![("all".into(), true.into()), ("state".into(), "QUEUED".into())]);
    assert_eq!(ask(&mut w, "op", 2, "hub.tasks.list", &queued)[0]["tasks"].as_array().unwrap().len(), 1);
    let own = ask(&mut w, "op", 3, "hub.tasks.list", &map(&[]));
    assert_eq!(own[0]["tasks"].as_array().unwrap().len(), 0);
    let one = |place: usize, all: bool| {
        Value::Map(vec![
            ("task_id".into(), text(&tasks[place], "task_id").into()),
            ("all".into(), all.into()),
        ])
    };
    // Who does not say that it means others' sees its own, as everybody.
    assert_eq!(ask(&mut w, "op", 7, "hub.tasks.get", &one(1, false)), [Value::from("invalid_request")]);
    assert_eq!(ask(&mut w, "p", 7, "hub.tasks.get", &one(1, true)), [Value::from("unauthorized")]);
    let ended = ask(&mut w, "op", 4, "hub.tasks.get", &one(1, true));
    assert_eq!(text(&ended[0], "result"), "done");
    let open = one(0, true);
    assert_eq!(text(&ask(&mut w, "op", 5, "hub.tasks.get", &open)[0], "state"), "QUEUED");
    let cancelled = ask(&mut w, "op", 6, "hub.tasks.cancel", &open);
    assert_eq!(cancelled[0]["cancelled"], Value::from(true));
    assert!(w.heard("c").iter().any(|line| line.contains("cancelled")));
}

#[test]
fn a_task_that_ended_shows_how_its_end_is_delivered_to_a_url() {
    let callbacks = Callbacks(Arc::new(|url| Ok(url.to_owned())));
    let mut w = World::with_store(Settings { callbacks, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &Call { callback_url: Some("https://example.com/hook"), ..task(1, "echo") });
    w.write();
    w.say("p", &completed(1));
    w.write();
    w.all_heard();
    let id = w.only_task();
    let shown = ask(&mut w, "c", 2, "hub.tasks.get", &map(&[("task_id", &id)]));
    let callback = &shown[0]["callback"];
    assert_eq!((text(callback, "url"), text(callback, "outcome")), ("https://example.com/hook", "503"));
    assert_eq!(callback["attempts"].as_u64(), Some(1));
    assert!(callback["next_in_ms"].is_u64());
}

#[test]
fn everybodys_tasks_are_shown_to_nobody_else_and_by_no_filter_that_reads_all_of_them() {
    let mut w = with_an_operator();
    let asked = |state: Option<&str>, capability: Option<&str>| {
        let texts = [("state", state), ("capability", capability)];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((Value::from(key), Value::from(text?))));
        Value::Map(texts.chain([(Value::from("all"), Value::from(true))]).collect())
    };
    for (id, (state, capability)) in
        [(Some("FAILED"), None), (None, Some("echo")), (Some("SUCCEEDED"), Some("echo"))]
            .into_iter()
            .enumerate()
    {
        let answer = ask(&mut w, "op", id as u64 + 1, "hub.tasks.list", &asked(state, capability));
        assert_eq!(answer, [Value::from("invalid_request")], "{state:?} {capability:?}");
    }
    let open = ask(&mut w, "op", 9, "hub.tasks.list", &asked(Some("QUEUED"), Some("echo")));
    assert_eq!(open[0]["tasks"].as_array().unwrap().len(), 0);
    let refused = ask(&mut w, "p", 1, "hub.tasks.list", &asked(None, None));
    assert_eq!(refused, [Value::from("unauthorized")]);
    assert_eq!(ask(&mut w, "op", 10, "hub.tasks.all", &map(&[])), [Value::from("no_capability")]);
}

#[test]
fn a_cancel_is_answered_when_the_end_is_stored_and_the_provider_is_told() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.all_heard();
    let id = w.only_task();
    let mut body = Vec::new();
    rmpv::encode::write_value(&mut body, &map(&[("task_id", &id)])).unwrap();
    w.say_bytes("c", agent_reach_protocol::encode(&call(2, "hub.tasks.cancel"), Some(&body)));
    assert_eq!(w.heard("p"), ["CANCEL 1 the task was cancelled"]);
    assert_eq!(w.heard("c"), [""; 0]);
    w.write();
    let heard = heard_values(&mut w, "c");
    assert_eq!(heard[0], Value::from("cancelled"), "the task's own RESULT");
    assert_eq!((text(&heard[1], "state"), &heard[1]["cancelled"]), ("FAILED", &Value::from(true)));
    let again = ask(&mut w, "c", 3, "hub.tasks.cancel", &map(&[("task_id", &id)]));
    assert_eq!(again[0]["cancelled"], Value::from(false));
    assert_eq!(text(&again[0], "outcome"), "cancelled");
}

#[test]
fn a_watch_shows_what_is_there_and_every_step_from_then_on() {
    let mut w = pair();
    w.say("c", &Call { stream: true, ..task(1, "echo") });
    w.write();
    w.all_heard();
    let seen = ask(&mut w, "c", 2, "hub.tasks.watch", &map(&[]));
    assert_eq!(text(&seen[0]["tasks"][0], "state"), "QUEUED");
    assert_eq!(seen[1]["more"], Value::from(false));
    w.say("p", &accept(1));
    w.say_bytes("p", agent_reach_protocol::encode(&chunk(1, 0), Some(&packed("half"))));
    w.say("p", &completed(1));
    w.say("c", &Call { request_id: Some("s"), ..task(3, "nobody") });
    w.write();
    let events = heard_values(&mut w, "c");
    let names: Vec<&str> =
        events.iter().map(|event| text(event, "event")).filter(|e| !e.is_empty()).collect();
    assert_eq!(names, ["task.received", "task.processing", "task.progress", "task.succeeded", "task.queued"]);
    let progress = events.iter().find(|event| text(event, "event") == "task.progress").unwrap();
    assert_eq!(text(progress, "progress"), "half");
    // Another identity sees nothing of it.
    let theirs = ask(&mut w, "p", 9, "hub.tasks.watch", &map(&[]));
    assert_eq!(theirs.last().unwrap()["tasks"].as_array().unwrap().len(), 0);
    w.say("c", &Call { request_id: Some("t"), ..task(4, "nobody") });
    w.write();
    assert_eq!(heard_values(&mut w, "p"), []);
}

#[test]
fn who_watches_everything_sees_that_a_task_moves_and_not_what_it_says() {
    let mut w = pair();
    w.say("c", &Call { stream: true, ..task(1, "echo") });
    w.write();
    w.say("p", &accept(1));
    w.write();
    w.all_heard();
    ask(&mut w, "p", 9, "hub.events.watch", &map(&[]));
    w.say_bytes("p", agent_reach_protocol::encode(&chunk(1, 0), Some(&packed("half"))));
    w.write();
    let events = heard_values(&mut w, "p");
    let progress = events.iter().find(|event| text(event, "event") == "task.progress").unwrap();
    assert_eq!((text(progress, "task_id"), &progress["progress"]), (&*w.only_task(), &Value::Nil));
}

#[test]
fn a_watch_of_a_task_that_is_over_begins_with_its_end() {
    let mut w = pair();
    w.say("c", &task(1, "echo"));
    w.write();
    w.say("p", &completed(1));
    w.write();
    w.all_heard();
    let id = w.only_task();
    let seen = ask(&mut w, "c", 2, "hub.tasks.watch", &map(&[("task_id", &id)]));
    assert_eq!(text(&seen[0]["tasks"][0], "state"), "SUCCEEDED");
    assert_eq!(w.hub.gauges().watches, 1);
}

#[test]
fn a_call_that_waits_for_the_store_can_be_cancelled_and_goes_with_its_connection() {
    let mut w = pair();
    w.say_bytes("c", agent_reach_protocol::encode(&call(1, "hub.tasks.list"), None));
    w.say("c", &call(1, "echo"));
    w.say("c", &cancel(1));
    assert_eq!(w.heard("c"), ["ERROR invalid_request kind=10 id=1", "RESULT 1 cancelled"]);
    w.say("c", &call(2, "hub.tasks.list"));
    w.lose("c");
    w.write();
    w.join("c", caller("c"));
    w.write();
    assert_eq!(w.heard("c"), [""; 0]);
}

#[test]
fn a_long_kept_id_is_known_after_a_crash_and_one_that_was_made_is_not() {
    let mut w = pair();
    let keyed = |id| Call { request_id: Some("user"), ..call(id, "echo") };
    w.say_with("c", &keyed(1), "x");
    w.say_with("p", &completed(1), "y");
    w.say_with("c", &Call { request_id: Some("made"), keep_ms: Some(600_000), ..call(2, "echo") }, "x");
    w.say_with("p", &completed(2), "y");
    w.say("c", &task(3, "echo"));
    w.write();
    w.say("p", &completed(3));
    w.write();
    assert_eq!(w.disk.calls.len(), 1);
    w.crash(Settings { started_unix_ms: 2_000_000, ..Settings::default() });
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.write();
    w.all_heard();
    w.say_with("c", &keyed(1), "x");
    w.say_with("c", &keyed(2), "other");
    w.say_with("c", &Call { request_id: Some("made"), ..call(3, "echo") }, "x");
    w.say("c", &task(4, "echo"));
    w.write();
    assert_eq!(
        w.heard("c"),
        [
            "RESULT 1 completed of=p duplicate \"y\"",
            "RESULT 2 idempotency_conflict",
            "RESULT 4 completed of=p task duplicate"
        ]
    );
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1 \"x\""], "it was not kept in the store");
}
