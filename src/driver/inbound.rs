//! What comes to the driver from connections, and what it tells of its turns.

use std::time::Duration;

use agent_reach_core::{ConnectionId, Fact, Input};
use agent_reach_protocol::FieldError;
use bytes::Bytes;

/// Hears what happened, off the lock.
pub trait Observer: Send + Sync + 'static {
    /// What the core says has happened in a turn, in order.
    fn facts(&self, facts: &[Fact]);
    /// An operator asks for a reload, of which [`Driver::reloaded`](super::Driver::reloaded) is to say what came. It must
    /// not be said at once: the driver is in the middle of a turn.
    fn reload(&self, number: u64);
    /// How long the oldest of a batch was inside the hub, from its arrival to its being taken for writing.
    fn hop(&self, inside: Duration);
}

/// What a connection read.
#[derive(Debug)]
pub enum Inbound {
    /// A message, as MessagePack, and what the JSON edge found wrong with it.
    Message(Bytes, Option<FieldError>),
    /// A ping or pong.
    Alive,
    /// Something that cannot be an envelope of this subprotocol.
    Untrusted(String),
    /// A message over the limit.
    TooLarge,
    /// The WebSocket is broken: nothing that is given to this connection reaches its peer any more.
    Broken,
    /// One of our own messages that cannot be turned into the peer's encoding.
    Undeliverable(Bytes, String),
}

impl Inbound {
    pub(super) fn into_input(self, connection: ConnectionId) -> Input {
        match self {
            Self::Message(message, fault) => Input::Message { connection, message, fault },
            Self::Alive => Input::Alive { connection },
            Self::Untrusted(reason) => Input::Untrusted { connection, reason },
            Self::TooLarge => Input::TooLarge { connection },
            Self::Broken => Input::Closed { connection },
            Self::Undeliverable(message, reason) => Input::Undeliverable { connection, message, reason },
        }
    }
}
