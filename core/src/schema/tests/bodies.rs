//! Bodies as they come.

use proptest::prelude::*;
use serde_json::json;

use super::super::body::{BODY_BYTES_MAX, BODY_NODES_MAX};
use super::super::decode::{self, Limits, Undecodable};
use super::super::price::BODY_DEPTH_MAX;
use super::*;

const LIMITS: Limits = Limits { depth: BODY_DEPTH_MAX, nodes: BODY_NODES_MAX };

fn read(bytes: &[u8]) -> Value {
    decode::messagepack(bytes, LIMITS).unwrap().value
}

fn fits_bytes(schema: &Value, bytes: &[u8], content_type: Option<&str>) -> bool {
    Body::new(Some(bytes), content_type).fits(&Arc::new(compile(schema).unwrap()))
}

#[test]
fn messagepack_reads_as_the_json_it_stands_for() {
    assert_eq!(read(&[0xc4, 3, 1, 2, 3]), json!("AQID"));
    assert_eq!(read(&[0xd6, 0xff, 0, 0, 0, 1]), json!("1970-01-01T00:00:01Z"));
    assert_eq!(read(&[0xd4, 5, 9]), json!({"$ext": [5, "CQ=="]}));
    assert_eq!(read(&[0xcf, 255, 255, 255, 255, 255, 255, 255, 255]), json!(u64::MAX));
    assert_eq!(read(&[0xd3, 128, 0, 0, 0, 0, 0, 0, 0]), json!(i64::MIN));
    assert_eq!(read(&[0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0]), json!(null));
    assert_eq!(read(&[0xca, 0x7f, 0x80, 0, 0]), json!(null));
    assert_eq!(read(&[0xca, 0x3f, 0xc0, 0, 0]), json!(1.5));
    assert_eq!(read(&[0x83, 1, 0xa1, b'a', 0xc0, 2, 0x91, 7, 3]), json!({"1": "a", "null": 2, "[7]": 3}));
    assert_eq!(read(&[0x82, 0xa1, b'k', 1, 0xa1, b'k', 2]), json!({"k": 2}));
}

#[test]
fn the_content_type_says_how_to_read() {
    let number = json!({"type": "number"});
    let text = br#"{"a": 1}"#;
    for json in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
        assert!(fits_bytes(&json!({"required": ["a"]}), text, Some(json)));
        assert!(!fits_bytes(&number, text, Some(json)));
    }
    for msgpack in
        [None, Some("application/msgpack"), Some("application/x-msgpack"), Some("application/vnd.msgpack")]
    {
        assert!(fits_bytes(&number, &[7], msgpack));
        assert!(!fits_bytes(&number, &[0xa1, b'7'], msgpack));
    }
    for opaque in ["text/plain", "image/png", "json"] {
        assert!(fits_bytes(&json!(false), text, Some(opaque)));
    }
}

#[test]
fn no_body_is_null_or_no_arguments() {
    let absent = |document: &Value| Body::new(None, None).check(&schema(document));
    assert!(absent(&json!({"type": "object", "properties": {"a": {"type": "string"}}})).is_ok());
    assert!(absent(&json!({"type": "null"})).is_ok());
    let empty = Body::new(Some(b""), None);
    assert!(empty.fits(&schema(&json!({"type": "object"}))), "some write no body as an empty one");
    assert!(absent(&json!({"type": "string"})).is_err());
    let violations = absent(&json!({"type": "object", "required": ["a"]})).unwrap_err();
    let told: Vec<_> = violations.iter().map(|violation| &*violation.message).collect();
    assert_eq!(told, ["\"a\" is a required property"]);
}

#[test]
fn a_body_that_is_not_what_it_says_fits_no_schema() {
    let any = json!(true);
    for (bytes, content_type) in [
        (&b"\x01\x02"[..], None),
        (b"\xc1", None),
        (b"\xa2a", None),
        (b"\xa1\xff", None),
        (b"\xdd\xff\xff\xff\xff\x01", None),
        (b"{\"a\": }", Some("application/json")),
        (b"1 2", Some("application/json")),
        (b"\"\xff\"", Some("application/json")),
    ] {
        let violations = Body::new(Some(bytes), content_type).check(&schema(&any)).unwrap_err();
        assert_eq!(violations.iter().next().unwrap().pointer, "", "{bytes:?}");
    }
}

#[test]
fn a_body_over_the_bounds_fits_every_schema() {
    let none = json!(false);
    let deep = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
    assert!(!fits_bytes(&none, &deep(BODY_DEPTH_MAX), None));
    assert!(fits_bytes(&none, &deep(BODY_DEPTH_MAX + 1), None));
    assert!(fits_bytes(&none, &deep(1 << 20), None));
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth)).into_bytes();
    let as_json = Some("application/json");
    assert!(!fits_bytes(&none, &deep(BODY_DEPTH_MAX), as_json));
    assert!(fits_bytes(&none, &deep(BODY_DEPTH_MAX + 1), as_json));
    assert!(fits_bytes(&none, &deep(100_000), as_json));

    let wide = |items: u32| msgpack(&json!(vec![1; usize::try_from(items).unwrap()]));
    assert!(!fits_bytes(&none, &wide(BODY_NODES_MAX - 1), None));
    assert!(fits_bytes(&none, &wide(BODY_NODES_MAX), None));

    let large = |bytes: usize| msgpack(&json!("x".repeat(bytes - 5)));
    assert!(!fits_bytes(&none, &large(BODY_BYTES_MAX), None));
    assert!(fits_bytes(&none, &large(BODY_BYTES_MAX + 1), None));
    assert!(fits_bytes(&none, &large(1 << 20), None));
}

#[test]
fn keys_inside_keys_end_somewhere() {
    let keys = |depth: usize| [vec![0x81; depth], vec![1], vec![2; depth]].concat();
    assert_eq!(decode::messagepack(&keys(3), LIMITS).unwrap().value, json!({"{\"{\\\"1\\\":2}\":2}": 2}));
    assert_eq!(decode::messagepack(&keys(5), LIMITS).unwrap_err(), Undecodable::TooMuch);
}

fn values() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    scalar.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,5}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn both_formats_read_back_what_was_written(value in values()) {
        let packed = decode::messagepack(&msgpack(&value), LIMITS).unwrap();
        let text = decode::json(&serde_json::to_vec(&value).unwrap(), LIMITS).unwrap();
        prop_assert_eq!(&packed.value, &value);
        prop_assert_eq!(&text.value, &value);
        prop_assert_eq!(packed.levels, text.levels);
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for content_type in [None, Some("application/json")] {
            Body::new(Some(&bytes), content_type).fits(&schema(&json!({"type": "object"})));
        }
        let _refused = Schema::compile(&bytes).is_err();
    }
}
