//! Changes, as SQL.

use agent_reach_core::{Change, KeptCall, Moved, NewTask, TaskEnd, TaskId, TaskState};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::columns::{self, id, number};
use super::sweep;
use crate::callbacks::host_of;
use crate::store::{RecordBlock, StoreError};

/// What a transaction changes of the counts, written once at its end.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) tasks: [i64; TaskState::ALL.len()],
    pub(super) records: i64,
    pub(super) record_bytes: i64,
}

impl Tally {
    pub(super) fn task(&mut self, state: TaskState, by: i64) {
        let counts = TaskState::ALL.into_iter().zip(&mut self.tasks);
        for (_, count) in counts.filter(|(at, _)| *at == state) {
            *count += by;
        }
    }

    pub(super) fn store(&self, connection: &Connection) -> Result<(), StoreError> {
        let tasks = TaskState::ALL.into_iter().map(TaskState::as_str).zip(self.tasks);
        let records = [("records", self.records), ("record_bytes", self.record_bytes)];
        for (name, by) in tasks.chain(records).filter(|(_, by)| *by != 0) {
            let sql = "UPDATE counts SET n = n + ?2 WHERE name = ?1";
            connection.prepare_cached(sql)?.execute(params![name, by])?;
        }
        Ok(())
    }

    pub(super) fn add_to(&self, counts: &mut [u64; TaskState::ALL.len()]) {
        for (count, by) in counts.iter_mut().zip(self.tasks) {
            *count = count.saturating_add_signed(by);
        }
    }
}

/// Makes one change. False: it names a task that is not there, or not in a state for it.
pub(super) fn apply(connection: &Connection, change: &Change, tally: &mut Tally) -> Result<bool, StoreError> {
    match change {
        Change::Task(task) => insert(connection, task, tally),
        Change::Moved(moved) => r#move(connection, moved, tally),
        Change::Ended(end) => finish(connection, end, tally),
        Change::Receipt { task, agent, .. } => receipt(connection, *task, agent),
        Change::Call(call) => keep(connection, call),
    }
}

fn insert(connection: &Connection, task: &NewTask, tally: &mut Tally) -> Result<bool, StoreError> {
    let sql =
        "INSERT INTO tasks (id, identity, agent, request_id, capability, fingerprint, keep_until, created,
            budget_until, callback_url, callback_host, reply_to, retry_of, state, attempt, updated)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 0, 0, ?8) ON CONFLICT (id) DO NOTHING";
    let new = connection.prepare_cached(sql)?.execute(params![
        id(task.id),
        task.identity,
        task.agent,
        task.request_id,
        task.capability,
        task.fingerprint.to_be_bytes(),
        number(task.keep_until),
        number(task.created),
        number(task.budget_until),
        task.callback_url,
        task.callback_url.as_deref().map(host_of),
        task.reply_to,
        task.retry_of.map(id),
    ])?;
    if new == 0 {
        return Ok(false);
    }
    let sql = "INSERT INTO task_calls (seq, call) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![connection.last_insert_rowid(), &task.call[..]])?;
    // Whatever the id was used for before has expired, or the core would have found it.
    let sql = "INSERT INTO keys (identity, request_id, fingerprint, until, open, task) VALUES (?1, ?2, ?3, ?4, 1, ?5)
        ON CONFLICT (identity, request_id) DO UPDATE SET fingerprint = excluded.fingerprint,
            until = excluded.until, open = 1, task = excluded.task, ends = NULL";
    connection.prepare_cached(sql)?.execute(params![
        task.identity,
        task.request_id,
        task.fingerprint.to_be_bytes(),
        number(task.keep_until),
        id(task.id),
    ])?;
    tally.task(TaskState::Queued, 1);
    Ok(true)
}

/// Puts a task where the next one would come, and takes it away again: nobody else sees it.
pub(super) fn try_task(connection: &Connection, tally: &mut Tally) -> Result<(), StoreError> {
    let task = NewTask {
        // No other has it, and the next ones come before it.
        id: TaskId::from_bits(u128::MAX),
        identity: "".into(),
        agent: "".into(),
        request_id: "".into(),
        capability: "".into(),
        fingerprint: 0,
        keep_until: 0,
        created: 0,
        budget_until: 0,
        call: bytes::Bytes::new(),
        callback_url: None,
        reply_to: None,
        retry_of: None,
    };
    insert(connection, &task, tally)?;
    let sql = "SELECT seq FROM tasks WHERE id = ?1";
    let seq: i64 = connection.prepare_cached(sql)?.query_row([id(task.id)], |row| row.get(0))?;
    tally.task(TaskState::Queued, -1);
    sweep::remove(connection, seq)
}

/// The place and state of a task that has not ended.
fn open(connection: &Connection, task: TaskId) -> Result<Option<(i64, TaskState)>, StoreError> {
    let sql = "SELECT seq, state FROM tasks WHERE id = ?1 AND expires IS NULL";
    let row = connection
        .prepare_cached(sql)?
        .query_row([id(task)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(seq, state)| Ok((seq, columns::state_of(state)?))).transpose()
}

fn r#move(connection: &Connection, moved: &Moved, tally: &mut Tally) -> Result<bool, StoreError> {
    let Some((seq, before)) = open(connection, moved.task)? else { return Ok(false) };
    if moved.state.is_end() {
        return Ok(false);
    }
    // Who had it last stays to be shown; without an instance nobody has it.
    let sql =
        "UPDATE tasks SET state = ?2, attempt = ?3, updated = ?4, holder_agent = coalesce(?5, holder_agent),
            holder_instance = ?6, holder_idempotent = ?7, holder_capability = ?8 WHERE seq = ?1";
    let holder = moved.holder.as_ref();
    connection.prepare_cached(sql)?.execute(params![
        seq,
        columns::state(moved.state),
        moved.attempt,
        number(moved.at),
        holder.map(|holder| &holder.agent),
        holder.map(|holder| &holder.instance),
        holder.map(|holder| holder.idempotent),
        holder.map(|holder| &holder.capability),
    ])?;
    tally.task(before, -1);
    tally.task(moved.state, 1);
    Ok(true)
}

fn finish(connection: &Connection, end: &TaskEnd, tally: &mut Tally) -> Result<bool, StoreError> {
    let Some((seq, before)) = open(connection, end.task)? else { return Ok(false) };
    let state = if end.outcome == "completed" { TaskState::Succeeded } else { TaskState::Failed };
    let sql = "UPDATE tasks SET state = ?2, attempt = ?3, updated = ?4, outcome = ?5, expires = ?6,
            callback_next = CASE WHEN callback_url IS NULL THEN NULL ELSE ?4 END WHERE seq = ?1";
    connection.prepare_cached(sql)?.execute(params![
        seq,
        columns::state(state),
        end.attempt,
        number(end.at),
        end.outcome,
        number(end.expires),
    ])?;
    let sql = "INSERT INTO task_ends (seq, end) VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute(params![seq, &end.end[..]])?;
    let sql = "INSERT OR IGNORE INTO owed (agent, id)
        SELECT agent, id FROM tasks WHERE seq = ?1
        UNION SELECT reply_to, id FROM tasks WHERE seq = ?1 AND reply_to IS NOT NULL";
    connection.prepare_cached(sql)?.execute([seq])?;
    release(connection, seq, end)?;
    tally.task(before, -1);
    tally.task(state, 1);
    Ok(true)
}

/// What becomes of the request_id of a task that ends, if it is still this task's.
fn release(connection: &Connection, seq: i64, end: &TaskEnd) -> Result<(), StoreError> {
    let sql =
        "SELECT k.seq FROM tasks t JOIN keys k ON k.identity = t.identity AND k.request_id = t.request_id
        WHERE t.seq = ?1 AND k.task = t.id";
    let key: Option<i64> = connection.prepare_cached(sql)?.query_row([seq], |row| row.get(0)).optional()?;
    let Some(key) = key else { return Ok(()) };
    if end.keep_until <= end.at {
        connection.prepare_cached("DELETE FROM keys WHERE seq = ?1")?.execute([key])?;
    } else {
        let until = number(end.keep_until.min(end.expires));
        let sql = "UPDATE keys SET open = 0, until = ?2 WHERE seq = ?1";
        connection.prepare_cached(sql)?.execute([key, until])?;
    }
    Ok(())
}

fn receipt(connection: &Connection, task: TaskId, agent: &str) -> Result<bool, StoreError> {
    let sql = "DELETE FROM owed WHERE agent = ?1 AND id = ?2";
    let owed = connection.prepare_cached(sql)?.execute(params![agent, id(task)])?;
    let sql = "UPDATE tasks SET callback_next = NULL, callback_outcome = 'receipt'
        WHERE id = ?1 AND agent = ?2 AND callback_next IS NOT NULL";
    connection.prepare_cached(sql)?.execute(params![id(task), agent])?;
    Ok(owed > 0)
}

fn keep(connection: &Connection, call: &KeptCall) -> Result<bool, StoreError> {
    // A task that is open holds its request_id.
    let sql = "INSERT INTO keys (identity, request_id, fingerprint, until, open, ends) VALUES (?1, ?2, ?3, ?4, 0, ?5)
        ON CONFLICT (identity, request_id) DO UPDATE SET fingerprint = excluded.fingerprint,
            until = excluded.until, task = NULL, ends = excluded.ends WHERE open = 0";
    let kept = connection.prepare_cached(sql)?.execute(params![
        call.identity,
        call.request_id,
        call.fingerprint.to_be_bytes(),
        number(call.until),
        columns::joined(&call.ends),
    ])?;
    Ok(kept > 0)
}

pub(super) fn records(
    connection: &Connection,
    block: &RecordBlock,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO records (first_ms, last_ms, count, block) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(sql)?.execute(params![
        number(block.first_ms),
        number(block.last_ms),
        block.count,
        block.bytes,
    ])?;
    tally.records += i64::from(block.count);
    tally.record_bytes += i64::try_from(block.bytes.len()).unwrap_or(i64::MAX);
    Ok(())
}
