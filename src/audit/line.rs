//! An event as a line of JSON. `docs/audit.md` explains each field.
//!
//! Written by hand, key by key: this is done for every call that the hub carries.

use std::fmt::Write as _;
use std::io::Write as _;

use agent_reach_core::CallRecord;
use time::OffsetDateTime;

use super::event::{Event, Reload};
use crate::telemetry::logging::cut;

/// What stands before a text, as one piece: `,"key":"`.
macro_rules! before {
    ($key:literal) => {
        concat!(",\"", $key, "\":\"")
    };
}

/// Every event with its fields, in their order. Of a call, `task_id` is only there when it is a task.
pub const EVENTS: [(&str, &[&str]); 9] = [
    ("started", &["time", "event", "hub", "policy_version"]),
    (
        "call",
        &[
            "time",
            "event",
            "call_id",
            "request_id",
            "task_id",
            "caller",
            "target",
            "capability",
            "mode",
            "attempt",
            "outcome",
            "ms",
            "trace_id",
        ],
    ),
    ("refused", &["time", "event", "identity", "agent_id", "reason"]),
    ("registered", &["time", "event", "identity", "agent_id"]),
    ("replaced", &["time", "event", "identity", "agent_id"]),
    ("left", &["time", "event", "identity", "agent_id", "reason"]),
    ("act", &["time", "event", "caller", "identity", "capability", "subject"]),
    ("reload", &["time", "event", "trigger", "changed", "policy_version", "outcome", "problem"]),
    ("stopped", &["time", "event", "dropped"]),
];

/// Makes lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The millisecond of the last line, and what a line of it begins with: many have the same.
    at_ms: u64,
    begin: String,
    scratch: String,
}

impl Lines {
    /// Appends the line of an event.
    pub(super) fn write(&mut self, out: &mut Vec<u8>, at_ms: u64, event: &Event<'_>) {
        if self.at_ms != at_ms || self.begin.is_empty() {
            self.at_ms = at_ms;
            self.begin = begin(at_ms);
        }
        // As much as the line of a call takes, nearly always: asked for once.
        out.reserve(512);
        out.extend_from_slice(self.begin.as_bytes());
        let mut object = Object(out);
        match event {
            Event::Started { policy_version } => {
                object.value("started");
                object.text("hub", concat!("agent-reach/", env!("CARGO_PKG_VERSION")));
                object.number("policy_version", *policy_version);
            }
            Event::Call { record, mode, outcome, ms } => {
                object.value("call");
                call(&mut object, record, &mut self.scratch, (mode.as_str(), outcome.as_str(), *ms));
            }
            Event::Refused { identity, agent, reason } => {
                object.value("refused");
                object.text("identity", identity);
                object.text("agent_id", agent);
                object.text("reason", reason);
            }
            Event::Certificate { identity, reason } => {
                object.value("refused");
                object.text("identity", identity);
                object.maybe("agent_id", None);
                object.text("reason", reason);
            }
            Event::Registered { agent, identity, replaced } => {
                object.value(if *replaced { "replaced" } else { "registered" });
                object.text("identity", identity);
                object.text("agent_id", agent);
            }
            Event::Left { agent, identity, reason } => {
                object.value("left");
                object.text("identity", identity);
                object.text("agent_id", agent);
                object.text("reason", reason);
            }
            Event::Act { capability, agent, identity, subject } => {
                object.value("act");
                object.text("caller", agent);
                object.text("identity", identity);
                object.text("capability", capability);
                object.text("subject", subject);
            }
            Event::Reload(change) => {
                object.value("reload");
                reload(&mut object, change);
            }
            Event::Stopped { dropped } => {
                object.value("stopped");
                object.number("dropped", *dropped);
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The begin of a line of this millisecond.
fn begin(at_ms: u64) -> String {
    let moment = i64::try_from(at_ms / 1000).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let moment = moment.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = moment.to_calendar_date();
    let (hour, minute, second) = moment.to_hms();
    let (month, ms) = (u8::from(month), at_ms % 1000);
    format!(
        "{{\"time\":\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z\",\"event\":"
    )
}

fn call(object: &mut Object<'_>, record: &CallRecord, scratch: &mut String, end: (&str, &str, u64)) {
    let (mode, outcome, ms) = end;
    object.plain_behind(before!("call_id"), &record.call_id);
    object.text_behind(before!("request_id"), &record.request_id);
    if let Some(task) = record.task {
        scratch.clear();
        let (Ok(()) | Err(_)) = write!(scratch, "{task}");
        object.text_behind(before!("task_id"), scratch);
    }
    object.plain_behind(before!("caller"), &record.caller);
    match &record.target {
        _ if !record.targets.is_empty() => object.text("target", &record.targets.join(",")),
        Some(target) => object.plain_behind(before!("target"), target),
        None => object.maybe("target", None),
    }
    object.text_behind(before!("capability"), &record.capability);
    object.plain_behind(before!("mode"), mode);
    object.number("attempt", u64::from(record.attempts));
    object.plain_behind(before!("outcome"), outcome);
    object.number("ms", ms);
    scratch.clear();
    let trace = record.trace.map(|trace| {
        let (Ok(()) | Err(_)) = write!(scratch, "{trace}");
        &**scratch
    });
    object.maybe("trace_id", trace);
}

fn reload(object: &mut Object<'_>, change: &Reload) {
    object.text("trigger", change.trigger.as_str());
    object.key("changed");
    object.0.push(b'[');
    for (place, part) in change.changed.iter().enumerate() {
        if place > 0 {
            object.0.push(b',');
        }
        object.value(part);
    }
    object.0.push(b']');
    object.number("policy_version", change.policy_version);
    object.text("outcome", if change.problem.is_some() { "failed" } else { "completed" });
    object.maybe("problem", change.problem.as_deref());
}

/// An object of JSON that has a key already.
struct Object<'a>(&'a mut Vec<u8>);

impl Object<'_> {
    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// A text with its quotes, cut where it is too long.
    fn value(&mut self, text: &str) {
        self.0.push(b'"');
        self.rest(text);
    }

    /// A text behind its first quote.
    fn rest(&mut self, text: &str) {
        let text = cut(text);
        if is_plain(text) {
            self.0.extend_from_slice(text.as_bytes());
            self.0.push(b'"');
        } else {
            self.0.pop();
            if serde_json::to_writer(&mut *self.0, text).is_err() {
                self.0.extend_from_slice(b"null");
            }
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        self.key(key);
        self.value(text);
    }

    fn maybe(&mut self, key: &str, text: Option<&str>) {
        self.key(key);
        match text {
            Some(text) => self.value(text),
            None => self.0.extend_from_slice(b"null"),
        }
    }

    /// A text behind what [`before!`] made of its key: a copy whose length the compiler knows.
    #[inline(always)]
    fn text_behind(&mut self, before: &'static str, text: &str) {
        self.0.extend_from_slice(before.as_bytes());
        self.rest(text);
    }

    /// The same of a text that the hub made itself, or that is an agent's id: neither holds what JSON would have another
    /// way.
    #[inline(always)]
    fn plain_behind(&mut self, before: &'static str, text: &str) {
        debug_assert!(is_plain(text), "{text:?}");
        self.0.extend_from_slice(before.as_bytes());
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
    }

    fn number(&mut self, key: &str, number: u64) {
        self.key(key);
        match u8::try_from(number) {
            Ok(digit @ 0..=9) => self.0.push(b'0' + digit),
            // Writing into memory does not fail.
            _ => {
                let (Ok(()) | Err(_)) = write!(self.0, "{number}");
            }
        }
    }
}

/// Whether a text stands in JSON as it is: nearly every one does. Without a branch for each byte, so that the compiler
/// looks at many at once.
fn is_plain(text: &str) -> bool {
    text.bytes().fold(true, |plain, byte| plain & (byte >= b' ') & (byte != b'"') & (byte != b'\\'))
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
