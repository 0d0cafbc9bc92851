//! The file itself: opened, read, made anew, appended to.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::record::{self, Head, Line, VERSION, Word};
use crate::session::memory::{BYTES_MAX, KEEP_ON_DISK};
use crate::session::{Note, Outcome, Past, interrupted};

/// Made anew past so many bytes, with the newest half of them. 64 MiB.
const FILE_MAX: usize = BYTES_MAX;
/// Most that is ever read of a file: one batch may have gone past the bound.
const READ_MAX: u64 = 4 * BYTES_MAX as u64;
/// How long the end of a call counts that is no task's: while the hub may still ask for it again.
const CALL_KEEP: Duration = Duration::from_secs(600);

/// The file of one agent, locked for as long as this lives.
#[derive(Debug)]
pub(crate) struct DedupeFile {
    path: PathBuf,
    head: Head,
    file: File,
    /// How long it is; what lies behind it is not whole.
    bytes: usize,
    most: usize,
    /// The last write failed, and what it left could not be taken back.
    torn: bool,
    _lock: File,
}

/// What opening gives.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: DedupeFile,
    /// The instance that this life of the process is, too.
    pub(crate) instance: String,
    /// What earlier lives served, the oldest first.
    pub(crate) past: Vec<Past>,
}

impl DedupeFile {
    /// Opens the file of an agent, or makes it, with this `instance` then. Blocks.
    ///
    /// # Errors
    /// In words: it cannot be read or written, is another agent's or no such file, or another process has it.
    pub(crate) fn open(path: &Path, agent_id: &str, instance: &str) -> Result<Opened, String> {
        Self::open_bounded(path, agent_id, instance, FILE_MAX, unix_ms())
    }

    pub(super) fn open_bounded(
        path: &Path,
        agent_id: &str,
        instance: &str,
        most: usize,
        now: u64,
    ) -> Result<Opened, String> {
        let failed = |error: &dyn std::fmt::Display| format!("dedupe file {}: {error}", path.display());
        // On a file beside it, since the file itself is replaced.
        let lock = OpenOptions::new().create(true).append(true).open(beside(path, ".lock"));
        let lock = lock.map_err(|e| failed(&e))?;
        lock.try_lock().map_err(|e| failed(&format!("another agent uses it: {e}")))?;
        let fresh =
            || Head { version: VERSION, agent_id: agent_id.to_owned(), instance: instance.to_owned() };
        let (head, lines) = match load(path).map_err(|e| failed(&e))? {
            Some((head, lines)) => (head, lines),
            None => (fresh(), Vec::new()),
        };
        if head.version != VERSION || head.agent_id != agent_id {
            return Err(failed(&format!("it is version {} of agent {:?}", head.version, head.agent_id)));
        }
        let lines = alive(lines, now, most / 2);
        let (file, bytes) = renew(path, &head, &lines).map_err(|e| failed(&e))?;
        let past = lines.into_iter().map(|(line, _)| past(line, now)).collect();
        let instance = head.instance.clone();
        let file = Self { path: path.to_owned(), head, file, bytes, most, torn: false, _lock: lock };
        Ok(Opened { file, instance, past })
    }

    /// Appends what is to be noted; when this returns without an error it is safe from the end of the process, and
    /// where a task is among it from that of the machine.
    pub(super) fn append(&mut self, notes: Vec<Note>) -> io::Result<()> {
        self.append_at(notes, unix_ms())
    }

    pub(super) fn append_at(&mut self, notes: Vec<Note>, now: u64) -> io::Result<()> {
        let task = notes.iter().any(|note| note.task);
        let mut out = Vec::new();
        for note in notes {
            record::write(&Line::of(note, now), &mut out).map_err(io::Error::other)?;
        }
        if self.torn || self.bytes + out.len() > self.most {
            let lines = load(&self.path)?.map(|(_, lines)| lines).unwrap_or_default();
            (self.file, self.bytes) = renew(&self.path, &self.head, &alive(lines, now, self.most / 2))?;
            self.torn = false;
        }
        let written = self.file.write_all(&out).and_then(|()| match task {
            true => self.file.sync_data(),
            false => Ok(()),
        });
        if written.is_err() {
            // Half a record would hide all that comes after it.
            self.torn = self.file.set_len(self.bytes as u64).is_err();
            return written;
        }
        self.bytes += out.len();
        Ok(())
    }
}

/// Milliseconds since the Unix epoch.
fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

type Lines = Vec<(Line, usize)>;

/// All that is whole in a file, each with its length. `None`: there is no file.
fn load(path: &Path) -> io::Result<Option<(Head, Lines)>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(READ_MAX).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut rest = bytes.as_slice();
    let head = record::take(&mut rest).and_then(|(value, _)| record::read(value));
    // It is made whole and put in its place, so no crash leaves a beginning like this.
    let head: Head = head.ok_or_else(|| io::Error::other("this is no dedupe file"))?;
    let mut lines = Vec::new();
    while let Some((value, length)) = record::take(&mut rest) {
        lines.extend(record::read(value).map(|line| (line, length)));
    }
    Ok(Some((head, lines)))
}

/// What still counts: of each intent the newest, not too old, and the newest within `most` bytes.
fn alive(lines: Lines, now: u64, most: usize) -> Lines {
    let newest: HashMap<&str, usize> =
        lines.iter().enumerate().map(|(place, (line, _))| (&*line.intent, place)).collect();
    let counts = |place: usize, line: &Line| {
        let begun = matches!(line.word, Word::Begun);
        let keep = if line.task || begun { KEEP_ON_DISK } else { CALL_KEEP };
        newest.get(&*line.intent) == Some(&place)
            && !matches!(line.word, Word::Free)
            && age(line.at, now) < keep
    };
    let counting: Vec<bool> =
        lines.iter().enumerate().map(|(place, (line, _))| counts(place, line)).collect();
    let mut bytes = 0;
    let mut alive: Lines = Vec::new();
    for ((line, length), counts) in lines.into_iter().zip(counting).rev() {
        if counts && bytes + length <= most {
            bytes += length;
            alive.push((line, length));
        }
    }
    alive.reverse();
    alive
}

/// Zero when the clock was set back.
fn age(at: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(at))
}

fn past(line: Line, now: u64) -> Past {
    let (intent, fingerprint): (Arc<str>, u64) = (line.intent.as_str().into(), line.fingerprint);
    let age = age(line.at, now);
    let (outcome, execution) =
        line.outcome().unwrap_or_else(|| (Outcome::Failed(interrupted()), Duration::ZERO));
    Past { intent, fingerprint, outcome, execution, age }
}

/// Puts a new file in the place of the old one.
fn renew(path: &Path, head: &Head, lines: &Lines) -> io::Result<(File, usize)> {
    let mut out = Vec::new();
    record::write(head, &mut out).map_err(io::Error::other)?;
    for (line, _) in lines {
        record::write(line, &mut out).map_err(io::Error::other)?;
    }
    let made = beside(path, ".new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&made)?;
    file.write_all(&out)?;
    file.sync_all()?;
    std::fs::rename(&made, path)?;
    sync_folder(path)?;
    drop(file);
    // What is behind the end after a failed write is cut off, so the next write must go to the end as it is then.
    Ok((OpenOptions::new().append(true).open(path)?, out.len()))
}

#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}
