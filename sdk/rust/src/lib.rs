//! Rust SDK of Agent-Reach: provide and call capabilities over one WebSocket that mends itself.
//!
//! An agent:
//!
//! ```no_run
//! use agent_reach_sdk::{Agent, Capability, Context, Tls};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::builder("wss://localhost:7443", "shouter")
//!     .tls(Tls::from_pem_files("ca.pem", "cert.pem", "key.pem")?)
//!     .capability(Capability::new("text.upper").idempotent(true), |_: Context, text: String| async move {
//!         Ok(text.to_uppercase())
//!     })
//!     .connect()
//!     .await?;
//! agent.serve().await;
//! # Ok(())
//! # }
//! ```
//!
//! A caller:
//!
//! ```no_run
//! # async fn run(agent: agent_reach_sdk::Agent) -> Result<(), agent_reach_sdk::CallError> {
//! let shouted: String = agent.call("text.upper", "hello").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What happens when the connection is lost
//!
//! The SDK dials again after 1, 2, 4 … 60 s, each with full jitter; the waits become short again only after a
//! session that lived for half of the hub's `gone_ms`. Open calls are sent again under the same `request_id`,
//! handlers go on and are never run twice for one intent, capabilities added meanwhile are registered again.
//! A stored task is sent once only: its result comes to whatever connection there is, and to the next life of the
//! program: see [`TaskHandle`] and [`Inbox`].
//!
//! It stays away after GOODBYE codes from 4500 on and after HTTP 4xx (but 408, 425, 429): then
//! [`Agent::closed`] resolves with the reason and every call fails with it.

/// The code of the README is built with the SDK.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

mod builder;
mod calls;
mod client;
mod control;
mod dedupe;
mod discover;
mod driver;
mod errors;
mod fan_out;
mod inbox;
mod payload;
mod pending;
mod provide;
mod runtime;
mod session;
mod tasks;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use agent_reach_protocol::{AgentStatus, CallMode, ErrorCode, Policy, Priority, Summary};
pub use builder::AgentBuilder;
pub use calls::{CallBuilder, FanOutBuilder};
pub use client::Agent;
pub use discover::{AgentInfo, AgentLoad, CapabilityInfo, OfferInfo};
pub use errors::{
    Accepted, Attempt, CallError, CallFailure, Cause, CloseReason, Code, ConnectError, HandlerError,
};
pub use fan_out::{FanOut, FanOutChunks, FanOutItem, FanOutStream, Part};
pub use payload::{FromPayload, IntoPayload, Payload, PayloadError};
pub use pending::{Chunk, PendingCall, ResultStream};
pub use provide::{Capability, Context, EmitError};
pub use session::{Acceptance, Load, Reply};
pub use tasks::{Inbox, TaskEvent, TaskFilter, TaskHandle, TaskInfo, TaskResult, TaskState, TaskWatch};
pub use tls::Tls;
