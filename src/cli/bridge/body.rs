//! Bodies on the way to code that knows JSON, and back.

use agent_reach_protocol::json::{BodyFormat, value_from_msgpack, value_to_msgpack};
use agent_reach_sdk::{HandlerError, IntoPayload as _, Payload};
use bytes::Bytes;
use serde::de::IgnoredAny;

/// What bytes of no known kind are called.
const OPAQUE: &str = "application/octet-stream";
/// What JSON is called.
pub(super) const JSON: &str = "application/json";
/// Longest content type that a payload may have. Bytes.
const CONTENT_TYPE_BYTES_MAX: usize = 256;

/// A body as old code gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Input {
    /// JSON, unless the caller named another content type.
    pub(super) bytes: Bytes,
    /// What the bytes are.
    pub(super) content_type: String,
}

impl Input {
    /// Of a call: MessagePack becomes JSON by the rules of the JSON subprotocol, anything else stays as it is.
    ///
    /// # Errors
    /// `invalid_request` for a body that has no JSON form.
    pub(super) fn of(payload: Payload) -> Result<Self, HandlerError> {
        let json = |bytes| Self { bytes, content_type: JSON.to_owned() };
        match (BodyFormat::of(payload.content_type.as_deref()), payload.content_type) {
            (BodyFormat::MessagePack | BodyFormat::Json, _) if payload.body.is_empty() => {
                Ok(json(Bytes::from_static(b"null")))
            }
            (BodyFormat::MessagePack, _) => {
                let text = value_from_msgpack(&payload.body)
                    .map_err(|e| HandlerError::invalid_request(format!("the body has no JSON form: {e}")))?;
                Ok(json(text.into()))
            }
            (BodyFormat::Json | BodyFormat::Opaque, content_type) => Ok(Self {
                bytes: payload.body,
                content_type: content_type.unwrap_or_else(|| OPAQUE.to_owned()),
            }),
        }
    }

    /// Whether the bytes are JSON.
    pub(super) fn is_json(&self) -> bool {
        BodyFormat::of(Some(&self.content_type)) == BodyFormat::Json
    }
}

/// JSON as a result; `None` for what is no JSON. What MessagePack cannot say, as a number of 30 digits, stays JSON.
pub(super) fn from_json(bytes: &Bytes) -> Option<Payload> {
    let text = std::str::from_utf8(bytes).ok()?.trim_matches([' ', '\t', '\r', '\n']);
    match value_to_msgpack(text) {
        Ok(body) => Some(Payload::new(body)),
        Err(_) => {
            let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
            is_json.then(|| Payload::new(bytes.clone()).content_type(JSON))
        }
    }
}

/// What a program wrote: JSON, else text, else bytes; nil where it wrote nothing.
pub(super) fn from_output(bytes: &Bytes) -> Payload {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Payload::default();
    }
    from_json(bytes).unwrap_or_else(|| from_text(bytes))
}

/// One piece of what a program or a service writes: JSON, else text, else bytes. An empty one is an empty text.
pub(super) fn from_piece(bytes: &Bytes) -> Payload {
    from_json(bytes).unwrap_or_else(|| from_text(bytes))
}

fn from_text(bytes: &Bytes) -> Payload {
    let text = std::str::from_utf8(bytes).ok().map(|text| text.strip_suffix('\n').unwrap_or(text));
    let text = text.map(|text| text.strip_suffix('\r').unwrap_or(text));
    text.and_then(|text| text.into_payload().ok()).unwrap_or_else(|| opaque(bytes.clone(), OPAQUE))
}

/// Bytes as they are.
pub(super) fn opaque(bytes: Bytes, content_type: &str) -> Payload {
    let fits = content_type.len() <= CONTENT_TYPE_BYTES_MAX;
    Payload::new(bytes).content_type(if fits { content_type } else { OPAQUE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Payload {
        from_output(&Bytes::copy_from_slice(text))
    }

    #[test]
    fn output_is_json_or_text_or_bytes() {
        assert_eq!(of(b" {\"a\": 1}\n"), Payload::new(&b"\x81\xa1a\x01"[..]));
        assert_eq!(of(b"hello you\r\n"), Payload::new(&b"\xa9hello you"[..]));
        assert_eq!(of(b"null"), Payload::new(&b"\xc0"[..]));
        assert_eq!([of(b""), of(b" \n")], [Payload::default(), Payload::default()]);
        assert_eq!(of(b"\xff"), Payload::new(&b"\xff"[..]).content_type(OPAQUE));
        assert_eq!(from_piece(&Bytes::new()), Payload::new(&b"\xa0"[..]));
    }

    #[test]
    fn json_that_messagepack_cannot_say_stays_json() {
        for text in ["123456789012345678901234567890", r#"{"$int": "many"}"#] {
            assert_eq!(of(text.as_bytes()), Payload::new(text.to_owned()).content_type(JSON));
        }
    }

    #[test]
    fn a_body_goes_out_as_json_or_as_it_is() {
        let input = |payload| Input::of(payload).ok().map(|input| (input.bytes, input.content_type));
        let json = |text: &'static str| Some((Bytes::from_static(text.as_bytes()), JSON.to_owned()));
        assert_eq!(input(Payload::default()), json("null"));
        assert_eq!(input(Payload::new(&b"\x81\xa1a\x01"[..])), json("{\"a\":1}"));
        assert_eq!(input(Payload::new(&b"[1]"[..]).content_type(JSON)), json("[1]"));
        let png = Payload::new(&b"\x89PNG"[..]).content_type("image/png");
        assert_eq!(input(png), Some((Bytes::from_static(b"\x89PNG"), "image/png".to_owned())));
        assert_eq!(input(Payload::new(&b"\xc1"[..])), None);
    }
}
