//! The edge of a connection: its subprotocol on the wire, MessagePack inside.

use agent_reach_core::without_body;
use agent_reach_protocol::limits::{SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK};
use agent_reach_protocol::{FieldError, json};
use bytes::Bytes;

use crate::driver::Inbound;
use crate::websocket::Carries;

/// Between the messages of a WebSocket and what is handed on.
pub trait Edge: Copy + Unpin {
    /// What a text message of the peer's is.
    fn text(self, text: &str) -> Inbound;
    /// What a binary message of the peer's is.
    fn binary(self, bytes: Bytes) -> Inbound;
    /// One of our messages as the peer reads it.
    ///
    /// # Errors
    /// When it cannot be, with what is told in its place to whom it came from.
    fn outbound(self, message: Bytes, max_message: usize) -> Result<(Carries, Bytes), Inbound>;

    /// Whether our messages leave as they are, in binary: then they may leave in pieces.
    fn is_verbatim(self) -> bool {
        false
    }
}

/// How a peer writes envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Binary messages.
    MessagePack,
    /// Text messages.
    Json,
}

impl Encoding {
    /// The encoding of a subprotocol name.
    #[must_use]
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        match name {
            SUBPROTOCOL_MSGPACK => Some(Self::MessagePack),
            SUBPROTOCOL_JSON => Some(Self::Json),
            _ => None,
        }
    }

    /// The subprotocol's name.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::MessagePack => SUBPROTOCOL_MSGPACK,
            Self::Json => SUBPROTOCOL_JSON,
        }
    }
}

impl Edge for Encoding {
    fn is_verbatim(self) -> bool {
        self == Self::MessagePack
    }

    fn text(self, text: &str) -> Inbound {
        match self {
            Self::Json => from_json(text),
            Self::MessagePack => {
                Inbound::Untrusted(format!("a text message on the subprotocol {SUBPROTOCOL_MSGPACK}"))
            }
        }
    }

    fn binary(self, bytes: Bytes) -> Inbound {
        match self {
            Self::MessagePack => Inbound::Message(bytes, None),
            Self::Json => {
                Inbound::Untrusted(format!("a binary message on the subprotocol {SUBPROTOCOL_JSON}"))
            }
        }
    }

    fn outbound(self, message: Bytes, max_message: usize) -> Result<(Carries, Bytes), Inbound> {
        if self == Self::MessagePack {
            return Ok((Carries::Binary, message));
        }
        match to_json(&message, max_message) {
            Ok(text) => Ok((Carries::Text, text.into())),
            // The call has ended with this RESULT: its caller gets the end without the body.
            Err(reason) => match without_body(&message, &reason).map(|end| to_json(&end, max_message)) {
                Some(Ok(text)) => Ok((Carries::Text, text.into())),
                _ => Err(Inbound::Undeliverable(message, reason)),
            },
        }
    }
}

fn from_json(text: &str) -> Inbound {
    match json::to_msgpack(text) {
        Ok(json::Converted { envelope, fault }) => {
            let fault = fault.map(|fault| FieldError { field: fault.field, message: fault.message });
            Inbound::Message(envelope.into(), fault)
        }
        Err(refused) => Inbound::Untrusted(refused.to_string()),
    }
}

fn to_json(message: &Bytes, max_message: usize) -> Result<String, String> {
    let text = json::from_msgpack(message).map_err(|e| e.to_string())?;
    if text.len() > max_message {
        return Err(format!("as JSON the message has {} bytes; {max_message} are allowed", text.len()));
    }
    Ok(text)
}
