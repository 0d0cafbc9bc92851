//! The JSON edge: what the `agent-reach.v1.json` subprotocol says, to and from the MessagePack envelope.
//!
//! Only the edge of the hub speaks JSON: text becomes MessagePack on the way in and text again on the way
//! out, so that everything behind it (and every other agent) sees one format. Both directions are one pass
//! over borrowed input, nested no deeper than the limits below, and their output is at most a constant times
//! the input.
//!
//! # The conversion
//!
//! | MessagePack | JSON |
//! | --- | --- |
//! | bin | `{"$bin": base64}`, the padded standard alphabet |
//! | timestamp (ext -1) | `{"$time": RFC 3339}`, years 0001 to 9999, at most nine digits of fraction |
//! | integer beyond 2^53 in magnitude | `{"$int": decimal}`; smaller ones are bare |
//! | other ext, and a timestamp that RFC 3339 cannot say | `{"$ext": [type, base64]}` |
//! | map key that is no string | its JSON text as the key |
//! | float | a number that always carries `.` or `e`, so that it comes back as a float; f32 is widened |
//! | NaN, infinity | `null` |
//!
//! Coming in, an object with exactly one key, `$bin`, `$time`, `$int` or `$ext`, is a conversion, and a fault
//! if its value does not fit. Any other object is an ordinary one, `{"$other": 1}` too. Integers are taken
//! exactly from -2^63 to 2^64-1 and take the shortest MessagePack form; a bare `-0` is the integer 0 (as in
//! Python), `-0.0` stays a float.
//!
//! # What does not survive
//!
//! MessagePack can say a few things that JSON cannot tell apart: a map whose only key is one of the four
//! words reads like the conversion, a key `1` like a key `"1"`, a body of an encoded nil like no body, and
//! bytes that are no JSON, under a JSON content type, like the JSON object `{"$bin": …}`.

mod content_type;
mod incoming;
mod msgpack;
mod outgoing;
mod scan;
#[cfg(test)]
mod tests;
mod timestamp;

pub use content_type::BodyFormat;
pub use incoming::{to_msgpack, value_to_msgpack};
pub use outgoing::{from_msgpack, value_from_msgpack};
pub use timestamp::{EXT_TYPE as TIMESTAMP_EXT_TYPE, to_rfc3339};

use thiserror::Error;

/// Deepest nesting of arrays and maps in a body, in either direction. One more is a [`Fault`] coming in and
/// [`BodyError::TooDeep`] going out. A conversion object does not count: it stands for a scalar.
pub const BODY_DEPTH_MAX: usize = 128;

/// Deepest nesting of arrays and maps in a header (itself being the first) that is converted at all. More
/// than the decoder behind takes (32): it is the one to judge, this only bounds the work before it.
pub const HEADER_DEPTH_MAX: usize = 64;

/// How many times a key that is no string may stand inside another such key. Each time quotes its text once
/// more, which doubles the backslashes: without a bound a few bytes would grow without end.
pub const KEY_QUOTING_MAX: usize = 3;

/// An envelope that came as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The MessagePack array `[kind, header, body]`, always of three. Kind and header have whatever types
    /// and keys (repeated ones too) they had in the text: the decoder behind judges them.
    pub envelope: Vec<u8>,
    /// The first thing that could not be converted. `invalid_request` for this envelope only: kind and `id`
    /// in `envelope` are good for the answer, its body is nil if the fault is there.
    pub fault: Option<Fault>,
}

/// One value that has no MessagePack form, in an envelope that is otherwise usable. The peer's fault; on the
/// wire `invalid_request` with `details.field`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {message}")]
pub struct Fault {
    /// `body`, or the header key that holds the value; `kind` and `header` for these two themselves. At most
    /// 128 bytes.
    pub field: String,
    /// What is wrong, after a JSON pointer to the place inside the field (none for the field itself). At
    /// most 512 bytes.
    pub message: String,
}

/// Text that is no envelope: not JSON, not an array of two or three, or a header nested too deep to convert.
/// The peer's fault; it ends the connection with `protocol_error`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not an envelope: {reason}")]
pub struct NotAnEnvelope {
    /// What is wrong, without any of the text itself.
    pub reason: String,
}

/// MessagePack that has no JSON form. In a body it is the fault of the agent that sent the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BodyError {
    /// The bytes end inside a value.
    #[error("MessagePack ends inside a value")]
    Truncated,
    /// Bytes follow the value.
    #[error("bytes after the MessagePack value")]
    TrailingBytes,
    /// The byte 0xc1, which MessagePack never uses.
    #[error("the reserved MessagePack byte 0xc1")]
    ReservedByte,
    /// A MessagePack str that is no UTF-8: JSON text has no way to say it.
    #[error("a MessagePack str that is not UTF-8")]
    InvalidUtf8,
    /// Nested deeper than [`BODY_DEPTH_MAX`].
    #[error("nested deeper than {BODY_DEPTH_MAX}")]
    TooDeep,
    /// Keys that are no strings inside each other, beyond [`KEY_QUOTING_MAX`].
    #[error("map keys that are no strings nested deeper than {KEY_QUOTING_MAX}")]
    KeyTooDeep,
    /// The whole is not an array of two or three with a bin or nil as body.
    #[error("not an array of kind, header and body")]
    NotAnEnvelope,
}
