//! `agent-reach trace`: every decision of one call.

use std::collections::BTreeMap;
use std::process::ExitCode;

use agent_reach_sdk::{Agent, CallError};
use clap::Args;
use rmpv::Value;
use serde::Deserialize;

use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::{Table, clean, millis};

/// Arguments of `agent-reach trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The call, as `call --json`, `tail` and errors name it
    pub call_id: String,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// A trace as the hub shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Trace {
    call_id: String,
    request_id: String,
    caller: String,
    capability: String,
    ended: bool,
    pub(super) steps: Vec<Step>,
}

/// One decision.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Step {
    at_us: u64,
    step: String,
    target: Option<String>,
    attempt: Option<u64>,
    outcome: Option<String>,
    reason: Option<String>,
    candidates: Option<Candidates>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Candidates {
    policy: String,
    offering: u64,
    able: u64,
    excluded: BTreeMap<String, u64>,
}

/// Runs the command. Exit 0 done, 1 failed or unknown call, 3 could not connect.
#[must_use]
pub fn run(args: &TraceArgs) -> ExitCode {
    hub::run("trace", &args.hub, FAILED, async |agent| match get(agent, &args.call_id).await {
        Ok(found) if args.json => {
            output::json(&output::json_of(&found));
            DONE
        }
        Ok(found) => {
            output::line(&text(&read(found)));
            DONE
        }
        Err(error) => {
            output::explain("trace", &error);
            FAILED
        }
    })
}

/// Asks the hub for a trace.
///
/// # Errors
/// The failure of the call; `invalid_request` when no trace of it is kept.
pub(super) async fn get(agent: &Agent, call_id: &str) -> Result<Value, CallError> {
    let asked = Value::Map(vec![("call_id".into(), call_id.into())]);
    let answer: Value = agent.call("hub.traces.get", asked).await?;
    Ok(hub::field(&answer, "trace").cloned().unwrap_or(Value::Nil))
}

/// What is known of it here.
pub(super) fn read(trace: Value) -> Trace {
    rmpv::ext::from_value(trace).unwrap_or_default()
}

fn text(trace: &Trace) -> String {
    let Trace { call_id, request_id, caller, capability, ended, .. } = trace;
    let state = if *ended { "ended" } else { "open" };
    let head = format!("{capability}, call {call_id} of {caller}, request {request_id}, {state}");
    format!("{}\n{}", clean(&head), timeline(trace))
}

/// The decisions, one on each line: when it was since the CALL, what, which agent it is about, and why.
pub(super) fn timeline(trace: &Trace) -> String {
    let times: Vec<_> = trace.steps.iter().map(|step| millis(step.at_us)).collect();
    let width = times.iter().map(String::len).max().unwrap_or_default();
    let mut table = Table::new(&[&format!("{:>width$}", "AT"), "STEP", "AGENT", "WHAT"]);
    for (step, at) in trace.steps.iter().zip(times) {
        let target = step.target.clone().unwrap_or_else(|| "-".to_owned());
        table.row([format!("{at:>width$}"), step.step.replace('_', " "), target, what(step)]);
        for (why, count) in step.candidates.iter().flat_map(|candidates| &candidates.excluded) {
            // Below the choice that they had no part in.
            let excluded = format!("not: {count} {}", why.replace('_', " "));
            table.row([String::new(), String::new(), String::new(), excluded]);
        }
    }
    table.text()
}

fn what(step: &Step) -> String {
    let mut parts = Vec::new();
    if let Some(Candidates { policy, offering, able, .. }) = &step.candidates {
        parts.push(format!("{able} of {offering} agents able, {policy}"));
    }
    parts.extend(step.attempt.map(|attempt| format!("try {attempt}")));
    parts.extend(step.outcome.clone());
    parts.extend(step.reason.clone());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_lines_up_times_steps_and_reasons() {
        let excluded = BTreeMap::from([("no_slot".to_owned(), 1), ("labels".to_owned(), 2)]);
        let candidates = Candidates { policy: "least_loaded".into(), offering: 5, able: 2, excluded };
        let about = |at_us, step: &str, reason: &str| Step {
            at_us,
            step: step.into(),
            target: Some("a".into()),
            reason: Some(reason.into()),
            ..Step::default()
        };
        let steps = vec![
            Step { at_us: 5, step: "routed".into(), candidates: Some(candidates), ..Step::default() },
            Step { attempt: Some(1), ..about(9, "given", "0 of 2 slots taken") },
            about(12_034, "cancel_sent", "timeout"),
            about(12_040, "retry_in", "623 ms"),
            Step {
                outcome: Some("degraded".into()),
                at_us: 700_000,
                step: "ended".into(),
                ..Step::default()
            },
        ];
        let lines = [
            "        AT  STEP         AGENT  WHAT",
            "  0.005 ms  routed       -      2 of 5 agents able, least_loaded",
            "                                not: 2 labels",
            "                                not: 1 no slot",
            "  0.009 ms  given        a      try 1, 0 of 2 slots taken",
            " 12.034 ms  cancel sent  a      timeout",
            " 12.040 ms  retry in     a      623 ms",
            "700.000 ms  ended        -      degraded",
        ];
        let timeline = timeline(&Trace { steps, ..Trace::default() });
        assert_eq!(timeline.lines().collect::<Vec<_>>(), lines);
    }
}
