//! Figures and checks of the whole, for operators.

use agent_reach_core::TaskState;
use rusqlite::Connection;

use super::columns::state;
use super::read::{counts, named};
use crate::store::{StoreError, StoreStats};

pub(super) fn stats(connection: &Connection) -> Result<StoreStats, StoreError> {
    let page = pragma(connection, "page_size")?;
    Ok(StoreStats {
        tasks: counts(connection)?,
        keys: number(connection, "SELECT count(*) FROM keys")?,
        owed: number(connection, "SELECT count(*) FROM owed")?,
        callbacks: number(connection, "SELECT count(*) FROM tasks WHERE callback_next IS NOT NULL")?,
        records: named(connection, "records")?,
        record_bytes: named(connection, "record_bytes")?,
        bytes: pragma(connection, "page_count")?.saturating_mul(page),
        free_bytes: pragma(connection, "freelist_count")?.saturating_mul(page),
        log_bytes: 0,
        oldest_task: moment(connection, "SELECT created FROM tasks ORDER BY id LIMIT 1")?,
        oldest_open: moment(
            connection,
            "SELECT created FROM tasks INDEXED BY tasks_open WHERE expires IS NULL ORDER BY id LIMIT 1",
        )?,
        oldest_record: moment(connection, "SELECT first_ms FROM records ORDER BY seq LIMIT 1")?,
    })
}

/// What every store holds to, as a statement that counts where it does not.
const HOLDS: [(&str, &str); 9] = [
    ("tasks without their CALL", "SELECT count(*) FROM tasks WHERE seq NOT IN (SELECT seq FROM task_calls)"),
    ("CALLs without their task", "SELECT count(*) FROM task_calls WHERE seq NOT IN (SELECT seq FROM tasks)"),
    (
        "ended tasks without their end",
        "SELECT count(*) FROM tasks WHERE expires IS NOT NULL AND seq NOT IN (SELECT seq FROM task_ends)",
    ),
    (
        "ends without an ended task",
        "SELECT count(*) FROM task_ends WHERE seq NOT IN (SELECT seq FROM tasks WHERE expires IS NOT NULL)",
    ),
    (
        "tasks whose state and end disagree",
        "SELECT count(*) FROM tasks WHERE (state >= 3) <> (expires IS NOT NULL)",
    ),
    (
        "ends that are owed of no ended task",
        "SELECT count(*) FROM owed WHERE id NOT IN (SELECT id FROM tasks WHERE expires IS NOT NULL)",
    ),
    (
        "request_ids of no task",
        "SELECT count(*) FROM keys WHERE task IS NOT NULL AND task NOT IN (SELECT id FROM tasks)",
    ),
    ("request_ids that lead nowhere", "SELECT count(*) FROM keys WHERE (task IS NULL) = (ends IS NULL)"),
    (
        "deliveries of tasks that have not ended",
        "SELECT count(*) FROM tasks WHERE callback_next IS NOT NULL AND (expires IS NULL OR callback_url IS NULL)",
    ),
];

/// SQLite's own check, which stops after a hundred complaints, and what the tables hold to.
pub(super) fn check(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut wrong = Vec::new();
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let complaint: String = row.get(0)?;
        if complaint != "ok" {
            wrong.push(complaint);
        }
    }
    if !wrong.is_empty() {
        return Ok(wrong);
    }
    // All of it at one moment, since a hub may write meanwhile.
    let moment = connection.unchecked_transaction()?;
    for (what, sql) in HOLDS {
        let count = number(&moment, sql)?;
        if count > 0 {
            wrong.push(format!("{count} {what}"));
        }
    }
    for at in TaskState::ALL {
        let sql = format!("SELECT count(*) FROM tasks WHERE state = {}", state(at));
        differs(&mut wrong, at.as_str(), named(&moment, at.as_str())?, number(&moment, &sql)?);
    }
    let records = number(&moment, "SELECT coalesce(sum(count), 0) FROM records")?;
    differs(&mut wrong, "records", named(&moment, "records")?, records);
    let bytes = number(&moment, "SELECT coalesce(sum(length(block)), 0) FROM records")?;
    differs(&mut wrong, "record_bytes", named(&moment, "record_bytes")?, bytes);
    Ok(wrong)
}

fn differs(wrong: &mut Vec<String>, name: &str, kept: u64, counted: u64) {
    if kept != counted {
        wrong.push(format!("{name}: {kept} by the count that is kept, {counted} in the tables"));
    }
}

fn number(connection: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(moment(connection, sql)?.unwrap_or_default())
}

fn moment(connection: &Connection, sql: &str) -> Result<Option<u64>, StoreError> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(())?;
    rows.next()?.map(|row| super::columns::unsigned(row, 0)).transpose()
}

fn pragma(connection: &Connection, name: &str) -> Result<u64, StoreError> {
    let value: i64 = connection.pragma_query_value(None, name, |row| row.get(0))?;
    Ok(u64::try_from(value).unwrap_or_default())
}
