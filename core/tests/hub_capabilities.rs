//! What the hub says of itself: the bodies of `hub.*`.
#![cfg(test)]

mod world;

use agent_reach_core::{Fact, Policy, Rule, Settings};
use agent_reach_protocol::{AgentStatus, Call, Capability, Hello, ToAgent, Update, decode_to_agent};
use rmpv::Value;
use world::*;

/// Calls a capability of the hub, and reads the body of its answer.
fn ask(w: &mut World, id: u64, name: &str, body: Option<Value>) -> Value {
    let mut bytes = Vec::new();
    if let Some(body) = &body {
        rmpv::encode::write_value(&mut bytes, body).unwrap();
    }
    let body = body.is_some().then_some(bytes.as_slice());
    w.say_bytes("c", agent_reach_protocol::encode(&call(id, name), body));
    let batch = w.take("c");
    assert!(shown(&batch[0]).starts_with(&format!("RESULT {id} completed of=hub")), "{}", shown(&batch[0]));
    rmpv::decode::read_value(&mut &*bodies(&batch)[0]).unwrap()
}

fn map(pairs: &[(&str, Value)]) -> Value {
    Value::Map(pairs.iter().map(|(key, value)| (Value::from(*key), value.clone())).collect())
}

fn texts(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_list_of_agents_filters_and_goes_on_where_it_ended() {
    let mut w = World::pair("echo");
    w.join("q", provider("q", "sum"));
    let all = ask(&mut w, 1, "hub.agents.list", None);
    assert_eq!(texts(&all["agents"], "agent_id"), ["c", "p", "q"]);
    let some = ask(&mut w, 2, "hub.agents.list", Some(map(&[("capability", "sum".into())])));
    assert_eq!(texts(&some["agents"], "agent_id"), ["q"]);
    let first = ask(&mut w, 3, "hub.agents.list", Some(map(&[("limit", 2.into())])));
    assert_eq!(
        (texts(&first["agents"], "agent_id"), first["more"].as_bool()),
        (vec!["c".into(), "p".into()], Some(true))
    );
    let rest = ask(&mut w, 4, "hub.agents.list", Some(map(&[("after", "p".into())])));
    assert_eq!((texts(&rest["agents"], "agent_id"), rest["more"].is_nil()), (vec!["q".to_owned()], true));
}

#[test]
fn one_agent_is_shown_with_its_open_calls_and_its_own_status() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.all_heard();
    w.advance(40);
    let shown = ask(&mut w, 2, "hub.agents.get", Some(map(&[("agent_id", "p".into())])));
    let agent = &shown["agent"];
    assert_eq!((agent["status"].as_str(), agent["in_flight"].as_u64()), (Some("ready"), Some(1)));
    let open = &agent["calls"];
    assert_eq!(texts(open, "state"), ["accepted"]);
    assert_eq!((open[0]["caller"].as_str(), open[0]["age_ms"].as_u64()), (Some("c"), Some(40)));
    w.say("c", &call(3, "hub.agents.get"));
    assert_eq!(w.all_heard(), ["c: RESULT 3 invalid_request"]);
}

#[test]
fn the_dictionary_names_who_offers_what_with_its_schema() {
    let mut w = World::new();
    let schema = [0x81, 0xa4, b't', b'y', b'p', b'e', 0xa6, b'o', b'b', b'j', b'e', b'c', b't'];
    let offer = Capability {
        input_schema: Some(agent_reach_protocol::codec::Raw(&schema)),
        version: Some("1.2.3"),
        ..capability("echo")
    };
    w.join("p", Hello { capabilities: vec![offer], ..caller("p") });
    w.join("c", caller("c"));
    let shown = ask(&mut w, 1, "hub.capabilities.list", None);
    let entry = &shown["capabilities"][0];
    assert_eq!(entry["name"].as_str(), Some("echo"));
    assert_eq!(entry["agents"][0]["agent_id"].as_str(), Some("p"));
    assert_eq!(entry["agents"][0]["version"].as_str(), Some("1.2.3"));
    assert_eq!(entry["agents"][0]["input_schema"]["type"].as_str(), Some("object"));
}

#[test]
fn open_calls_are_listed_until_they_end() {
    let mut w = World::pair("echo");
    w.say("c", &Call { request_id: Some("r"), ..call(1, "echo") });
    let shown = ask(&mut w, 2, "hub.calls.list", None);
    let open = &shown["calls"][0];
    assert_eq!((open["request_id"].as_str(), open["state"].as_str()), (Some("r"), Some("given")));
    assert_eq!(open["targets"][0].as_str(), Some("p"));
    w.say("p", &completed(1));
    w.all_heard();
    assert_eq!(ask(&mut w, 3, "hub.calls.list", None)["calls"], Value::Array(vec![]));
}

#[test]
fn the_trace_of_a_call_has_every_decision_with_its_time() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.advance(10);
    w.say("p", &accept(1));
    w.advance(20);
    w.say("p", &completed(1));
    let batch = w.take("c");
    let agent_reach_core::Outgoing::Message(last) = batch.last().unwrap() else { panic!("no RESULT") };
    let Ok((ToAgent::Result(result), _)) = decode_to_agent(last) else { panic!("no RESULT") };
    let call_id = result.call_id.unwrap().to_owned();
    assert_eq!(result.attempts.len(), 1);
    assert_eq!((result.attempts[0].outcome, result.attempts[0].ms), ("completed", 30));
    let shown = ask(&mut w, 2, "hub.traces.get", Some(map(&[("call_id", call_id.as_str().into())])));
    let steps = &shown["trace"]["steps"];
    assert_eq!(texts(steps, "step"), ["routed", "given", "accepted", "answered", "ended"]);
    let times: Vec<u64> = steps.as_array().unwrap().iter().map(|s| s["at_us"].as_u64().unwrap()).collect();
    assert_eq!(times, [0, 0, 10_000, 30_000, 30_000]);
    assert_eq!(shown["trace"]["ended"].as_bool(), Some(true));
}

#[test]
fn figures_agree_with_the_gauges() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    let shown = ask(&mut w, 2, "hub.stats", None);
    let figure = |name: &str| shown[name].as_u64();
    assert_eq!((figure("connections"), figure("agents"), figure("open_calls")), (Some(2), Some(2), Some(1)));
    assert_eq!((figure("in_flight"), figure("calls_completed")), (Some(1), Some(0)));
}

#[test]
fn an_agent_that_is_disconnected_by_an_operator_may_come_back() {
    let mut w = World::pair("echo");
    let answer = ask(&mut w, 1, "hub.agents.disconnect", Some(map(&[("agent_id", "p".into())])));
    assert_eq!(answer["disconnected"].as_str(), Some("p"));
    assert_eq!(w.all_heard(), ["p: GOODBYE draining after=1000", "p: CLOSE 4000 draining"]);
    w.lose("p");
    w.join("p#2", provider("p", "echo"));
}

/// Puts `p` out of work or back into it.
fn drain(w: &mut World, id: u64, draining: bool) -> Value {
    ask(w, id, "hub.agents.drain", Some(map(&[("agent_id", "p".into()), ("draining", draining.into())])))
}

#[test]
fn an_agent_that_an_operator_drains_ends_what_it_has_and_gets_nothing_new() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.all_heard();
    let answer = ask(&mut w, 2, "hub.agents.drain", Some(map(&[("agent_id", "p".into())])));
    assert_eq!((answer["draining"].as_bool(), answer["in_flight"].as_u64()), (Some(true), Some(1)));
    // Its own word is another matter.
    w.say("p", &Update { status: Some(AgentStatus::Ready), ..update() });
    let shown = ask(&mut w, 3, "hub.agents.get", Some(map(&[("agent_id", "p".into())])));
    let agent = &shown["agent"];
    assert_eq!((agent["status"].as_str(), agent["drained"].as_bool()), (Some("draining"), Some(true)));
    w.say("c", &call(4, "echo"));
    w.say("p", &completed(1));
    let heard = w.heard("c");
    assert!(heard[0].starts_with("RESULT 4 no_instance"), "{heard:?}");
    assert!(heard[1].starts_with("RESULT 1 completed"), "{heard:?}");
}

#[test]
fn a_drained_agent_gets_what_waits_once_it_is_given_back() {
    let mut w = World::pair("echo");
    drain(&mut w, 1, true);
    w.say("c", &Call { wait_ms: Some(5000), ..call(2, "echo") });
    assert_eq!(w.all_heard(), Vec::<String>::new());
    drain(&mut w, 3, false);
    assert!(w.all_heard().iter().any(|line| line.starts_with("p: CALL")), "{:?}", w.all_heard());
}

#[test]
fn a_lost_connection_is_no_way_out_of_a_drain_and_a_new_process_is() {
    let mut w = World::pair("echo");
    drain(&mut w, 1, true);
    w.lose("p");
    w.join("p#2", provider("p", "echo"));
    w.say("c", &call(2, "echo"));
    assert!(w.heard("c")[0].starts_with("RESULT 2 no_instance"));
    w.join("p#3", Hello { instance: "another", ..provider("p", "echo") });
    w.all_heard();
    w.say("c", &call(3, "echo"));
    assert!(w.all_heard().iter().any(|line| line.starts_with("p#3: CALL")));
}

#[test]
fn the_hubs_own_capabilities_are_governed_by_the_policy() {
    let rule = Rule {
        identity: None,
        agent_ids: None,
        provide: vec!["*".parse().unwrap()],
        call: vec!["*".parse().unwrap()],
    };
    let policy = Policy { rules: vec![rule], ..Policy::default() };
    let mut w = World::under(Settings::default(), policy);
    w.join("c", caller("c"));
    w.say("c", &call(1, "hub.agents.disconnect"));
    w.say("c", &call(2, "hub.stats"));
    w.say("c", &call(3, "hub.nonsense"));
    let heard: Vec<String> = w.heard("c").iter().map(|line| line.chars().take(22).collect()).collect();
    assert_eq!(heard, ["RESULT 1 unauthorized", "RESULT 2 completed of=", "RESULT 3 no_capability"]);
}

#[test]
fn every_end_is_a_fact_and_made_up_names_make_no_series() {
    let mut w = World::pair("echo");
    w.take_facts();
    w.say("c", &call(1, "echo"));
    w.say("p", &completed(1));
    w.say("c", &call(2, "made-up"));
    let mut ends = Vec::new();
    for fact in w.take_facts() {
        if let Fact::CallEnded { capability, outcome, .. } = fact {
            ends.push((capability.map(|name| name.to_string()), outcome.as_str()));
        }
    }
    assert_eq!(ends, [(Some("echo".to_owned()), "completed"), (None, "no_capability")]);
}
