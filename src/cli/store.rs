//! `agent-reach store`: a look into the hub's database, also beside a running hub.

use std::path::PathBuf;
use std::process::ExitCode;

use agent_reach_core::TaskState;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::output;
use super::table::Table;
use crate::config::{self, Config};
use crate::store::sqlite::{ExportedTask, SqliteStore};
use crate::store::{Store as _, StoreError, StoreStats};

/// Tasks, or blocks of records, that are read at once.
const PAGE: usize = 100;

/// Arguments of `agent-reach store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: StoreCommand,
}

/// What `agent-reach store` does.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Read all of the database and tell what is wrong with it
    Check(CheckArgs),
    /// Show how much is in it
    Stats(StatsArgs),
    /// Write tasks and execution records as lines of JSON
    Export(ExportArgs),
}

/// Which database.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct FileArgs {
    /// The configuration file, whose section store names it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The database file itself
    #[arg(long, value_name = "FILE")]
    pub path: Option<PathBuf>,
}

/// Arguments of `agent-reach store check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Which database.
    #[command(flatten)]
    pub file: FileArgs,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `agent-reach store stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// Which database.
    #[command(flatten)]
    pub file: FileArgs,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `agent-reach store export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Which database.
    #[command(flatten)]
    pub file: FileArgs,
    /// With what was asked and answered, in base64
    #[arg(long)]
    pub bodies: bool,
    /// JSON, which it always is
    #[arg(long)]
    pub json: bool,
}

/// Runs the command in the environment of this process. Exit 0 done, 1 with problems, which are on stderr.
#[must_use]
pub fn run(args: &StoreArgs) -> ExitCode {
    let done = match &args.command {
        StoreCommand::Check(args) => check(args),
        StoreCommand::Stats(args) => stats(args),
        StoreCommand::Export(args) => export(args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problems) => {
            for problem in problems {
                eprintln!("agent-reach store: {problem}");
            }
            ExitCode::FAILURE
        }
    }
}

fn open(args: &FileArgs) -> Result<SqliteStore, Vec<String>> {
    let path = match (&args.path, &args.config) {
        (Some(path), _) => path.clone(),
        (None, Some(file)) => match Config::load(file, config::environment()) {
            Ok(config) => config.store.path,
            Err(problems) => return Err(problems.iter().map(ToString::to_string).collect()),
        },
        (None, None) => return Err(vec!["--config FILE or --path FILE is needed".into()]),
    };
    SqliteStore::beside_a_hub(&path).map_err(told)
}

fn told(error: StoreError) -> Vec<String> {
    vec![error.to_string()]
}

/// Whether it is well.
fn check(args: &CheckArgs) -> Result<bool, Vec<String>> {
    let wrong = open(&args.file)?.check().map_err(told)?;
    if args.json {
        output::json(&json!({ "ok": wrong.is_empty(), "problems": wrong }).to_string());
    } else if wrong.is_empty() {
        output::line("ok");
    } else {
        for problem in &wrong {
            eprintln!("{problem}");
        }
    }
    Ok(wrong.is_empty())
}

fn stats(args: &StatsArgs) -> Result<bool, Vec<String>> {
    let figures = figures(&open(&args.file)?.stats().map_err(told)?);
    if args.json {
        output::json(&Value::Object(figures).to_string());
    } else {
        let mut table = Table::plain();
        for (name, figure) in figures {
            let figure = if figure.is_null() { "-".into() } else { figure.to_string() };
            table.row([name.replace('_', " "), figure]);
        }
        output::line(&table.text());
    }
    Ok(true)
}

fn figures(stats: &StoreStats) -> Map<String, Value> {
    let tasks = TaskState::ALL.into_iter().zip(stats.tasks);
    let tasks =
        tasks.map(|(state, count)| (format!("tasks_{}", state.as_str().to_lowercase()), json!(count)));
    let others = [
        ("keys", json!(stats.keys)),
        ("owed", json!(stats.owed)),
        ("callbacks", json!(stats.callbacks)),
        ("records", json!(stats.records)),
        ("record_bytes", json!(stats.record_bytes)),
        ("bytes", json!(stats.bytes)),
        ("free_bytes", json!(stats.free_bytes)),
        ("log_bytes", json!(stats.log_bytes)),
        ("oldest_task_ms", json!(stats.oldest_task)),
        ("oldest_open_ms", json!(stats.oldest_open)),
        ("oldest_record_ms", json!(stats.oldest_record)),
    ];
    tasks.chain(others.map(|(name, figure)| (name.to_owned(), figure))).collect()
}

fn export(args: &ExportArgs) -> Result<bool, Vec<String>> {
    let mut store = open(&args.file)?;
    let mut after = 0;
    loop {
        let page = store.export(after, PAGE, args.bodies).map_err(told)?;
        let Some(last) = page.last() else { break };
        after = last.place;
        if !page.iter().all(|task| output::json_line(&line(task).to_string())) {
            // Nobody reads any more.
            return Ok(true);
        }
    }
    after = 0;
    loop {
        let page = store.records(after, PAGE).map_err(told)?;
        let Some((last, _)) = page.last() else { return Ok(true) };
        after = *last;
        for (_, block) in &page {
            for record in block.records().map_err(told)? {
                if !output::json_line(&json!({ "record": record }).to_string()) {
                    return Ok(true);
                }
            }
        }
    }
}

fn line(task: &ExportedTask) -> Value {
    let base64 = |body: &Option<bytes::Bytes>| body.as_ref().map(|body| STANDARD.encode(body));
    let mut line = json!({
        "task_id": task.id.to_string(),
        "identity": *task.identity,
        "agent": *task.agent,
        "request_id": *task.request_id,
        "capability": *task.capability,
        "state": task.state.as_str(),
        "attempt": task.attempt,
        "created_ms": task.created,
        "updated_ms": task.updated,
        "budget_until_ms": task.budget_until,
        "holder": task.holder.as_deref(),
        "outcome": task.outcome.as_deref(),
        "expires_ms": task.expires,
        "reply_to": task.reply_to.as_deref(),
        "callback_url": task.callback_url.as_deref(),
        "callback_attempt": task.callback_attempt,
        "callback_outcome": task.callback_outcome.as_deref(),
        "callback_next_ms": task.callback_next,
    });
    if let (Some(fields), Some(call)) = (line.as_object_mut(), base64(&task.call)) {
        fields.insert("call".into(), json!(call));
        fields.insert("end".into(), json!(base64(&task.end)));
    }
    json!({ "task": line })
}
