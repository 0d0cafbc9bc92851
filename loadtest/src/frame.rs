//! How messages stand on a byte stream: WebSocket frames as a client writes them, or a bare length in front.

use anyhow::{Result, anyhow, bail};
use bytes::{Buf, Bytes, BytesMut};

/// A client has to mask. Which key makes no difference to what unmasking costs the hub.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const MASK_WORD: [u8; 16] = {
    let [a, b, c, d] = MASK;
    [a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d]
};
/// Largest message that is taken from the other side, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// What comes before the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// RFC 6455, one frame for each message.
    WebSocket,
    /// Four bytes, big-endian.
    Length,
}

/// What came from the other side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A message.
    Message(Bytes),
    /// A WebSocket ping, which wants these bytes back.
    Ping(Bytes),
}

impl Framing {
    /// Appends a message.
    pub(crate) fn push(self, out: &mut Vec<u8>, message: &[u8]) {
        match self {
            Self::WebSocket => push_frame(out, 0x2, message),
            Self::Length => {
                // Messages of a load are far below 4 GiB.
                out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(message);
            }
        }
    }

    /// Appends the answer to a ping.
    pub(crate) fn push_pong(self, out: &mut Vec<u8>, payload: &[u8]) {
        if self == Self::WebSocket {
            push_frame(out, 0xa, payload);
        }
    }

    /// Takes the next message that is whole.
    ///
    /// # Errors
    /// When the other side closes, or breaks the framing.
    pub(crate) fn pop(self, buffer: &mut BytesMut) -> Result<Option<Incoming>> {
        match self {
            Self::WebSocket => pop_frame(buffer),
            Self::Length => {
                let Some((head, _)) = buffer.split_first_chunk() else { return Ok(None) };
                let length = usize::try_from(u32::from_be_bytes(*head))?;
                Ok(take(buffer, 4, length)?.map(Incoming::Message))
            }
        }
    }
}

/// The bytes of a message, once all of them have come.
fn take(buffer: &mut BytesMut, head: usize, length: usize) -> Result<Option<Bytes>> {
    if length > MESSAGE_BYTES_MAX {
        bail!("a message of {length} bytes");
    }
    if buffer.len() < head + length {
        return Ok(None);
    }
    buffer.advance(head);
    Ok(Some(buffer.split_to(length).freeze()))
}

fn push_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ 0..=125), _) => out.push(0x80 | short),
        (_, Ok(medium)) => {
            out.push(0x80 | 126);
            out.extend_from_slice(&medium.to_be_bytes());
        }
        _ => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    let start = out.len();
    out.extend_from_slice(payload);
    let Some(masked) = out.get_mut(start..) else { return };
    // In words of sixteen bytes the compiler makes of this a few instructions for each.
    let (words, rest) = masked.as_chunks_mut::<16>();
    for word in words {
        *word = (u128::from_ne_bytes(*word) ^ u128::from_ne_bytes(MASK_WORD)).to_ne_bytes();
    }
    rest.iter_mut().zip(MASK_WORD).for_each(|(byte, key)| *byte ^= key);
}

fn pop_frame(buffer: &mut BytesMut) -> Result<Option<Incoming>> {
    let [first, second, rest @ ..] = &buffer[..] else { return Ok(None) };
    let (head, length) = match second {
        short @ 0..=125 => (2, usize::from(*short)),
        126 => match rest.first_chunk() {
            Some(length) => (4, usize::from(u16::from_be_bytes(*length))),
            None => return Ok(None),
        },
        127 => match rest.first_chunk() {
            Some(length) => (10, usize::try_from(u64::from_be_bytes(*length))?),
            None => return Ok(None),
        },
        _ => bail!("the hub masked a frame"),
    };
    let opcode = *first;
    let Some(payload) = take(buffer, head, length)? else { return Ok(None) };
    match opcode {
        0x82 => Ok(Some(Incoming::Message(payload))),
        0x89 => Ok(Some(Incoming::Ping(payload))),
        0x8a => pop_frame(buffer),
        0x88 => {
            let code = payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
            let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
            Err(anyhow!("closed by the hub: {code} {reason}"))
        }
        other => bail!("a frame that begins with {other:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Removes the mask of a frame, as a server does, and makes of it what a server would write.
    fn unmasked(frame: &[u8], head: usize) -> BytesMut {
        let (start, masked) = frame.split_at(head);
        let (mask, payload) = masked.split_at(4);
        let mut out = BytesMut::from(start);
        out[1] &= 0x7f;
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        out
    }

    #[test]
    fn a_frame_of_every_length_class_reads_back() {
        for (length, head) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10), (100_003, 10)] {
            let message: Vec<u8> = (0..=255).cycle().take(length).collect();
            let mut out = Vec::new();
            Framing::WebSocket.push(&mut out, &message);
            let mut buffer = unmasked(&out, head);
            let popped = Framing::WebSocket.pop(&mut buffer).unwrap();
            assert_eq!((popped, buffer.len()), (Some(Incoming::Message(message.into())), 0));
        }
    }

    #[test]
    fn a_message_that_is_not_whole_is_waited_for() {
        let mut whole = Vec::new();
        Framing::Length.push(&mut whole, b"hello");
        let frame = [0x82, 126, 0, 130].into_iter().chain([7; 130]).collect::<Vec<u8>>();
        for (framing, whole) in [(Framing::Length, whole), (Framing::WebSocket, frame)] {
            for end in 0..whole.len() {
                let mut buffer = BytesMut::from(&whole[..end]);
                assert_eq!(framing.pop(&mut buffer).unwrap(), None);
                assert_eq!(buffer.len(), end);
            }
            assert!(framing.pop(&mut BytesMut::from(&whole[..])).unwrap().is_some());
        }
    }

    #[test]
    fn a_close_names_its_code_and_reason() {
        let mut buffer = BytesMut::from(&[0x88, 6, 0x0f, 0xa2, b'g', b'o', b'n', b'e'][..]);
        let error = Framing::WebSocket.pop(&mut buffer).unwrap_err();
        assert_eq!(error.to_string(), "closed by the hub: 4002 gone");
    }
}
