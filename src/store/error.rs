//! What may be wrong with a store.

use std::fmt;

/// Why a store cannot do what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct StoreError {
    /// What is to be done about it depends on this.
    pub kind: StoreErrorKind,
    /// In the words of whoever found it, for a person.
    pub detail: String,
}

impl StoreError {
    /// An error of this kind.
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }
}

/// The kinds of [`StoreError`], by what helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// No room: the disk, a quota, or the store's own bound.
    Full,
    /// It may be read and not written.
    ReadOnly,
    /// Somebody else holds it.
    Locked,
    /// What is read is not what was written.
    Corrupt,
    /// The disk or the file system failed.
    Io,
    /// It was made by a newer version, or by another program.
    Version,
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the store is full",
            Self::ReadOnly => "the store is read-only",
            Self::Locked => "the store is locked",
            Self::Corrupt => "the store is damaged",
            Self::Io => "the store cannot be reached",
            Self::Version => "not a store of this version",
        })
    }
}
