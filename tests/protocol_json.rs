//! Section 2 of the protocol: the JSON subprotocol and its conversions, against agents that speak MessagePack.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Format, Hub, RawClient, kind};
use rmpv::Value;
use serde_json::json;

/// A hub, a MessagePack agent and a JSON agent; the first offers `m`, the second `j`.
async fn world() -> (Hub, RawClient, RawClient) {
    let hub = Hub::dev();
    let msgpack = hub.agent("msgpack", &["m"]).await;
    let json = hub.agent_as("json", Format::Json, &["j"], map! {}).await;
    (hub, msgpack, json)
}

/// Sends a CALL to `m` whose body is this JSON text; its id.
async fn call_text(json: &mut RawClient, body: &str) -> u64 {
    let id = json.next_id();
    let text = format!(r#"[10,{{"id":{id},"capability":"m","retries":0}},{body}]"#);
    json.message(text.as_bytes()).await;
    id
}

fn ext(kind: i8, bytes: &[u8]) -> Value {
    Value::Ext(kind, bytes.to_vec())
}

/// What both sides mean, as JSON and as MessagePack.
fn pairs() -> Vec<(serde_json::Value, Value)> {
    vec![
        (json!({"text": "h\u{e9}llo \u{1f600}", "n": 5, "list": [1, null, true, -7, 1.5]}), {
            let items =
                vec![Value::from(1), Value::Nil, Value::from(true), Value::from(-7), Value::from(1.5)];
            map! {"list" => items, "n" => 5, "text" => "h\u{e9}llo \u{1f600}"}
        }),
        (json!("text"), Value::from("text")),
        (json!(false), Value::from(false)),
        (json!([]), Value::Array(vec![])),
        (json!({}), map! {}),
        (json!(9_007_199_254_740_991_u64), Value::from(9_007_199_254_740_991_u64)),
        (json!({"$bin": "AAEC/w=="}), Value::Binary(vec![0, 1, 2, 255])),
        (json!({"$bin": ""}), Value::Binary(vec![])),
        (json!({"$int": "18446744073709551615"}), Value::from(u64::MAX)),
        (json!({"$int": "-9223372036854775808"}), Value::from(i64::MIN)),
        (json!({"$int": "9007199254740993"}), Value::from(9_007_199_254_740_993_u64)),
        (json!({"$time": "1970-01-01T00:00:01Z"}), ext(-1, &[0, 0, 0, 1])),
        (json!({"$ext": [42, "AQI="]}), ext(42, &[1, 2])),
        (json!({"$ext": [-7, ""]}), ext(-7, &[])),
        (json!({"deep": [{"$bin": "/w=="}, {"$int": "9007199254740993"}]}), {
            map! {"deep" => vec![Value::Binary(vec![255]), Value::from(9_007_199_254_740_993_u64)]}
        }),
        (json!({"$int": "1", "more": 2}), map! {"$int" => "1", "more" => 2}),
        (json!({"$bin": "AA==", "$int": "1"}), map! {"$bin" => "AA==", "$int" => "1"}),
        (json!({"$other": 1}), map! {"$other" => 1}),
    ]
}

#[tokio::test]
async fn a_json_caller_and_a_messagepack_provider_mean_the_same() {
    let (_hub, mut msgpack, mut json) = world().await;
    for (text, value) in pairs() {
        let id = call_text(&mut json, &text.to_string()).await;
        let call = msgpack.taken().await;
        assert_eq!(call.content(), value, "{text} on its way in");
        msgpack.complete(&call, Value::Binary(raw::pack(&value))).await;
        assert_eq!(raw::json_of(&json.completed(id).await.body), text, "{value} on its way out");
    }
}

#[tokio::test]
async fn a_messagepack_caller_and_a_json_provider_mean_the_same() {
    let (_hub, mut msgpack, mut json) = world().await;
    for (text, value) in pairs() {
        let id = msgpack.call("j", map! {}, Value::Binary(raw::pack(&value))).await;
        let call = json.taken().await;
        assert_eq!(raw::json_of(&call.body), text, "{value} on its way out");
        json.complete(&call, call.body.clone()).await;
        assert_eq!(msgpack.completed(id).await.content(), value, "{text} on its way in");
    }
}

#[tokio::test]
async fn two_json_agents_talk_to_each_other() {
    let (hub, _msgpack, mut json) = world().await;
    let mut other = hub.agent_as("other", Format::Json, &[], map! {}).await;
    let id = other.call("j", map! {}, map! {"a" => list![1, "b"]}).await;
    json.echo().await;
    assert_eq!(other.completed(id).await.body, map! {"a" => list![1, "b"]});
}

#[tokio::test]
async fn a_body_that_is_absent_is_nil() {
    let (_hub, mut msgpack, mut json) = world().await;
    json.message(br#"[10,{"id":1,"capability":"m","retries":0}]"#).await;
    json.last_id = 1;
    assert_eq!(msgpack.echo().await.body, Value::Nil);
    assert_eq!(json.completed(1).await.body, Value::Nil);
}

#[tokio::test]
async fn bare_integers_are_taken_exactly() {
    let (_hub, mut msgpack, mut json) = world().await;
    for (text, value) in [
        ("18446744073709551615", Value::from(u64::MAX)),
        ("9223372036854775808", Value::from(1_u64 << 63)),
        ("9007199254740993", Value::from(9_007_199_254_740_993_u64)),
        ("-9223372036854775808", Value::from(i64::MIN)),
        ("-9007199254740993", Value::from(-9_007_199_254_740_993_i64)),
    ] {
        let id = call_text(&mut json, text).await;
        assert_eq!(msgpack.echo().await.content(), value, "{text}");
        let back = raw::json_of(&json.completed(id).await.body);
        assert_eq!(back, json!({"$int": text}), "beyond 2^53 it goes out as text");
    }
    for text in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        let id = call_text(&mut json, text).await;
        json.failed(id, "invalid_request").await;
    }
    msgpack.fence().await;
}

#[tokio::test]
async fn an_object_that_looks_like_a_conversion_and_is_none_is_invalid_for_that_call() {
    let (_hub, mut msgpack, mut json) = world().await;
    for body in [
        r#"{"$int":"ten"}"#,
        r#"{"$int":""}"#,
        r#"{"$int":"1.5"}"#,
        r#"{"$int":5}"#,
        r#"{"$int":"18446744073709551616"}"#,
        r#"{"$bin":"***"}"#,
        r#"{"$bin":7}"#,
        r#"{"$bin":"A"}"#,
        r#"{"$time":"yesterday"}"#,
        r#"{"$time":"2024-13-01T00:00:00Z"}"#,
        r#"{"$time":1}"#,
        r#"{"$ext":[1]}"#,
        r#"{"$ext":[300,"AA=="]}"#,
        r#"{"$ext":["1","AA=="]}"#,
        r#"{"$ext":"AA=="}"#,
        r#"{"deep":[[{"$int":"ten"}]]}"#,
    ] {
        let id = call_text(&mut json, body).await;
        json.failed(id, "invalid_request").await;
    }
    msgpack.fence().await;
    canary(&mut json, &mut msgpack, "m").await;
}

#[tokio::test]
async fn what_json_has_no_word_for_goes_out_as_the_contract_says() {
    let (_hub, mut msgpack, mut json) = world().await;
    let id = json.call("m", map! {}, Value::Nil).await;
    let call = msgpack.taken().await;
    let odd = Value::Map(vec![
        (Value::from(1), Value::from("integer key")),
        (Value::from(true), Value::from("boolean key")),
        (Value::Nil, Value::from("nil key")),
        (Value::from("nan"), Value::from(f64::NAN)),
        (Value::from("inf"), Value::from(f64::INFINITY)),
        (Value::from("f32"), Value::F32(0.5)),
    ]);
    msgpack.complete(&call, odd).await;
    let expected = json!({
        "1": "integer key", "true": "boolean key", "null": "nil key", "nan": null, "inf": null, "f32": 0.5,
    });
    assert_eq!(raw::json_of(&json.completed(id).await.body), expected);
}

#[tokio::test]
async fn times_of_every_width_go_out_as_rfc_3339() {
    let (_hub, mut msgpack, mut json) = world().await;
    let nanos_and_seconds = (500_000_000_u64 << 34 | 1_000_000_000).to_be_bytes();
    let long_ago = [0_u32.to_be_bytes().as_slice(), &(-1_i64).to_be_bytes()].concat();
    for (bytes, text) in [
        (0_u32.to_be_bytes().to_vec(), "1970-01-01T00:00:00Z"),
        (1_000_000_000_u32.to_be_bytes().to_vec(), "2001-09-09T01:46:40Z"),
        (nanos_and_seconds.to_vec(), "2001-09-09T01:46:40.5Z"),
        (long_ago, "1969-12-31T23:59:59Z"),
    ] {
        let id = json.call("m", map! {}, Value::Nil).await;
        let call = msgpack.taken().await;
        msgpack.complete(&call, ext(-1, &bytes)).await;
        let body = raw::json_of(&json.completed(id).await.body);
        let time = body["$time"].as_str().unwrap_or_else(|| panic!("no $time in {body}"));
        // RFC 3339 allows any number of digits behind the point, and +00:00 for Z.
        let plain = time.replace("+00:00", "Z");
        let (seconds, rest) = plain.split_at(19);
        let digits = rest.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.');
        assert_eq!(format!("{seconds}{digits}Z"), text);
    }
}

#[tokio::test]
async fn times_come_in_with_any_offset() {
    let (_hub, mut msgpack, mut json) = world().await;
    for text in ["1970-01-01T00:00:01Z", "1970-01-01T01:00:01+01:00", "1969-12-31T23:30:01-00:30"] {
        let id = call_text(&mut json, &json!({"$time": text}).to_string()).await;
        assert_eq!(msgpack.echo().await.content(), ext(-1, &[0, 0, 0, 1]), "{text}");
        json.completed(id).await;
    }
}

#[tokio::test]
async fn a_json_agent_takes_part_in_streams() {
    let (_hub, mut msgpack, mut json) = world().await;
    let id = json.call("m", map! {"stream" => true, "credit" => 2}, Value::Nil).await;
    let call = msgpack.taken().await;
    msgpack.accept(&call).await;
    json.accepted(id).await;
    msgpack.chunk(&call, 0, map! {"bytes" => Value::Binary(vec![255])}).await;
    let chunk = json.chunk_of(id, 0).await;
    assert_eq!(raw::json_of(&chunk.body), json!({"bytes": {"$bin": "/w=="}}));
    json.credit(id, 1).await;
    msgpack.expect(kind::CREDIT, "CREDIT").await;
    msgpack.complete(&call, Value::Nil).await;
    json.completed(id).await;

    let id = msgpack.call("j", map! {"stream" => true}, Value::Nil).await;
    let call = json.taken().await;
    json.chunk(&call, 0, map! {"$int" => "7"}).await;
    assert_eq!(msgpack.chunk_of(id, 0).await.content(), Value::from(7));
    json.complete(&call, Value::Nil).await;
    msgpack.completed(id).await;
}

#[tokio::test]
async fn an_id_of_a_json_caller_comes_back_exactly() {
    let (_hub, mut msgpack, mut json) = world().await;
    let id = 9_007_199_254_740_991_u64;
    json.last_id = id - 1;
    canary(&mut json, &mut msgpack, "m").await;
    assert_eq!(json.last_id, id);
}

#[tokio::test]
async fn a_number_and_a_text_are_different_ids() {
    let (_hub, mut msgpack, mut json) = world().await;
    let id = json.call("m", map! {}, Value::Nil).await;
    let call = msgpack.taken().await;
    json.send(kind::CANCEL, map! {"id" => id.to_string()}, Value::Nil).await;
    json.expect_error(kind::CANCEL, "invalid_request").await;
    msgpack.complete(&call, Value::Nil).await;
    json.completed(id).await;
}
