//! `agent-reach audit`: what the audit files say, narrowed down, and as it is written.

mod filter;
mod reader;
mod row;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::hub::{DONE, FAILED};
use super::output;
use super::serve::Signals;
use crate::config::{self, Config};
use filter::Filter;
pub use filter::FilterArgs;
use reader::AuditReader;
use row::Row;

/// How often a file is looked at that is followed.
const LOOK: Duration = Duration::from_millis(200);
/// What is read when nothing else is said: the default of `audit.path`.
const FILE: &str = "audit.jsonl";

/// Arguments of `agent-reach audit`.
#[derive(Debug, Args)]
#[command(after_help = "\
The older files, audit.jsonl.1 and so on, are read too, the oldest line first. Times are UTC.

Examples:
  agent-reach audit --config agent-reach.toml --since 1h --outcome timeout
  agent-reach audit --file audit.jsonl --event refused --follow")]
pub struct AuditArgs {
    /// The configuration file, whose section audit names it
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub config: Option<PathBuf>,
    /// The audit file itself [default: audit.jsonl]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Go on with what is written from now on, until Ctrl-C
    #[arg(long)]
    pub follow: bool,
    /// Which lines.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// The lines as they are, for programs
    #[arg(long)]
    pub json: bool,
}

/// Runs the command. Exit 0 done, 1 when the file cannot be read.
#[must_use]
pub fn run(args: &AuditArgs) -> ExitCode {
    let path = match path_of(args) {
        Ok(path) => path,
        Err(problems) => {
            for problem in problems {
                eprintln!("agent-reach audit: {problem}");
            }
            return ExitCode::from(FAILED);
        }
    };
    let mut printer = Printer { filter: args.filter.filter(), json: args.json, headed: args.json, broken: 0 };
    let done = AuditReader::open(&path).and_then(|reader| match args.follow {
        true => follow(reader, &mut printer),
        false => once(reader, &mut printer),
    });
    if printer.broken > 0 {
        eprintln!("agent-reach audit: {} lines cannot be read and are left out", printer.broken);
    }
    match done {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => {
            eprintln!("agent-reach audit: {}: {error}", path.display());
            ExitCode::from(FAILED)
        }
    }
}

fn path_of(args: &AuditArgs) -> Result<PathBuf, Vec<String>> {
    match (&args.config, &args.file) {
        (None, file) => Ok(file.clone().unwrap_or_else(|| Path::new(FILE).to_owned())),
        (Some(config), _) => match Config::load(config, config::environment()) {
            Ok(config) => Ok(config.audit.path),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        },
    }
}

fn once(mut reader: AuditReader, printer: &mut Printer) -> io::Result<()> {
    reader.read(&mut |line| printer.take(line))?;
    reader.rest(&mut |line| printer.take(line));
    Ok(())
}

fn follow(mut reader: AuditReader, printer: &mut Printer) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            // Cancel-safe: a look that is left out is made up for by the next.
            tokio::select! {
                _ = look.tick() => {}
                () = signals.stop() => return Ok(()),
            }
            // What was written before a rotation is in the file that is open.
            if !reader.read(&mut |line| printer.take(line))? {
                return Ok(());
            }
            reader.renew()?;
        }
    })
}

/// Prints the lines that are wanted.
struct Printer {
    filter: Filter,
    json: bool,
    /// The head of the table is there, or not wanted.
    headed: bool,
    broken: u64,
}

impl Printer {
    /// Takes a line; `false` when nobody reads any more.
    fn take(&mut self, line: &[u8]) -> bool {
        let Ok(row) = serde_json::from_slice::<Row>(line) else {
            self.broken += 1;
            return true;
        };
        if !self.filter.takes(&row) {
            return true;
        }
        if self.json {
            return output::line(&String::from_utf8_lossy(line));
        }
        let headed = std::mem::replace(&mut self.headed, true) || output::line(&row::head());
        headed && output::line(&row.text())
    }
}
