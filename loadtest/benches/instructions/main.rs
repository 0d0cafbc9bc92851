//! How many instructions one envelope costs: decoding, encoding, and `Hub::handle` with what leaves after it.
//!
//! Unlike times these counts are the same on every run, whatever else the machine does. Each operation is run under
//! callgrind twice, the second time more often; the difference holds nothing but the operation. The nanoseconds beside
//! them are those of this machine, without callgrind.

mod envelopes;
mod operations;
mod world;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use operations::{OPERATIONS, Operation};

/// Tries for nanoseconds: so many where they are quick.
const TRIES: usize = 101;
/// And so many where they are not.
const TRIES_MIN: usize = 5;
/// How long they may take.
const TRYING: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    // What cargo adds for benchmarks is no word of ours.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["run", name, times] => run(name, times),
        filter => measure(filter),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_listens = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one operation so many times. This is what callgrind looks at.
fn run(name: &str, times: &str) -> Result<(), Box<dyn Error>> {
    let operation = OPERATIONS.iter().find(|operation| operation.name == name).ok_or("no such operation")?;
    let _took = (operation.run)(times.parse()?);
    Ok(())
}

/// Prints the table of those whose names contain one of the words; of all, where there is none.
fn measure(words: &[&str]) -> Result<(), Box<dyn Error>> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err(
            "instructions are counted by callgrind: install valgrind (Debian: apt-get install valgrind)"
                .into(),
        );
    }
    let dir = tempfile::tempdir()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<58} {:>12} {:>10}", "operation", "instructions", "ns here")?;
    for operation in OPERATIONS {
        if words.is_empty() || words.iter().any(|word| operation.name.contains(word)) {
            let instructions = each(operation, dir.path())?;
            writeln!(out, "{:<58} {instructions:>12} {:>10}", operation.name, nanos(operation))?;
        }
    }
    Ok(())
}

/// Nanoseconds of one run of an operation: the quickest of some tries, for what else the machine does only adds.
fn nanos(operation: &Operation) -> u128 {
    let (times, begun) = (operation.few * 2, Instant::now());
    let mut tries = Vec::new();
    while tries.len() < TRIES_MIN || (tries.len() < TRIES && begun.elapsed() < TRYING) {
        tries.push((operation.run)(times).as_nanos() / u128::from(times));
    }
    tries.into_iter().min().unwrap_or_default()
}

/// Instructions of one run of an operation.
fn each(operation: &Operation, dir: &Path) -> Result<u64, Box<dyn Error>> {
    let few = count(operation, operation.few, dir)?;
    let many = count(operation, operation.few * 2, dir)?;
    Ok((many.saturating_sub(few)) / operation.few)
}

/// Instructions of this program when it runs an operation so many times.
fn count(operation: &Operation, times: u64, dir: &Path) -> Result<u64, Box<dyn Error>> {
    let file = dir.join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--error-exitcode=9"]);
    command.arg(format!("--callgrind-out-file={}", file.display())).arg(std::env::current_exe()?);
    command.args(["run", operation.name, &times.to_string()]);
    // The environment lies on the stack, and would move what is measured.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let output = command.env_clear().env("PATH", path).output()?;
    if !output.status.success() {
        return Err(format!("valgrind: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = std::fs::read_to_string(&file)?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    Ok(total.ok_or("callgrind wrote no total")?.trim().parse()?)
}
