//! The example configuration is complete, true and loads.
#![cfg(test)]

use std::collections::BTreeSet;
use std::path::Path;

use agent_reach::config::{
    Agents, Audit, Breaker, Callbacks, Calls, Config, Dedupe, Http, Limits, Liveness, Problem, Store, Tracing,
};
use agent_reach::policy_file::PolicyFile;

const EXAMPLE: &str = include_str!("../docs/agent-reach.example.toml");
const POLICY: &str = include_str!("../docs/policy.example.toml");

/// Loads a text as a configuration, in a folder that has every file the example names.
fn load(text: &str) -> Result<(Config, tempfile::TempDir), Vec<Problem>> {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    agent_reach::certs::init(&at("certs"), &[]).unwrap();
    std::fs::copy(at("certs/ca.pem"), at("certs/callbacks-ca.pem")).unwrap();
    std::fs::write(at("callbacks.secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
    std::fs::write(at("policy.toml"), POLICY).unwrap();
    std::fs::write(at("agent-reach.toml"), text).unwrap();
    Ok((Config::load(&at("agent-reach.toml"), [])?, home))
}

/// The example with everything in it that is off by default.
fn all_on() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn sections(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).collect()
}

/// `section.key` of every line `key = …`.
fn keys(text: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut keys = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !section.is_empty()) {
            keys.insert(format!("{section}.{key}"));
        }
    }
    keys
}

/// Every key that the program knows: what it says when one is misspelt.
fn known_keys() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for section in sections(EXAMPLE) {
        let problems = load(&format!("version = 1\n[{section}]\nmisspelt = 1\n")).unwrap_err();
        let key = format!("{section}.misspelt");
        let problem = problems.iter().find(|problem| problem.key == key).unwrap();
        // "unknown key, expected one of `a`, `b`; correct …"
        known.extend(problem.message.split('`').skip(1).step_by(2).map(|name| format!("{section}.{name}")));
    }
    known
}

#[test]
fn every_section_and_every_key_of_the_program_is_in_the_example() {
    let problems = load("version = 1\n[misspelt]\n").unwrap_err();
    let unknown = problems.iter().find(|problem| problem.key == "misspelt").unwrap();
    let (_, list) = unknown.message.split_once("the sections ").unwrap();
    let names: Vec<&str> = list.split(';').next().unwrap().split(", ").collect();
    assert_eq!(sections(EXAMPLE), names);
    assert_eq!(keys(&all_on()), known_keys());
}

#[test]
fn what_the_example_sets_is_the_default() {
    let (config, home) = load(EXAMPLE).unwrap();
    let at = |name: &str| home.path().join(name);
    let agents = Agents {
        listen: "0.0.0.0:7443".parse().unwrap(),
        cert: at("certs/hub.pem"),
        key: at("certs/hub-key.pem"),
        client_ca: at("certs/ca.pem"),
        ..Agents::default()
    };
    assert_eq!(config.agents, agents);
    let listen = "127.0.0.1:7080".parse().unwrap();
    assert_eq!(config.http, Some(Http { listen, tokens: at("tokens.toml"), ..Http::default() }));
    assert_eq!(config.liveness, Liveness::default());
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.calls, Calls::default());
    assert_eq!(config.breaker, Breaker::default());
    assert_eq!(config.dedupe, Dedupe::default());
    assert_eq!(config.store, Store { path: at("agent-reach.db"), ..Store::default() });
    assert_eq!(config.callbacks, Callbacks::default());
    assert_eq!(config.audit, Audit { path: at("audit.jsonl"), ..Audit::default() });
    assert_eq!(config.tracing, Tracing::default());
}

#[test]
fn it_loads_with_everything_on_too() {
    let (config, home) = load(&all_on()).unwrap();
    assert_eq!(config.agents.crl, Some(home.path().join("certs/crl.pem")));
    assert_eq!(config.tracing.otlp_endpoint.as_deref(), Some("http://127.0.0.1:4318"));
    assert!(config.http.is_some_and(|http| http.cert.is_some() && http.key.is_some()));
}

#[test]
fn the_example_policy_loads_and_no_rule_of_it_is_idle() {
    let policy = PolicyFile::load(Path::new("docs/policy.example.toml")).unwrap();
    assert_eq!((policy.rules.len(), policy.aliases.len()), (4, 1));
    assert_eq!(policy.shadowed(), []);
}
