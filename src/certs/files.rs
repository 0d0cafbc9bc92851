//! Files of the CA: written whole or not at all, and never readable by others for a moment.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::CertsError;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    /// A private key: mode 0600 from its first moment.
    Owner,
    /// A certificate or a list: mode 0644, less what the umask takes away.
    Everybody,
}

/// Writes a new file; one that exists already is left alone and is an error.
pub(super) fn create(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), CertsError> {
    let done = draft(path, text, secrecy).and_then(|file| file.persist_noclobber(path).map_err(|e| e.error));
    match done {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CertsError::Exists { path: path.to_owned() })
        }
        other => other.map(drop).map_err(|source| CertsError::Io { path: path.to_owned(), source }),
    }
}

/// Writes a file in the place of the old one: a reader sees the old or the new one, never half.
pub(super) fn replace(path: &Path, text: &str, secrecy: Secrecy) -> Result<(), CertsError> {
    draft(path, text, secrecy)
        .and_then(|file| file.persist(path).map_err(|e| e.error))
        .map(drop)
        .map_err(|source| CertsError::Io { path: path.to_owned(), source })
}

/// Makes a directory, and those above it that are missing, with mode 0700. One that exists keeps its mode.
pub(super) fn directory(path: &Path) -> Result<(), CertsError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|source| CertsError::Io { path: path.to_owned(), source })
}

/// Adds one line to a file that only its owner reads.
pub(super) fn append(path: &Path, line: &str) -> Result<(), CertsError> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let write = || {
        let mut file = options.open(path)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| CertsError::Io { path: path.to_owned(), source })
}

/// Reads a text file of at most [`crate::transport::pem::MAX_PEM_BYTES`].
pub(super) fn read(path: &Path) -> Result<String, CertsError> {
    let failed = |source| CertsError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let limit = crate::transport::pem::MAX_PEM_BYTES;
    io::Read::read_to_string(&mut io::Read::take(File::open(path).map_err(failed)?, limit), &mut text)
        .map_err(failed)?;
    Ok(text)
}

/// Holds the directory against a second command at the same time, until it is dropped.
pub(super) fn lock(dir: &Path) -> Result<File, CertsError> {
    let path = dir.join(".lock");
    let hold = || {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    hold().map_err(|source| CertsError::Io { path: path.clone(), source })
}

fn draft(path: &Path, text: &str, secrecy: Secrecy) -> io::Result<tempfile::NamedTempFile> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".new-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(match secrecy {
        Secrecy::Owner => 0o600,
        Secrecy::Everybody => 0o644,
    }));
    #[cfg(not(unix))]
    let _ = secrecy;
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}
