//! The Agent-Reach decision core: a pure state machine from inputs to effects.
//!
//! [`Hub::handle`] takes one [`Input`] at one moment and decides everything the hub promises: who is an agent,
//! who gets a call, what becomes of it when somebody goes away, and how each call ends exactly once. It has
//! no clock, no socket, no lock and no randomness of its own, so every promise can be tested without a sleep
//! and simulated with thousands of seeds (`tests/simulation.rs`).
//!
//! The shell calls `handle` for everything that happens, takes what is to be written with
//! [`Hub::take_outbound`], carries out the [`Effects`], and comes back with [`Input::Tick`] when
//! [`Hub::next_timeout`] is due.

mod authz;
mod breaker;
mod calls;
mod drain;
mod effects;
mod elsewhere;
mod events;
mod expiry;
mod fingerprint;
mod given;
mod guest;
mod hub;
mod idempotency;
mod input;
mod latency;
mod meta;
mod offer;
mod offered;
mod offering;
mod operators;
mod outbound;
mod quota;
mod refused;
mod registration;
mod registry;
mod reload;
mod request_key;
mod rng;
mod routing;
mod rows;
mod schema;
mod session;
mod settings;
mod spans;
mod stats;
mod stats_view;
mod store;
mod tasks;
mod text;
mod time;
mod trace_id;
mod traces;
mod views;
mod waiting;

pub use authz::{Policy, Rule, TOKEN_PREFIX, WINDOWS_MAX};
pub use breaker::BreakerSettings;
pub use calls::without_body;
pub use effects::{CallRecord, DedupeOutcome, Effects, Fact, Liveness, Outcome, Tier};
pub use hub::Hub;
pub use input::{ConnectionId, Input, Peer};
pub use meta::HUB_CAPABILITIES;
pub use outbound::{Batch, Outgoing};
pub use reload::{RELOADS_MAX, Reloaded};
pub use rows::{CallbackRow, StoredCall, TaskRow, Whose};
pub use settings::{CallbackCheck, Callbacks, Durable, Settings};
pub use spans::{CallTrace, Hop, Sampling, Span, SpanEvent, SpanId};
pub use stats::{Counters, Gauges};
pub use store::{
    Answer, Ask, Change, Holder, Kept, KeptCall, Moved, NewTask, NoTaskId, OpenTask, Question, StoreNews,
    TaskEnd, TaskId, TaskState,
};
pub use tasks::ALL_TASKS;
pub use text::CallId;
pub use time::Now;
pub use trace_id::TraceId;
