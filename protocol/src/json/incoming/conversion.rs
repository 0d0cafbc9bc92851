//! The objects that stand for what JSON does not have: `$bin`, `$time`, `$int` and `$ext`.

use std::borrow::Cow;
use std::slice;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::json::msgpack;
use crate::json::scan::{Scanner, unescape};
use crate::json::timestamp;

/// What an object with one key turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// A conversion: its value is written, its text taken.
    Done,
    /// An ordinary object.
    Ordinary,
    /// A conversion whose value does not fit, with the reason.
    Broken(&'static str),
}

/// Tries the object whose brace and count have just been taken, and which has one key. Only after `Done` have
/// the scanner and counts moved to behind it, and only then is anything written.
pub(super) fn convert(
    out: &mut Vec<u8>,
    place: &mut Scanner<'_>,
    counts: &mut slice::Iter<'_, u32>,
) -> Attempt {
    let (mut scanner, mut inner) = (*place, counts.clone());
    let Some(word) = unescape(scanner.string()) else { return Attempt::Ordinary };
    scanner.structure();
    let reason = match word.as_ref() {
        "$bin" => match string(&mut scanner).and_then(|text| BASE64.decode(text.as_bytes()).ok()) {
            Some(bytes) => {
                msgpack::write_bin(out, &bytes);
                None
            }
            None => Some("$bin wants a string of padded base64"),
        },
        "$time" => match string(&mut scanner).filter(|text| timestamp::write_rfc3339(out, text)) {
            Some(_) => None,
            None => Some("$time wants a string of RFC 3339, years 0001 to 9999, at most nanoseconds"),
        },
        "$int" => match string(&mut scanner).filter(|text| write_decimal(out, text)) {
            Some(_) => None,
            None => Some("$int wants a string with a decimal integer from -2^63 to 2^64-1"),
        },
        "$ext" => match ext(&mut scanner, &mut inner) {
            Some((kind, data)) => {
                msgpack::write_ext(out, kind, &data);
                None
            }
            None => Some("$ext wants an array of a type from -128 to 127 and a string of padded base64"),
        },
        _ => return Attempt::Ordinary,
    };
    if let Some(reason) = reason {
        return Attempt::Broken(reason);
    }
    scanner.structure();
    (*place, *counts) = (scanner, inner);
    Attempt::Done
}

/// Writes an integer of JSON's form (no plus, no leading zeros) exactly. False, with nothing written, if it
/// is none or lies outside -2^63 to 2^64-1.
pub(super) fn write_decimal(out: &mut Vec<u8>, text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if !plain {
        return false;
    }
    if let Ok(value) = text.parse() {
        msgpack::write_int(out, value);
    } else if let Ok(value) = text.parse() {
        msgpack::write_uint(out, value);
    } else {
        return false;
    }
    true
}

fn ext(scanner: &mut Scanner<'_>, counts: &mut slice::Iter<'_, u32>) -> Option<(i8, Vec<u8>)> {
    if scanner.peek() != b'[' || counts.next() != Some(&2) {
        return None;
    }
    scanner.structure();
    if matches!(scanner.peek(), b'[' | b'{' | b'"') {
        return None;
    }
    let kind = scanner.word().parse().ok()?;
    scanner.structure();
    let data = BASE64.decode(string(scanner)?.as_bytes()).ok()?;
    scanner.structure();
    Some((kind, data))
}

fn string<'a>(scanner: &mut Scanner<'a>) -> Option<Cow<'a, str>> {
    if scanner.peek() == b'"' { unescape(scanner.string()) } else { None }
}
