//! Every metric of the hub, declared once: name, meaning, kind, labels and histogram buckets.

use agent_reach_core::DedupeOutcome;

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// A size at one moment.
    Gauge,
    /// Counts of observations up to each of these bounds, ascending, in the unit of the name.
    Histogram(&'static [f64]),
}

/// One metric of section 4 of the operations page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// With the prefix and the unit.
    pub name: &'static str,
    /// The HELP text.
    pub help: &'static str,
    /// The TYPE.
    pub kind: MetricKind,
    /// Names of the labels. Each takes words of a closed set; `capability` takes at most
    /// [`CAPABILITIES_MAX`] names and then [`OTHER`].
    pub labels: &'static [&'static str],
}

/// Most capability names that become labels; further ones are [`OTHER`].
pub const CAPABILITIES_MAX: usize = 200;
/// The label of everything beyond a bound.
pub const OTHER: &str = "other";
/// The label of a call whose capability no agent ever offered.
pub const NONE: &str = "none";

/// Words of `dedupe_total{outcome}`.
pub(super) const DEDUPE: [&str; 4] = [
    DedupeOutcome::Joined.as_str(),
    DedupeOutcome::Replayed.as_str(),
    DedupeOutcome::Conflict.as_str(),
    EVICTED,
];
/// Of those, what was forgotten early.
pub(super) const EVICTED: &str = "evicted";

pub(super) const CONNECTIONS: &str = "agent_reach_connections";
pub(super) const CONNECTIONS_TOTAL: &str = "agent_reach_connections_total";
pub(super) const HANDSHAKE_SECONDS: &str = "agent_reach_handshake_seconds";
pub(super) const AGENTS: &str = "agent_reach_agents";
pub(super) const FRAMES_TOTAL: &str = "agent_reach_frames_total";
pub(super) const BYTES_TOTAL: &str = "agent_reach_bytes_total";
pub(super) const CALLS_TOTAL: &str = "agent_reach_calls_total";
pub(super) const CALL_SECONDS: &str = "agent_reach_call_seconds";
pub(super) const HUB_SECONDS: &str = "agent_reach_hub_seconds";
pub(super) const IN_FLIGHT: &str = "agent_reach_in_flight";
pub(super) const QUEUED: &str = "agent_reach_queued";
pub(super) const RETRIES_TOTAL: &str = "agent_reach_retries_total";
pub(super) const DEDUPE_TOTAL: &str = "agent_reach_dedupe_total";
pub(super) const BREAKER_STATE: &str = "agent_reach_breaker_state";
pub(super) const TASKS: &str = "agent_reach_tasks";
pub(super) const CALLBACKS_TOTAL: &str = "agent_reach_callbacks_total";
pub(super) const SLOW_CONSUMERS_TOTAL: &str = "agent_reach_slow_consumers_total";
pub(super) const LIVENESS_TRANSITIONS_TOTAL: &str = "agent_reach_liveness_transitions_total";
pub(super) const REGISTRATIONS_REFUSED_TOTAL: &str = "agent_reach_registrations_refused_total";
pub(super) const AUTH_FAILURES_TOTAL: &str = "agent_reach_auth_failures_total";
pub(super) const CERTIFICATE_EXPIRY_SECONDS: &str = "agent_reach_certificate_expiry_seconds";
pub(super) const CONFIG_RELOADS_TOTAL: &str = "agent_reach_config_reloads_total";
pub(super) const STORE_FLUSH_SECONDS: &str = "agent_reach_store_flush_seconds";
pub(super) const STORE_WRITABLE: &str = "agent_reach_store_writable";
pub(super) const STORE_DROPPED_TOTAL: &str = "agent_reach_store_dropped_total";
pub(super) const STORE_BACKLOG_BYTES: &str = "agent_reach_store_backlog_bytes";
pub(super) const STORE_LOG_BYTES: &str = "agent_reach_store_log_bytes";
pub(super) const AUDIT_DROPPED_TOTAL: &str = "agent_reach_audit_dropped_total";
pub(super) const SPANS_EXPORTED_TOTAL: &str = "agent_reach_spans_exported_total";
pub(super) const SPANS_DROPPED_TOTAL: &str = "agent_reach_spans_dropped_total";
pub(super) const OUTBOUND_BYTES: &str = "agent_reach_outbound_bytes";
pub(super) const BUILD_INFO: &str = "agent_reach_build_info";

/// Words of `config_reloads_total{outcome}`.
pub(super) const RELOAD_OUTCOMES: [&str; 2] = ["completed", "failed"];

/// Every metric with the hub's prefix. The `process_*` ones are Prometheus' own and stand in `process.rs`.
pub const METRICS: [Metric; 32] = [
    gauge(CONNECTIONS, "Open connections of agents, registered or not.", &[]),
    counter(
        CONNECTIONS_TOTAL,
        "Connections by how their handshake ended: completed or an error code.",
        &["outcome"],
    ),
    histogram(
        HANDSHAKE_SECONDS,
        "From TCP accept to the open WebSocket, completed handshakes only.",
        &[],
        HANDSHAKE,
    ),
    gauge(AGENTS, "Agents by status; away ones may still come back.", &["status"]),
    counter(FRAMES_TOTAL, "Protocol messages by kind, in from and out to agents.", &["direction", "kind"]),
    counter(BYTES_TOTAL, "Bytes of protocol messages as MessagePack.", &["direction"]),
    counter(
        CALLS_TOTAL,
        "Ended calls by capability, mode and outcome: completed or an error code.",
        &["capability", "mode", "outcome"],
    ),
    histogram(
        CALL_SECONDS,
        "Times of calls: to ACCEPT, from ACCEPT to the end, and in total.",
        &["capability", "phase"],
        CALL,
    ),
    histogram(
        HUB_SECONDS,
        "Time that a message spends inside the hub, from the socket of one agent to that of the next.",
        &[],
        HUB,
    ),
    gauge(IN_FLIGHT, "Calls that agents are working on.", &[]),
    gauge(QUEUED, "Calls that wait for a busy capability.", &["capability"]),
    counter(RETRIES_TOTAL, "Further tries after a failure, by tier.", &["tier"]),
    counter(
        DEDUPE_TOTAL,
        "Calls whose request_id was seen before, and ends forgotten early for room.",
        &["outcome"],
    ),
    gauge(BREAKER_STATE, "Pairs of agent and capability by the state of their breaker.", &["state"]),
    gauge(TASKS, "Stored tasks by state.", &["state"]),
    counter(CALLBACKS_TOTAL, "Deliveries of webhooks: completed or an error code.", &["outcome"]),
    counter(SLOW_CONSUMERS_TOTAL, "Sessions ended since their outbound queue passed its bound.", &[]),
    counter(LIVENESS_TRANSITIONS_TOTAL, "Sessions that became silent or were heard again.", &["to"]),
    counter(REGISTRATIONS_REFUSED_TOTAL, "HELLOs that were refused.", &[]),
    counter(
        AUTH_FAILURES_TOTAL,
        "Peers that did not prove who they are, or may not be who they say.",
        &["reason"],
    ),
    gauge(
        CERTIFICATE_EXPIRY_SECONDS,
        "When what ends, in seconds since 1970: certificates of the listeners and of authorities, the revocation list.",
        &["certificate"],
    ),
    counter(CONFIG_RELOADS_TOTAL, "Reloads of certificates and policy: completed or failed.", &["outcome"]),
    histogram(STORE_FLUSH_SECONDS, "Time of one batch of writes to the store.", &[], STORE),
    gauge(STORE_WRITABLE, "Whether the store takes new tasks: 1, or 0 while it cannot write.", &[]),
    counter(
        STORE_DROPPED_TOTAL,
        "What was not stored for want of room: records of ended calls, outcomes of calls.",
        &["what"],
    ),
    gauge(STORE_BACKLOG_BYTES, "Bytes of changes that wait to be written to the store.", &[]),
    gauge(STORE_LOG_BYTES, "Bytes of the store's log of writes.", &[]),
    counter(AUDIT_DROPPED_TOTAL, "Audit records that could not be written.", &[]),
    counter(
        SPANS_EXPORTED_TOTAL,
        "Spans by how their export ended: completed or an error code.",
        &["outcome"],
    ),
    counter(SPANS_DROPPED_TOTAL, "Spans that were not exported for want of room.", &[]),
    gauge(OUTBOUND_BYTES, "Bytes that wait in all outbound queues.", &[]),
    gauge(BUILD_INFO, "Always 1; the labels tell the build.", &["version"]),
];

/// A handshake is three round trips and two signatures: from a millisecond here to seconds far away, and
/// up to the default bound of 5 s and beyond it.
const HANDSHAKE: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// From a call between neighbours to the default budget of 60 s, and tasks beyond it.
const CALL: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
];
/// The hub's own share is microseconds; what is more means queueing.
const HUB: &[f64] = &[
    0.000_005, 0.000_01, 0.000_025, 0.000_05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1,
    0.5,
];
/// From a write into the page cache to a disk that stalls.
const STORE: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, kind: MetricKind::Counter, labels }
}

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, kind: MetricKind::Gauge, labels }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    buckets: &'static [f64],
) -> Metric {
    Metric { name, help, kind: MetricKind::Histogram(buckets), labels }
}
