use std::path::PathBuf;

use serde_json::Value;

use super::*;

struct World {
    home: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.home.path().join("audit.jsonl")
    }

    fn settings(&self) -> config::Audit {
        // Long: what is written before is written for another reason.
        config::Audit { path: self.path(), flush_ms: 60_000, ..config::Audit::default() }
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn left(agent: &str) -> Fact {
    Fact::Left { agent: agent.into(), identity: "i".into(), reason: "normal" }
}

#[test]
fn all_that_was_handed_over_is_written_at_the_end_in_order_and_the_last_line_says_so() {
    let world = World::new();
    let audit = Audit::start(&world.settings()).unwrap();
    audit.started(3);
    for number in 0..5000 {
        audit.facts(&[left(&number.to_string())]);
    }
    audit.close();
    let lines = world.lines();
    assert_eq!(lines.len(), 5002);
    assert_eq!((&lines[0]["event"], &lines[0]["policy_version"]), (&"started".into(), &3.into()));
    for (number, line) in lines[1..5001].iter().enumerate() {
        assert_eq!(line["agent_id"], number.to_string());
    }
    assert_eq!((&lines[5001]["event"], &lines[5001]["dropped"]), (&"stopped".into(), &0.into()));
    // Once more does nothing.
    audit.close();
}

#[test]
fn what_there_is_no_room_for_is_dropped_and_counted_and_nobody_waits() {
    let world = World::new();
    let mut line = Vec::new();
    line::Lines::default().write(&mut line, 0, &Event::of(&left("a")).unwrap());
    let audit = Audit::with(&world.settings(), 10 * line.len()).unwrap();
    for _ in 0..15 {
        audit.facts(&[left("a")]);
    }
    assert_eq!(audit.dropped(), 5);
    audit.close();
    // The last line, which says so, needs no room.
    let lines = world.lines();
    assert_eq!((lines.len(), &lines[10]["dropped"]), (11, &5.into()));
}

#[test]
fn a_full_disk_counts_what_it_loses() {
    let world = World::new();
    let audit = Audit::start(&config::Audit { path: "/dev/full".into(), ..world.settings() }).unwrap();
    audit.facts(&[left("a")]);
    audit.close();
    assert_eq!(audit.dropped(), 2);
}

#[test]
fn a_file_that_cannot_be_opened_at_the_start_is_told_with_its_path() {
    let world = World::new();
    let error =
        Audit::start(&config::Audit { path: world.home.path().into(), ..world.settings() }).unwrap_err();
    let path = format!("audit.path = {:?}: ", world.home.path());
    assert!(error.to_string().starts_with(&path), "{error}");
}

#[test]
fn whoever_shows_bad_certificates_cannot_fill_the_files_with_them() {
    let world = World::new();
    let audit = Audit::start(&world.settings()).unwrap();
    for _ in 0..1000 {
        audit.certificate_refused("spiffe://d/agent/x", "certificate_unknown_authority");
    }
    audit.facts(&[left("a")]);
    audit.close();
    let lines = world.lines();
    let (refused, others): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["event"] == "refused");
    let mut each = std::collections::BTreeMap::new();
    for line in &refused {
        *each.entry(&line["time"].as_str().unwrap()[..19]).or_insert(0) += 1;
    }
    assert!(each.values().max() == Some(&10), "{each:?}");
    assert_eq!(others.len(), 2);
    assert_eq!(audit.dropped(), 1000 - refused.len() as u64);
    assert_eq!(others[1]["dropped"], audit.dropped());
}

#[test]
fn what_a_hub_says_besides_is_not_for_the_audit() {
    let world = World::new();
    let audit = Audit::start(&world.settings()).unwrap();
    audit.facts(&[Fact::SlowConsumer { agent: "a".into() }]);
    audit.facts(&[Fact::TaskEnded { callback: true }]);
    audit.close();
    assert_eq!(world.lines().len(), 1);
}
