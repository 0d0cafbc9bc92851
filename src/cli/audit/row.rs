//! One line of an audit as people see it.

use serde::Deserialize;

use super::super::table::clean;

/// A line of whatever event; `docs/audit.md` explains the fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Row {
    pub(super) time: String,
    pub(super) event: String,
    pub(super) call_id: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) caller: Option<String>,
    pub(super) target: Option<String>,
    pub(super) subject: Option<String>,
    pub(super) capability: Option<String>,
    pub(super) outcome: Option<String>,
    mode: Option<String>,
    ms: Option<u64>,
    identity: Option<String>,
    agent_id: Option<String>,
    reason: Option<String>,
    trigger: Option<String>,
    changed: Option<Vec<String>>,
    policy_version: Option<u64>,
    problem: Option<String>,
    hub: Option<String>,
    dropped: Option<u64>,
}

/// The names of the columns.
pub(super) fn head() -> String {
    columns(["TIME", "EVENT", "WHO", "WHOM", "WHAT", "OUTCOME", "MS", "CALL"])
}

/// Columns of one width, since a line is shown before the next is known; what is longer moves the rest.
fn columns([time, event, who, whom, what, outcome, ms, call]: [&str; 8]) -> String {
    let line =
        format!("{time:23}  {event:10}  {who:16}  {whom:16}  {what:30}  {outcome:16}  {ms:>7}  {call}");
    line.trim_end().to_owned()
}

impl Row {
    /// As a row of the table.
    pub(super) fn text(&self) -> String {
        let time = self.time.trim_end_matches('Z').replacen('T', " ", 1);
        let who = self.caller.as_ref().or(self.agent_id.as_ref()).or(self.trigger.as_ref());
        let whom = self.target.as_ref().or(self.subject.as_ref());
        let outcome = self.outcome.as_ref().or(self.reason.as_ref());
        let text = |text: Option<&String>| {
            text.filter(|text| !text.is_empty()).map_or("-".into(), |text| clean(text))
        };
        let ms = self.ms.map(|ms| ms.to_string()).unwrap_or_default();
        let call = clean(self.call_id.as_deref().unwrap_or_default());
        columns([
            &clean(&time),
            &clean(&self.event),
            &text(who),
            &text(whom),
            &self.what(),
            &text(outcome),
            &ms,
            &call,
        ])
    }

    fn what(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.hub.clone());
        parts.extend(self.capability.clone().or_else(|| self.identity.clone()));
        parts.extend(self.mode.as_ref().filter(|mode| *mode != "call").map(|mode| format!("({mode})")));
        parts.extend(self.changed.as_ref().map(|changed| changed.join(", ")));
        parts.extend(self.policy_version.map(|version| format!("policy {version}")));
        parts.extend(self.problem.clone());
        parts.extend(self.dropped.map(|dropped| format!("{dropped} dropped")));
        clean(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> String {
        serde_json::from_str::<Row>(line).unwrap().text()
    }

    #[test]
    fn a_call_is_a_row_that_says_who_whom_what_and_how() {
        let line = r#"{"time":"2026-11-30T08:15:02.042Z","event":"call","call_id":"1-2","caller":"shop",
            "target":"orders","capability":"order.create","mode":"task","outcome":"timeout","ms":31207}"#;
        let expected = "2026-11-30 08:15:02.042  call        shop              orders            \
                        order.create (task)             timeout             31207  1-2";
        assert_eq!(text(line), expected);
        let at = |name: &str| head().find(name).unwrap();
        assert_eq!((at("WHO"), at("WHOM"), at("WHAT")), (37, 55, 73));
        assert_eq!((expected.find("shop"), expected.find("orders")), (Some(37), Some(55)));
    }

    #[test]
    fn every_example_of_the_page_is_a_row() {
        let page = include_str!("../../../docs/audit.md");
        let rows: Vec<String> = page.lines().filter(|line| line.starts_with("{\"time\"")).map(text).collect();
        let words = |row: &String| row.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        let shown: Vec<String> = rows.iter().map(words).collect();
        assert_eq!(
            shown,
            [
                "started - - agent-reach/0.1.0 policy 3 -",
                "call shop orders order.create completed 37 5f2a90c1-1f",
                "refused billing - spiffe://shop.example/agent/orders unauthorized",
                "registered orders - spiffe://shop.example/agent/orders -",
                "replaced orders - spiffe://shop.example/agent/orders -",
                "left orders - spiffe://shop.example/agent/orders gone",
                "act ops orders hub.agents.disconnect -",
                "reload signal - policy.file policy 4 completed",
                "stopped - - 0 dropped -",
            ]
        );
    }

    #[test]
    fn what_a_peer_chose_cannot_drive_the_terminal() {
        let row = text("{\"time\":\"t\",\"event\":\"refused\",\"agent_id\":\"a\\u001b[31m\"}");
        assert!(row.contains("a\\u{1b}[31m"), "{row}");
    }
}
