//! One copy for many, one verdict for each.

use serde_json::json;

use super::super::{Expected, Interned, Promise};
use super::*;

#[test]
fn the_same_bytes_are_compiled_once_as_long_as_somebody_uses_them() {
    let mut schemas = Interned::<Schema>::default();
    let bytes = msgpack(&json!({"type": "string"}));
    let first = schemas.intern(&bytes).unwrap();
    let second = schemas.intern(&bytes).unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(&first, &schemas.intern(&msgpack(&json!({"type": "null"}))).unwrap()));
    let weak = Arc::downgrade(&first);
    drop((first, second));
    assert!(weak.upgrade().is_none());
    assert!(schemas.intern(&bytes).is_ok());
}

#[test]
fn places_of_what_nobody_uses_are_cleared() {
    let mut promises = Interned::<Promise>::default();
    let held = promises.intern(&msgpack(&json!({"title": "held"}))).unwrap();
    for i in 0..10_000 {
        promises.intern(&msgpack(&json!({ "title": i }))).unwrap();
        assert!(promises.len() <= 64);
    }
    assert!(Arc::ptr_eq(&held, &promises.intern(&msgpack(&json!({"title": "held"}))).unwrap()));
    let all: Vec<_> = (0..1000).map(|i| promises.intern(&msgpack(&json!({ "title": i }))).unwrap()).collect();
    assert!(promises.len() >= all.len());
}

#[test]
fn what_is_no_schema_takes_no_place() {
    let mut schemas = Interned::<Schema>::default();
    assert!(schemas.intern(&msgpack(&json!({"type": 7}))).is_err());
    assert_eq!(schemas.len(), 0);
}

#[test]
fn a_recursive_schema_goes_when_its_last_user_goes() {
    let mut schemas = Interned::<Schema>::default();
    let list = json!({"properties": {"next": {"$ref": "#"}, "a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}});
    let list = schemas.intern(&msgpack(&list)).unwrap();
    let weak = Arc::downgrade(&list);
    drop(list);
    assert_eq!(weak.strong_count(), 0);
}

#[test]
fn a_verdict_is_remembered_for_each_schema() {
    let (yes, no) = (schema(&json!({"type": "integer"})), schema(&json!({"type": "string"})));
    let bytes = msgpack(&json!(1));
    let body = Body::new(Some(&bytes), None);
    let first = body.check(&no).unwrap_err();
    for _ in 0..3 {
        assert!(body.fits(&yes) && body.fits(&yes));
        assert!(!body.fits(&no) && !body.fits(&no));
        assert!(Arc::ptr_eq(&first, &body.check(&no).unwrap_err()));
    }
}

#[test]
fn a_schema_that_is_gone_is_not_taken_for_the_next_one() {
    let bytes = msgpack(&json!(1));
    let body = Body::new(Some(&bytes), None);
    for _ in 0..50 {
        assert!(body.fits(&schema(&json!({"type": "integer"}))));
        assert!(!body.fits(&schema(&json!({"type": "string"}))));
    }
    let expected = Expected::read(&msgpack(&json!({"required": ["a"]}))).unwrap();
    let promise = |document: &Value| Interned::<Promise>::default().intern(&msgpack(document)).unwrap();
    for _ in 0..50 {
        assert!(expected.is_kept(Some(&promise(&json!({"properties": {"a": true}})))));
        assert!(!expected.is_kept(Some(&promise(&json!({"properties": {"b": true}})))));
    }
}
