//! What is said on a connection: Agent-Reach, or the bare words of the relay that it is compared with.

mod envelopes;
mod tasks;
mod words;

use anyhow::Result;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::Framing;

pub(crate) use envelopes::{accept, call_by, capability, hello_with_slots, request_id, stats_call};
pub(crate) use tasks::{TaskTold, end_of_task, receipt, submit, task_told};
pub(crate) use words::{EVERYBODY, destination, notice_answer};

/// How many capabilities each agent offers.
pub(crate) const CAPABILITIES: u32 = 3;
/// First number of a caller; smaller ones are agents.
pub(crate) const FIRST_CALLER: u32 = 200_000;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// The hub's.
    Hub,
    /// The relay's.
    Relay,
}

/// How a caller treats `request_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum RequestIds {
    /// As the SDKs: an id of its own for each call, with keep_ms 600000.
    Sdk,
    /// None: the hub makes one.
    None,
    /// An id for each call, kept for as long as the hub keeps any: as for ids that users give.
    Keyed,
    /// An id for each call, not kept at all.
    Unkept,
}

/// What a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Want {
    /// A result. On the relay the agent is always named.
    Result {
        /// Whether it has to be this agent.
        directed: bool,
    },
    /// Every agent with the capability is told, and the call ends when all have heard it. On the relay it ends
    /// when it has left for all.
    Notice,
    /// Chunks, with this window. The body begins with how many, as a big-endian integer of 64 bits.
    Chunks {
        /// The first window, in chunks.
        credit: u64,
    },
}

/// Who is asked for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Number of the capability.
    pub(crate) capability: u32,
    /// Number of an agent that offers it.
    pub(crate) agent: u32,
    /// What is wanted of it.
    pub(crate) want: Want,
}

/// A call as an agent names it: the number of its caller, where agents know it, and an id.
pub(crate) type CallKey = (u32, u64);

/// What an agent heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A call that wants a result.
    Call(CallKey, Bytes),
    /// A call that wants chunks, with its first window.
    Stream(CallKey, Bytes, u64),
    /// More chunks may be sent.
    Credit(CallKey, u64),
    /// Chunks are no longer wanted.
    Cancel(CallKey),
    /// A message that wants no answer.
    Notice,
    /// Something that is no work.
    Nothing,
}

/// What a caller was told. `id` is that of its call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An agent has the call and works on it.
    Accepted(u64),
    /// The next piece of a stream: its number, and what it holds.
    Chunk(u64, u64, Bytes),
    /// How one agent's part of a call ended.
    Part(u64),
    /// The call is over.
    Ended(u64, Outcome),
    /// Something else.
    Nothing,
}

/// How a call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With a result.
    Completed(Bytes),
    /// All agents it went to were told: how many.
    Summary(u64),
    /// Not well: the code of the error.
    Failed(String),
}

impl Dialect {
    /// How its messages stand on the stream.
    pub(crate) const fn framing(self) -> Framing {
        match self {
            Self::Hub => Framing::WebSocket,
            Self::Relay => Framing::Length,
        }
    }

    /// The first message of an agent (or caller, with no group) of this number.
    pub(crate) fn hello(self, name: &str, number: u32, groups: Option<u32>) -> Bytes {
        match self {
            Self::Hub => envelopes::hello(name, number, groups),
            Self::Relay => words::hello(number),
        }
    }

    /// Whether this is the answer to a hello.
    ///
    /// # Errors
    /// When it is another one.
    pub(crate) fn welcomed(self, message: &Bytes) -> Result<()> {
        match self {
            Self::Hub => envelopes::welcomed(message),
            Self::Relay => Ok(()),
        }
    }

    /// The last message of who leaves in peace.
    pub(crate) fn goodbye(self) -> Option<Bytes> {
        (self == Self::Hub).then(envelopes::goodbye)
    }

    /// What says that an agent lives.
    pub(crate) fn keepalive(self) -> Bytes {
        match self {
            Self::Hub => envelopes::keepalive(),
            Self::Relay => words::keepalive(),
        }
    }

    /// A call of the caller with this number.
    pub(crate) fn call(self, caller: u32, id: u64, ask: Ask, ids: RequestIds, body: &[u8]) -> Bytes {
        match self {
            Self::Hub => envelopes::call(caller, id, ask, ids, body),
            Self::Relay => words::call(caller, id, ask, body),
        }
    }

    /// The caller of a stream takes so many chunks more from this agent.
    pub(crate) fn credit(self, caller: u32, id: u64, agent: u32, n: u64) -> Bytes {
        match self {
            Self::Hub => envelopes::credit(id, n),
            Self::Relay => words::credit(caller, id, agent, n),
        }
    }

    /// What an agent was told.
    ///
    /// # Errors
    /// When the server wants it gone, or cannot be understood.
    pub(crate) fn heard(self, message: &Bytes) -> Result<Heard> {
        match self {
            Self::Hub => envelopes::heard(message),
            Self::Relay => words::heard(message),
        }
    }

    /// The result of a call, from the agent of this number.
    pub(crate) fn result(self, number: u32, call: CallKey, body: &[u8]) -> Bytes {
        match self {
            Self::Hub => envelopes::result(call, body),
            Self::Relay => words::result(number, call, body),
        }
    }

    /// A piece of a stream, from the agent of this number.
    pub(crate) fn chunk(self, number: u32, call: CallKey, seq: u64, body: &[u8]) -> Bytes {
        match self {
            Self::Hub => envelopes::chunk(call, seq, body),
            Self::Relay => words::chunk(number, call, seq, body),
        }
    }

    /// What a caller was told.
    ///
    /// # Errors
    /// When the server wants it gone, or cannot be understood.
    pub(crate) fn told(self, message: &Bytes) -> Result<Told> {
        match self {
            Self::Hub => envelopes::told(message),
            Self::Relay => words::told(message),
        }
    }
}

/// Name of the agent of this number.
pub(crate) fn agent(number: u32) -> String {
    format!("agent-{number:06}")
}
