//! Schemas of honest agents.

use agent_reach_protocol::codec::{Value as Wire, Writer, read_one};
use serde_json::json;

use super::super::violations::{MESSAGE_BYTES_MAX, POINTER_BYTES_MAX, VIOLATIONS_MAX};
use super::*;

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020: &str = "https://json-schema.org/draft/2020-12/schema";

#[test]
fn a_violation_points_to_its_place_with_escaped_keys() {
    let schema =
        schema(&json!({"properties": {"a/b": {"items": {"properties": {"~": {"type": "string"}}}}}}));
    assert_eq!(pointers(&schema, &json!({"a/b": [{}, {"~": 1}]})), ["/a~1b/1/~0"]);
}

#[test]
fn all_misfits_of_a_body_are_told_at_once() {
    let schema = schema(&json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
        "required": ["name", "kind"],
    }));
    assert_eq!(pointers(&schema, &json!({"name": 1, "size": 0})), ["", "/name", "/size"]);
}

#[test]
fn a_message_tells_the_rule_and_not_the_body() {
    let schema = schema(&json!({"properties": {"pin": {"type": "string", "maxLength": 4}}}));
    for body in [json!({"pin": "secret-word"}), json!({"pin": ["secret-word"]})] {
        let violations = check(&schema, &body).unwrap_err();
        let message = &violations.iter().next().unwrap().message;
        assert!(!message.is_empty() && !message.contains("secret"), "{message}");
    }
}

#[test]
fn violations_are_few_and_short() {
    let long = "x".repeat(5000);
    let schema = schema(&json!({"items": {"enum": [long]}, "unevaluatedProperties": false}));
    let many = check(&schema, &json!([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).unwrap_err();
    assert_eq!(many.iter().count(), VIOLATIONS_MAX);
    let keys = check(&schema, &json!({ long: 1 })).unwrap_err();
    for violation in many.iter().chain(keys.iter()) {
        assert!(violation.message.len() <= MESSAGE_BYTES_MAX);
        assert!(violation.message.ends_with('…'), "{}", violation.message);
    }
}

#[test]
fn a_long_pointer_ends_at_a_whole_step() {
    let (outer, long) = ("o".repeat(10), "é".repeat(POINTER_BYTES_MAX));
    let schema = schema(&json!({"properties": {&outer: {"properties": {&long: false}}}}));
    assert_eq!(pointers(&schema, &json!({&outer: {&long: 1}})), [format!("/{outer}")]);
}

#[test]
fn the_details_of_a_result_hold_pointer_and_message() {
    let schema = schema(&json!({"required": ["city"]}));
    let mut out = Writer::default();
    check(&schema, &json!({})).unwrap_err().write_details(&mut out);
    let details = out.into_bytes();
    let entries = read_one(&details).unwrap().entries().unwrap();
    let [("violations", violations @ Wire::Array(_), _)] = entries.as_slice() else { panic!("{entries:?}") };
    let first = violations.items().unwrap().next().unwrap().entries().unwrap();
    let message = "\"city\" is a required property";
    let pairs: Vec<_> = first.iter().map(|(key, value, _)| (*key, *value)).collect();
    assert_eq!(pairs, [("pointer", Wire::Str("")), ("message", Wire::Str(message))]);
}

#[test]
fn a_schema_is_read_by_its_draft() {
    // What stands beside a $ref counts from 2019-09 on.
    let beside = |draft| json!({"$schema": draft, "$ref": "#/definitions/any", "maxLength": 1, "definitions": {"any": true}});
    assert!(fits(&schema(&beside(DRAFT_7)), &json!("long")));
    assert!(!fits(&schema(&beside(DRAFT_2020)), &json!("long")));
    // A list of items became prefixItems in 2020-12.
    let pair = |draft| json!({"$schema": draft, "prefixItems": [{"type": "string"}]});
    assert!(fits(&schema(&pair(DRAFT_7)), &json!([1])));
    assert!(!fits(&schema(&pair(DRAFT_2020)), &json!([1])));
    let old =
        json!({"$schema": "http://json-schema.org/draft-04/schema", "maximum": 3, "exclusiveMaximum": true});
    assert!(!fits(&schema(&old), &json!(3)));
}

#[test]
fn a_boolean_is_a_schema() {
    assert!(fits(&schema(&json!(true)), &json!([1])));
    assert!(!fits(&schema(&json!(false)), &json!([1])));
    assert!(fits(&schema(&json!({})), &json!(null)));
}

#[test]
fn a_format_says_nothing_in_any_draft() {
    for draft in [DRAFT_7, DRAFT_2020] {
        let schema = schema(&json!({
            "$schema": draft, "format": "email", "contentEncoding": "base64", "contentMediaType": "application/json",
        }));
        assert!(fits(&schema, &json!("§ no mail, no base64, no JSON")));
    }
}

#[test]
fn a_reference_leads_to_a_place_or_an_anchor_of_the_document() {
    let schema = schema(&json!({
        "$id": "https://example.com/order.json",
        "$defs": {"a b": {"type": "integer"}, "named": {"$anchor": "text", "type": "string"}},
        "properties": {"count": {"$ref": "#/$defs/a%20b"}, "title": {"$ref": "#text"}, "next": {"$ref": "#"}},
    }));
    assert!(fits(&schema, &json!({"count": 1, "title": "t", "next": {"next": {"count": 2}}})));
    assert_eq!(
        pointers(&schema, &json!({"next": {"next": {"count": "2", "title": 3}}})),
        ["/next/next/count", "/next/next/title"]
    );
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    let schema = schema(&json!({"properties": {
        "$schema": {"type": "string"}, "$id": {"type": "string"}, "$ref": {"type": "string"}, "id": {"type": "string"},
    }}));
    assert!(fits(&schema, &json!({"$ref": "https://example.com"})));
    assert_eq!(pointers(&schema, &json!({"$ref": 1})), ["/$ref"]);
}

#[test]
fn a_pattern_is_matched_and_one_beyond_the_engine_refuses_nobody() {
    let hex = schema(&json!({"pattern": "^[0-9a-f]{4}$"}));
    assert!(fits(&hex, &json!("01af")) && fits(&hex, &json!(7)));
    assert!(!fits(&hex, &json!("01ag")));
    let message = check(&hex, &json!("z")).unwrap_err().iter().next().unwrap().message.clone();
    assert_eq!(message, "does not match the pattern");
    for beyond in [r"(.)\1", "(?!x)y", r"\p{L}+"] {
        let untried = schema(&json!({"properties": {"a": {"pattern": beyond}, "n": {"type": "integer"}}}));
        assert!(fits(&untried, &json!({"a": "xz"})), "{beyond}");
        assert_eq!(pointers(&untried, &json!({"a": "xz", "n": "1"})), ["/n"]);
    }
    for opposite in [
        json!({"not": {"pattern": r"(.)\1"}}),
        json!({"oneOf": [{"pattern": r"(.)\1"}, {"type": "string"}]}),
        json!({"if": {"pattern": r"(.)\1"}, "then": false}),
    ] {
        assert!(fits(&schema(&json!({"properties": {"a": opposite}})), &json!({"a": "abc"})));
    }
}

#[test]
fn a_string_too_long_for_a_pattern_fits_it_and_its_opposite() {
    let long = json!("x".repeat(2000));
    for pattern in ["^y", "^x"] {
        assert!(fits(&schema(&json!({ "pattern": pattern })), &long));
        assert!(fits(&schema(&json!({"not": {"pattern": pattern}})), &long));
        assert!(fits(&schema(&json!({"oneOf": [{"pattern": pattern}, {"type": "string"}]})), &long));
    }
    // What the check before met is forgotten.
    assert!(!fits(&schema(&json!({"pattern": "^y"})), &json!("x")));
}

#[test]
fn a_long_text_beside_a_pattern_does_not_spend_the_budget() {
    let beside = schema(&json!({"properties": {"id": {"pattern": "^a"}, "text": {"type": "string"}}}));
    assert_eq!(pointers(&beside, &json!({"id": "b", "text": "x".repeat(200_000)})), ["/id"]);
}

#[test]
fn the_same_body_gets_the_same_violations_from_every_compilation() {
    let properties: serde_json::Map<_, _> =
        (0..40).map(|i| (format!("p{i}"), json!({"type": "string"}))).collect();
    let body =
        json!(properties.keys().map(|name| (name.clone(), json!(1))).collect::<serde_json::Map<_, _>>());
    let document = json!({"properties": properties, "patternProperties": {"^p": false, "1$": false}});
    let first = check(&schema(&document), &body);
    for _ in 0..20 {
        assert_eq!(check(&schema(&document), &body), first);
    }
}
