//! The lines of an audit in the order in which they were written, from the oldest file on, also while files rotate.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::audit::rotated;

/// What is read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The longest line that is kept until its end comes. The hub writes none that is nearly as long.
const LINE_BYTES: usize = 1 << 20;

/// Gets a line without its end; `false` when no more are wanted.
pub(super) type Take<'a> = dyn FnMut(&[u8]) -> bool + 'a;

/// The files from where is read on, the oldest first; the last is the one that is written to.
///
/// One is open at a time: more may be kept than a process may open.
pub(super) struct AuditReader {
    path: PathBuf,
    open: Option<Source>,
    next: VecDeque<(PathBuf, Id)>,
}

/// Device and inode: a file has another name after each rotation.
type Id = (u64, u64);

struct Source {
    file: File,
    id: Id,
    /// A line whose end has not come.
    partial: Vec<u8>,
}

impl AuditReader {
    /// Finds all files there are.
    ///
    /// # Errors
    /// There is none, or the folder cannot be read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut reader = Self { path: path.to_owned(), open: None, next: VecDeque::new() };
        reader.find_newer(None)?;
        match reader.next.is_empty() {
            true => Err(ErrorKind::NotFound.into()),
            false => Ok(reader),
        }
    }

    /// Reads all there is; `false` when no more is wanted.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn read(&mut self, take: &mut Take<'_>) -> io::Result<bool> {
        loop {
            if let Some(source) = &mut self.open
                && !source.read(take)?
            {
                return Ok(false);
            }
            let Some((path, id)) = self.next.pop_front() else { return Ok(true) };
            // Nobody writes to the one before any more.
            if !self.rest(take) {
                return Ok(false);
            }
            self.open = self.find(&path, id)?;
        }
    }

    /// Takes what stands behind the last end of a line.
    pub(super) fn rest(&mut self, take: &mut Take<'_>) -> bool {
        self.open.as_mut().is_none_or(|source| source.rest(take))
    }

    /// Finds the files that have come since.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        let about = match fs::metadata(&self.path) {
            Ok(about) => about,
            // It is made anew with the next line.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let last = self.open.as_ref().map(|source| source.id);
        match &mut self.open {
            Some(source) if source.id == id_of(&about) => source.was_cut(about.len()),
            Some(_) | None => self.find_newer(last),
        }
    }

    /// Notes the files that are newer than one of them.
    fn find_newer(&mut self, last: Option<Id>) -> io::Result<()> {
        let mut found: Vec<(PathBuf, Id)> = Vec::new();
        // The newest first, and the list of the others after it: one that is rotated meanwhile is met once more then,
        // instead of being missed.
        let newest = about(&self.path)?;
        let older = rotated(&self.path)?.into_iter().map(|(_, path)| path);
        for path in std::iter::once(self.path.clone()).chain(older) {
            let id = if path == self.path { newest } else { about(&path)? };
            let Some(id) = id else { continue };
            if Some(id) == last {
                break;
            }
            if found.iter().all(|(_, other)| *other != id) {
                found.push((path, id));
            }
        }
        self.next.extend(found.into_iter().rev());
        Ok(())
    }

    /// Opens a file by whatever name it has now; `None` when it is no longer kept.
    fn find(&self, path: &Path, id: Id) -> io::Result<Option<Source>> {
        let others = std::iter::once_with(|| rotated(&self.path));
        let others = others.flatten().flatten().map(|(_, path)| path);
        for path in std::iter::once(path.to_owned()).chain(others) {
            match Source::open(&path) {
                Ok(source) if source.id == id => return Ok(Some(source)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// Which file a path leads to; `None` for none.
fn about(path: &Path) -> io::Result<Option<Id>> {
    match fs::metadata(path) {
        Ok(about) => Ok(Some(id_of(&about))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn id_of(about: &Metadata) -> Id {
    (about.dev(), about.ino())
}

impl Source {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        Ok(Self { file, id: id_of(&about), partial: Vec::new() })
    }

    fn read(&mut self, take: &mut Take<'_>) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match self.file.read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut rest = chunk.get(..read).unwrap_or_default();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let (line, after) = rest.split_at(end);
                self.keep(line);
                if !self.rest(take) {
                    return Ok(false);
                }
                rest = after.get(1..).unwrap_or_default();
            }
            self.keep(rest);
        }
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.partial.len());
        // What is cut off is missed by whoever reads the line: it is none any more.
        self.partial.extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
    }

    fn rest(&mut self, take: &mut Take<'_>) -> bool {
        let wanted = self.partial.is_empty() || take(&self.partial);
        self.partial.clear();
        wanted
    }

    /// The file has so many bytes: if that is less than was read, it begins anew.
    fn was_cut(&mut self, len: u64) -> io::Result<()> {
        if self.file.stream_position()? > len {
            self.file.seek(SeekFrom::Start(0))?;
            self.partial.clear();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    struct World {
        home: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            Self { home: tempfile::tempdir().unwrap() }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.home.path().join(name)
        }

        fn append(&self, name: &str, text: &str) {
            let mut file = File::options().append(true).create(true).open(self.at(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn open(&self) -> AuditReader {
            AuditReader::open(&self.at("a")).unwrap()
        }
    }

    fn read(reader: &mut AuditReader) -> Vec<String> {
        let mut lines = Vec::new();
        let mut take = |line: &[u8]| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            true
        };
        assert!(reader.read(&mut take).unwrap());
        lines
    }

    #[test]
    fn older_files_come_first_whatever_their_names_sort_as() {
        let w = World::new();
        for (name, text) in [("a", "4\n"), ("a.2", "2\n"), ("a.10", "1\n"), ("a.1", "3\n"), ("a.gz", "x\n")] {
            w.append(name, text);
        }
        assert_eq!(read(&mut w.open()), ["1", "2", "3", "4"]);
        fs::remove_file(w.at("a")).unwrap();
        assert_eq!(read(&mut w.open()), ["1", "2", "3"], "before the first line of a new one");
    }

    #[test]
    fn a_line_is_taken_when_its_end_comes_and_the_last_one_without_on_demand() {
        let w = World::new();
        w.append("a", "one\ntw");
        let mut reader = w.open();
        assert_eq!(read(&mut reader), ["one"]);
        w.append("a", "o\n\nthr");
        assert_eq!(read(&mut reader), ["two"]);
        let mut last = Vec::new();
        assert!(reader.rest(&mut |line| {
            last.extend_from_slice(line);
            true
        }));
        assert_eq!(last, b"thr");
    }

    #[test]
    fn nothing_is_missed_or_met_twice_when_files_rotate_between_two_looks() {
        let w = World::new();
        w.append("a", "1\n");
        let mut reader = w.open();
        assert_eq!(read(&mut reader), ["1"]);
        w.append("a", "2\n");
        let rotate = |text: &str| {
            for number in (1..9).rev() {
                let (from, to) = (w.at(&format!("a.{number}")), w.at(&format!("a.{}", number + 1)));
                assert!(!from.exists() || fs::rename(from, to).is_ok());
            }
            fs::rename(w.at("a"), w.at("a.1")).unwrap();
            w.append("a", text);
        };
        rotate("3\n");
        rotate("4\n");
        assert_eq!(read(&mut reader), ["2"]);
        reader.renew().unwrap();
        assert_eq!(read(&mut reader), ["3", "4"]);
        reader.renew().unwrap();
        w.append("a", "5\n");
        assert_eq!(read(&mut reader), ["5"]);
    }

    #[test]
    fn files_that_rotate_before_they_are_opened_are_found_under_their_new_names_or_were_not_kept() {
        let w = World::new();
        for (name, text) in [("a.2", "1\n"), ("a.1", "2\n"), ("a", "3\n")] {
            w.append(name, text);
        }
        let mut reader = w.open();
        fs::remove_file(w.at("a.2")).unwrap();
        fs::rename(w.at("a.1"), w.at("a.2")).unwrap();
        fs::rename(w.at("a"), w.at("a.1")).unwrap();
        w.append("a", "4\n");
        assert_eq!(read(&mut reader), ["2", "3"]);
        reader.renew().unwrap();
        assert_eq!(read(&mut reader), ["4"]);
    }

    #[test]
    fn a_file_that_is_moved_away_or_cut_short_is_gone_on_with() {
        let w = World::new();
        w.append("a", "1\n2\n");
        let mut reader = w.open();
        assert_eq!(read(&mut reader), ["1", "2"]);
        fs::rename(w.at("a"), w.at("elsewhere")).unwrap();
        reader.renew().unwrap();
        assert_eq!(read(&mut reader), [""; 0]);
        w.append("a", "3\n4\n");
        reader.renew().unwrap();
        assert_eq!(read(&mut reader), ["3", "4"]);
        File::create(w.at("a")).unwrap();
        reader.renew().unwrap();
        w.append("a", "5\n");
        assert_eq!(read(&mut reader), ["5"]);
    }

    #[test]
    fn a_line_without_an_end_takes_no_more_than_its_bound() {
        let w = World::new();
        w.append("a", &"x".repeat(3 * LINE_BYTES));
        let mut reader = w.open();
        assert_eq!(read(&mut reader), [""; 0]);
        assert_eq!(reader.open.unwrap().partial.len(), LINE_BYTES);
    }

    #[test]
    fn what_is_not_there_cannot_be_read() {
        let w = World::new();
        assert_eq!(AuditReader::open(&w.at("a")).err().unwrap().kind(), ErrorKind::NotFound);
        let mut folder = AuditReader::open(w.home.path()).unwrap();
        assert!(folder.read(&mut |_| true).is_err());
    }
}
