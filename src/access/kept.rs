//! The file in which sessions outlive the process.
//!
//! One line for each, the oldest first: `COOKIE TOKEN CREATED UNTIL NAME`, the first two being hashes in Base64, the next
//! two seconds since 1970. Who can read it has nothing to show: a cookie cannot be made of its hash.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Hash, SESSION_TIME, SESSIONS_MAX};
use crate::config::Problem;
use crate::tokens::is_name;

/// The first line: what the file is, and how it is written.
const HEAD: &str = "agent-reach sessions 1";
/// Longest line: two hashes, two numbers, a name.
const LINE_BYTES_MAX: u64 = 320;
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = LINE_BYTES_MAX * (SESSIONS_MAX as u64 + 1);
/// The bits of a file's mode that let in others than its owner.
const OTHERS: u32 = 0o077;

/// A session as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) cookie: Hash,
    /// Digest of what the token's file says of the token that it was opened with.
    pub(super) token: Hash,
    /// Seconds since 1970.
    pub(super) created: u64,
    /// Likewise.
    pub(super) until: u64,
    pub(super) name: Arc<str>,
}

/// Reads a file; one that is not there has none. Waits for the disk.
///
/// # Errors
/// The one thing that is wrong with it. Nothing of such a file counts.
pub(super) fn read(path: &Path) -> Result<Vec<Kept>, Problem> {
    let problem = |line, message: String| Problem {
        file: path.display().to_string(),
        line,
        key: String::new(),
        message,
    };
    let failed = |error: io::Error| problem(None, format!("cannot be read: {error}"));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
        // Looked at before it is opened: opening a pipe would wait for who writes to it.
        Ok(found) if !found.is_file() => return Err(problem(None, "is no file, or a link to one".into())),
        Ok(_) => {}
    }
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if let Some(objection) = objection(&found, rustix::process::geteuid().as_raw()) {
        return Err(problem(None, objection));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(problem(None, format!("is larger than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(|(line, message)| problem(Some(line), message.to_owned()))
}

/// Why somebody else than the hub's own user may have written a file.
fn objection(found: &Metadata, own: u32) -> Option<String> {
    let mode = found.permissions().mode() & 0o7777;
    if found.uid() != own {
        return Some(format!("belongs to user {}, and the hub is user {own}", found.uid()));
    }
    (mode & OTHERS != 0).then(|| format!("others may use it (mode {mode:04o}); it has to have mode 0600"))
}

fn parse(text: &str) -> Result<Vec<Kept>, (usize, &'static str)> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, head)| head != HEAD) {
        return Err((1, "is no file of sessions that this version writes"));
    }
    // A write that was cut short: the file is put in its place whole, so somebody else did that.
    if !text.ends_with('\n') {
        return Err((text.lines().count(), "ends within a line"));
    }
    let mut all = Vec::new();
    for (number, line) in lines {
        all.push(parse_line(line).ok_or((number, "is no session"))?);
        if all.len() > SESSIONS_MAX {
            return Err((number, "has more sessions than there can be"));
        }
    }
    Ok(all)
}

fn parse_line(line: &str) -> Option<Kept> {
    let mut words = line.split(' ');
    let (cookie, token) = (words.next().and_then(read_hash)?, words.next().and_then(read_hash)?);
    let (created, until) = (words.next()?.parse().ok()?, words.next()?.parse::<u64>().ok()?);
    let name = words.next().filter(|name| is_name(name))?.into();
    let is_session = until.checked_sub(created).is_some_and(|time| time <= SESSION_TIME.as_secs());
    (is_session && words.next().is_none()).then_some(Kept { cookie, token, created, until, name })
}

fn read_hash(text: &str) -> Option<Hash> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Writes a file, mode 0600, whole or not at all, and safe from a crash of the machine. Waits for the disk.
///
/// # Errors
/// What the system says; the file is as it was then.
pub(super) fn write(path: &Path, sessions: &[Kept]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut text = String::from(HEAD);
    text.push('\n');
    for Kept { cookie, token, created, until, name } in sessions {
        let [cookie, token] = [cookie, token].map(|hash| URL_SAFE_NO_PAD.encode(hash));
        text.push_str(&format!("{cookie} {token} {created} {until} {name}\n"));
    }
    let mut file = tempfile::Builder::new().prefix(".sessions-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The new name as well has to survive a crash: a session that was ended must not come back.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(n: u8) -> Kept {
        Kept { cookie: [n; 32], token: [200; 32], created: 1000, until: 1000 + 43_200, name: "eve".into() }
    }

    #[test]
    fn what_is_written_is_read_and_only_its_owner_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sessions");
        assert_eq!(read(&path), Ok(Vec::new()), "none is none");
        let all = [kept(2), kept(1)];
        write(&path, &all).unwrap();
        assert_eq!(read(&path), Ok(all.to_vec()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        write(&path, &[]).unwrap();
        assert_eq!(read(&path), Ok(Vec::new()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_file_that_others_may_use_or_that_is_no_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sessions");
        let told = |path: &Path| read(path).unwrap_err().to_string();
        write(&path, &[kept(1)]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let expected = format!("{}: others may use it (mode 0640); it has to have mode 0600", path.display());
        assert_eq!(told(&path), expected);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!(objection(&found, found.uid()), None);
        let foreign = objection(&found, found.uid() + 1).unwrap();
        assert!(foreign.starts_with("belongs to user "), "{foreign}");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(told(&link).ends_with("is no file, or a link to one"), "{}", told(&link));
        assert!(told(dir.path()).ends_with("is no file, or a link to one"));
    }

    #[test]
    fn a_file_with_one_broken_line_has_no_sessions_and_the_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sessions");
        write(&path, &[kept(1), kept(2)]).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let broken = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).unwrap_err().line
        };
        assert_eq!(broken(""), Some(1));
        assert_eq!(broken(&good.replace("sessions 1", "sessions 2")), Some(1));
        assert_eq!(broken(good.trim_end()), Some(3), "cut short");
        assert_eq!(broken(&good.replacen("1000", "-1", 1)), Some(2));
        assert_eq!(broken(&good.replacen("44200", "44201", 1)), Some(2), "longer than a session lasts");
        assert_eq!(broken(&good.replacen("44200", "999", 1)), Some(2), "ended before it began");
        assert_eq!(broken(&good.replacen("eve", "e.ve", 1)), Some(2));
        assert_eq!(broken(&good.replacen("eve", "eve eve", 1)), Some(2));
        assert_eq!(broken(&format!("{good}\n")), Some(4));
        let line = good.lines().nth(1).unwrap();
        let many = format!("{HEAD}\n{}", format!("{line}\n").repeat(SESSIONS_MAX + 1));
        assert_eq!(broken(&many), Some(SESSIONS_MAX + 2));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("cannot be read"));
        fs::write(&path, "x".repeat(4 << 20)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("larger than"));
    }
}
