//! The trace of a caller's own that a call belongs to, as W3C Trace Context names it.

use std::fmt;

/// Length of a `traceparent` of version 00, and least length of one of a later version.
const TRACEPARENT_LEN: usize = 55;
/// Where its trace id stands.
const TRACE_ID: std::ops::Range<usize> = 3..35;

/// Sixteen bytes, not all zero. Its text is 32 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// The trace id in a `traceparent`; `None` when that is none by the rules of W3C.
    pub fn of(traceparent: &str) -> Option<Self> {
        let bytes = traceparent.as_bytes();
        let digits =
            |range| bytes.get::<std::ops::Range<usize>>(range).filter(|part| part.iter().all(is_digit));
        let dash = |at| bytes.get(at) == Some(&b'-');
        let (version, parent) = (digits(0..2)?, digits(36..52)?);
        digits(53..TRACEPARENT_LEN)?;
        let ends = match version {
            b"ff" => false,
            b"00" => bytes.len() == TRACEPARENT_LEN,
            _ => bytes.len() == TRACEPARENT_LEN || dash(TRACEPARENT_LEN),
        };
        let is_whole = ends && [2, 35, 52].into_iter().all(dash) && parent.iter().any(|digit| *digit != b'0');
        let id = u128::from_str_radix(std::str::from_utf8(digits(TRACE_ID)?).ok()?, 16).ok()?;
        (is_whole && id != 0).then(|| Self(id.to_be_bytes()))
    }

    /// One that begins here; 1 in the place of 0.
    pub(crate) const fn new(bits: u128) -> Self {
        Self(if bits == 0 { 1 } else { bits }.to_be_bytes())
    }

    /// As it is exported.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

const fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_trace_id_is_read_from_a_traceparent_of_this_and_of_later_versions() {
        for text in [GOOD, &GOOD.replacen("00", "01", 1), &format!("{}-more", GOOD.replacen("00", "cc", 1))] {
            let id = TraceId::of(text).map(|id| id.to_string());
            assert_eq!(id.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"), "{text}");
        }
        let small = TraceId::of("00-00000000000000000000000000000001-b7ad6b7169203331-00");
        assert_eq!(small.unwrap().to_string(), "00000000000000000000000000000001");
    }

    #[test]
    fn what_is_no_traceparent_names_no_trace() {
        let wrong = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("{}x", GOOD.replacen("00", "01", 1)),
            GOOD.replacen("00", "ff", 1),
            GOOD.to_uppercase(),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replacen("0af", "+af", 1),
            GOOD.replacen('-', "_", 1),
            GOOD.replacen("0af", "äf", 1),
        ];
        for text in wrong {
            assert_eq!(TraceId::of(&text), None, "{text}");
        }
    }
}
