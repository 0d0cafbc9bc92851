//! `agent-reach policy test`: may this identity do that, and by which rule?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::output;
use crate::config::{self, Config, Problem};
use crate::policy::verdict::{Wish, judge};
use crate::policy_file::PolicyFile;

/// Exit code of a question that is none, or of files that cannot be used.
const USAGE: u8 = 2;

/// Arguments of `agent-reach policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PolicyCommand,
}

/// What `agent-reach policy` does.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Say whether an identity may do something, and by which rule: exit 0 allowed, 1 denied, 2 no answer
    Test(TestArgs),
}

/// Arguments of `agent-reach policy test`.
#[derive(Debug, Args)]
pub struct TestArgs {
    /// Which policy.
    #[command(flatten)]
    pub file: FileArgs,
    /// Who: as the certificate has it, for example spiffe://agent-reach/agent/orders
    #[arg(long, value_name = "IDENTITY")]
    pub identity: String,
    /// What it wants.
    #[command(flatten)]
    pub wish: WishArgs,
    /// JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Which policy.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct FileArgs {
    /// The configuration file, whose section policy names it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The policy file itself
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

/// What is wanted: one or more of these, which must all be allowed.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct WishArgs {
    /// May it register under this agent_id?
    #[arg(long, value_name = "AGENT_ID")]
    pub agent: Option<String>,
    /// May it call this capability?
    #[arg(long, value_name = "NAME")]
    pub call: Vec<String>,
    /// May it offer this capability?
    #[arg(long, value_name = "NAME")]
    pub provide: Vec<String>,
}

/// Runs the command in the environment of this process.
#[must_use]
pub fn run(args: &PolicyArgs) -> ExitCode {
    let PolicyCommand::Test(args) = &args.command;
    match test(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            ExitCode::from(USAGE)
        }
    }
}

fn test(args: &TestArgs) -> Result<bool, Vec<String>> {
    let texts = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let policy = match (&args.file.policy, &args.file.config) {
        (Some(file), _) => PolicyFile::load(file),
        (None, Some(config)) => of_config(config),
        (None, None) => Err(Vec::new()),
    };
    let policy = policy.map_err(texts)?;
    let WishArgs { agent, call, provide } = &args.wish;
    let wishes = agent.iter().map(|agent| ("agent", agent, Wish::Be(agent)));
    let wishes = wishes.chain(call.iter().map(|name| ("call", name, Wish::Call(name))));
    let wishes = wishes.chain(provide.iter().map(|name| ("provide", name, Wish::Provide(name))));
    let mut all = true;
    for (what, name, wish) in wishes {
        let verdict =
            judge(&policy, &args.identity, wish).map_err(|e| vec![format!("--{what} {name:?} {e}")])?;
        all &= verdict.allowed;
        let word = if verdict.allowed { "allow" } else { "deny" };
        // A closed pipe takes nothing from the answer, which is the exit code.
        let _told = if args.json {
            output::line(
                &json!({
                    "identity": args.identity, "wish": what, "name": name, "allowed": verdict.allowed,
                    "rule": verdict.rule, "reason": verdict.reason,
                })
                .to_string(),
            )
        } else {
            output::line(&format!("{word} {what} {name}: {}", verdict.reason))
        };
    }
    Ok(all)
}

fn of_config(path: &Path) -> Result<PolicyFile, Vec<Problem>> {
    let config = Config::load(path, config::environment())?;
    // It is required there.
    config.policy.map_or_else(|| Err(Vec::new()), |policy| PolicyFile::load(&policy.file))
}
