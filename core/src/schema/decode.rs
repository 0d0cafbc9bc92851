//! Bytes to a JSON value, as far as a value may be large.

use std::cell::Cell;
use std::fmt;

use agent_reach_protocol::json::{TIMESTAMP_EXT_TYPE, to_rfc3339};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How many keys that are no strings may stand inside each other: each quotes its text once more.
const KEY_QUOTING_MAX: usize = 3;
/// Bytes of one string that a pattern is held against.
pub(super) const PATTERN_TEXT_MAX: usize = 1024;

/// What a value may have at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Arrays and maps inside each other.
    pub(super) depth: usize,
    /// Values, itself and all inside it.
    pub(super) nodes: u32,
}

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undecodable {
    /// The bytes are not one value of their format.
    Malformed(&'static str),
    /// It has more than the limits allow.
    TooMuch,
}

/// What lies at one depth of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Level {
    /// Values.
    pub(super) nodes: u32,
    /// Bytes of strings.
    pub(super) text: u32,
    /// Bytes of strings, of each no more than [`PATTERN_TEXT_MAX`].
    pub(super) short_text: u32,
    /// Bytes of the keys of maps.
    pub(super) keys: u32,
}

/// A value and its measures, the outermost level first.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) value: Value,
    pub(super) levels: Vec<Level>,
}

/// Decodes one MessagePack value.
///
/// bin is base64 text, a timestamp its RFC 3339 text, any other ext `{"$ext": [type, base64]}`, a key that is
/// no string its JSON text, a float that JSON cannot say null. Of a repeated key the last counts.
///
/// # Errors
/// [`Undecodable`].
pub(super) fn messagepack(bytes: &[u8], limits: Limits) -> Result<Decoded, Undecodable> {
    let mut reader = Reader { rest: bytes, measure: Measure::new(limits) };
    let value = reader.value(0, 0)?;
    if !reader.rest.is_empty() {
        return Err(Undecodable::Malformed("bytes after the MessagePack value"));
    }
    Ok(Decoded { value, levels: reader.measure.levels })
}

/// Decodes JSON text.
///
/// # Errors
/// [`Undecodable`].
pub(super) fn json(bytes: &[u8], limits: Limits) -> Result<Decoded, Undecodable> {
    let mut measure = Measure::new(limits);
    let too_much = Cell::new(false);
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { measure: &mut measure, too_much: &too_much, depth: 0 };
    let value = seed.deserialize(&mut text).and_then(|value| text.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded { value, levels: measure.levels }),
        Err(_) if too_much.get() => Err(Undecodable::TooMuch),
        Err(_) => Err(Undecodable::Malformed("not one JSON value")),
    }
}

/// Counts what is decoded, and stops it.
struct Measure {
    limits: Limits,
    left: u32,
    levels: Vec<Level>,
}

impl Measure {
    fn new(limits: Limits) -> Self {
        Self { limits, left: limits.nodes, levels: Vec::new() }
    }

    fn level(&mut self, depth: usize) -> Result<&mut Level, Undecodable> {
        if depth > self.limits.depth {
            return Err(Undecodable::TooMuch);
        }
        if self.levels.len() <= depth {
            self.levels.resize(depth + 1, Level::default());
        }
        self.levels.get_mut(depth).ok_or(Undecodable::TooMuch)
    }

    /// One more value; `depth` arrays and maps are around it.
    fn node(&mut self, depth: usize) -> Result<(), Undecodable> {
        self.left = self.left.checked_sub(1).ok_or(Undecodable::TooMuch)?;
        self.level(depth)?.nodes += 1;
        Ok(())
    }

    fn text(&mut self, depth: usize, bytes: usize) -> Result<(), Undecodable> {
        let level = self.level(depth)?;
        level.text = level.text.saturating_add(as_u32(bytes));
        level.short_text = level.short_text.saturating_add(as_u32(bytes.min(PATTERN_TEXT_MAX)));
        Ok(())
    }

    fn key(&mut self, depth: usize, bytes: usize) -> Result<(), Undecodable> {
        let level = self.level(depth)?;
        level.keys = level.keys.saturating_add(as_u32(bytes));
        Ok(())
    }
}

fn as_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Reads MessagePack. A declared length is believed only as far as there are bytes.
struct Reader<'a> {
    rest: &'a [u8],
    measure: Measure,
}

impl<'a> Reader<'a> {
    /// The next value, with `depth` arrays and maps and `quoting` keys that are no strings around it.
    fn value(&mut self, depth: usize, quoting: usize) -> Result<Value, Undecodable> {
        self.measure.node(depth)?;
        let [marker] = self.chunk()?;
        Ok(match marker {
            0x00..=0x7f => Value::from(marker),
            0x80..=0x8f => self.map(u32::from(marker & 0x0f), depth, quoting)?,
            0x90..=0x9f => self.array(u32::from(marker & 0x0f), depth, quoting)?,
            0xa0..=0xbf => self.string(u32::from(marker & 0x1f), depth)?,
            0xc0 => Value::Null,
            0xc1 => return Err(Undecodable::Malformed("the reserved MessagePack byte 0xc1")),
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                let text = BASE64.encode(self.bytes(length)?);
                self.measure.text(depth, text.len())?;
                Value::String(text)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.ext(length, depth)?
            }
            0xca => Value::from(f64::from(f32::from_be_bytes(self.chunk()?))),
            0xcb => Value::from(f64::from_be_bytes(self.chunk()?)),
            0xcc => Value::from(u8::from_be_bytes(self.chunk()?)),
            0xcd => Value::from(u16::from_be_bytes(self.chunk()?)),
            0xce => Value::from(u32::from_be_bytes(self.chunk()?)),
            0xcf => Value::from(u64::from_be_bytes(self.chunk()?)),
            0xd0 => Value::from(i8::from_be_bytes(self.chunk()?)),
            0xd1 => Value::from(i16::from_be_bytes(self.chunk()?)),
            0xd2 => Value::from(i32::from_be_bytes(self.chunk()?)),
            0xd3 => Value::from(i64::from_be_bytes(self.chunk()?)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4), depth)?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                self.string(length, depth)?
            }
            0xdc | 0xdd => {
                let length = self.length(marker - 0xdb)?;
                self.array(length, depth, quoting)?
            }
            0xde | 0xdf => {
                let length = self.length(marker - 0xdd)?;
                self.map(length, depth, quoting)?
            }
            0xe0..=0xff => Value::from(i8::from_be_bytes([marker])),
        })
    }

    fn array(&mut self, length: u32, depth: usize, quoting: usize) -> Result<Value, Undecodable> {
        let mut items = Vec::with_capacity(self.likely(length));
        for _ in 0..length {
            items.push(self.value(depth + 1, quoting)?);
        }
        Ok(Value::Array(items))
    }

    fn map(&mut self, length: u32, depth: usize, quoting: usize) -> Result<Value, Undecodable> {
        let mut map = Map::new();
        for _ in 0..length {
            let key = self.key(depth, quoting)?;
            self.measure.key(depth, key.len())?;
            let value = self.value(depth + 1, quoting)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn key(&mut self, depth: usize, quoting: usize) -> Result<String, Undecodable> {
        if let Some(marker @ (0xa0..=0xbf | 0xd9..=0xdb)) = self.rest.first().copied() {
            let [_] = self.chunk()?;
            let length = if marker <= 0xbf { u32::from(marker & 0x1f) } else { self.length(marker - 0xd9)? };
            return self.utf8(length).map(str::to_owned);
        }
        if quoting == KEY_QUOTING_MAX {
            return Err(Undecodable::TooMuch);
        }
        let key = self.value(depth + 1, quoting + 1)?;
        serde_json::to_string(&key).map_err(|_| Undecodable::Malformed("a map key without JSON text"))
    }

    fn string(&mut self, length: u32, depth: usize) -> Result<Value, Undecodable> {
        let text = self.utf8(length)?;
        self.measure.text(depth, text.len())?;
        Ok(Value::String(text.to_owned()))
    }

    fn utf8(&mut self, length: u32) -> Result<&'a str, Undecodable> {
        let bytes = self.bytes(length)?;
        str::from_utf8(bytes).map_err(|_| Undecodable::Malformed("a MessagePack str that is not UTF-8"))
    }

    fn ext(&mut self, length: u32, depth: usize) -> Result<Value, Undecodable> {
        let kind = i8::from_be_bytes(self.chunk()?);
        let data = self.bytes(length)?;
        if kind == TIMESTAMP_EXT_TYPE
            && let Some(text) = to_rfc3339(data)
        {
            self.measure.text(depth, text.len())?;
            return Ok(Value::String(text));
        }
        // What stands for it in JSON is measured as it is there.
        self.measure.node(depth + 1)?;
        self.measure.node(depth + 2)?;
        self.measure.node(depth + 2)?;
        let text = BASE64.encode(data);
        self.measure.text(depth + 2, text.len())?;
        let parts = Value::Array(vec![Value::from(kind), Value::String(text)]);
        Ok(Value::Object(Map::from_iter([("$ext".to_owned(), parts)])))
    }

    /// A length of one, two or four bytes, by the place of its marker among the three.
    fn length(&mut self, width: u8) -> Result<u32, Undecodable> {
        Ok(match width {
            0 => u32::from(u8::from_be_bytes(self.chunk()?)),
            1 => u32::from(u16::from_be_bytes(self.chunk()?)),
            _ => u32::from_be_bytes(self.chunk()?),
        })
    }

    /// Room for items that a head promises, as far as there are bytes for them, and never much at once: arrays
    /// inside each other all promise before any keeps its word.
    fn likely(&self, length: u32) -> usize {
        usize::try_from(length).unwrap_or(usize::MAX).min(self.rest.len()).min(16)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Undecodable> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Undecodable> {
        let length = usize::try_from(length).map_err(|_| TRUNCATED)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(bytes)
    }
}

const TRUNCATED: Undecodable = Undecodable::Malformed("MessagePack that ends inside a value");

/// Reads one value of JSON text.
struct Seed<'m> {
    measure: &'m mut Measure,
    too_much: &'m Cell<bool>,
    depth: usize,
}

impl Seed<'_> {
    fn within<E: serde::de::Error>(&self, measured: Result<(), Undecodable>) -> Result<(), E> {
        measured.map_err(|_| {
            self.too_much.set(true);
            E::custom("too much")
        })
    }

    fn deeper(&mut self) -> Seed<'_> {
        Seed { measure: self.measure, too_much: self.too_much, depth: self.depth + 1 }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let counted = self.measure.node(self.depth);
        self.within::<D::Error>(counted)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        let counted = self.measure.text(self.depth, value.len());
        self.within::<E>(counted)?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.deeper())? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let counted = self.measure.key(self.depth, key.len());
            self.within::<A::Error>(counted)?;
            let value = entries.next_value_seed(self.deeper())?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
