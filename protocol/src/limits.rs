//! Bounds that hold for every implementation of protocol version 1.
//!
//! What an operator may change (the message limit, queue sizes, timeouts) is configuration of the hub;
//! what stands here is part of the contract, so that SDKs can check before they send.

/// Version of the protocol this crate speaks: HELLO `v`.
pub const VERSION: u64 = 1;
/// Path of the WebSocket upgrade.
pub const CONNECT_PATH: &str = "/v1/connect";
/// Subprotocol of binary MessagePack messages.
pub const SUBPROTOCOL_MSGPACK: &str = "agent-reach.v1.msgpack";
/// Subprotocol of JSON text messages.
pub const SUBPROTOCOL_JSON: &str = "agent-reach.v1.json";

/// Default limit of one whole WebSocket message, in bytes.
pub const MESSAGE_BYTES_DEFAULT: usize = 1 << 20;
/// Deepest nesting of a header: the header map itself is level 1.
pub const HEADER_DEPTH_MAX: usize = 32;
/// Most keys of any one map inside a header. A header with more is not trusted (`protocol_error`).
pub const HEADER_KEYS_MAX: usize = 1024;

/// Longest `agent_id`, `instance`, `request_id`, capability name or `affinity_key`, in bytes.
pub const ID_BYTES_MAX: usize = 128;
/// Longest `service`, `version`, `sdk`, feature name, label key, label value or `content_type`, in bytes.
pub const WORD_BYTES_MAX: usize = 256;
/// Longest description, reason, message, trace header or URL, in bytes.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Largest encoded JSON Schema or `details`, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 65_536;
/// Most labels of an agent, a capability or a call.
pub const LABELS_MAX: usize = 64;
/// Most capabilities of one agent.
pub const CAPABILITIES_MAX: usize = 1024;
/// Most aliases of one capability.
pub const ALIASES_MAX: usize = 16;
/// Most patterns in `calls`, most agents in `agents`, most feature names.
pub const LIST_MAX: usize = 1024;
/// Most private (`x-`) keys of one header.
pub const PRIVATE_KEYS_MAX: usize = 32;
/// Most bytes of all private (`x-`) keys and values of one header together.
pub const PRIVATE_BYTES_MAX: usize = 16_384;

/// Slots of an agent that names no `max_concurrency`.
pub const MAX_CONCURRENCY_DEFAULT: u64 = 50;
/// Most slots of an agent: more are read as so many.
pub const MAX_CONCURRENCY_MAX: u64 = 65_536;
/// Longest `accept_timeout_ms`, `timeout_ms` and `budget_ms`, in milliseconds: longer ones are read as so long.
pub const TIME_MS_MAX: u64 = 86_400_000;
/// First window of a stream when the caller names no `credit`, in chunks.
pub const CREDIT_DEFAULT: u64 = 16;
/// `keep_ms` of a call that names none, in milliseconds.
pub const KEEP_MS_DEFAULT: u64 = 86_400_000;
/// `keep_ms` that SDKs say for ids that they made themselves, and the hub uses for those that it made, in
/// milliseconds.
pub const KEEP_MS_MADE: u64 = 600_000;
/// Most bytes that the descriptions and schemas of one agent's capabilities have together.
pub const DESCRIPTIONS_BYTES_MAX: usize = 1 << 20;
/// How long a provider may hold ACCEPT back so that RESULT or CHUNK can stand for it, in milliseconds.
pub const ACCEPT_HOLD_MS: u64 = 5;
