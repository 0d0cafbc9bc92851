//! `agent-reach bridge`: makes what is not an agent one, without changing it.

mod answer;
mod body;
mod exec;
mod headers;
mod http;
mod job;
mod lines;
mod pieces;
mod probe;
mod process;
mod serve;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use agent_reach_protocol::limits::MESSAGE_BYTES_DEFAULT;
use agent_reach_sdk::Payload;
use clap::{Args, Subcommand, ValueEnum};

use super::call_options::{duration, pair, schema};
use super::hub::HubArgs;
use crate::config::LogFormat;

/// Arguments of `agent-reach bridge`.
#[derive(Debug, Args)]
pub struct BridgeArgs {
    /// What becomes an agent
    #[command(subcommand)]
    pub command: BridgeCommand,
}

/// What can become an agent.
#[derive(Debug, Subcommand)]
pub enum BridgeCommand {
    /// A web service: each call is a POST of its body as JSON
    Http(Box<http::HttpArgs>),
    /// A command: each call starts it, with the body as JSON on its stdin
    Exec(Box<exec::ExecArgs>),
}

/// What is offered, and how: the same for both.
#[derive(Debug, Args)]
pub struct Offer {
    /// What it offers, like text.upper; may be repeated
    #[arg(long = "capability", value_name = "NAME", required = true)]
    capabilities: Vec<String>,
    /// What it does, for people and models that choose among capabilities
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// JSON Schema of the body of a call; the hub refuses others
    #[arg(long, value_name = "FILE", value_parser = schema_file)]
    input_schema: Option<Payload>,
    /// JSON Schema of the result
    #[arg(long, value_name = "FILE", value_parser = schema_file)]
    output_schema: Option<Payload>,
    /// Processing time of calls that name none: 500ms, 30s, 2m, 1h [default: the hub's, 30s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// Running one intent twice is harmless: what may have had an effect when it failed is tried again
    #[arg(long)]
    idempotent: bool,
    /// Most calls at once; the hub gives others to other agents, or keeps them [default: 50; of `exec` as many as there
    /// are processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    concurrency: Option<u64>,
    /// Most bytes of an answer, or of one piece of a streamed one. A hub takes messages of 1 MiB unless it is
    /// configured for more
    #[arg(long, value_name = "BYTES", default_value_t = MESSAGE_BYTES_DEFAULT)]
    max_answer: usize,
    /// The agent's id at the hub [default: the name in the certificate; with that of `dev` one of its own]
    #[arg(long, value_name = "ID")]
    name: Option<String>,
    /// Label of the agent; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = pair)]
    labels: Vec<(String, String)>,
    /// Remembers in this file what was served, so that a restart does not serve a task twice
    #[arg(long, value_name = "FILE")]
    dedupe_file: Option<PathBuf>,
    /// How long open calls get to end after SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    drain: Duration,
    /// Level of the log on stderr, or directives like info,agent_reach=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
    /// Form of the log
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    log_format: Form,
    /// Which hub.
    #[command(flatten)]
    hub: HubArgs,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Text,
    Json,
}

impl From<Form> for LogFormat {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Json => Self::Json,
        }
    }
}

fn schema_file(path: &str) -> Result<Payload, String> {
    schema(&format!("@{path}"))
}

/// Runs the command. Exit 0 after a drain, 1 failed, 2 usage, 3 no hub or thrown out by it, 130 after a second signal.
#[must_use]
pub fn run(args: &BridgeArgs) -> ExitCode {
    match &args.command {
        BridgeCommand::Http(args) => http::run(args),
        BridgeCommand::Exec(args) => exec::run(args),
    }
}
