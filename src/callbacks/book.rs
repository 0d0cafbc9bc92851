//! What a [`Worker`](super::Worker) asks of whoever keeps the callbacks.

use std::future::Future;
use std::sync::Arc;

use agent_reach_core::TaskId;
use bytes::Bytes;

/// A callback that is due: its task has ended, and the moment of its next delivery has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Whose end is delivered. It names the webhook too.
    pub task: TaskId,
    /// Where to, as [`Target::url`](super::Target::url) has it.
    pub url: Arc<str>,
    /// The capability that was asked for.
    pub capability: Arc<str>,
    /// Deliveries so far.
    pub attempt: u32,
    /// The RESULT without an id.
    pub end: Bytes,
}

/// What a worker has no use for now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Busy {
    /// Tasks whose deliveries are under way.
    pub tasks: Vec<TaskId>,
    /// Hosts that have all the deliveries they get at a time, as [`Host`](super::Host) prints them.
    pub hosts: Vec<String>,
}

/// The callbacks cannot be read or written now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("callbacks cannot be kept now: {0}")]
pub struct Unavailable(pub String);

/// Keeps callbacks, so that they outlive the process. Moments are milliseconds since the Unix epoch.
pub trait Book: Send + Sync + 'static {
    /// Callbacks that are due at `now_ms`, those that have waited longest first; at most so many, and none of the
    /// `busy` ones. A book that does not leave out busy *hosts* is safe, but lets a receiver with more due
    /// callbacks than a worker asks for keep the others waiting.
    ///
    /// # Errors
    /// [`Unavailable`]; it is asked again a little later.
    fn due_callbacks(
        &self,
        now_ms: u64,
        most: usize,
        busy: &Busy,
    ) -> impl Future<Output = Result<Vec<Due>, Unavailable>> + Send;

    /// The first moment after `now_ms` at which a callback becomes due.
    ///
    /// # Errors
    /// [`Unavailable`]; it is asked again a little later.
    fn next_callback(&self, now_ms: u64) -> impl Future<Output = Result<Option<u64>, Unavailable>> + Send;

    /// A delivery has been made, the `attempt`th (from 1), and ended so. `next_ms`: when the next one is due; `None`:
    /// the callback is over. One that is over already, since a receipt has come, stays so.
    ///
    /// # Errors
    /// [`Unavailable`]; it is said again a little later.
    fn callback_tried(
        &self,
        task: TaskId,
        attempt: u32,
        outcome: &str,
        next_ms: Option<u64>,
    ) -> impl Future<Output = Result<(), Unavailable>> + Send;
}
