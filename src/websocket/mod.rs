//! WebSocket messages from bytes and frames to bytes (RFC 6455, the server's side), with no socket in sight.
//!
//! An idle connection is the common case, and an own reader is what makes it cheap (ADR 0004): bytes are read
//! where they lie, in memory that all connections share, and nothing is kept but the part of a message that has
//! come. Headers are parsed and written by `tungstenite`.

mod message;
mod reader;

pub use message::{CloseFrame, Message};
pub use reader::{Fault, Reader};

use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// Longest payload of a ping, pong or close.
pub const CONTROL_MAX: usize = 125;
/// Longest header of a frame that a server sends.
const HEADER_MAX: usize = 10;

/// What a frame of ours carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// A whole text message.
    Text,
    /// A whole binary message.
    Binary,
    /// A ping.
    Ping,
    /// A pong.
    Pong,
    /// A close.
    Close,
}

/// The header of a frame with `length` bytes of payload, in one piece and not masked.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    bytes: [u8; HEADER_MAX],
    length: usize,
}

impl Header {
    /// Of a frame with so many bytes of payload.
    #[must_use]
    pub fn new(carries: Carries, payload: usize) -> Self {
        let opcode = match carries {
            Carries::Text => OpCode::Data(Data::Text),
            Carries::Binary => OpCode::Data(Data::Binary),
            Carries::Ping => OpCode::Control(Control::Ping),
            Carries::Pong => OpCode::Control(Control::Pong),
            Carries::Close => OpCode::Control(Control::Close),
        };
        let header = FrameHeader { opcode, ..FrameHeader::default() };
        let mut bytes = [0; HEADER_MAX];
        let mut rest = bytes.as_mut_slice();
        // It fails for want of room only, and the longest header has room.
        let left = match header.format(payload as u64, &mut rest) {
            Ok(()) => rest.len(),
            Err(_) => HEADER_MAX,
        };
        Self { bytes, length: HEADER_MAX - left }
    }
}

impl AsRef<[u8]> for Header {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}
