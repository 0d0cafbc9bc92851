//! What holds for all values, texts and bytes.

use proptest::prelude::*;
use rmpv::Value;

use super::*;

/// Any value that JSON can tell from all others: string keys, no repeated ones, no NaN, no f32.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-200_i64..200).prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        (prop::num::f64::SUBNORMAL | prop::num::f64::ZERO).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Binary),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_filter("the shortest timestamp only", |(kind, _)| *kind != -1)
            .prop_map(|(kind, data)| Value::Ext(kind, data)),
        any::<[u8; 4]>().prop_map(|data| Value::Ext(-1, data.to_vec())),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_filter("a conversion is not a map", |map| !map.keys().any(|key| key.starts_with('$')))
                .prop_map(|map| Value::Map(
                    map.into_iter().map(|(key, value)| (key.into(), value)).collect()
                )),
        ]
    })
}

/// Text that is nearly an envelope, to get past the first check.
fn nearly_json() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "\"",
        "\\",
        "1",
        "-",
        ".",
        "e",
        "null",
        "true",
        " ",
        "\"a\"",
        "\"\\ud800\"",
        "\"$int\"",
        "\"$bin\"",
        "\"$time\"",
        "\"$ext\"",
        "{\"$int\":",
        "[1,{",
        "}]",
        "\"content_type\":",
        "é",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn values_come_back_as_they_were(value in value()) {
        let msgpack = encoded(&value);
        let json = value_from_msgpack(&msgpack).unwrap();
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        prop_assert_eq!(value_to_msgpack(&json).unwrap(), msgpack);
    }

    #[test]
    fn envelopes_come_back_as_they_were(kind: u8, key: String, header in value(), body in value()) {
        let bin = Value::Binary(encoded(&body));
        let header = Value::Map(vec![(key.into(), header)]);
        let envelope = encoded(&Value::Array(vec![kind.into(), header, bin]));
        let text = from_msgpack(&envelope).unwrap();
        let converted = to_msgpack(&text).unwrap();
        prop_assert_eq!(converted.fault, None);
        let expected = if body == Value::Nil { envelope.len() - 2 } else { envelope.len() };
        prop_assert_eq!(converted.envelope.len(), expected);
        prop_assert_eq!(from_msgpack(&converted.envelope).unwrap(), text);
    }

    #[test]
    fn timestamps_of_every_width_keep_their_instant(
        seconds in -70_000_000_000_i64..260_000_000_000,
        nanoseconds in 0_u32..1_000_000_000,
    ) {
        let data = [&nanoseconds.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
        let json = value_from_msgpack(&encoded(&Value::Ext(-1, data))).unwrap();
        let shortest = value_to_msgpack(&json).unwrap();
        prop_assert_eq!(value_from_msgpack(&shortest).unwrap(), json);
    }

    #[test]
    fn no_bytes_panic_and_output_is_bounded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for text in [value_from_msgpack(&bytes), from_msgpack(&bytes)].into_iter().flatten() {
            prop_assert!(text.len() <= 64 * (bytes.len() + 1));
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok());
        }
    }

    #[test]
    fn no_text_panics_and_output_is_valid(text in prop_oneof![any::<String>(), nearly_json()]) {
        if let Ok(msgpack) = value_to_msgpack(&text) {
            prop_assert!(msgpack.len() <= 9 * text.len());
            prop_assert!(value_from_msgpack(&msgpack).is_ok());
        }
        if let Ok(converted) = to_msgpack(&text) {
            prop_assert!(converted.envelope.len() <= 9 * text.len());
            prop_assert!(from_msgpack(&converted.envelope).is_ok());
        }
    }
}
