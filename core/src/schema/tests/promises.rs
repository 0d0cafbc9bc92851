//! What callers expect, and who promises it.

use serde_json::json;

use super::super::{Expected, Kept, Promise};
use super::*;

/// The pointer to what is missing, if anything.
fn missing(expected: &Value, output: &Value) -> Option<String> {
    let expected = Expected::read(&msgpack(expected)).unwrap();
    let promise = Arc::new(Promise::read(&msgpack(output)).unwrap());
    let missing = expected.keeps(Some(&promise)).err();
    assert_eq!(expected.is_kept(Some(&promise)), missing.is_none());
    missing.map(|pointer| pointer.to_string())
}

#[test]
fn a_required_property_has_to_be_listed() {
    let expected =
        json!({"required": ["city", "a/b"], "properties": {"city": {"type": "string"}, "more": {}}});
    assert_eq!(missing(&expected, &json!({"properties": {"city": {}, "a/b": true}})), None);
    assert_eq!(missing(&expected, &json!({"properties": {"city": {}}})).unwrap(), "/a~1b");
    assert_eq!(missing(&expected, &json!({"properties": {}})).unwrap(), "/city");
    assert_eq!(missing(&expected, &json!(true)).unwrap(), "/city");
    assert_eq!(missing(&json!({"properties": {"more": {}}}), &json!({})), None);
}

#[test]
fn properties_inside_properties_have_to_be_listed_too() {
    let expected = json!({
        "required": ["user"],
        "properties": {"user": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    });
    let output = |user: Value| json!({"properties": {"user": user}});
    assert_eq!(missing(&expected, &output(json!({"properties": {"name": {}}}))), None);
    assert_eq!(missing(&expected, &output(json!({"type": "object"}))).unwrap(), "/user/name");
    let referred = json!({
        "allOf": [{"properties": {"user": {"$ref": "#/$defs/User"}}}],
        "$defs": {"User": {"properties": {"name": {"type": "string"}}}},
    });
    assert_eq!(missing(&expected, &referred), None);
}

#[test]
fn types_that_both_state_have_to_go_together() {
    for (promised, expected, kept) in [
        (json!("integer"), json!("number"), true),
        (json!("number"), json!("integer"), false),
        (json!("string"), json!("string"), true),
        (json!("string"), json!("object"), false),
        (json!(["null", "string"]), json!("string"), true),
        (json!(["null", "integer"]), json!(["number", "boolean"]), true),
        (json!(["null", "integer"]), json!("string"), false),
    ] {
        let typed = |kind: &Value| json!({"required": ["a"], "properties": {"a": {"type": kind}}});
        assert_eq!(
            missing(&typed(&expected), &typed(&promised)).is_none(),
            kept,
            "{promised} for {expected}"
        );
        assert_eq!(missing(&json!({"required": ["a"]}), &typed(&promised)), None);
        assert_eq!(missing(&typed(&expected), &json!({"properties": {"a": {}}})), None);
    }
}

#[test]
fn who_promises_nothing_keeps_only_an_expectation_of_nothing() {
    let something = Expected::read(&msgpack(&json!({"required": ["a"]}))).unwrap();
    assert_eq!(&*something.keeps(None).unwrap_err(), "/a");
    let nothing = Expected::read(&msgpack(&json!({"type": "object"}))).unwrap();
    assert_eq!(nothing.keeps(None), Ok(()));
    assert!(nothing.is_kept(None) && !something.is_kept(None));
}

#[test]
fn an_expectation_that_is_no_schema_is_told_why() {
    for expected in [json!(7), json!({"required": "a"}), json!({"required": [1]}), json!({"properties": []})]
    {
        assert!(!Expected::read(&msgpack(&expected)).unwrap_err().is_empty(), "{expected}");
    }
    assert!(Expected::read(&[0xc1]).is_err());
    let names: Vec<String> = (0..300).map(|i| i.to_string()).collect();
    assert!(Expected::read(&msgpack(&json!({ "required": names }))).is_err());
}

#[test]
fn expectations_and_promises_without_end_are_answered() {
    let endless = json!({"required": ["next"], "properties": {"next": {"$ref": "#"}}});
    assert_eq!(missing(&endless, &endless), None);
    assert_eq!(missing(&json!({"required": ["a"]}), &json!({"$ref": "#"})).unwrap(), "/a");
    let fan: Vec<Value> = (0..4000).map(|_| json!({"$ref": "#"})).collect();
    assert_eq!(missing(&json!({"required": ["a"]}), &json!({ "allOf": fan })).unwrap(), "/a");
    let twice = json!({"required": ["a", "b"], "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}});
    assert!(Expected::read(&msgpack(&twice)).is_err());
}
