//! The tables, and how those of older versions become those of this one.

use rusqlite::{Connection, TransactionBehavior};

use crate::store::{StoreError, StoreErrorKind};

/// Marks a file as ours (`PRAGMA application_id`): "ArSt".
pub(super) const APPLICATION: i32 = 0x4172_5374;

/// One after the other, each from the version of its place to the next. Those that were released never change.
const MIGRATIONS: [&str; 3] = [V1, V2, V3];

/// Bodies stand apart: a row that changes is written anew as a whole. `tasks.expires` is set with the end, so the partial
/// indexes hold the few rows that are looked for. A `key` of an open task is kept without an end.
pub(super) const V1: &str = "
CREATE TABLE tasks (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    identity TEXT NOT NULL,
    agent TEXT NOT NULL,
    request_id TEXT NOT NULL,
    capability TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    keep_until INTEGER NOT NULL,
    created INTEGER NOT NULL,
    budget_until INTEGER NOT NULL,
    callback_url TEXT,
    callback_host TEXT,
    reply_to TEXT,
    state INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    updated INTEGER NOT NULL,
    holder_agent TEXT,
    holder_instance TEXT,
    holder_idempotent INTEGER,
    outcome TEXT,
    expires INTEGER,
    callback_attempt INTEGER NOT NULL DEFAULT 0,
    callback_next INTEGER,
    callback_outcome TEXT
);
CREATE INDEX tasks_open ON tasks (id) WHERE expires IS NULL;
CREATE INDEX tasks_owned ON tasks (identity, id, state, capability);
CREATE INDEX tasks_expire ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX tasks_callback ON tasks (callback_next, callback_host, id) WHERE callback_next IS NOT NULL;
CREATE TABLE task_calls (seq INTEGER PRIMARY KEY, call BLOB NOT NULL);
CREATE TABLE task_ends (seq INTEGER PRIMARY KEY, end BLOB NOT NULL);
CREATE TABLE owed (agent TEXT NOT NULL, id BLOB NOT NULL, PRIMARY KEY (agent, id)) WITHOUT ROWID;
CREATE TABLE keys (
    seq INTEGER PRIMARY KEY,
    identity TEXT NOT NULL,
    request_id TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    until INTEGER NOT NULL,
    open INTEGER NOT NULL,
    task BLOB,
    ends BLOB,
    UNIQUE (identity, request_id)
);
CREATE INDEX keys_until ON keys (until) WHERE open = 0;
CREATE TABLE records (
    seq INTEGER PRIMARY KEY,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    count INTEGER NOT NULL,
    block BLOB NOT NULL
);
CREATE TABLE counts (name TEXT PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counts (name, n) VALUES
    ('QUEUED', 0), ('RECEIVED', 0), ('PROCESSING', 0), ('SUCCEEDED', 0), ('FAILED', 0),
    ('records', 0), ('record_bytes', 0);
CREATE TABLE probe (id INTEGER PRIMARY KEY, filler BLOB NOT NULL);
";

/// Which task's CALL an operator had made again.
const V2: &str = "ALTER TABLE tasks ADD COLUMN retry_of BLOB";

/// For which capability an agent was given a task, by its own name of it.
const V3: &str = "ALTER TABLE tasks ADD COLUMN holder_capability TEXT";

/// The newest version.
pub(super) const VERSION: usize = MIGRATIONS.len();

/// Brings the tables to the newest version, in one transaction.
///
/// # Errors
/// The file is another program's or a newer version's, or cannot be written.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    if stands(connection)? == VERSION {
        return Ok(());
    }
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = stands(&begun)?;
    for step in MIGRATIONS.iter().skip(from) {
        begun.execute_batch(step)?;
    }
    begun.pragma_update(None, "application_id", APPLICATION)?;
    begun.pragma_update(None, "user_version", i64::try_from(VERSION).unwrap_or(i64::MAX))?;
    Ok(begun.commit()?)
}

/// The version of a file; 0 when there is nothing in it.
///
/// # Errors
/// The file is another program's or a newer version's, or cannot be read.
pub(super) fn stands(connection: &Connection) -> Result<usize, StoreError> {
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (version, application) = (number("user_version")?, number("application_id")?);
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    let empty = version == 0 && application == 0 && objects == 0;
    if !empty && application != i64::from(APPLICATION) {
        return Err(StoreError::new(StoreErrorKind::Version, "the file is a database of another program"));
    }
    match usize::try_from(version) {
        Ok(version) if version <= VERSION => Ok(version),
        _ => Err(StoreError::new(
            StoreErrorKind::Version,
            format!("the file is of version {version}, and this program knows up to {VERSION}"),
        )),
    }
}
