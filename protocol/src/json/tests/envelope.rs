//! Whole envelopes, both ways.

use super::*;

/// What comes of a text, as MessagePack array of kind, header and the bytes of the body.
fn taken(text: &str) -> (Vec<rmpv::Value>, Option<Fault>) {
    let converted = to_msgpack(text).unwrap();
    let rmpv::Value::Array(parts) = rmpv(&converted.envelope) else { panic!("no array") };
    assert_eq!(parts.len(), 3);
    (parts, converted.fault)
}

fn body_of(text: &str) -> Vec<u8> {
    let (parts, fault) = taken(text);
    assert_eq!(fault, None);
    let rmpv::Value::Binary(body) = &parts[2] else { panic!("no bin: {}", parts[2]) };
    body.clone()
}

fn body_fault(text: &str) -> String {
    let (parts, fault) = taken(text);
    let fault = fault.unwrap();
    assert_eq!((fault.field.as_str(), &parts[2]), ("body", &rmpv::Value::Nil));
    fault.message
}

/// There and back again.
fn comes_back(text: &str) {
    let converted = to_msgpack(text).unwrap();
    assert_eq!(converted.fault, None);
    assert_eq!(from_msgpack(&converted.envelope).as_deref(), Ok(text));
}

#[test]
fn envelope_is_an_array_of_kind_header_and_bin() {
    let converted = to_msgpack(" [ 10 , {\"id\": 7} , {\"a\": 1} ] ").unwrap();
    let bytes = [0x93, 10, 0x81, 0xa2, b'i', b'd', 7, 0xc4, 4, 0x81, 0xa1, b'a', 1];
    assert_eq!(converted, Converted { envelope: bytes.to_vec(), fault: None });
    assert_eq!(from_msgpack(&bytes).as_deref(), Ok("[10,{\"id\":7},{\"a\":1}]"));
}

#[test]
fn absent_body_and_null_are_nil() {
    let nil = vec![0x93, 1, 0x80, 0xc0];
    for text in ["[1,{}]", "[1,{},null]", "[1, {} , null ]"] {
        assert_eq!(to_msgpack(text).unwrap(), Converted { envelope: nil.clone(), fault: None });
    }
    assert_eq!(from_msgpack(&nil).as_deref(), Ok("[1,{},null]"));
    assert_eq!(from_msgpack(&[0x92, 1, 0x80]).as_deref(), Ok("[1,{},null]"));
    let opaque = to_msgpack("[1,{\"content_type\":\"image/png\"},null]").unwrap();
    assert_eq!((opaque.envelope.last(), opaque.fault), (Some(&0xc0), None));
}

#[test]
fn what_is_no_array_of_two_or_three_is_no_envelope() {
    for text in
        ["", "x", "{}", "1", "[]", "[1]", "[1,{},null,0]", "[1,{}] x", "[1,{}],", "[1,{}", "[1 {}]", "null"]
    {
        assert!(to_msgpack(text).is_err(), "{text}");
    }
    let shape = to_msgpack("[1]").unwrap_err();
    assert_eq!(shape.to_string(), "not an envelope: not an array of two or three");
}

#[test]
fn kind_and_header_keep_their_types_for_the_decoder_to_judge() {
    use rmpv::Value;
    let (parts, fault) = taken("[\"ten\",[1,{\"$bin\":\"AA==\"}]]");
    assert_eq!(parts[..2], [Value::from("ten"), Value::Array(vec![1.into(), Value::Binary(vec![0])])]);
    assert_eq!(fault, None);
    let (parts, _) = taken("[1.0,\"x\",1]");
    assert_eq!(parts[..2], [Value::F64(1.0), Value::from("x")]);
    let (parts, _) = taken("[-1,null]");
    assert_eq!(parts[..2], [Value::from(-1), Value::Nil]);
}

#[test]
fn header_keeps_order_and_repeated_keys() {
    let (parts, fault) = taken("[1,{\"b\":1,\"a\":2,\"b\":3,\"c\":{\"d\":1,\"d\":2}}]");
    let keys: Vec<_> = parts[1].as_map().unwrap().iter().map(|(key, _)| key.as_str().unwrap()).collect();
    assert_eq!(keys, ["b", "a", "b", "c"]);
    assert_eq!(parts[1]["c"].as_map().unwrap().len(), 2);
    assert_eq!(fault, None);
}

#[test]
fn header_values_convert_but_never_the_header_itself() {
    use rmpv::Value;
    let (parts, fault) =
        taken("[1,{\"id\":{\"$int\":\"18446744073709551615\"},\"x-b\":[{\"$bin\":\"AA==\"}]}]");
    assert_eq!(parts[1]["id"], Value::from(u64::MAX));
    assert_eq!(parts[1]["x-b"][0], Value::Binary(vec![0]));
    assert_eq!(fault, None);
    comes_back("[1,{\"$int\":\"5\"},null]");
    comes_back("[1,{\"id\":{\"$int\":\"9007199254740993\"},\"x-t\":{\"$time\":\"2024-01-01T00:00:00Z\"}},1]");
    let (parts, fault) = taken("[{\"$int\":\"10\"},{\"$int\":\"ten\"}]");
    assert_eq!(parts[..2], [Value::from(10), Value::Map(vec![("$int".into(), "ten".into())])]);
    assert_eq!(fault, None);
}

#[test]
fn first_fault_in_the_header_is_told_and_the_rest_stays_usable() {
    let (parts, fault) =
        taken("[10,{\"id\":7,\"x-a\":[{\"$int\":\"ten\"}],\"x-b\":\"\\ud800\",\"x-c\":1e999},{\"a\":1}]");
    let fault = fault.unwrap();
    assert_eq!(fault.field, "x-a");
    assert!(fault.message.starts_with("/0: $int wants"), "{fault}");
    assert_eq!(parts[0], rmpv::Value::from(10));
    assert_eq!(parts[1]["id"], rmpv::Value::from(7));
    assert_eq!(parts[1]["x-a"][0]["$int"], rmpv::Value::from("ten"));
    assert_eq!(parts[1]["x-b"], rmpv::Value::Nil);
    assert_eq!(parts[1]["x-c"], rmpv::Value::Nil);
    assert!(parts[2].is_bin());

    let (_, fault) = taken("[10,{\"id\":18446744073709551616},{\"$int\":\"ten\"}]");
    assert_eq!(fault.unwrap().to_string(), "id: an integer outside -2^63 to 2^64-1");
    let (parts, fault) = taken("[10,{\"\\ud800\":1}]");
    assert_eq!(fault.unwrap().message, "a string with half a surrogate pair");
    assert_eq!(parts[1]["\u{fffd}"], rmpv::Value::from(1));
    assert_eq!(taken("[1e999,{}]").1.unwrap().field, "kind");
    assert_eq!(taken("[1,1e999]").1.unwrap().field, "header");
}

#[test]
fn header_nested_too_deep_is_no_envelope() {
    let with = |depth: usize| format!("[1,{{\"a\":{}{}}}]", "[".repeat(depth), "]".repeat(depth));
    assert!(to_msgpack(&with(HEADER_DEPTH_MAX - 1)).is_ok());
    for depth in [HEADER_DEPTH_MAX, 10_000] {
        assert_eq!(to_msgpack(&with(depth)).unwrap_err().reason, "header nested deeper than 64");
    }
    let kind = format!("[{}{},{{}}]", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(to_msgpack(&kind).unwrap_err().reason, "kind nested deeper than 64");
}

#[test]
fn body_faults_leave_nil_and_the_header_intact() {
    for (body, reason) in [
        ("{\"$int\":\"ten\"}", "$int wants"),
        ("[18446744073709551616]", "/0: an integer outside"),
        ("{\"a\":\"\\udfff\"}", "/a: a string with half"),
        ("{\"a\":1,\"a\":1}", "an object with a repeated key"),
    ] {
        let message = body_fault(&format!("[10,{{\"id\":1}},{body}]"));
        assert!(message.starts_with(reason), "{message}");
    }
    let deep = format!("[10,{{}},{}{}]", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(body_fault(&deep), "nested deeper than 128");
}

#[test]
fn msgpack_content_types_convert_the_value() {
    for content_type in
        ["application/msgpack", "Application/X-MsgPack ; v=1", "application/vnd.msgpack;q=\"a\""]
    {
        let content_type = content_type.replace('"', "\\\"");
        let text = format!("[1,{{\"content_type\":\"{content_type}\"}},{{\"$bin\":\"AA==\"}}]");
        assert_eq!(body_of(&text), [0xc4, 1, 0]);
        comes_back(&text);
    }
    assert_eq!(body_of("[1,{\"content_type\":null},1]"), [1]);
    assert_eq!(body_of("[1,{\"x\":{\"content_type\":\"image/png\"}},1]"), [1]);
}

#[test]
fn json_content_types_keep_the_text() {
    for content_type in ["application/json", "APPLICATION/JSON; charset=utf-8", "application/problem+json"] {
        let body = "{ \"a\": [1.50, {\"$int\": \"ten\"}, 99999999999999999999],\n \"a\": 1 }";
        let text = format!("[1,{{\"content_type\":\"{content_type}\"}},{body}]");
        assert_eq!(body_of(&text), body.as_bytes());
        comes_back(&text);
        let spaced = format!("[1,{{\"content_type\":\"{content_type}\"}},\t{body}\r\n]\n");
        assert_eq!(body_of(&spaced), body.as_bytes());
    }
    let header = "{\"content_type\":\"application/json\"}";
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    comes_back(&format!("[1,{header},{}]", deep(128)));
    assert_eq!(body_fault(&format!("[1,{header},{}]", deep(129))), "nested deeper than 128");
    assert_eq!(body_fault(&format!("[1,{header},[\"\\ud800\"]]")), "a string with half a surrogate pair");
}

#[test]
fn json_that_not_all_can_read_goes_out_as_bytes() {
    let sent = |body: &[u8]| {
        let header = rmpv::Value::Map(vec![("content_type".into(), "application/json".into())]);
        let envelope = rmpv::Value::Array(vec![1.into(), header, rmpv::Value::Binary(body.to_vec())]);
        from_msgpack(&encoded(&envelope)).unwrap()
    };
    assert_eq!(sent(b" [1] "), "[1,{\"content_type\":\"application/json\"},[1]]");
    let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
    for body in [&b""[..], b"{", b"1 2", b"\"\xff\"", b"\"\\ud800\"", &deep] {
        let bytes = format!("{{\"$bin\":\"{}\"}}]", BASE64.encode(body));
        assert!(sent(body).ends_with(&bytes), "{}", sent(body));
    }
}

#[test]
fn other_content_types_are_bytes() {
    let text = "[1,{\"content_type\":\"image/png\"},{\"$bin\":\"iVBORw==\"}]";
    assert_eq!(body_of(text), [0x89, b'P', b'N', b'G']);
    comes_back(text);
    let empty = "[1,{\"content_type\":\"text/plain\"},{\"$bin\":\"\"}]";
    assert_eq!(body_of(empty), b"");
    comes_back(empty);
    for body in [
        "\"text\"",
        "1",
        "[\"$bin\",\"\"]",
        "{}",
        "{\"$bin\":\"?\"}",
        "{\"$bin\":1}",
        "{\"$bin\":[]}",
        "{\"$int\":\"1\"}",
        "{\"$bin\":\"\",\"a\":1}",
        "{\"\\ud800\":\"\"}",
    ] {
        let text = format!("[1,{{\"content_type\":\"text/plain\"}},{body}]");
        assert!(body_fault(&text).starts_with("with this content_type"), "{body}");
    }
}

#[test]
fn bodies_without_a_json_form_are_refused_on_the_way_out() {
    for (envelope, error) in [
        (&[0x93, 1, 0x80, 0xc4, 0][..], BodyError::Truncated),
        (&[0x93, 1, 0x80, 0xc4, 2, 0, 0], BodyError::TrailingBytes),
        (&[0x93, 1, 0x80, 0xc4, 2, 0xa1, 0xff], BodyError::InvalidUtf8),
        (&[0x93, 1, 0x80, 0xc4, 1], BodyError::Truncated),
        (&[0x93, 1, 0x80, 0xa0], BodyError::NotAnEnvelope),
        (&[0x93, 1, 0x80, 0xc0, 0xc0], BodyError::TrailingBytes),
        (&[0x94, 1, 0x80, 0xc0, 0xc0], BodyError::NotAnEnvelope),
        (&[0x91, 1], BodyError::NotAnEnvelope),
        (&[0xc0], BodyError::NotAnEnvelope),
        (&[], BodyError::Truncated),
    ] {
        assert_eq!(from_msgpack(envelope), Err(error), "{envelope:x?}");
    }
}
