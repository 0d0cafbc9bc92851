//! The sections of the configuration: every key with its unit, bounds and default.
//!
//! The bounds are checked in `check.rs`; a key without bounds here takes any value of its type.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// `[agents]`: the listener that agents connect to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Agents {
    /// IP address and port to listen on, for example `0.0.0.0:7443`. Port 0 takes a free one. Required.
    #[serde(deserialize_with = "listen")]
    pub listen: SocketAddr,
    /// Certificate chain of the hub, PEM. Required.
    pub cert: PathBuf,
    /// Private key of the hub, PEM. Required.
    pub key: PathBuf,
    /// The authorities whose certificates agents may show, PEM. Required.
    pub client_ca: PathBuf,
    /// Revocation lists of those authorities, PEM. Default: none, nothing is revoked.
    pub crl: Option<PathBuf>,
    /// Most connections at one time. 1..=10_000_000, default 100_000.
    pub max_connections: u32,
    /// Longest time from TCP accept to the WebSocket, and again from there to HELLO. Milliseconds,
    /// 100..=600_000, default 5_000.
    pub handshake_timeout_ms: u64,
    /// Most handshakes at one time; more wait. 1..=65_536, default 64.
    pub max_handshakes: u32,
    /// Most connections of one address (of an IPv6 network of 64 bits), open or on their way. 0..=10_000_000, default 0:
    /// no bound but that of all. Behind a balancer or NAT that hides addresses all agents have one.
    pub max_connections_per_address: u32,
    /// Most handshakes of one address at one time; more wait. 1..=65_536, default 32.
    pub max_handshakes_per_address: u32,
    /// Threads that connections live on. More than one only where one is busy all the time: what two connections
    /// say to each other costs more when they live on different threads. 1..=256, default 1.
    pub threads: u32,
    /// How long a drain lets open calls finish. Milliseconds, 0..=3_600_000, default 10_000.
    pub drain_ms: u64,
    /// Also speak TLS 1.2. Default false: TLS 1.3 only.
    pub tls12: bool,
}

impl Default for Agents {
    fn default() -> Self {
        Self {
            listen: NOWHERE,
            cert: PathBuf::new(),
            key: PathBuf::new(),
            client_ca: PathBuf::new(),
            crl: None,
            max_connections: 100_000,
            handshake_timeout_ms: 5_000,
            max_handshakes: 64,
            max_connections_per_address: 0,
            max_handshakes_per_address: 32,
            threads: 1,
            drain_ms: 10_000,
            tls12: false,
        }
    }
}

/// `[http]`: console, HTTP API and browsers. Without the section there is none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// IP address and port to listen on. Required in the section.
    #[serde(deserialize_with = "listen")]
    pub listen: SocketAddr,
    /// Certificate chain, PEM. Without one the listener is plain, which only a loopback address may be.
    pub cert: Option<PathBuf>,
    /// Private key, PEM. Goes with `cert`.
    pub key: Option<PathBuf>,
    /// File of hashed tokens. Default `tokens.toml`.
    pub tokens: PathBuf,
    /// Origins that browsers may come from, as `https://console.example.com`. At most 100, default none.
    pub allowed_origins: Vec<String>,
    /// Longest time for a TLS handshake and for the head of a request, and so the longest that an idle connection is
    /// kept. Milliseconds, 100..=600_000, default 10_000.
    pub header_timeout_ms: u64,
    /// Longest time for the body of a request. Milliseconds, 100..=3_600_000, default 30_000.
    pub body_timeout_ms: u64,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: NOWHERE,
            cert: None,
            key: None,
            tokens: "tokens.toml".into(),
            allowed_origins: Vec::new(),
            header_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
        }
    }
}

/// `[metrics]`: Prometheus. Without the section there is none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// IP address and port to listen on. Required in the section.
    #[serde(deserialize_with = "listen")]
    pub listen: SocketAddr,
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: NOWHERE }
    }
}

/// `[liveness]`: how silence is judged. `suspect_ms` is at least three times `keepalive_ms`, and `gone_ms`
/// is more than `suspect_ms`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Liveness {
    /// Longest silence that an agent allows itself. Milliseconds, 10..=600_000, default 5_000.
    pub keepalive_ms: u64,
    /// Silence after which nothing new is routed to the agent. Milliseconds, 30..=3_600_000, default 15_000.
    pub suspect_ms: u64,
    /// Silence after which the agent is removed. Milliseconds, 31..=7_200_000, default 30_000.
    pub gone_ms: u64,
    /// How long open calls wait for a lost agent to return. Milliseconds, 0..=3_600_000, default 10_000.
    pub resume_ms: u64,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { keepalive_ms: 5_000, suspect_ms: 15_000, gone_ms: 30_000, resume_ms: 10_000 }
    }
}

/// `[limits]`: what one peer, and all together, may hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest WebSocket message. Bytes, 1_024..=67_108_864 (64 MiB), default 1_048_576.
    pub max_message: usize,
    /// Most open calls of one connection. 1..=1_000_000, default 1_024.
    pub max_in_flight: usize,
    /// Most bytes that wait to be written to one connection. Bytes, 1_024..=1_073_741_824, default 4_194_304.
    pub outbound_bytes: usize,
    /// Most calls that wait for a busy capability. 0..=10_000_000, default 10_000.
    pub queue_len: usize,
    /// Most bytes that all open calls hold, waiting or not. Bytes, 0..=1_099_511_627_776, default
    /// 268_435_456.
    pub queue_bytes: usize,
    /// Most HELLOs of one agent_id in ten seconds. 1..=100_000, default 5.
    pub registrations_per_10s: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message: 1_048_576,
            max_in_flight: 1_024,
            outbound_bytes: 4_194_304,
            queue_len: 10_000,
            queue_bytes: 268_435_456,
            registrations_per_10s: 5,
        }
    }
}

/// `[calls]`: what holds for a call that does not say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Calls {
    /// Phase one. Milliseconds, 1..=86_400_000, default 3_000.
    pub accept_timeout_ms: u64,
    /// Processing, from ACCEPT. Milliseconds, 1..=86_400_000, default 30_000.
    pub timeout_ms: u64,
    /// Everything, queueing included. Milliseconds, 1..=86_400_000, default 60_000.
    pub budget_ms: u64,
    /// Further tries on the same agent. 0..=100, default 2.
    pub retries: u32,
    /// First pause between tries; it doubles. Milliseconds, 1..=3_600_000, default 500.
    pub retry_base_ms: u64,
    /// Most that chance adds to a pause. Milliseconds, 0..=3_600_000, default 200.
    pub retry_jitter_ms: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            accept_timeout_ms: 3_000,
            timeout_ms: 30_000,
            budget_ms: 60_000,
            retries: 2,
            retry_base_ms: 500,
            retry_jitter_ms: 200,
        }
    }
}

/// `[breaker]`: when an agent's capability is taken out for failing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// The time that is looked back on. Milliseconds, 100..=3_600_000, default 30_000.
    pub window_ms: u64,
    /// Share of good calls below which it opens. 0..=1, default 0.6.
    pub min_success: f64,
    /// Fewest calls in the window to judge by. 1..=1_000_000, default 20.
    pub min_calls: u32,
    /// How long it stays open before a trial. Milliseconds, 10..=3_600_000, default 10_000.
    pub open_ms: u64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { window_ms: 30_000, min_success: 0.6, min_calls: 20, open_ms: 10_000 }
    }
}

/// Which outcomes are kept in the store and not only in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durable {
    /// Those of tasks alone.
    Tasks,
    /// Those of a request_id that is to be kept long, which is what a user gave.
    Keyed,
    /// All.
    All,
}

/// `[dedupe]`: outcomes by request_id, and cached results.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dedupe {
    /// The most that a call's `keep_ms` gets. Milliseconds, 1..=2_592_000_000 (30 days), default 86_400_000.
    pub ttl_ms: u64,
    /// Most memory for outcomes. Bytes, 0..=1_099_511_627_776, default 268_435_456.
    pub max_bytes: usize,
    /// What also goes to the store: `tasks`, `keyed` or `all`. Default `keyed`.
    pub durable: Durable,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self { ttl_ms: 86_400_000, max_bytes: 268_435_456, durable: Durable::Keyed }
    }
}

/// `[store]`: the database of tasks and kept outcomes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The file. Default `agent-reach.db`.
    pub path: PathBuf,
    /// Longest time that a write waits to be batched. Milliseconds, 0..=10_000, default 5.
    pub flush_ms: u64,
    /// Whether execution records of ended calls are kept. Default true.
    pub records: bool,
}

impl Default for Store {
    fn default() -> Self {
        Self { path: "agent-reach.db".into(), flush_ms: 5, records: true }
    }
}

impl Store {
    /// Where sessions of browsers are kept: beside the database, with `.sessions` behind its name.
    #[must_use]
    pub fn sessions(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".sessions");
        path.into()
    }
}

/// `[callbacks]`: webhooks for results of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Callbacks {
    /// Hosts that may be called: names or addresses, no port. At most 1_000, default none. An address of the inside
    /// is connected to only if it is here itself, whatever names resolve to it.
    pub allowed_hosts: Vec<String>,
    /// File with the signing secrets: `whsec_` and base64 of 24 to 64 bytes on each line, at most 16. The first
    /// signs first, all sign. Read again when it changes. Default: none; required with `allowed_hosts`.
    pub secret_file: Option<PathBuf>,
    /// Authorities to trust beside the usual ones, PEM. Default: none.
    pub ca: Option<PathBuf>,
    /// Pauses before each further delivery. Milliseconds each, 1..=604_800_000, at most 16 of them,
    /// default 1 min, 5 min, 30 min, 2 h, 12 h. There are five deliveries at most, so only the first four count.
    pub schedule_ms: Vec<u64>,
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            secret_file: None,
            ca: None,
            schedule_ms: vec![60_000, 300_000, 1_800_000, 7_200_000, 43_200_000],
        }
    }
}

/// `[audit]`: one line of JSON for each ended call, refusal and change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Whether there is one. Default true; with `dev` and `demo` only where the environment has a key of the section.
    pub enabled: bool,
    /// The file. Default `audit.jsonl`.
    pub path: PathBuf,
    /// Size at which a new file is begun. Bytes, 4_096..=1_099_511_627_776, default 104_857_600 (100 MiB).
    pub rotate_bytes: u64,
    /// How many old files are kept. 0..=10_000, default 10.
    pub keep: u32,
    /// Longest time that a line waits in memory. Milliseconds, 0..=60_000, default 200.
    pub flush_ms: u64,
}

impl Default for Audit {
    fn default() -> Self {
        Self { enabled: true, path: "audit.jsonl".into(), rotate_bytes: 104_857_600, keep: 10, flush_ms: 200 }
    }
}

/// `[policy]`: who may do what. `serve` needs one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The policy file, TOML. Required.
    pub file: PathBuf,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object of JSON a line.
    Json,
}

/// `[tracing]`: log and traces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tracing {
    /// OpenTelemetry collector, `http://` or `https://`; `/v1/traces` is added to it. At most 2_048 bytes. Default:
    /// none, and no call is traced.
    pub otlp_endpoint: Option<String>,
    /// Share of the calls without a `traceparent` for which a trace begins here. Where a caller sent one, its own
    /// decision counts. 0..=1, default 1.
    pub sample_ratio: f64,
    /// Level, or filter directives as `info,agent_reach=debug`. 1..=1_024 bytes, default `info`.
    pub log: String,
    /// `text` or `json`. Default `text`.
    pub format: LogFormat,
}

impl Default for Tracing {
    fn default() -> Self {
        Self { otlp_endpoint: None, sample_ratio: 1.0, log: "info".into(), format: LogFormat::Text }
    }
}

/// Stands for a required address until it is known to be there; no loaded configuration has it.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        serde::de::Error::custom(format!(
            "{text:?} is no address to listen on; write IP:PORT, for example \"0.0.0.0:7443\" or \"[::]:7443\""
        ))
    })
}
