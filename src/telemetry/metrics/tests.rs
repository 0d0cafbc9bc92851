use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_core::DedupeOutcome;
use agent_reach_protocol::CallMode;

use super::*;

fn page(metrics: &Metrics) -> String {
    metrics.scrape(&Counters::default(), &Gauges::default(), &[], None)
}

/// The value of the line that begins with this name and these labels.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {page}")).parse().unwrap()
}

fn ended(capability: Option<&str>, outcome: Outcome) -> Fact {
    Fact::CallEnded {
        capability: capability.map(Arc::from),
        mode: CallMode::Call,
        outcome,
        accept_us: Some(300),
        process_us: Some(40_000),
        total_us: 40_300,
        record: None,
    }
}

#[test]
fn every_metric_has_its_help_and_type_line_before_anything_happens() {
    let page = page(&Metrics::new());
    for Metric { name, help, kind, .. } in METRICS {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        assert!(page.contains(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")), "{name} in {page}");
    }
}

#[test]
fn nothing_is_on_the_page_that_is_not_declared_with_these_labels() {
    let metrics = Metrics::new();
    metrics.record(&ended(Some("a.b"), Outcome::Completed));
    let page = page(&metrics);
    for line in page.lines().filter(|line| line.starts_with("agent_reach_")) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let metric = METRICS.iter().find(|metric| {
            let rest = name.strip_prefix(metric.name);
            rest == Some("") || rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
        });
        let labels: BTreeSet<&str> = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|label| Some(label.split_once('=')?.0))
            .collect();
        let labels: Vec<&str> = labels.into_iter().filter(|label| *label != "le").collect();
        let mut declared = metric.unwrap_or_else(|| panic!("{line}")).labels.to_vec();
        declared.sort_unstable();
        assert_eq!(labels, declared, "{line}");
    }
}

#[test]
fn names_carry_the_prefix_and_counters_end_in_total() {
    for Metric { name, kind, .. } in METRICS {
        assert!(name.starts_with("agent_reach_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == MetricKind::Counter, "{name}");
        if let MetricKind::Histogram(buckets) = kind {
            assert!(name.ends_with("_seconds") && buckets.is_sorted() && !buckets.is_empty(), "{name}");
        }
    }
}

#[test]
fn an_ended_call_counts_with_capability_mode_and_outcome_and_its_times() {
    let metrics = Metrics::new();
    metrics.record(&ended(Some("order.create"), Outcome::Completed));
    metrics.record(&ended(Some("order.create"), Outcome::Completed));
    metrics.record(&ended(Some("order.create"), Outcome::Failed(ErrorCode::Timeout)));
    let page = page(&metrics);
    let calls = r#"agent_reach_calls_total{capability="order.create",mode="call",outcome="#;
    assert_eq!(value(&page, &format!("{calls}\"completed\"}}")), 2.0);
    assert_eq!(value(&page, &format!("{calls}\"timeout\"}}")), 1.0);
    let bucket = r#"agent_reach_call_seconds_bucket{capability="order.create",phase="#;
    assert_eq!(value(&page, &format!("{bucket}\"accept\",le=\"0.0005\"}}")), 3.0);
    assert_eq!(value(&page, &format!("{bucket}\"process\",le=\"0.025\"}}")), 0.0);
    assert_eq!(value(&page, &format!("{bucket}\"total\",le=\"0.05\"}}")), 3.0);
}

#[test]
fn a_call_that_was_never_accepted_has_a_total_only() {
    let metrics = Metrics::new();
    metrics.record(&Fact::CallEnded {
        capability: None,
        mode: CallMode::Notify,
        outcome: Outcome::Failed(ErrorCode::NoCapability),
        accept_us: None,
        process_us: None,
        total_us: 12,
        record: None,
    });
    let page = page(&metrics);
    let ends = r#"agent_reach_calls_total{capability="none",mode="notify",outcome="no_capability"}"#;
    assert_eq!(value(&page, ends), 1.0);
    let count = |phase| {
        value(&page, &format!("agent_reach_call_seconds_count{{capability=\"none\",phase=\"{phase}\"}}"))
    };
    assert_eq!((count("accept"), count("process"), count("total")), (0.0, 0.0, 1.0));
}

#[test]
fn capabilities_past_the_bound_share_one_series() {
    let metrics = Metrics::new();
    for number in 0..CAPABILITIES_MAX + 50 {
        metrics.record(&ended(Some(&format!("c.n{number}")), Outcome::Completed));
    }
    // One that is known keeps its own.
    metrics.record(&ended(Some("c.n0"), Outcome::Completed));
    let page = page(&metrics);
    let series = |name: &str| {
        value(
            &page,
            &format!("agent_reach_calls_total{{capability=\"{name}\",mode=\"call\",outcome=\"completed\"}}"),
        )
    };
    assert_eq!((series("c.n0"), series("c.n199"), series(OTHER)), (2.0, 1.0, 50.0));
    assert!(!page.contains("c.n200\""));
    let names = page.lines().filter(|line| line.starts_with("agent_reach_calls_total{")).count();
    assert_eq!(names, CAPABILITIES_MAX + 2);
}

#[test]
fn facts_about_agents_count_without_naming_them() {
    let metrics = Metrics::new();
    let agent: Arc<str> = "zaphod".into();
    let refused = |reason| Fact::Refused { identity: Arc::clone(&agent), agent: agent.to_string(), reason };
    for fact in [
        Fact::Registered { agent: Arc::clone(&agent), identity: Arc::clone(&agent), replaced: false },
        refused("unauthorized"),
        refused("rate_limited"),
        Fact::Liveness { agent: Arc::clone(&agent), to: Liveness::Suspect },
        Fact::Liveness { agent: Arc::clone(&agent), to: Liveness::Gone },
        Fact::SlowConsumer { agent: Arc::clone(&agent) },
        Fact::Dedupe(DedupeOutcome::Replayed),
        Fact::Left { agent: Arc::clone(&agent), identity: Arc::clone(&agent), reason: "gone" },
    ] {
        metrics.record(&fact);
    }
    let page = page(&metrics);
    assert!(!page.contains("zaphod"));
    for (series, expected) in [
        ("agent_reach_registrations_refused_total", 2.0),
        (r#"agent_reach_auth_failures_total{reason="unauthorized"}"#, 1.0),
        (r#"agent_reach_auth_failures_total{reason="other"}"#, 0.0),
        (r#"agent_reach_liveness_transitions_total{to="suspect"}"#, 1.0),
        (r#"agent_reach_liveness_transitions_total{to="gone"}"#, 1.0),
        (r#"agent_reach_liveness_transitions_total{to="ready"}"#, 0.0),
        ("agent_reach_slow_consumers_total", 1.0),
        (r#"agent_reach_dedupe_total{outcome="replayed"}"#, 1.0),
        (r#"agent_reach_dedupe_total{outcome="joined"}"#, 0.0),
    ] {
        assert_eq!(value(&page, series), expected, "{series}");
    }
}

#[test]
fn connections_and_auth_failures_count_by_words_of_a_closed_set() {
    let metrics = Metrics::new();
    metrics.connection(Outcome::Completed);
    metrics.connection(Outcome::Failed(ErrorCode::Unauthorized));
    metrics.connection(Outcome::Failed(ErrorCode::Orphaned));
    metrics.auth_failure("certificate_revoked");
    metrics.auth_failure("made up");
    metrics.handshake(Duration::from_millis(4));
    metrics.hub_seconds(Duration::from_micros(7));
    let page = page(&metrics);
    for (series, expected) in [
        (r#"agent_reach_connections_total{outcome="completed"}"#, 1.0),
        (r#"agent_reach_connections_total{outcome="unauthorized"}"#, 1.0),
        (r#"agent_reach_connections_total{outcome="invalid_request"}"#, 1.0),
        (r#"agent_reach_auth_failures_total{reason="certificate_revoked"}"#, 1.0),
        (r#"agent_reach_auth_failures_total{reason="other"}"#, 1.0),
        (r#"agent_reach_handshake_seconds_bucket{le="0.005"}"#, 1.0),
        (r#"agent_reach_hub_seconds_bucket{le="0.00001"}"#, 1.0),
    ] {
        assert_eq!(value(&page, series), expected, "{series}");
    }
}

#[test]
fn sizes_and_absolute_counts_are_those_of_the_moment() {
    let metrics = Metrics::new();
    let mut counters = Counters::default();
    counters.bytes_in = 7;
    let gauges =
        Gauges { connections: 3, agents_away: 2, in_flight: 5, outbound_bytes: 9, ..Gauges::default() };
    let first = metrics.scrape(&counters, &gauges, &[], None);
    assert_eq!(value(&first, "agent_reach_connections"), 3.0);
    assert_eq!(value(&first, r#"agent_reach_agents{status="away"}"#), 2.0);
    assert_eq!(value(&first, "agent_reach_in_flight"), 5.0);
    assert_eq!(value(&first, "agent_reach_outbound_bytes"), 9.0);
    assert_eq!(value(&first, r#"agent_reach_frames_total{direction="out",kind="RESULT"}"#), 0.0);
    counters.bytes_in = 8;
    let second = metrics.scrape(&counters, &Gauges::default(), &[], None);
    assert_eq!(value(&second, r#"agent_reach_bytes_total{direction="in"}"#), 8.0);
    assert_eq!(value(&second, "agent_reach_connections"), 0.0);
}

#[test]
fn the_page_tells_of_the_process_and_the_build() {
    let page = page(&Metrics::new());
    let build = format!("agent_reach_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&page, &build), 1.0);
    for name in ["resident_memory_bytes", "open_fds", "max_fds", "threads", "start_time_seconds"] {
        assert!(value(&page, &format!("process_{name}")) > 0.0, "{name}");
        assert!(page.contains(&format!("# TYPE process_{name} gauge\n")), "{name}");
    }
    assert!(page.contains("# TYPE process_cpu_seconds_total counter\n"));
}

#[test]
fn two_hubs_in_one_process_do_not_mix() {
    let (one, two) = (Metrics::new(), Metrics::new());
    one.record(&Fact::SlowConsumer { agent: "a".into() });
    assert_eq!(value(&page(&two), "agent_reach_slow_consumers_total"), 0.0);
}

#[tokio::test]
async fn upkeep_keeps_what_was_observed() {
    let metrics = Metrics::new();
    metrics.hub_seconds(Duration::from_millis(1));
    let mut upkeep = Box::pin(metrics.upkeep());
    // The first turn is due at once; the next one never comes in this test.
    tokio::select! { biased; () = &mut upkeep => {} () = std::future::ready(()) => {} }
    assert_eq!(value(&page(&metrics), "agent_reach_hub_seconds_count"), 1.0);
}

#[test]
fn a_failed_handshake_tells_what_was_wrong_with_the_certificate() {
    let of = |error: rustls::Error| tls_reason(&std::io::Error::other(error));
    let certificate = |error| of(rustls::Error::InvalidCertificate(error));
    for (reason, expected) in [
        (of(rustls::Error::NoCertificatesPresented), Some("certificate_missing")),
        (certificate(CertificateError::Expired), Some("certificate_expired")),
        (certificate(CertificateError::Revoked), Some("certificate_revoked")),
        (certificate(CertificateError::UnknownIssuer), Some("certificate_unknown_authority")),
        (certificate(CertificateError::BadSignature), Some("certificate_invalid")),
        (of(rustls::Error::HandshakeNotComplete), None),
        (tls_reason(&std::io::ErrorKind::UnexpectedEof.into()), None),
    ] {
        assert_eq!(reason, expected);
        assert!(reason.is_none_or(|reason| AUTH_REASONS.contains(&reason)));
    }
}
