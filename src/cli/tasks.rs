//! `agent-reach tasks`.

use std::process::ExitCode;
use std::time::Duration;

use agent_reach_sdk::{Agent, CallError, IntoPayload, Payload, TaskInfo};
use clap::{Args, Subcommand};
use rmpv::Value;

use super::hub::{self, DONE, FAILED, HubArgs};
use super::output;
use super::table::{Table, clean, span};

/// Most tasks that a list shows when nobody says how many.
const SHOWN: usize = 100;
/// Most tasks of one page of the hub's list.
const PAGE: usize = 1000;

/// Arguments of `agent-reach tasks`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Tasks belong to the identity of who submitted them: give the same --cert. With the directory of `dev` each command is
another caller, which has none.

Exit code: 0 done, 1 failed, 2 usage, 3 could not connect"
)]
pub struct TasksArgs {
    /// What to do; a list if absent
    #[command(subcommand)]
    pub act: Option<TasksAct>,
    /// Which to list, without a further word.
    #[command(flatten)]
    pub list: ListArgs,
}

/// What can be done with tasks.
#[derive(Debug, Subcommand)]
pub enum TasksAct {
    /// List them, the newest first
    List(ListArgs),
    /// Show one, with its tries and its end
    Get(OneArgs),
    /// Cancel one; exit 1 when it had ended before
    Cancel(OneArgs),
    /// Have the CALL of one that failed made again, as a new task of the same owner: for operators. A second run, whatever
    /// came of the first
    Retry(OneArgs),
    /// Watch one until it ends, or all of them until Ctrl-C
    Watch(WatchArgs),
}

/// Arguments of `agent-reach tasks list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those in this state
    #[arg(long, value_name = "WHICH", ignore_case = true,
        value_parser = ["QUEUED", "RECEIVED", "PROCESSING", "SUCCEEDED", "FAILED"])]
    pub state: Option<String>,
    /// Only those that ask for this capability
    #[arg(long, value_name = "NAME")]
    pub capability: Option<String>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = SHOWN)]
    pub limit: usize,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Arguments of what is done with one task.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// Its task_id
    #[arg(value_name = "ID")]
    pub id: String,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Arguments of `agent-reach tasks watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// One task; all if absent
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// One JSON object on each line, for programs
    #[arg(long)]
    pub json: bool,
    /// Which hub.
    #[command(flatten)]
    pub hub: HubArgs,
}

/// Runs the command. Exit 0 done, 1 failed, 3 could not connect.
#[must_use]
pub fn run(args: &TasksArgs) -> ExitCode {
    let explained = |done: Result<u8, CallError>| {
        done.unwrap_or_else(|error| {
            output::explain("tasks", &error);
            FAILED
        })
    };
    match &args.act {
        None => {
            hub::run("tasks", &args.list.hub, FAILED, async |agent| explained(list(agent, &args.list).await))
        }
        Some(TasksAct::List(args)) => {
            hub::run("tasks", &args.hub, FAILED, async |agent| explained(list(agent, args).await))
        }
        Some(TasksAct::Get(args)) => {
            hub::run("tasks", &args.hub, FAILED, async |agent| explained(get(agent, args).await))
        }
        Some(TasksAct::Cancel(args)) => {
            hub::run("tasks", &args.hub, FAILED, async |agent| explained(cancel(agent, args).await))
        }
        Some(TasksAct::Retry(args)) => {
            hub::run("tasks", &args.hub, FAILED, async |agent| explained(retry(agent, args).await))
        }
        Some(TasksAct::Watch(args)) => {
            hub::run("tasks", &args.hub, DONE, async |agent| explained(watch(agent, args).await))
        }
    }
}

fn map(entries: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

/// Shown as the hub tells it, so that programs get what this version does not know as well.
async fn list(agent: &Agent, args: &ListArgs) -> Result<u8, CallError> {
    let mut tasks: Vec<Value> = Vec::new();
    while tasks.len() < args.limit {
        let mut asked = vec![("limit", Value::from(PAGE.min(args.limit - tasks.len())))];
        asked.extend(args.state.as_deref().map(|state| ("state", state.to_ascii_uppercase().into())));
        asked.extend(args.capability.as_deref().map(|name| ("capability", name.into())));
        let last = tasks.last().and_then(|task| hub::field(task, "task_id")).cloned();
        asked.extend(last.map(|last| ("before", last)));
        let answer: Value = agent.call("hub.tasks.list", map(asked)).await?;
        let page = hub::field(&answer, "tasks").and_then(Value::as_array).cloned().unwrap_or_default();
        // A page that does not lead on must not be asked for for ever.
        let onward = !page.is_empty() && hub::field(&answer, "more").and_then(Value::as_bool) == Some(true);
        tasks.extend(page);
        if !onward {
            break;
        }
    }
    if args.json {
        output::json(&output::json_of(&map([("tasks", Value::Array(tasks))])));
    } else {
        let known = tasks.iter().filter_map(read);
        output::line(&table(known));
    }
    Ok(DONE)
}

fn table(tasks: impl Iterator<Item = TaskInfo>) -> String {
    let mut table = Table::new(&["TASK", "STATE", "CAPABILITY", "AGENT", "TRIES", "AGE", "OUTCOME"]);
    for task in tasks {
        table.row([
            task.task_id,
            task.state.as_str().to_owned(),
            task.capability,
            task.target.unwrap_or_else(|| "-".to_owned()),
            task.attempt.to_string(),
            since(task.age),
            task.outcome.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.text()
}

fn since(time: Duration) -> String {
    span(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

async fn get(agent: &Agent, args: &OneArgs) -> Result<u8, CallError> {
    let answer: Value = agent.call("hub.tasks.get", map([("task_id", args.id.as_str().into())])).await?;
    if args.json {
        output::json(&output::json_of(&answer));
    } else {
        let body = hub::field(&answer, "result").map(output::json_of);
        let info = read(&answer).unwrap_or_default();
        output::line(&portrait(&info, body));
    }
    Ok(DONE)
}

fn portrait(info: &TaskInfo, body: Option<String>) -> String {
    let mut table = Table::plain();
    let mut say = |name: &str, value: String| table.row([name.to_owned(), value]);
    say("task", info.task_id.clone());
    say("state", format!("{}, for {}", info.state.as_str(), since(info.unchanged)));
    say("capability", info.capability.clone());
    say("request_id", info.request_id.clone());
    say("caller", info.caller.clone());
    say("accepted", format!("{} ago", since(info.age)));
    if let Some(left) = info.budget_left {
        say("budget left", since(left));
    }
    if let Some(target) = &info.target {
        say("agent", target.clone());
    }
    for (number, tried) in (1..).zip(&info.attempts) {
        let agent_reach_sdk::Attempt { target, outcome, ms, reason } = tried;
        say(&format!("try {number}"), format!("{target} for {ms} ms: {outcome} ({reason})"));
    }
    if let Some(error) = &info.error {
        let again = if error.retryable { "; another try can succeed" } else { "" };
        say("error", format!("{}: {}{again}", error.code, error.message));
    }
    if let Some(body) = body {
        say("result", output::layout(&body, false));
    }
    table.text()
}

async fn cancel(agent: &Agent, args: &OneArgs) -> Result<u8, CallError> {
    let answer: Value = agent.call("hub.tasks.cancel", map([("task_id", args.id.as_str().into())])).await?;
    let cancelled = hub::field(&answer, "cancelled").and_then(Value::as_bool) == Some(true);
    if args.json {
        output::json(&output::json_of(&answer));
    } else if cancelled {
        output::line("cancelled");
    } else {
        let outcome = hub::field(&answer, "outcome").and_then(Value::as_str).unwrap_or("unknown");
        eprintln!("agent-reach tasks: it had ended before: {}", clean(outcome));
    }
    Ok(if cancelled { DONE } else { FAILED })
}

/// The name of the new task alone, so that it can be handed on to `watch`.
async fn retry(agent: &Agent, args: &OneArgs) -> Result<u8, CallError> {
    let answer: Value = agent.call("hub.tasks.retry", map([("task_id", args.id.as_str().into())])).await?;
    if args.json {
        output::json(&output::json_of(&answer));
    } else {
        output::line(&clean(hub::field(&answer, "task_id").and_then(Value::as_str).unwrap_or("unknown")));
    }
    Ok(DONE)
}

async fn watch(agent: &Agent, args: &WatchArgs) -> Result<u8, CallError> {
    let asked = args.id.as_deref().map(|id| ("task_id", Value::from(id)));
    let mut stream = agent.call::<Payload>("hub.tasks.watch", map(asked)).stream::<Payload>().await?;
    while let Some(chunk) = stream.next().await {
        let body = chunk?.body;
        let event: Value = body.decode().unwrap_or(Value::Nil);
        let written = if args.json {
            output::json_line(&output::body_json(&body))
        } else {
            lines(&event).iter().all(|line| output::line(line))
        };
        // One task has nothing more to tell after its end.
        if !written || (args.id.is_some() && states(&event).iter().any(|info| info.state.is_over())) {
            return Ok(DONE);
        }
    }
    stream.end().await.map(|_| DONE)
}

/// A task as the hub shows it.
fn read(task: &Value) -> Option<TaskInfo> {
    task.into_payload().ok()?.decode().ok()
}

/// The tasks in an event: those of the state at the beginning, or the one that moved.
fn states(event: &Value) -> Vec<TaskInfo> {
    let all = hub::field(event, "tasks").and_then(Value::as_array).into_iter().flatten();
    let moved = hub::field(event, "task");
    all.chain(moved).filter_map(read).collect()
}

/// What people see of an event: one line for each task in it.
fn lines(event: &Value) -> Vec<String> {
    let mut lines: Vec<String> = states(event).iter().map(step).collect();
    if let Some(said) = hub::field(event, "progress") {
        let id = hub::field(event, "task_id").and_then(Value::as_str).unwrap_or_default();
        lines.push(format!(
            "{}  progress  {}",
            clean(id),
            clean(&output::layout(&output::json_of(said), false))
        ));
    }
    lines
}

fn step(info: &TaskInfo) -> String {
    let who = info.target.as_deref().map_or(String::new(), |target| format!("  {}", clean(target)));
    let end = info.outcome.as_deref().map_or(String::new(), |outcome| format!("  {}", clean(outcome)));
    format!("{}  {}  {}{who}{end}", clean(&info.task_id), info.state.as_str(), clean(&info.capability))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_line_that_says_which_task_and_what() {
        let task = |state: &str| {
            map([
                ("task_id", "t".into()),
                ("state", state.into()),
                ("capability", "x.y".into()),
                ("target", "a".into()),
            ])
        };
        let snapshot = map([("tasks", Value::Array(vec![task("QUEUED"), task("RECEIVED")]))]);
        assert_eq!(lines(&snapshot), ["t  QUEUED  x.y  a", "t  RECEIVED  x.y  a"]);
        let moved = map([("event", "task.processing".into()), ("task", task("PROCESSING"))]);
        assert_eq!(lines(&moved), ["t  PROCESSING  x.y  a"]);
        let said = map([("task_id", "t".into()), ("progress", map([("done", 3.into())]))]);
        assert_eq!(lines(&said), ["t  progress  {\"done\":3}"]);
        assert_eq!(lines(&Value::Nil), [""; 0]);
    }
}
