//! What holds for every statement of a connection, and for the log of writes.

use rusqlite::StatementStatus;

use super::*;

#[test]
fn a_statement_is_not_compiled_again_for_another_value() {
    let home = tempfile::tempdir().unwrap();
    let file = SqliteFile::take(&StoreOptions::new(home.path().join("store.db"))).unwrap();
    let store = file.open_writer().unwrap();
    // A value that the planner would like to know.
    let sql = "SELECT seq FROM tasks ORDER BY seq LIMIT ?1";
    for most in [1, 200, 3] {
        // Taken from the cache, and given back without its value, as everywhere.
        let mut statement = store.connection.prepare_cached(sql).unwrap();
        assert!(!statement.exists([most]).unwrap());
    }
    let statement = store.connection.prepare_cached(sql).unwrap();
    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
}

#[test]
fn a_file_of_the_first_version_is_brought_up_with_what_is_in_it() {
    let home = tempfile::tempdir().unwrap();
    let options = StoreOptions::new(home.path().join("store.db"));
    let old = Connection::open(&options.path).unwrap();
    old.execute_batch(schema::V1).unwrap();
    old.pragma_update(None, "application_id", schema::APPLICATION).unwrap();
    old.pragma_update(None, "user_version", 1).unwrap();
    let sql = "INSERT INTO tasks (id, identity, agent, request_id, capability, fingerprint, keep_until, created, budget_until,
            state, attempt, updated) VALUES (zeroblob(16), 'i', 'a', 'r', 'c', zeroblob(16), 1, 1, 1, 0, 0, 1);
        INSERT INTO task_calls SELECT seq, x'01' FROM tasks;
        INSERT INTO keys (identity, request_id, fingerprint, until, open, task)
            VALUES ('i', 'r', zeroblob(16), 1, 1, zeroblob(16));
        UPDATE counts SET n = 1 WHERE name = 'QUEUED'";
    old.execute_batch(sql).unwrap();
    drop(old);
    let mut store = SqliteFile::take(&options).unwrap().open_writer().unwrap();
    let mut open = Vec::new();
    store.open_tasks(&mut |task| open.push(task)).unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!((open[0].task.retry_of, &open[0].task.call[..]), (None, &[1][..]));
    assert_eq!(store.check().unwrap(), [""; 0]);
}

#[test]
fn a_log_of_which_something_is_always_read_begins_anew_and_is_not_cut_off() {
    let home = tempfile::tempdir().unwrap();
    let file = SqliteFile::take(&StoreOptions::new(home.path().join("store.db"))).unwrap();
    let (mut writer, mut beside) = (file.open_writer().unwrap(), file.open_writer().unwrap());
    let reader = reading(&file.path).unwrap();
    let block = RecordBlock { first_ms: 1, last_ms: 1, count: 1, bytes: vec![7; 1 << 19] };
    let mut lengths = Vec::new();
    for _ in 0..100 {
        writer.write_records(&block).unwrap();
        reader.execute_batch("BEGIN; SELECT n FROM counts LIMIT 1").unwrap();
        writer.write_records(&block).unwrap();
        // Not all of it gets into the file: the reader is at what stood there before.
        beside.checkpoint().unwrap();
        reader.execute_batch("COMMIT").unwrap();
        writer.shorten_log().unwrap();
        lengths.push(writer.log_bytes());
    }
    assert!(lengths.is_sorted(), "{lengths:?}");
    let pages = i64::try_from(lengths[lengths.len() - 1]).unwrap() / (4096 + 24);
    assert!((RESTART_PAGES..RESTART_PAGES + CHECKPOINT_PAGES).contains(&pages), "{pages}");
}
