//! What goes into the dedupe file, and what comes out of it in the next life of the process.

use std::sync::Arc;
use std::time::Duration;

use super::types::{Outcome, RunKey};

/// What an earlier life of the process left in the dedupe file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Past {
    pub(crate) intent: Arc<str>,
    pub(crate) fingerprint: u64,
    pub(crate) outcome: Outcome,
    pub(crate) execution: Duration,
    /// How long ago it was written.
    pub(crate) age: Duration,
}

/// A line for the dedupe file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Note {
    /// Who waits for it to be written: [`super::Work::Noted`] tells. `None`: nobody.
    pub(crate) run: Option<RunKey>,
    pub(crate) intent: Arc<str>,
    pub(crate) fingerprint: u64,
    pub(crate) says: Says,
    /// Of a task: it must outlive a crash of the machine, and not only of the process.
    pub(crate) task: bool,
}

/// What a line of the dedupe file says of an intent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Says {
    /// A handler is about to run for it.
    Begun,
    /// It ended so, after this time.
    Ended(Outcome, Duration),
    /// It may run again.
    Free,
}
