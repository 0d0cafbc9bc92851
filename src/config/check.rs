//! What the types cannot say: bounds, keys that belong together, and files that must be there.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use super::source::Source;
use super::{Audit, Callbacks, Config, Http};
use crate::callbacks::{Host, Keys};
use crate::telemetry::spans::Endpoint;
use crate::transport::pem;
use crate::transport::tls::{self, TlsError};

pub(super) fn version(source: &mut Source<'_>, version: Option<u64>) {
    match version {
        Some(1) => {}
        Some(other) => source.problem("version", format!("is {other}; this hub reads version = 1")),
        None if source.has("version") => {}
        None => source.problem("version", "is missing; write version = 1 in the first line"),
    }
}

pub(super) fn all(source: &mut Source<'_>, config: &Config, required_keys: &[(&str, &str)]) {
    required(source, config, required_keys);
    bounds(source, config);
    liveness(source, config);
    agents_files(source, config);
    http(source, config);
    listeners(source, config);
    callbacks(source, &config.callbacks);
    audit(source, &config.audit);
    tracing(source, config);
    let policy = config.policy.as_ref().filter(|_| source.has("policy.file"));
    if let Some(Err(problem)) = policy.map(|policy| super::read_text(&policy.file)) {
        source.problem("policy.file", problem.to_string());
    }
}

fn required(source: &mut Source<'_>, config: &Config, keys: &[(&str, &str)]) {
    let http = config.http.is_some().then_some(("http.listen", "listen = \"127.0.0.1:7080\""));
    let metrics = config.metrics.is_some().then_some(("metrics.listen", "listen = \"127.0.0.1:9464\""));
    for (key, example) in keys.iter().copied().chain(http).chain(metrics) {
        if !source.has(key) {
            let section = key.split('.').next().unwrap_or_default();
            source.problem(key, format!("is missing; write for example {example} in [{section}]"));
        }
    }
}

fn bounds(source: &mut Source<'_>, config: &Config) {
    const DAY: u64 = 86_400_000;
    const HOUR: u64 = 3_600_000;
    const TIB: u64 = 1 << 40;
    let Config { agents, liveness, limits, calls, breaker, dedupe, store, audit, .. } = config;
    let numbers: [(&str, u64, RangeInclusive<u64>); 32] = [
        ("agents.max_connections", agents.max_connections.into(), 1..=10_000_000),
        ("agents.handshake_timeout_ms", agents.handshake_timeout_ms, 100..=600_000),
        ("agents.max_handshakes", agents.max_handshakes.into(), 1..=65_536),
        ("agents.max_connections_per_address", agents.max_connections_per_address.into(), 0..=10_000_000),
        ("agents.max_handshakes_per_address", agents.max_handshakes_per_address.into(), 1..=65_536),
        ("agents.threads", agents.threads.into(), 1..=256),
        ("agents.drain_ms", agents.drain_ms, 0..=HOUR),
        ("liveness.keepalive_ms", liveness.keepalive_ms, 10..=600_000),
        ("liveness.suspect_ms", liveness.suspect_ms, 30..=HOUR),
        ("liveness.gone_ms", liveness.gone_ms, 31..=2 * HOUR),
        ("liveness.resume_ms", liveness.resume_ms, 0..=HOUR),
        ("limits.max_message", limits.max_message as u64, 1_024..=64 << 20),
        ("limits.max_in_flight", limits.max_in_flight as u64, 1..=1_000_000),
        ("limits.outbound_bytes", limits.outbound_bytes as u64, 1_024..=1 << 30),
        ("limits.queue_len", limits.queue_len as u64, 0..=10_000_000),
        ("limits.queue_bytes", limits.queue_bytes as u64, 0..=TIB),
        ("limits.registrations_per_10s", limits.registrations_per_10s.into(), 1..=100_000),
        ("calls.accept_timeout_ms", calls.accept_timeout_ms, 1..=DAY),
        ("calls.timeout_ms", calls.timeout_ms, 1..=DAY),
        ("calls.budget_ms", calls.budget_ms, 1..=DAY),
        ("calls.retries", calls.retries.into(), 0..=100),
        ("calls.retry_base_ms", calls.retry_base_ms, 1..=HOUR),
        ("calls.retry_jitter_ms", calls.retry_jitter_ms, 0..=HOUR),
        ("breaker.window_ms", breaker.window_ms, 100..=HOUR),
        ("breaker.min_calls", breaker.min_calls.into(), 1..=1_000_000),
        ("breaker.open_ms", breaker.open_ms, 10..=HOUR),
        ("dedupe.ttl_ms", dedupe.ttl_ms, 1..=30 * DAY),
        ("dedupe.max_bytes", dedupe.max_bytes as u64, 0..=TIB),
        ("store.flush_ms", store.flush_ms, 0..=10_000),
        ("audit.rotate_bytes", audit.rotate_bytes, 4_096..=TIB),
        ("audit.keep", audit.keep.into(), 0..=10_000),
        ("audit.flush_ms", audit.flush_ms, 0..=60_000),
    ];
    for (key, value, range) in numbers {
        number(source, key, value, &range);
    }
    if let Some(http) = &config.http {
        number(source, "http.header_timeout_ms", http.header_timeout_ms, &(100..=600_000));
        number(source, "http.body_timeout_ms", http.body_timeout_ms, &(100..=HOUR));
    }
    // Also refuses what is no number.
    if !(0.0..=1.0).contains(&breaker.min_success) {
        let message = format!("is {}; write a share from 0.0 to 1.0", breaker.min_success);
        source.problem("breaker.min_success", message);
    }
}

fn number(source: &mut Source<'_>, key: &str, value: u64, range: &RangeInclusive<u64>) {
    if !range.contains(&value) {
        source.problem(key, format!("is {value}; write a number from {} to {}", range.start(), range.end()));
    }
}

fn liveness(source: &mut Source<'_>, config: &Config) {
    let liveness = &config.liveness;
    // The problem stands at a key that was written: the other one may be a default.
    let at =
        |source: &Source<'_>, first: &'static str, second| if source.has(first) { first } else { second };
    let (keepalive, suspect, gone) = (liveness.keepalive_ms, liveness.suspect_ms, liveness.gone_ms);
    if suspect < keepalive.saturating_mul(3) {
        let key = at(source, "liveness.suspect_ms", "liveness.keepalive_ms");
        source.problem(
            key,
            format!(
                "suspect_ms is {suspect}, less than three times keepalive_ms ({keepalive}): agents would be \
                 suspected for one late heartbeat; raise suspect_ms or lower keepalive_ms"
            ),
        );
    }
    if gone <= suspect {
        let key = at(source, "liveness.gone_ms", "liveness.suspect_ms");
        source.problem(
            key,
            format!(
                "gone_ms is {gone}, not more than suspect_ms ({suspect}): agents would be removed before they \
                 are suspected; raise gone_ms or lower suspect_ms"
            ),
        );
    }
}

fn agents_files(source: &mut Source<'_>, config: &Config) {
    let agents = &config.agents;
    let mut good = true;
    good &= file(source, "agents.cert", Some(&agents.cert), |path| pem::certs(path).map(drop));
    good &= file(source, "agents.key", Some(&agents.key), |path| pem::key(path).map(drop));
    good &= file(source, "agents.client_ca", Some(&agents.client_ca), |path| pem::certs(path).map(drop));
    good &= file(source, "agents.crl", agents.crl.as_deref(), |path| pem::crls(path).map(drop));
    if !(good && ["agents.cert", "agents.key", "agents.client_ca"].iter().all(|key| source.has(key))) {
        return;
    }
    // Each can be read; now whether they fit each other.
    if let Err(error) = tls::server_config(&config.tls_files()) {
        let key = match &error {
            TlsError::KeyPair { .. } | TlsError::Pem(_) | TlsError::Versions(_) => "agents.key",
            TlsError::Root { .. } => "agents.client_ca",
            TlsError::Crl { .. } if agents.crl.is_some() => "agents.crl",
            TlsError::Crl { .. } => "agents.client_ca",
        };
        source.problem(key, format!("{error}; write the files that belong together"));
    }
}

fn http(source: &mut Source<'_>, config: &Config) {
    let Some(Http { listen, cert, key, allowed_origins, .. }) = &config.http else { return };
    let mut good = file(source, "http.cert", cert.as_deref(), |path| pem::certs(path).map(drop));
    good &= file(source, "http.key", key.as_deref(), |path| pem::key(path).map(drop));
    match (cert, key) {
        (Some(cert), Some(key)) if good => {
            if let Err(error) = tls::http_server_config(cert, key) {
                source.problem("http.key", format!("{error}; write the key that belongs to the certificate"));
            }
        }
        (Some(_), Some(_)) => {}
        (Some(_), None) => source.problem("http.cert", "has no key beside it; write http.key too"),
        (None, Some(_)) => source.problem("http.key", "has no certificate beside it; write http.cert too"),
        (None, None) if source.has("http.listen") && !listen.ip().is_loopback() => source.problem(
            "http.listen",
            format!("{listen} is not loopback, so tokens would pass in the clear; write http.cert and http.key, or listen on 127.0.0.1"),
        ),
        (None, None) => {}
    }
    if allowed_origins.len() > 100 {
        source.problem("http.allowed_origins", "has more than 100 entries; write at most 100");
    }
    for origin in allowed_origins.iter().filter(|origin| !is_origin(origin)) {
        let message = format!(
            "{origin:?} is no origin; write scheme and host as \"https://console.example.com\", without a path"
        );
        source.problem("http.allowed_origins", message);
    }
}

fn listeners(source: &mut Source<'_>, config: &Config) {
    let http = config.http.as_ref().map(|http| ("http.listen", http.listen));
    let metrics = config.metrics.as_ref().map(|metrics| ("metrics.listen", metrics.listen));
    let agents = [("agents.listen", config.agents.listen)];
    let all: Vec<_> = agents.into_iter().chain(http).chain(metrics).collect();
    for (at, (key, address)) in all.iter().enumerate() {
        if let Some((other, _)) = all.iter().take(at).find(|(_, other)| overlap(*address, *other)) {
            source.problem(key, format!("{address} is taken by {other} already; choose another port"));
        }
    }
}

fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && same
}

fn callbacks(source: &mut Source<'_>, callbacks: &Callbacks) {
    let Callbacks { allowed_hosts, secret_file, ca, schedule_ms } = callbacks;
    if allowed_hosts.len() > 1_000 {
        source.problem("callbacks.allowed_hosts", "has more than 1000 entries; write at most 1000");
    }
    for host in allowed_hosts {
        if let Err(error) = Host::parse(host) {
            source.problem("callbacks.allowed_hosts", format!("{host:?} {error}"));
        }
    }
    if schedule_ms.len() > 16 {
        source.problem("callbacks.schedule_ms", "has more than 16 entries; write at most 16");
    }
    for pause in schedule_ms {
        number(source, "callbacks.schedule_ms", *pause, &(1..=604_800_000));
    }
    file(source, "callbacks.ca", ca.as_deref(), |path| pem::certs(path).map(drop));
    match secret_file {
        Some(path) => {
            if let Err(error) = Keys::load(path) {
                source.problem("callbacks.secret_file", error.to_string());
            }
        }
        None if allowed_hosts.is_empty() => {}
        None => source.problem(
            "callbacks.secret_file",
            "is missing, and webhooks are always signed; name a file with whsec_ and base64 in it",
        ),
    }
}

fn audit(source: &mut Source<'_>, audit: &Audit) {
    if !audit.enabled {
        return;
    }
    if let Err(error) = crate::audit::check(&audit.path) {
        let path = audit.path.display();
        let message = format!(
            "{path}: cannot be written: {error}; name a file in a folder that is there and that the hub may write, \
             or write audit.enabled = false"
        );
        source.problem("audit.path", message);
    }
}

fn tracing(source: &mut Source<'_>, config: &Config) {
    let tracing = &config.tracing;
    if tracing.log.trim().is_empty() || tracing.log.len() > 1_024 {
        source.problem("tracing.log", "is no filter; write a level as \"info\", of at most 1024 bytes");
    }
    if let Some(Err(error)) = tracing.otlp_endpoint.as_deref().map(Endpoint::parse) {
        source.problem("tracing.otlp_endpoint", format!("{error}; write it as \"http://collector:4318\""));
    }
    // Also refuses what is no number.
    if !(0.0..=1.0).contains(&tracing.sample_ratio) {
        let message = format!("is {}; write a share from 0.0 to 1.0", tracing.sample_ratio);
        source.problem("tracing.sample_ratio", message);
    }
}

/// Tries a file that a key names. True when there is none to try, or it is good.
fn file(
    source: &mut Source<'_>,
    key: &str,
    path: Option<&Path>,
    read: impl FnOnce(&Path) -> Result<(), pem::PemError>,
) -> bool {
    let Some(path) = path.filter(|_| source.has(key)) else { return true };
    match read(path) {
        Ok(()) => true,
        Err(error) => {
            source.problem(key, format!("{error}; check the path, its permissions and that it is PEM"));
            false
        }
    }
}

fn is_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty()
            && host.len() <= 261
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:[]".contains(&b))
    })
}
