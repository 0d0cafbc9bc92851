use std::path::PathBuf;

use super::*;

pub(super) struct World {
    pub(super) home: tempfile::TempDir,
}

pub(super) const GOOD: &str = r#"version = 1
[agents]
listen = "127.0.0.1:7443"
cert = "certs/hub.pem"
key = "certs/hub-key.pem"
client_ca = "certs/ca.pem"
[policy]
file = "policy.toml"
"#;

impl World {
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        crate::certs::init(&home.path().join("certs"), &[]).unwrap();
        std::fs::write(home.path().join("policy.toml"), "version = 1\n").unwrap();
        std::fs::write(home.path().join("secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        Self { home }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(super) fn load(&self, text: &str, env: &[(&str, &str)]) -> Result<Config, Vec<Problem>> {
        std::fs::write(self.at("hub.toml"), text).unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load(&self.at("hub.toml"), env)
    }

    /// The problems, with the folder taken out of their text.
    pub(super) fn problems(&self, text: &str, env: &[(&str, &str)]) -> Vec<String> {
        let folder = format!("{}/", self.home.path().display());
        let problems = self.load(text, env).unwrap_err();
        problems.iter().map(|problem| problem.to_string().replace(&folder, "")).collect()
    }
}

#[test]
fn the_least_configuration_has_the_documented_defaults_and_paths_beside_the_file() {
    let world = World::new();
    let config = world.load(GOOD, &[]).unwrap();
    assert_eq!(config.agents.cert, world.at("certs/hub.pem"));
    assert_eq!(config.policy, Some(Policy { file: world.at("policy.toml") }));
    assert_eq!((config.http.clone(), config.metrics.clone()), (None, None));
    assert_eq!((config.agents.max_connections, config.agents.max_handshakes), (100_000, 64));
    assert!(!config.agents.tls12);
    assert_eq!((config.calls, config.liveness), (Calls::default(), Liveness::default()));
    assert_eq!(config.store.path, world.at("agent-reach.db"));
}

#[test]
fn every_key_of_every_section_is_read() {
    let world = World::new();
    let rest = r#"
[http]
listen = "0.0.0.0:7080"
cert = "certs/hub.pem"
key = "certs/hub-key.pem"
tokens = "t.toml"
allowed_origins = ["https://console.example.com", "http://localhost:5173"]
[metrics]
listen = "[::1]:9464"
[liveness]
keepalive_ms = 100
suspect_ms = 300
gone_ms = 301
resume_ms = 0
[limits]
max_message = 67108864
max_in_flight = 1
outbound_bytes = 65536
queue_len = 0
queue_bytes = 1
registrations_per_10s = 6
[calls]
accept_timeout_ms = 1
timeout_ms = 2
budget_ms = 3
retries = 0
retry_base_ms = 4
retry_jitter_ms = 5
[breaker]
window_ms = 1000
min_success = 1
min_calls = 1
open_ms = 10
[dedupe]
ttl_ms = 1
max_bytes = 0
durable = "tasks"
[store]
path = "/var/lib/hub.db"
flush_ms = 0
records = false
[callbacks]
allowed_hosts = ["hooks.example.com", "10.0.0.1", "::1"]
secret_file = "secret"
ca = "certs/ca.pem"
schedule_ms = [1]
[audit]
enabled = true
path = "a.jsonl"
rotate_bytes = 4096
keep = 0
flush_ms = 1
[tracing]
otlp_endpoint = "http://collector:4318"
sample_ratio = 0.25
log = "debug"
format = "json"
"#;
    let config = world.load(&format!("{GOOD}{rest}"), &[]).unwrap();
    assert_eq!(config.breaker.min_success, 1.0);
    assert_eq!(config.dedupe.durable, Durable::Tasks);
    assert_eq!(config.tracing.format, LogFormat::Json);
    assert_eq!(config.store.path, PathBuf::from("/var/lib/hub.db"));
    assert_eq!(config.http.as_ref().unwrap().tokens, world.at("t.toml"));
}

#[test]
fn the_environment_wins_over_the_file_with_the_type_of_the_key() {
    let world = World::new();
    let env = [
        ("AGENT_REACH__AGENTS__LISTEN", "0.0.0.0:1"),
        ("AGENT_REACH__AGENTS__TLS12", "true"),
        ("AGENT_REACH__LIVENESS__GONE_MS", "60_000"),
        ("AGENT_REACH__BREAKER__MIN_SUCCESS", "0.5"),
        ("AGENT_REACH__CALLBACKS__ALLOWED_HOSTS", "[\"a.example\", \"b.example\"]"),
        ("AGENT_REACH__CALLBACKS__SECRET_FILE", "secret"),
        ("AGENT_REACH__TRACING__LOG", "true"),
        ("AGENT_REACH__AUDIT__PATH", "123"),
        ("AGENT_REACH__METRICS__LISTEN", "127.0.0.1:0"),
        ("AGENT_REACH_HUB", "left alone"),
        ("PATH", "left alone"),
    ];
    let config = world.load(GOOD, &env).unwrap();
    assert_eq!(config.agents.listen.to_string(), "0.0.0.0:1");
    assert!(config.agents.tls12);
    assert_eq!(config.liveness.gone_ms, 60_000);
    assert_eq!(config.breaker.min_success, 0.5);
    assert_eq!(config.callbacks.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.tracing.log, "true");
    assert_eq!((config.audit.path, config.audit.enabled), (world.at("123"), true));
    assert_eq!(config.metrics.unwrap().listen.to_string(), "127.0.0.1:0");
}

#[test]
fn the_environment_can_stand_for_a_file_that_says_nothing() {
    let world = World::new();
    let env = [
        ("AGENT_REACH__VERSION", "1"),
        ("AGENT_REACH__AGENTS__LISTEN", "127.0.0.1:0"),
        ("AGENT_REACH__AGENTS__CERT", "certs/hub.pem"),
        ("AGENT_REACH__AGENTS__KEY", "certs/hub-key.pem"),
        ("AGENT_REACH__AGENTS__CLIENT_CA", "certs/ca.pem"),
        ("AGENT_REACH__POLICY__FILE", "policy.toml"),
    ];
    world.load("", &env).unwrap();
}

#[test]
fn bad_variables_are_named_as_they_are_written() {
    let world = World::new();
    let env = [
        ("AGENT_REACH__AGENTS__LISTN", "0.0.0.0:1"),
        ("AGENT_REACH__NOWHERE__KEY", "1"),
        ("AGENT_REACH__AGENTS", "1"),
        ("AGENT_REACH__agents__listen", "1"),
        ("AGENT_REACH__CALLS__RETRIES", "-1"),
        ("AGENT_REACH__CALLS__TIMEOUT_MS", "soon"),
        ("AGENT_REACH__CALLS__BUDGET_MS", "0"),
    ];
    let unknown = "unknown variable; write AGENT_REACH__SECTION__KEY in upper case, or remove it";
    let problems = world.problems(GOOD, &env);
    assert_eq!(
        problems,
        [
            format!("environment: AGENT_REACH__AGENTS: {unknown}"),
            "environment: AGENT_REACH__AGENTS__LISTN: unknown key, expected one of `listen`, `cert`, `key`, \
             `client_ca`, `crl`, `max_connections`, `handshake_timeout_ms`, `max_handshakes`, `max_connections_per_address`, `max_handshakes_per_address`, `threads`, `drain_ms`, `tls12`; \
             correct its spelling or remove it"
                .into(),
            "environment: AGENT_REACH__CALLS__BUDGET_MS: is 0; write a number from 1 to 86400000".into(),
            "environment: AGENT_REACH__CALLS__RETRIES: invalid value: integer `-1`, expected u32; correct the value"
                .into(),
            "environment: AGENT_REACH__CALLS__TIMEOUT_MS: invalid type: string \"soon\", expected u64; correct \
             the value"
                .into(),
            format!("environment: AGENT_REACH__NOWHERE__KEY: {unknown}"),
            format!("environment: AGENT_REACH__agents__listen: {unknown}"),
        ]
    );
}

#[test]
fn every_problem_is_told_at_once_with_its_line_and_key() {
    let world = World::new();
    let text = r#"version = 2
[agents]
listen = "localhost:7443"
cert = "nowhere.pem"
key = "certs/hub.pem"
client_ca = 5
max_conections = 3

[liveness]
keepalive_ms = 6000
suspect_ms = "soon"

[limits]
max_message = 1023

[tracing]
format = "xml"

[storage]
path = "x"
"#;
    let found: Vec<_> =
        world.load(text, &[]).unwrap_err().into_iter().map(|p| (p.line, p.key, p.message)).collect();
    let brief: Vec<_> = found.iter().map(|(line, key, _)| (line.unwrap_or(0), key.as_str())).collect();
    assert_eq!(
        brief,
        [
            (0, "policy.file"),
            (1, "version"),
            (3, "agents.listen"),
            (4, "agents.cert"),
            (5, "agents.key"),
            (6, "agents.client_ca"),
            (7, "agents.max_conections"),
            (11, "liveness.suspect_ms"),
            (14, "limits.max_message"),
            (17, "tracing.format"),
            (19, "storage"),
        ],
        "{found:#?}"
    );
}

#[test]
fn syntax_errors_are_told_with_their_lines() {
    let world = World::new();
    let problems = world.problems("version = 1\n[agents\nlisten = \n", &[]);
    assert!(problems.iter().any(|p| p.starts_with("hub.toml:2: not TOML: ")), "{problems:?}");
    let problems = world.problems("version = 1\nversion = 1\n", &[]);
    assert!(problems[0].starts_with("hub.toml:2: not TOML: duplicate key"), "{problems:?}");
}

#[test]
fn a_file_that_is_not_there_is_one_problem() {
    let problems = Config::load(Path::new("/nowhere/hub.toml"), []).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().starts_with("/nowhere/hub.toml: cannot be read: "), "{}", problems[0]);
}

#[test]
fn an_empty_file_is_told_everything_that_is_required() {
    let world = World::new();
    let keys: Vec<_> = world.load("", &[]).unwrap_err().into_iter().map(|p| p.key).collect();
    let required =
        ["agents.cert", "agents.client_ca", "agents.key", "agents.listen", "policy.file", "version"];
    assert_eq!(keys, required);
}

#[test]
fn impossible_timing_is_refused_at_its_edge_and_the_last_possible_is_taken() {
    let world = World::new();
    let with = |k: u64, s: u64, g: u64| {
        format!("{GOOD}[liveness]\nkeepalive_ms = {k}\nsuspect_ms = {s}\ngone_ms = {g}\n")
    };
    world.load(&with(1_000, 3_000, 3_001), &[]).unwrap();
    let problems = world.problems(&with(1_000, 2_999, 2_999), &[]);
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0]
            .starts_with("hub.toml:11: liveness.suspect_ms: suspect_ms is 2999, less than three times")
    );
    assert!(
        problems[1].starts_with("hub.toml:12: liveness.gone_ms: gone_ms is 2999, not more than suspect_ms")
    );
}

#[test]
fn timing_that_is_impossible_only_with_a_default_is_told_at_the_key_that_was_written() {
    let world = World::new();
    let problems = world.problems(&format!("{GOOD}[liveness]\nkeepalive_ms = 5001\n"), &[]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("hub.toml:10: liveness.keepalive_ms: "), "{problems:?}");
}

#[test]
fn a_message_limit_is_taken_from_1_kib_to_64_mib() {
    let world = World::new();
    for (bytes, good) in [(1_023, false), (1_024, true), (67_108_864, true), (67_108_865, false)] {
        let loaded = world.load(&format!("{GOOD}[limits]\nmax_message = {bytes}\n"), &[]);
        assert_eq!(loaded.is_ok(), good, "{bytes}");
    }
}

#[test]
fn plain_http_is_for_loopback_only() {
    let world = World::new();
    let with = |http: &str| format!("{GOOD}[http]\n{http}\n");
    world.load(&with("listen = \"127.0.0.1:7080\""), &[]).unwrap();
    world.load(&with("listen = \"[::1]:7080\""), &[]).unwrap();
    for listen in ["0.0.0.0:7080", "[::]:7080", "10.0.0.1:7080"] {
        let problems = world.problems(&with(&format!("listen = \"{listen}\"")), &[]);
        let start = format!("hub.toml:10: http.listen: {listen} is not loopback");
        assert!(problems.len() == 1 && problems[0].starts_with(&start), "{problems:?}");
    }
    let problems = world.problems(&with("listen = \"0.0.0.0:1\"\ncert = \"certs/hub.pem\""), &[]);
    assert_eq!(problems, ["hub.toml:11: http.cert: has no key beside it; write http.key too"]);
}

#[test]
fn two_listeners_cannot_have_one_port() {
    let world = World::new();
    let problems = world.problems(&format!("{GOOD}[metrics]\nlisten = \"0.0.0.0:7443\"\n"), &[]);
    let taken =
        "hub.toml:10: metrics.listen: 0.0.0.0:7443 is taken by agents.listen already; choose another port";
    assert_eq!(problems, [taken]);
}

#[test]
fn a_key_of_another_certificate_is_told_at_the_key() {
    let world = World::new();
    let text = GOOD.replace("hub-key.pem", "ca-key.pem");
    let problems = world.problems(&text, &[]);
    let start = "hub.toml:5: agents.key: certs/ca-key.pem: does not work as the key of certs/hub.pem";
    assert!(problems.len() == 1 && problems[0].starts_with(start), "{problems:?}");
}

#[test]
fn hosts_and_origins_have_one_form() {
    let world = World::new();
    for host in ["https://a.example", "a.example:443", "a/b", "", "*"] {
        let hosts = format!("allowed_hosts = [\"{host}\"]\nsecret_file = \"secret\"\n");
        let text = format!("{GOOD}[callbacks]\n{hosts}");
        assert_eq!(world.problems(&text, &[]).len(), 1, "{host}");
    }
    for origin in ["a.example", "https://a.example/", "*", "https://", "ftp://a"] {
        let text = format!("{GOOD}[http]\nlisten = \"127.0.0.1:0\"\nallowed_origins = [\"{origin}\"]\n");
        assert_eq!(world.problems(&text, &[]).len(), 1, "{origin}");
    }
}

#[test]
fn webhooks_have_secrets_that_can_be_used() {
    let world = World::new();
    std::fs::write(world.at("bad"), "# since May\nwhsec_c2hvcnQ=\n").unwrap();
    let hosts = "allowed_hosts = [\"a.example\"]\n";
    let table = [
        (hosts, "callbacks.secret_file: is missing"),
        ("secret_file = \"bad\"\n", "bad:2: is not of 24 to 64 bytes behind the base64"),
        ("secret_file = \"absent\"\n", "absent: cannot be read"),
    ];
    for (keys, problem) in table {
        let problems = world.problems(&format!("{GOOD}[callbacks]\n{keys}"), &[]);
        assert!(problems.len() == 1 && problems[0].contains(problem), "{problems:?}");
        assert!(!problems[0].contains("c2hvcnQ"), "no part of a secret is shown");
    }
}

#[test]
fn dev_needs_no_file_and_its_paths_are_in_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    crate::certs::ensure_dev(dir.path(), &[]).unwrap();
    let any = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let env = [("AGENT_REACH__LIVENESS__RESUME_MS".to_owned(), "77".to_owned())];
    let config = Config::for_dev(dir.path(), any(1), any(2), any(3), env).unwrap();
    assert_eq!(config.agents.cert, dir.path().join("hub.pem"));
    assert_eq!(config.agents.crl, Some(dir.path().join("crl.pem")));
    assert_eq!(config.http.as_ref().unwrap().tokens, dir.path().join("tokens.toml"));
    assert_eq!(config.liveness.resume_ms, 77);
    assert_eq!(config.policy, None);
}
