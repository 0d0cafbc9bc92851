//! Reading: a cursor over borrowed bytes.

use crate::limits::{HEADER_DEPTH_MAX, HEADER_KEYS_MAX};
use smallvec::SmallVec;

/// Why bytes cannot be trusted as MessagePack of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes end inside a value.
    #[error("the message ends inside a value")]
    Truncated,
    /// 0xc1, which MessagePack never uses.
    #[error("byte 0xc1 is not MessagePack")]
    Reserved,
    /// Deeper than [`HEADER_DEPTH_MAX`].
    #[error("the header is nested deeper than 32")]
    TooDeep,
    /// A map with more keys than [`HEADER_KEYS_MAX`].
    #[error("a map of the header has more than 1024 keys")]
    TooManyKeys,
    /// A map key that is no text.
    #[error("a map key of the header is no string")]
    KeyNotString,
    /// The same key twice in one map.
    #[error("a map of the header has a repeated key")]
    RepeatedKey,
}

/// The bytes of one whole, checked MessagePack value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a>(pub &'a [u8]);

impl Raw<'_> {
    /// Whether every string inside is UTF-8.
    pub(crate) fn is_text_valid(self) -> bool {
        let mut cursor = Cursor::new(self.0);
        while !cursor.rest.is_empty() {
            match cursor.scalar() {
                Ok((Head::Str(_), bytes)) if std::str::from_utf8(bytes).is_err() => return false,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// One value of a header. Containers stay encoded: they are read only by who knows them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// nil
    Nil,
    /// true or false
    Bool(bool),
    /// Any integer that is not negative, whatever its width on the wire.
    UInt(u64),
    /// A negative integer.
    Int(i64),
    /// A float of either width.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// A str whose bytes are not UTF-8.
    NotUtf8,
    /// Bytes.
    Bin(&'a [u8]),
    /// An array, still encoded.
    Array(Raw<'a>),
    /// A map, still encoded.
    Map(Raw<'a>),
    /// An extension value, still encoded.
    Ext(Raw<'a>),
}

impl<'a> Value<'a> {
    /// What kind of value this is, in words for an error message.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::UInt(_) => "an integer",
            Self::Int(_) => "a negative integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::NotUtf8 => "a string that is not UTF-8",
            Self::Bin(_) => "bytes",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Ext(_) => "an extension",
        }
    }

    /// The values of an array. `None` when this is no array.
    pub fn items(&self) -> Option<impl Iterator<Item = Self> + use<'a>> {
        let Self::Array(raw) = self else { return None };
        let mut cursor = Cursor::new(raw.0);
        let left = match cursor.head() {
            Ok(Head::Array(n)) => n,
            _ => 0,
        };
        // The bytes were checked when the value was read, so an error cannot come; if it did, the
        // iteration ends.
        Some((0..left).map_while(move |_| cursor.value(HEADER_DEPTH_MAX).ok().map(|(value, _)| value)))
    }

    /// The entries of a map. `None` when this is no map.
    pub fn entries(&self) -> Option<Entries<'a>> {
        let Self::Map(raw) = self else { return None };
        Cursor::new(raw.0).map_entries(HEADER_DEPTH_MAX).ok()
    }
}

/// One key of a map with its value and the value's own bytes.
pub type Entry<'a> = (&'a str, Value<'a>, Raw<'a>);

/// The entries of one map, in the order of the wire. Sixteen fit without an allocation.
pub type Entries<'a> = SmallVec<[Entry<'a>; 16]>;

/// What the first byte (and its length bytes) of a value say.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    Nil,
    Bool(bool),
    UInt(u64),
    Int(i64),
    Float(f64),
    Str(usize),
    Bin(usize),
    Array(usize),
    Map(usize),
    /// Payload length, after the type byte.
    Ext(usize),
}

impl Head {
    /// What kind of value this begins, in words for an error message.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::UInt(_) => "an integer",
            Self::Int(_) => "a negative integer",
            Self::Float(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bin(_) => "bytes",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Ext(_) => "an extension",
        }
    }

    /// How many values stand inside, as the head promises.
    const fn children(self) -> u64 {
        match self {
            Self::Array(n) => n as u64,
            Self::Map(n) => 2 * n as u64,
            Self::Nil
            | Self::Bool(_)
            | Self::UInt(_)
            | Self::Int(_)
            | Self::Float(_)
            | Self::Str(_)
            | Self::Bin(_)
            | Self::Ext(_) => 0,
        }
    }
}

/// A position in borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ReadError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn len8(&mut self) -> Result<usize, ReadError> {
        self.bytes::<1>().map(|[b]| usize::from(b))
    }

    fn len16(&mut self) -> Result<usize, ReadError> {
        self.bytes().map(|b| usize::from(u16::from_be_bytes(b)))
    }

    fn len32(&mut self) -> Result<usize, ReadError> {
        // On a 32-bit machine usize still holds it.
        self.bytes().map(|b| u32::from_be_bytes(b) as usize)
    }

    /// Reads the head of the next value.
    #[inline]
    pub(crate) fn head(&mut self) -> Result<Head, ReadError> {
        let [first] = self.bytes()?;
        Ok(match first {
            0x00..=0x7f => Head::UInt(u64::from(first)),
            0x80..=0x8f => Head::Map(usize::from(first & 0x0f)),
            0x90..=0x9f => Head::Array(usize::from(first & 0x0f)),
            0xa0..=0xbf => Head::Str(usize::from(first & 0x1f)),
            0xc0 => Head::Nil,
            0xc1 => return Err(ReadError::Reserved),
            0xc2 => Head::Bool(false),
            0xc3 => Head::Bool(true),
            0xc4 => Head::Bin(self.len8()?),
            0xc5 => Head::Bin(self.len16()?),
            0xc6 => Head::Bin(self.len32()?),
            0xc7 => Head::Ext(self.len8()?),
            0xc8 => Head::Ext(self.len16()?),
            0xc9 => Head::Ext(self.len32()?),
            0xca => Head::Float(f64::from(f32::from_be_bytes(self.bytes()?))),
            0xcb => Head::Float(f64::from_be_bytes(self.bytes()?)),
            0xcc => Head::UInt(u64::from(u8::from_be_bytes(self.bytes()?))),
            0xcd => Head::UInt(u64::from(u16::from_be_bytes(self.bytes()?))),
            0xce => Head::UInt(u64::from(u32::from_be_bytes(self.bytes()?))),
            0xcf => Head::UInt(u64::from_be_bytes(self.bytes()?)),
            0xd0 => signed(i64::from(i8::from_be_bytes(self.bytes()?))),
            0xd1 => signed(i64::from(i16::from_be_bytes(self.bytes()?))),
            0xd2 => signed(i64::from(i32::from_be_bytes(self.bytes()?))),
            0xd3 => signed(i64::from_be_bytes(self.bytes()?)),
            0xd4..=0xd8 => Head::Ext(1 << (first - 0xd4)),
            0xd9 => Head::Str(self.len8()?),
            0xda => Head::Str(self.len16()?),
            0xdb => Head::Str(self.len32()?),
            0xdc => Head::Array(self.len16()?),
            0xdd => Head::Array(self.len32()?),
            0xde => Head::Map(self.len16()?),
            0xdf => Head::Map(self.len32()?),
            0xe0..=0xff => Head::Int(i64::from(i8::from_be_bytes([first]))),
        })
    }

    /// Reads the next head with the bytes that belong to it alone; the values of a container come after.
    fn scalar(&mut self) -> Result<(Head, &'a [u8]), ReadError> {
        let head = self.head()?;
        let bytes = match head {
            Head::Str(n) | Head::Bin(n) => self.take(n)?,
            Head::Ext(n) => {
                self.take(1)?;
                self.take(n)?
            }
            Head::Nil
            | Head::Bool(_)
            | Head::UInt(_)
            | Head::Int(_)
            | Head::Float(_)
            | Head::Array(_)
            | Head::Map(_) => &[],
        };
        Ok((head, bytes))
    }

    /// Passes over the next value, whatever it holds and however deep it is: without recursion.
    pub(crate) fn skip(&mut self) -> Result<(), ReadError> {
        let mut left = 1_u64;
        while left > 0 {
            let (head, _) = self.scalar()?;
            // Each value has at least a byte, so the sum of all promises stays far below 2^64.
            left = (left - 1).saturating_add(head.children());
        }
        Ok(())
    }

    /// Reads the next value and its bytes, checking everything inside it. `depth` is how many more levels
    /// of containers may open.
    pub(crate) fn value(&mut self, depth: usize) -> Result<(Value<'a>, Raw<'a>), ReadError> {
        let start = self.rest;
        let head = self.head()?;
        let value = match head {
            Head::Nil => Value::Nil,
            Head::Bool(b) => Value::Bool(b),
            Head::UInt(n) => Value::UInt(n),
            Head::Int(n) => Value::Int(n),
            Head::Float(x) => Value::Float(x),
            Head::Str(n) => std::str::from_utf8(self.take(n)?).map_or(Value::NotUtf8, Value::Str),
            Head::Bin(n) => Value::Bin(self.take(n)?),
            Head::Array(n) => {
                let depth = depth.checked_sub(1).ok_or(ReadError::TooDeep)?;
                for _ in 0..n {
                    self.value(depth)?;
                }
                Value::Array(self.since(start))
            }
            Head::Map(_) => {
                *self = Self::new(start);
                self.map_entries_into(depth, &mut Entries::new())?;
                Value::Map(self.since(start))
            }
            Head::Ext(n) => {
                self.take(1)?;
                self.take(n)?;
                Value::Ext(self.since(start))
            }
        };
        Ok((value, self.since(start)))
    }

    fn key(&mut self) -> Result<&'a str, ReadError> {
        let Head::Str(len) = self.head()? else { return Err(ReadError::KeyNotString) };
        let key = self.take(len)?;
        match usual_key(key) {
            Some(key) => Ok(key),
            None => std::str::from_utf8(key).map_err(|_| ReadError::KeyNotString),
        }
    }

    /// Reads a map with its entries. The map itself takes one level of `depth`.
    pub(crate) fn map_entries(&mut self, depth: usize) -> Result<Entries<'a>, ReadError> {
        let mut entries = Entries::new();
        self.map_entries_into(depth, &mut entries)?;
        Ok(entries)
    }

    /// As [`Cursor::map_entries`], into a list that is empty.
    pub(crate) fn map_entries_into(
        &mut self,
        depth: usize,
        entries: &mut Entries<'a>,
    ) -> Result<(), ReadError> {
        let Head::Map(n) = self.head()? else { return Err(ReadError::KeyNotString) };
        let depth = depth.checked_sub(1).ok_or(ReadError::TooDeep)?;
        if n > HEADER_KEYS_MAX {
            return Err(ReadError::TooManyKeys);
        }
        for _ in 0..n {
            let key = self.key()?;
            let (value, raw) = self.value(depth)?;
            entries.push((key, value, raw));
        }
        if has_repeated_key(entries) { Err(ReadError::RepeatedKey) } else { Ok(()) }
    }

    fn since(&self, start: &'a [u8]) -> Raw<'a> {
        let used = start.len() - self.rest.len();
        Raw(start.get(..used).unwrap_or_default())
    }
}

const fn signed(n: i64) -> Head {
    if n < 0 { Head::Int(n) } else { Head::UInt(n.unsigned_abs()) }
}

/// The keys of calls and heartbeats: to compare a few bytes is cheaper than to prove that they are UTF-8, which
/// was a third of the price of reading a header. A key that is not here costs that, and nothing else.
fn usual_key(key: &[u8]) -> Option<&'static str> {
    Some(match key {
        b"id" => "id",
        b"cpu" => "cpu",
        b"load" => "load",
        b"health" => "health",
        b"memory" => "memory",
        b"queued" => "queued",
        b"status" => "status",
        b"stream" => "stream",
        b"keep_ms" => "keep_ms",
        b"in_flight" => "in_flight",
        b"capability" => "capability",
        b"request_id" => "request_id",
        b"content_type" => "content_type",
        b"execution_ms" => "execution_ms",
        _ => return None,
    })
}

/// Pairwise for the few keys of an honest header; sorted for many, so that a header made of keys alone
/// costs no quadratic time.
fn has_repeated_key(entries: &[Entry<'_>]) -> bool {
    if entries.len() <= 24 {
        return entries
            .iter()
            .enumerate()
            .any(|(i, (key, ..))| entries.iter().take(i).any(|(earlier, ..)| earlier == key));
    }
    let mut keys: Vec<&str> = entries.iter().map(|(key, ..)| *key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// Reads one value that fills `bytes` entirely, by the rules of a header (depth, string keys, no repeats).
///
/// # Errors
/// [`ReadError`] of the first broken rule; trailing bytes read as [`ReadError::Truncated`].
pub fn read_one(bytes: &[u8]) -> Result<Value<'_>, ReadError> {
    let (value, rest) = read_value(bytes)?;
    if rest.is_empty() { Ok(value) } else { Err(ReadError::Truncated) }
}

/// Reads the first value of `bytes` and returns it with what follows it.
///
/// # Errors
/// [`ReadError`] of the first broken rule.
pub fn read_value(bytes: &[u8]) -> Result<(Value<'_>, &[u8]), ReadError> {
    let mut cursor = Cursor::new(bytes);
    let (value, _) = cursor.value(HEADER_DEPTH_MAX)?;
    Ok((value, cursor.rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_count_by_value_in_any_width() {
        for bytes in [&[7][..], &[0xcc, 7], &[0xcd, 0, 7], &[0xd0, 7], &[0xd3, 0, 0, 0, 0, 0, 0, 0, 7]] {
            assert_eq!(read_one(bytes), Ok(Value::UInt(7)));
        }
        assert_eq!(read_one(&[0xff]), Ok(Value::Int(-1)));
    }

    #[test]
    fn a_length_that_promises_what_never_comes_is_refused() {
        for first in [0xdd, 0xdb, 0xc6, 0xc9] {
            assert_eq!(read_one(&[first, 0xff, 0xff, 0xff, 0xff, 1]), Err(ReadError::Truncated));
        }
        assert_eq!(read_one(&[0xdf, 0xff, 0xff, 0xff, 0xff]), Err(ReadError::TooManyKeys));
    }

    #[test]
    fn nesting_is_allowed_to_the_limit_and_refused_one_over() {
        let mut bytes = vec![0x91; HEADER_DEPTH_MAX];
        bytes.push(0xc0);
        assert!(read_one(&bytes).is_ok());
        bytes.insert(0, 0x91);
        assert_eq!(read_one(&bytes), Err(ReadError::TooDeep));
        assert_eq!(read_one(&vec![0x91; 10_000]), Err(ReadError::TooDeep));
    }

    #[test]
    fn a_usual_key_reads_as_itself() {
        let keys = ["id", "cpu", "load", "health", "memory", "queued", "status", "stream", "keep_ms"];
        for key in
            keys.into_iter().chain(["in_flight", "capability", "request_id", "content_type", "execution_ms"])
        {
            assert_eq!(usual_key(key.as_bytes()), Some(key));
            assert_eq!(usual_key(&key.as_bytes()[1..]), None);
        }
    }

    #[test]
    fn a_repeated_key_is_found_among_few_and_among_many() {
        assert_eq!(read_one(&[0x82, 0xa1, b'a', 1, 0xa1, b'a', 2]), Err(ReadError::RepeatedKey));
        let mut bytes = vec![0xde, 0, 101];
        for i in 0..101_u8 {
            bytes.extend([0xa1, if i == 100 { 3 } else { i }, 0xc0]);
        }
        assert_eq!(read_one(&bytes), Err(ReadError::RepeatedKey));
    }

    #[test]
    fn a_repeated_key_inside_a_nested_map_is_found() {
        let bytes = [0x81, 0xa1, b'm', 0x82, 0xa1, b'a', 1, 0xa1, b'a', 2];
        assert_eq!(read_one(&bytes), Err(ReadError::RepeatedKey));
    }

    #[test]
    fn keys_must_be_text() {
        for bytes in [&[0x81, 1, 2][..], &[0x81, 0xc4, 1, b'a', 2], &[0x81, 0x91, 1, 2]] {
            assert_eq!(read_one(bytes), Err(ReadError::KeyNotString));
        }
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert_eq!(read_one(&[0xc0, 0xc0]), Err(ReadError::Truncated));
    }
}
