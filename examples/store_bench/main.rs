//! What a store costs on this machine's disk: `cargo run --release --example store_bench -- [FOLDER]`.
//!
//! Durable accepts of tasks of 1 KB with every commit on disk, how long one waits at a steady rate, and how long a hub
//! takes to read 100,000 open tasks when it starts. Nothing here is a test: the figures are the disk's.
#![expect(clippy::print_stdout, reason = "the figures are for a person")]
#![expect(clippy::cast_possible_truncation, reason = "rates and places in a list are small")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on ends")]

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use agent_reach::store::{Record, StoreHandle, StoreOptions};
use agent_reach_core::{CallId, CallRecord, Change, NewTask, StoreNews, TaskId};
use bytes::Bytes;

/// Accepts that are measured at full speed.
const ACCEPTS: u64 = 50_000;
/// Accepts that are on their way at once: so many callers wait.
const WINDOW: u64 = 256;
/// Accepts a second at which their waiting is measured, beside half of what the disk gave.
const STEADY: f64 = 2_500.0;
/// How long each of these goes on.
const STEADILY: Duration = Duration::from_secs(10);
/// Open tasks that are read at a start.
const OPEN: usize = 100_000;

fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let home = tempfile::tempdir_in(folder).unwrap();
    let flushes = Arc::new(Mutex::new(Vec::new()));
    let mut options = StoreOptions::new(home.path().join("store.db"));
    let note = Arc::clone(&flushes);
    options.on_flush = Some(Arc::new(move |took| note.lock().unwrap().push(took)));
    let rate = full_speed(&options);
    report("flush at full speed", &mut flushes.lock().unwrap());
    flushes.lock().unwrap().clear();
    for rate in [STEADY, rate / 2.0] {
        steady(&options, rate);
        report("flush", &mut flushes.lock().unwrap());
        flushes.lock().unwrap().clear();
    }
    records(&options);
    restart(home.path());
}

fn open(options: &StoreOptions) -> (StoreHandle, Receiver<StoreNews>) {
    let (sink, news) = channel();
    let sink = move |told| drop(sink.send(told));
    let (store, _) = StoreHandle::open(options.clone(), sink).unwrap();
    (store, news)
}

/// Ids and request_ids of one run are none of another's.
fn task(number: u64, run: u64) -> Change {
    Change::Task(Box::new(NewTask {
        id: TaskId::new(1_700_000_000_000 + number / 10, run, number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        identity: format!("spiffe://example.org/agent/caller-{}", number % 50).into(),
        agent: format!("caller-{}", number % 50).into(),
        request_id: format!("{run:08x}-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into(),
        capability: "text-analysis.sentiment".into(),
        fingerprint: u128::from(number),
        keep_until: u64::MAX >> 1,
        created: 1_700_000_000_000,
        budget_until: u64::MAX >> 1,
        call: Bytes::from(vec![7; 1024]),
        callback_url: None,
        reply_to: None,
        retry_of: None,
    }))
}

/// Waits until this number is written; gives the highest that was.
fn written(news: &Receiver<StoreNews>, number: u64) -> u64 {
    loop {
        match news.recv().unwrap() {
            StoreNews::Written { up_to } if up_to >= number => return up_to,
            StoreNews::Written { .. } => {}
            StoreNews::Refused { numbers, reason } => println!("{} refused: {reason}", numbers.len()),
            StoreNews::Writable(_) | StoreNews::Answered { .. } => {}
        }
    }
}

fn full_speed(options: &StoreOptions) -> f64 {
    let (store, news) = open(options);
    let begun = Instant::now();
    let (mut done, mut next) = (0, 0);
    while done < ACCEPTS {
        while next < ACCEPTS && next - done < WINDOW {
            next += 1;
            store.write([(next, task(next, 1))]);
        }
        done = written(&news, done + 1);
    }
    let rate = ACCEPTS as f64 / begun.elapsed().as_secs_f64();
    println!("durable accepts, {WINDOW} on their way: {rate:.0}/s");
    store.close().unwrap();
    rate
}

fn steady(options: &StoreOptions, rate: f64) {
    let (store, news) = open(options);
    let begun = Instant::now();
    let listener = std::thread::spawn(move || {
        let mut heard = Vec::new();
        while let Ok(told) = news.recv() {
            if let StoreNews::Written { up_to } = told {
                heard.push((up_to, begun.elapsed()));
            }
        }
        heard
    });
    let mut sent = Vec::new();
    while begun.elapsed() < STEADILY {
        let number = sent.len() as u64 + 1;
        let due = Duration::from_secs_f64(number as f64 / rate);
        // Waits beside the channel of the store, so that what is measured is the store.
        while begun.elapsed() < due {
            std::thread::park_timeout(due.saturating_sub(begun.elapsed()));
        }
        sent.push(begun.elapsed());
        store.write([(number, task(number, rate as u64))]);
    }
    store.close().unwrap();
    drop(store);
    let heard = listener.join().unwrap();
    let mut heard = heard.into_iter().peekable();
    let mut waits = Vec::new();
    for (number, at) in (1..).zip(&sent) {
        while heard.next_if(|(up_to, _)| *up_to < number).is_some() {}
        if let Some((_, then)) = heard.peek() {
            waits.push(then.saturating_sub(*at));
        }
    }
    println!("at {rate:.0}/s: {} of {} accepts heard of", waits.len(), sent.len());
    report("from write to Written", &mut waits);
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
    let last = times.last().copied().unwrap_or_default();
    println!(
        "{what}: {} times, p50 {:?}, p90 {:?}, p99 {:?}, p99.9 {:?}, longest {last:?}",
        times.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999)
    );
}

fn records(options: &StoreOptions) {
    let (store, _news) = open(options);
    let call = CallRecord {
        call_id: CallId::new(7, 12_345),
        task: None,
        request_id: "0123456789abcdef0123456789abcdef".into(),
        caller: "caller".into(),
        target: Some("worker".into()),
        capability: "text-analysis.sentiment".into(),
        started_ms: 1_700_000_000_000,
        ended_ms: 1_700_000_000_005,
        attempts: 1,
        targets: [].into(),
        trace: None,
        by_hub: false,
    };
    let record = Record { call: &call, mode: "call", outcome: "completed" };
    let many = 20_000;
    let begun = Instant::now();
    for _ in 0..many {
        store.record([record]);
    }
    println!("a record: {:?} of the caller's time", begun.elapsed() / many);
    store.close().unwrap();
    let figures = store.figures();
    println!("records: {} written, {} dropped", figures.records_written, figures.records_dropped);
}

fn restart(home: &Path) {
    let mut options = StoreOptions::new(home.join("restart.db"));
    options.flush = Duration::ZERO;
    let (store, news) = open(&options);
    for first in (0..OPEN as u64).step_by(1000) {
        store.write((first + 1..=first + 1000).map(|number| (number, task(number, 3))));
        written(&news, first + 1000);
    }
    store.close().unwrap();
    drop(store);
    let size = std::fs::metadata(&options.path).unwrap().len();
    let begun = Instant::now();
    let (_store, restored) = StoreHandle::open(options, |_| {}).unwrap();
    let took = begun.elapsed();
    println!("a start with {} open tasks in {size} bytes: {took:?}", restored.open.len());
}
