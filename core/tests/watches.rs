//! `hub.events.watch`: the state now, then every change, or an end that says so.
#![cfg(test)]

mod world;

use agent_reach_core::{Outgoing, Settings};
use agent_reach_protocol::{Call, Hello};
use rmpv::Value;
use world::*;

fn watch(id: u64, credit: u64) -> Call<'static> {
    Call { stream: true, credit: Some(credit), ..call(id, "hub.events.watch") }
}

/// What a watcher was told: names of events, and whom they are about.
fn events(batch: &[Outgoing]) -> Vec<String> {
    let event = |body: &bytes::Bytes| {
        let value = rmpv::decode::read_value(&mut &**body).unwrap();
        let of = match (&value["agent"]["agent_id"], &value["agent_id"], &value["call"]["capability"]) {
            (Value::String(id), ..) | (_, Value::String(id), _) | (_, _, Value::String(id)) => id.to_string(),
            _ => format!(
                "{} agents, {} calls, more: {}",
                value["agents"].as_array().unwrap().len(),
                value["calls"].as_array().unwrap().len(),
                value["more"]
            ),
        };
        format!("{} {}", value["event"].as_str().unwrap(), of.replace('"', ""))
    };
    bodies(batch).iter().map(event).collect()
}

#[test]
fn a_watch_begins_with_the_state_now_and_goes_on_with_every_change() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("c", &watch(2, 100));
    let batch = w.take("c");
    assert_eq!(shown(&batch[0]), "ACCEPT 2 of=hub try=1");
    assert_eq!(
        events(&batch),
        [
            "snapshot 2 agents, 0 calls, more: true",
            "snapshot 0 agents, 1 calls, more: true",
            "snapshot 0 agents, 0 calls, more: false"
        ]
    );
    w.say("p", &completed(1));
    w.join("q", caller("q"));
    w.lose("q");
    w.take("p");
    let batch = w.take("c");
    assert_eq!(shown(&batch[0]), "RESULT 1 completed of=p");
    assert_eq!(events(&batch), ["call.ended echo", "agent.connected q", "agent.disconnected q"]);
    w.say("c", &cancel(2));
    assert_eq!(w.all_heard(), ["c: RESULT 2 cancelled"]);
    w.join("r", caller("r"));
    assert_eq!((w.heard("c"), w.hub.gauges().watches), (vec![], 0));
}

#[test]
fn a_watch_waits_for_credit_in_order() {
    let mut w = World::pair("echo");
    w.say("c", &watch(1, 1));
    w.join("q", caller("q"));
    assert_eq!(events(&w.take("c")), ["snapshot 2 agents, 0 calls, more: true"]);
    w.say("c", &credit(1, 1));
    assert_eq!(events(&w.take("c")), ["snapshot 0 agents, 0 calls, more: false"]);
    w.say("c", &credit(1, 5));
    assert_eq!(events(&w.take("c")), ["agent.connected q"]);
}

#[test]
fn a_watch_that_does_not_keep_up_ends_with_an_error_and_no_gap() {
    let mut w = World::with(Settings { watch_bytes: 1000, ..Settings::default() });
    w.join("c", caller("c"));
    w.say("c", &watch(1, 2));
    for n in 0..20 {
        let name = format!("q{n}");
        w.join(&name, caller(&name));
    }
    let batch = w.take("c");
    assert_eq!(shown(batch.last().unwrap()), "RESULT 1 overloaded retryable");
    assert_eq!(w.hub.gauges().watches, 0);
}

#[test]
fn a_filter_leaves_out_what_is_not_asked_for() {
    let mut w = World::pair("echo");
    let mut body = Vec::new();
    let subjects = Value::Map(vec![("subjects".into(), Value::Array(vec!["calls".into()]))]);
    rmpv::encode::write_value(&mut body, &subjects).unwrap();
    w.say_bytes("c", agent_reach_protocol::encode(&watch(1, 100), Some(&body)));
    w.take("c");
    w.join("q", caller("q"));
    w.say("c", &call(2, "echo"));
    assert_eq!(events(&w.take("c")), ["call.started echo"]);
}

#[test]
fn the_state_of_many_agents_comes_in_messages_within_the_limit() {
    let mut w = World::with(Settings { max_message: 20_000, ..Settings::default() });
    let names: Vec<String> = (0..40).map(|n| format!("some.longer.capability.name-{n}")).collect();
    for n in 0..50 {
        let name = format!("q{n}");
        let capabilities = names.iter().map(|name| capability(name)).collect();
        w.join(&name, Hello { capabilities, ..caller(&name) });
    }
    w.join("c", caller("c"));
    w.say("c", &watch(1, 1000));
    let mut agents = 0;
    for outgoing in w.take("c") {
        let Some(message) = outgoing.message() else { continue };
        assert!(message.len() <= 20_000, "{} bytes", message.len());
        for body in bodies(std::slice::from_ref(&outgoing)) {
            let value = rmpv::decode::read_value(&mut &*body).unwrap();
            agents += value["agents"].as_array().unwrap().len();
        }
    }
    assert_eq!(agents, 51);
}

#[test]
fn a_watch_is_a_stream_and_counts_as_open() {
    let mut w = World::with(Settings { max_in_flight: 1, ..Settings::default() });
    w.join("c", caller("c"));
    w.say("c", &Call { stream: false, ..watch(1, 1) });
    w.say("c", &watch(2, 0));
    w.say("c", &watch(3, 0));
    assert_eq!(
        w.heard("c"),
        ["ACCEPT 2 of=hub try=1", "RESULT 1 invalid_request", "RESULT 3 overloaded retryable"]
    );
    w.lose("c");
    assert_eq!((w.hub.gauges().watches, w.hub.gauges().agents_away), (0, 0));
}

/// What a watcher was told of refused calls: whose, of what, with which code and under which request id.
fn refusals(batch: &[Outgoing]) -> Vec<String> {
    let all = bodies(batch);
    let values = all.iter().map(|body| rmpv::decode::read_value(&mut &**body).unwrap());
    let refused = values.filter(|value| value["event"].as_str() == Some("call.refused"));
    let line = |value: Value| {
        let text = |key: &str| value["call"][key].as_str().unwrap().to_owned();
        let left_out = value["left_out"].as_u64().map_or(String::new(), |left| format!(" after {left}"));
        let outcome = value["outcome"].as_str().unwrap();
        format!("{} {} {} {outcome}{left_out}", text("caller"), text("capability"), text("request_id"))
    };
    refused.map(line).collect()
}

#[test]
fn a_call_that_is_refused_before_it_is_one_is_told_to_who_watches_calls() {
    let mut w = World::pair("echo");
    w.join("q", caller("q"));
    w.join("z", Hello { calls: Some(vec!["echo"]), ..caller("z") });
    w.say("q", &watch(1, 100));
    w.take("q");
    w.say("c", &Call { request_id: Some("r1"), ..call(1, "made-up") });
    w.say("z", &Call { request_id: Some("r2"), ..call(1, "other") });
    w.say("z", &Call { request_id: Some("r3"), ..call(2, "hub.agents.disconnect") });
    // Somebody who asks the hub for what is not there is no news.
    w.say("c", &Call { request_id: Some("r4"), ..call(2, "hub.agents.get") });
    let told = refusals(&w.take("q"));
    assert_eq!(
        told,
        ["c made-up r1 no_capability", "z other r2 unauthorized", "z hub.agents.disconnect r3 unauthorized"]
    );
}

#[test]
fn a_refusal_is_told_by_the_filter_of_the_watch() {
    let mut w = World::pair("echo");
    for (name, key, value) in
        [("q", "capability", "made-up"), ("r", "agent_id", "p"), ("s", "capability", "x")]
    {
        w.join(name, caller(name));
        let mut body = Vec::new();
        let filter = Value::Map(vec![(key.into(), value.into())]);
        rmpv::encode::write_value(&mut body, &filter).unwrap();
        w.say_bytes(name, agent_reach_protocol::encode(&watch(1, 100), Some(&body)));
    }
    w.all_heard();
    w.say("c", &Call { request_id: Some("r1"), ..call(1, "made-up") });
    w.say("p", &Call { request_id: Some("r2"), ..call(1, "other") });
    let told = |w: &mut World, name| refusals(&w.take(name));
    assert_eq!(told(&mut w, "q"), ["c made-up r1 no_capability"]);
    assert_eq!(told(&mut w, "r"), ["p other r2 no_capability"]);
    assert_eq!(told(&mut w, "s"), [""; 0]);
}

#[test]
fn a_flood_of_refused_calls_ends_no_watch_and_hides_no_other_caller() {
    let mut w = World::pair("echo");
    w.join("q", caller("q"));
    w.say("q", &watch(1, 0));
    for id in 0..10_000 {
        w.say("c", &Call { request_id: Some("bad"), ..call(100 + id, "made-up") });
        w.take("c");
    }
    w.say("p", &Call { request_id: Some("r1"), ..call(1, "other") });
    w.say("q", &credit(1, 1000));
    let told = refusals(&w.take("q"));
    assert_eq!(told.len(), 21);
    assert_eq!(told.last().unwrap(), "p other r1 no_capability after 9980");
    assert_eq!(w.hub.gauges().watches, 1);
}
