//! Everything that can happen to the hub.

use std::sync::Arc;

use agent_reach_protocol::FieldError;
use bytes::Bytes;

use crate::authz::Policy;
use crate::reload::Reloaded;
use crate::store::StoreNews;

/// One WebSocket, as the shell names it. An index is used again after its connection is closed; the
/// generation is not, so that a late event of an older connection touches nothing of a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// Place in the shell's table.
    pub index: u32,
    /// Counts up with every connection the shell opens.
    pub generation: u32,
}

/// Who the certificate proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The whole identity: a SPIFFE URI, a DNS name or a common name.
    pub identity: Arc<str>,
    /// The name in it: the default `agent_id`.
    pub name: Arc<str>,
}

/// A cause. The shell turns sockets, timers and signals into these.
#[derive(Debug)]
pub enum Input {
    /// A WebSocket is open; HELLO has to follow.
    Connected {
        /// Its name from now on.
        connection: ConnectionId,
        /// Who is at the other end.
        peer: Peer,
    },
    /// Somebody who only calls is there, without a WebSocket and a HELLO: a guest, which is no agent. Its calls are
    /// cancelled when it is closed.
    Guest {
        /// Its name from now on.
        connection: ConnectionId,
        /// Who it is.
        peer: Peer,
    },
    /// The certificate names nobody by the rules of the protocol: the connection ends with `unauthorized`.
    Unidentified {
        /// Where.
        connection: ConnectionId,
        /// Which rule it breaks, for GOODBYE.
        reason: String,
    },
    /// A whole message came.
    Message {
        /// Where.
        connection: ConnectionId,
        /// MessagePack, also where the peer speaks JSON.
        message: Bytes,
        /// What the JSON edge found wrong with it.
        fault: Option<FieldError>,
    },
    /// A ping or pong came: proof of life.
    Alive {
        /// Where.
        connection: ConnectionId,
    },
    /// Something came that cannot be an envelope of this connection's subprotocol.
    Untrusted {
        /// Where.
        connection: ConnectionId,
        /// What is wrong, for GOODBYE.
        reason: String,
    },
    /// A message over the limit is coming.
    TooLarge {
        /// Where.
        connection: ConnectionId,
    },
    /// The shell could not turn a message of the hub into the peer's encoding.
    Undeliverable {
        /// Where.
        connection: ConnectionId,
        /// The message as the hub made it.
        message: Bytes,
        /// What is wrong with its body.
        reason: String,
    },
    /// The certificate that proved the peer is no longer good.
    CredentialsEnded {
        /// Where.
        connection: ConnectionId,
        /// Expired, or revoked.
        revoked: bool,
    },
    /// The socket is gone.
    Closed {
        /// Which.
        connection: ConnectionId,
    },
    /// Stop: no new sessions, open calls may finish within `drain_ms`.
    Drain {
        /// Milliseconds.
        drain_ms: u64,
    },
    /// Stop at once: every connection is closed with 1001.
    Stop,
    /// The store has written, cannot write, or answers.
    Store(StoreNews),
    /// The shell has read its files again, or could not use them, in which case nothing has changed.
    Reloaded {
        /// Which of [`crate::Effects::reloads`].
        number: u64,
        /// What is new, or what is wrong with which file.
        outcome: Result<Reloaded, String>,
    },
    /// New rules. Sessions that they no longer allow end.
    SetPolicy(Policy),
    /// How much memory the process of the hub takes now, for `hub.stats`.
    Resident {
        /// Bytes.
        bytes: u64,
    },
    /// Time has passed: what [`crate::Hub::next_timeout`] named is due.
    Tick,
}
