//! What an attack costs others, for `make hostile`: nothing here is judged.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use super::canary;
use super::vitals::Vitals;
use crate::raw::Hub;

/// The core of the canary and that of the attackers, where `HOSTILE_CORES` names both (`0,1`).
pub(crate) fn cores() -> Option<(String, String)> {
    let cores = std::env::var("HOSTILE_CORES").ok().filter(|cores| !cores.is_empty())?;
    let (canary, attackers) = cores.split_once(',').expect("two cores");
    Some((canary.to_owned(), attackers.to_owned()))
}

/// Keeps attackers away from the canary, and lets them have only what the hub leaves of their core. The machines of
/// real attackers are others; here they would take from the hub what they burn themselves.
///
/// The first thread stays as it is: what the harness starts from it later, the next hub among it, inherits that.
pub(crate) fn yield_to_the_hub() {
    let this = std::process::id().to_string();
    let threads = std::fs::read_dir("/proc/self/task").expect("the kernel says so");
    let names = threads.map(|thread| thread.expect("a thread").file_name().into_string().expect("a number"));
    for thread in names.filter(|name| *name != this) {
        if let Ok(niceness) = std::env::var("HOSTILE_NICE") {
            run(&["renice", "-n", &niceness, "-p", &thread]);
        }
        if let Some((_, core)) = cores() {
            run(&["taskset", "-p", "-c", &core, &thread]);
        }
    }
}

/// Runs a tool of util-linux.
fn run(command: &[&str]) {
    let output = Command::new(command[0]).args(&command[1..]).output().expect("util-linux");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A moment between two parts of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Calls of the canary until then.
    pub(crate) calls: u64,
    when: Instant,
    /// Nanoseconds of the hub until then: on a processor with all its threads, with those of connections, and those
    /// that the latter were ready and had no processor.
    hub: [u64; 3],
}

impl Mark {
    pub(crate) fn at(hub: &Hub, calls: u64) -> Self {
        let tasks = format!("/proc/{}/task", hub.pid());
        let mut spent = [0; 3];
        for task in std::fs::read_dir(tasks).expect("the hub runs").flatten() {
            let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
            // A thread may end while it is looked at.
            let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { continue };
            let mut times = times.split_whitespace().map(|nanos| nanos.parse::<u64>().expect("nanoseconds"));
            let (on, waited) = (times.next().expect("two"), times.next().expect("two"));
            let connections = u64::from(name.starts_with("connections-"));
            for (sum, nanos) in spent.iter_mut().zip([on, on * connections, waited * connections]) {
                *sum += nanos;
            }
        }
        Self { calls, when: Instant::now(), hub: spent }
    }
}

/// What the canary and the hub's processor time were between two marks.
#[derive(Debug)]
struct Part {
    sorted: Vec<Duration>,
    /// Cores that the hub kept busy with all its threads and with those of connections, and that the latter lacked.
    cores: [f64; 3],
}

impl Part {
    fn between(from: Mark, to: Mark, took: &[Duration]) -> Self {
        let index = |calls| usize::try_from(calls).expect("few");
        let mut sorted = took.get(index(from.calls)..index(to.calls)).expect("calls that were made").to_vec();
        sorted.sort_unstable();
        let span = (to.when - from.when).as_secs_f64();
        let cores = [0, 1, 2]
            .map(|at| Duration::from_nanos(to.hub[at].saturating_sub(from.hub[at])).as_secs_f64() / span);
        Self { sorted, cores }
    }

    /// The time below which so many of ten thousand calls stayed, in microseconds.
    fn micros(&self, of_ten_thousand: usize) -> u128 {
        let index = self.sorted.len().saturating_sub(1) * of_ten_thousand / 10_000;
        self.sorted.get(index).copied().unwrap_or_default().as_micros()
    }

    fn ratio(&self, quiet: &Self, of_ten_thousand: usize) -> f64 {
        let micros = |part: &Self| f64::from(u32::try_from(part.micros(of_ten_thousand)).unwrap_or(u32::MAX));
        micros(self) / micros(quiet).max(1.0)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, p999, max] = [5_000, 9_900, 9_990, 10_000].map(|at| self.micros(at));
        let [all, connections, lacked] = self.cores;
        let calls = self.sorted.len();
        write!(
            out,
            "{calls} calls, p50 {p50} us, p99 {p99} us, p99.9 {p999} us, max {max} us, \
             hub on {all:.2} cores (connections {connections:.2}, which waited for one {lacked:.2})"
        )
    }
}

/// Says what an attack cost, and adds a row to the table that `HOSTILE_TABLE` names.
pub(crate) fn report(what: &str, marks: [Mark; 3], took: &[Duration], strikes: usize, held: [Vitals; 2]) {
    let [begun, attacked, ended] = marks;
    let (quiet, attack) = (Part::between(begun, attacked, took), Part::between(attacked, ended, took));
    let [before, after] = held;
    eprintln!("{what}: no error; quiet {quiet}");
    eprintln!("{what}: {strikes} strikes; attacked {attack}");
    eprintln!("{what}: p99 {:.1} times the quiet one", attack.ratio(&quiet, 9_900));
    eprintln!("{what}: before {before}; after {after}");
    let Some(table) = std::env::var_os("HOSTILE_TABLE") else { return };
    let mut row = format!("| {what}{} ", if canary::is_apart() { "" } else { " (one process)" });
    for part in [&quiet, &attack] {
        let [p50, p99] = [5_000, 9_900].map(|at| part.micros(at));
        write!(row, "| {p50} / {p99} ").expect("memory");
    }
    let mib = |kib: u64| kib.div_ceil(1024);
    writeln!(
        row,
        "| {:.1} / {:.1} | {} | {:.2} + {:.2} | {} / {} / {} | {} / {} |",
        attack.ratio(&quiet, 5_000),
        attack.ratio(&quiet, 9_900),
        attack.micros(10_000),
        attack.cores[1],
        attack.cores[0] - attack.cores[1],
        mib(before.rss),
        mib(after.peak),
        mib(after.rss),
        before.descriptors,
        after.descriptors,
    )
    .expect("memory");
    let mut file = OpenOptions::new().append(true).create(true).open(table).expect("the table");
    file.write_all(row.as_bytes()).expect("the table");
}
