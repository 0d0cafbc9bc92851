//! The tables of docs/operations.md say what the program does.

use agent_reach::telemetry::metrics::{AUTH_REASONS, METRICS, MetricKind};
use agent_reach_protocol::{ErrorCode, GoodbyeCode};

use super::tree::{files, read};

/// The rows of the first table below a heading, cell by cell.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, section) =
        page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rows = section.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What stands in code marks.
fn marked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn first_column(page: &str, heading: &str) -> Vec<String> {
    table(page, heading).iter().map(|row| row[0].trim_matches('`').to_owned()).collect()
}

#[test]
fn the_table_of_metrics_is_that_of_the_program() {
    let page = read("docs/operations.md");
    // An empty cell takes the blank of its neighbour when a row is split.
    let shown: Vec<_> = table(&page.replace("| |", "|  |"), "Metrics")
        .iter()
        .map(|row| {
            let labels: Vec<String> = marked(&row[2]).into_iter().map(str::to_owned).collect();
            (row[0].trim_matches('`').to_owned(), row[1].clone(), labels)
        })
        .collect();
    let declared: Vec<_> = METRICS
        .iter()
        .map(|metric| {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram(_) => "histogram",
            };
            let labels: Vec<String> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
            (metric.name.to_owned(), kind.to_owned(), labels)
        })
        .collect();
    assert_eq!(shown, declared);
}

#[test]
fn no_document_names_a_metric_that_is_not_there() {
    let process = read("src/telemetry/metrics/process.rs");
    for file in files(".md") {
        let words = file.text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for word in words.filter(|word| word.len() > 12) {
            // A module of Rust, and the cookie of a session.
            let other = matches!(word, "agent_reach_sdk" | "agent_reach_session");
            if word.starts_with("agent_reach_") && !other {
                assert!(METRICS.iter().any(|metric| metric.name == word), "{} names {word}", file.path);
            }
            if word.starts_with("process_") {
                assert!(process.contains(&format!("\"{word}\"")), "{} names {word}", file.path);
            }
        }
    }
}

#[test]
fn the_metrics_of_the_process_are_in_the_page() {
    let page = read("docs/operations.md");
    let source = read("src/telemetry/metrics/process.rs");
    let names: Vec<_> = source.split('"').filter(|text| text.starts_with("process_")).collect();
    assert!(names.len() >= 6, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn every_reason_of_a_failed_authentication_is_explained() {
    let page = read("docs/operations.md");
    let rows = table(&page, "Trouble at the door");
    let explained: Vec<_> = rows.iter().flat_map(|row| marked(&row[0])).collect();
    assert_eq!(
        explained.iter().filter(|reason| !AUTH_REASONS.contains(reason)).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
    for reason in AUTH_REASONS {
        assert!(explained.contains(&reason), "{reason}");
    }
}

#[test]
fn every_error_code_is_explained_to_operators() {
    let codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(first_column(&read("docs/operations.md"), "Error codes"), codes);
}

#[test]
fn every_goodbye_code_is_explained_to_operators() {
    let rows = table(&read("docs/operations.md"), "GOODBYE codes");
    let shown: Vec<_> =
        rows.iter().map(|row| (row[0].trim_matches('`').to_owned(), row[1].clone())).collect();
    let back = |code: &GoodbyeCode| if code.reconnects() { "yes" } else { "no" };
    let codes: Vec<_> =
        GoodbyeCode::ALL.iter().map(|code| (code.as_str().to_owned(), back(code).to_owned())).collect();
    assert_eq!(shown, codes);
}

#[test]
fn every_event_of_the_log_from_info_up_is_in_its_table() {
    let page = read("docs/operations.md");
    let rows = table(&page, "The log");
    let listed: Vec<_> = rows.iter().flat_map(|row| marked(&row[1])).collect();
    // The commands of a person tell it to that person.
    let hub = |path: &str| path.starts_with("src/") && !path.starts_with("src/cli/");
    for file in files(".rs").iter().filter(|file| hub(&file.path)) {
        let program = file.program();
        for level in ["info!(", "warn!(", "error!("] {
            for (at, _) in program.match_indices(level) {
                let call = program[at..].split(");").next().unwrap().split("),\n").next().unwrap();
                let sentence = call.rsplit('"').nth(1).unwrap();
                assert!(listed.contains(&sentence), "{}: {sentence:?}", file.path);
            }
        }
    }
}
