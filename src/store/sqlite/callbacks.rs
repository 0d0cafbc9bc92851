//! Deliveries to URLs, as SQL. One is due while `callback_next` is set.

use agent_reach_core::TaskId;
use rusqlite::{Connection, params};

use super::columns::{bytes, id, number, task, text, unsigned};
use super::read::limit;
use crate::store::{DueCallback, MAX_DUE_BYTES, StoreError};

pub(super) fn due(connection: &Connection, now: u64, most: usize) -> Result<Vec<DueCallback>, StoreError> {
    let sql = "SELECT t.id, t.callback_url, t.callback_attempt, e.end, t.request_id, t.capability
        FROM tasks t INDEXED BY tasks_callback JOIN task_ends e ON e.seq = t.seq
        WHERE t.callback_next <= ?1 ORDER BY t.callback_next, t.seq LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![number(now), limit(most)])?;
    let mut found: Vec<DueCallback> = Vec::new();
    let mut total = 0;
    while let Some(row) = rows.next()? {
        let end = bytes(row, 3)?;
        total += end.len();
        if total > MAX_DUE_BYTES && !found.is_empty() {
            break;
        }
        found.push(DueCallback {
            task: task(row, 0)?,
            url: text(row, 1)?,
            attempt: row.get(2)?,
            end,
            request_id: text(row, 4)?,
            capability: text(row, 5)?,
        });
    }
    Ok(found)
}

pub(super) fn next(connection: &Connection, now: u64) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT callback_next FROM tasks INDEXED BY tasks_callback
        WHERE callback_next IS NOT NULL ORDER BY callback_next LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(())?;
    rows.next()?.map(|row| unsigned(row, 0).map(|at| at.max(now))).transpose()
}

pub(super) fn tried(
    connection: &Connection,
    task: TaskId,
    attempt: u32,
    outcome: &str,
    next: Option<u64>,
) -> Result<(), StoreError> {
    let sql = "UPDATE tasks SET callback_attempt = ?2, callback_outcome = ?3, callback_next = ?4
        WHERE id = ?1 AND callback_next IS NOT NULL";
    connection.prepare_cached(sql)?.execute(params![id(task), attempt, outcome, next.map(number)])?;
    Ok(())
}
