use std::collections::BTreeMap;

use agent_reach_core::{CallId, CallRecord, Outcome, TaskId, TraceId};
use agent_reach_protocol::{CallMode, ErrorCode};
use serde_json::{Map, Value};

use super::*;
use crate::audit::Trigger;

fn record() -> CallRecord {
    CallRecord {
        call_id: CallId::new(0x5f2a_90c1, 0x1f),
        task: None,
        request_id: "r-1".into(),
        caller: "shop".into(),
        target: Some("orders".into()),
        capability: "order.create".into(),
        started_ms: 0,
        ended_ms: 0,
        attempts: 2,
        targets: Box::default(),
        trace: TraceId::of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        by_hub: false,
    }
}

fn call(record: &CallRecord) -> Event<'_> {
    let outcome = Outcome::Failed(ErrorCode::Timeout);
    Event::Call { record, mode: CallMode::Call, outcome, ms: 31_207 }
}

fn text(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    // The second of the moment 2026-11-30T08:15:02.042Z.
    Lines::default().write(&mut out, 1_796_026_502_042, event);
    String::from_utf8(out).unwrap()
}

fn json(event: &Event<'_>) -> Map<String, Value> {
    serde_json::from_str(&text(event)).unwrap()
}

/// One of each.
fn all<'a>(record: &'a CallRecord, reload: &'a Reload) -> [Event<'a>; 9] {
    let (agent, identity) = ("orders", "spiffe://shop/agent/orders");
    [
        Event::Started { policy_version: 3 },
        call(record),
        Event::Refused { identity, agent: "x", reason: "unauthorized" },
        Event::Registered { agent, identity, replaced: false },
        Event::Registered { agent, identity, replaced: true },
        Event::Left { agent, identity, reason: "gone" },
        Event::Act { capability: "hub.agents.disconnect", agent, identity, subject: "other" },
        Event::Reload(reload),
        Event::Stopped { dropped: 7 },
    ]
}

/// The examples of the page, by event.
fn examples() -> BTreeMap<String, Map<String, Value>> {
    let page = include_str!("../../docs/audit.md");
    let lines = page.lines().filter(|line| line.starts_with("{\"time\""));
    let read = |line| serde_json::from_str::<Map<String, Value>>(line).unwrap();
    lines.map(read).map(|line| (line["event"].as_str().unwrap().to_owned(), line)).collect()
}

#[test]
fn a_call_is_one_line_that_says_who_whom_what_when_how_long_and_how_it_ended() {
    let expected = "{\"time\":\"2026-11-30T08:15:02.042Z\",\"event\":\"call\",\"call_id\":\"5f2a90c1-1f\",\
        \"request_id\":\"r-1\",\"caller\":\"shop\",\"target\":\"orders\",\"capability\":\"order.create\",\
        \"mode\":\"call\",\"attempt\":2,\"outcome\":\"timeout\",\"ms\":31207,\
        \"trace_id\":\"0af7651916cd43dd8448eb211c80319c\"}\n";
    assert_eq!(text(&call(&record())), expected);
}

#[test]
fn every_event_has_the_fields_of_the_table_in_its_order_and_those_of_its_example() {
    let examples = examples();
    assert_eq!(examples.len(), EVENTS.len());
    let task = CallRecord { task: Some(TaskId::new(1, 2, 3)), ..record() };
    let reload = Reload {
        trigger: Trigger::Call,
        changed: vec!["agents.crl", "policy.file"],
        policy_version: 4,
        problem: None,
    };
    for (event, (name, fields)) in all(&task, &reload).iter().zip(EVENTS) {
        let line = json(event);
        assert_eq!(line["event"], name);
        let keys: Vec<&str> = text_keys(&text(event));
        assert_eq!(keys, fields, "{name}");
        let example: Vec<&String> = examples[name].keys().collect();
        let mut named: Vec<&str> = fields.iter().copied().filter(|key| *key != "task_id").collect();
        named.sort_unstable();
        assert_eq!(example, named, "the example of {name}");
    }
}

/// The keys of a flat object, in their order, which a parser does not keep.
fn text_keys(line: &str) -> Vec<&'static str> {
    let all: std::collections::BTreeSet<&str> =
        EVENTS.iter().flat_map(|(_, fields)| *fields).copied().collect();
    let mut places: Vec<(usize, &str)> =
        all.into_iter().filter_map(|key| Some((line.find(&format!("\"{key}\":"))?, key))).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, key)| key).collect()
}

#[test]
fn every_field_is_explained_in_the_page() {
    let page = include_str!("../../docs/audit.md");
    for (name, fields) in EVENTS {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
        for field in fields {
            assert!(page.contains(&format!("| `{field}` |")), "{field}");
        }
    }
}

#[test]
fn what_is_not_known_is_null_and_a_fan_out_names_all_its_targets() {
    let line = json(&call(&CallRecord { target: None, trace: None, ..record() }));
    assert!(line["target"].is_null() && line["trace_id"].is_null(), "{line:?}");
    let line = json(&call(&CallRecord { targets: ["a".into(), "b".into()].into(), ..record() }));
    assert_eq!(line["target"], "a,b");
    let line = json(&Event::Certificate { identity: "i", reason: "certificate_expired" });
    assert!(line["event"] == "refused" && line["agent_id"].is_null(), "{line:?}");
    let problem = Some("policy.toml:3: no".to_owned());
    let failed = Reload { trigger: Trigger::Signal, changed: vec![], policy_version: 3, problem };
    let line = json(&Event::Reload(&failed));
    assert_eq!((&line["outcome"], &line["changed"]), (&"failed".into(), &Value::Array(vec![])));
}

#[test]
fn a_peer_s_text_stays_in_its_field_and_is_cut_at_a_character() {
    let hostile = "\",\"caller\":\"admin\"}\n{\u{0}\u{1b}[31m";
    let event = Event::Refused { identity: "i", agent: hostile, reason: "unauthorized" };
    assert_eq!(text(&event).matches('\n').count(), 1, "one line");
    assert_eq!(json(&event)["agent_id"], hostile);
    for plain in ["", " ", "~\u{7f}", "ä€😀", "a/b'<&>"] {
        let event = Event::Refused { identity: "i", agent: plain, reason: "unauthorized" };
        let expected = format!("\"agent_id\":{},", serde_json::to_string(plain).unwrap());
        assert!(text(&event).contains(&expected), "{plain:?}");
    }
    for byte in 0..0x20 {
        let control = char::from(byte).to_string();
        let event = Event::Refused { identity: "i", agent: &control, reason: "unauthorized" };
        assert_eq!(json(&event)["agent_id"], *control);
    }
    let agent = "ä".repeat(600);
    let long = Event::Refused { identity: "i", agent: &agent, reason: "unauthorized" };
    assert_eq!(json(&long)["agent_id"], "ä".repeat(512));
}

#[test]
fn the_time_of_a_line_is_its_own() {
    let mut lines = Lines::default();
    let mut out = Vec::new();
    for at_ms in [0, 999, 1000, 951_782_400_000, 951_782_399_999] {
        lines.write(&mut out, at_ms, &Event::Stopped { dropped: 0 });
    }
    let times: Vec<String> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["time"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        times,
        [
            "1970-01-01T00:00:00.000Z",
            "1970-01-01T00:00:00.999Z",
            "1970-01-01T00:00:01.000Z",
            "2000-02-29T00:00:00.000Z",
            "2000-02-28T23:59:59.999Z"
        ]
    );
}
