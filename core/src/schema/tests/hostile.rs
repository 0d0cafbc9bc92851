//! Schemas made to cost, and bodies made for them.

use serde_json::json;

use super::super::body::STEPS_MAX;
use super::*;

fn refused(schema: &Value) -> String {
    compile(schema).unwrap_err()
}

fn nested(depth: usize, inner: Value, around: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(inner, |inner, _| around(inner))
}

#[test]
fn garbage_is_no_schema() {
    for document in
        [json!(1), json!("x"), json!([]), json!(null), json!({"type": "strng"}), json!({"properties": [1]})]
    {
        let why = refused(&document);
        assert!(!why.is_empty() && why.len() <= 200, "{why}");
    }
    assert!(Schema::compile(&[]).is_err());
    assert!(Schema::compile(&[0xc1]).is_err());
    assert!(Schema::compile(&vec![0x91; 60_000]).is_err());
    let why = refused(&json!({"type": "x".repeat(50_000)}));
    assert!(why.len() <= 200, "{}", why.len());
}

#[test]
fn a_schema_over_its_bounds_is_refused() {
    assert!(refused(&json!({"description": "x".repeat(65_536)})).contains("larger"));
    assert!(refused(&json!({"enum": vec![1; 9000]})).contains("8192"));
    assert!(refused(&nested(40, json!(true), |inner| json!({ "not": inner }))).contains("32"));
    assert!(compile(&nested(14, json!(true), |inner| json!({"properties": {"a": inner}}))).is_ok());
    let references: Vec<Value> = (0..600).map(|_| json!({"$ref": "#/$defs/a"})).collect();
    assert!(refused(&json!({"allOf": references, "$defs": {"a": true}})).contains("512"));
}

#[test]
fn a_reference_out_of_the_document_is_refused() {
    for to in [
        "https://example.com/a.json",
        "file:///etc/passwd",
        "a.json",
        "",
        "http://json-schema.org/draft-07/schema#",
    ] {
        assert!(refused(&json!({ "$ref": to })).contains("out of the document"), "{to}");
    }
    for to in ["#/nowhere", "#nobody", "#/%ff", "#/%+a"] {
        assert!(refused(&json!({ "$ref": to, "%+a": {}, "\n": {} })).contains("nowhere"), "{to}");
    }
    assert!(compile(&json!({"$ref": 1})).is_err());
}

#[test]
fn documents_of_several_and_unknown_dialects_are_refused() {
    for document in [
        json!({"$schema": "https://example.com/dialect"}),
        json!({"$schema": 1}),
        json!({"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}),
        json!({"$defs": {"a": {"$id": "https://example.com/a"}}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"id": "x"}}}),
        json!({"$dynamicRef": "#a", "$dynamicAnchor": "a"}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}}),
        json!({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}, "$ref": "#x"}),
    ] {
        refused(&document);
    }
}

#[test]
fn the_name_of_a_document_does_not_stand_for_another() {
    let posing = json!({"$id": "http://json-schema.org/draft-07/schema", "type": "integer"});
    assert!(fits(&schema(&posing), &json!(1)));
    assert!(!fits(&schema(&posing), &json!({})));
}

#[test]
fn a_reference_that_leads_back_on_the_same_value_is_refused() {
    for document in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"anyOf": [true, {"if": {"$ref": "#"}}]}}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
        json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"dependentSchemas": {"k": {"$ref": "#/$defs/a"}}}}}),
        json!({"$defs": {"a": {"$anchor": "a", "oneOf": [{"$ref": "#a"}]}}, "items": {"$ref": "#a"}}),
    ] {
        assert!(refused(&document).contains("leads back"), "{document}");
    }
}

#[test]
fn references_that_double_at_each_step_are_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut defs = serde_json::Map::new();
        for i in 0..20 {
            let next = json!({"$ref": format!("#/$defs/{}", i + 1)});
            defs.insert(i.to_string(), json!({keyword: [next, next]}));
        }
        defs.insert("20".to_owned(), json!(true));
        let why = refused(&json!({"$defs": defs, "$ref": "#/$defs/0"}));
        assert!(why.contains("more than"), "{why}");
    }
}

#[test]
fn a_long_chain_of_references_is_refused() {
    let mut defs: serde_json::Map<_, _> =
        (0..400).map(|i| (i.to_string(), json!({"$ref": format!("#/$defs/{}", i + 1)}))).collect();
    defs.insert("400".to_owned(), json!(true));
    assert!(refused(&json!({"$defs": defs, "$ref": "#/$defs/0"})).contains("inside each other"));
}

#[test]
fn a_check_that_doubles_at_each_level_is_not_begun() {
    let doubling = schema(&json!({
        "allOf": [{"properties": {"a": {"$ref": "#"}}}, {"patternProperties": {"^a": {"$ref": "#"}}}],
        "properties": {"end": false},
    }));
    let body = |depth| nested(depth, json!({"end": 1}), |inner| json!({ "a": inner }));
    assert!(!fits(&doubling, &body(3)));
    assert!(fits(&doubling, &body(60)));
}

#[test]
fn a_tree_of_different_branches_is_checked_to_its_depth() {
    let filter = schema(&json!({"oneOf": [
        {"properties": {"and": {"items": {"$ref": "#"}}}, "required": ["and"]},
        {"properties": {"or": {"items": {"$ref": "#"}}}, "required": ["or"]},
        {"properties": {"not": {"$ref": "#"}}, "required": ["not"]},
        {"properties": {"field": {"type": "string"}}, "required": ["field"]},
    ]}));
    let tree = |end: Value| nested(20, end, |inner| json!({"or": [{"not": inner}]}));
    assert!(fits(&filter, &tree(json!({"field": "a"}))));
    assert!(!fits(&filter, &tree(json!({"field": 1}))));
}

#[test]
fn a_deep_body_is_checked_within_the_stack() {
    let body = |depth| nested(depth, json!({"end": 1}), |inner| json!({ "a": inner }));
    let end = json!({"properties": {"a": {"$ref": "#"}, "end": false}});
    assert!(!fits(&schema(&end), &body(60)));
    let around = schema(&nested(9, end.clone(), |inner| json!({"anyOf": [inner]})));
    assert!(!fits(&around, &body(55)));
    let mut defs: serde_json::Map<_, _> = (0..9)
        .map(|i| (i.to_string(), json!({"$ref": format!("#/$defs/{}", i + 1), "maxLength": 1})))
        .collect();
    defs.insert("9".to_owned(), end);
    let referred = schema(&json!({"$defs": defs, "$ref": "#/$defs/0"}));
    assert!(!fits(&referred, &body(50)));
    assert!(fits(&referred, &body(60)), "too many schemas inside each other are not begun");
}

#[test]
fn patterns_take_linear_time_and_bounded_room() {
    let text = json!("a".repeat(1000) + "!");
    for pattern in ["(a+)+$", "^(a|a)*$", "^(.*)*(.*)*x$", "^(([a-z])+.)+[A-Z]([a-z])+$"] {
        assert!(!fits(&schema(&json!({ "pattern": pattern })), &text), "{pattern}");
        assert!(fits(&schema(&json!({"not": {"pattern": pattern}})), &text), "{pattern}");
    }
    // What is too large to compile, or to read, is not tried.
    for pattern in [
        "(((a{100}){100}){100}){100}",
        &"a".repeat(300),
        "(?i)[^a]",
        r"\p{L}\p{L}\p{L}\p{L}\p{L}\p{L}\p{L}\p{L}\p{L}",
    ] {
        let schema = schema(&json!({ "pattern": pattern }));
        assert!(fits(&schema, &text), "{pattern}");
    }
    assert!(compile(&json!({"patternProperties": {"(((a{100}){100}){100}){100}": true}})).is_err());
    assert!(compile(&json!({"patternProperties": {"(?i)[^a]": true}})).is_err());
    let many: Vec<Value> = (0..500).map(|i| json!({"pattern": format!("a{{{i}}}$")})).collect();
    assert!(compile(&json!({ "anyOf": many })).is_ok());
}

#[test]
fn a_body_gets_no_more_than_its_budget_over_all_schemas() {
    let items: Vec<Value> = (0..8000).map(Value::from).collect();
    let bytes = msgpack(&json!(items));
    let body = Body::new(Some(&bytes), None);
    let schemas: Vec<_> =
        (0..100).map(|i| schema(&json!({"items": {"type": "string", "minLength": i}}))).collect();
    let refusing = schemas.iter().filter(|schema| !body.fits(schema)).count();
    assert!(refusing >= 1, "the first is checked");
    assert!(u64::try_from(refusing).unwrap() <= STEPS_MAX / 8000, "{refusing}");
}

#[test]
fn costly_keywords_on_large_bodies_are_not_begun() {
    let items: Vec<Value> = (0..4000).map(|i| json!([i])).collect();
    let large = json!(items);
    let small = json!([1, 1]);
    let unique = schema(&json!({"uniqueItems": true, "items": {"uniqueItems": true}}));
    assert!(!fits(&unique, &small));
    let branches: Vec<Value> =
        (0..800).map(|i| json!({"properties": {format!("k{i}"): {"type": "integer"}}})).collect();
    let open = schema(&json!({"anyOf": branches, "unevaluatedProperties": false}));
    let keys: serde_json::Map<_, _> = (0..200).map(|i| (format!("x{i}"), json!(1))).collect();
    assert!(!fits(&open, &json!({"x": 1})) && fits(&open, &json!(keys)));
    let values: Vec<Value> = (0..2000).map(|i| json!([i, "no"])).collect();
    let listed = schema(&json!({"items": {"enum": values}}));
    assert!(!fits(&listed, &small) && fits(&listed, &large));
}
