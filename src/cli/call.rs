//! `agent-reach call`: a call from the shell.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use agent_reach_protocol::json::value_to_msgpack;
use agent_reach_protocol::names::{self, CapabilityName};
use agent_reach_sdk::{Agent, CallBuilder, CallError, Payload, PendingCall, Priority, Reply};
use clap::Args;

use super::hub::{self, DONE, FAILED, HubArgs, USAGE};
use super::output::{self, Detail, Outcome};
use super::table::clean;

/// Most bytes of input that are read; the hub takes 1 MiB unless it is configured for more.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What the hub gives a call in all, and its processing time, when neither is named.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `agent-reach call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agent-reach call text.upper '{\"text\":\"hello\"}'
  agent-reach call report.build @order.json --timeout 2m
  echo '\"hi\"' | agent-reach call chat.say - --agent alice --agent bob
  agent-reach call story.write --stream

Exit code: 0 completed, 1 failed or cancelled, 2 usage, 3 could not connect")]
pub struct CallArgs {
    /// What is asked for, like text.upper
    pub capability: String,
    /// The input as JSON, @FILE, or - for stdin; none if absent
    #[arg(value_name = "JSON | @FILE | -")]
    pub input: Option<String>,
    /// Exactly this agent; several times: each of them
    #[arg(long = "agent", value_name = "ID")]
    pub agents: Vec<String>,
    /// Every agent that has the capability: one line of JSON for each
    #[arg(long, conflicts_with_all = ["stream", "notify"])]
    pub all: bool,
    /// Print the pieces of the result as they come, one line for each
    #[arg(long, conflicts_with = "notify")]
    pub stream: bool,
    /// Wait only until an agent has it
    #[arg(long)]
    pub notify: bool,
    /// Processing time, from acceptance: 500ms, 30s, 2m, 1h [default: the capability's own, else 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Time until an agent has it [default: 3s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub accept_timeout: Option<Duration>,
    /// Prefer agents with this label; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Take only agents with this label; may be repeated
    #[arg(long = "require", value_name = "K=V", value_parser = pair)]
    pub require: Vec<(String, String)>,
    /// One business intent: a repeated call of the same caller with this id does not run again. Needs --cert:
    /// with the directory of `dev` each command is another caller
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Order in queues
    #[arg(long, value_name = "WHICH", value_parser = ["low", "normal", "high"])]
    pub priority: Option<String>,
    /// Print the whole reply: call_id, route, attempts, body or error
    #[arg(long)]
    pub json: bool,
    /// Make a durable task
    #[arg(long, hide = true)]
    pub task: bool,
    /// Print the id of the task
    #[arg(long, hide = true)]
    pub detach: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Runs the command. Exit 0 completed, 1 failed or cancelled, 2 usage, 3 could not connect.
#[must_use]
pub fn run(args: &CallArgs) -> ExitCode {
    let payload = match check(args).and_then(|()| input(args.input.as_deref())) {
        Ok(payload) => payload,
        Err(text) => {
            eprintln!("agent-reach call: {text}");
            return ExitCode::from(USAGE);
        }
    };
    hub::run("call", &args.hub, FAILED, async |agent| {
        let call = describe(agent, args, payload);
        let done = if args.all || args.agents.len() > 1 {
            fan_out(call, args).await
        } else if args.stream {
            stream(call, args).await
        } else if args.notify {
            notify(call, args).await
        } else {
            single(call, args).await
        };
        done.unwrap_or_else(|error| failed(error, args))
    })
}

/// What clap cannot see.
fn check(args: &CallArgs) -> Result<(), String> {
    if args.task || args.detach {
        return Err("--task and --detach: tasks are not in this version".to_owned());
    }
    if args.agents.len() > 1 && (args.stream || args.notify) {
        return Err("--stream and --notify are for one agent".to_owned());
    }
    if let Some(wrong) = args.agents.iter().find(|id| !names::is_agent_id(id)) {
        return Err(format!("--agent {wrong:?}: 1 to 128 of ASCII letters, digits and . _ - : @ + ~"));
    }
    let name = names::fold(&args.capability);
    name.parse::<CapabilityName>().map(drop).map_err(|e| format!("capability {:?} {e}", args.capability))
}

/// The body of the call.
fn input(argument: Option<&str>) -> Result<Payload, String> {
    let text = match argument {
        None => return Ok(Payload::default()),
        Some("-") => read("stdin", std::io::stdin().lock())?,
        Some(argument) => match argument.strip_prefix('@') {
            Some(file) => read(file, std::fs::File::open(file).map_err(|e| format!("{file}: {e}"))?)?,
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

fn read(name: &str, from: impl Read) -> Result<String, String> {
    let mut text = String::new();
    let read =
        from.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| format!("{name}: {e}"))?;
    if read as u64 > INPUT_BYTES_MAX {
        return Err(format!("{name}: more than {INPUT_BYTES_MAX} bytes"));
    }
    Ok(text)
}

fn describe(agent: &Agent, args: &CallArgs, payload: Payload) -> CallBuilder<Payload> {
    let mut call = agent.call::<Payload>(&args.capability, payload).agents(args.agents.iter().cloned());
    for (key, value) in &args.labels {
        call = call.label(key, value);
    }
    for (key, value) in &args.require {
        call = call.require(key, value);
    }
    if let Some(timeout) = args.timeout {
        // The budget is 60 s by default; who names a longer time means to wait for it.
        call = call.timeout(timeout).budget(timeout.max(TIMEOUT).saturating_add(TIMEOUT));
    }
    if let Some(timeout) = args.accept_timeout {
        call = call.accept_timeout(timeout);
    }
    if let Some(id) = &args.request_id {
        call = call.request_id(id);
    }
    match args.priority.as_deref() {
        Some("low") => call.priority(Priority::Low),
        Some("high") => call.priority(Priority::High),
        Some(_) | None => call,
    }
}

async fn single(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut pending: PendingCall<Payload> = call.start().await?;
    if let Some(accepted) = pending.accepted().await? {
        let target = clean(accepted.target.as_deref().unwrap_or("an agent"));
        match accepted.wait {
            Some(wait) if accepted.would_timeout => {
                eprintln!("{target} has it, and expects to take {} ms", wait.as_millis());
            }
            Some(_) | None => eprintln!("{target} has it"),
        }
    }
    pending.reply().await.map(|reply| completed(reply, args))
}

async fn notify(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let reply = call.notify().await?;
    eprintln!("{} has it", clean(reply.target.as_deref().unwrap_or("an agent")));
    if args.json {
        let whole = serde_json::json!({
            "status": "completed",
            "target": reply.target,
            "call_id": reply.call_id,
            "request_id": reply.request_id,
        });
        output::json(&whole.to_string());
    }
    Ok(DONE)
}

async fn stream(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut stream = call.stream::<Payload>().await?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        let body = output::body_json(&chunk.body);
        let text = if args.json { format!("{{\"seq\":{},\"chunk\":{body}}}", chunk.seq) } else { body };
        if !output::json_line(&text) {
            // Nobody reads: dropping the stream cancels the call.
            return Ok(FAILED);
        }
    }
    let reply = stream.end().await?;
    // The end of a stream often says nothing.
    if !args.json && output::body_json(&reply.body) == "null" {
        return Ok(DONE);
    }
    if args.json {
        output::json_line(&Outcome::of(&Ok(reply), Detail::Whole).text());
        return Ok(DONE);
    }
    output::json_line(&output::body_json(&reply.body));
    Ok(DONE)
}

async fn fan_out(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut parts = call.all().stream().await?;
    let detail = if args.json { Detail::Whole } else { Detail::Brief };
    while let Some(part) = parts.next().await {
        if !output::json_line(&Outcome::of(&part.result, detail).at(&part.target).text()) {
            return Ok(FAILED);
        }
    }
    let summary = parts.summary().await?;
    eprintln!("{} agents: {} completed, {} failed", summary.targets, summary.completed, summary.failed);
    Ok(if summary.failed == 0 { DONE } else { FAILED })
}

fn completed(reply: Reply<Payload>, args: &CallArgs) -> u8 {
    if args.json {
        output::json(&Outcome::of(&Ok(reply), Detail::Whole).text());
    } else {
        output::json(&output::body_json(&reply.body));
    }
    DONE
}

fn failed(error: CallError, args: &CallArgs) -> u8 {
    output::explain("call", &error);
    if args.json {
        output::json(&Outcome::of(&Err(error), Detail::Whole).text());
    }
    FAILED
}

/// `500ms`, `30s`, `2m`, `1h`; a number alone is seconds.
fn duration(text: &str) -> Result<Duration, String> {
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

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => Err("KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
