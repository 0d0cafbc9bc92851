//! What the suite says, against what it should say.

use std::collections::BTreeMap;

use serde::Deserialize;

/// How one case ended.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Case {
    behavior: String,
    behavior_close: String,
}

/// By server and case.
pub(crate) type Index = BTreeMap<String, BTreeMap<String, Case>>;

/// What a report comes to.
pub(crate) struct Verdict {
    /// How many cases of a server ended in which way.
    pub(crate) counts: BTreeMap<(String, String), usize>,
    /// Those that should not have.
    pub(crate) unexpected: Vec<String>,
}

/// Cases of compression, which is never offered (docs/websocket.md).
const COMPRESSION: [&str; 2] = ["12.", "13."];

/// How many cases the suite has.
pub(crate) const ALL: usize = 517;

/// Judges a report on so many servers. `at_least`: how many cases each has to have: a suite that stops half-way
/// reports what it has.
///
/// # Errors
/// When cases are missing.
pub(crate) fn judge(index: &Index, servers: usize, at_least: usize) -> Result<Verdict, String> {
    if index.len() != servers {
        return Err(format!("the report has {} servers and not {servers}", index.len()));
    }
    let mut counts = BTreeMap::new();
    let mut unexpected = Vec::new();
    for (server, cases) in index {
        if cases.len() < at_least {
            return Err(format!("{server} has {} cases and not {at_least}", cases.len()));
        }
        for (name, case) in cases {
            *counts.entry((server.clone(), case.behavior.clone())).or_default() += 1;
            if !is_expected(name, case) {
                let Case { behavior, behavior_close } = case;
                unexpected.push(format!("{server} {name}: {behavior}, closed {behavior_close}"));
            }
        }
    }
    Ok(Verdict { counts, unexpected })
}

fn is_expected(name: &str, case: &Case) -> bool {
    let good = |behavior: &str| matches!(behavior, "OK" | "NON-STRICT" | "INFORMATIONAL");
    if COMPRESSION.iter().any(|group| name.starts_with(group)) {
        return case.behavior == "UNIMPLEMENTED" && good(&case.behavior_close);
    }
    good(&case.behavior) && good(&case.behavior_close)
}
