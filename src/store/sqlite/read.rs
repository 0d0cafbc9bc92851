//! Questions, as SQL. Every statement is a short transaction of its own.

use std::sync::Arc;

use agent_reach_core::{
    Answer, CallbackRow, Holder, Kept, Moved, NewTask, OpenTask, Question, StoredCall, TaskId, TaskRow,
    TaskState, Whose,
};
use rusqlite::{Connection, Row, params};

use super::columns::{
    Texts, bits, bytes, id, number, optional_task, optional_text, parted, state, state_of, str_of, task,
    text, unsigned,
};
use crate::store::{KeptKey, RecordBlock, StoreError};

pub(super) fn answer(connection: &Connection, question: &Question) -> Result<Answer, StoreError> {
    Ok(match question {
        Question::Key { identity, request_id, now } => {
            Answer::Key(key(connection, identity, request_id, *now)?)
        }
        Question::Owed { agent, after, most } => Answer::Owed(owed(connection, agent, *after, *most)?),
        Question::Task { whose, task } => Answer::Task(one(connection, whose, *task)?.map(Box::new)),
        Question::Call { whose, task } => Answer::Call(call(connection, whose, *task)?.map(Box::new)),
        Question::Tasks { whose, state, capability, before, most } => {
            Answer::Tasks(list(connection, whose, *state, capability.as_deref(), *before, *most)?)
        }
    })
}

fn key(
    connection: &Connection,
    identity: &str,
    request_id: &str,
    now: u64,
) -> Result<Option<Kept>, StoreError> {
    let sql = "SELECT k.fingerprint, k.until, k.task, k.ends, e.end FROM keys k
        LEFT JOIN tasks t ON t.id = k.task LEFT JOIN task_ends e ON e.seq = t.seq
        WHERE k.identity = ?1 AND k.request_id = ?2 AND (k.open = 1 OR k.until > ?3)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![identity, request_id, number(now)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let is_null =
        |column| Ok::<_, StoreError>(row.get_ref(column)?.data_type() == rusqlite::types::Type::Null);
    let mut ends = if is_null(3)? { Vec::new() } else { parted(bytes(row, 3)?)? };
    if !is_null(4)? {
        ends.push(bytes(row, 4)?);
    }
    Ok(Some(Kept {
        fingerprint: bits(row, 0)?,
        until: unsigned(row, 1)?,
        task: if is_null(2)? { None } else { Some(task(row, 2)?) },
        ends,
    }))
}

fn owed(
    connection: &Connection,
    agent: &str,
    after: Option<TaskId>,
    (most, most_bytes): (usize, usize),
) -> Result<Vec<(TaskId, bytes::Bytes)>, StoreError> {
    let sql = "SELECT o.id, e.end FROM owed o JOIN tasks t ON t.id = o.id JOIN task_ends e ON e.seq = t.seq
        WHERE o.agent = ?1 AND o.id > ?2 ORDER BY o.id LIMIT ?3";
    // Nothing sorts before every id.
    let after = after.map_or_else(Vec::new, |after| id(after).to_vec());
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![agent, after, limit(most)])?;
    let mut found = Vec::new();
    let mut total = 0;
    while let Some(row) = rows.next()? {
        let end = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        total += end.len();
        if total > most_bytes && !found.is_empty() {
            break;
        }
        found.push((task(row, 0)?, bytes::Bytes::copy_from_slice(end)));
    }
    Ok(found)
}

/// The columns of a [`TaskRow`].
const SHOWN: &str = "t.id, t.state, t.agent, t.request_id, t.capability, t.created, t.updated, t.attempt,
    t.holder_agent, t.outcome, t.retry_of";

fn shown(row: &Row<'_>) -> Result<TaskRow, StoreError> {
    Ok(TaskRow {
        id: task(row, 0)?,
        state: state_of(row.get(1)?)?,
        agent: text(row, 2)?,
        request_id: text(row, 3)?,
        capability: text(row, 4)?,
        created: unsigned(row, 5)?,
        updated: unsigned(row, 6)?,
        attempt: row.get(7)?,
        holder: optional_text(row, 8)?,
        outcome: optional_text(row, 9)?,
        end: None,
        callback: None,
        retry_of: optional_task(row, 10)?,
    })
}

fn one(connection: &Connection, whose: &Whose, asked: TaskId) -> Result<Option<TaskRow>, StoreError> {
    let sql = format!(
        "SELECT {SHOWN}, e.end, t.callback_url, t.callback_attempt, t.callback_outcome, t.callback_next
            FROM tasks t LEFT JOIN task_ends e ON e.seq = t.seq WHERE t.id = ?1
            AND (?2 IS NULL OR t.identity = ?2)"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![id(asked), owner(whose)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let end = row.get_ref(11)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
    let callback = match optional_text(row, 12)? {
        Some(url) => Some(CallbackRow {
            url,
            attempts: row.get(13)?,
            outcome: optional_text(row, 14)?,
            next: row.get::<_, Option<i64>>(15)?.map(|next| next.max(0).cast_unsigned()),
        }),
        None => None,
    };
    Ok(Some(TaskRow { end: end.map(bytes::Bytes::copy_from_slice), callback, ..shown(row)? }))
}

/// `NULL` stands for everybody.
fn owner(whose: &Whose) -> Option<&str> {
    match whose {
        Whose::One(identity) => Some(identity),
        Whose::Everybodys => None,
    }
}

fn list(
    connection: &Connection,
    whose: &Whose,
    in_state: Option<TaskState>,
    capability: Option<&str>,
    before: Option<TaskId>,
    most: usize,
) -> Result<Vec<TaskRow>, StoreError> {
    let from = match (whose, in_state) {
        // The index holds all that is compared, so that only rows that are shown are fetched.
        (Whose::One(_), _) => "tasks t WHERE t.identity = ?1",
        // All that is open is looked at, and nothing of what has ended.
        (Whose::Everybodys, Some(_)) => {
            "tasks t INDEXED BY tasks_open WHERE t.expires IS NULL AND ?1 IS NULL"
        }
        (Whose::Everybodys, None) => "tasks t WHERE ?1 IS NULL",
    };
    let sql = format!(
        "SELECT {SHOWN} FROM {from} AND t.id < ?2
            AND (?3 IS NULL OR t.state = ?3) AND (?4 IS NULL OR t.capability = ?4) ORDER BY t.id DESC LIMIT ?5"
    );
    // Longer than any id, and so behind all of them.
    let before = before.map_or_else(|| vec![0xff; 17], |before| id(before).to_vec());
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows =
        statement.query(params![owner(whose), before, in_state.map(state), capability, limit(most)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(shown(row)?);
    }
    Ok(found)
}

/// The columns of an [`OpenTask`].
const WHOLE: &str =
    "t.id, t.identity, t.agent, t.request_id, t.capability, t.fingerprint, t.keep_until, t.created,
    t.budget_until, c.call, t.callback_url, t.reply_to, t.updated, t.state, t.attempt, t.holder_agent,
    t.holder_instance, t.holder_idempotent, t.retry_of, t.holder_capability";

/// A task as it was accepted, whatever has become of it.
fn call(connection: &Connection, whose: &Whose, asked: TaskId) -> Result<Option<StoredCall>, StoreError> {
    let sql = format!(
        "SELECT {WHOLE} FROM tasks t JOIN task_calls c ON c.seq = t.seq
            WHERE t.id = ?1 AND (?2 IS NULL OR t.identity = ?2)"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![id(asked), owner(whose)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let OpenTask { task, moved } = open_task(row, &mut Texts::default())?;
    Ok(Some(StoredCall { task, state: moved.state }))
}

pub(super) fn open_tasks(connection: &Connection, each: &mut dyn FnMut(OpenTask)) -> Result<(), StoreError> {
    let sql = format!(
        "SELECT {WHOLE} FROM tasks t INDEXED BY tasks_open JOIN task_calls c ON c.seq = t.seq
            WHERE t.expires IS NULL ORDER BY t.id"
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(())?;
    let mut texts = Texts::default();
    while let Some(row) = rows.next()? {
        each(open_task(row, &mut texts)?);
    }
    Ok(())
}

fn open_task(row: &Row<'_>, texts: &mut Texts) -> Result<OpenTask, StoreError> {
    let id = task(row, 0)?;
    let mut shared = |column| str_of(row, column).map(|text| texts.shared(text));
    let (agent, instance) = (optional_text(row, 15)?, optional_text(row, 16)?);
    let holder = match (agent, instance) {
        (Some(agent), Some(instance)) => Some(Holder {
            agent: shared(15).unwrap_or(agent),
            instance,
            capability: optional_text(row, 19)?.map(|own| shared(19).unwrap_or(own)),
            idempotent: row.get(17)?,
        }),
        _ => None,
    };
    Ok(OpenTask {
        task: NewTask {
            id,
            identity: shared(1)?,
            agent: shared(2)?,
            request_id: text(row, 3)?,
            capability: shared(4)?,
            fingerprint: bits(row, 5)?,
            keep_until: unsigned(row, 6)?,
            created: unsigned(row, 7)?,
            budget_until: unsigned(row, 8)?,
            call: bytes(row, 9)?,
            callback_url: optional_text(row, 10)?,
            reply_to: optional_text(row, 11)?,
            retry_of: optional_task(row, 18)?,
        },
        moved: Moved {
            task: id,
            at: unsigned(row, 12)?,
            state: state_of(row.get(13)?)?,
            attempt: row.get(14)?,
            holder,
        },
    })
}

pub(super) fn owed_agents(connection: &Connection, each: &mut dyn FnMut(Arc<str>)) -> Result<(), StoreError> {
    // From one agent to the next: what each is owed may be long.
    let mut statement =
        connection.prepare("SELECT agent FROM owed WHERE agent > ?1 ORDER BY agent LIMIT 1")?;
    let mut last: Arc<str> = "".into();
    loop {
        let mut rows = statement.query([&last])?;
        let Some(row) = rows.next()? else { return Ok(()) };
        last = text(row, 0)?;
        each(Arc::clone(&last));
    }
}

pub(super) fn kept_keys(
    connection: &Connection,
    now: u64,
    each: &mut dyn FnMut(KeptKey),
) -> Result<(), StoreError> {
    let sql = "SELECT identity, request_id, until FROM keys WHERE open = 1 OR until > ?1
        ORDER BY identity, request_id";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([number(now)])?;
    let mut texts = Texts::default();
    while let Some(row) = rows.next()? {
        each(KeptKey {
            identity: texts.shared(str_of(row, 0)?),
            request_id: text(row, 1)?,
            until: unsigned(row, 2)?,
        });
    }
    Ok(())
}

pub(super) fn records(
    connection: &Connection,
    after: u64,
    most: usize,
) -> Result<Vec<(u64, RecordBlock)>, StoreError> {
    let sql = "SELECT seq, first_ms, last_ms, count, block FROM records WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![number(after), limit(most)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let block = RecordBlock {
            first_ms: unsigned(row, 1)?,
            last_ms: unsigned(row, 2)?,
            count: row.get(3)?,
            bytes: row.get(4)?,
        };
        found.push((unsigned(row, 0)?, block));
    }
    Ok(found)
}

pub(super) fn counts(connection: &Connection) -> Result<[u64; TaskState::ALL.len()], StoreError> {
    let mut counts = [0; TaskState::ALL.len()];
    for (state, count) in TaskState::ALL.into_iter().zip(&mut counts) {
        *count = named(connection, state.as_str())?;
    }
    Ok(counts)
}

/// One of the counts that are kept up.
pub(super) fn named(connection: &Connection, name: &str) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached("SELECT n FROM counts WHERE name = ?1")?;
    let mut rows = statement.query([name])?;
    rows.next()?.map_or(Ok(0), |row| unsigned(row, 0))
}

pub(super) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}
