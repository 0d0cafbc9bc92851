//! What holds for every statement of a connection.

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
