//! `agent-reach capabilities`: what can be called, and who offers it.

use std::process::ExitCode;

use agent_reach_sdk::{Agent, CallError};
use clap::Args;
use rmpv::Value;
use serde::Deserialize;

use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::{Table, names, span};

/// Arguments of `agent-reach capabilities`.
#[derive(Debug, Args)]
pub struct CapabilitiesArgs {
    /// One capability, with its description and schemas
    pub name: Option<String>,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Row {
    name: String,
    agents: Vec<Offer>,
    policy_aliases: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Offer {
    agent_id: String,
    status: String,
    version: Option<String>,
    timeout_ms: Option<u64>,
    idempotent: bool,
    aliases: Vec<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
}

/// Runs the command. Exit 0 done, 1 failed or no such capability, 3 could not connect.
#[must_use]
pub fn run(args: &CapabilitiesArgs) -> ExitCode {
    hub::run("capabilities", &args.hub, FAILED, async |agent| match show(agent, args).await {
        Ok(code) => code,
        Err(error) => {
            output::explain("capabilities", &error);
            FAILED
        }
    })
}

async fn show(agent: &Agent, args: &CapabilitiesArgs) -> Result<u8, CallError> {
    let filter: Vec<_> = args.name.iter().map(|name| ("name", name.as_str())).collect();
    let found = hub::list(agent, "hub.capabilities.list", "capabilities", "name", &filter).await?;
    let code = if args.name.is_some() && found.is_empty() { FAILED } else { DONE };
    if args.json {
        output::json(&output::json_of(&Value::Map(vec![("capabilities".into(), Value::Array(found))])));
        return Ok(code);
    }
    let rows: Vec<Row> = found.into_iter().filter_map(|row| rmpv::ext::from_value(row).ok()).collect();
    match (&args.name, rows.first()) {
        (Some(_), Some(row)) => output::line(&portrait(row)),
        (Some(name), None) => {
            eprintln!("agent-reach capabilities: nobody offers {name:?}");
            true
        }
        (None, _) => output::line(&table(&rows)),
    };
    Ok(code)
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&["CAPABILITY", "VERSION", "AGENTS", "DESCRIPTION"]);
    for row in rows {
        let agents: Vec<_> = row.agents.iter().map(shown).collect();
        let first = |of: fn(&Offer) -> Option<&String>| row.agents.iter().find_map(of).cloned();
        table.row([
            row.name.clone(),
            first(|offer| offer.version.as_ref()).unwrap_or_else(|| "-".to_owned()),
            names(&agents),
            first(|offer| offer.description.as_ref()).unwrap_or_default(),
        ]);
    }
    table.text()
}

/// An agent's name, with its status when that is not the usual one.
fn shown(offer: &Offer) -> String {
    match offer.status.as_str() {
        "ready" => offer.agent_id.clone(),
        status => format!("{} ({status})", offer.agent_id),
    }
}

fn portrait(row: &Row) -> String {
    let mut table = Table::plain();
    let mut say = |name: &str, value: Option<String>| {
        table.row([name.to_owned(), value.unwrap_or_else(|| "-".to_owned())]);
    };
    say("capability", Some(row.name.clone()));
    if !row.policy_aliases.is_empty() {
        say("aliases of policy", Some(row.policy_aliases.join(", ")));
    }
    for offer in &row.agents {
        say("offered by", Some(shown(offer)));
        say("  description", offer.description.clone());
        say("  version", offer.version.clone());
        say("  timeout", offer.timeout_ms.map(span));
        say("  idempotent", Some(if offer.idempotent { "yes" } else { "no" }.to_owned()));
        if !offer.aliases.is_empty() {
            say("  aliases", Some(offer.aliases.join(", ")));
        }
        say("  input", offer.input_schema.as_ref().map(output::json_of));
        say("  output", offer.output_schema.as_ref().map(output::json_of));
    }
    table.text()
}
