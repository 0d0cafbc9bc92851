//! The audit file: appended to, rotated by size, opened again when somebody has moved it away.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::folder;

/// The file with what is known of it.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    rotate_bytes: u64,
    keep: u32,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode.
    id: (u64, u64),
    size: u64,
    /// A pipe or a device is not rotated.
    regular: bool,
    /// Its last line has no end: whoever wrote it was killed, or the disk was full.
    unfinished: bool,
}

/// What came of writing lines.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// How many are in the file.
    pub(super) lines: usize,
    /// Why the others are not.
    pub(super) error: Option<io::Error>,
    /// Why the file is larger than it may be.
    pub(super) stuck: Option<io::Error>,
}

impl AuditFile {
    pub(super) fn new(path: &Path, rotate_bytes: u64, keep: u32) -> Self {
        Self { path: path.to_owned(), rotate_bytes, keep, open: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, and makes it where it is not there.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        let about = file.metadata()?;
        let regular = about.is_file();
        let unfinished = regular && about.len() > 0 && !ends_with_a_line(&self.path);
        let (id, size) = (id_of(&about), if regular { about.len() } else { 0 });
        self.open = Some(Open { file, id, size, regular, unfinished });
        Ok(())
    }

    /// Writes lines, which end at these places of the buffer.
    pub(super) fn write(&mut self, buffer: &[u8], ends: &[usize]) -> Written {
        let mut written = Written::default();
        if let Err(error) = self.renew() {
            written.error = Some(error);
            return written;
        }
        let mut from = 0;
        while let Some(left) = ends.get(written.lines..).filter(|left| !left.is_empty()) {
            let Some(open) = &mut self.open else { return written };
            let room = self.rotate_bytes.saturating_sub(open.size);
            let fits = |end: &&usize| (**end - from) as u64 <= room;
            let mut count = left.iter().take_while(fits).count();
            if count == 0 || !open.regular || written.stuck.is_some() {
                if count == 0 && open.size > 0 && open.regular && written.stuck.is_none() {
                    written.stuck = self.rotate().err();
                    continue;
                }
                // One that is larger than the file may be goes alone; what cannot be rotated grows.
                count = if open.regular && written.stuck.is_none() { 1 } else { left.len() };
            }
            let to = left.get(count - 1).copied().unwrap_or(from);
            let (done, error) = open.append(buffer.get(from..to).unwrap_or_default());
            if let Some(error) = error {
                written.lines += left.iter().take_while(|end| **end <= from + done).count();
                written.error = Some(error);
                // Opened anew for the next lines, it is looked at what it ends with.
                self.open = None;
                return written;
            }
            written.lines += count;
            from = to;
        }
        written
    }

    /// Sees to it that what is open is what the path leads to.
    fn renew(&mut self) -> io::Result<()> {
        let about = fs::metadata(&self.path);
        if let (Some(open), Ok(about)) = (&mut self.open, &about)
            && open.id == id_of(about)
        {
            if open.regular && open.size != about.len() {
                // Somebody has cut it short, or writes to it too.
                open.size = about.len();
            }
            return Ok(());
        }
        self.open = None;
        self.open()
    }

    /// Begins a new file; the old one becomes the first of those that are kept.
    fn rotate(&mut self) -> io::Result<()> {
        for (number, old) in rotated(&self.path)?.into_iter().rev() {
            if number >= self.keep {
                fs::remove_file(old)?;
            } else {
                fs::rename(old, numbered(&self.path, number + 1))?;
            }
        }
        if self.keep == 0 {
            fs::remove_file(&self.path)?;
        } else {
            fs::rename(&self.path, numbered(&self.path, 1))?;
        }
        self.open()
    }
}

impl Open {
    /// Appends bytes; how many of them are written, and why not the others.
    fn append(&mut self, bytes: &[u8]) -> (usize, Option<io::Error>) {
        if self.unfinished {
            if let Err(error) = self.file.write_all(b"\n") {
                return (0, Some(error));
            }
            self.size += 1;
            self.unfinished = false;
        }
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => return (done, Some(ErrorKind::WriteZero.into())),
                Ok(more) => {
                    done += more;
                    self.size += more as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return (done, Some(error)),
            }
        }
        (done, None)
    }
}

/// Whether an audit file could be written there. Leaves nothing behind.
///
/// # Errors
/// Why not.
pub fn check(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(about) if about.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        // Opening a pipe would wait for its reader.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => tempfile::tempfile_in(folder(path)).map(drop),
        Err(error) => Err(error),
    }
}

/// The older files of an audit with their numbers, the latest first.
///
/// # Errors
/// The folder cannot be read.
pub fn rotated(path: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        let own = entry.file_name();
        let number = own.as_encoded_bytes().strip_prefix(name.as_encoded_bytes()).and_then(number_of);
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort_unstable();
    Ok(found)
}

/// The number of `.N`.
fn number_of(end: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(end.strip_prefix(b".")?).ok()?;
    let plain = digits.bytes().all(|digit| digit.is_ascii_digit()) && !digits.starts_with('0');
    if plain { digits.parse().ok() } else { None }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    name.into()
}

fn id_of(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

/// Whether the last line of a file is a whole one. One that cannot be read counts as if it were.
fn ends_with_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        let [last] = last;
        Ok(last)
    };
    last().unwrap_or(b'\n') == b'\n'
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
