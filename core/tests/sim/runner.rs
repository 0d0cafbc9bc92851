//! Many seeds on all processors, and what is said of those that fail.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Sim;

/// How many seeds a report names for each invariant.
const NAMED: usize = 10;

/// How the names of threads begin whose panics are findings, and are told by the report.
const THREAD: &str = "world-";

/// What came of many seeds.
#[derive(Default)]
pub(crate) struct Report {
    /// What the worlds met, and how often.
    pub(crate) met: BTreeMap<&'static str, u64>,
    /// Failing seeds with what each of them said.
    pub(crate) failed: BTreeMap<u64, String>,
    pub(crate) seeds: u64,
    seconds: f64,
    threads: usize,
}

#[expect(clippy::disallowed_methods, reason = "the one real clock here measures how fast seeds run")]
fn clock() -> Instant {
    Instant::now()
}

/// Runs the seeds from `first` on, all of them, whatever fails on the way.
pub(crate) fn run(first: u64, seeds: u64) -> Report {
    silence_worlds();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, all) = (AtomicU64::new(first), Mutex::new(Report::default()));
    let begun = clock();
    std::thread::scope(|scope| {
        for number in 0..threads {
            let work = || {
                let mut own = Report::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        break;
                    }
                    own.run(seed);
                }
                all.lock().unwrap().take(own);
            };
            let name = format!("{THREAD}{number}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, work).unwrap();
        }
    });
    let mut report = all.into_inner().unwrap();
    (report.seeds, report.threads, report.seconds) = (seeds, threads, begun.elapsed().as_secs_f64());
    report
}

/// Runs one seed with its last steps told when it fails.
pub(crate) fn tell(seed: u64, steps: usize) {
    Sim::told(seed, steps).run();
}

/// A failing world is told once, by the report, and not by each thread that comes upon one.
fn silence_worlds() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let world = std::thread::current().name().is_some_and(|name| name.starts_with(THREAD));
            if !world {
                before(info);
            }
        }));
    });
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}

impl Report {
    fn run(&mut self, seed: u64) {
        match catch_unwind(AssertUnwindSafe(|| Sim::new(seed).run())) {
            Ok(story) => {
                for (what, times) in story.met {
                    *self.met.entry(what).or_default() += times;
                }
            }
            Err(panic) => {
                self.failed.insert(seed, text_of(&*panic));
            }
        }
    }

    fn take(&mut self, other: Self) {
        for (what, times) in other.met {
            *self.met.entry(what).or_default() += times;
        }
        self.failed.extend(other.failed);
    }

    /// What to say of it: the speed, and the failing seeds by the invariant that each of them broke.
    pub(crate) fn lines(&self) -> String {
        let per_second = self.seeds as f64 / self.seconds.max(1e-9);
        let mut lines = format!(
            "{} seeds in {:.1} s on {} threads: {per_second:.0} seeds/s, {} failed\n",
            self.seeds,
            self.seconds,
            self.threads,
            self.failed.len()
        );
        let met: Vec<String> = self.met.iter().map(|(what, times)| format!("{what} {times}")).collect();
        writeln!(lines, "met: {}", met.join(", ")).unwrap();
        let mut by_name: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (seed, text) in &self.failed {
            let name = text.lines().next().unwrap_or_default().split(':').next().unwrap_or_default();
            by_name.entry(name).or_default().push(*seed);
        }
        for (name, seeds) in by_name {
            let named: Vec<String> = seeds.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if seeds.len() > NAMED { " and more" } else { "" };
            let first = seeds.first().and_then(|seed| self.failed.get(seed)).map_or("", String::as_str);
            writeln!(lines, "{name}: {} seeds: {}{more}", seeds.len(), named.join(" ")).unwrap();
            writeln!(lines, "    {}", first.chars().take(600).collect::<String>()).unwrap();
        }
        lines
    }
}
