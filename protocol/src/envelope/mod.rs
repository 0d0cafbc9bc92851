//! Envelopes: `[kind, header, body]`, one for each WebSocket message.
//!
//! Headers borrow from the message they were read from; what must live longer is copied by who keeps it.

mod call;
pub(crate) mod field;
mod frame;
mod session;
mod shared;

pub use call::{
    Accept, Attempt, Call, CallError, CallMode, CallResult, Cancel, Chunk, Credit, Dispatch, Policy,
    Priority, Receipt, ResultStatus, Select, Summary,
};
pub use field::{FieldError, FieldValue, Labels, Levels, Private};
pub use frame::{
    DecodeError, Header, Kind, ToAgent, ToHub, decode_to_agent, decode_to_hub, encode, read_to_hub,
};
pub use session::{AgentStatus, Capability, ErrorReply, Goodbye, Granted, Hello, Load, Update, Welcome};
pub use shared::{Head, Shared};
