//! `agent-reach tail`: what happens at the hub, as it happens.

use std::process::ExitCode;

use agent_reach_sdk::{Agent, CallError, Payload};
use clap::Args;
use rmpv::Value;
use serde::Deserialize;
use time::OffsetDateTime;

use super::agents::AgentRow;
use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::{clean, names, span};

/// Arguments of `agent-reach tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
It begins with the state now; Ctrl-C ends it. Times are UTC, of this command.

Example:
  agent-reach tail --calls --json | jq 'select(.outcome)'")]
pub struct TailArgs {
    /// Agents that come, go and change
    #[arg(long)]
    pub agents: bool,
    /// Calls that start and end, or are refused
    #[arg(long)]
    pub calls: bool,
    /// This agent, and calls of this caller
    #[arg(long = "agent", value_name = "ID")]
    pub agent_id: Option<String>,
    /// Calls of this capability
    #[arg(long, value_name = "NAME")]
    pub capability: Option<String>,
    /// One JSON object on each line, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// One event, whatever its kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    event: String,
    agents: Vec<AgentRow>,
    calls: Vec<CallRow>,
    agent: Option<AgentRow>,
    agent_id: Option<String>,
    reason: Option<String>,
    call: Option<CallRow>,
    outcome: Option<String>,
    left_out: Option<u64>,
}

/// A call that did not become one.
const REFUSED: &str = "call.refused";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallRow {
    call_id: String,
    caller: String,
    capability: String,
    mode: String,
    targets: Vec<String>,
    age_ms: u64,
}

/// Runs the command. Exit 0 at Ctrl-C, 1 when the hub ends it, 3 could not connect.
#[must_use]
pub fn run(args: &TailArgs) -> ExitCode {
    hub::run("tail", &args.hub, DONE, async |agent| match watch(agent, args).await {
        Ok(()) => DONE,
        Err(error) => {
            output::explain("tail", &error);
            FAILED
        }
    })
}

async fn watch(agent: &Agent, args: &TailArgs) -> Result<(), CallError> {
    let mut stream = agent.call::<Payload>("hub.events.watch", filter(args)).stream::<Payload>().await?;
    while let Some(chunk) = stream.next().await {
        let body = chunk?.body;
        let written = if args.json {
            output::json_line(&output::body_json(&body))
        } else {
            let event: Event = body.decode().unwrap_or_default();
            let now = OffsetDateTime::now_utc();
            let (hour, minute, second, milli) = now.to_hms_milli();
            let time = format!("{hour:02}:{minute:02}:{second:02}.{milli:03}");
            lines(&event).iter().all(|line| output::line(&format!("{time}  {line}")))
        };
        if !written {
            return Ok(());
        }
    }
    stream.end().await.map(drop)
}

fn filter(args: &TailArgs) -> Value {
    let mut filter = Vec::new();
    let subjects = [("agents", args.agents), ("calls", args.calls)];
    let subjects: Vec<Value> =
        subjects.iter().filter(|(_, on)| *on).map(|(name, _)| Value::from(*name)).collect();
    if !subjects.is_empty() {
        filter.push(("subjects".into(), Value::Array(subjects)));
    }
    for (key, value) in [("agent_id", &args.agent_id), ("capability", &args.capability)] {
        filter.extend(value.as_deref().map(|value| (key.into(), value.into())));
    }
    Value::Map(filter)
}

/// What people see of an event: one line; of the state at the beginning one for each agent and call.
fn lines(event: &Event) -> Vec<String> {
    let name = clean(&event.event);
    let of_agent = |row: &AgentRow| {
        let offers = clean(&names(&row.capabilities));
        format!("{name:18}  {}  {}  {offers}", clean(&row.agent_id), clean(&row.status))
    };
    let of_call = |row: &CallRow| {
        if event.event == REFUSED {
            let (outcome, reason) = (event.outcome.as_deref(), event.reason.as_deref());
            let why =
                format!("{}: {}", clean(outcome.unwrap_or_default()), clean(reason.unwrap_or_default()));
            return format!("{name:18}  {}  {}  {why}", clean(&row.capability), clean(&row.caller));
        }
        let way = format!("{} -> {}", clean(&row.caller), clean(&names(&row.targets)));
        let ended = event.outcome.as_ref().map(|outcome| format!("  {}", clean(outcome))).unwrap_or_default();
        let after = if event.outcome.is_some() { format!(" in {}", span(row.age_ms)) } else { String::new() };
        let mode = if row.mode == "call" { String::new() } else { format!(" ({})", clean(&row.mode)) };
        let (capability, id) = (clean(&row.capability), clean(&row.call_id));
        format!("{name:18}  {capability}{mode}  {way}{ended}{after}  {id}")
    };
    let mut lines: Vec<String> = event.agents.iter().chain(&event.agent).map(of_agent).collect();
    lines.extend(event.calls.iter().chain(&event.call).map(of_call));
    if let Some(left_out) = event.left_out {
        lines.push(format!("{name:18}  {left_out} more were not told"));
    }
    if let Some(id) = &event.agent_id {
        let reason = clean(event.reason.as_deref().unwrap_or_default());
        lines.push(format!("{name:18}  {}  {reason}", clean(id)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_line_that_says_who_and_what() {
        let agent = || {
            let mut row = AgentRow::default();
            row.agent_id = "a".into();
            row.status = "ready".into();
            row.capabilities = vec!["x.y".into()];
            row
        };
        let call = || CallRow {
            call_id: "1-2".into(),
            caller: "c".into(),
            capability: "x.y".into(),
            mode: "call".into(),
            targets: vec!["a".into()],
            age_ms: 7,
        };
        let connected = Event { event: "agent.connected".into(), agent: Some(agent()), ..Event::default() };
        assert_eq!(lines(&connected), ["agent.connected     a  ready  x.y"]);
        let left = Event {
            event: "agent.disconnected".into(),
            agent_id: Some("a".into()),
            reason: Some("gone".into()),
            ..Event::default()
        };
        assert_eq!(lines(&left), ["agent.disconnected  a  gone"]);
        let outcome = Some("completed".to_owned());
        let ended = Event { event: "call.ended".into(), call: Some(call()), outcome, ..Event::default() };
        assert_eq!(lines(&ended), ["call.ended          x.y  c -> a  completed in 7 ms  1-2"]);
        let refused = Event {
            event: "call.refused".into(),
            call: Some(CallRow { mode: String::new(), targets: Vec::new(), ..call() }),
            outcome: Some("unauthorized".into()),
            reason: Some("c may not".into()),
            left_out: Some(9),
            ..Event::default()
        };
        assert_eq!(
            lines(&refused),
            [
                "call.refused        x.y  c  unauthorized: c may not",
                "call.refused        9 more were not told"
            ]
        );
        let now = Event {
            event: "snapshot".into(),
            agents: vec![agent()],
            calls: vec![call()],
            ..Event::default()
        };
        assert_eq!(
            lines(&now),
            ["snapshot            a  ready  x.y", "snapshot            x.y  c -> a  1-2"]
        );
    }
}
