//! `agent-reach call`: a call from the shell.

use std::process::ExitCode;

use agent_reach_protocol::names::{self, CapabilityName};
use agent_reach_sdk::{Acceptance, CallBuilder, CallError, Payload, PendingCall, Reply};
use clap::Args;

use super::call_options::{CallOptions, input};
use super::hub::{self, DONE, FAILED, HubArgs, USAGE};
use super::output::{self, Detail, Outcome};
use super::submit;
use super::table::clean;

/// Arguments of `agent-reach call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agent-reach call text.upper '{\"text\":\"hello\"}'
  agent-reach call report.build @order.json --timeout 2m
  echo '\"hi\"' | agent-reach call chat.say - --agent alice --agent bob
  agent-reach call story.write --stream
  agent-reach call report.build @order.json --task
  agent-reach call quote.get '\"EUR\"' --retries 1 --fallback --cached 60s

Exit code: 0 completed, 1 failed or cancelled, 2 usage, 3 could not connect")]
pub struct CallArgs {
    /// What is asked for, like text.upper
    pub capability: String,
    /// The input as JSON, @FILE, or - for stdin; none if absent
    #[arg(value_name = "JSON | @FILE | -")]
    pub input: Option<String>,
    /// Exactly this agent; several times: each of them
    #[arg(long = "agent", value_name = "ID")]
    pub agents: Vec<String>,
    /// Every agent that has the capability: one line of JSON for each
    #[arg(long, conflicts_with_all = ["stream", "notify"])]
    pub all: bool,
    /// Print the pieces of the result as they come, one line for each
    #[arg(long, conflicts_with = "notify")]
    pub stream: bool,
    /// Wait only until an agent has it
    #[arg(long)]
    pub notify: bool,
    /// Who may get it, how long it may take, what to do after a failure.
    #[command(flatten)]
    pub options: CallOptions,
    /// Print the whole reply: call_id, route, attempts, body or error
    #[arg(long)]
    pub json: bool,
    /// Make a task, which the hub stores: it waits for an agent and survives restarts. Waits for its result and tells
    /// its steps on stderr; with --stream what its agent says of its progress goes to stdout, one line for each
    #[arg(long, conflicts_with_all = ["all", "notify"])]
    pub task: bool,
    /// With --task: print its task_id when it is stored, and do not wait
    #[arg(long, requires = "task", conflicts_with = "stream")]
    pub detach: bool,
    /// With --task: post its result to this HTTPS address as well
    #[arg(long, requires = "task", value_name = "URL")]
    pub callback_url: Option<String>,
    /// With --task: send its result to the inbox of this agent as well
    #[arg(long, requires = "task", value_name = "agent:ID")]
    pub reply_to: Option<String>,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Runs the command. Exit 0 completed, 1 failed or cancelled, 2 usage, 3 could not connect.
#[must_use]
pub fn run(args: &CallArgs) -> ExitCode {
    let payload = match check(args).and_then(|()| input(args.input.as_deref())) {
        Ok(payload) => payload,
        Err(text) => {
            eprintln!("agent-reach call: {text}");
            return ExitCode::from(USAGE);
        }
    };
    hub::run("call", &args.hub, FAILED, async |agent| {
        let call = agent.call::<Payload>(&args.capability, payload).agents(args.agents.iter().cloned());
        let call = args.options.describe(call, args.task);
        let done = if args.task {
            submit::submit(call, args).await
        } else if args.all || args.agents.len() > 1 {
            fan_out(call, args).await
        } else if args.stream {
            stream(call, args).await
        } else if args.notify {
            notify(call, args).await
        } else {
            single(call, args).await
        };
        done.unwrap_or_else(|error| failed(error, args))
    })
}

/// What clap cannot see.
fn check(args: &CallArgs) -> Result<(), String> {
    if args.agents.len() > 1 && (args.stream || args.notify || args.task) {
        return Err("--stream, --notify and --task are for one agent".to_owned());
    }
    if let Some(wrong) = args.agents.iter().find(|id| !names::is_agent_id(id)) {
        return Err(format!("--agent {wrong:?}: 1 to 128 of ASCII letters, digits and . _ - : @ + ~"));
    }
    let name = names::fold(&args.capability);
    name.parse::<CapabilityName>().map(drop).map_err(|e| format!("capability {:?} {e}", args.capability))
}

async fn single(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut pending: PendingCall<Payload> = call.start().await?;
    if let Some(accepted) = pending.accepted().await? {
        eprintln!("{}", place(&accepted));
    }
    if args.options.preferred.is_some()
        && let Some(late) = pending.would_timeout().await
    {
        let wait = late.wait.map_or("longer".to_owned(), |wait| format!("{} ms", wait.as_millis()));
        eprintln!("{} expects to take {wait}", agent_of(late.target.as_deref()));
    }
    pending.reply().await.map(|reply| completed(reply, args))
}

fn agent_of(target: Option<&str>) -> String {
    clean(target.unwrap_or("an agent"))
}

/// Who has it, and in which place.
fn place(accepted: &Acceptance) -> String {
    let target = agent_of(accepted.target.as_deref());
    let attempt = accepted.attempt.filter(|attempt| *attempt > 1);
    let attempt = attempt.map_or(String::new(), |attempt| format!(", try {attempt}"));
    let before = accepted.queue_depth.map_or(String::new(), |depth| format!(", {depth} before it"));
    format!("{target} has it{attempt}{before}")
}

async fn notify(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let reply = call.notify().await?;
    eprintln!("{} has it", agent_of(reply.target.as_deref()));
    if args.json {
        let whole = serde_json::json!({
            "status": "completed",
            "target": reply.target,
            "call_id": reply.call_id,
            "request_id": reply.request_id,
        });
        output::json(&whole.to_string());
    }
    Ok(DONE)
}

async fn stream(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut stream = call.stream::<Payload>().await?;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk?;
        let body = output::body_json(&chunk.body);
        let text = if args.json { format!("{{\"seq\":{},\"chunk\":{body}}}", chunk.seq) } else { body };
        if !output::json_line(&text) {
            // Nobody reads: dropping the stream cancels the call.
            return Ok(FAILED);
        }
    }
    let reply = stream.end().await?;
    // The end of a stream often says nothing.
    if !args.json && output::body_json(&reply.body) == "null" {
        return Ok(DONE);
    }
    if args.json {
        output::json_line(&Outcome::of(&Ok(reply), Detail::Whole).text());
        return Ok(DONE);
    }
    output::json_line(&output::body_json(&reply.body));
    Ok(DONE)
}

async fn fan_out(call: CallBuilder<Payload>, args: &CallArgs) -> Result<u8, CallError> {
    let mut parts = call.all().stream().await?;
    let detail = if args.json { Detail::Whole } else { Detail::Brief };
    while let Some(part) = parts.next().await {
        if !output::json_line(&Outcome::of(&part.result, detail).at(&part.target).text()) {
            return Ok(FAILED);
        }
    }
    let summary = parts.summary().await?;
    eprintln!("{} agents: {} completed, {} failed", summary.targets, summary.completed, summary.failed);
    Ok(if summary.failed == 0 { DONE } else { FAILED })
}

/// Prints a result.
pub(super) fn completed(reply: Reply<Payload>, args: &CallArgs) -> u8 {
    if reply.attempts.len() > 1 || reply.cached {
        output::tried_before(&reply.attempts);
    }
    if reply.cached {
        eprintln!("an older result: the last good one for this input");
    }
    if reply.duplicate {
        eprintln!("the result of an earlier call with this request id");
    }
    if args.json {
        output::json(&Outcome::of(&Ok(reply), Detail::Whole).text());
    } else {
        output::json(&output::body_json(&reply.body));
    }
    DONE
}

fn failed(error: CallError, args: &CallArgs) -> u8 {
    output::explain("call", &error);
    if args.json {
        output::json(&Outcome::of(&Err(error), Detail::Whole).text());
    }
    FAILED
}
