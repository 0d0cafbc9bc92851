//! Calls are held against the schemas of who offers a capability before they reach anybody.
#![cfg(test)]

mod world;

use agent_reach_protocol::codec::Raw;
use agent_reach_protocol::{Call, Capability, Hello, ToAgent, Update, decode_to_agent};
use rmpv::Value;
use world::{World, call, caller, capability, completed, provider, update};

fn pack(value: &serde_json::Value) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

fn order() -> Vec<u8> {
    pack(&serde_json::json!({
        "type": "object",
        "required": ["amount"],
        "properties": {"amount": {"type": "integer", "minimum": 1}, "note": {"type": "string"}},
    }))
}

fn checked<'a>(name: &'a str, input: &'a [u8]) -> Capability<'a> {
    Capability { input_schema: Some(Raw(input)), ..capability(name) }
}

fn promising<'a>(name: &'a str, output: &'a [u8]) -> Capability<'a> {
    Capability { output_schema: Some(Raw(output)), ..capability(name) }
}

fn ask(w: &mut World, id: u64, asking: &Call<'_>, body: &serde_json::Value) -> Vec<String> {
    w.say_bytes("c", agent_reach_protocol::encode(&Call { id, ..asking.clone() }, Some(&pack(body))));
    w.heard("c")
}

/// The pointers in the details of the RESULT that waits for the caller.
fn pointers(w: &mut World) -> Vec<String> {
    let batch = w.take("c");
    let message = batch[0].message().unwrap();
    let Ok((ToAgent::Result(result), _)) = decode_to_agent(&message) else { panic!("a RESULT") };
    let details = rmpv::decode::read_value(&mut &*result.error.unwrap().details.unwrap().0).unwrap();
    let Value::Array(violations) = &details["violations"] else { panic!("{details}") };
    violations.iter().map(|violation| violation["pointer"].as_str().unwrap().to_owned()).collect()
}

fn world(offers: Capability<'_>) -> World {
    let mut w = World::new();
    w.join("c", caller("c"));
    w.join("p", Hello { capabilities: vec![offers], ..caller("p") });
    w
}

#[test]
fn a_body_that_fits_goes_and_one_that_does_not_reaches_nobody() {
    let schema = order();
    let mut w = world(checked("a", &schema));
    assert_eq!(ask(&mut w, 1, &call(1, "a"), &serde_json::json!({"amount": 3})), [""; 0]);
    assert_eq!(w.heard("p").len(), 1);
    let wrong = pack(&serde_json::json!({"amount": 0, "note": 7}));
    w.say_bytes("c", agent_reach_protocol::encode(&call(2, "a"), Some(&wrong)));
    let mut found = pointers(&mut w);
    found.sort();
    assert_eq!(found, ["/amount", "/note"]);
    assert_eq!(w.heard("p"), [""; 0]);
}

#[test]
fn a_body_goes_to_whom_it_fits() {
    let (number, text) =
        (pack(&serde_json::json!({"type": "integer"})), pack(&serde_json::json!({"type": "string"})));
    let mut w = world(checked("a", &number));
    w.join("q", Hello { capabilities: vec![checked("a", &text)], ..caller("q") });
    for id in 1..=4 {
        let body = if id % 2 == 0 { serde_json::json!(id) } else { serde_json::json!("text") };
        assert_eq!(ask(&mut w, id, &call(id, "a"), &body), [""; 0]);
    }
    assert_eq!((w.heard("p").len(), w.heard("q").len()), (2, 2));
    let heard = ask(&mut w, 9, &call(9, "a"), &serde_json::json!([]));
    assert_eq!(heard, ["RESULT 9 schema_mismatch"]);
}

#[test]
fn one_whom_it_fits_and_who_is_away_is_no_mismatch() {
    let (number, text) =
        (pack(&serde_json::json!({"type": "integer"})), pack(&serde_json::json!({"type": "string"})));
    let mut w = world(checked("a", &number));
    w.join(
        "q",
        Hello {
            status: Some(agent_reach_protocol::AgentStatus::Draining),
            capabilities: vec![checked("a", &text)],
            ..caller("q")
        },
    );
    let heard = ask(&mut w, 1, &call(1, "a"), &serde_json::json!("text"));
    assert_eq!(heard, ["RESULT 1 no_instance retryable"]);
}

#[test]
fn who_cannot_give_what_is_expected_is_left_out() {
    let with = pack(&serde_json::json!({"type": "object", "properties": {"score": {"type": "number"}}}));
    let without = pack(&serde_json::json!({"type": "object", "properties": {"text": {"type": "string"}}}));
    let expects = pack(&serde_json::json!({"required": ["score"]}));
    let mut w = world(promising("a", &without));
    w.join("r", provider("r", "a"));
    let asking = |id| Call { expected_output: Some(Raw(&expects)), ..call(id, "a") };
    w.say("c", &asking(1));
    assert_eq!(pointers(&mut w), ["/score"]);
    w.join("q", Hello { capabilities: vec![promising("a", &with)], ..caller("q") });
    for id in 2..5 {
        w.say("c", &asking(id));
    }
    assert_eq!((w.heard("p").len(), w.heard("q").len(), w.heard("r").len()), (0, 3, 0));
}

#[test]
fn an_expected_output_that_is_no_schema_is_an_invalid_request() {
    let mut w = World::pair("a");
    let nonsense = pack(&serde_json::json!([1]));
    w.say("c", &Call { expected_output: Some(Raw(&nonsense)), ..call(1, "a") });
    assert_eq!(w.heard("c"), ["RESULT 1 invalid_request"]);
}

#[test]
fn a_capability_whose_schema_is_none_is_left_out_and_named() {
    let mut w = World::new();
    let nonsense = pack(&serde_json::json!({"type": "nothing-known"}));
    w.open("p");
    w.say("p", &Hello { capabilities: vec![checked("a", &nonsense), capability("b")], ..caller("p") });
    let heard = w.heard("p");
    assert!(heard[0].contains("left out: input_schema is no JSON Schema"), "{heard:?}");
    w.join("c", caller("c"));
    w.say("c", &call(1, "b"));
    assert_eq!(w.heard("p").len(), 1);
}

#[test]
fn who_brings_more_new_schemas_than_may_be_compiled_at_once_is_registered_without_the_check() {
    let schema = |n: u64| {
        pack(&serde_json::json!({"type": "object", "title": "x".repeat(60_000), "minProperties": n}))
    };
    let (one, two, three) = (schema(1), schema(2), schema(3));
    let mut w = World::new();
    w.open("p");
    let offers = vec![checked("a", &one), checked("b", &two), checked("c", &three)];
    w.say("p", &Hello { capabilities: offers, ..caller("p") });
    let heard = w.heard("p");
    assert!(heard[0].contains("capability c: its schemas are shown and not checked"), "{heard:?}");
    w.join("c", caller("c"));
    assert_eq!(ask(&mut w, 1, &call(1, "b"), &serde_json::json!({})), ["RESULT 1 schema_mismatch"]);
    assert_eq!(ask(&mut w, 2, &call(2, "c"), &serde_json::json!({})), [""; 0]);
    // What another agent brought already costs nothing.
    w.join("q", Hello { capabilities: vec![checked("a", &one), checked("b", &two)], ..caller("q") });
}

#[test]
fn a_schema_that_an_update_brings_counts_from_then_on() {
    let schema = order();
    let mut w = World::pair("a");
    assert_eq!(ask(&mut w, 1, &call(1, "a"), &serde_json::json!({})), [""; 0]);
    w.say("p", &Update { add: vec![checked("a", &schema)], ..update() });
    w.say("p", &completed(1));
    w.all_heard();
    assert_eq!(ask(&mut w, 2, &call(2, "a"), &serde_json::json!({})), ["RESULT 2 schema_mismatch"]);
}

#[test]
fn calls_that_wait_for_agents_with_other_schemas_do_not_hold_up_each_other() {
    let (number, text) =
        (pack(&serde_json::json!({"type": "integer"})), pack(&serde_json::json!({"type": "string"})));
    let mut w = World::new();
    w.join("c", caller("c"));
    for (name, schema) in [("p", &number), ("q", &text)] {
        w.join(
            name,
            Hello { max_concurrency: Some(1), capabilities: vec![checked("a", schema)], ..caller(name) },
        );
    }
    let waits = Call { queue: None, ..call(1, "a") };
    for (id, body) in [
        (1, serde_json::json!(1)),
        (2, serde_json::json!("x")),
        (3, serde_json::json!(2)),
        (4, serde_json::json!("y")),
    ] {
        assert_eq!(ask(&mut w, id, &waits, &body), [""; 0]);
    }
    assert_eq!((w.heard("p").len(), w.heard("q").len()), (1, 1));
    w.say("q", &completed(1));
    assert_eq!((w.heard("p").len(), w.heard("q").len()), (0, 1), "the text goes past the number");
}
