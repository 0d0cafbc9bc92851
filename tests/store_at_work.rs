//! Many tasks: the sweep between writes, records, deliveries, and what a new process finds.
#![cfg(test)]

#[path = "store_world/watched.rs"]
mod watched;
#[path = "store_world/mod.rs"]
mod world;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use agent_reach::callbacks::Busy;
use agent_reach::store::sqlite::{SqliteFile, SqliteStore};
use agent_reach::store::{BlockWriter, Store as _, StoreHandle, StoreOptions};
use agent_reach_core::{NewTask, StoreNews};
use rusqlite::Connection;
use watched::{Did, Watched};
use world::{NEVER, called, end, ended, id, made, new, next, open, receipt, record, task};

/// Tasks that have ended and expired, made by SQLite itself.
fn expired(options: &StoreOptions, count: u64) {
    made(options);
    let sql = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})
        INSERT INTO tasks (id, identity, agent, request_id, capability, fingerprint, keep_until, created, budget_until,
            state, attempt, updated, outcome, expires)
        SELECT CAST(printf('%016d', n) AS BLOB), 'i', 'a', 'r' || n, 'c', zeroblob(16), 1, 1, 1, 3, 1, 1, 'completed', n
            FROM n;
        INSERT INTO task_calls SELECT seq, zeroblob(100) FROM tasks;
        INSERT INTO task_ends SELECT seq, zeroblob(100) FROM tasks;
        UPDATE counts SET n = {count} WHERE name = 'SUCCEEDED';"
    );
    let other = Connection::open(&options.path).unwrap();
    other.execute_batch("PRAGMA synchronous=OFF; BEGIN").unwrap();
    other.execute_batch(&sql).unwrap();
    other.execute_batch("COMMIT").unwrap();
}

#[test]
fn two_hundred_thousand_expired_tasks_go_in_small_steps_between_writes() {
    let home = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::new(home.path().join("store.db"));
    expired(&options, 200_000);
    options.sweep_rows = 5000;
    options.sweep_every.0 = Duration::ZERO;
    let watched = Arc::new(Watched::new(SqliteFile::take(&options).unwrap()));
    let (sink, news) = channel();
    let sink = move |told| drop(sink.send(told));
    let (store, _) = StoreHandle::over(Arc::clone(&watched) as Arc<_>, options.clone(), sink).unwrap();
    let mut number = 0;
    while store.figures().swept < 200_000 {
        number += 1;
        store.write([(number, new(task(number)))]);
        assert_eq!(next(&news), StoreNews::Written { up_to: number });
    }
    store.close().unwrap();
    let log = watched.switches.log.lock().unwrap().clone();
    let steps: Vec<_> = log.iter().filter(|did| matches!(did, Did::Swept(_))).collect();
    assert_eq!(steps, [&Did::Swept(5000); 40], "every step removes what it may, and no more");
    // A write that has come goes before the next step, so steps never stand together for long.
    let last = log.iter().rposition(|did| *did == Did::Swept(5000)).unwrap();
    let writes = log[..last].iter().filter(|did| matches!(did, Did::Wrote(_))).count();
    assert!(writes >= 20, "{writes} writes between 40 steps");
    assert_eq!(store.figures().tasks, [number, 0, 0, 0, 0]);
    let mut file = SqliteStore::beside_a_hub(&options.path).unwrap();
    assert_eq!(file.check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_new_process_finds_what_is_open_owed_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("store.db"));
    let (store, _, _news) = open(&options);
    let late = |number| agent_reach_core::TaskEnd { expires: NEVER, keep_until: NEVER, ..end(number) };
    store.write((1..=3000).map(|number| {
        let agent = format!("agent-{}", number % 3).into();
        (number, new(NewTask { agent, ..task(number) }))
    }));
    store.write((1..=1000).map(|number| (3000 + number, ended(late(number)))));
    store.write(
        (1..=1000).filter(|number| number % 3 == 1).map(|number| (5000 + number, receipt(number, "agent-1"))),
    );
    store.close().unwrap();
    assert_eq!(store.figures().tasks, [2000, 0, 0, 1000, 0]);
    drop(store);
    let (store, restored, _news) = open(&options);
    assert!(restored.open.iter().map(|open| open.task.id).eq((1001..=3000).map(id)));
    assert_eq!(restored.owed, ["agent-0".into(), "agent-2".into()]);
    assert_eq!(restored.keys.len(), 3000);
    assert_eq!(store.figures().tasks, [2000, 0, 0, 1000, 0]);
}

#[test]
fn records_are_gathered_into_blocks_and_those_without_room_are_counted() {
    let home = tempfile::tempdir().unwrap();
    let mut options = StoreOptions::new(home.path().join("store.db"));
    options.records_every = Duration::from_secs(3600);
    let mut room = BlockWriter::default();
    assert!((10..60).all(|number| room.add(record(&called(number)))));
    let room = room.take(Vec::new());
    options.records_waiting = room.bytes.len();
    let (store, _, _news) = open(&options);
    for number in 10..110 {
        store.record([record(&called(number))]);
    }
    store.close().unwrap();
    let figures = store.figures();
    assert_eq!((figures.records_written, figures.records_dropped), (50, 50));
    let mut file = SqliteStore::beside_a_hub(&options.path).unwrap();
    let blocks = file.records(0, 9).unwrap();
    assert_eq!(blocks.into_iter().map(|(_, block)| block).collect::<Vec<_>>(), [room]);
}

#[tokio::test]
async fn deliveries_are_asked_for_and_noted_through_the_handle() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("store.db"));
    let (store, _, news) = open(&options);
    let late = agent_reach_core::TaskEnd { expires: NEVER, ..end(1) };
    store.write([
        (1, new(NewTask { callback_url: Some("https://example.com/".into()), ..task(1) })),
        (2, ended(late)),
    ]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 2 });
    assert_eq!(store.next_callback(0).await, Ok(Some(1_000)));
    let due = store.due_callbacks(2_000, 9, Busy::default()).await.unwrap();
    assert_eq!(due.iter().map(|due| (due.task, due.attempt)).collect::<Vec<_>>(), [(id(1), 0)]);
    store.callback_tried(id(1), 1, "HTTP 503".into(), Some(9_000)).await.unwrap();
    assert_eq!(store.next_callback(0).await, Ok(Some(9_000)));
    store.close().unwrap();
    assert!(store.due_callbacks(2_000, 9, Busy::default()).await.is_err(), "it is closed");
}

#[test]
fn a_file_may_be_read_beside_the_hub_that_writes_it() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("store.db"));
    let (store, _, news) = open(&options);
    store.write([(1, new(task(1))), (2, new(task(2))), (3, ended(end(1)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 3 });
    let file = SqliteStore::beside_a_hub(&options.path).unwrap();
    let bodies = file.export(0, 1, true).unwrap();
    assert_eq!((bodies.len(), bodies[0].end.as_deref()), (1, Some(&b"end 1"[..])));
    let rest = file.export(bodies[0].place, 9, false).unwrap();
    assert_eq!(rest.iter().map(|task| (task.id, task.call.clone())).collect::<Vec<_>>(), [(id(2), None)]);
    store.write([(4, new(task(4)))]);
    assert_eq!(next(&news), StoreNews::Written { up_to: 4 });
}
