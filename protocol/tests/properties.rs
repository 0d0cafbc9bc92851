//! What holds for all bytes and all headers.

#![cfg(test)]

mod support {
    pub(crate) mod message;
}

use agent_reach_protocol::codec::{read_one, read_value};
use agent_reach_protocol::{DecodeError, json};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::Union;
use rmpv::Value;
use support::message::Message;

/// A key of a header with the values it can have.
type Key = (&'static str, bool, BoxedStrategy<Value>);

fn must(name: &'static str, values: BoxedStrategy<Value>) -> Key {
    (name, true, values)
}

fn may(name: &'static str, values: BoxedStrategy<Value>) -> Key {
    (name, false, values)
}

/// A map of these keys in any order, with keys that nobody knows and, for some, private ones.
fn map(keys: Vec<Key>) -> BoxedStrategy<Value> {
    let mut entries = Just(Vec::new()).boxed();
    for (name, required, values) in keys {
        let value = if required {
            values.prop_map(Some).boxed()
        } else {
            proptest::option::of(prop_oneof![4 => values, 1 => Just(Value::Nil)]).boxed()
        };
        entries = (entries, value)
            .prop_map(move |(mut entries, value): (Vec<(Value, Value)>, _)| {
                entries.extend(value.map(|value| (Value::from(name), value)));
                entries
            })
            .boxed();
    }
    let unknown = proptest::collection::btree_map("(y|x)-[a-c]{1,3}", anything(), 0..3);
    (entries, unknown)
        .prop_map(|(mut entries, unknown)| {
            entries.extend(unknown.into_iter().map(|(key, value)| (key.into(), value)));
            entries
        })
        .prop_shuffle()
        .prop_map(Value::Map)
        .boxed()
}

fn uint() -> BoxedStrategy<Value> {
    prop_oneof![0_u64..300, any::<u64>()].prop_map(Value::from).boxed()
}

fn text(least: usize) -> BoxedStrategy<Value> {
    // Four bytes a character at most.
    proptest::collection::vec(any::<char>(), least..32)
        .prop_map(|chars| chars.into_iter().collect::<String>().into())
        .boxed()
}

fn flag() -> BoxedStrategy<Value> {
    any::<bool>().prop_map(Value::from).boxed()
}

fn share() -> BoxedStrategy<Value> {
    prop_oneof![
        (0.0..=1.0_f64).prop_map(Value::from),
        (0.0..=1.0_f32).prop_map(Value::from),
        (0_u8..2).prop_map(Value::from)
    ]
    .boxed()
}

fn word(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    proptest::sample::select(words).prop_map(Value::from).boxed()
}

fn list(item: BoxedStrategy<Value>, least: usize) -> BoxedStrategy<Value> {
    proptest::collection::vec(item, least..4).prop_map(Value::Array).boxed()
}

fn labels() -> BoxedStrategy<Value> {
    proptest::collection::btree_map("[a-z]{1,8}", ".{0,8}", 0..4)
        .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (k.into(), v.into())).collect()))
        .boxed()
}

fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Value::Binary),
        (any::<i8>(), proptest::collection::vec(any::<u8>(), 0..20)).prop_map(|(t, d)| Value::Ext(t, d)),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map("[a-z]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (k.into(), v)).collect())),
        ]
    })
    .boxed()
}

fn capability() -> BoxedStrategy<Value> {
    map(vec![
        must("name", text(0)),
        may("version", text(1)),
        may("description", text(0)),
        may("input_schema", anything()),
        may("output_schema", anything()),
        may("timeout_ms", uint()),
        may("qps_limit", share()),
        may("idempotent", flag()),
        may("labels", labels()),
        may("aliases", list(text(0), 0)),
    ])
}

fn load() -> BoxedStrategy<Value> {
    let level = proptest::collection::btree_map("[a-z]{1,8}", share(), 0..4)
        .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (k.into(), v)).collect()));
    map(vec![
        may("in_flight", uint()),
        may("queued", uint()),
        may("cpu", share()),
        may("memory", share()),
        may("health", (0_u64..=100).prop_map(Value::from).boxed()),
        may("levels", level.boxed()),
    ])
}

const STATUS: &[&str] = &["ready", "degraded", "draining"];
const MODE: &[&str] = &["call", "task", "notify"];
const PRIORITY: &[&str] = &["low", "normal", "high"];

fn hello() -> BoxedStrategy<Value> {
    map(vec![
        must("v", uint()),
        must("agent_id", text(1)),
        must("instance", text(1)),
        may("service", text(0)),
        may("version", text(0)),
        may("sdk", text(0)),
        may("features", list(text(1), 0)),
        may("capabilities", list(capability(), 0)),
        may("labels", labels()),
        may("max_concurrency", uint()),
        may("calls", list(text(0), 0)),
        may("status", word(STATUS)),
        may("load", load()),
    ])
}

fn welcome() -> BoxedStrategy<Value> {
    let granted = map(vec![may("provide", list(text(0), 0)), may("call", list(text(0), 0))]);
    map(vec![
        must("session", text(0)),
        must("hub", text(0)),
        may("features", list(text(1), 0)),
        must("keepalive_ms", uint()),
        must("suspect_ms", uint()),
        must("gone_ms", uint()),
        must("max_message", uint()),
        must("max_in_flight", uint()),
        must("granted", granted),
        may("warnings", list(text(0), 0)),
        may("replaced", flag()),
    ])
}

fn update() -> BoxedStrategy<Value> {
    map(vec![
        may("status", word(STATUS)),
        may("load", load()),
        may("add", list(capability(), 0)),
        may("remove", list(text(0), 0)),
    ])
}

fn goodbye() -> BoxedStrategy<Value> {
    map(vec![must("code", text(1)), may("reason", text(0)), may("reconnect_after_ms", uint())])
}

fn error_reply() -> BoxedStrategy<Value> {
    map(vec![
        must("ref_kind", uint()),
        may("id", uint()),
        must("code", text(1)),
        must("message", text(0)),
        may("details", anything()),
    ])
}

fn call() -> BoxedStrategy<Value> {
    let select = prop_oneof![word(&["one", "all"]), (1_u64..).prop_map(Value::from)].boxed();
    map(vec![
        must("id", uint()),
        may("request_id", text(1)),
        may("keep_ms", uint()),
        must("capability", text(1)),
        may("version", text(1)),
        may("agents", list(text(1), 1)),
        may("select", select),
        may("policy", word(&["least_loaded", "round_robin", "random"])),
        may("labels", labels()),
        may("require", labels()),
        may("mode", word(MODE)),
        may("stream", flag()),
        may("credit", uint()),
        may("accept_timeout_ms", uint()),
        may("timeout_ms", uint()),
        may("budget_ms", uint()),
        may("preferred_timeout_ms", uint()),
        may("priority", word(PRIORITY)),
        may("retries", uint()),
        may("allow_fallback", flag()),
        may("allow_cached_ms", uint()),
        may("queue", flag()),
        may("wait_ms", uint()),
        may("affinity_key", text(1)),
        may("expected_output", anything()),
        may("traceparent", text(0)),
        may("tracestate", text(0)),
        may("callback_url", text(0)),
        may("reply_to", text(0)),
        may("content_type", text(0)),
    ])
}

fn dispatch() -> BoxedStrategy<Value> {
    map(vec![
        must("id", uint()),
        must("request_id", text(1)),
        must("call_id", text(1)),
        must("capability", text(1)),
        must("caller", text(1)),
        must("attempt", uint()),
        must("deadline_ms", uint()),
        may("preferred_timeout_ms", uint()),
        may("stream", flag()),
        may("credit", uint()),
        must("mode", word(MODE)),
        must("priority", word(PRIORITY)),
        may("labels", labels()),
        may("traceparent", text(0)),
        may("tracestate", text(0)),
        may("content_type", text(0)),
        may("task_id", text(1)),
    ])
}

fn accept() -> BoxedStrategy<Value> {
    map(vec![
        must("id", uint()),
        may("queue_depth", uint()),
        may("would_timeout", flag()),
        may("wait_ms", uint()),
        may("request_id", text(1)),
        may("call_id", text(1)),
        may("target", text(1)),
        may("attempt", uint()),
        may("task_id", text(1)),
    ])
}

fn result() -> BoxedStrategy<Value> {
    let attempt = map(vec![
        must("target", text(1)),
        must("outcome", text(1)),
        must("ms", uint()),
        must("reason", text(0)),
    ]);
    let error = map(vec![
        must("code", text(1)),
        must("message", text(0)),
        may("retryable", flag()),
        may("details", anything()),
    ]);
    let summary = map(vec![may("targets", uint()), may("completed", uint()), may("failed", uint())]);
    map(vec![
        may("id", uint()),
        must("status", word(&["completed", "failed", "no_instance"])),
        may("request_id", text(1)),
        may("call_id", text(1)),
        may("target", text(1)),
        may("task_id", text(1)),
        may("execution_ms", uint()),
        may("attempts", list(attempt, 0)),
        may("route", text(0)),
        may("cached", flag()),
        may("duplicate", flag()),
        may("error", error),
        may("more", flag()),
        may("summary", summary),
        may("content_type", text(0)),
    ])
}

/// A valid message of one header, with its direction.
fn message(kind: u8, to_hub: bool, header: BoxedStrategy<Value>) -> BoxedStrategy<(Bytes, bool)> {
    let body = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40));
    (header, body)
        .prop_map(move |(header, body)| {
            let body = body.map_or(Value::Nil, Value::Binary);
            let mut bytes = Vec::new();
            rmpv::encode::write_value(&mut bytes, &Value::Array(vec![kind.into(), header, body])).unwrap();
            (Bytes::from(bytes), to_hub)
        })
        .boxed()
}

fn messages() -> impl Strategy<Value = (Bytes, bool)> {
    let chunk = || {
        let keys = [("target", 1), ("content_type", 0)].map(|(name, least)| may(name, text(least)));
        map([must("id", uint()), must("seq", uint())].into_iter().chain(keys).collect())
    };
    let credit = || map(vec![must("id", uint()), must("n", uint()), may("target", text(1))]);
    let cancel = || map(vec![must("id", uint()), may("reason", text(0)), may("wait", flag())]);
    let mut all = vec![
        message(1, true, hello()),
        message(2, false, welcome()),
        message(3, true, update()),
        message(5, false, error_reply()),
        message(10, true, call()),
        message(10, false, dispatch()),
        message(16, true, map(vec![must("task_id", text(1))])),
    ];
    for to_hub in [true, false] {
        all.push(message(4, to_hub, goodbye()));
        all.push(message(11, to_hub, accept()));
        all.push(message(12, to_hub, chunk()));
        all.push(message(13, to_hub, credit()));
        all.push(message(14, to_hub, result()));
        all.push(message(15, to_hub, cancel()));
    }
    Union::new(all)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_header_reads_back_as_it_was_written((bytes, to_hub) in messages()) {
        let read = Message::read(&bytes, to_hub).unwrap();
        let written = read.encoded();
        let again = Message::read(&written, to_hub).unwrap();
        // As text, since NaN may stand inside values that are carried through and is not equal to itself.
        prop_assert_eq!(format!("{again:?}"), format!("{read:?}"));
        prop_assert_eq!(again.encoded(), written);
    }

    #[test]
    fn a_message_that_ends_too_early_is_never_read((bytes, to_hub) in messages(), cut: prop::sample::Index) {
        let short = bytes.slice(..cut.index(bytes.len()));
        prop_assert!(matches!(Message::read(&short, to_hub), Err(DecodeError::Untrusted(_))));
    }

    #[test]
    fn a_message_with_more_behind_it_is_never_read((bytes, to_hub) in messages(), more: u8) {
        let long = Bytes::from([&bytes[..], &[more]].concat());
        prop_assert!(matches!(Message::read(&long, to_hub), Err(DecodeError::Untrusted(_))));
    }

    #[test]
    fn a_message_with_a_wrong_byte_never_panics(
        (bytes, to_hub) in messages(), at: prop::sample::Index, byte: u8,
    ) {
        let mut wrong = bytes.to_vec();
        wrong[at.index(bytes.len())] = byte;
        let wrong = Bytes::from(wrong);
        if let Ok(message) = Message::read(&wrong, to_hub) {
            let written = message.encoded();
            prop_assert_eq!(Message::read(&written, to_hub).unwrap().encoded(), written);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), to_hub: bool) {
        let read = read_one(&bytes).is_ok();
        prop_assert!(!read || read_value(&bytes).is_ok());
        let bytes = Bytes::from(bytes);
        if let Ok(message) = Message::read(&bytes, to_hub) {
            prop_assert!(message.encoded().len() <= 9 * bytes.len());
        }
    }

    #[test]
    fn a_message_survives_the_json_edge((bytes, to_hub) in messages().prop_filter("to the hub", |m| m.1)) {
        // Bodies of any bytes have no JSON form; the header has one, but for what JSON cannot tell apart.
        if let Ok(text) = json::from_msgpack(&bytes)
            && let Ok(converted) = json::to_msgpack(&text)
            && converted.fault.is_none()
        {
            let envelope = Bytes::from(converted.envelope);
            let read = Message::read(&envelope, to_hub);
            prop_assert!(read.is_ok(), "{text}: {read:?}");
        }
    }
}
