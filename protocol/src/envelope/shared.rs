//! One message of which many copies leave that differ in nothing but their `id`.

use bytes::{Buf, Bytes};

/// The id under which such a message is written: it takes all the room that an id can.
const PLACEHOLDER: u64 = u64::MAX;
/// Bytes of an id behind its type.
const ID_LEN: usize = 8;
/// Longest beginning of a message up to the end of its id: array, kind, map, key, number.
const HEAD_MAX: usize = 1 + 1 + 3 + 3 + 1 + ID_LEN;

/// A message that is written once for all its receivers: each copy is its own `id` and a share of the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    message: Bytes,
    /// Where the bytes of the id stand in it.
    at: usize,
    id: u64,
}

impl Shared {
    /// The id under which the message is to be written first.
    pub const PLACEHOLDER: u64 = PLACEHOLDER;

    /// Of a message whose header begins with `id: PLACEHOLDER`, as [`encode`](crate::encode) writes it; `None` of
    /// another.
    pub fn of(message: Bytes) -> Option<Self> {
        let map = match message.get(2)? {
            0x81..=0x8f => 1,
            0xde => 3,
            _ => return None,
        };
        let at = 2 + map + 4;
        let kind_is_short = *message.get(1)? < 0x80;
        let begins_with_id = message.first() == Some(&0x93)
            && kind_is_short
            && message.get(2 + map..at) == Some(&[0xa2, b'i', b'd', 0xcf])
            && message.get(at..at + ID_LEN) == Some(&PLACEHOLDER.to_be_bytes());
        begins_with_id.then_some(Self { message, at, id: PLACEHOLDER })
    }

    /// The same under another id.
    #[must_use]
    pub fn with_id(&self, id: u64) -> Self {
        Self { message: self.message.clone(), at: self.at, id }
    }

    /// The message in two pieces: what is this copy's own, and what all copies share.
    pub fn into_pieces(mut self) -> (Head, Bytes) {
        let mut head = Head { bytes: [0; HEAD_MAX], len: self.at + ID_LEN };
        let own = self.message.get(..head.len).unwrap_or_default();
        if let Some(place) = head.bytes.get_mut(..own.len()) {
            place.copy_from_slice(own);
        }
        if let Some(place) = head.bytes.get_mut(self.at..head.len) {
            place.copy_from_slice(&self.id.to_be_bytes());
        }
        self.message.advance(own.len());
        (head, self.message)
    }

    /// Bytes of the whole message.
    #[expect(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        self.message.len()
    }

    /// The message in one piece.
    pub fn to_bytes(&self) -> Bytes {
        let (head, rest) = self.clone().into_pieces();
        [head.as_ref(), &rest].concat().into()
    }
}

/// The beginning of one copy.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl AsRef<[u8]> for Head {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallMode, Cancel, Dispatch, Labels, Priority, Private, decode_to_agent, encode};

    fn dispatch(id: u64, labels: &Labels<'_>) -> Bytes {
        let dispatch = Dispatch {
            id,
            request_id: "r",
            call_id: "c",
            capability: "a.b",
            caller: "caller",
            attempt: 1,
            deadline_ms: 30_000,
            preferred_timeout_ms: Some(1),
            stream: true,
            credit: Some(16),
            mode: CallMode::Call,
            priority: Priority::Normal,
            labels: labels.clone(),
            traceparent: Some("t"),
            tracestate: Some("s"),
            content_type: Some("x/y"),
            task_id: Some("t"),
            private: Private::default(),
        };
        encode(&dispatch, Some(b"body"))
    }

    #[test]
    fn a_copy_reads_as_the_message_written_under_its_id() {
        let labels = Labels(vec![("zone", "a")]);
        for labels in [Labels::default(), labels] {
            let shared = Shared::of(dispatch(Shared::PLACEHOLDER, &labels)).expect("it begins with its id");
            for id in [0, 127, 128, 255, 256, 65_536, u64::from(u32::MAX), u64::MAX] {
                let copy = shared.with_id(id).to_bytes();
                assert_eq!(decode_to_agent(&copy), decode_to_agent(&dispatch(id, &labels)), "{id}");
                assert_eq!(shared.with_id(id).len(), copy.len());
            }
        }
    }

    #[test]
    fn a_message_under_another_id_or_without_one_is_not_shared() {
        assert_eq!(Shared::of(dispatch(1, &Labels::default())), None);
        let cancel = encode(&Cancel { id: Shared::PLACEHOLDER, reason: None, wait: false }, None);
        assert!(Shared::of(cancel.clone()).is_some());
        for len in 0..15 {
            assert_eq!(Shared::of(cancel.slice(..len)), None);
        }
    }
}
