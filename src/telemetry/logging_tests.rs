use std::io;
use std::sync::{Arc, Mutex};

use agent_reach_core::{Liveness, Outcome};
use agent_reach_protocol::CallMode;
use serde_json::Value;

use super::*;

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl io::Write for Page {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is written while `act` runs.
fn written(log: &str, format: LogFormat, act: impl FnOnce()) -> String {
    let page = Page::default();
    let to = page.clone();
    let settings = Tracing { log: log.into(), format, ..Tracing::default() };
    let log = subscriber(&settings, move || to.clone(), false).unwrap();
    tracing::dispatcher::with_default(&log, act);
    let bytes = page.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

fn left(agent: &str) -> Fact {
    Fact::Left { agent: agent.into(), identity: "i".into(), reason: "normal" }
}

fn call_ended() -> Fact {
    Fact::CallEnded {
        capability: Some("a.b".into()),
        mode: CallMode::Call,
        outcome: Outcome::Completed,
        accept_us: Some(1),
        process_us: None,
        total_us: 2,
        record: None,
    }
}

#[test]
fn life_cycle_is_told_at_info_slow_consumers_at_warn_and_calls_at_debug() {
    let facts = [
        Fact::Registered { agent: "a".into(), identity: "i".into(), replaced: true },
        Fact::Refused { identity: "i".into(), agent: "a".into(), reason: "unauthorized" },
        left("a"),
        Fact::Liveness { agent: "a".into(), to: Liveness::Gone },
        Fact::Act {
            capability: "hub.agents.disconnect",
            agent: "a".into(),
            identity: "i".into(),
            subject: "b".into(),
        },
        Fact::SlowConsumer { agent: "a".into() },
        call_ended(),
    ];
    let told = |level| {
        let text = written(level, LogFormat::Json, || facts.iter().for_each(log_fact));
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| format!("{} {}", line["level"], line["message"]).replace('"', ""))
            .collect::<Vec<_>>()
    };
    let info = [
        "INFO agent registered",
        "INFO registration refused",
        "INFO agent left",
        "INFO liveness changed",
        "INFO operator acted",
        "WARN slow consumer",
    ];
    assert_eq!(told("info"), info);
    assert_eq!(told("warn"), ["WARN slow consumer"]);
    assert_eq!(told("agent_reach=debug")[6], "DEBUG call ended");
}

#[test]
fn in_json_the_fields_stand_beside_the_message_with_their_types() {
    let text = written("debug", LogFormat::Json, || log_fact(&call_ended()));
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["capability"], &line["total_us"]), (&"a.b".into(), &2.into()));
    assert_eq!((line.get("process_us"), line["mode"].as_str()), (None, Some("call")));
}

#[test]
fn text_of_a_peer_cannot_begin_a_line_or_drive_a_terminal() {
    let text = written("info", LogFormat::Text, || log_fact(&left("a\nERROR forged \u{1b}[2J\u{202e}")));
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.contains(r#"agent left agent_id="a\nERROR forged \u{1b}[2J\u{202e}" reason="normal""#),
        "{text}"
    );
}

#[test]
fn text_of_a_peer_is_cut_at_a_character() {
    assert_eq!(cut(&"a".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX);
    assert_eq!(cut(&"a".repeat(TEXT_BYTES_MAX + 1)).len(), TEXT_BYTES_MAX);
    assert_eq!(cut(&"€".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX - 1);
}

#[test]
fn a_filter_that_has_no_meaning_is_refused_with_the_reason() {
    let error = check_filter("agent_reach=loud").unwrap_err().to_string();
    assert!(error.starts_with(r#"tracing.log: "agent_reach=loud" is no filter: "#), "{error}");
    for filter in ["info", "warn,agent_reach=debug", "off", "agent_reach::transport=trace"] {
        check_filter(filter).unwrap();
    }
}
