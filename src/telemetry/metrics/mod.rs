//! Prometheus metrics of the hub.
//!
//! The recorder is a value, not the one of the process: nothing that a dependency counts gets onto the page,
//! two hubs in one process (a demo, a test) do not mix, and no global has to be set before another.
//!
//! Labels take words of closed sets, and capabilities that agents really offered, of which the first 200
//! count by name. An agent's id is never a label: series would grow with every agent that ever came.

mod names;
mod process;
mod series;
mod spans;
mod stored;

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agent_reach_core::{Counters, Fact, Gauges, Liveness, Outcome, Tier};
use agent_reach_protocol::{ErrorCode, GoodbyeCode, Kind};
use metrics::{Counter, Gauge, Histogram, Recorder};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use rustls::CertificateError;

use crate::store::StoreFigures;
pub use names::{CAPABILITIES_MAX, METRICS, Metric, MetricKind, NONE, OTHER};
use series::{CallSeries, CountersByWord, Ended, QueuedSeries, Registrar};
pub use spans::SpanSeries;
use stored::StoreSeries;

/// The metrics of one hub. Every name has its HELP and TYPE line from the start.
#[derive(Debug)]
pub struct Metrics {
    registrar: Registrar,
    page: PrometheusHandle,
    calls: Mutex<CallSeries>,
    queued: Mutex<QueuedSeries>,
    sizes: Sizes,
    frames: Vec<(Kind, Counter, Counter)>,
    bytes_in: Counter,
    bytes_out: Counter,
    connections_total: CountersByWord,
    dedupe: CountersByWord,
    retries: CountersByWord,
    liveness: CountersByWord,
    auth_failures: CountersByWord,
    refused: Counter,
    slow_consumers: Counter,
    handshake: Histogram,
    hub: Histogram,
    callbacks: CountersByWord,
    reloads: CountersByWord,
    store: StoreSeries,
    audit_dropped: Counter,
    spans: Arc<SpanSeries>,
}

/// Gauges that are set at each scrape.
#[derive(Debug)]
struct Sizes {
    connections: Gauge,
    ready: Gauge,
    degraded: Gauge,
    draining: Gauge,
    suspect: Gauge,
    away: Gauge,
    in_flight: Gauge,
    outbound_bytes: Gauge,
    breakers_closed: Gauge,
    breakers_open: Gauge,
    breakers_half_open: Gauge,
}

impl Metrics {
    /// Sets up a recorder of its own, with every series whose labels are known at zero.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a recorder is not made by the way")]
    pub fn new() -> Self {
        let registrar = Registrar(recorder());
        describe(&registrar);
        later(&registrar);
        let frames = Kind::ALL.iter().map(|kind| {
            let counter = |direction: &'static str| {
                let labels = [("direction", direction.into()), ("kind", kind.name().into())];
                registrar.counter(names::FRAMES_TOTAL, &labels)
            };
            (*kind, counter("in"), counter("out"))
        });
        let bytes = |direction: &'static str| {
            registrar.counter(names::BYTES_TOTAL, &[("direction", direction.into())])
        };
        let to = [Liveness::Ready, Liveness::Suspect, Liveness::Gone].map(Liveness::as_str);
        Self {
            page: registrar.0.handle(),
            calls: Mutex::new(CallSeries::new(&registrar)),
            queued: Mutex::new(QueuedSeries::new(&registrar)),
            sizes: Sizes::new(&registrar),
            frames: frames.collect(),
            bytes_in: bytes("in"),
            bytes_out: bytes("out"),
            connections_total: registrar.counters(names::CONNECTIONS_TOTAL, "outcome", &CONNECTION_OUTCOMES),
            dedupe: registrar.counters(names::DEDUPE_TOTAL, "outcome", &names::DEDUPE),
            retries: registrar.counters(names::RETRIES_TOTAL, "tier", &TIERS.map(Tier::as_str)),
            liveness: registrar.counters(names::LIVENESS_TRANSITIONS_TOTAL, "to", &to),
            auth_failures: registrar.counters(names::AUTH_FAILURES_TOTAL, "reason", &AUTH_REASONS),
            refused: registrar.counter(names::REGISTRATIONS_REFUSED_TOTAL, &[]),
            slow_consumers: registrar.counter(names::SLOW_CONSUMERS_TOTAL, &[]),
            handshake: registrar.histogram(names::HANDSHAKE_SECONDS, &[]),
            hub: registrar.histogram(names::HUB_SECONDS, &[]),
            callbacks: registrar.counters(names::CALLBACKS_TOTAL, "outcome", &CALLBACK_OUTCOMES),
            reloads: registrar.counters(names::CONFIG_RELOADS_TOTAL, "outcome", &names::RELOAD_OUTCOMES),
            store: StoreSeries::new(&registrar),
            audit_dropped: registrar.counter(names::AUDIT_DROPPED_TOTAL, &[]),
            spans: Arc::new(SpanSeries::new(&registrar)),
            registrar,
        }
    }

    /// Counts what happened. Runs once for each call: it takes one lock that nobody else holds for long,
    /// and finds the series of the call without building their labels again.
    pub fn record(&self, fact: &Fact) {
        match fact {
            Fact::Registered { .. }
            | Fact::Left { .. }
            | Fact::CallTraced(_)
            | Fact::TaskEnded { .. }
            | Fact::WatchEnded { .. }
            | Fact::Act { .. } => {}
            Fact::Refused { reason, .. } => {
                self.refused.increment(1);
                if AUTH_REASONS.contains(reason) {
                    self.auth_failures.increment(reason);
                }
            }
            Fact::Liveness { to, .. } => self.liveness.increment(to.as_str()),
            Fact::SlowConsumer { .. } => self.slow_consumers.increment(1),
            Fact::CallEnded { capability, mode, outcome, accept_us, process_us, total_us, record: _ } => {
                let ended = Ended {
                    mode: *mode,
                    outcome: *outcome,
                    accept_us: *accept_us,
                    process_us: *process_us,
                    total_us: *total_us,
                };
                // Poison says that a thread panicked over it; the counts are still counts.
                let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
                calls.record(&self.registrar, capability.as_ref(), ended);
            }
            Fact::Dedupe(outcome) => self.dedupe.increment(outcome.as_str()),
            Fact::Evicted { count } => self.dedupe.add(names::EVICTED, *count as u64),
            Fact::Retry(tier) => self.retries.increment(tier.as_str()),
        }
    }

    /// Counts a connection of the agent listener, once, when its handshake (TLS and WebSocket) is over:
    /// `Completed`, or failed with `Unauthorized` (no or a bad certificate), `Timeout`, `Overloaded` (over
    /// `max_connections`), `ShuttingDown` (while draining), or `InvalidRequest` for everything else that is
    /// no WebSocket of ours.
    pub fn connection(&self, outcome: Outcome) {
        self.connections_total.increment(outcome.as_str());
    }

    /// Notes how long a handshake took that was completed.
    pub fn handshake(&self, took: Duration) {
        self.handshake.record(took.as_secs_f64());
    }

    /// Notes how long a message was inside the hub.
    pub fn hub_seconds(&self, took: Duration) {
        self.hub.record(took.as_secs_f64());
    }

    /// Notes how long a batch of writes to the store took.
    pub fn store_flush(&self, took: Duration) {
        self.store.flush.record(took.as_secs_f64());
    }

    /// Counts a delivery of a webhook: `completed`, or an error code.
    pub fn callback(&self, outcome: &'static str) {
        self.callbacks.increment(outcome);
    }

    /// Notes when a certificate ends, or a revocation list is to be replaced: seconds since 1970. `what` is one of the
    /// closed set of [`crate::reload`].
    pub fn certificate_expiry(&self, what: &'static str, at: i64) {
        let label = [("certificate", what.into())];
        self.registrar.gauge(names::CERTIFICATE_EXPIRY_SECONDS, &label).set(at as f64);
    }

    /// Counts a reload: `completed` or `failed`.
    pub fn reload(&self, outcome: &'static str) {
        self.reloads.increment(outcome);
    }

    /// Counts a peer that did not prove who it is. The reason is a word of [`AUTH_REASONS`], as
    /// [`tls_reason`] and [`crate::transport::identity::IdentityError::reason`] give it; any other word
    /// counts as `other`. Refused HELLOs count by themselves, in [`Metrics::record`].
    pub fn auth_failure(&self, reason: &'static str) {
        self.auth_failures.increment(reason);
    }

    /// Notes how many lines the audit has dropped since the start.
    pub fn audit_dropped(&self, count: u64) {
        self.audit_dropped.absolute(count);
    }

    /// The page for Prometheus, in text format 0.0.4. Reads `/proc` and may take milliseconds: not for a
    /// task that others wait for.
    #[must_use]
    pub fn scrape(
        &self,
        counters: &Counters,
        gauges: &Gauges,
        queued: &[(Option<Arc<str>>, usize)],
        store: Option<&StoreFigures>,
    ) -> String {
        self.sizes.set(gauges);
        if let Some(store) = store {
            self.store.set(store);
        }
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).set(&self.registrar, queued);
        for (kind, received, sent) in &self.frames {
            received.absolute(counters.frames_in(*kind));
            sent.absolute(counters.frames_out(*kind));
        }
        self.bytes_in.absolute(counters.bytes_in);
        self.bytes_out.absolute(counters.bytes_out);
        let mut page = self.page.render();
        process::append(&mut page);
        page
    }

    /// Moves observations into their buckets, for ever: to be run as a task, and aborted at the end.
    ///
    /// A histogram keeps each observation, with its moment, in a list until somebody renders the page. If
    /// nobody scrapes, that list is the hub's one leak: at 50,000 calls a second it takes 2 MB each second.
    /// Once a second keeps it short, and the single emptying too brief to be felt.
    pub fn upkeep(&self) -> impl Future<Output = ()> + Send + use<> {
        let page = self.page.clone();
        async move {
            let mut due = tokio::time::interval(UPKEEP);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                page.run_upkeep();
            }
        }
    }
}

impl Sizes {
    fn new(registrar: &Registrar) -> Self {
        let agents = |status: &'static str| registrar.gauge(names::AGENTS, &[("status", status.into())]);
        let breakers =
            |state: &'static str| registrar.gauge(names::BREAKER_STATE, &[("state", state.into())]);
        Self {
            breakers_closed: breakers("closed"),
            breakers_open: breakers("open"),
            breakers_half_open: breakers("half_open"),
            connections: registrar.gauge(names::CONNECTIONS, &[]),
            ready: agents("ready"),
            degraded: agents("degraded"),
            draining: agents("draining"),
            suspect: agents("suspect"),
            away: agents("away"),
            in_flight: registrar.gauge(names::IN_FLIGHT, &[]),
            outbound_bytes: registrar.gauge(names::OUTBOUND_BYTES, &[]),
        }
    }

    fn set(&self, gauges: &Gauges) {
        let sizes = [
            (&self.connections, gauges.connections),
            (&self.ready, gauges.agents_ready),
            (&self.degraded, gauges.agents_degraded),
            (&self.draining, gauges.agents_draining),
            (&self.suspect, gauges.agents_suspect),
            (&self.away, gauges.agents_away),
            (&self.in_flight, gauges.in_flight),
            (&self.outbound_bytes, gauges.outbound_bytes),
            (&self.breakers_closed, gauges.breakers_closed),
            (&self.breakers_open, gauges.breakers_open),
            (&self.breakers_half_open, gauges.breakers_half_open),
        ];
        for (gauge, size) in sizes {
            gauge.set(size as f64);
        }
    }
}

/// How often observations are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(1);

/// Words of `connections_total{outcome}`. The last one takes what is not among them.
const CONNECTION_OUTCOMES: [&str; 6] = [
    Outcome::Completed.as_str(),
    ErrorCode::Unauthorized.as_str(),
    ErrorCode::Timeout.as_str(),
    ErrorCode::Overloaded.as_str(),
    ErrorCode::ShuttingDown.as_str(),
    ErrorCode::InvalidRequest.as_str(),
];

/// Words of `callbacks_total{outcome}`.
const CALLBACK_OUTCOMES: [&str; 9] = [
    Outcome::Completed.as_str(),
    ErrorCode::Cancelled.as_str(),
    ErrorCode::RateLimited.as_str(),
    ErrorCode::Overloaded.as_str(),
    ErrorCode::HandlerError.as_str(),
    ErrorCode::Unauthorized.as_str(),
    ErrorCode::NoInstance.as_str(),
    ErrorCode::Timeout.as_str(),
    ErrorCode::Internal.as_str(),
];

const TIERS: [Tier; 3] = [Tier::SameAgent, Tier::OtherAgent, Tier::Cached];

/// Words of `auth_failures_total{reason}`: of TLS, of the certificate's names, of the core's refusals, and of
/// tokens.
pub const AUTH_REASONS: [&str; 14] = [
    "certificate_missing",
    "certificate_expired",
    "certificate_revoked",
    "certificate_unknown_authority",
    "certificate_invalid",
    "certificate_unreadable",
    "certificate_without_name",
    "certificate_several_names",
    "certificate_name_form",
    GoodbyeCode::Unauthorized.as_str(),
    GoodbyeCode::CredentialsExpired.as_str(),
    GoodbyeCode::CredentialsRevoked.as_str(),
    "token",
    OTHER,
];

/// What a failed TLS handshake says of the peer's certificate: a word of [`AUTH_REASONS`], or `None` when it
/// failed for another reason (no TLS at all, no common cipher, a lost connection).
#[must_use]
pub fn tls_reason(error: &std::io::Error) -> Option<&'static str> {
    certificate_reason(error.get_ref()?.downcast_ref::<rustls::Error>()?)
}

/// The same of what TLS itself says.
#[must_use]
pub fn certificate_reason(error: &rustls::Error) -> Option<&'static str> {
    if *error == rustls::Error::NoCertificatesPresented {
        return Some("certificate_missing");
    }
    let rustls::Error::InvalidCertificate(error) = error else { return None };
    let reason = if matches!(error, CertificateError::Expired | CertificateError::ExpiredContext { .. }) {
        "certificate_expired"
    } else if *error == CertificateError::Revoked {
        "certificate_revoked"
    } else if *error == CertificateError::UnknownIssuer {
        "certificate_unknown_authority"
    } else {
        "certificate_invalid"
    };
    Some(reason)
}

fn recorder() -> metrics_exporter_prometheus::PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let MetricKind::Histogram(buckets) = metric.kind {
            #[expect(clippy::expect_used, reason = "fails without buckets only, and these are constants")]
            let with = builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
                .expect("a histogram has buckets");
            builder = with;
        }
    }
    builder.build_recorder()
}

fn describe(registrar: &Registrar) {
    for Metric { name, help, kind, .. } in METRICS {
        let recorder = &registrar.0;
        match kind {
            MetricKind::Counter => recorder.describe_counter(name.into(), None, help.into()),
            MetricKind::Gauge => recorder.describe_gauge(name.into(), None, help.into()),
            MetricKind::Histogram(_) => recorder.describe_histogram(name.into(), None, help.into()),
        }
    }
}

/// Series that nothing feeds yet, or that never change: dashboards and alerts find them from the start.
fn later(registrar: &Registrar) {
    registrar.gauge(names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION").into())]).set(1.0);
    // Every agent listener has one.
    registrar.gauge(names::CERTIFICATE_EXPIRY_SECONDS, &[("certificate", "agents".into())]).set(0.0);
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
