//! JSON text to MessagePack.

mod conversion;
mod transcoder;

use super::content_type::BodyFormat;
use super::msgpack;
use super::scan::{self, WHITE_SPACE};
use super::{BODY_DEPTH_MAX, Converted, Fault, HEADER_DEPTH_MAX, NotAnEnvelope};
use transcoder::{Area, Stop, Transcoder};

/// Longest text taken, in bytes: every length in it then fits MessagePack. The message limit is far below.
const TEXT_MAX: usize = u32::MAX as usize;

/// Converts the text of one envelope, `[kind, header]` or `[kind, header, body]`.
///
/// Kind and header keep their types, order and repeated keys; conversions apply to the header's values. The
/// header's `content_type` says what the body becomes inside its MessagePack bin: MessagePack (also when
/// absent), the JSON text as it is (`application/json`, `*+json`), or for any other type the bytes of
/// `{"$bin": base64}`. JSON text that is passed on is only checked for its depth and for half surrogate
/// pairs. A `null` or absent body is nil.
///
/// # Errors
///
/// [`NotAnEnvelope`] for text that cannot be trusted as an envelope. A value without a MessagePack form is
/// no error but [`Converted::fault`].
pub fn to_msgpack(text: &str) -> Result<Converted, NotAnEnvelope> {
    check_text(text).map_err(|reason| NotAnEnvelope { reason })?;
    let counts = scan::count_children(text);
    let mut transcoder = Transcoder::new(text, &counts);
    let Some(length @ 2..=3) = transcoder.open_array() else {
        return Err(NotAnEnvelope { reason: "not an array of two or three".to_owned() });
    };
    let mut envelope = Vec::with_capacity(text.len());
    msgpack::write_array(&mut envelope, 3);

    transcoder.value(&mut envelope, Area::Kind).map_err(|stop| not_an_envelope(stop, "kind"))?;
    transcoder.separator();
    transcoder.header(&mut envelope).map_err(|stop| not_an_envelope(stop, "header"))?;
    transcoder.separator();

    let body = if length == 3 { body(&mut transcoder) } else { Ok(None) };
    match &body {
        Ok(Some(body)) => msgpack::write_bin(&mut envelope, body),
        Ok(None) | Err(_) => msgpack::write_nil(&mut envelope),
    }
    Ok(Converted { envelope, fault: transcoder.fault.or(body.err()) })
}

/// Converts one JSON value, as in a body without a content type.
///
/// # Errors
///
/// [`Fault`], with the field `body`, for text that is no JSON and for whatever has no MessagePack form.
pub fn value_to_msgpack(json: &str) -> Result<Vec<u8>, Fault> {
    check_text(json).map_err(body_fault)?;
    let counts = scan::count_children(json);
    value(&mut Transcoder::new(json, &counts))
}

/// Why the text is not one JSON value, if it is not.
fn check_text(text: &str) -> Result<(), String> {
    if text.len() >= TEXT_MAX {
        return Err("too long".to_owned());
    }
    // serde_json says where and what, and never repeats the text.
    scan::check_syntax(text).map_err(|error| format!("not JSON: {error}"))
}

/// The bytes of the body that comes next and last in the envelope; None for nil.
fn body(transcoder: &mut Transcoder<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let rest = transcoder.scanner.rest().trim_end_matches(WHITE_SPACE);
    let text = rest.strip_suffix(']').unwrap_or(rest).trim_matches(WHITE_SPACE);
    if text == "null" {
        return Ok(None);
    }
    match BodyFormat::of(transcoder.content_type.as_deref()) {
        BodyFormat::MessagePack => value(transcoder).map(Some),
        BodyFormat::Json => match scan::find_unportable(text, BODY_DEPTH_MAX) {
            Some(reason) => Err(body_fault(reason)),
            None => Ok(Some(text.as_bytes().to_vec())),
        },
        BodyFormat::Opaque => transcoder.bytes().map(Some).ok_or_else(|| {
            body_fault("with this content_type the body must be {\"$bin\": base64} or null".to_owned())
        }),
    }
}

fn value(transcoder: &mut Transcoder<'_>) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    transcoder.value(&mut out, Area::Body).map_err(|stop| match stop {
        Stop::Fault(fault) => fault,
        Stop::TooDeep => body_fault(format!("nested deeper than {BODY_DEPTH_MAX}")),
    })?;
    Ok(out)
}

fn body_fault(message: String) -> Fault {
    Fault { field: "body".to_owned(), message }
}

fn not_an_envelope(stop: Stop, part: &str) -> NotAnEnvelope {
    let reason = match stop {
        Stop::TooDeep => format!("{part} nested deeper than {HEADER_DEPTH_MAX}"),
        Stop::Fault(fault) => fault.to_string(),
    };
    NotAnEnvelope { reason }
}
