//! Writing: always the shortest form.

/// Appends MessagePack to a buffer.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    out: Vec<u8>,
}

impl Writer {
    /// A writer with room for `capacity` bytes before it grows.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { out: Vec::with_capacity(capacity) }
    }

    /// A writer that begins in the memory of `spare`, of which nothing is kept.
    pub fn over(mut spare: Vec<u8>) -> Self {
        spare.clear();
        Self { out: spare }
    }

    /// Bytes that were written.
    pub const fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// nil.
    pub fn nil(&mut self) {
        self.out.push(0xc0);
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) {
        self.out.push(if value { 0xc3 } else { 0xc2 });
    }

    /// An integer that is not negative.
    pub fn uint(&mut self, value: u64) {
        let be = value.to_be_bytes();
        let [.., b3, b2, b1, b0] = be;
        match value {
            0..=0x7f => self.out.push(b0),
            0x80..=0xff => self.out.extend_from_slice(&[0xcc, b0]),
            0x100..=0xffff => self.out.extend_from_slice(&[0xcd, b1, b0]),
            0x1_0000..=0xffff_ffff => self.out.extend_from_slice(&[0xce, b3, b2, b1, b0]),
            _ => {
                self.out.push(0xcf);
                self.out.extend_from_slice(&be);
            }
        }
    }

    /// Any integer.
    pub fn int(&mut self, value: i64) {
        let be = value.to_be_bytes();
        let [.., b3, b2, b1, b0] = be;
        match value {
            0.. => self.uint(value.unsigned_abs()),
            -0x20..=-1 => self.out.push(b0),
            -0x80..=-0x21 => self.out.extend_from_slice(&[0xd0, b0]),
            -0x8000..=-0x81 => self.out.extend_from_slice(&[0xd1, b1, b0]),
            -0x8000_0000..=-0x8001 => self.out.extend_from_slice(&[0xd2, b3, b2, b1, b0]),
            _ => {
                self.out.push(0xd3);
                self.out.extend_from_slice(&be);
            }
        }
    }

    /// A float, as 64 bits.
    pub fn float(&mut self, value: f64) {
        self.out.push(0xcb);
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    /// A key of a header, known when the code is made and shorter than 32 bytes.
    #[inline]
    pub(crate) fn key(&mut self, key: &'static str) {
        match u8::try_from(key.len()) {
            Ok(short @ 0..=31) => {
                self.out.reserve(key.len() + 1);
                self.out.push(0xa0 | short);
                self.out.extend_from_slice(key.as_bytes());
            }
            _ => self.str(key),
        }
    }

    /// Text.
    pub fn str(&mut self, value: &str) {
        let n = value.len();
        match u8::try_from(n) {
            Ok(short @ 0..=31) => self.out.push(0xa0 | short),
            Ok(short) => self.out.extend_from_slice(&[0xd9, short]),
            Err(_) => self.long_len(n, 0xda, 0xdb),
        }
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Bytes.
    pub fn bin(&mut self, value: &[u8]) {
        let n = value.len();
        match u8::try_from(n) {
            Ok(short) => self.out.extend_from_slice(&[0xc4, short]),
            Err(_) => self.long_len(n, 0xc5, 0xc6),
        }
        self.out.extend_from_slice(value);
    }

    /// How many bytes [`Writer::bin`] writes for a value of `len` bytes.
    pub(crate) const fn bin_len(len: usize) -> usize {
        let head = match len {
            0..=0xff => 2,
            0x100..=0xffff => 3,
            _ => 5,
        };
        len.saturating_add(head)
    }

    /// The head of an array; `len` values follow.
    pub fn array(&mut self, len: usize) {
        match u8::try_from(len) {
            Ok(short @ 0..=15) => self.out.push(0x90 | short),
            _ => self.long_len(len, 0xdc, 0xdd),
        }
    }

    /// The head of a map; `len` keys, each with its value, follow.
    pub fn map(&mut self, len: usize) {
        match u8::try_from(len) {
            Ok(short @ 0..=15) => self.out.push(0x80 | short),
            _ => self.long_len(len, 0xde, 0xdf),
        }
    }

    /// A value that is already MessagePack.
    pub fn raw(&mut self, value: &[u8]) {
        self.out.extend_from_slice(value);
    }

    fn long_len(&mut self, n: usize, first16: u8, first32: u8) {
        if let Ok(n) = u16::try_from(n) {
            self.out.push(first16);
            self.out.extend_from_slice(&n.to_be_bytes());
        } else {
            // Messages are bounded far below 4 GiB, so saturation cannot happen to anything that is sent.
            let n = u32::try_from(n).unwrap_or(u32::MAX);
            self.out.push(first32);
            self.out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Value, read_one};

    #[test]
    fn integers_take_the_shortest_form_and_read_back() {
        for (value, len) in
            [(0, 1), (127, 1), (128, 2), (255, 2), (256, 3), (65_535, 3), (65_536, 5), (u64::MAX, 9)]
        {
            let mut w = Writer::default();
            w.uint(value);
            let bytes = w.into_bytes();
            assert_eq!((bytes.len(), read_one(&bytes)), (len, Ok(Value::UInt(value))));
        }
        for (value, len) in
            [(-1, 1), (-32, 1), (-33, 2), (-128, 2), (-129, 3), (-32_768, 3), (-32_769, 5), (i64::MIN, 9)]
        {
            let mut w = Writer::default();
            w.int(value);
            let bytes = w.into_bytes();
            assert_eq!((bytes.len(), read_one(&bytes)), (len, Ok(Value::Int(value))));
        }
    }

    #[test]
    fn texts_and_bytes_of_every_length_class_read_back() {
        for n in [0, 31, 32, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(n);
            let mut w = Writer::default();
            w.str(&text);
            assert_eq!(read_one(&w.into_bytes()), Ok(Value::Str(&text)));
            let mut w = Writer::default();
            w.bin(text.as_bytes());
            let bytes = w.into_bytes();
            assert_eq!(bytes.len(), Writer::bin_len(n));
            assert_eq!(read_one(&bytes), Ok(Value::Bin(text.as_bytes())));
        }
    }
}
