//! What `agent-reach call` can say of a call: who may get it, how long it may take, and what to do after a failure.

use std::io::Read;
use std::time::Duration;

use agent_reach_protocol::json::value_to_msgpack;
use agent_reach_sdk::{CallBuilder, Payload, Priority};
use clap::Args;

/// Most bytes of input that are read; the hub takes 1 MiB unless it is configured for more.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What the hub gives a call in all, and its processing time, when neither is named.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Options of a call, each as the SDK has it.
#[derive(Debug, Args)]
pub struct CallOptions {
    /// Processing time, from acceptance: 500ms, 30s, 2m, 1h [default: the capability's own, else 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Time until an agent has it [default: 3s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    accept_timeout: Option<Duration>,
    /// Time for everything, waiting and every try included [default: 60s, or what --timeout and --wait need; of a
    /// task 24h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Time that would be liked: an agent that expects to take longer says so
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) preferred: Option<Duration>,
    /// Wait so long for an agent with the capability to come [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,
    /// Fail with `overloaded` while all agents are busy, instead of waiting in the hub
    #[arg(long)]
    no_queue: bool,
    /// Order in queues
    #[arg(long, value_name = "WHICH", value_parser = ["low", "normal", "high"])]
    priority: Option<String>,
    /// Prefer agents with this label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Take only agents with this label; may be repeated
    #[arg(long = "require", value_name = "K=V", value_parser = pair)]
    require: Vec<(String, String)>,
    /// Take only agents whose version of the capability fits, like ^1.2
    #[arg(long, value_name = "REQUIREMENT")]
    version: Option<String>,
    /// Take only agents that promise what this JSON Schema requires of the result
    #[arg(long, value_name = "JSON | @FILE", value_parser = schema)]
    expect: Option<Payload>,
    /// Calls with the same key go to the same agent while it has room
    #[arg(long, value_name = "KEY")]
    affinity: Option<String>,
    /// Further tries on the same agent after a failure that may pass [default: 2]
    #[arg(long, value_name = "N")]
    retries: Option<u64>,
    /// Then one try on another agent
    #[arg(long)]
    fallback: bool,
    /// Then the last good result for the same input, if it is not older
    #[arg(long, value_name = "AGE", value_parser = duration)]
    cached: Option<Duration>,
    /// One business intent: a repeated call of the same caller with this id does not run again. Needs --cert:
    /// with the directory of `dev` each command is another caller
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl CallOptions {
    /// The call, or the task, with these options.
    pub(super) fn describe(&self, call: CallBuilder<Payload>, task: bool) -> CallBuilder<Payload> {
        let mut call = self.times(call, task).allow_fallback(self.fallback).queue(!self.no_queue);
        for (key, value) in &self.labels {
            call = call.label(key, value);
        }
        for (key, value) in &self.require {
            call = call.require(key, value);
        }
        if let Some(requirement) = &self.version {
            call = call.version(requirement);
        }
        if let Some(schema) = &self.expect {
            call = call.expected_output(schema.clone());
        }
        if let Some(key) = &self.affinity {
            call = call.affinity_key(key);
        }
        if let Some(retries) = self.retries {
            call = call.retries(retries);
        }
        if let Some(age) = self.cached {
            call = call.allow_cached(age);
        }
        if let Some(id) = &self.request_id {
            call = call.request_id(id);
        }
        match self.priority.as_deref() {
            Some("low") => call.priority(Priority::Low),
            Some("high") => call.priority(Priority::High),
            Some(_) | None => call,
        }
    }

    fn times(&self, mut call: CallBuilder<Payload>, task: bool) -> CallBuilder<Payload> {
        if let Some(timeout) = self.timeout {
            call = call.timeout(timeout);
        }
        if let Some(timeout) = self.accept_timeout {
            call = call.accept_timeout(timeout);
        }
        if let Some(time) = self.preferred {
            call = call.preferred_timeout(time);
        }
        if let Some(wait) = self.wait {
            call = call.wait_for_agent(wait);
        }
        // A task waits for an agent in any case, and for as long as the hub lets it.
        if let Some(budget) = if task { self.budget } else { self.budget() } {
            call = call.budget(budget);
        }
        call
    }

    /// The budget is 60 s by default; who names a longer time means to wait for it.
    fn budget(&self) -> Option<Duration> {
        let named = self.timeout.is_some() || self.wait.is_some();
        let needed = self.timeout.unwrap_or(TIMEOUT).max(TIMEOUT).saturating_add(TIMEOUT);
        self.budget.or_else(|| named.then(|| needed.saturating_add(self.wait.unwrap_or_default())))
    }
}

/// A JSON Schema as it stands, or in a file behind `@`.
pub(super) fn schema(argument: &str) -> Result<Payload, String> {
    let text = match argument.strip_prefix('@') {
        Some(file) => read_file(file)?,
        None => argument.to_owned(),
    };
    value_to_msgpack(&text).map(Payload::new).map_err(|fault| format!("the schema is no JSON: {fault}"))
}

/// The body of the call.
pub(super) fn input(argument: Option<&str>) -> Result<Payload, String> {
    let text = match argument {
        None => return Ok(Payload::default()),
        Some("-") => read("stdin", std::io::stdin().lock())?,
        Some(argument) => match argument.strip_prefix('@') {
            Some(file) => read_file(file)?,
            None => argument.to_owned(),
        },
    };
    value_to_msgpack(&text).map(Payload::new).map_err(|fault| {
        let hint = match argument {
            Some(argument) if argument != "-" && !argument.starts_with('@') => {
                "; in a shell write it as '{\"text\":\"hello\"}', a text alone as '\"hello\"'"
            }
            Some(_) | None => "",
        };
        format!("the input is no JSON: {fault}{hint}")
    })
}

fn read_file(file: &str) -> Result<String, String> {
    read(file, std::fs::File::open(file).map_err(|e| format!("{file}: {e}"))?)
}

fn read(name: &str, from: impl Read) -> Result<String, String> {
    let mut text = String::new();
    let read =
        from.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| format!("{name}: {e}"))?;
    if read as u64 > INPUT_BYTES_MAX {
        return Err(format!("{name}: more than {INPUT_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// `500ms`, `30s`, `2m`, `1h`; a number alone is seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match text.get(digits.len()..) {
        Some("ms") => 1,
        Some("" | "s") => 1_000,
        Some("m" | "min") => 60_000,
        Some("h") => 3_600_000,
        Some(_) | None => return Err("a number with ms, s, m or h, like 30s".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a whole number with ms, s, m or h, like 30s".to_owned())?;
    match number.checked_mul(unit) {
        Some(ms @ 1..) => Ok(Duration::from_millis(ms)),
        Some(0) => Err("no time at all".to_owned()),
        None => Err("too long".to_owned()),
    }
}

/// `KEY=VALUE`.
pub(super) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: CallOptions,
    }

    #[test]
    fn times_have_a_unit_or_are_seconds() {
        let of = |text| duration(text).ok().map(|time| time.as_millis());
        assert_eq!(
            ["500ms", "30s", "30", "2m", "1h"].map(of),
            [500, 30_000, 30_000, 120_000, 3_600_000].map(Some)
        );
        assert_eq!(["", "s", "0", "1.5s", "-1s", "1d", "99999999999999999999s"].map(of), [None; 7]);
    }

    #[test]
    fn labels_have_a_key_and_may_have_an_empty_value() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(pair("=b").is_err() && pair("a").is_err());
    }

    #[test]
    fn input_that_is_no_json_says_how_to_write_it() {
        assert_eq!(input(None), Ok(Payload::default()));
        assert_eq!(input(Some("[1]")), Ok(Payload::new(&b"\x91\x01"[..])));
        let text = input(Some("hello")).unwrap_err();
        assert!(text.starts_with("the input is no JSON: ") && text.ends_with("'\"hello\"'"), "{text}");
        assert!(input(Some("@/no/such/file")).unwrap_err().starts_with("/no/such/file: "));
    }

    #[test]
    fn the_budget_has_room_for_the_times_that_are_named() {
        let of = |line: &str| {
            let line = Line::try_parse_from(format!("call {line}").split_whitespace()).unwrap();
            line.options.budget().map(|budget| budget.as_secs())
        };
        assert_eq!(of(""), None, "the hub's own");
        assert_eq!(of("--timeout 5s"), Some(60));
        assert_eq!(of("--timeout 2m"), Some(150));
        assert_eq!(of("--wait 2m"), Some(180));
        assert_eq!(of("--timeout 2m --wait 1h --budget 10s"), Some(10));
    }
}
