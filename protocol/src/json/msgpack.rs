//! The few MessagePack forms that the conversion writes and reads.

use super::BodyError;

/// nil.
pub(super) fn write_nil(out: &mut Vec<u8>) {
    out.push(0xc0);
}

/// true or false.
pub(super) fn write_bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { 0xc3 } else { 0xc2 });
}

/// A non-negative integer, in its shortest form.
pub(super) fn write_uint(out: &mut Vec<u8>, value: u64) {
    if let Ok(value) = u8::try_from(value) {
        if value > 0x7f {
            out.push(0xcc);
        }
        out.push(value);
    } else if let Ok(value) = u16::try_from(value) {
        write_marked(out, 0xcd, &value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        write_marked(out, 0xce, &value.to_be_bytes());
    } else {
        write_marked(out, 0xcf, &value.to_be_bytes());
    }
}

/// An integer, in its shortest form.
pub(super) fn write_int(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        write_uint(out, value);
    } else if let Ok(value) = i8::try_from(value) {
        if value < -32 {
            out.push(0xd0);
        }
        out.extend(value.to_be_bytes());
    } else if let Ok(value) = i16::try_from(value) {
        write_marked(out, 0xd1, &value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        write_marked(out, 0xd2, &value.to_be_bytes());
    } else {
        write_marked(out, 0xd3, &value.to_be_bytes());
    }
}

/// A float of 64 bits.
pub(super) fn write_f64(out: &mut Vec<u8>, value: f64) {
    write_marked(out, 0xcb, &value.to_be_bytes());
}

/// A string.
pub(super) fn write_str(out: &mut Vec<u8>, value: &str) {
    let length = length_of(value.as_bytes());
    match u8::try_from(length) {
        Ok(short) if short < 32 => out.push(0xa0 | short),
        _ => write_length(out, Some(0xd9), [0xda, 0xdb], length),
    }
    out.extend_from_slice(value.as_bytes());
}

/// Bytes.
pub(super) fn write_bin(out: &mut Vec<u8>, value: &[u8]) {
    write_length(out, Some(0xc4), [0xc5, 0xc6], length_of(value));
    out.extend_from_slice(value);
}

/// An extension of the given type.
pub(super) fn write_ext(out: &mut Vec<u8>, kind: i8, data: &[u8]) {
    match data.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        _ => write_length(out, Some(0xc7), [0xc8, 0xc9], length_of(data)),
    }
    out.extend(kind.to_be_bytes());
    out.extend_from_slice(data);
}

/// The start of an array.
pub(super) fn write_array(out: &mut Vec<u8>, length: u32) {
    match u8::try_from(length) {
        Ok(short) if short < 16 => out.push(0x90 | short),
        _ => write_length(out, None, [0xdc, 0xdd], length),
    }
}

/// The start of a map, with the number of its pairs.
pub(super) fn write_map(out: &mut Vec<u8>, length: u32) {
    match u8::try_from(length) {
        Ok(short) if short < 16 => out.push(0x80 | short),
        _ => write_length(out, None, [0xde, 0xdf], length),
    }
}

/// One item: a scalar whole, or the start of an array or a map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Item<'a> {
    /// nil.
    Nil,
    /// true or false.
    Bool(bool),
    /// An integer that was written unsigned.
    Uint(u64),
    /// An integer that was written signed.
    Int(i64),
    /// A float; one of 32 bits is widened.
    Float(f64),
    /// A string.
    Str(&'a str),
    /// Bytes.
    Bin(&'a [u8]),
    /// So many items follow.
    Array(u32),
    /// So many pairs of items follow.
    Map(u32),
    /// An extension: type and data.
    Ext(i8, &'a [u8]),
}

/// Reads items from bytes. A declared length is only believed as far as there are bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the start of the bytes.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// True when all bytes have been read.
    pub(super) fn is_at_end(self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next item.
    pub(super) fn item(&mut self) -> Result<Item<'a>, BodyError> {
        let [marker] = self.chunk()?;
        Ok(match marker {
            0x00..=0x7f => Item::Uint(u64::from(marker)),
            0x80..=0x8f => Item::Map(u32::from(marker & 0x0f)),
            0x90..=0x9f => Item::Array(u32::from(marker & 0x0f)),
            0xa0..=0xbf => self.text(u32::from(marker & 0x1f))?,
            0xc0 => Item::Nil,
            0xc1 => return Err(BodyError::ReservedByte),
            0xc2 => Item::Bool(false),
            0xc3 => Item::Bool(true),
            0xc4..=0xc6 => {
                let length = self.length(marker - 0xc4)?;
                Item::Bin(self.bytes(length)?)
            }
            0xc7..=0xc9 => {
                let length = self.length(marker - 0xc7)?;
                self.ext(length)?
            }
            0xca => Item::Float(f64::from(f32::from_be_bytes(self.chunk()?))),
            0xcb => Item::Float(f64::from_be_bytes(self.chunk()?)),
            0xcc => Item::Uint(u64::from(u8::from_be_bytes(self.chunk()?))),
            0xcd => Item::Uint(u64::from(u16::from_be_bytes(self.chunk()?))),
            0xce => Item::Uint(u64::from(u32::from_be_bytes(self.chunk()?))),
            0xcf => Item::Uint(u64::from_be_bytes(self.chunk()?)),
            0xd0 => Item::Int(i64::from(i8::from_be_bytes(self.chunk()?))),
            0xd1 => Item::Int(i64::from(i16::from_be_bytes(self.chunk()?))),
            0xd2 => Item::Int(i64::from(i32::from_be_bytes(self.chunk()?))),
            0xd3 => Item::Int(i64::from_be_bytes(self.chunk()?)),
            0xd4..=0xd8 => self.ext(1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = self.length(marker - 0xd9)?;
                self.text(length)?
            }
            0xdc | 0xdd => Item::Array(self.length(marker - 0xdb)?),
            0xde | 0xdf => Item::Map(self.length(marker - 0xdd)?),
            0xe0..=0xff => Item::Int(i64::from(i8::from_be_bytes([marker]))),
        })
    }

    fn text(&mut self, length: u32) -> Result<Item<'a>, BodyError> {
        let bytes = self.bytes(length)?;
        std::str::from_utf8(bytes).map(Item::Str).map_err(|_| BodyError::InvalidUtf8)
    }

    fn ext(&mut self, length: u32) -> Result<Item<'a>, BodyError> {
        let kind = i8::from_be_bytes(self.chunk()?);
        Ok(Item::Ext(kind, self.bytes(length)?))
    }

    /// A length of one, two or four bytes, by the place of its marker among the three.
    fn length(&mut self, width: u8) -> Result<u32, BodyError> {
        Ok(match width {
            0 => u32::from(u8::from_be_bytes(self.chunk()?)),
            1 => u32::from(u16::from_be_bytes(self.chunk()?)),
            _ => u32::from_be_bytes(self.chunk()?),
        })
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], BodyError> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(BodyError::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn bytes(&mut self, length: u32) -> Result<&'a [u8], BodyError> {
        let length = usize::try_from(length).map_err(|_| BodyError::Truncated)?;
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(BodyError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Writes a length with the marker for the shortest width that fits: one byte (not all types have that), two
/// or four.
fn write_length(out: &mut Vec<u8>, one: Option<u8>, [two, four]: [u8; 2], length: u32) {
    if let (Some(marker), Ok(length)) = (one, u8::try_from(length)) {
        write_marked(out, marker, &[length]);
    } else if let Ok(length) = u16::try_from(length) {
        write_marked(out, two, &length.to_be_bytes());
    } else {
        write_marked(out, four, &length.to_be_bytes());
    }
}

fn write_marked(out: &mut Vec<u8>, marker: u8, bytes: &[u8]) {
    out.push(marker);
    out.extend_from_slice(bytes);
}

/// The callers refuse text of 4 GiB and more, so the length always fits.
fn length_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
