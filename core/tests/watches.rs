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
