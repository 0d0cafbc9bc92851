//! A writer that is killed at any moment has written what it said it had, and no half batch.
//!
//! The writer is this test binary again, told by a variable of its environment what to do.
#![cfg(test)]
#![expect(clippy::print_stdout, reason = "a writer tells its killer what it has written")]

#[path = "store_world/mod.rs"]
mod world;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use agent_reach::store::sqlite::{SqliteFile, SqliteStore};
use agent_reach::store::{Store as _, StoreOptions};
use agent_reach_core::StoreNews;
use world::{id, new, next, open, task};

/// Names the file to a writer.
const FILE: &str = "STORE_KILLED_FILE";
/// Changes of a batch that is written as one.
const TOGETHER: u64 = 10;

/// Not a test of its own: the writer behind the handle. Says what is written.
#[test]
fn writer_behind_the_handle() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let (store, _, news) = open(&StoreOptions::new(path));
    let (mut number, mut done) = (0, 0);
    loop {
        while number < done + 64 {
            number += 1;
            store.write([(number, new(task(number)))]);
        }
        if let StoreNews::Written { up_to } = next(&news) {
            done = up_to;
            println!("written {up_to}");
        }
    }
}

/// Not a test of its own: the writer of whole batches.
#[test]
fn writer_of_batches() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = SqliteFile::take(&StoreOptions::new(path)).unwrap();
    let mut store = file.open_writer().unwrap();
    for batch in 0.. {
        let numbers = batch * TOGETHER + 1..=(batch + 1) * TOGETHER;
        let changes: Vec<_> = numbers.map(|number| (number, new(task(number)))).collect();
        store.write(&changes).unwrap();
        println!("written {}", (batch + 1) * TOGETHER);
    }
}

/// Runs a writer until it has said so many lines, kills it, and gives the last number it called written.
fn killed(writer: &str, options: &StoreOptions, lines: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", writer, "--nocapture", "--test-threads=1"])
        .env(FILE, &options.path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said =
        BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).filter_map(|line| {
            // The harness says its own on the same line before the first.
            line.split_once("written ").and_then(|(_, number)| number.parse().ok())
        });
    let mut last: u64 = said.by_ref().take(lines).last().expect("it writes");
    child.kill().unwrap();
    last = said.last().unwrap_or(last);
    child.wait().unwrap();
    last
}

/// The numbers of all tasks in the file are those from one to this.
fn up_to(options: &StoreOptions) -> u64 {
    let file = SqliteFile::take(options).unwrap();
    let mut store = file.open_writer().unwrap();
    let mut found = Vec::new();
    store.open_tasks(&mut |open| found.push(open.task)).unwrap();
    let count = found.len() as u64;
    assert!(found.iter().map(|task| task.id).eq((1..=count).map(id)), "a gap");
    assert!(found.into_iter().eq((1..=count).map(task)), "another content");
    assert_eq!(store.check().unwrap(), Vec::<String>::new());
    assert_eq!(store.counts(), [count, 0, 0, 0, 0]);
    count
}

#[test]
fn what_was_called_written_is_there_after_a_kill_at_any_moment() {
    for lines in [1, 2, 3, 7, 20, 55, 90] {
        let home = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(home.path().join("store.db"));
        let said = killed("writer_behind_the_handle", &options, lines);
        let found = up_to(&options);
        assert!((said..=said + 64).contains(&found), "{said} were called written, and {found} are there");
        drop(SqliteStore::beside_a_hub(&options.path).unwrap());
    }
}

#[test]
fn no_half_batch_is_there_after_a_kill_at_any_moment() {
    for lines in [1, 2, 5, 13, 40, 77] {
        let home = tempfile::tempdir().unwrap();
        let options = StoreOptions::new(home.path().join("store.db"));
        let said = killed("writer_of_batches", &options, lines);
        let found = up_to(&options);
        assert!(
            found == said || found == said + TOGETHER,
            "{said} were called written, and {found} are there"
        );
    }
}
