//! The operator's side: start, health, metrics, drain, and a start that is refused.
#![cfg(test)]

#[macro_use]
mod raw;

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use raw::peer::canary;
use raw::{Hub, RECONNECT, RawClient, certs, http, hub, kind};
use rmpv::Value;

/// What the metrics page says of `name` with all of `labels`; zero when the series is not there.
fn figure(page: &str, name: &str, labels: &[&str]) -> f64 {
    let found = page.lines().find(|line| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        (rest.starts_with('{') || rest.starts_with(' ')) && labels.iter().all(|label| rest.contains(label))
    });
    found.and_then(|line| line.rsplit(' ').next()).map_or(0.0, |value| value.parse().expect("a number"))
}

async fn metrics(hub: &Hub) -> String {
    let answer = http::get(hub.metrics(), "/metrics").await;
    assert_eq!(answer.status, 200);
    answer.body
}

fn assert_types(page: &str, names: &[&str]) {
    for name in names {
        let full =
            if name.starts_with("process_") { (*name).to_owned() } else { format!("agent_reach_{name}") };
        assert!(page.contains(&format!("# TYPE {full} ")), "no TYPE line of {full}");
    }
}

/// A hub with a call open between two of its agents.
async fn world(hub: &Hub) -> (RawClient, RawClient, u64, raw::Envelope) {
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    (provider, caller, id, call)
}

/// The GOODBYE of a drain.
async fn draining(client: &mut RawClient) -> u64 {
    let goodbye = client.expect(kind::GOODBYE, "GOODBYE draining").await;
    assert_eq!(goodbye.text("code"), "draining");
    goodbye.uint("reconnect_after_ms")
}

async fn closed_to_reconnect(client: &mut RawClient) {
    let code = client.expect_end().await;
    assert!(code.is_some_and(|code| RECONNECT.contains(&code)), "{code:?}");
}

#[tokio::test]
async fn the_ready_line_says_where_everything_is() {
    let hub = Hub::dev();
    assert_eq!(hub.ready["ready"], true);
    for (key, scheme) in
        [("agents", "wss://127.0.0.1:"), ("http", "http://127.0.0.1:"), ("metrics", "http://127.0.0.1:")]
    {
        let url = hub.ready[key].as_str().expect("a URL");
        assert!(url.starts_with(scheme) && !url.contains(":0"), "{key}: {url}");
    }
    let dir = std::fs::canonicalize(hub.ready["dir"].as_str().expect("a directory")).expect("it is there");
    assert_eq!(dir, std::fs::canonicalize(hub.dir()).expect("it is there"));
}

#[tokio::test]
async fn serve_prints_the_same_ready_line() {
    let hub = Hub::serve(hub::OPEN, "");
    assert_eq!(hub.ready["ready"], true);
    hub.agent("a", &[]).await.fence().await;
}

#[tokio::test]
async fn health_and_readiness_are_told_in_http() {
    let hub = Hub::dev();
    assert_eq!(http::get(hub.http(), "/healthz").await.status, 200);
    assert_eq!(http::get(hub.http(), "/readyz").await.status, 200);
    assert_eq!(http::get(hub.http(), "/nothing-here").await.status, 404);
}

#[tokio::test]
async fn every_metric_has_its_type_line_from_the_start() {
    let hub = Hub::dev();
    let answer = http::get(hub.metrics(), "/metrics").await;
    let content_type = http::field(&answer.head, "content-type").expect("a content type");
    assert!(content_type.starts_with("text/plain") || content_type.contains("openmetrics"), "{content_type}");
    assert_types(
        &answer.body,
        &[
            "connections",
            "connections_total",
            "handshake_seconds",
            "agents",
            "frames_total",
            "bytes_total",
            "calls_total",
            "call_seconds",
            "hub_seconds",
            "in_flight",
            "dedupe_total",
            "slow_consumers_total",
            "liveness_transitions_total",
            "registrations_refused_total",
            "auth_failures_total",
            "outbound_bytes",
            "build_info",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_start_time_seconds",
            "process_cpu_seconds_total",
        ],
    );
}

#[tokio::test]
async fn metrics_of_what_is_still_to_come_have_their_type_line_already() {
    let page = metrics(&Hub::dev()).await;
    assert_types(
        &page,
        &[
            "queued",
            "retries_total",
            "breaker_state",
            "tasks",
            "callbacks_total",
            "store_flush_seconds",
            "audit_dropped_total",
        ],
    );
}

#[tokio::test]
async fn metrics_count_connections_and_calls() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    canary(&mut caller, &mut provider, "x").await;
    let id = caller.call("nobody", map! {}, Value::Nil).await;
    caller.failed(id, "no_capability").await;
    let page = metrics(&hub).await;
    assert!((figure(&page, "agent_reach_connections", &[]) - 2.0).abs() < 0.5, "{page}");
    let completed = ["capability=\"x\"", "mode=\"call\"", "outcome=\"completed\""];
    assert!((figure(&page, "agent_reach_calls_total", &completed) - 1.0).abs() < 0.5, "{page}");
    assert!(
        (figure(&page, "agent_reach_calls_total", &["outcome=\"no_capability\""]) - 1.0).abs() < 0.5,
        "{page}"
    );
    assert!((figure(&page, "agent_reach_agents", &["status=\"ready\""]) - 2.0).abs() < 0.5, "{page}");
    assert!(!page.contains("provider") && !page.contains("\"caller\""), "no agent is a label: {page}");
}

#[tokio::test]
async fn sigterm_lets_open_calls_finish_and_exits_with_zero() {
    let mut hub = Hub::dev();
    let (mut provider, mut caller, id, call) = world(&hub).await;
    hub.terminate();
    draining(&mut provider).await;
    draining(&mut caller).await;
    assert_eq!(http::get(hub.http(), "/readyz").await.status, 503);
    assert_eq!(http::get(hub.http(), "/healthz").await.status, 200);
    provider.complete(&call, Value::from("just in time")).await;
    assert_eq!(caller.completed(id).await.content(), Value::from("just in time"));
    closed_to_reconnect(&mut provider).await;
    closed_to_reconnect(&mut caller).await;
    assert!(hub.exited().success());
}

#[tokio::test]
async fn an_idle_hub_says_goodbye_to_all_and_exits() {
    let mut hub = Hub::dev();
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        agents.push(hub.agent(name, &["x"]).await);
    }
    hub.terminate();
    for agent in &mut agents {
        agent.expect_goodbye("draining", RECONNECT).await;
    }
    assert!(hub.exited().success());
}

#[tokio::test]
async fn a_draining_hub_takes_no_new_calls_and_no_new_sessions() {
    let mut hub = Hub::dev();
    let (mut provider, mut caller, id, call) = world(&hub).await;
    let identity = hub.identity("late");
    hub.terminate();
    draining(&mut provider).await;
    draining(&mut caller).await;
    let late = caller.call("x", map! {}, Value::Nil).await;
    assert!(caller.failed(late, "shutting_down").await.retryable());
    if let Ok(opened) = raw::Dial::new(&hub).identity(identity).open().await {
        let mut newcomer = RawClient::new(opened.stream, "late", raw::Format::MsgPack);
        newcomer.hello(&[], map! {}).await;
        draining(&mut newcomer).await;
    }
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
    assert!(hub.exited().success());
}

#[tokio::test]
async fn open_calls_get_no_longer_than_drain_ms() {
    let mut hub = Hub::dev_with(&[("AGENTS__DRAIN_MS", "300")]);
    let (mut provider, mut caller, ..) = world(&hub).await;
    hub.terminate();
    draining(&mut provider).await;
    draining(&mut caller).await;
    assert!(hub.exited().success());
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let mut hub = Hub::dev_with(&[("AGENTS__DRAIN_MS", "600000")]);
    let (mut provider, ..) = world(&hub).await;
    hub.terminate();
    draining(&mut provider).await;
    hub.terminate();
    hub.exited();
}

/// The exit of a process that must refuse to start, with what it wrote on stdout.
fn refusal(mut child: Child) -> (ExitStatus, String) {
    let (done, ended) = std::sync::mpsc::sync_channel(1);
    let mut stdout = child.stdout.take().expect("stdout is piped");
    std::thread::spawn(move || {
        let mut text = String::new();
        let _read = stdout.read_to_string(&mut text);
        let _nobody_asks = done.send(text);
    });
    let Ok(text) = ended.recv_timeout(Duration::from_secs(20)) else {
        let _killed = child.kill();
        let _reaped = child.wait();
        panic!("it started, though it should not have");
    };
    (child.wait().expect("the child"), text)
}

/// Starts `serve` with these lines of configuration; its log, after it refused to start.
fn refused_config(policy: &str, config: &str) -> String {
    let dir = hub::prepared(policy, config);
    let file = dir.path().join("agent-reach.toml");
    let (status, stdout) = refusal(hub::spawn(&["serve", "--config", certs::path(&file)], &[], dir.path()));
    assert!(!status.success() && stdout.is_empty(), "{status}: {stdout}");
    hub::log_of(dir.path())
}

#[test]
fn two_hubs_on_one_port_fail_with_one_clear_line() {
    let hub = Hub::dev();
    let taken = hub.agents.to_string();
    let dir = tempfile::TempDir::new().expect("a directory");
    let free = "127.0.0.1:0";
    let arguments =
        ["dev", "--dir", certs::path(dir.path()), "--agents", &taken, "--http", free, "--metrics", free];
    let (status, stdout) = refusal(hub::spawn(&arguments, &[], dir.path()));
    assert!(!status.success() && stdout.is_empty(), "{status}: {stdout}");
    let log = hub::log_of(dir.path());
    let naming = log.lines().filter(|line| line.contains(&taken)).count();
    assert_eq!(naming, 1, "one line names the address: {log}");
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn serve_refuses_times_that_make_no_sense() {
    for (times, key) in [
        ("keepalive_ms = 5000\nsuspect_ms = 14999", "suspect_ms"),
        ("suspect_ms = 20000\ngone_ms = 20000", "gone_ms"),
        ("keepalive_ms = 0", "keepalive_ms"),
    ] {
        let log = refused_config(hub::OPEN, &format!("[liveness]\n{times}\n"));
        assert!(log.contains(key), "no {key} in: {log}");
    }
    // The narrowest times that do make sense.
    let narrow = "[liveness]\nkeepalive_ms = 5000\nsuspect_ms = 15000\ngone_ms = 15001\n";
    drop(Hub::serve(hub::OPEN, narrow));
}

#[test]
fn serve_refuses_unknown_keys_by_name() {
    let log = refused_config(hub::OPEN, "[liveness]\nkeepalive = 5000\n");
    assert!(log.contains("keepalive"), "{log}");
    let log = refused_config(hub::OPEN, "[surprise]\nx = 1\n");
    assert!(log.contains("surprise"), "{log}");
}

#[test]
fn serve_refuses_a_policy_that_it_cannot_use() {
    for policy in [
        "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"a*\"]\ncall = []\n",
        "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = []\ncall = [\"*.a\"]\n",
        "version = 1\n[[rules]]\nidentity = \"*\"\nsurprise = true\n",
        "rules = 5\n",
        "not toml",
    ] {
        let log = refused_config(policy, "");
        assert!(log.contains("policy"), "{policy:?}: {log}");
    }
}

#[test]
fn an_environment_variable_of_the_wrong_kind_is_refused_by_name() {
    let dir = tempfile::TempDir::new().expect("a directory");
    let free = "127.0.0.1:0";
    let arguments =
        ["dev", "--dir", certs::path(dir.path()), "--agents", free, "--http", free, "--metrics", free];
    let child = hub::spawn(&arguments, &[("LIVENESS__KEEPALIVE_MS", "soon")], dir.path());
    let (status, stdout) = refusal(child);
    assert!(!status.success() && stdout.is_empty(), "{status}: {stdout}");
    assert!(hub::log_of(dir.path()).to_lowercase().contains("keepalive_ms"), "{}", hub::log_of(dir.path()));
}

#[test]
fn check_prints_each_problem_and_exits_with_one() {
    let run = |file: &std::path::Path| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_agent-reach"));
        let output = command.args(["check", "--config", certs::path(file)]).output().expect("the binary");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).expect("UTF-8"))
    };
    let good = hub::prepared(hub::OPEN, "");
    assert_eq!(run(&good.path().join("agent-reach.toml")).0, Some(0));
    let bad = hub::prepared(hub::OPEN, "[liveness]\nsuspect_ms = 1\n[limits]\nmax_message = \"big\"\n");
    let (code, text) = run(&bad.path().join("agent-reach.toml"));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("max_message"), "{text}");
}

#[test]
fn certificates_are_made_where_the_contract_says_with_keys_for_the_owner_only() {
    let dir = tempfile::TempDir::new().expect("a directory");
    certs::run(&["certs", "init", "--dir", certs::path(dir.path()), "--san", "hub.example.org"]);
    certs::run(&["certs", "issue", "worker", "--dir", certs::path(dir.path()), "--days", "3"]);
    for file in [
        "ca.pem",
        "ca-key.pem",
        "crl.pem",
        "hub.pem",
        "hub-key.pem",
        "agents/worker.pem",
        "agents/worker-key.pem",
    ] {
        let metadata =
            std::fs::metadata(dir.path().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        if file.ends_with("-key.pem") {
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{file}");
        }
    }
}

#[test]
fn dev_keeps_the_ca_that_it_finds() {
    let dir = tempfile::TempDir::new().expect("a directory");
    certs::run(&["certs", "init", "--dir", certs::path(dir.path())]);
    let before = std::fs::read(dir.path().join("ca.pem")).expect("the CA");
    let free = "127.0.0.1:0";
    let arguments =
        ["dev", "--dir", certs::path(dir.path()), "--agents", free, "--http", free, "--metrics", free];
    let mut child = hub::spawn(&arguments, &[], dir.path());
    let mut first = [0];
    let read = child.stdout.take().expect("stdout is piped").read_exact(&mut first);
    let _killed = child.kill();
    let _reaped = child.wait();
    read.expect("a ready line");
    assert_eq!(std::fs::read(dir.path().join("ca.pem")).expect("the CA"), before);
}
