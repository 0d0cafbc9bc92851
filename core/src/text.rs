//! Short texts of numbers that stand in nearly every message, made without the machinery of formatting.

use std::fmt;
use std::ops::Deref;

/// Longest [`CallId`]: eight digits, a dash, sixteen digits.
const CALL_ID_MAX: usize = 25;

/// The hub-wide id of a call: the hub's epoch and the call's number, in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallId {
    /// Written from the end.
    text: [u8; CALL_ID_MAX],
    start: usize,
}

impl CallId {
    pub(crate) fn new(epoch: u32, number: u64) -> Self {
        let mut id = Self { text: [0; CALL_ID_MAX], start: CALL_ID_MAX };
        let mut left = number;
        loop {
            id.put(hex(left));
            left >>= 4;
            if left == 0 {
                break;
            }
        }
        id.put(b'-');
        for digit in 0..8 {
            id.put(hex(u64::from(epoch) >> (4 * digit)));
        }
        id
    }

    /// Puts a byte before what is there.
    fn put(&mut self, byte: u8) {
        self.start = self.start.saturating_sub(1);
        if let Some(place) = self.text.get_mut(self.start) {
            *place = byte;
        }
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl Deref for CallId {
    type Target = str;

    fn deref(&self) -> &str {
        written(&self.text, self.start)
    }
}

/// The last hexadecimal digit of a number.
const fn hex(number: u64) -> u8 {
    match number.to_le_bytes() {
        [last, ..] => match last & 0x0f {
            digit @ 0..=9 => b'0' + digit,
            digit => b'a' + digit - 10,
        },
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

/// What was written, from its first byte to the end; ASCII by its making.
fn written(text: &[u8], start: usize) -> &str {
    text.get(start..).and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_numbers_read_as_the_formatter_writes_them() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 4_294_967_295, 4_294_967_296, u64::MAX] {
            for epoch in [0, 0xf, 0x0012_34ab, u32::MAX] {
                assert_eq!(&*CallId::new(epoch, number), format!("{epoch:08x}-{number:x}"));
            }
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let mut text = String::new();
            push_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
