//! From bytes to messages.

use std::io::Cursor;

use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::CONTROL_MAX;
use super::message::{CloseFrame, Message};

/// Longest header of a frame that a client sends.
const CLIENT_HEADER_MAX: usize = 14;
/// What is reserved for a message before more of it has come than this: a header is cheap to send, and must not
/// make the hub reserve what it announces.
const FIRST_RESERVE: usize = 16 * 1024;

/// What ends a connection: no message can be read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A message is announced that is over the limit.
    TooLarge,
    /// The frames break RFC 6455.
    Protocol(&'static str),
    /// A text that is not UTF-8.
    Utf8,
}

/// Reads the frames of one client.
///
/// Between messages it holds no memory of its own. A message that lies whole in what was read is copied once,
/// into memory of exactly its size; any other is put together piece by piece.
#[derive(Debug)]
pub struct Reader {
    max_message: usize,
    /// A header that has not come whole.
    header: [u8; CLIENT_HEADER_MAX],
    header_length: u8,
    frame: Option<Frame>,
    /// A message that has not come whole. Apart, since most connections have none.
    partial: Option<Box<Partial>>,
}

/// A frame whose header has come.
#[derive(Clone, Copy, Debug)]
struct Frame {
    is_final: bool,
    opcode: OpCode,
    mask: [u8; 4],
    /// Bytes of payload that have not come.
    left: usize,
}

/// What has come of a message, and of a control frame within it.
#[derive(Debug, Default)]
struct Partial {
    is_text: bool,
    /// The first frame of the message has begun.
    begun: bool,
    data: Vec<u8>,
    /// How many bytes of `data` are known to be UTF-8.
    valid: usize,
    control: Vec<u8>,
}

impl Reader {
    /// Takes messages of up to `max_message` bytes.
    #[must_use]
    pub const fn new(max_message: usize) -> Self {
        Self { max_message, header: [0; CLIENT_HEADER_MAX], header_length: 0, frame: None, partial: None }
    }

    /// Reads on. Each message goes to `heard` when its last byte has come.
    ///
    /// # Errors
    /// When the frames are broken. What came before was heard; nothing may be read after.
    pub fn read(&mut self, bytes: &[u8], heard: &mut dyn FnMut(Message)) -> Result<(), Fault> {
        self.read_some(bytes, &mut { usize::MAX }, heard).map(drop)
    }

    /// Reads on, but begins no more than so many frames, which are taken off `frames`. What was not looked at comes
    /// back.
    ///
    /// # Errors
    /// As of [`Reader::read`].
    pub fn read_some<'a>(
        &mut self,
        mut bytes: &'a [u8],
        frames: &mut usize,
        heard: &mut dyn FnMut(Message),
    ) -> Result<&'a [u8], Fault> {
        loop {
            let frame = match self.frame.take() {
                Some(frame) => frame,
                None if *frames == 0 => return Ok(bytes),
                None => match self.header(&mut bytes)? {
                    Some(frame) => {
                        *frames -= 1;
                        frame
                    }
                    None => return Ok(bytes),
                },
            };
            let (payload, rest) = bytes.split_at(frame.left.min(bytes.len()));
            bytes = rest;
            match self.payload(frame, payload, heard)? {
                Some(unfinished) => {
                    self.frame = Some(unfinished);
                    return Ok(bytes);
                }
                None if bytes.is_empty() => return Ok(bytes),
                None => {}
            }
        }
    }

    /// Parses a header from what was kept of it and what is there; keeps it when it is not whole.
    fn header(&mut self, bytes: &mut &[u8]) -> Result<Option<Frame>, Fault> {
        let kept = usize::from(self.header_length);
        if kept == 0 {
            let mut cursor = Cursor::new(*bytes);
            if let Some(frame) = self.parse(&mut cursor)? {
                let used = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
                *bytes = bytes.get(used..).unwrap_or_default();
                return Ok(Some(frame));
            }
        }
        let room = self.header.get_mut(kept..).unwrap_or_default();
        let more = room.len().min(bytes.len());
        for (to, from) in room.iter_mut().zip(bytes.iter()) {
            *to = *from;
        }
        let whole = self.header;
        let mut cursor = Cursor::new(whole.get(..kept + more).unwrap_or_default());
        let Some(frame) = self.parse(&mut cursor)? else {
            // Fourteen bytes are always a header, so what is kept stays below.
            self.header_length = u8::try_from(kept + more).unwrap_or_default();
            *bytes = &[];
            return Ok(None);
        };
        let used = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        self.header_length = 0;
        *bytes = bytes.get(used.saturating_sub(kept)..).unwrap_or_default();
        Ok(Some(frame))
    }

    /// Parses a header and judges it, before any of its payload has come.
    fn parse(&self, cursor: &mut Cursor<&[u8]>) -> Result<Option<Frame>, Fault> {
        let parsed = FrameHeader::parse(cursor).map_err(|_| Fault::Protocol("a reserved opcode"))?;
        let Some((header, length)) = parsed else { return Ok(None) };
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Fault::Protocol("a reserved bit without an extension"));
        }
        let Some(mask) = header.mask else {
            return Err(Fault::Protocol("a frame of a client that is not masked"));
        };
        let left = usize::try_from(length).map_err(|_| Fault::TooLarge)?;
        let begun = self.partial.as_ref().filter(|partial| partial.begun);
        match (header.opcode, begun) {
            (OpCode::Control(_), _) if !header.is_final => {
                return Err(Fault::Protocol("a control frame in pieces"));
            }
            (OpCode::Control(_), _) if left > CONTROL_MAX => {
                return Err(Fault::Protocol("a control frame over 125 bytes"));
            }
            (OpCode::Control(_), _) => {}
            (OpCode::Data(Data::Continue), None) => {
                return Err(Fault::Protocol("a continuation of nothing"));
            }
            (OpCode::Data(Data::Continue), Some(_)) | (OpCode::Data(_), None) => {
                let come = begun.map_or(0, |partial| partial.data.len());
                if left > self.max_message.saturating_sub(come) {
                    return Err(Fault::TooLarge);
                }
            }
            (OpCode::Data(_), Some(_)) => {
                return Err(Fault::Protocol("a new message inside another"));
            }
        }
        Ok(Some(Frame { is_final: header.is_final, opcode: header.opcode, mask, left }))
    }

    /// Takes in what is there of a frame's payload. The frame itself comes back while more of it is to come.
    fn payload(
        &mut self,
        mut frame: Frame,
        payload: &[u8],
        heard: &mut dyn FnMut(Message),
    ) -> Result<Option<Frame>, Fault> {
        let whole = payload.len() == frame.left;
        if whole && frame.is_final && self.partial.is_none() {
            heard(whole_frame(&frame, payload)?);
            return Ok(None);
        }
        // A mask goes on where it stopped.
        let left = frame.left - payload.len();
        let partial = self.partial.get_or_insert_with(Box::default);
        if let OpCode::Control(control) = frame.opcode {
            append(&mut partial.control, payload, frame.mask, left);
            if whole {
                heard(control_frame(control, &std::mem::take(&mut partial.control))?);
                if !partial.begun {
                    self.partial = None;
                }
            }
        } else {
            if matches!(frame.opcode, OpCode::Data(Data::Text)) && !partial.begun {
                partial.is_text = true;
            }
            partial.begun = true;
            append(&mut partial.data, payload, frame.mask, left);
            if partial.is_text {
                partial.check_text()?;
            }
            if whole && frame.is_final {
                let partial = self.partial.take().map(|partial| *partial).unwrap_or_default();
                heard(partial.into_message()?);
            }
        }
        if whole {
            return Ok(None);
        }
        frame.mask.rotate_left(payload.len() % 4);
        frame.left = left;
        Ok(Some(frame))
    }
}

impl Partial {
    /// Looks at what has come since the last look. A character whose end is still to come is no fault.
    fn check_text(&mut self) -> Result<(), Fault> {
        let fresh = self.data.get(self.valid..).unwrap_or_default();
        match std::str::from_utf8(fresh) {
            Ok(text) => self.valid += text.len(),
            Err(error) if error.error_len().is_none() => self.valid += error.valid_up_to(),
            Err(_) => return Err(Fault::Utf8),
        }
        Ok(())
    }

    fn into_message(self) -> Result<Message, Fault> {
        if self.is_text {
            return String::from_utf8(self.data).map(Message::Text).map_err(|_| Fault::Utf8);
        }
        // To its exact size: it may be kept for long.
        Ok(Message::Binary(self.data.into_boxed_slice().into()))
    }
}

/// A message of one frame that lies whole in what was read.
fn whole_frame(frame: &Frame, payload: &[u8]) -> Result<Message, Fault> {
    let mut data = Vec::new();
    append(&mut data, payload, frame.mask, 0);
    match frame.opcode {
        OpCode::Data(Data::Text) => String::from_utf8(data).map(Message::Text).map_err(|_| Fault::Utf8),
        OpCode::Data(_) => Ok(Message::Binary(data.into())),
        OpCode::Control(control) => control_frame(control, &data),
    }
}

fn control_frame(control: Control, payload: &[u8]) -> Result<Message, Fault> {
    match control {
        Control::Ping => Ok(Message::Ping(Bytes::copy_from_slice(payload))),
        Control::Pong => Ok(Message::Pong),
        Control::Close => CloseFrame::parse(payload).map(Message::Close),
        Control::Reserved(_) => Err(Fault::Protocol("a reserved opcode")),
    }
}

/// Appends masked bytes as what they mean. `left`: how many are to come after them in this frame.
fn append(to: &mut Vec<u8>, masked: &[u8], mask: [u8; 4], left: usize) {
    let start = to.len();
    if to.capacity() - start < masked.len() {
        // Ahead of the peer by no more than what has come: announcing costs nothing, and must not cost us more.
        let room = masked.len() + left.min(start.max(FIRST_RESERVE));
        // Exactly, where a frame begins a message. Later by doubling, since frames may be as small as a byte.
        if start == 0 { to.reserve_exact(room) } else { to.reserve(room) }
    }
    to.extend_from_slice(masked);
    let fresh = to.get_mut(start..).unwrap_or_default();
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = fresh.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
