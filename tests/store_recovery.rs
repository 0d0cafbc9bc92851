//! A disk that is ill: what is told in which order, and that all is well again without a restart.
#![cfg(test)]

#[path = "store_world/watched.rs"]
mod watched;
#[path = "store_world/mod.rs"]
mod world;

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use agent_reach::store::sqlite::SqliteFile;
use agent_reach::store::{StoreErrorKind, StoreHandle, StoreOptions};
use agent_reach_core::{Answer, Ask, Change, Moved, Question, StoreNews, TaskState, Whose};
use bytes::Bytes;
use rusqlite::Connection;
use watched::Watched;
use world::{IDENTITY, LONG, end, ended, id, made, new, next, open, task, until};

fn options(home: &tempfile::TempDir) -> StoreOptions {
    let mut options = StoreOptions::new(home.path().join("store.db"));
    options.again = (Duration::from_millis(5), Duration::from_millis(20));
    options.busy = Duration::from_millis(10);
    options
}

fn big(number: u64) -> Change {
    new(agent_reach_core::NewTask { call: Bytes::from(vec![1; 20_000]), ..task(number) })
}

fn moved(number: u64) -> Change {
    Change::Moved(Moved { task: id(number), at: 5, state: TaskState::Received, attempt: 1, holder: None })
}

/// A connection of somebody else to the same file.
fn other(options: &StoreOptions) -> Connection {
    let other = Connection::open(&options.path).unwrap();
    other.busy_timeout(LONG).unwrap();
    other
}

fn assert_refused(news: &StoreNews, number: u64, kind: StoreErrorKind) {
    let expected = StoreNews::Refused { numbers: vec![number], reason: kind.to_string() };
    assert_eq!(*news, expected);
}

/// The state of a task, by its owner's question.
fn state(store: &StoreHandle, news: &Receiver<StoreNews>, number: u64) -> Option<TaskState> {
    let question = Question::Task { whose: Whose::One(IDENTITY.into()), task: id(number) };
    store.ask(Ask { number, question });
    loop {
        if let StoreNews::Answered { answer: Answer::Task(row), .. } = next(news) {
            return row.map(|row| row.state);
        }
    }
}

#[test]
fn a_full_disk_refuses_tasks_and_takes_them_again_once_there_is_room() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(&home);
    made(&options);
    let other = other(&options);
    other.execute_batch("CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(600000))").unwrap();
    options.max_bytes = Some(1_000_000);
    let (store, _, news) = open(&options);
    let mut number = 0;
    let refused = loop {
        number += 1;
        store.write([(number, big(number))]);
        let told = next(&news);
        if told != (StoreNews::Written { up_to: number }) {
            break told;
        }
    };
    assert!(number > 3, "some fit: {number}");
    assert_refused(&refused, number, StoreErrorKind::Full);
    assert_eq!(next(&news), StoreNews::Writable(false));
    assert!(!store.figures().writable);
    // While it is full, nothing is tried for a task, and all else waits or fits.
    store.write([(number + 1, big(number + 1)), (number + 2, moved(1))]);
    assert_refused(&next(&news), number + 1, StoreErrorKind::Full);
    other.execute_batch("DELETE FROM filler").unwrap();
    let heard = until(&news, &StoreNews::Writable(true));
    assert_eq!(heard, [StoreNews::Written { up_to: number + 2 }, StoreNews::Writable(true)]);
    store.write([(number + 3, big(number + 3))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: number + 3 });
    assert_eq!(state(&store, &news, number), None);
    assert_eq!(state(&store, &news, 1), Some(TaskState::Received));
    assert_eq!(state(&store, &news, number + 3), Some(TaskState::Queued));
}

#[test]
fn a_lock_of_somebody_else_refuses_tasks_and_keeps_all_else_until_it_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let options = options(&home);
    let (store, _, news) = open(&options);
    store.write([(1, new(task(1)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
    let other = other(&options);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.write([(2, moved(1)), (3, new(task(2))), (4, ended(end(1)))]);
    assert_refused(&next(&news), 3, StoreErrorKind::Locked);
    assert_eq!(next(&news), StoreNews::Writable(false));
    // Reading goes on meanwhile.
    assert_eq!(state(&store, &news, 1), Some(TaskState::Queued));
    store.write([(5, new(task(3)))]);
    assert_refused(&next(&news), 5, StoreErrorKind::Locked);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(
        until(&news, &StoreNews::Writable(true)),
        [StoreNews::Written { up_to: 5 }, StoreNews::Writable(true)]
    );
    assert_eq!(state(&store, &news, 1), Some(TaskState::Succeeded));
}

#[test]
fn a_short_lock_of_somebody_else_is_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(&home);
    options.busy = LONG;
    let (store, _, news) = open(&options);
    let other = other(&options);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.write([(1, new(task(1)))]);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
}

#[test]
fn a_read_only_file_refuses_tasks_until_it_can_be_written() {
    let home = tempfile::tempdir().unwrap();
    let options = options(&home);
    made(&options);
    let file = SqliteFile::take(&options).unwrap();
    // SQLite itself says no: its connection may only query.
    let watched = Arc::new(Watched::new(file));
    watched.switches.read_only.store(true, SeqCst);
    let (sink, news) = channel();
    let sink = move |told| drop(sink.send(told));
    let (store, _) = StoreHandle::over(Arc::clone(&watched) as Arc<_>, options, sink).unwrap();
    store.write([(1, new(task(1))), (2, moved(7))]);
    assert_refused(&next(&news), 1, StoreErrorKind::ReadOnly);
    assert_eq!(next(&news), StoreNews::Writable(false));
    watched.switches.read_only.store(false, SeqCst);
    assert_eq!(
        until(&news, &StoreNews::Writable(true)),
        [StoreNews::Written { up_to: 2 }, StoreNews::Writable(true)]
    );
    store.write([(3, new(task(3)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 3 });
}

#[test]
fn a_write_that_hangs_refuses_tasks_until_it_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(&home);
    options.hang = Duration::from_millis(20);
    let watched = Arc::new(Watched::new(SqliteFile::take(&options).unwrap()));
    let (sink, news) = channel();
    let sink = move |told| drop(sink.send(told));
    let (store, _) = StoreHandle::over(Arc::clone(&watched) as Arc<_>, options, sink).unwrap();
    let gate = watched.shut();
    store.write([(1, new(task(1)))]);
    assert_eq!(next(&news), StoreNews::Writable(false));
    store.write([(2, new(task(2)))]);
    let hangs = "the store does not answer".to_owned();
    assert_eq!(next(&news), StoreNews::Refused { numbers: vec![2], reason: hangs });
    assert_eq!(state(&store, &news, 1), None);
    drop(gate);
    assert_eq!(
        until(&news, &StoreNews::Writable(true)),
        [StoreNews::Written { up_to: 2 }, StoreNews::Writable(true)]
    );
    assert_eq!(state(&store, &news, 1), Some(TaskState::Queued));
    assert_eq!(state(&store, &news, 2), None);
}

/// Brings all into the file itself, and makes every other connection forget what it has read of it.
fn settle(other: &Connection) {
    for _ in 0..2 {
        other.execute_batch("UPDATE counts SET n = n WHERE name = 'records'").unwrap();
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).unwrap();
    }
}

#[test]
fn a_damaged_page_refuses_tasks_until_it_is_mended() {
    let home = tempfile::tempdir().unwrap();
    let options = options(&home);
    let (store, _, news) = open(&options);
    store.write([(1, new(task(1)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
    let other = other(&options);
    settle(&other);
    let sql = "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema WHERE name = 'task_calls'";
    let (page, size): (u32, u32) = other.query_row(sql, (), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let at = u64::from(page - 1) * u64::from(size);
    let mut good = vec![0; size as usize];
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&options.path).unwrap();
    file.read_exact_at(&mut good, at).unwrap();
    file.write_all_at(&vec![0xa5; size as usize], at).unwrap();

    store.write([(2, new(task(2)))]);
    assert_refused(&next(&news), 2, StoreErrorKind::Corrupt);
    assert_eq!(next(&news), StoreNews::Writable(false));
    file.write_all_at(&good, at).unwrap();
    assert_eq!(until(&news, &StoreNews::Writable(true)), [StoreNews::Writable(true)]);
    store.write([(3, new(task(3)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 3 });
}

#[test]
fn a_file_that_is_damaged_or_another_programs_or_newer_is_not_opened() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    std::fs::write(path("text"), "this is no database, and long enough to be sure of it".repeat(99)).unwrap();
    Connection::open(path("other")).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    made(&StoreOptions::new(path("newer")));
    Connection::open(path("newer")).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    for (name, kind) in [
        ("text", StoreErrorKind::Corrupt),
        ("other", StoreErrorKind::Version),
        ("newer", StoreErrorKind::Version),
        ("absent/folder", StoreErrorKind::Io),
    ] {
        let error = StoreHandle::open(StoreOptions::new(path(name)), |_| {}).map(drop).unwrap_err();
        assert_eq!(error.kind, kind, "{name}: {error}");
    }
    let theirs = Connection::open(path("other")).unwrap();
    let mode: String = theirs.query_row("PRAGMA journal_mode", (), |row| row.get(0)).unwrap();
    assert_eq!(mode, "delete", "nothing of it was changed");
}

#[test]
fn its_files_are_its_owners_alone() {
    let home = tempfile::tempdir().unwrap();
    let options = options(&home);
    let (store, _, news) = open(&options);
    store.write([(1, new(task(1)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
    let mode = |end: &str| {
        let path = format!("{}{end}", options.path.display());
        std::fs::metadata(Path::new(&path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(["", "-wal", "-shm", ".lock"].map(mode), [0o600; 4]);
}

#[test]
fn a_log_that_somebody_keeps_from_beginning_anew_is_bounded() {
    let home = tempfile::tempdir().unwrap();
    let mut options = options(&home);
    options.log_bytes = 1_000_000;
    let (store, _, news) = open(&options);
    store.write([(1, big(1))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 1 });
    let other = other(&options);
    other.execute_batch("BEGIN").unwrap();
    let _count: i64 = other.query_row("SELECT count(*) FROM tasks", (), |row| row.get(0)).unwrap();
    let mut number = 1;
    let refused = loop {
        number += 1;
        store.write([(number, big(number))]);
        let told = next(&news);
        if told != (StoreNews::Written { up_to: number }) {
            break told;
        }
        assert!(number < 1000, "the log grows without end: {:?}", store.figures());
    };
    assert_refused(&refused, number, StoreErrorKind::Locked);
    assert_eq!(next(&news), StoreNews::Writable(false));
    let log = store.figures().log_bytes;
    assert!((1_000_000..1_200_000).contains(&log), "{log}");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(until(&news, &StoreNews::Writable(true)), [StoreNews::Writable(true)]);
    assert!(store.figures().log_bytes < 1_000_000);
}
