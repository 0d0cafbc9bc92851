//! Values from JSON.

use super::*;

#[test]
fn scalars_become_their_shortest_form() {
    for (json, bytes) in [
        ("null", &[0xc0][..]),
        ("true", &[0xc3]),
        ("false", &[0xc2]),
        ("0", &[0x00]),
        ("127", &[0x7f]),
        ("128", &[0xcc, 0x80]),
        ("255", &[0xcc, 0xff]),
        ("256", &[0xcd, 1, 0]),
        ("65536", &[0xce, 0, 1, 0, 0]),
        ("4294967296", &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
        ("-1", &[0xff]),
        ("-32", &[0xe0]),
        ("-33", &[0xd0, 0xdf]),
        ("-129", &[0xd1, 0xff, 0x7f]),
        ("-32769", &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
        ("-2147483649", &[0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
        ("1.0", &[0xcb, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0]),
        ("-0.0", &[0xcb, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("\"\"", &[0xa0]),
        ("\"é\"", &[0xa2, 0xc3, 0xa9]),
        ("[]", &[0x90]),
        ("{}", &[0x80]),
        ("[1,[2],{\"a\":{}}]", &[0x93, 1, 0x91, 2, 0x81, 0xa1, b'a', 0x80]),
    ] {
        both_ways(json, bytes);
    }
}

#[test]
fn bare_minus_zero_is_the_integer_zero() {
    assert_eq!(value_to_msgpack("-0"), Ok(vec![0]));
    assert_eq!(value_to_msgpack("{\"$int\":\"-0\"}"), Ok(vec![0]));
}

#[test]
fn integers_are_exact_to_the_last_one_and_never_rounded() {
    both_ways("9007199254740992", &encoded(&(1_u64 << 53).into()));
    both_ways("-9007199254740992", &encoded(&(-(1_i64 << 53)).into()));
    for (decimal, value) in [
        ("9007199254740993", rmpv::Value::from((1_u64 << 53) + 1)),
        ("-9007199254740993", rmpv::Value::from(-(1_i64 << 53) - 1)),
        ("-9223372036854775808", rmpv::Value::from(i64::MIN)),
        ("18446744073709551615", rmpv::Value::from(u64::MAX)),
    ] {
        both_ways(&format!("{{\"$int\":\"{decimal}\"}}"), &encoded(&value));
        assert_eq!(value_to_msgpack(decimal), Ok(encoded(&value)), "bare {decimal}");
    }
    for beyond in ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890"] {
        assert_eq!(fault_of(beyond), "an integer outside -2^63 to 2^64-1");
        let tagged = format!("{{\"$int\":\"{beyond}\"}}");
        assert!(fault_of(&tagged).starts_with("$int wants"), "{tagged}");
    }
    assert_eq!(fault_of("1e400"), "a number beyond the range of a 64-bit float");
    assert_eq!(value_to_msgpack("1e2"), Ok(encoded(&100.0_f64.into())));
}

#[test]
fn conversions_become_what_they_stand_for() {
    both_ways("{\"$bin\":\"AAH/\"}", &[0xc4, 3, 0, 1, 0xff]);
    both_ways("{\"$bin\":\"\"}", &[0xc4, 0]);
    both_ways("{\"$ext\":[5,\"AQ==\"]}", &[0xd4, 5, 1]);
    both_ways("{\"$ext\":[-128,\"AQID\"]}", &[0xc7, 3, 0x80, 1, 2, 3]);
    for length in [0, 1, 2, 3, 4, 8, 15, 16, 17, 255, 256, 65_536] {
        let data = BASE64.encode(vec![7; length]);
        let ext = encoded(&rmpv::Value::Ext(9, vec![7; length]));
        both_ways(&format!("{{\"$ext\":[9,\"{data}\"]}}"), &ext);
        both_ways(&format!("{{\"$bin\":\"{data}\"}}"), &encoded(&rmpv::Value::Binary(vec![7; length])));
    }
    let spaced = " { \"\\u0024ext\" : [ 5 , \"A\\u0051==\" ] } ";
    assert_eq!(value_to_msgpack(spaced), Ok(vec![0xd4, 5, 1]));
}

#[test]
fn times_take_the_shortest_timestamp_that_holds_them() {
    both_ways("{\"$time\":\"1970-01-01T00:00:00Z\"}", &[0xd6, 0xff, 0, 0, 0, 0]);
    both_ways("{\"$time\":\"2106-02-07T06:28:15Z\"}", &[0xd6, 0xff, 0xff, 0xff, 0xff, 0xff]);
    both_ways("{\"$time\":\"2106-02-07T06:28:16Z\"}", &[0xd7, 0xff, 0, 0, 0, 1, 0, 0, 0, 0]);
    both_ways("{\"$time\":\"1970-01-01T00:00:01.5Z\"}", &[0xd7, 0xff, 0x77, 0x35, 0x94, 0, 0, 0, 0, 1]);
    both_ways(
        "{\"$time\":\"2514-05-30T01:53:03.999999999Z\"}",
        &[0xd7, 0xff, 0xee, 0x6b, 0x27, 0xff, 0xff, 0xff, 0xff, 0xff],
    );
    let mut far = vec![0xc7, 12, 0xff, 0, 0, 0, 0];
    far.extend((1_i64 << 34).to_be_bytes());
    both_ways("{\"$time\":\"2514-05-30T01:53:04Z\"}", &far);
    let mut before = vec![0xc7, 12, 0xff, 0, 0, 0, 1];
    before.extend((-1_i64).to_be_bytes());
    both_ways("{\"$time\":\"1969-12-31T23:59:59.000000001Z\"}", &before);
    for edge in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"] {
        let json = format!("{{\"$time\":\"{edge}\"}}");
        let there = value_to_msgpack(&json).unwrap();
        assert_eq!(value_from_msgpack(&there), Ok(json));
    }
    let offset = value_to_msgpack("{\"$time\":\"1970-01-01T01:30:00.000+01:30\"}");
    assert_eq!(offset, Ok(vec![0xd6, 0xff, 0, 0, 0, 0]));
}

#[test]
fn broken_conversions_are_faults() {
    for (broken, reason) in [
        ("{\"$int\":\"ten\"}", "$int wants"),
        ("{\"$int\":10}", "$int wants"),
        ("{\"$int\":\"\"}", "$int wants"),
        ("{\"$int\":\"-\"}", "$int wants"),
        ("{\"$int\":\"+1\"}", "$int wants"),
        ("{\"$int\":\"01\"}", "$int wants"),
        ("{\"$int\":\"1.0\"}", "$int wants"),
        ("{\"$int\":\" 1\"}", "$int wants"),
        ("{\"$int\":\"\\ud800\"}", "$int wants"),
        ("{\"$bin\":\"A\"}", "$bin wants"),
        ("{\"$bin\":\"AA\"}", "$bin wants"),
        ("{\"$bin\":\"A_==\"}", "$bin wants"),
        ("{\"$bin\":null}", "$bin wants"),
        ("{\"$bin\":{\"$bin\":\"\"}}", "$bin wants"),
        ("{\"$time\":\"yesterday\"}", "$time wants"),
        ("{\"$time\":0}", "$time wants"),
        ("{\"$time\":\"2024-02-30T00:00:00Z\"}", "$time wants"),
        ("{\"$time\":\"2024-01-01T00:00:00\"}", "$time wants"),
        ("{\"$time\":\"2024-01-01T00:00:00.0000000001Z\"}", "$time wants"),
        ("{\"$time\":\"2016-12-31T23:59:60Z\"}", "$time wants"),
        ("{\"$time\":\"0000-12-31T23:59:59Z\"}", "$time wants"),
        ("{\"$time\":\"0001-01-01T00:00:00+00:01\"}", "$time wants"),
        ("{\"$time\":\"9999-12-31T23:59:59-00:01\"}", "$time wants"),
        ("{\"$ext\":\"AA==\"}", "$ext wants"),
        ("{\"$ext\":[]}", "$ext wants"),
        ("{\"$ext\":[1]}", "$ext wants"),
        ("{\"$ext\":[1,\"\",2]}", "$ext wants"),
        ("{\"$ext\":[128,\"\"]}", "$ext wants"),
        ("{\"$ext\":[-129,\"\"]}", "$ext wants"),
        ("{\"$ext\":[1.0,\"\"]}", "$ext wants"),
        ("{\"$ext\":[\"1\",\"\"]}", "$ext wants"),
        ("{\"$ext\":[[],\"\"]}", "$ext wants"),
        ("{\"$ext\":[1,2]}", "$ext wants"),
        ("{\"$ext\":[1,\"?\"]}", "$ext wants"),
    ] {
        assert!(fault_of(broken).starts_with(reason), "{broken}: {}", fault_of(broken));
    }
}

#[test]
fn other_objects_are_ordinary() {
    for ordinary in [
        "{\"$other\":1}",
        "{\"$int\":\"ten\",\"more\":1}",
        "{\"$bin\":\"\",\"$int\":\"1\"}",
        "{\"int\":\"ten\"}",
        "{\"$Int\":\"ten\"}",
        "[\"$int\",\"ten\"]",
    ] {
        let msgpack = value_to_msgpack(ordinary).unwrap();
        assert_eq!(value_from_msgpack(&msgpack).as_deref(), Ok(ordinary));
    }
}

#[test]
fn fault_points_to_its_place() {
    let message = fault_of("{\"a\":[0,{\"b/c~d\":{\"$int\":\"ten\"}}]}");
    assert!(message.starts_with("/a/1/b~1c~0d: $int wants"), "{message}");
    assert_eq!(fault_of("[\"\\ud800\"]"), "/0: a string with half a surrogate pair");
    assert_eq!(fault_of("{\"x\\udc00\":1}"), "/x\\udc00: a string with half a surrogate pair");
    let long = format!("{{\"{}\":18446744073709551616}}", "é".repeat(10_000));
    assert!(fault_of(&long).len() <= 512);
    assert!(fault_of(&long).contains("…: an integer outside"));
}

#[test]
fn repeated_keys_are_a_fault_however_they_are_spelled() {
    assert_eq!(fault_of("{\"a\":1,\"b\":{},\"a\":2}"), "an object with a repeated key");
    assert_eq!(fault_of("[{\"a\":1,\"\\u0061\":2}]"), "/0: an object with a repeated key");
    let apart = "{\"a\":{\"a\":{\"b\":1}},\"b\":{\"a\":1,\"b\":2},\"c\":[{\"a\":1},{\"a\":1}]}";
    assert_eq!(value_from_msgpack(&value_to_msgpack(apart).unwrap()).as_deref(), Ok(apart));
}

#[test]
fn escapes_become_their_characters() {
    let msgpack = value_to_msgpack("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\ud83d\\ude00\"").unwrap();
    assert_eq!(rmpv(&msgpack), rmpv::Value::from("\"\\/\u{8}\u{c}\n\r\tA😀"));
    assert_eq!(value_from_msgpack(&msgpack).as_deref(), Ok("\"\\\"\\\\/\\u0008\\u000c\\n\\r\\tA😀\""));
}

#[test]
fn text_that_is_no_json_is_a_fault() {
    for text in
        ["", " ", "nul", "1 2", "[1,]", "{\"a\"}", "\"\n\"", "01", "+1", "NaN", "'a'", "[", "\u{feff}1"]
    {
        assert!(fault_of(text).starts_with("not JSON: "), "{text:?}");
    }
}

#[test]
fn bodies_nest_to_the_limit_and_no_deeper() {
    let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    for inner in ["", "{\"$bin\":\"AA==\"}", "{\"$ext\":[1,\"AA==\"]}"] {
        let deepest = nested(BODY_DEPTH_MAX, inner);
        assert_eq!(value_from_msgpack(&value_to_msgpack(&deepest).unwrap()), Ok(deepest));
    }
    assert_eq!(fault_of(&nested(BODY_DEPTH_MAX + 1, "")), "nested deeper than 128");
    assert_eq!(fault_of(&nested(BODY_DEPTH_MAX, "{\"a\":1}")), "nested deeper than 128");
    assert_eq!(fault_of(&nested(10_000, "")), "nested deeper than 128");
    let objects = format!("{}1{}", "{\"a\":".repeat(10_000), "}".repeat(10_000));
    assert_eq!(fault_of(&objects), "nested deeper than 128");
}

#[test]
fn long_arrays_and_maps_have_their_counts() {
    for length in [15, 16, 65_535, 65_536] {
        let array = format!("[{}]", vec!["[]"; length].join(","));
        let value = rmpv(&value_to_msgpack(&array).unwrap());
        assert_eq!(value.as_array().unwrap().len(), length);
        assert_eq!(value_from_msgpack(&encoded(&value)), Ok(array));
        let pairs: Vec<_> = (0..length).map(|key| format!("\"{key}\":[1]")).collect();
        let map = format!("{{{}}}", pairs.join(","));
        let value = rmpv(&value_to_msgpack(&map).unwrap());
        assert_eq!(value.as_map().unwrap().len(), length);
        assert_eq!(value_from_msgpack(&encoded(&value)), Ok(map));
    }
}
