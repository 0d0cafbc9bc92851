//! Deliveries to URLs, as SQL. One is due while `callback_next` is set.

use agent_reach_core::TaskId;
use rusqlite::{Connection, params};

use super::columns::{bytes, id, number, task, text, unsigned};
use crate::callbacks::Busy;
use crate::store::{DueCallback, MAX_DUE_BYTES, StoreError};

pub(super) fn due(
    connection: &Connection,
    now: u64,
    most: usize,
    busy: &Busy,
) -> Result<Vec<DueCallback>, StoreError> {
    // The index holds all that is looked at, so that those of busy hosts are passed over where they stand.
    let sql = "SELECT seq, callback_host, id FROM tasks INDEXED BY tasks_callback
        WHERE callback_next <= ?1 ORDER BY callback_next, callback_host, id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([number(now)])?;
    let mut found: Vec<DueCallback> = Vec::new();
    let mut total = 0;
    while found.len() < most {
        let Some(row) = rows.next()? else { break };
        let host = row.get_ref(1)?.as_str_or_null().map_err(rusqlite::Error::from)?;
        let task = task(row, 2)?;
        if busy.tasks.contains(&task) || host.is_some_and(|host| busy.hosts.iter().any(|own| own == host)) {
            continue;
        }
        let due = one(connection, row.get(0)?, task)?;
        total += due.end.len();
        if total > MAX_DUE_BYTES && !found.is_empty() {
            break;
        }
        found.push(due);
    }
    Ok(found)
}

fn one(connection: &Connection, seq: i64, task: TaskId) -> Result<DueCallback, StoreError> {
    let sql = "SELECT t.callback_url, t.callback_attempt, e.end, t.request_id, t.capability
        FROM tasks t JOIN task_ends e ON e.seq = t.seq WHERE t.seq = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([seq])?;
    let row = rows.next()?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(DueCallback {
        task,
        url: text(row, 0)?,
        attempt: row.get(1)?,
        end: bytes(row, 2)?,
        request_id: text(row, 3)?,
        capability: text(row, 4)?,
    })
}

pub(super) fn next(connection: &Connection, after: u64) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT callback_next FROM tasks INDEXED BY tasks_callback
        WHERE callback_next > ?1 ORDER BY callback_next LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([number(after)])?;
    rows.next()?.map(|row| unsigned(row, 0)).transpose()
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
