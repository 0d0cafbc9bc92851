//! `agent-reach stats`: figures of the hub.

use std::process::ExitCode;

use clap::Args;
use rmpv::Value;

use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::Table;

/// Arguments of `agent-reach stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Runs the command. Exit 0 done, 1 failed, 3 could not connect.
#[must_use]
pub fn run(args: &StatsArgs) -> ExitCode {
    hub::run("stats", &args.hub, FAILED, async |agent| {
        match agent.call::<Value>("hub.stats", Value::Map(Vec::new())).await {
            Ok(stats) if args.json => {
                output::json(&output::json_of(&stats));
                DONE
            }
            Ok(stats) => {
                output::line(&table(&stats));
                DONE
            }
            Err(error) => {
                output::explain("stats", &error);
                FAILED
            }
        }
    })
}

/// Whatever figures the hub has: a newer one may have more.
fn table(stats: &Value) -> String {
    let mut table = Table::plain();
    for (name, figure) in stats.as_map().map(Vec::as_slice).unwrap_or_default() {
        let name = name.as_str().unwrap_or_default().replace('_', " ");
        let figure = figure.as_str().map_or_else(|| figure.to_string(), str::to_owned);
        table.row([name, figure]);
    }
    table.text()
}
