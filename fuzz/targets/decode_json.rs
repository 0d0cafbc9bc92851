//! The JSON edge: bytes as text on the way in, and as MessagePack on the way out.

use agent_reach_protocol::json::{from_msgpack, to_msgpack, value_from_msgpack, value_to_msgpack};
use agent_reach_protocol::{FieldError, decode_to_agent, decode_to_hub};
use bytes::Bytes;

pub(crate) fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        incoming(text);
    }
    outgoing(data);
}

fn incoming(text: &str) {
    if let Ok(converted) = to_msgpack(text) {
        let envelope = Bytes::from(converted.envelope);
        // A float of three characters and its comma takes nine bytes.
        assert!(envelope.len() <= 3 * text.len() + 32, "{} bytes of {}", envelope.len(), text.len());
        let faulty = converted.fault.is_some();
        let fault = converted.fault.map(|fault| {
            assert!(fault.field.len() <= 128 && fault.message.len() <= 512, "{fault:?}");
            FieldError { field: fault.field, message: fault.message }
        });
        let read = decode_to_hub(&envelope, fault);
        assert!(!faulty || read.is_err());
    }
    if let Ok(value) = value_to_msgpack(text) {
        let shown = value_from_msgpack(&value).expect("what came from JSON has a JSON form");
        assert_eq!(value_to_msgpack(&shown).as_ref(), Ok(&value), "{shown}");
    }
}

fn outgoing(data: &[u8]) {
    if let Ok(text) = from_msgpack(data) {
        bounded(data, &text);
        let envelope = Bytes::copy_from_slice(data);
        let sound = decode_to_hub(&envelope, None).is_ok() || decode_to_agent(&envelope).is_ok();
        assert!(!sound || to_msgpack(&text).is_ok(), "the text of an envelope is none: {text}");
    }
    if let Ok(text) = value_from_msgpack(data) {
        bounded(data, &text);
    }
}

/// The most are quotes in keys that are no strings: each is escaped anew at every level.
fn bounded(data: &[u8], text: &str) {
    assert!(text.len() <= 64 * data.len() + 64, "{} bytes of {}", text.len(), data.len());
}
