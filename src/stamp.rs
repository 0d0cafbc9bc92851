//! What tells one version of a file from another without reading it.

use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

/// Of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
    file: u64,
}

impl Stamp {
    /// Of the file as it is now, behind all links; `None` when there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Self { modified: metadata.modified().ok(), bytes: metadata.len(), file: inode(&metadata) })
    }
}

/// A file that took another's place by renaming may be as old and as long as that one.
#[cfg(unix)]
fn inode(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn inode(_: &Metadata) -> u64 {
    0
}
