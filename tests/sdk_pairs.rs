//! The SDKs against each other over one real hub: each one's provider and caller, as programs of their own, in all
//! pairs. What they do is in `docs/sdk-behaviour.md` under "Pairs"; `make pairs` runs all nine on the release binary.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use raw::certs;
use sdk_world::Place;

/// No program is silent for longer: its calls have budgets of 30 s.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a caller says, besides `restart`.
const REQUIREMENTS: usize = 9;
/// One hub is killed once for each pair, and everybody comes back each time.
const MANY_HELLOS: (&str, &str) = ("LIMITS__REGISTRATIONS_PER_10S", "1000");

/// How the programs of one language are started.
struct Language {
    name: &'static str,
    provider: Vec<PathBuf>,
    caller: Vec<PathBuf>,
}

/// Rust, and what the variables name an interpreter of.
fn languages() -> Vec<Language> {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk");
    let built = std::env::current_exe().expect("this program");
    let pair = built.parent().and_then(Path::parent).expect("a target directory").join("examples/pair");
    assert!(pair.exists(), "cargo build -p agent-reach-sdk --example pair");
    let rust = |half: &str| vec![pair.clone(), half.into()];
    let mut languages = vec![Language { name: "rust", provider: rust("provider"), caller: rust("caller") }];
    let others = [
        ("python", "PAIRS_PYTHON", "python/conformance", "py"),
        ("typescript", "PAIRS_NODE", "typescript/build/conformance", "js"),
    ];
    for (name, variable, folder, ending) in others {
        let interpreter = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let Some(interpreter) = interpreter else {
            eprintln!("{variable} is not set: nothing of {name} was run (make pairs)");
            continue;
        };
        let program =
            |half: &str| vec![interpreter.clone(), sdk.join(folder).join(half).with_extension(ending)];
        languages.push(Language { name, provider: program("provider"), caller: program("caller") });
    }
    languages
}

/// A program that runs, and what it says.
struct Program {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Program {
    fn start(place: &Place, command: &[PathBuf], arguments: &[&str]) -> Self {
        let name = arguments.first().expect("the name of an agent");
        certs::run(&["certs", "issue", name, "--dir", certs::path(place.dir())]);
        let file = |ending: &str| place.dir().join("agents").join(format!("{name}{ending}"));
        let (program, first) = command.split_first().expect("a program");
        let mut child = Command::new(program)
            .args(first)
            .args(arguments)
            .env("AGENT_REACH_HUB", format!("wss://{}", place.address()))
            .env("AGENT_REACH_CA", place.dir().join("ca.pem"))
            .env("AGENT_REACH_CERT", file(".pem"))
            .env("AGENT_REACH_KEY", file("-key.pem"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (said, lines) = mpsc::sync_channel(REQUIREMENTS);
        std::thread::spawn(move || {
            // Nobody listens any more when the test has failed.
            stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Self { child, lines }
    }

    /// The next line; `None` after the last one.
    fn line(&self) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(Some(line)),
            Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
            Err(mpsc::RecvTimeoutError::Timeout) => Err("it says nothing any more".to_owned()),
        }
    }

    /// Tells it to drain, and waits for its end.
    fn drain(mut self) -> Result<(), String> {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
        match self.line()? {
            None => ended_well(self.child.wait().expect("it ran")),
            Some(line) => Err(format!("it says {line:?} after SIGTERM")),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn ended_well(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// Runs a caller to its end, and kills the hub and starts it again when it asks for that.
fn ask(place: &mut Place, caller: &Language, name: &str, provider: &str) -> Result<(), String> {
    let mut program = Program::start(place, &caller.caller, &[name, provider]);
    let (mut said, mut restarts) = (Vec::new(), 0);
    while let Some(line) = program.line()? {
        if line == "restart" {
            restarts += 1;
            place.kill();
            place.restart();
        } else {
            said.push(line);
        }
    }
    ended_well(program.child.wait().expect("it ran")).map_err(|why| format!("{why} after {said:?}"))?;
    let due: Vec<String> = (1..=REQUIREMENTS).map(|n| format!("PAIR-{n} ok")).collect();
    if said == due && restarts == 1 { Ok(()) } else { Err(format!("it said {said:?}, {restarts} restarts")) }
}

#[test]
fn every_sdk_at_hand_calls_and_serves_every_other_one_over_a_hub_that_is_killed() {
    let languages = languages();
    let mut place = Place::new(&[MANY_HELLOS]);
    let mut failed = Vec::new();
    let providers: Vec<(String, Program)> = languages
        .iter()
        .map(|language| {
            let name = format!("{}-provider", language.name);
            let program = Program::start(&place, &language.provider, &[&name]);
            assert_eq!(program.line(), Ok(Some("ready".to_owned())), "{name}");
            (name, program)
        })
        .collect();
    for (provider, _) in &providers {
        for caller in &languages {
            let name = format!("{}-caller-of-{provider}", caller.name);
            match ask(&mut place, caller, &name, provider) {
                Ok(()) => eprintln!("{name}: ok"),
                Err(why) => failed.push(format!("{name}: {why}")),
            }
        }
    }
    for (name, program) in providers {
        if let Err(why) = program.drain() {
            failed.push(format!("{name}: {why}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
