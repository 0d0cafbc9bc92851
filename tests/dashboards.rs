//! Boards and rules name what a running hub exports, and every alert has a test and a place in the runbook.
#![cfg(test)]

#[macro_use]
mod raw;
mod promql;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use agent_reach_protocol::ErrorCode;
use promql::{Named, named};
use raw::{Hub, http};
use serde_json::Value;
use yaml_rust2::Yaml;

const RULES: [&str; 2] = ["dashboards/prometheus/recording.yml", "dashboards/prometheus/alerts.yml"];
const TESTS: &str = "dashboards/prometheus/alerts.test.yml";
const RUNBOOK: &str = "https://github.com/agent-reach/agent-reach/blob/main/docs/operations.md#";
/// What Prometheus adds to everything that it reads, and to its own series.
const ADDED: [&str; 7] = ["job", "instance", "le", "alertname", "alertstate", "severity", "__name__"];

/// Every board with the name of its file.
fn boards() -> Vec<(String, Value)> {
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let board = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, board)
    };
    yaml::files("dashboards/grafana/boards", ".json").into_iter().map(read).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The panels of a board that show something.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    list(board, "panels").iter().filter(|panel| panel["type"] != "row")
}

/// Every rule of a file.
fn rules(path: &str) -> Vec<Yaml> {
    let file = yaml::document(path);
    yaml::items(&file["groups"]).iter().flat_map(|group| yaml::items(&group["rules"]).to_vec()).collect()
}

fn alerts() -> Vec<Yaml> {
    rules(RULES[1])
}

fn records() -> BTreeSet<String> {
    rules(RULES[0]).iter().map(|rule| yaml::text(&rule["record"]).to_owned()).collect()
}

/// Every expression with where it stands.
fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, board) in boards() {
        for panel in panels(&board) {
            let title = &panel["title"];
            let targets = list(panel, "targets").iter().map(|target| target["expr"].as_str().unwrap());
            found.extend(targets.map(|expr| (format!("{name}: {title}"), expr.to_owned())));
        }
        let marks = list(&board["annotations"], "list").iter().filter_map(|mark| mark["expr"].as_str());
        found.extend(marks.map(|expr| (format!("{name}: a mark"), expr.to_owned())));
        for variable in list(&board["templating"], "list") {
            // label_values(metric{…}, label) names both.
            let Some(query) = variable["definition"].as_str() else { continue };
            let query =
                query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')')).unwrap();
            let (metric, label) = query.rsplit_once(", ").unwrap();
            found.push((format!("{name}: a variable"), format!("count by ({label}) ({metric})")));
        }
    }
    for path in RULES {
        let one = |rule: Yaml| (path.to_owned(), yaml::text(&rule["expr"]).to_owned());
        found.extend(rules(path).into_iter().map(one));
    }
    for (_, expression) in &mut found {
        *expression = expression.replace("$__rate_interval", "5m");
    }
    assert!(found.len() > 100, "where are the expressions?");
    found
}

/// Of each series on a page of metrics its labels, and the values of each.
type Exported = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn exported(page: &str) -> Exported {
    let mut exported = Exported::new();
    for line in page.lines().filter(|line| !(line.is_empty() || line.starts_with('#'))) {
        let series = line.rsplit_once(' ').expect("a value").0;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let known = exported.entry(name.to_owned()).or_default();
        for label in labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once("=\"").expect("a label");
            known.entry(label.to_owned()).or_default().insert(value.trim_end_matches('"').to_owned());
        }
    }
    exported
}

/// The words that a label may have; `None` where they are not of a closed set.
fn words(exported: &Exported, metric: &str, label: &str) -> Option<BTreeSet<String>> {
    let set = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    // Series of ended calls come into being with the first end of their kind.
    let of_calls = metric == "agent_reach_calls_total" || metric.contains(':');
    match label {
        "outcome" if of_calls => {
            let codes = ErrorCode::ALL.iter().map(|code| code.as_str());
            Some(codes.chain(["completed"]).map(str::to_owned).collect())
        }
        "mode" if of_calls => set(&["call", "notify", "task"]),
        "capability" => None,
        "alertstate" => set(&["firing", "pending"]),
        "severity" => set(&["critical", "warning"]),
        label if ADDED.contains(&label) => None,
        label => match exported.get(metric) {
            Some(labels) => labels.get(label).cloned(),
            None => {
                Some(exported.values().filter_map(|labels| labels.get(label)).flatten().cloned().collect())
            }
        },
    }
}

/// What an expression names that is not there.
fn strangers(exported: &Exported, records: &BTreeSet<String>, named: &Named) -> Vec<String> {
    let mut strangers = Vec::new();
    let ours = |metric: &str| matches!(metric, "up" | "ALERTS") || records.contains(metric);
    let metrics = named.metrics.iter().filter(|metric| !(exported.contains_key(*metric) || ours(metric)));
    strangers.extend(metrics.map(|metric| format!("metric {metric}")));
    let known = |label: &str| exported.values().any(|labels| labels.contains_key(label));
    let labels = named.labels.iter().filter(|label| !(ADDED.contains(&label.as_str()) || known(label)));
    strangers.extend(labels.map(|label| format!("label {label}")));
    for (metric, label, operator, value) in &named.matchers {
        let of_metric = exported.get(metric).is_none_or(|labels| labels.contains_key(label));
        if !(of_metric || ADDED.contains(&label.as_str())) {
            strangers.push(format!("{metric} has no label {label}"));
        }
        let Some(words) = words(exported, metric, label) else { continue };
        let several = operator.ends_with('~');
        let values: Vec<&str> = if several { value.split('|').collect() } else { vec![value.as_str()] };
        let unsaid = values.into_iter().filter(|value| !words.contains(*value));
        strangers.extend(unsaid.map(|value| format!("{metric}{{{label}}} is never {value}")));
    }
    strangers
}

#[tokio::test]
async fn everything_that_boards_and_rules_name_is_exported_by_a_running_hub() {
    let hub = Hub::dev();
    let page = http::get(hub.metrics(), "/metrics").await;
    assert_eq!(page.status, 200);
    let (exported, records) = (exported(&page.body), records());
    let mut wrong = Vec::new();
    for (place, expression) in expressions() {
        let strangers = strangers(&exported, &records, &named(&expression));
        wrong.extend(strangers.into_iter().map(|stranger| format!("{place}: {stranger}")));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_metric_a_label_or_a_value_that_is_not_there_is_found() {
    let exported = exported("a_total{x=\"b\",y=\"c\"} 1\nd 2\n");
    let records = BTreeSet::from(["r:d".to_owned()]);
    let of = |expression| strangers(&exported, &records, &named(expression));
    assert_eq!(of("sum by (job, y) (a_total{x=~\"b\",instance=\"i\"}) + d + r:d"), Vec::<String>::new());
    assert_eq!(of("e"), ["metric e"]);
    assert_eq!(of("sum by (z) (d)"), ["label z"]);
    assert_eq!(of("d{x=\"b\"}"), ["d has no label x"]);
    assert_eq!(of("a_total{x=~\"b|c\"}"), ["a_total{x} is never c"]);
}

/// Whether the panels of a board lie on its 24 columns without covering each other.
fn overlapping(board: &Value) -> bool {
    let mut taken = BTreeSet::new();
    list(board, "panels").iter().any(|panel| {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        let (x, y) = (at("x"), at("y"));
        let cells = (x..x + at("w")).flat_map(|x| (y..y + at("h")).map(move |y| (x, y)));
        x + at("w") > 24 || !cells.into_iter().all(|cell| taken.insert(cell))
    })
}

#[test]
fn every_board_can_be_provisioned_anywhere_and_every_panel_explains_itself() {
    let mut uids = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for (name, board) in boards() {
        let uid = board["uid"].as_str().unwrap();
        assert!(uid.len() <= 40 && uids.insert(uid.to_owned()), "{name}: uid {uid}");
        assert!(titles.insert(board["title"].to_string()), "{name}: two of one title");
        assert!(board["id"].is_null(), "{name}: an id is of one Grafana");
        assert!(!overlapping(&board), "{name}: panels cover each other");
        let mut ids = BTreeSet::new();
        for panel in list(&board, "panels") {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: two panels of one id");
        }
        for panel in panels(&board) {
            let title = panel["title"].as_str().unwrap();
            let said = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
            assert!(said(&panel["title"]) && said(&panel["description"]), "{name}: {title}");
            assert!(said(&panel["fieldConfig"]["defaults"]["unit"]), "{name}: {title} has no unit");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            let targets = list(panel, "targets");
            assert!(!targets.is_empty(), "{name}: {title} shows nothing");
            let mut names = BTreeSet::new();
            for target in targets {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
                assert!(names.insert(target["refId"].as_str().unwrap()), "{name}: {title}: refId");
            }
        }
        let first = &list(&board["templating"], "list")[0];
        assert_eq!((&first["name"], &first["type"]), (&"datasource".into(), &"datasource".into()), "{name}");
    }
    assert_eq!(boards().len(), 5);
}

#[test]
fn every_outcome_is_counted_as_the_callers_or_as_a_failure() {
    let mut failures = BTreeSet::new();
    let mut others = BTreeSet::new();
    for (_, expression) in expressions() {
        for (metric, label, operator, value) in named(&expression).matchers {
            let set: BTreeSet<String> = value.split('|').map(str::to_owned).collect();
            match (metric.as_str(), label.as_str(), operator.as_str()) {
                ("agent_reach:calls:rate5m", "outcome", "=~") => failures.insert(set),
                ("agent_reach_calls_total", "outcome", "!~") => others.insert(set),
                _ => false,
            };
        }
    }
    assert_eq!((failures.len(), others.len()), (1, 1), "rules and boards agree: {failures:?} {others:?}");
    let all: BTreeSet<String> = failures.into_iter().chain(others).flatten().collect();
    let codes = ErrorCode::ALL.iter().map(|code| code.as_str().to_owned());
    assert_eq!(all, codes.chain(["completed".to_owned()]).collect());
}

#[test]
fn every_alert_says_what_it_is_and_has_its_row_in_the_runbook() {
    let page = yaml::read("docs/operations.md");
    let rows: BTreeMap<&str, &str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| <a id=\"")?.split_once("\"></a>`"))
        .map(|(anchor, rest)| (anchor, rest.split('`').next().unwrap()))
        .collect();
    let mut named = BTreeSet::new();
    for alert in alerts() {
        let name = yaml::text(&alert["alert"]);
        assert!(named.insert(name.to_owned()), "{name} is there twice");
        let severity = yaml::text(&alert["labels"]["severity"]);
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        for key in ["summary", "description"] {
            assert!(yaml::text(&alert["annotations"][key]).len() > 15, "{name}: {key}");
        }
        let link = yaml::text(&alert["annotations"]["runbook_url"]);
        let anchor = link.strip_prefix(RUNBOOK).unwrap_or_else(|| panic!("{name}: {link}"));
        assert_eq!(rows.get(anchor), Some(&name), "{name}: {anchor}");
    }
    let explained: BTreeSet<String> = rows.values().map(|name| (*name).to_owned()).collect();
    assert_eq!(explained, named, "the runbook explains the alerts that there are");
}

#[test]
fn every_alert_is_expected_on_some_made_data_and_on_some_not() {
    let file = yaml::document(TESTS);
    let mut fires = BTreeSet::new();
    let mut quiet = 0;
    for group in yaml::items(&file["tests"]) {
        for check in yaml::items(&group["promql_expr_test"]) {
            let samples = yaml::items(&check["exp_samples"]);
            quiet += usize::from(samples.is_empty());
            fires.extend(samples.iter().map(|sample| yaml::text(&sample["labels"]).to_owned()));
        }
    }
    for alert in alerts() {
        let name = yaml::text(&alert["alert"]);
        assert!(fires.contains(&format!("{{alertname=\"{name}\"}}")), "{name} fires in no test");
    }
    assert!(quiet > 30, "{quiet} checks expect silence");
}

/// promtool: `PROMTOOL`, or the one on the path. Where there is none its test says so and does nothing, unless
/// `AGENT_REACH_TOOLS=required`, as in continuous integration.
fn promtool() -> Option<Command> {
    let named = std::env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    if Command::new(&named).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(Command::new(named));
    }
    let required = std::env::var("AGENT_REACH_TOOLS").is_ok_and(|word| word == "required");
    assert!(!required, "there is no promtool: make tools");
    eprintln!("promtool is not installed: the expressions of the boards were not parsed (make tools)");
    None
}

#[test]
fn prometheus_can_read_every_expression_of_the_boards() {
    let Some(mut promtool) = promtool() else { return };
    let mut file = String::from("groups:\n- name: boards\n  rules:\n");
    for (number, (_, expression)) in (0..).zip(expressions()) {
        let expression = serde_json::to_string(&expression).unwrap();
        file.push_str(&format!("  - record: expression_{number}\n    expr: {expression}\n"));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("boards.yml");
    std::fs::write(&path, file).unwrap();
    let output = promtool.args(["check", "rules"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
