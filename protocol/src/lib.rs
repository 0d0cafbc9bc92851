//! The Agent-Reach wire protocol, version 1: envelopes, their codec, names, codes and limits.
//!
//! Pure: no clock, no socket, no log. The contract in prose is `docs/protocol.md`; golden vectors that every
//! implementation runs are in `protocol/vectors/`.
//!
//! ```
//! use agent_reach_protocol::{Cancel, ToHub, decode_to_hub, encode};
//!
//! let message = encode(&Cancel { id: 7, reason: None, wait: false }, None);
//! let (envelope, body) = decode_to_hub(&message, None)?;
//! assert!(matches!(envelope, ToHub::Cancel(Cancel { id: 7, .. })));
//! assert_eq!(body, None);
//! # Ok::<(), agent_reach_protocol::DecodeError>(())
//! ```

pub mod codec;
mod codes;
mod envelope;
pub mod json;
pub mod limits;
pub mod names;

pub use codes::{ErrorCode, GoodbyeCode, Retry};
pub use envelope::*;
