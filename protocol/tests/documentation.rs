//! The tables of `docs/protocol.md` say what the code does.

#![cfg(test)]

mod support {
    pub(crate) mod source;
}

use agent_reach_protocol::{ErrorCode, GoodbyeCode, Kind, Retry, limits};
use support::source::{DeclaredKey, declared_keys};

const PAGE: &str = include_str!("../../docs/protocol.md");

/// The cells of each row of the first table below a heading, as they are written.
fn table(heading: &str) -> Vec<Vec<String>> {
    let heading = format!("\n{heading}\n");
    let (_, section) = PAGE.split_once(&heading).unwrap_or_else(|| panic!("no heading {heading}"));
    section
        .lines()
        .skip_while(|line| !line.starts_with("| --- |"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ");
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// The first cells of each row, code marks, stars and daggers left out.
fn columns<const N: usize>(heading: &str) -> Vec<[String; N]> {
    let plain = |cell: &String| cell.trim_matches(['`', '*', '†']).to_owned();
    table(heading).iter().map(|row| std::array::from_fn(|at| plain(&row[at]))).collect()
}

#[test]
fn the_table_of_kinds_is_that_of_the_code() {
    let expected: Vec<_> =
        Kind::ALL.iter().map(|kind| [kind.number().to_string(), kind.name().to_owned()]).collect();
    assert_eq!(columns("## Kinds"), expected);
}

#[test]
fn the_table_of_error_codes_is_that_of_the_code() {
    let retryable = |code: &ErrorCode| match code.retry() {
        Retry::Yes => "yes",
        Retry::No => "no",
        Retry::ByIdempotency => "by idempotency",
        Retry::ByHandler => "as the handler says",
    };
    let expected: Vec<_> =
        ErrorCode::ALL.iter().map(|code| [code.as_str(), retryable(code)].map(str::to_owned)).collect();
    assert_eq!(columns("## Error codes"), expected);
}

#[test]
fn the_table_of_goodbye_codes_is_that_of_the_code() {
    let expected: Vec<_> = GoodbyeCode::ALL
        .iter()
        .map(|code| {
            let back = if code.reconnects() { "yes" } else { "no" };
            [code.as_str().to_owned(), code.close_code().to_string(), back.to_owned()]
        })
        .collect();
    assert_eq!(columns("## GOODBYE codes"), expected);
}

#[test]
fn the_table_of_limits_is_that_of_the_code() {
    macro_rules! values {
        ($($name:ident),* $(,)?) => { vec![$([stringify!($name).to_owned(), limits::$name.to_string()]),*] };
    }
    let expected: Vec<[String; 2]> = values![
        VERSION,
        CONNECT_PATH,
        SUBPROTOCOL_MSGPACK,
        SUBPROTOCOL_JSON,
        MESSAGE_BYTES_DEFAULT,
        HEADER_DEPTH_MAX,
        HEADER_KEYS_MAX,
        ID_BYTES_MAX,
        WORD_BYTES_MAX,
        TEXT_BYTES_MAX,
        SCHEMA_BYTES_MAX,
        LABELS_MAX,
        CAPABILITIES_MAX,
        ALIASES_MAX,
        LIST_MAX,
        PRIVATE_KEYS_MAX,
        PRIVATE_BYTES_MAX,
        MAX_CONCURRENCY_DEFAULT,
        MAX_CONCURRENCY_MAX,
        TIME_MS_MAX,
        CREDIT_DEFAULT,
        KEEP_MS_DEFAULT,
        KEEP_MS_MADE,
        DESCRIPTIONS_BYTES_MAX,
        ACCEPT_HOLD_MS,
    ];
    assert_eq!(columns("## Limits"), expected);
    let declared = include_str!("../src/limits.rs").lines().filter(|line| line.starts_with("pub const"));
    assert_eq!(declared.count(), expected.len(), "a limit is missing here and on the page");
}

#[test]
fn the_tables_of_headers_have_every_key_in_the_order_of_the_canonical_form() {
    let mut declared: Vec<(String, Vec<String>)> = Vec::new();
    for DeclaredKey { header, key, .. } in declared_keys() {
        match declared.last_mut() {
            Some((last, keys)) if *last == header => keys.push(key),
            _ => declared.push((header, vec![key])),
        }
    }
    for (header, keys) in declared {
        let shown: Vec<_> = columns::<1>(heading(&header)).into_iter().map(|[key]| key).collect();
        assert_eq!(shown, keys, "{header}");
    }
}

#[test]
fn a_dagger_marks_exactly_the_keys_that_are_always_written_though_they_may_be_absent() {
    for DeclaredKey { header, key, always } in declared_keys() {
        let rows = table(heading(&header));
        let row = rows.iter().find(|row| row[0].trim_matches(['`', '*', '†']) == key).unwrap();
        assert_eq!(row[0].ends_with('†'), always, "{header}.{key}");
    }
}

#[test]
fn links_inside_the_page_lead_to_its_headings() {
    let anchors: Vec<String> = PAGE
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect()
        })
        .collect();
    for link in PAGE.split("](#").skip(1) {
        let anchor = link.split(')').next().unwrap();
        assert!(anchors.iter().any(|known| known == anchor), "no heading for #{anchor}");
    }
}

fn heading(header: &str) -> &'static str {
    match header {
        "Hello" => "### HELLO",
        "Capability" => "### Capability, in HELLO and UPDATE",
        "Load" => "### Load, in HELLO and UPDATE",
        "Welcome" => "### WELCOME",
        "Granted" => "### Granted, in WELCOME",
        "Update" => "### UPDATE",
        "Goodbye" => "### GOODBYE",
        "ErrorReply" => "### ERROR",
        "Call" => "### CALL, caller to hub",
        "Dispatch" => "### CALL, hub to provider",
        "Accept" => "### ACCEPT",
        "Chunk" => "### CHUNK",
        "Credit" => "### CREDIT",
        "CallResult" => "### RESULT",
        "Attempt" => "### Attempt, in RESULT",
        "CallError" => "### Error, in RESULT",
        "Summary" => "### Summary, in RESULT",
        "Cancel" => "### CANCEL",
        "Receipt" => "### RECEIPT",
        other => panic!("a new header {other} needs its table"),
    }
}
