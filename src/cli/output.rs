//! What commands write: JSON on stdout, in lines for people on a terminal; errors on stderr.

use std::io::{self, IsTerminal, Write};

use agent_reach_protocol::json::value_from_msgpack;
use agent_reach_sdk::{Attempt, CallError, Payload, Reply};
use rmpv::Value;
use serde::Serialize;
use serde_json::value::RawValue;

use super::table::clean;

/// Writes one line on stdout. `false` when nobody reads it any more, as after `| head`.
pub(super) fn line(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_ok()
}

/// Writes a part of a line on stdout.
pub(super) fn part(text: &str) -> bool {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Writes JSON: indented on a terminal, on one line for programs.
pub(super) fn json(text: &str) -> bool {
    line(&layout(text, io::stdout().is_terminal()))
}

/// Writes JSON on one line.
pub(super) fn json_line(text: &str) -> bool {
    line(&layout(text, false))
}

/// A value of the hub as JSON.
pub(super) fn json_of(value: &Value) -> String {
    let mut bytes = Vec::new();
    // Writing to memory does not fail.
    if rmpv::encode::write_value(&mut bytes, value).is_err() {
        bytes = vec![0xc0];
    }
    value_from_msgpack(&bytes).unwrap_or_else(|_| "null".to_owned())
}

/// A body as JSON; bytes that are neither MessagePack nor JSON as `{"$bin": base64}`.
pub(super) fn body_json(payload: &Payload) -> String {
    let kind = payload.content_type.as_deref().unwrap_or("application/msgpack");
    if payload.body.is_empty() {
        return "null".to_owned();
    }
    let converted = if kind.contains("msgpack") {
        value_from_msgpack(&payload.body).ok()
    } else if kind.contains("json") {
        serde_json::from_slice::<&RawValue>(&payload.body).ok().map(|text| text.get().to_owned())
    } else {
        None
    };
    converted.unwrap_or_else(|| json_of(&Value::Binary(payload.body.to_vec())))
}

/// How a call ended, as `--json` shows it.
#[derive(Serialize)]
pub(super) struct Outcome<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    status: &'static str,
    #[serde(flatten)]
    way: Option<Way<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure<'a>>,
}

/// How a call got to its end.
#[derive(Serialize)]
struct Way<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_ms: Option<u128>,
    attempts: Vec<Tried<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cached: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    duplicate: bool,
}

#[derive(Serialize)]
struct Tried<'a> {
    target: &'a str,
    outcome: &'a str,
    ms: u64,
    reason: &'a str,
}

#[derive(Serialize)]
struct Failure<'a> {
    code: &'a str,
    message: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<RawValue>>,
}

/// Whether [`Outcome`] says how the call got there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// The result or the error alone.
    Brief,
    /// With ids, route and attempts.
    Whole,
}

impl<'a> Outcome<'a> {
    /// Of a result.
    pub(super) fn of(result: &'a Result<Reply<Payload>, CallError>, detail: Detail) -> Self {
        let whole = detail == Detail::Whole;
        match result {
            Ok(reply) => Self {
                target: reply.target.as_deref(),
                status: "completed",
                way: whole.then(|| Way {
                    call_id: reply.call_id.as_deref(),
                    request_id: &reply.request_id,
                    route: reply.route.as_deref(),
                    execution_ms: reply.execution.map(|time| time.as_millis()),
                    attempts: tried(&reply.attempts),
                    cached: reply.cached,
                    duplicate: reply.duplicate,
                }),
                body: raw(body_json(&reply.body)),
                error: None,
            },
            Err(error) => Self {
                target: error.target.as_deref(),
                status: if error.code.as_str() == "no_instance" { "no_instance" } else { "failed" },
                way: whole.then(|| Way {
                    call_id: error.call_id.as_deref(),
                    request_id: &error.request_id,
                    route: None,
                    execution_ms: None,
                    attempts: tried(&error.attempts),
                    cached: false,
                    duplicate: false,
                }),
                body: None,
                error: Some(Failure {
                    code: error.code.as_str(),
                    message: &error.message,
                    retryable: error.retryable,
                    details: details(error).and_then(raw),
                }),
            },
        }
    }

    /// The same for a target that the reply itself does not name.
    pub(super) fn at(mut self, target: &'a str) -> Self {
        self.target = Some(target);
        self
    }

    /// As JSON text.
    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Tells people on stderr why a call failed and what was tried.
pub(super) fn explain(command: &str, error: &CallError) {
    eprintln!("agent-reach {command}: {}: {}", error.code, clean(&error.message));
    match (&error.cause, details(error)) {
        (Some(cause), _) => {
            eprintln!("  cause: {}: {}", cause.code, clean(&cause.message));
            if let Some(details) = cause.details.as_ref().and_then(|bytes| value_from_msgpack(bytes).ok()) {
                eprintln!("  details: {}", clean(&layout(&details, false)));
            }
        }
        (None, Some(details)) => eprintln!("  details: {}", clean(&layout(&details, false))),
        (None, None) => {}
    }
    tried_before(&error.attempts);
    if error.retryable {
        eprintln!("  another try can succeed");
    }
    // Of a question to the hub itself there is no trace.
    if let Some(call_id) = error.call_id.as_ref().filter(|_| command == "call") {
        eprintln!("  its decisions: agent-reach trace {}", clean(call_id));
    }
}

/// Tells people on stderr of every try, in order.
pub(super) fn tried_before(attempts: &[Attempt]) {
    for Attempt { target, outcome, ms, reason } in attempts {
        let why = if reason.is_empty() { String::new() } else { format!(" ({})", clean(reason)) };
        eprintln!("  tried {} for {ms} ms: {outcome}{why}", clean(target));
    }
}

/// What the error tells programs.
pub(super) fn details(error: &CallError) -> Option<String> {
    let details = error.details.as_ref().filter(|bytes| !bytes.is_empty())?;
    value_from_msgpack(details).ok()
}

fn tried(attempts: &[Attempt]) -> Vec<Tried<'_>> {
    attempts
        .iter()
        .map(|Attempt { target, outcome, ms, reason }| Tried { target, outcome, ms: *ms, reason })
        .collect()
}

fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// Valid JSON with its white space put anew: keys and numbers stay as they were written, which a parser would
/// not promise.
pub(super) fn layout(text: &str, indented: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut depth, mut string, mut escaped) = (0_usize, false, false);
    let mut chars = text.chars().filter(|c| !matches!(c, '\n' | '\r')).peekable();
    let fresh = |out: &mut String, depth: usize| {
        if indented {
            out.push('\n');
            out.extend(std::iter::repeat_n("  ", depth));
        }
    };
    while let Some(c) = chars.next() {
        if string {
            string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            out.push(c);
            continue;
        }
        match c {
            ' ' | '\t' => {}
            '{' | '[' => {
                out.push(c);
                while chars.next_if(|next| matches!(next, ' ' | '\t')).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        fresh(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                fresh(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                fresh(&mut out, depth);
            }
            ':' => out.push_str(if indented { ": " } else { ":" }),
            _ => {
                string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_changes_white_space_outside_of_strings_only() {
        let text = "{ \"b\" : [ 1.0 , {} , [ ] ],\n \"a\": \"x: {\\\"y\\\", \\\\\" }";
        assert_eq!(layout(text, false), "{\"b\":[1.0,{},[]],\"a\":\"x: {\\\"y\\\", \\\\\"}");
        let lines = "{\n  \"b\": [\n    1.0,\n    {},\n    []\n  ],\n  \"a\": \"x: {\\\"y\\\", \\\\\"\n}";
        assert_eq!(layout(text, true), lines);
        assert_eq!(layout(lines, false), layout(text, false));
    }

    #[test]
    fn bodies_show_as_json_whatever_their_kind() {
        assert_eq!(body_json(&Payload::default()), "null");
        assert_eq!(body_json(&Payload::new(&b"\x81\xa1a\x01"[..])), "{\"a\":1}");
        assert_eq!(body_json(&Payload::new(&b"[1]"[..]).content_type("application/json")), "[1]");
        assert_eq!(body_json(&Payload::new(&b"hi"[..]).content_type("text/plain")), "{\"$bin\":\"aGk=\"}");
        assert_eq!(body_json(&Payload::new(&b"\xc1"[..])), "{\"$bin\":\"wQ==\"}");
    }
}
