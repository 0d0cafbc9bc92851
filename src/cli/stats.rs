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
    rows(&mut table, "", stats);
    table.text()
}

/// One line for each figure, with the names that lead to it; of a list one for each item.
fn rows(table: &mut Table, above: &str, figures: &Value) {
    for (name, figure) in figures.as_map().map(Vec::as_slice).unwrap_or_default() {
        let name = format!("{above}{}", name.as_str().unwrap_or_default().replace('_', " "));
        if figure.is_map() {
            rows(table, &format!("{name} "), figure);
        } else if let Some(items) = figure.as_array() {
            items.iter().for_each(|item| table.row([name.clone(), told(item)]));
        } else {
            table.row([name, told(figure)]);
        }
    }
}

/// A figure, or what there is in an item of a list.
fn told(figure: &Value) -> String {
    if let Some(entries) = figure.as_map() {
        return entries.iter().map(|(_, one)| told(one)).collect::<Vec<_>>().join(" ");
    }
    figure.as_str().map_or_else(|| figure.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_line_with_the_names_that_lead_to_it() {
        let map = |entries: Vec<(&str, Value)>| {
            Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
        };
        let line = map(vec![("capability", "a.b".into()), ("calls", 3.into())]);
        let stats = map(vec![
            ("open_calls", 7.into()),
            ("latency", map(vec![("total", map(vec![("p50_us", 120.into())]))])),
            ("waiting_by_capability", Value::Array(vec![line])),
            ("breakers", Value::Array(vec![])),
        ]);
        let text = table(&stats);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        assert_eq!(
            lines,
            [words("open calls 7"), words("latency total p50 us 120"), words("waiting by capability a.b 3")]
        );
    }
}
