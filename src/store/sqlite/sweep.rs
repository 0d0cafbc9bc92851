//! Removing what has expired, a bounded number of rows at a time.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::{number, state_of};
use super::read::{limit, named};
use super::write::Tally;
use crate::store::{StoreError, SweepBounds, Swept};

/// Whether a step would remove anything.
pub(super) fn is_due(connection: &Connection, now: u64, bounds: SweepBounds) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM tasks WHERE expires <= ?1)
        OR EXISTS (SELECT 1 FROM keys WHERE open = 0 AND until <= ?1)";
    let expired: bool = connection.prepare_cached(sql)?.query_row([number(now)], |row| row.get(0))?;
    Ok(expired || oldest_block(connection, bounds, named(connection, "record_bytes")?)?.is_some())
}

pub(super) fn step(
    connection: &Connection,
    now: u64,
    bounds: SweepBounds,
    tally: &mut Tally,
) -> Result<Swept, StoreError> {
    let oldest = oldest(connection, now)?;
    let (tasks, more_tasks) = tasks(connection, now, bounds, tally)?;
    let keys = keys(connection, now, bounds)?;
    let blocks = blocks(connection, bounds, tally)?;
    let more = more_tasks || keys == bounds.rows || blocks == bounds.rows;
    Ok(Swept { tasks, keys, blocks, more, oldest })
}

/// When the first of what is expired did.
fn oldest(connection: &Connection, now: u64) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT min(at) FROM (SELECT min(expires) AS at FROM tasks WHERE expires <= ?1
        UNION ALL SELECT min(until) FROM keys WHERE open = 0 AND until <= ?1)";
    let at: Option<i64> = connection.prepare_cached(sql)?.query_row([number(now)], |row| row.get(0))?;
    Ok(at.and_then(|at| u64::try_from(at).ok()))
}

fn tasks(
    connection: &Connection,
    now: u64,
    bounds: SweepBounds,
    tally: &mut Tally,
) -> Result<(usize, bool), StoreError> {
    let sql = "SELECT t.seq, t.state, length(c.call) + length(e.end) FROM tasks t
        LEFT JOIN task_calls c ON c.seq = t.seq LEFT JOIN task_ends e ON e.seq = t.seq
        WHERE t.expires <= ?1 ORDER BY t.expires LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![number(now), limit(bounds.rows)])?;
    let (mut expired, mut bytes) = (Vec::new(), 0_u64);
    let mut cut = false;
    while let Some(row) = rows.next()? {
        let size: Option<i64> = row.get(2)?;
        bytes = bytes.saturating_add(size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default());
        if !expired.is_empty() && bytes > u64::try_from(bounds.bytes).unwrap_or(u64::MAX) {
            cut = true;
            break;
        }
        expired.push((row.get::<_, i64>(0)?, state_of(row.get(1)?)?));
    }
    drop(rows);
    for (seq, state) in &expired {
        remove(connection, *seq)?;
        tally.task(*state, -1);
    }
    let more = cut || expired.len() == bounds.rows;
    Ok((expired.len(), more))
}

/// Removes a task and all that belongs to it.
pub(super) fn remove(connection: &Connection, seq: i64) -> Result<(), StoreError> {
    for sql in [
        "DELETE FROM owed WHERE id = (SELECT id FROM tasks WHERE seq = ?1)
            AND agent IN (SELECT agent FROM tasks WHERE seq = ?1 UNION SELECT reply_to FROM tasks WHERE seq = ?1)",
        "DELETE FROM keys WHERE seq = (SELECT k.seq FROM tasks t JOIN keys k
            ON k.identity = t.identity AND k.request_id = t.request_id WHERE t.seq = ?1 AND k.task = t.id)",
        "DELETE FROM task_calls WHERE seq = ?1",
        "DELETE FROM task_ends WHERE seq = ?1",
        "DELETE FROM tasks WHERE seq = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([seq])?;
    }
    Ok(())
}

fn keys(connection: &Connection, now: u64, bounds: SweepBounds) -> Result<usize, StoreError> {
    let sql = "DELETE FROM keys WHERE seq IN
        (SELECT seq FROM keys WHERE open = 0 AND until <= ?1 ORDER BY until LIMIT ?2)";
    Ok(connection.prepare_cached(sql)?.execute(params![number(now), limit(bounds.rows)])?)
}

/// Place, count and bytes of the oldest block, if it is not to be kept.
fn oldest_block(
    connection: &Connection,
    bounds: SweepBounds,
    total: u64,
) -> Result<Option<(i64, i64, i64)>, StoreError> {
    let sql = "SELECT seq, count, length(block), last_ms FROM records ORDER BY seq LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let oldest =
        statement.query_row((), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(3)?)));
    let oldest = oldest
        .optional()?
        .filter(|(.., last)| total > bounds.records_bytes || *last < number(bounds.records_before));
    Ok(oldest.map(|(seq, count, bytes, _)| (seq, count, bytes)))
}

fn blocks(connection: &Connection, bounds: SweepBounds, tally: &mut Tally) -> Result<usize, StoreError> {
    let mut total = named(connection, "record_bytes")?;
    for removed in 0..bounds.rows {
        let Some((seq, count, bytes)) = oldest_block(connection, bounds, total)? else { return Ok(removed) };
        connection.prepare_cached("DELETE FROM records WHERE seq = ?1")?.execute([seq])?;
        tally.records -= count;
        tally.record_bytes -= bytes;
        total = total.saturating_sub(u64::try_from(bytes).unwrap_or_default());
    }
    Ok(bounds.rows)
}
