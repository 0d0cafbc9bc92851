//! `agent-reach audit` on files as they may be, and where a hub has an audit.
#![cfg(test)]

#[macro_use]
mod raw;
mod command;

use std::fs;

use raw::{Hub, hub};

#[test]
fn the_command_shows_a_table_and_counts_what_it_cannot_read() {
    let dir = tempfile::tempdir().unwrap();
    let old = "{\"time\":\"2026-11-30T08:15:02.042Z\",\"event\":\"call\",\"call_id\":\"1-2\",\"caller\":\"c\",\
               \"target\":\"p\",\"capability\":\"echo\",\"mode\":\"call\",\"outcome\":\"timeout\",\"ms\":5}\n";
    fs::write(dir.path().join("audit.jsonl.1"), format!("{{\"time\n{old}")).unwrap();
    fs::write(dir.path().join("audit.jsonl"), "{\"time\":\"2026-11-30T08:16:02.042Z\",\"event\":\"sto")
        .unwrap();
    let shown = command::run(dir.path(), &["audit"]);
    assert_eq!((shown.code, shown.stdout.lines().count()), (Some(0), 2), "{shown:?}");
    let row: Vec<&str> = shown.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["2026-11-30", "08:15:02.042", "call", "c", "p", "echo", "timeout", "5", "1-2"]);
    assert!(shown.stderr.contains("2 lines cannot be read"), "{shown:?}");
    let none = command::run(dir.path(), &["audit", "--caller", "nobody", "--json"]);
    assert_eq!((none.code, &*none.stdout), (Some(0), ""));
    assert_eq!(command::run(dir.path(), &["audit", "--file", "nowhere"]).code, Some(1));
    assert_eq!(command::run(dir.path(), &["audit", "--event", "nonsense"]).code, Some(2));
}

#[tokio::test]
async fn dev_has_an_audit_only_where_it_is_asked_for() {
    let file = |hub: &Hub| hub.dir().join("audit.jsonl");
    let without = Hub::dev();
    assert!(!file(&without).exists());
    let mut with = Hub::dev_with(&[("AUDIT__ENABLED", "true")]);
    with.terminate();
    assert_eq!(with.exited().code(), Some(0));
    assert_eq!(fs::read_to_string(file(&with)).unwrap().lines().count(), 2);
}

#[test]
fn a_hub_does_not_start_without_the_audit_that_it_is_to_have_and_check_says_why() {
    let dir = hub::prepared(hub::OPEN, "[audit]\npath = \"nowhere/audit.jsonl\"\n");
    for arguments in [["check", "--config", "agent-reach.toml"], ["serve", "--config", "agent-reach.toml"]] {
        let ended = command::run(dir.path(), &arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(
            ended.stderr.contains("audit.path: ") && ended.stderr.contains("nowhere/audit.jsonl"),
            "{ended:?}"
        );
    }
}
