//! Short texts of numbers that stand in nearly every message, made without the machinery of formatting.

use std::fmt;
use std::ops::Deref;

use serde::{Serialize, Serializer};
use smallvec::SmallVec;

/// Digits of an epoch.
const EPOCH_LEN: usize = 8;
/// Longest [`CallId`]: the epoch, a dash, sixteen digits.
const CALL_ID_MAX: usize = EPOCH_LEN + 1 + 16;

/// The hub-wide id of a call: the hub's epoch and the call's number, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    number: u64,
    epoch: u32,
    len: u8,
    text: [u8; CALL_ID_MAX],
}

impl CallId {
    /// The id of a call. `epoch`: the hub's, one for each of its lives.
    pub fn new(epoch: u32, number: u64) -> Self {
        let mut text = [b'-'; CALL_ID_MAX];
        let len = (16 - number.leading_zeros() / 4).max(1);
        // Its first digit comes first; what stands behind its last is not of the id.
        let [high, low] = halves(number << (64 - 4 * len));
        if let Some((head, rest)) = text.split_first_chunk_mut()
            && let Some((_, rest)) = rest.split_first_chunk_mut::<1>()
            && let Some((first, rest)) = rest.split_first_chunk_mut()
            && let Some(second) = rest.first_chunk_mut()
        {
            (*head, *first, *second) = (eight(epoch), eight(high), eight(low));
        }
        let len = EPOCH_LEN + 1 + usize::try_from(len).unwrap_or(16);
        Self { number, epoch, len: u8::try_from(len).unwrap_or(u8::MAX), text }
    }

    /// Of the hub's life that it is of.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Its place among the calls of that life.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The id that reads so; `None` where none does.
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, number) = text.split_once('-')?;
        let id = Self::new(u32::from_str_radix(epoch, 16).ok()?, u64::from_str_radix(number, 16).ok()?);
        (*id == *text).then_some(id)
    }
}

/// Writes the last digits of a number, as many as there is room for: up to sixteen.
pub(crate) fn digits(number: u64, room: &mut [u8]) {
    let [high, low] = halves(number).map(eight);
    for (place, digit) in room.iter_mut().rev().zip(low.iter().rev().chain(high.iter().rev())) {
        *place = *digit;
    }
}

const fn halves(number: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])]
}

/// The eight digits of a number, all at once: these stand in every message some times.
const fn eight(number: u32) -> [u8; 8] {
    // Half a byte into each byte.
    let mut each = number as u64;
    each = (each | each << 16) & 0x0000_ffff_0000_ffff;
    each = (each | each << 8) & 0x00ff_00ff_00ff_00ff;
    each = (each | each << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    // One in each byte that is over nine: its letter stands 39 behind what would be the next digit.
    let letters = (each + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    (each + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Serialize for CallId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl Deref for CallId {
    type Target = str;

    fn deref(&self) -> &str {
        ascii(&self.text, self.len.into())
    }
}

/// How long a text may be that a [`ShortText`] has in itself: the request ids that SDKs make, and a UUID.
const SHORT_LEN: usize = 36;

/// A text with no owner but this one, and no memory of its own while it is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShortText(SmallVec<[u8; SHORT_LEN]>);

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        Self(SmallVec::from_slice(text.as_bytes()))
    }
}

impl Deref for ShortText {
    type Target = str;

    fn deref(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Appends a number in decimal.
pub(crate) fn push_number(text: &mut String, number: u32) {
    let mut digits = [0; 10];
    let mut start = digits.len();
    let mut left = number;
    for place in digits.iter_mut().rev() {
        let [digit, ..] = (left % 10).to_le_bytes();
        *place = b'0' + digit;
        start -= 1;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    for digit in digits.iter().skip(start) {
        text.push(char::from(*digit));
    }
}

/// What was written at the beginning; ASCII by its making.
fn ascii(text: &[u8], len: usize) -> &str {
    text.get(..len).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_call_id_reads_as_is_none() {
        for text in
            ["", "-", "7-1", "00000007", "00000007-", "00000007-01", "0000000A-1", "+0000007-1", "x-1"]
        {
            assert_eq!(CallId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_short_text_is_the_text_whatever_its_length() {
        for text in ["", "é", &"x".repeat(SHORT_LEN), &"ü".repeat(SHORT_LEN)] {
            assert_eq!(&*ShortText::from(text), text);
        }
    }

    #[test]
    fn ids_and_numbers_read_as_the_formatter_writes_them() {
        for number in
            [0, 1, 9, 10, 15, 16, 255, 256, 4_294_967_295, 4_294_967_296, 0x0123_4567_89ab_cdef, u64::MAX]
        {
            for epoch in [0, 0xf, 0x0012_34ab, u32::MAX] {
                let id = CallId::new(epoch, number);
                assert_eq!(&*id, format!("{epoch:08x}-{number:x}"));
                assert_eq!((CallId::parse(&id), id.epoch(), id.number()), (Some(id), epoch, number));
            }
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
