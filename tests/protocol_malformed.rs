//! The paragraph "Strictness" of the protocol: what cannot be trusted as an envelope ends the connection, and
//! nothing else.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::frame::{BINARY, TEXT};
use raw::peer::canary;
use raw::{Format, Hub, RawClient, frame, kind};
use rmpv::Value;

fn hub() -> Hub {
    Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "100000")])
}

/// `depth` arrays, each within the one before.
fn nested(depth: usize) -> Vec<u8> {
    let mut bytes = vec![0x91; depth - 1];
    bytes.push(0x90);
    bytes
}

/// Sends each message on a connection of its own, before and after HELLO, and expects the end of just that one.
async fn each_ends_its_connection(format: Format, messages: &[(&str, Vec<u8>)]) {
    let hub = hub();
    let mut caller = hub.agent("canary-caller", &[]).await;
    let mut provider = hub.agent("canary-provider", &["canary"]).await;
    let identity = hub.identity("a");
    for (what, message) in messages {
        for registered in [false, true] {
            let mut client = hub.connect_with(&format!("a: {what}"), format, &identity).await;
            if registered {
                client.hello(&[], map! {"agent_id" => "a"}).await;
                client.welcome().await;
            }
            client.message(message).await;
            client.expect_protocol_error().await;
        }
        canary(&mut caller, &mut provider, "canary").await;
    }
}

/// An UPDATE envelope whose header is the map that begins with `marker` and goes on with `rest`.
fn update(header: &[u8]) -> Vec<u8> {
    [&[0x92, 3], header].concat()
}

#[tokio::test]
async fn messagepack_that_is_no_envelope_ends_the_connection() {
    let deep_header = [b"\x81\xa4deep".as_slice(), &nested(40)].concat();
    let messages = [
        ("nothing", vec![]),
        ("the byte that is never used", vec![0xc1]),
        ("the never used byte as kind", vec![0x92, 0xc1, 0x80]),
        ("a map", vec![0x80]),
        ("an integer", vec![3]),
        ("a string", b"\xa5hello".to_vec()),
        ("nil", vec![0xc0]),
        ("an empty array", vec![0x90]),
        ("an array of one", vec![0x91, 3]),
        ("an array of four", vec![0x94, 3, 0x80, 0xc0, 0xc0]),
        ("a truncated array", vec![0x93, 3, 0x80]),
        ("a truncated header", vec![0x92, 3, 0x81, 0xa6, b's', b't']),
        ("a trailing byte", vec![0x92, 3, 0x80, 0xc0]),
        ("a second envelope", vec![0x92, 3, 0x80, 0x92, 3, 0x80]),
        ("a header that is nil", vec![0x92, 3, 0xc0]),
        ("a header that is an array", vec![0x92, 3, 0x90]),
        ("a header that is a string", vec![0x92, 3, 0xa0]),
        ("a negative kind", vec![0x92, 0xff, 0x80]),
        ("a kind that is a string", vec![0x92, 0xa1, b'3', 0x80]),
        ("a kind that is a float", vec![0x92, 0xca, 0x40, 0x40, 0, 0, 0x80]),
        ("a kind that is nil", vec![0x92, 0xc0, 0x80]),
        ("a repeated key", update(b"\x82\xa1a\x01\xa1a\x02")),
        ("a repeated key in two widths", update(b"\x82\xa1a\x01\xd9\x01a\x02")),
        ("a key that is an integer", update(b"\x81\x01\x02")),
        ("a key that is binary", update(b"\x81\xc4\x01a\x02")),
        ("a header nested too deep", update(&deep_header)),
    ];
    each_ends_its_connection(Format::MsgPack, &messages).await;
}

#[tokio::test]
async fn lengths_that_no_bytes_follow_end_the_connection() {
    let messages = [
        ("an envelope of 2^32 - 1", vec![0xdd, 0xff, 0xff, 0xff, 0xff]),
        ("a header of 2^32 - 1 keys", update(&[0xdf, 0xff, 0xff, 0xff, 0xff])),
        ("a body of 2^32 - 1 bytes", vec![0x93, 3, 0x80, 0xc6, 0xff, 0xff, 0xff, 0xff]),
        ("a key of 2^32 - 1 bytes", update(&[0x81, 0xdb, 0xff, 0xff, 0xff, 0xff])),
        ("a value of 2^32 - 1 items", update(&[0x81, 0xa1, b'a', 0xdd, 0xff, 0xff, 0xff, 0xff])),
        ("an extension of 2^32 - 1 bytes", update(&[0x81, 0xa1, b'a', 0xc9, 0xff, 0xff, 0xff, 0xff, 1])),
        ("a string of 65535 bytes", update(&[0x81, 0xda, 0xff, 0xff])),
        ("10,000 nested arrays", nested(10_000)),
        ("10,000 nested arrays in the header", update(&[b"\x81\xa1a".as_slice(), &nested(10_000)].concat())),
        ("500,000 nested arrays", nested(500_000)),
    ];
    each_ends_its_connection(Format::MsgPack, &messages).await;
}

#[tokio::test]
async fn json_that_is_no_envelope_ends_the_connection() {
    let deep = format!(r#"[3,{{"deep":{}1{}}}]"#, "[".repeat(40), "]".repeat(40));
    let very_deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let messages = [
        ("nothing", ""),
        ("no JSON", "hello"),
        ("an object", "{}"),
        ("an integer", "3"),
        ("null", "null"),
        ("an empty array", "[]"),
        ("an array of one", "[3]"),
        ("an array of four", "[3,{},null,null]"),
        ("a truncated array", "[3,{}"),
        ("trailing text", "[3,{}] x"),
        ("a second envelope", "[3,{}][3,{}]"),
        ("a header that is null", "[3,null]"),
        ("a header that is an array", "[3,[]]"),
        ("a header that is a string", r#"[3,""]"#),
        ("a negative kind", "[-3,{}]"),
        ("a kind that is a string", r#"["3",{}]"#),
        ("a kind that is a float", "[3.5,{}]"),
        ("a kind that is null", "[null,{}]"),
        ("a repeated key", r#"[3,{"a":1,"a":2}]"#),
        ("a repeated key, once escaped", r#"[3,{"a":1,"\u0061":2}]"#),
        ("a header nested too deep", &deep),
        ("10,000 nested arrays", &very_deep),
        ("a comment", "[3,{}] // comment"),
    ];
    let messages = messages.map(|(what, text)| (what, text.as_bytes().to_vec()));
    each_ends_its_connection(Format::Json, &messages).await;
}

#[tokio::test]
async fn a_header_within_the_depth_is_taken() {
    let hub = hub();
    let mut client = hub.agent("a", &[]).await;
    client.message(&update(&[b"\x81\xa4deep".as_slice(), &nested(30)].concat())).await;
    client.fence().await;
    let mut client = hub.agent_as("b", Format::Json, &[], map! {}).await;
    client.message(format!(r#"[3,{{"deep":{}1{}}}]"#, "[".repeat(30), "]".repeat(30)).as_bytes()).await;
    client.fence().await;
}

#[tokio::test]
async fn the_other_type_of_message_ends_the_connection() {
    let hub = hub();
    for (format, opcode, bytes) in [
        (Format::MsgPack, TEXT, b"[3,{}]".as_slice()),
        (Format::Json, BINARY, b"[3,{}]"),
        (Format::Json, BINARY, b"\x92\x03\x80"),
    ] {
        let mut client = hub.agent_as("a", format, &[], map! {}).await;
        client.raw(&frame(opcode, true, bytes)).await;
        client.expect_protocol_error().await;
    }
}

#[tokio::test]
async fn ten_thousand_nested_arrays_pass_as_a_body_byte_for_byte() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let body = Value::Binary(nested(10_000));
    let id = caller.call("x", map! {}, body.clone()).await;
    assert_eq!(provider.echo().await.body, body);
    assert_eq!(caller.completed(id).await.body, body);
}

#[tokio::test]
async fn bytes_that_are_no_messagepack_pass_as_a_body_byte_for_byte() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    for bytes in [vec![], vec![0xc1], vec![0xdd, 0xff, 0xff, 0xff, 0xff], vec![0xff; 1000]] {
        let body = Value::Binary(bytes);
        let id = caller.call("x", map! {"content_type" => "application/octet-stream"}, body.clone()).await;
        assert_eq!(provider.echo().await.body, body);
        assert_eq!(caller.completed(id).await.body, body);
    }
}

#[tokio::test]
async fn a_body_that_json_cannot_hold_fails_one_call_at_most() {
    let hub = hub();
    let mut json = hub.agent_as("json", Format::Json, &["x"], map! {}).await;
    let mut caller = hub.agent("caller", &[]).await;
    for bytes in [nested(10_000), vec![0xc1], vec![0xdd, 0xff, 0xff, 0xff, 0xff]] {
        let id = caller.call("x", map! {"accept_timeout_ms" => 300}, Value::Binary(bytes)).await;
        let result = caller.result(id).await;
        assert_eq!(result.text("status"), "failed", "{result:?}");
        drop(json.until_fence().await);
    }
    canary(&mut caller, &mut json, "x").await;
}

#[tokio::test]
async fn ten_thousand_nested_arrays_as_a_json_body_harm_nobody_else() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let mut client: RawClient = hub.agent_as("json", Format::Json, &[], map! {}).await;
    let body = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let header = r#"{"id":1,"capability":"y","retries":0}"#;
    client.message(format!("[{},{header},{body}]", kind::CALL).as_bytes()).await;
    // Whether the one call fails or the connection ends is the hub's choice; that an answer comes is not.
    let answer = client.envelope("a RESULT or a GOODBYE").await;
    assert!([kind::RESULT, kind::GOODBYE].contains(&answer.kind), "{answer:?}");
    canary(&mut caller, &mut provider, "x").await;
}
