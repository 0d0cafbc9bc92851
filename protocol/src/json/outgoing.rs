//! MessagePack to JSON text.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::value::RawValue;

use super::content_type::BodyFormat;
use super::msgpack::{Item, Reader};
use super::scan;
use super::timestamp;
use super::{BODY_DEPTH_MAX, BodyError, KEY_QUOTING_MAX};

/// The largest integer (and the smallest, negated) that is written bare: 2^53.
const BARE_INTEGER_MAX: u64 = 1 << 53;

/// Converts one MessagePack envelope, `[kind, header]` or `[kind, header, body]`, to the JSON text
/// `[kind, header, body]`.
///
/// The header's `content_type` says how the bytes of the body are shown: MessagePack (also when absent) as
/// the value in them, JSON (`application/json`, `*+json`) as the text that they are, anything else as
/// `{"$bin": base64}`. Bytes under a JSON content type that are no JSON, or that not every JSON parser takes
/// (nested deeper than [`BODY_DEPTH_MAX`], half a surrogate pair), are shown as `{"$bin": base64}` as well.
///
/// # Errors
///
/// [`BodyError`] for a MessagePack body that is not exactly one valid value with a JSON form. An envelope
/// from this crate's encoder has no other; one with a broken kind or header gets the same errors.
pub fn from_msgpack(envelope: &[u8]) -> Result<String, BodyError> {
    let mut converter = Converter::new(envelope);
    let Item::Array(length @ 2..=3) = converter.reader.item()? else { return Err(BodyError::NotAnEnvelope) };
    converter.out.push('[');
    converter.value()?;
    converter.out.push(',');
    let content_type = converter.header()?;
    converter.out.push(',');
    let body = if length == 3 { converter.reader.item()? } else { Item::Nil };
    if !converter.reader.is_at_end() {
        return Err(BodyError::TrailingBytes);
    }
    let mut out = converter.out;
    if let Item::Bin(bytes) = body {
        push_body(&mut out, bytes, BodyFormat::of(content_type))?;
    } else if body == Item::Nil {
        out.push_str("null");
    } else {
        return Err(BodyError::NotAnEnvelope);
    }
    out.push(']');
    Ok(out)
}

/// Converts one MessagePack value, as in a body without a content type.
///
/// # Errors
///
/// [`BodyError`] for bytes that are not exactly one valid value with a JSON form.
pub fn value_from_msgpack(bytes: &[u8]) -> Result<String, BodyError> {
    let mut converter = Converter::new(bytes);
    converter.value()?;
    if !converter.reader.is_at_end() {
        return Err(BodyError::TrailingBytes);
    }
    Ok(converter.out)
}

fn push_body(out: &mut String, bytes: &[u8], format: BodyFormat) -> Result<(), BodyError> {
    match format {
        BodyFormat::MessagePack => out.push_str(&value_from_msgpack(bytes)?),
        BodyFormat::Json => match portable_json(bytes) {
            Some(text) => out.push_str(text),
            None => push_bin(out, bytes),
        },
        BodyFormat::Opaque => push_bin(out, bytes),
    }
    Ok(())
}

/// The JSON value in the bytes. One that its reader could not parse would cost that reader its connection,
/// not only this call.
fn portable_json(bytes: &[u8]) -> Option<&str> {
    let text = serde_json::from_slice::<&RawValue>(bytes).ok()?.get();
    scan::find_unportable(text, BODY_DEPTH_MAX).is_none().then_some(text)
}

/// Reads MessagePack and writes JSON.
struct Converter<'a> {
    reader: Reader<'a>,
    out: String,
}

impl<'a> Converter<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), out: String::with_capacity(bytes.len()) }
    }

    /// Writes the next value.
    fn value(&mut self) -> Result<(), BodyError> {
        let item = self.reader.item()?;
        self.item(item, 0, 0)
    }

    /// Writes the next value and tells its `content_type`, if it is a map that has one.
    fn header(&mut self) -> Result<Option<&'a str>, BodyError> {
        let item = self.reader.item()?;
        let Item::Map(count) = item else { return self.item(item, 0, 0).map(|()| None) };
        self.map(count, 1, 0)
    }

    /// Writes an item with all that belongs to it. `depth` arrays and maps are around it, and `quoting` keys
    /// that are no strings. Recursion is as deep as the limit and no deeper.
    fn item(&mut self, item: Item<'a>, depth: usize, quoting: usize) -> Result<(), BodyError> {
        match item {
            Item::Nil => self.out.push_str("null"),
            Item::Bool(value) => self.out.push_str(if value { "true" } else { "false" }),
            Item::Uint(value) => push_integer(&mut self.out, value, value),
            Item::Int(value) => push_integer(&mut self.out, value, value.unsigned_abs()),
            Item::Float(value) => push_float(&mut self.out, value),
            Item::Str(text) => push_string(&mut self.out, text),
            Item::Bin(bytes) => push_bin(&mut self.out, bytes),
            Item::Ext(kind, data) => push_ext(&mut self.out, kind, data),
            Item::Array(count) => self.array(count, depth + 1, quoting)?,
            Item::Map(count) => self.map(count, depth + 1, quoting).map(drop)?,
        }
        Ok(())
    }

    fn array(&mut self, count: u32, depth: usize, quoting: usize) -> Result<(), BodyError> {
        if depth > BODY_DEPTH_MAX {
            return Err(BodyError::TooDeep);
        }
        self.out.push('[');
        for index in 0..count {
            if index > 0 {
                self.out.push(',');
            }
            let item = self.reader.item()?;
            self.item(item, depth, quoting)?;
        }
        self.out.push(']');
        Ok(())
    }

    /// Writes the pairs of a map; tells the value of its key `content_type`, which only a header wants.
    fn map(&mut self, count: u32, depth: usize, quoting: usize) -> Result<Option<&'a str>, BodyError> {
        if depth > BODY_DEPTH_MAX {
            return Err(BodyError::TooDeep);
        }
        let mut content_type = None;
        self.out.push('{');
        for index in 0..count {
            if index > 0 {
                self.out.push(',');
            }
            let key = self.reader.item()?;
            self.key(key, depth, quoting)?;
            self.out.push(':');
            let value = self.reader.item()?;
            if let (Item::Str("content_type"), Item::Str(text)) = (key, value) {
                content_type = Some(text);
            }
            self.item(value, depth, quoting)?;
        }
        self.out.push('}');
        Ok(content_type)
    }

    fn key(&mut self, key: Item<'a>, depth: usize, quoting: usize) -> Result<(), BodyError> {
        if let Item::Str(text) = key {
            push_string(&mut self.out, text);
            return Ok(());
        }
        if quoting == KEY_QUOTING_MAX {
            return Err(BodyError::KeyTooDeep);
        }
        let start = self.out.len();
        self.item(key, depth, quoting + 1)?;
        let text = self.out.split_off(start);
        push_string(&mut self.out, &text);
        Ok(())
    }
}

fn push_integer(out: &mut String, value: impl std::fmt::Display, magnitude: u64) {
    if magnitude > BARE_INTEGER_MAX {
        push_formatted(out, format_args!("{{\"$int\":\"{value}\"}}"));
    } else {
        push_formatted(out, format_args!("{value}"));
    }
}

/// The debug form is the shortest that reads back the same, and always has a point or an exponent.
fn push_float(out: &mut String, value: f64) {
    if value.is_finite() {
        push_formatted(out, format_args!("{value:?}"));
    } else {
        out.push_str("null");
    }
}

fn push_bin(out: &mut String, bytes: &[u8]) {
    out.push_str("{\"$bin\":\"");
    BASE64.encode_string(bytes, out);
    out.push_str("\"}");
}

fn push_ext(out: &mut String, kind: i8, data: &[u8]) {
    if kind == timestamp::EXT_TYPE
        && let Some(text) = timestamp::to_rfc3339(data)
    {
        push_formatted(out, format_args!("{{\"$time\":\"{text}\"}}"));
        return;
    }
    push_formatted(out, format_args!("{{\"$ext\":[{kind},\""));
    BASE64.encode_string(data, out);
    out.push_str("\"]}");
}

fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|character| matches!(character, '"' | '\\' | '\0'..='\x1f')) {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control @ '\0'..='\x1f') => {
                push_formatted(out, format_args!("\\u{:04x}", u32::from(control)))
            }
            Some(quoted) => {
                out.push('\\');
                out.push(quoted);
            }
            None => {}
        }
        rest = characters.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

fn push_formatted(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail: there is no error to look at.
    out.write_fmt(arguments).unwrap_or_default();
}
