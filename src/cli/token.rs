//! `agent-reach token add`: a token for who comes over HTTP.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::output;
use crate::config::{self, Config};
use crate::tokens::{Role, Tokens};

/// Arguments of `agent-reach token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// What `agent-reach token` does.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, once: only its hash is kept
    Add(AddArgs),
}

/// Arguments of `agent-reach token add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// Whose it is: the agent_id that it connects as
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it is for: a viewer sees everything, an operator may call everything
    #[arg(long, value_enum)]
    pub role: Role,
    /// The configuration file, whose section http names the file of tokens
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the command in the environment of this process. Exit 0 or 1.
#[must_use]
pub fn run(args: &TokenArgs) -> ExitCode {
    let TokenCommand::Add(args) = &args.command;
    match add(args) {
        // Nobody has the token when nobody reads it; its section can be taken out again.
        Ok(token) => {
            if output::line(&token) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            ExitCode::FAILURE
        }
    }
}

fn add(args: &AddArgs) -> Result<String, Vec<String>> {
    let texts = |problems: Vec<config::Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let config = Config::load(&args.config, config::environment()).map_err(texts)?;
    let Some(http) = &config.http else {
        return Err(vec![format!(
            "{}: has no section [http], which is where tokens are shown",
            args.config.display()
        )]);
    };
    let mut tokens = Tokens::load(&http.tokens).map_err(texts)?;
    let told = |error: crate::tokens::TokenError| vec![error.to_string()];
    let token = tokens.add(&args.name, args.role).map_err(told)?;
    tokens.write(&http.tokens).map_err(told)?;
    Ok(token)
}
