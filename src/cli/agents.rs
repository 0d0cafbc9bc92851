//! `agent-reach agents`: who is connected.

use std::collections::BTreeMap;
use std::process::ExitCode;

use agent_reach_sdk::{Agent, CallError};
use clap::Args;
use rmpv::Value;
use serde::Deserialize;

use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::{Table, clean, labels, millis, names, span};

/// Arguments of `agent-reach agents`.
#[derive(Debug, Args)]
pub struct AgentsArgs {
    /// One agent, with its open calls and figures
    #[arg(value_name = "ID", conflicts_with_all = ["capability", "status"])]
    pub id: Option<String>,
    /// Only those that offer this capability
    #[arg(long, value_name = "NAME")]
    pub capability: Option<String>,
    /// Only those in this status
    #[arg(long, value_name = "WHICH", value_parser = ["ready", "degraded", "draining", "suspect", "away"])]
    pub status: Option<String>,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// An agent as the hub shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AgentRow {
    pub(super) agent_id: String,
    pub(super) status: String,
    identity: String,
    service: Option<String>,
    version: Option<String>,
    sdk: Option<String>,
    labels: BTreeMap<String, String>,
    pub(super) capabilities: Vec<String>,
    in_flight: u64,
    max_concurrency: u64,
    connected_ms: u64,
    latency_us: u64,
    // Only of one agent:
    last_seen_ms: Option<u64>,
    completed: u64,
    failed: u64,
    calls: Vec<OpenCall>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OpenCall {
    capability: String,
    caller: Option<String>,
    call_id: Option<String>,
    state: String,
    age_ms: u64,
}

/// Runs the command. Exit 0 done, 1 failed, 3 could not connect.
#[must_use]
pub fn run(args: &AgentsArgs) -> ExitCode {
    hub::run("agents", &args.hub, FAILED, async |agent| {
        let shown = match &args.id {
            Some(id) => one(agent, id, args.json).await,
            None => all(agent, args).await,
        };
        shown.map_or_else(
            |error| {
                output::explain("agents", &error);
                FAILED
            },
            |()| DONE,
        )
    })
}

async fn all(agent: &Agent, args: &AgentsArgs) -> Result<(), CallError> {
    let filter = [("capability", &args.capability), ("status", &args.status)];
    let filter: Vec<_> = filter.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?))).collect();
    let agents = hub::list(agent, "hub.agents.list", "agents", "agent_id", &filter).await?;
    if args.json {
        output::json(&output::json_of(&Value::Map(vec![("agents".into(), Value::Array(agents))])));
    } else {
        output::line(&table(agents));
    }
    Ok(())
}

/// Agents as a table.
pub(super) fn table(agents: Vec<Value>) -> String {
    let mut table = Table::new(&["AGENT", "STATUS", "CALLS", "CONNECTED", "CAPABILITIES", "LABELS"]);
    for row in agents.into_iter().filter_map(|agent| rmpv::ext::from_value::<AgentRow>(agent).ok()) {
        table.row([
            row.agent_id,
            row.status,
            format!("{} of {}", row.in_flight, row.max_concurrency),
            format!("{} ago", span(row.connected_ms)),
            names(&row.capabilities),
            labels(&row.labels),
        ]);
    }
    table.text()
}

async fn one(agent: &Agent, id: &str, json: bool) -> Result<(), CallError> {
    let asked = Value::Map(vec![("agent_id".into(), id.into())]);
    let answer: Value = agent.call("hub.agents.get", asked).await?;
    let found = hub::field(&answer, "agent").cloned().unwrap_or(Value::Nil);
    if json {
        output::json(&output::json_of(&found));
        return Ok(());
    }
    let row: AgentRow = rmpv::ext::from_value(found).unwrap_or_default();
    output::line(&portrait(&row));
    Ok(())
}

fn portrait(row: &AgentRow) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut table = Table::plain();
    let mut say = |name: &str, value: String| table.row([name.to_owned(), value]);
    say("agent", row.agent_id.clone());
    say("status", row.status.clone());
    say("identity", row.identity.clone());
    say("service", format!("{} {}", text(&row.service), row.version.as_deref().unwrap_or_default()));
    say("sdk", text(&row.sdk));
    say("labels", labels(&row.labels));
    say("capabilities", row.capabilities.join(", "));
    say("connected", format!("{} ago", span(row.connected_ms)));
    say("calls now", format!("{} of {}", row.in_flight, row.max_concurrency));
    say("last heard", row.last_seen_ms.map_or("-".to_owned(), |ms| format!("{} ago", span(ms))));
    say("completed", row.completed.to_string());
    say("failed", row.failed.to_string());
    say("mean latency", millis(row.latency_us));
    let mut lines = vec![table.text()];
    for call in &row.calls {
        lines.push(format!(
            "open: {} for {}, {} since {}, call {}",
            clean(&call.capability),
            clean(call.caller.as_deref().unwrap_or("nobody any more")),
            clean(&call.state),
            span(call.age_ms),
            clean(call.call_id.as_deref().unwrap_or("-")),
        ));
    }
    lines.join("\n")
}
