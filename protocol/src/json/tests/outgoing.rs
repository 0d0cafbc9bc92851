//! Values from MessagePack.

use super::*;

#[test]
fn wide_integers_count_by_value() {
    for bytes in [
        &[0xcc, 7][..],
        &[0xcd, 0, 7],
        &[0xce, 0, 0, 0, 7],
        &[0xcf, 0, 0, 0, 0, 0, 0, 0, 7],
        &[0xd0, 7],
        &[0xd1, 0, 7],
        &[0xd2, 0, 0, 0, 7],
        &[0xd3, 0, 0, 0, 0, 0, 0, 0, 7],
    ] {
        assert_eq!(value_from_msgpack(bytes).as_deref(), Ok("7"));
    }
}

#[test]
fn floats_stay_floats_and_what_is_no_number_is_null() {
    for (value, json) in [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e16, "1e16"),
        (5e-324, "5e-324"),
        (9_007_199_254_740_993.0, "9007199254740992.0"),
        (f64::MAX, "1.7976931348623157e308"),
    ] {
        both_ways(json, &encoded(&value.into()));
    }
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(value_from_msgpack(&encoded(&value.into())).as_deref(), Ok("null"));
    }
    assert_eq!(value_from_msgpack(&encoded(&0.1_f32.into())).as_deref(), Ok("0.10000000149011612"));
    assert_eq!(value_from_msgpack(&encoded(&f32::NAN.into())).as_deref(), Ok("null"));
}

#[test]
fn timestamps_that_rfc_3339_cannot_say_are_ext() {
    let far =
        |seconds: i64, nanoseconds: u32| [&nanoseconds.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
    for data in [
        vec![],
        vec![0; 3],
        vec![0; 5],
        vec![0; 13],
        vec![0xff; 8],
        far(-62_135_596_801, 0),
        far(253_402_300_800, 0),
        far(i64::MIN, 0),
        far(i64::MAX, 0),
        far(0, 1_000_000_000),
    ] {
        let json = format!("{{\"$ext\":[-1,\"{}\"]}}", BASE64.encode(&data));
        both_ways(&json, &encoded(&rmpv::Value::Ext(-1, data)));
    }
}

#[test]
fn keys_that_are_no_strings_become_their_json_text() {
    use rmpv::Value;
    let map = Value::Map(vec![
        (1.into(), 1.into()),
        (Value::Nil, 2.into()),
        (true.into(), 3.into()),
        (Value::F64(1.5), 4.into()),
        (Value::Binary(vec![0]), 5.into()),
        (Value::Array(vec!["a".into()]), 6.into()),
        (u64::MAX.into(), 7.into()),
    ]);
    let json = value_from_msgpack(&encoded(&map)).unwrap();
    assert_eq!(
        json,
        "{\"1\":1,\"null\":2,\"true\":3,\"1.5\":4,\"{\\\"$bin\\\":\\\"AA==\\\"}\":5,\"[\\\"a\\\"]\":6,\
         \"{\\\"$int\\\":\\\"18446744073709551615\\\"}\":7}"
    );
}

#[test]
fn keys_inside_keys_are_bounded() {
    // Each 0x81 opens a map whose first key is the next one; then come the values.
    let keys = |depth: usize| [vec![0x81; depth], vec![0], vec![0; depth]].concat();
    let text = value_from_msgpack(&keys(KEY_QUOTING_MAX)).unwrap();
    assert_eq!(text, "{\"{\\\"{\\\\\\\"0\\\\\\\":0}\\\":0}\":0}");
    let mut quotes = vec![0x81; KEY_QUOTING_MAX];
    quotes.extend(encoded(&"\"\u{1}".repeat(1_000).into()));
    quotes.extend([0; KEY_QUOTING_MAX]);
    assert!(value_from_msgpack(&quotes).unwrap().len() <= 16 * quotes.len());
    assert_eq!(value_from_msgpack(&keys(KEY_QUOTING_MAX + 1)), Err(BodyError::KeyTooDeep));
    assert_eq!(value_from_msgpack(&keys(10_000)), Err(BodyError::KeyTooDeep));
}

#[test]
fn what_is_not_one_valid_value_is_refused() {
    for (bytes, error) in [
        (&[][..], BodyError::Truncated),
        (&[0xc1], BodyError::ReservedByte),
        (&[0x91, 0xc1], BodyError::ReservedByte),
        (&[0x00, 0x00], BodyError::TrailingBytes),
        (&[0xa2, b'a'], BodyError::Truncated),
        (&[0xa1, 0xff], BodyError::InvalidUtf8),
        (&[0x81, 0xa1, 0xff, 0], BodyError::InvalidUtf8),
        (&[0xa3, 0xed, 0xa0, 0x80], BodyError::InvalidUtf8),
        (&[0xcb, 0, 0, 0], BodyError::Truncated),
        (&[0xd9], BodyError::Truncated),
        (&[0xc6, 0xff, 0xff, 0xff, 0xff, 0], BodyError::Truncated),
        (&[0xdb, 0xff, 0xff, 0xff, 0xff], BodyError::Truncated),
        (&[0xc9, 0xff, 0xff, 0xff, 0xff, 1, 0], BodyError::Truncated),
        (&[0xdd, 0xff, 0xff, 0xff, 0xff], BodyError::Truncated),
        (&[0xdf, 0xff, 0xff, 0xff, 0xff, 0], BodyError::Truncated),
        (&[0xd8, 0], BodyError::Truncated),
    ] {
        assert_eq!(value_from_msgpack(bytes), Err(error), "{bytes:x?}");
    }
}

#[test]
fn values_nest_to_the_limit_and_no_deeper() {
    let arrays = |depth: usize| [vec![0x91; depth], vec![0]].concat();
    assert!(value_from_msgpack(&arrays(BODY_DEPTH_MAX)).is_ok());
    assert_eq!(value_from_msgpack(&arrays(BODY_DEPTH_MAX + 1)), Err(BodyError::TooDeep));
    assert_eq!(value_from_msgpack(&arrays(10_000)), Err(BodyError::TooDeep));
    assert_eq!(value_from_msgpack(&[0x81, 0xa1, b'a'].repeat(10_000)), Err(BodyError::TooDeep));
}
