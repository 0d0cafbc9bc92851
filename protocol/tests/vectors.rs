//! The golden vectors of `protocol/vectors`, run on this crate, and whether they are complete.

#![cfg(test)]

mod support {
    pub(crate) mod files;
    pub(crate) mod message;
    pub(crate) mod source;
}

use std::collections::{BTreeMap, BTreeSet};

use agent_reach_protocol::{DecodeError, FieldError, Kind, decode_to_hub, json};
use bytes::Bytes;
use serde_json::{Value, json as object};
use support::files::{Vector, vectors};
use support::message::Message;
use support::source::{DeclaredKey, declared_keys};

#[test]
fn accepted_messages_are_read() {
    for vector in vectors("accept") {
        let bytes = vector.bytes();
        if let Err(error) = Message::read(&bytes, vector.to_hub()) {
            panic!("{}: {error:?}", vector.id());
        }
    }
}

#[test]
fn accepted_messages_say_their_value() {
    for vector in vectors("accept") {
        let Some(value) = vector.fields.get("value") else { continue };
        let shown: Value = serde_json::from_str(&json::from_msgpack(&vector.bytes()).unwrap()).unwrap();
        assert_eq!(&shown, value, "{}", vector.id());
    }
}

#[test]
fn canonical_messages_are_written_as_the_same_bytes() {
    let mut seen = 0;
    for vector in vectors("accept") {
        if vector.fields.get("canonical") == Some(&Value::Bool(true)) {
            let bytes = vector.bytes();
            let message = Message::read(&bytes, vector.to_hub()).unwrap();
            assert_eq!(message.encoded(), bytes, "{}", vector.id());
            seen += 1;
        }
    }
    assert!(seen > 100);
}

#[test]
fn messages_of_another_form_read_as_the_canonical_one() {
    let all: BTreeMap<String, Bytes> =
        vectors("accept").iter().map(|vector| (vector.id().to_owned(), vector.bytes())).collect();
    for vector in vectors("accept") {
        let Some(other) = vector.fields.get("reads_as") else { continue };
        let other = all.get(other.as_str().unwrap()).unwrap_or_else(|| panic!("{}: unknown", vector.id()));
        let bytes = vector.bytes();
        let message = Message::read(&bytes, vector.to_hub()).unwrap();
        assert_eq!(message, Message::read(other, vector.to_hub()).unwrap(), "{}", vector.id());
        assert_eq!(&message.encoded(), other, "{}", vector.id());
    }
}

#[test]
fn rejected_messages_fail_as_they_should() {
    for vector in vectors("reject") {
        let bytes = vector.bytes();
        let Err(error) = Message::read(&bytes, vector.to_hub()) else { panic!("{} is read", vector.id()) };
        assert_eq!(said(&error), vector.fields["error"], "{}", vector.id());
    }
}

#[test]
fn json_texts_become_their_envelopes() {
    for vector in vectors("json/accept").iter().filter(|vector| vector.to_hub()) {
        let converted = json::to_msgpack(&vector.text()).unwrap();
        assert_eq!(converted.fault, None, "{}", vector.id());
        assert_eq!(Bytes::from(converted.envelope), vector.bytes(), "{}", vector.id());
        assert!(read_text(&vector.text()).is_ok(), "{}", vector.id());
    }
}

#[test]
fn envelopes_become_their_json_texts() {
    for vector in vectors("json/accept").iter().filter(|vector| !vector.to_hub()) {
        assert_eq!(json::from_msgpack(&vector.bytes()).unwrap(), vector.text(), "{}", vector.id());
    }
}

#[test]
fn rejected_json_fails_as_it_should() {
    for vector in vectors("json/reject") {
        let error = if vector.to_hub() {
            said(&read_text(&vector.text()).err().unwrap_or_else(|| panic!("{} is read", vector.id())))
        } else {
            assert!(json::from_msgpack(&vector.bytes()).is_err(), "{} is shown", vector.id());
            object!({"class": "unconvertible"})
        };
        assert_eq!(error, vector.fields["error"], "{}", vector.id());
    }
}

#[test]
fn every_vector_has_a_name_of_its_own_and_a_note() {
    let mut seen = BTreeSet::new();
    for folder in ["accept", "reject", "json/accept", "json/reject"] {
        // Accepted and rejected ones may share a name: they are told apart by their folder.
        for vector in vectors(folder) {
            assert!(vector.fields["note"].as_str().is_some_and(|note| !note.is_empty()), "{}", vector.id());
            assert!(seen.insert(format!("{folder}/{}", vector.id())), "{folder}/{} twice", vector.id());
        }
    }
}

#[test]
fn keys_that_are_always_written_stand_in_every_canonical_message() {
    let accepted = vectors("accept");
    for DeclaredKey { header, key, .. } in declared_keys().iter().filter(|declared| declared.always) {
        let (file, path) = place(header);
        let is_canonical = |vector: &&Vector| vector.file == file && vector.fields.get("canonical").is_some();
        let mut seen = 0;
        for vector in accepted.iter().filter(is_canonical) {
            for map in maps_at(&vector.fields["value"][1], path) {
                assert!(map.get(key).is_some(), "{}: {header}.{key}", vector.id());
                seen += 1;
            }
        }
        assert!(seen > 0, "no canonical vector has {header}.{key}");
    }
}

#[test]
fn every_kind_has_accepted_messages_in_each_direction_it_goes() {
    let accepted = vectors("accept");
    let mut seen = BTreeSet::new();
    for vector in &accepted {
        let bytes = vector.bytes();
        seen.insert(match Message::read(&bytes, vector.to_hub()).unwrap() {
            Message::ToHub(envelope, _) => (envelope.kind(), true),
            Message::ToAgent(envelope, _) => (envelope.kind(), false),
        });
    }
    for kind in Kind::ALL {
        for to_hub in [true, false] {
            let goes = match kind {
                Kind::Hello | Kind::Update | Kind::Receipt => to_hub,
                Kind::Welcome | Kind::Error => !to_hub,
                Kind::Goodbye
                | Kind::Call
                | Kind::Accept
                | Kind::Chunk
                | Kind::Credit
                | Kind::Result
                | Kind::Cancel => true,
            };
            assert_eq!(seen.contains(&(*kind, to_hub)), goes, "{kind:?}, to the hub: {to_hub}");
        }
    }
}

#[test]
fn every_key_of_every_header_has_accepted_and_rejected_messages() {
    let accepted = vectors("accept");
    let rejected = vectors("reject");
    let declared = declared_keys();
    assert!(declared.len() > 100, "the source has another form: {}", declared.len());
    for DeclaredKey { header, key, .. } in declared {
        let (file, path) = place(&header);
        let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
        let shown =
            accepted.iter().any(|vector| vector.file == file && has(&vector.fields["value"][1], &path));
        assert!(shown, "no accepted vector has {header}.{key}");
        let field = path.join(".");
        let refused = rejected.iter().any(|vector| of_field(vector, file, &field));
        assert!(refused, "no rejected vector has {header}.{key}");
    }
}

/// What the hub's JSON edge makes of a text: converted, then read.
fn read_text(text: &str) -> Result<(), DecodeError> {
    let converted = json::to_msgpack(text).map_err(|error| DecodeError::Untrusted(error.to_string()))?;
    let fault = converted.fault.map(|fault| FieldError { field: fault.field, message: fault.message });
    decode_to_hub(&converted.envelope.into(), fault).map(drop)
}

fn of_field(vector: &Vector, file: &str, field: &str) -> bool {
    vector.file == file && vector.fields["error"]["field"] == field
}

/// What an error costs, in the words of the vectors.
fn said(error: &DecodeError) -> Value {
    match error {
        DecodeError::Untrusted(_) => object!({"class": "untrusted", "goodbye": "protocol_error"}),
        DecodeError::Malformed { kind, id, error } => with_id(
            object!({
                "class": "malformed", "code": "invalid_request", "kind": kind.number(), "field": error.field,
            }),
            *id,
        ),
        DecodeError::UnknownKind { kind, id } => {
            with_id(object!({"class": "unknown_kind", "code": "unknown_kind", "kind": number(*kind)}), *id)
        }
        DecodeError::WrongDirection(kind) => {
            object!({"class": "wrong_direction", "code": "invalid_request", "kind": kind.number()})
        }
    }
}

fn with_id(mut error: Value, id: Option<u64>) -> Value {
    if let Some(id) = id {
        error["id"] = number(id);
    }
    error
}

fn number(number: u64) -> Value {
    if number > 1 << 53 { object!({"$int": number.to_string()}) } else { number.into() }
}

/// In which file the vectors of a header stand, and where in the header of an envelope its map is.
fn place(header: &str) -> (&'static str, &'static [&'static str]) {
    match header {
        "Capability" => ("hello", &["capabilities"]),
        "Load" => ("hello", &["load"]),
        "Granted" => ("welcome", &["granted"]),
        "Attempt" => ("result", &["attempts"]),
        "CallError" => ("result", &["error"]),
        "Summary" => ("result", &["summary"]),
        "Hello" => ("hello", &[]),
        "Welcome" => ("welcome", &[]),
        "Update" => ("update", &[]),
        "Goodbye" => ("goodbye", &[]),
        "ErrorReply" => ("error", &[]),
        "Call" => ("call", &[]),
        "Dispatch" => ("dispatch", &[]),
        "Accept" => ("accept", &[]),
        "Chunk" => ("chunk", &[]),
        "Credit" => ("credit", &[]),
        "CallResult" => ("result", &[]),
        "Cancel" => ("cancel", &[]),
        "Receipt" => ("receipt", &[]),
        other => panic!("a new header {other} needs its vectors"),
    }
}

/// The maps at a path: none where a key of it is absent, several where it goes through a list.
fn maps_at<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a Value> {
    match (value, path) {
        (Value::Array(items), _) => items.iter().flat_map(|item| maps_at(item, path)).collect(),
        (Value::Object(_), []) => vec![value],
        (_, []) => Vec::new(),
        (_, [key, rest @ ..]) => value.get(key).map_or_else(Vec::new, |value| maps_at(value, rest)),
    }
}

fn has(value: &Value, path: &[&str]) -> bool {
    match (value, path) {
        (_, []) => true,
        (Value::Array(items), _) => items.iter().any(|item| has(item, path)),
        (_, [key, rest @ ..]) => value.get(key).is_some_and(|value| !value.is_null() && has(value, rest)),
    }
}
