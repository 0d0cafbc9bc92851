//! Tasks as they stand in the tables, for whoever takes them elsewhere.

use std::sync::Arc;

use agent_reach_core::{TaskId, TaskState};
use bytes::Bytes;
use rusqlite::params;

use super::SqliteStore;
use super::columns::{number, optional_text, state_of, task, text, unsigned};
use super::read::limit;
use crate::store::StoreError;

/// All that is stored of a task. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedTask {
    /// Where it stands: those behind it were accepted later.
    pub place: u64,
    /// Its name.
    pub id: TaskId,
    /// The owner.
    pub identity: Arc<str>,
    /// The caller's agent_id.
    pub agent: Arc<str>,
    /// One intent of the owner.
    pub request_id: Arc<str>,
    /// As asked for.
    pub capability: Arc<str>,
    /// Where it stands.
    pub state: TaskState,
    /// Tries so far.
    pub attempt: u32,
    /// When it was accepted.
    pub created: u64,
    /// When it moved last.
    pub updated: u64,
    /// When its budget ends.
    pub budget_until: u64,
    /// Who has it, or had it last: an agent_id.
    pub holder: Option<Arc<str>>,
    /// `completed`, or an error code; `None` while it is open.
    pub outcome: Option<Arc<str>>,
    /// Until when it is kept; `None` while it is open.
    pub expires: Option<u64>,
    /// Where its result goes as well: an agent_id.
    pub reply_to: Option<Arc<str>>,
    /// Where its result goes as well: a URL.
    pub callback_url: Option<Arc<str>>,
    /// Deliveries to that URL.
    pub callback_attempt: u32,
    /// How the last one went.
    pub callback_outcome: Option<Arc<str>>,
    /// When the next one is due; `None`: there will be none.
    pub callback_next: Option<u64>,
    /// The CALL as it came, where bodies were asked for.
    pub call: Option<Bytes>,
    /// The RESULT without an id, where bodies were asked for.
    pub end: Option<Bytes>,
}

impl SqliteStore {
    /// Tasks behind this place, in the order of their acceptance: at most so many. Each call is a short transaction of its
    /// own, so that a hub which writes meanwhile is not kept from shortening its log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn export(&self, after: u64, most: usize, bodies: bool) -> Result<Vec<ExportedTask>, StoreError> {
        let sql = "SELECT t.seq, t.id, t.identity, t.agent, t.request_id, t.capability, t.state, t.attempt, t.created,
                t.updated, t.budget_until, t.holder_agent, t.outcome, t.expires, t.reply_to, t.callback_url,
                t.callback_attempt, t.callback_outcome, t.callback_next,
                (SELECT call FROM task_calls c WHERE ?3 AND c.seq = t.seq),
                (SELECT end FROM task_ends e WHERE ?3 AND e.seq = t.seq)
            FROM tasks t WHERE t.seq > ?1 ORDER BY t.seq LIMIT ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params![number(after), limit(most), bodies])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let moment = |column| {
                let moment: Option<i64> = row.get(column)?;
                Ok::<_, StoreError>(moment.and_then(|moment| u64::try_from(moment).ok()))
            };
            let blob = |column| {
                let blob = row.get_ref(column)?.as_blob_or_null().map_err(rusqlite::Error::from)?;
                Ok::<_, StoreError>(blob.map(Bytes::copy_from_slice))
            };
            found.push(ExportedTask {
                place: unsigned(row, 0)?,
                id: task(row, 1)?,
                identity: text(row, 2)?,
                agent: text(row, 3)?,
                request_id: text(row, 4)?,
                capability: text(row, 5)?,
                state: state_of(row.get(6)?)?,
                attempt: row.get(7)?,
                created: unsigned(row, 8)?,
                updated: unsigned(row, 9)?,
                budget_until: unsigned(row, 10)?,
                holder: optional_text(row, 11)?,
                outcome: optional_text(row, 12)?,
                expires: moment(13)?,
                reply_to: optional_text(row, 14)?,
                callback_url: optional_text(row, 15)?,
                callback_attempt: row.get(16)?,
                callback_outcome: optional_text(row, 17)?,
                callback_next: moment(18)?,
                call: blob(19)?,
                end: blob(20)?,
            });
        }
        Ok(found)
    }
}
