//! What an operator may set, as the core needs it. Defaults are those of `docs/operations.md`.

use std::fmt;
use std::sync::Arc;

use agent_reach_protocol::{ErrorCode, limits};

use crate::breaker::BreakerSettings;
use crate::spans::Sampling;

/// What the store keeps of the ends of calls, beside all tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// Nothing.
    Tasks,
    /// Those that are to be known for more than ten minutes.
    Keyed,
    /// All.
    All,
}

/// The one form of a URL that results may be sent to; an error code and a reason for another.
pub type CallbackCheck = dyn Fn(&str) -> Result<String, (ErrorCode, String)> + Send + Sync;

/// The rule for `callback_url`.
#[derive(Clone)]
pub struct Callbacks(pub Arc<CallbackCheck>);

impl Default for Callbacks {
    fn default() -> Self {
        Self(Arc::new(|_| Err((ErrorCode::Unauthorized, "this hub calls no URLs".to_owned()))))
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callbacks")
    }
}

/// Bounds and times of the hub. All times in milliseconds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name and version said in WELCOME.
    pub hub_name: String,
    /// Seed of every random choice; also part of call ids. Take it from the system's randomness.
    pub seed: u64,
    /// HELLO has to come within this. Default 5000.
    pub handshake_timeout_ms: u64,
    /// Longest silence an agent allows itself. Default 5000.
    pub keepalive_ms: u64,
    /// Silence after which nothing new is routed to an agent. Default 15000.
    pub suspect_ms: u64,
    /// Silence after which an agent is removed. Default 30000.
    pub gone_ms: u64,
    /// How long an agent whose connection ended may take to come back. Default 10000.
    pub resume_ms: u64,
    /// Largest message in bytes. Default 1 MiB.
    pub max_message: usize,
    /// Most open calls of one connection. Default 1024.
    pub max_in_flight: usize,
    /// Most bytes in one outbound queue. Default 4 MiB.
    pub outbound_bytes: usize,
    /// Most bytes of all open calls' messages together. Default 256 MiB.
    pub open_bytes: usize,
    /// Most bytes of one agent's open calls, so that none can take what all have. Default 64 MiB.
    pub open_bytes_each: usize,
    /// Most HELLOs of one agent in 10 seconds. Default 5.
    pub registrations_per_10s: usize,
    /// Phase one, when the call names none. Default 3000.
    pub accept_timeout_ms: u64,
    /// Processing, when neither call nor capability names one. Default 30000.
    pub timeout_ms: u64,
    /// Everything, when the call names none. Default 60000.
    pub budget_ms: u64,
    /// Further tries on the same agent, when the call names none. Default 2.
    pub retries: u64,
    /// Before the first of them; doubled before each further one. Default 500.
    pub retry_base_ms: u64,
    /// Up to so much is added to each, at random. Default 200.
    pub retry_jitter_ms: u64,
    /// When an agent is given no more calls of a capability that fails there.
    pub breaker: BreakerSettings,
    /// Most calls that wait for one capability. Default 10000.
    pub queue_len: usize,
    /// Most bytes in all outbound queues together; past it the fullest is ended. Default 256 MiB.
    pub outbound_total: usize,
    /// Longest a request id is remembered. Default 24 h.
    pub dedupe_ttl_ms: u64,
    /// Most bytes of remembered ends. Default 256 MiB.
    pub dedupe_bytes: usize,
    /// How many ended calls keep their trace. Default 4096.
    pub traces: usize,
    /// Most capability names remembered as once offered. Default 10000.
    pub names: usize,
    /// Most bytes that wait for the credit of one watch; four times as many for all. Default 16 MiB.
    pub watch_bytes: usize,
    /// Whether there is a store: without one there are no tasks. Default false.
    pub store: bool,
    /// Whether records of ended calls are wanted. Default false.
    pub records: bool,
    /// Which calls are told of as [`crate::Fact::CallTraced`]. Default: none.
    pub spans: Option<Sampling>,
    /// What the store keeps of calls. Default keyed.
    pub durable: Durable,
    /// The hub's start, in milliseconds since the Unix epoch: what is stored has moments that outlive the process.
    /// Default 0.
    pub started_unix_ms: u64,
    /// Most bytes of all open tasks. Default 512 MiB.
    pub task_bytes: usize,
    /// How long the end of a task is kept, in milliseconds. Default 24 h.
    pub task_keep_ms: u64,
    /// How often a result is sent that nobody confirms, in milliseconds. Default 30000.
    pub redeliver_ms: u64,
    /// How long after the hub's start those may take to come back who had a task when it ended. Default: the longest
    /// pause of an SDK between two attempts, and `resume_ms`.
    pub return_ms: u64,
    /// Where results may be sent. Default: nowhere.
    pub callbacks: Callbacks,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hub_name: concat!("agent-reach/", env!("CARGO_PKG_VERSION")).to_owned(),
            seed: 0,
            handshake_timeout_ms: 5000,
            keepalive_ms: 5000,
            suspect_ms: 15_000,
            gone_ms: 30_000,
            resume_ms: 10_000,
            max_message: limits::MESSAGE_BYTES_DEFAULT,
            max_in_flight: 1024,
            outbound_bytes: 4 << 20,
            open_bytes: 256 << 20,
            open_bytes_each: 64 << 20,
            registrations_per_10s: 5,
            accept_timeout_ms: 3000,
            timeout_ms: 30_000,
            budget_ms: 60_000,
            retries: 2,
            retry_base_ms: 500,
            retry_jitter_ms: 200,
            breaker: BreakerSettings::default(),
            queue_len: 10_000,
            outbound_total: 256 << 20,
            dedupe_ttl_ms: limits::KEEP_MS_DEFAULT,
            dedupe_bytes: 256 << 20,
            traces: 4096,
            names: 10_000,
            watch_bytes: 16 << 20,
            store: false,
            records: false,
            spans: None,
            durable: Durable::Keyed,
            started_unix_ms: 0,
            task_bytes: 512 << 20,
            task_keep_ms: 86_400_000,
            redeliver_ms: 30_000,
            return_ms: 70_000,
            callbacks: Callbacks::default(),
        }
    }
}
