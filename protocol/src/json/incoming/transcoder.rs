//! One pass over valid JSON text that writes MessagePack.

use std::borrow::Cow;
use std::slice;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::conversion::{Attempt, convert, write_decimal};
use crate::json::msgpack;
use crate::json::scan::{LONE_SURROGATE, Scanner, unescape};
use crate::json::{BODY_DEPTH_MAX, Fault, HEADER_DEPTH_MAX};

/// Longest pointer, in bytes, in a fault's message.
const POINTER_MAX: usize = 256;
/// Longest name of a field, in bytes, in a fault.
const FIELD_MAX: usize = 128;

/// Which element of the envelope is being written. They differ in what a value without a MessagePack form
/// does: in a body it ends the work, in kind and header it is noted and something harmless stands in for it,
/// since these two are still needed to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Area {
    Kind,
    Header,
    Body,
}

/// Why no value came of the text.
#[derive(Debug)]
pub(super) enum Stop {
    /// Something in a body has no MessagePack form.
    Fault(Fault),
    /// Nested deeper than the area allows.
    TooDeep,
}

/// A step from a value to one inside it.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Index(u32),
    /// The key's token.
    Key(&'a str),
}

/// Reads JSON text that is known to be valid.
#[derive(Debug)]
pub(super) struct Transcoder<'a> {
    /// The place in the text.
    pub(super) scanner: Scanner<'a>,
    /// The first fault of kind and header.
    pub(super) fault: Option<Fault>,
    /// The header's `content_type`, if it is a string.
    pub(super) content_type: Option<Cow<'a, str>>,
    /// Children of the arrays and objects that are still to come, in order.
    counts: slice::Iter<'a, u32>,
    /// Where the value at hand is.
    path: Vec<Step<'a>>,
    /// The keys so far of all objects that are open in a body.
    keys: Vec<Cow<'a, str>>,
    area: Area,
}

impl<'a> Transcoder<'a> {
    /// At the start of the text, with the counts of its arrays and objects.
    pub(super) fn new(text: &'a str, counts: &'a [u32]) -> Self {
        Self {
            scanner: Scanner::new(text),
            fault: None,
            content_type: None,
            counts: counts.iter(),
            path: Vec::new(),
            keys: Vec::new(),
            area: Area::Body,
        }
    }

    /// Takes the start of an array: its length, or None if something else is there.
    pub(super) fn open_array(&mut self) -> Option<u32> {
        if self.scanner.peek() != b'[' {
            return None;
        }
        self.scanner.structure();
        self.counts.next().copied()
    }

    /// Takes the comma or bracket behind an element.
    pub(super) fn separator(&mut self) {
        self.scanner.structure();
    }

    /// Writes the next value.
    pub(super) fn value(&mut self, out: &mut Vec<u8>, area: Area) -> Result<(), Stop> {
        self.area = area;
        self.any(out, 0)
    }

    /// Writes the next value as a header: an object is a map, whatever its keys, and tells the content type.
    pub(super) fn header(&mut self, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.area = Area::Header;
        if self.scanner.peek() != b'{' {
            return self.any(out, 0);
        }
        self.scanner.structure();
        let count = self.counts.next().copied().unwrap_or(0);
        self.pairs(out, count, 1)
    }

    /// Takes the next value if it is `{"$bin": base64}`: its bytes.
    pub(super) fn bytes(&mut self) -> Option<Vec<u8>> {
        if self.scanner.peek() != b'{' || self.counts.next() != Some(&1) {
            return None;
        }
        self.scanner.structure();
        if unescape(self.scanner.string())? != "$bin" {
            return None;
        }
        self.scanner.structure();
        if self.scanner.peek() != b'"' {
            return None;
        }
        BASE64.decode(unescape(self.scanner.string())?.as_bytes()).ok()
    }

    /// Recursion is as deep as the area's limit and no deeper.
    fn any(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        match self.scanner.peek() {
            b'{' => self.object(out, depth + 1)?,
            b'[' => self.array(out, depth + 1)?,
            b'"' => match unescape(self.scanner.string()) {
                Some(text) => msgpack::write_str(out, &text),
                None => self.stand_in_nil(out, LONE_SURROGATE)?,
            },
            _ => match self.scanner.word() {
                "null" => msgpack::write_nil(out),
                "true" => msgpack::write_bool(out, true),
                "false" => msgpack::write_bool(out, false),
                number => self.number(out, number)?,
            },
        }
        Ok(())
    }

    fn number(&mut self, out: &mut Vec<u8>, token: &str) -> Result<(), Stop> {
        if !token.contains(['.', 'e', 'E']) {
            if write_decimal(out, token) {
                return Ok(());
            }
            return self.stand_in_nil(out, "an integer outside -2^63 to 2^64-1");
        }
        match token.parse::<f64>() {
            Ok(value) if value.is_finite() => {
                msgpack::write_f64(out, value);
                Ok(())
            }
            Ok(_) | Err(_) => self.stand_in_nil(out, "a number beyond the range of a 64-bit float"),
        }
    }

    fn array(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        self.check_depth(depth)?;
        let count = self.open_array().unwrap_or(0);
        msgpack::write_array(out, count);
        for index in 0..count {
            self.path.push(Step::Index(index));
            self.any(out, depth)?;
            self.path.pop();
            self.separator();
        }
        if count == 0 {
            self.separator();
        }
        Ok(())
    }

    fn object(&mut self, out: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        self.scanner.structure();
        let count = self.counts.next().copied().unwrap_or(0);
        if count == 1 {
            match convert(out, &mut self.scanner, &mut self.counts) {
                Attempt::Done => return Ok(()),
                Attempt::Ordinary => {}
                Attempt::Broken(reason) => self.fail(reason)?,
            }
        }
        // Only now: a conversion stands for a scalar, which may be as deep as it likes.
        self.check_depth(depth)?;
        self.pairs(out, count, depth)
    }

    fn pairs(&mut self, out: &mut Vec<u8>, count: u32, depth: usize) -> Result<(), Stop> {
        msgpack::write_map(out, count);
        let first_key = self.keys.len();
        for _ in 0..count {
            self.scanner.peek();
            let token = self.scanner.string();
            self.path.push(Step::Key(token));
            let key = self.key(token)?;
            msgpack::write_str(out, &key);
            self.scanner.structure();
            if self.area == Area::Body {
                self.keys.push(key);
            } else if depth == 1 && key == "content_type" {
                self.content_type = self.string_ahead();
            }
            self.any(out, depth)?;
            self.path.pop();
            self.separator();
        }
        if count == 0 {
            self.separator();
        }
        self.check_keys(first_key)
    }

    /// The text of a key. In a header a replacement character stands in for one that is no text.
    fn key(&mut self, token: &'a str) -> Result<Cow<'a, str>, Stop> {
        if let Some(key) = unescape(token) {
            return Ok(key);
        }
        self.fail(LONE_SURROGATE)?;
        Ok(Cow::Borrowed("\u{fffd}"))
    }

    /// The next value if it is a string, without taking it.
    fn string_ahead(&self) -> Option<Cow<'a, str>> {
        let mut ahead = self.scanner;
        if ahead.peek() == b'"' { unescape(ahead.string()) } else { None }
    }

    /// Sorted, not hashed: peers choose the keys.
    fn check_keys(&mut self, first: usize) -> Result<(), Stop> {
        let keys = self.keys.get_mut(first..).unwrap_or_default();
        keys.sort_unstable();
        let repeated = keys.windows(2).any(|pair| matches!(pair, [one, other] if one == other));
        self.keys.truncate(first);
        if repeated { self.fail("an object with a repeated key") } else { Ok(()) }
    }

    fn check_depth(&self, depth: usize) -> Result<(), Stop> {
        let limit = if self.area == Area::Body { BODY_DEPTH_MAX } else { HEADER_DEPTH_MAX };
        if depth > limit { Err(Stop::TooDeep) } else { Ok(()) }
    }

    fn stand_in_nil(&mut self, out: &mut Vec<u8>, reason: &str) -> Result<(), Stop> {
        self.fail(reason)?;
        msgpack::write_nil(out);
        Ok(())
    }

    /// Ends a body; in kind and header notes the first fault and goes on.
    fn fail(&mut self, reason: &str) -> Result<(), Stop> {
        if self.area != Area::Body && self.fault.is_some() {
            return Ok(());
        }
        let (field, path) = match (self.area, self.path.split_first()) {
            (Area::Body, _) => ("body".to_owned(), self.path.as_slice()),
            (Area::Kind, _) => ("kind".to_owned(), self.path.as_slice()),
            (Area::Header, Some((Step::Key(token), inside))) => (shown(token, FIELD_MAX), inside),
            (Area::Header, _) => ("header".to_owned(), self.path.as_slice()),
        };
        let pointer = pointer(path);
        let message = if pointer.is_empty() { reason.to_owned() } else { format!("{pointer}: {reason}") };
        let fault = Fault { field, message };
        if self.area == Area::Body {
            return Err(Stop::Fault(fault));
        }
        self.fault = Some(fault);
        Ok(())
    }
}

/// The JSON pointer (RFC 6901) of a path, cut to its bound.
fn pointer(path: &[Step<'_>]) -> String {
    let mut pointer = String::new();
    for step in path {
        if pointer.len() >= POINTER_MAX {
            break;
        }
        pointer.push('/');
        match step {
            Step::Index(index) => pointer.push_str(&index.to_string()),
            Step::Key(token) => {
                let key = shown(token, POINTER_MAX);
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
        }
    }
    cut(&pointer, POINTER_MAX)
}

/// The text of a key's token, or its escapes where it has none, cut to its bound.
fn shown(token: &str, max: usize) -> String {
    cut(&unescape(token).unwrap_or_else(|| Cow::Borrowed(token.trim_matches('"'))), max)
}

/// At most `max` bytes, the last three an ellipsis if something is missing.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let longest = max.saturating_sub('…'.len_utf8());
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default())
}
