mod envelope;
mod incoming;
mod outgoing;
mod property;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;

/// The MessagePack of a JSON body, and back; both must agree.
fn both_ways(json: &str, msgpack: &[u8]) {
    assert_eq!(value_to_msgpack(json).as_deref(), Ok(msgpack), "{json}");
    assert_eq!(value_from_msgpack(msgpack).as_deref(), Ok(json), "{json}");
}

/// Why a JSON body is refused.
fn fault_of(json: &str) -> String {
    let fault = value_to_msgpack(json).unwrap_err();
    assert_eq!(fault.field, "body");
    fault.message
}

fn rmpv(bytes: &[u8]) -> rmpv::Value {
    let mut rest = bytes;
    let value = rmpv::decode::read_value(&mut rest).unwrap();
    assert!(rest.is_empty(), "bytes after the value");
    value
}

fn encoded(value: &rmpv::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}
