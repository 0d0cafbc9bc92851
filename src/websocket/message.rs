//! What a peer can say with WebSocket frames.

use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::reader::Fault;

/// A whole message of the peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// UTF-8.
    Text(String),
    /// Bytes, in memory of exactly their size.
    Binary(Bytes),
    /// Has to be answered with a pong that carries the same.
    Ping(Bytes),
    /// The answer to a ping, or proof of life unasked.
    Pong,
    /// The last that the peer says.
    Close(Option<CloseFrame>),
}

/// Why a peer closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The code; one of those that may be on the wire.
    pub code: u16,
    /// For people.
    pub reason: String,
}

impl CloseFrame {
    /// Reads the payload of a close; `None` for an empty one.
    pub(super) fn parse(payload: &[u8]) -> Result<Option<Self>, Fault> {
        let Some((code, reason)) = payload.split_first_chunk::<2>() else {
            return if payload.is_empty() { Ok(None) } else { Err(Fault::Protocol("a close of one byte")) };
        };
        let code = u16::from_be_bytes(*code);
        if !CloseCode::from(code).is_allowed() {
            return Err(Fault::Protocol("a close code that is not for the wire"));
        }
        let reason = std::str::from_utf8(reason).map_err(|_| Fault::Utf8)?;
        Ok(Some(Self { code, reason: reason.to_owned() }))
    }
}
