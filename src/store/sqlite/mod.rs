//! A store in one SQLite file: one connection that writes and others that read, beside a log of writes (WAL).
//!
//! `synchronous=FULL`: a commit returns after its log is on disk. What is in the log a connection of its own copies into
//! the file, beside the one that writes; only the latter begins the log anew.

mod callbacks;
mod columns;
mod export;
mod read;
mod schema;
mod shown;
mod sweep;
#[cfg(test)]
mod tests;
mod write;

pub use export::ExportedTask;

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{Answer, Change, OpenTask, Question, TaskId, TaskState};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{
    DueCallback, KeptKey, OpenStore, RecordBlock, Store, StoreError, StoreErrorKind, StoreOptions,
    StoreStats, SweepBounds, Swept,
};
use crate::callbacks::Busy;

/// Statements that are kept prepared for a connection: all there are.
const STATEMENTS: usize = 64;
/// Pages in the log, and not yet in the file, that begin a checkpoint. Not few: each waits for the disk, as batches do.
const CHECKPOINT_PAGES: i64 = 1000;
/// Pages in the log from which on it begins anew, when few of them are not in the file, as just after a checkpoint: what
/// is left a batch waits for. Sooner it does so by itself, whenever all of it is in the file as a batch begins.
const RESTART_PAGES: i64 = 8000;
/// How many are few.
const FEW_PAGES: i64 = 200;
/// Pages in the log from which on it begins anew in any case: as many as its file keeps.
const FULL_PAGES: i64 = 16_000;
/// How long it waits for them.
const RESTART_WAIT: Duration = Duration::from_millis(100);
/// What a probe writes: as much as a few tasks.
const PROBE_BYTES: i64 = 64 << 10;

/// A file that this process alone writes, until this value and all its stores are dropped.
#[derive(Debug)]
pub struct SqliteFile {
    path: PathBuf,
    busy: Duration,
    log_bytes: u64,
    max_bytes: Option<u64>,
    lock: Arc<File>,
}

impl SqliteFile {
    /// Takes the file, which need not be there, for this process.
    ///
    /// # Errors
    /// [`StoreErrorKind::Locked`] when another hub has it; the lock beside it cannot be made.
    pub fn take(options: &StoreOptions) -> Result<Self, StoreError> {
        let lock = private(&beside(&options.path, ".lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let detail = format!("{} is in use by another hub", options.path.display());
                return Err(StoreError::new(StoreErrorKind::Locked, detail));
            }
            Err(TryLockError::Error(error)) => return Err(io(&options.path, &error)),
        }
        Ok(Self {
            path: options.path.clone(),
            busy: options.busy,
            log_bytes: options.log_bytes,
            max_bytes: options.max_bytes,
            lock: Arc::new(lock),
        })
    }

    fn store(&self, connection: Connection) -> Result<SqliteStore, StoreError> {
        connection.busy_timeout(self.busy)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let mut store = SqliteStore {
            connection,
            log: beside(&self.path, "-wal"),
            log_most: self.log_bytes,
            busy: self.busy,
            counts: [0; TaskState::ALL.len()],
            _lock: Some(Arc::clone(&self.lock)),
        };
        store.counts = read::counts(&store.connection)?;
        Ok(store)
    }

    /// The store that writes, as what it is.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_writer(&self) -> Result<SqliteStore, StoreError> {
        drop(private(&self.path)?);
        let mut connection = connected(&self.path)?;
        connection.busy_timeout(self.busy)?;
        // First, before anything is written into a file of another program.
        schema::stands(&connection)?;
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        if mode != "wal" {
            return Err(StoreError::new(
                StoreErrorKind::ReadOnly,
                format!("the journal stays in mode {mode}"),
            ));
        }
        connection.execute_batch(
            "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0; PRAGMA journal_size_limit=67108864;
             PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;
             PRAGMA cache_size=-16384;",
        )?;
        schema::migrate(&mut connection)?;
        if let Some(bytes) = self.max_bytes {
            let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = columns::number(bytes) / page.max(1);
            let _bound: i64 =
                connection.pragma_update_and_check(None, "max_page_count", pages, |row| row.get(0))?;
        }
        self.store(connection)
    }
}

impl OpenStore for SqliteFile {
    fn writer(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(self.open_writer()?))
    }

    fn reader(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(self.store(reading(&self.path)?)?))
    }
}

/// One connection to the file.
#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    log: PathBuf,
    log_most: u64,
    busy: Duration,
    counts: [u64; TaskState::ALL.len()],
    _lock: Option<Arc<File>>,
}

impl SqliteStore {
    /// Only to read, whether a hub has the file or not: for commands.
    ///
    /// # Errors
    /// There is no such file, it is no store of this version, or cannot be read.
    pub fn beside_a_hub(path: &Path) -> Result<Self, StoreError> {
        if !path.is_file() {
            return Err(StoreError::new(StoreErrorKind::Io, format!("there is no file {}", path.display())));
        }
        let connection = reading(path)?;
        connection.busy_timeout(Duration::from_secs(2))?;
        let version = schema::stands(&connection)?;
        if version != schema::VERSION {
            let detail = format!("the file is of version {version}; a hub brings it to {}", schema::VERSION);
            return Err(StoreError::new(StoreErrorKind::Version, detail));
        }
        let counts = read::counts(&connection)?;
        Ok(Self {
            connection,
            log: beside(path, "-wal"),
            log_most: u64::MAX,
            busy: Duration::from_secs(2),
            counts,
            _lock: None,
        })
    }

    /// Nothing is written into a log that is too long already: whoever reads keeps it from beginning anew.
    fn has_room(&mut self) -> Result<(), StoreError> {
        if self.log_bytes() <= self.log_most {
            return Ok(());
        }
        self.restart("PRAGMA wal_checkpoint(TRUNCATE)")?;
        if self.log_bytes() <= self.log_most {
            return Ok(());
        }
        let detail = "the log of writes is at its bound, and somebody who reads the file keeps it so";
        Err(StoreError::new(StoreErrorKind::Locked, detail))
    }

    /// What a checkpoint says: the pages in the log, and how many of them are in the file as well.
    fn log_pages(&self, checkpoint: &str) -> Result<(i64, i64), StoreError> {
        let mut statement = self.connection.prepare_cached(checkpoint)?;
        Ok(statement.query_row((), |row| Ok((row.get(1)?, row.get(2)?)))?)
    }

    /// A checkpoint after which the log begins anew, if nobody reads for a moment.
    fn restart(&self, checkpoint: &str) -> Result<(), StoreError> {
        self.connection.busy_timeout(RESTART_WAIT.min(self.busy))?;
        let done = self.connection.query_row(checkpoint, (), |_| Ok(()));
        self.connection.busy_timeout(self.busy)?;
        match done.map_err(StoreError::from) {
            Err(error) if error.kind == StoreErrorKind::Locked => Ok(()),
            done => done,
        }
    }

    fn writing<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut write::Tally) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.has_room()?;
        let begun = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut tally = write::Tally::default();
        let done = work(&begun, &mut tally)?;
        tally.store(&begun)?;
        begun.commit()?;
        tally.add_to(&mut self.counts);
        Ok(done)
    }
}

impl Store for SqliteStore {
    fn write(&mut self, changes: &[(u64, Change)]) -> Result<u64, StoreError> {
        self.writing(|connection, tally| {
            let mut ignored = 0;
            for (_, change) in changes {
                ignored += u64::from(!write::apply(connection, change, tally)?);
            }
            Ok(ignored)
        })
    }

    fn probe(&mut self) -> Result<(), StoreError> {
        self.writing(|connection, tally| {
            write::try_task(connection, tally)?;
            let sql = "INSERT OR REPLACE INTO probe (id, filler) VALUES (1, zeroblob(?1))";
            connection.execute(sql, [PROBE_BYTES])?;
            Ok(())
        })?;
        self.writing(|connection, _| {
            connection.execute("DELETE FROM probe", ())?;
            Ok(())
        })
    }

    fn answer(&mut self, question: &Question) -> Result<Answer, StoreError> {
        read::answer(&self.connection, question)
    }

    fn open_tasks(&mut self, each: &mut dyn FnMut(OpenTask)) -> Result<(), StoreError> {
        read::open_tasks(&self.connection, each)
    }

    fn owed_agents(&mut self, each: &mut dyn FnMut(Arc<str>)) -> Result<(), StoreError> {
        read::owed_agents(&self.connection, each)
    }

    fn kept_keys(&mut self, now: u64, each: &mut dyn FnMut(KeptKey)) -> Result<(), StoreError> {
        read::kept_keys(&self.connection, now, each)
    }

    fn sweep(&mut self, now: u64, bounds: SweepBounds) -> Result<Swept, StoreError> {
        // Mostly there is nothing: that is found out without writing.
        if !sweep::is_due(&self.connection, now, bounds)? {
            return Ok(Swept::default());
        }
        self.writing(|connection, tally| sweep::step(connection, now, bounds, tally))
    }

    fn due_callbacks(&mut self, now: u64, most: usize, busy: &Busy) -> Result<Vec<DueCallback>, StoreError> {
        callbacks::due(&self.connection, now, most, busy)
    }

    fn next_callback(&mut self, after: u64) -> Result<Option<u64>, StoreError> {
        callbacks::next(&self.connection, after)
    }

    fn callback_tried(
        &mut self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next: Option<u64>,
    ) -> Result<(), StoreError> {
        self.writing(|connection, _| callbacks::tried(connection, task, attempt, outcome, next))
    }

    fn write_records(&mut self, block: &RecordBlock) -> Result<(), StoreError> {
        self.writing(|connection, tally| write::records(connection, block, tally))
    }

    fn records(&mut self, after: u64, most: usize) -> Result<Vec<(u64, RecordBlock)>, StoreError> {
        read::records(&self.connection, after, most)
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        let (log, done) = self.log_pages("PRAGMA wal_checkpoint(NOOP)")?;
        // A full one is left to who writes: two checkpoints at once end in an error for one of them.
        if log - done >= CHECKPOINT_PAGES && log < FULL_PAGES {
            self.log_pages("PRAGMA wal_checkpoint(PASSIVE)")?;
        }
        Ok(())
    }

    fn shorten_log(&mut self) -> Result<(), StoreError> {
        // The length of the log's file says nothing: it begins anew without getting shorter.
        let (log, done) = self.log_pages("PRAGMA wal_checkpoint(NOOP)")?;
        if log < RESTART_PAGES || (log - done >= FEW_PAGES && log < FULL_PAGES) {
            return Ok(());
        }
        // Not cut off: what is written over costs less to make safe than what makes a file longer.
        self.restart("PRAGMA wal_checkpoint(RESTART)")
    }

    fn counts(&self) -> [u64; TaskState::ALL.len()] {
        self.counts
    }

    fn log_bytes(&self) -> u64 {
        // No log is an empty one.
        std::fs::metadata(&self.log).map_or(0, |log| log.len())
    }

    fn stats(&mut self) -> Result<StoreStats, StoreError> {
        let mut stats = shown::stats(&self.connection)?;
        stats.log_bytes = self.log_bytes();
        Ok(stats)
    }

    fn check(&mut self) -> Result<Vec<String>, StoreError> {
        shown::check(&self.connection)
    }
}

fn reading(path: &Path) -> Result<Connection, StoreError> {
    // A reader has to write to the shared memory of the log, so it is opened as if to write, and then forbidden to.
    let connection = connected(path)?;
    connection.execute_batch(
        "PRAGMA query_only=ON; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;",
    )?;
    Ok(connection)
}

fn connected(path: &Path) -> Result<Connection, StoreError> {
    // A connection is one thread's; without SQLITE_OPEN_URI a path is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // Else a statement from the cache with a join or a LIMIT is compiled anew each time, in case that the next value has
    // a better plan: a fifth of the writer's time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Opens a file and makes it where it is not there, for its owner alone.
fn private(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| io(path, &error))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn io(path: &Path, error: &std::io::Error) -> StoreError {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kind = error.kind();
    let kind = if matches!(kind, PermissionDenied | ReadOnlyFilesystem) {
        StoreErrorKind::ReadOnly
    } else if matches!(kind, StorageFull | QuotaExceeded) {
        StoreErrorKind::Full
    } else {
        StoreErrorKind::Io
    };
    StoreError::new(kind, format!("{}: {error}", path.display()))
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => StoreErrorKind::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreErrorKind::Corrupt,
            Some(_) => StoreErrorKind::Io,
            // No fault of SQLite's: a column is not what it should be.
            None => StoreErrorKind::Corrupt,
        };
        Self::new(kind, error.to_string())
    }
}
