//! What the deciding thread of a store has the writing one do, and what came of it.

use agent_reach_core::Change;

use super::{Store, StoreError};

/// Numbered changes, in order.
pub(super) type Batch = Vec<(u64, Change)>;

/// Something to be done with a store that writes, whose outcome goes to who asked for it; the error comes back as well.
pub(super) type Errand = Box<dyn FnOnce(Result<&mut dyn Store, StoreError>) -> Result<(), StoreError> + Send>;

/// What the writer's thread is to do.
pub(super) enum Job {
    /// Write these.
    Batch(Batch),
    /// Find out whether it can write.
    Probe,
    /// Remove a little of what has expired.
    Sweep,
    /// Write the records that were gathered, if there are any.
    Records,
    /// Something else.
    Errand(Errand),
}

/// What a step of the sweep has left of what has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// There is more.
    Some,
    /// There is more, and some of it should have gone long ago.
    Late,
}

/// What came of a [`Job`].
pub(super) enum Done {
    /// Of a batch: how many were ignored, or all of it back.
    Batch(Result<u64, (Batch, StoreError)>),
    /// Of a probe.
    Probe(Result<(), StoreError>),
    /// Of a step: whether there is more.
    Sweep(Result<Left, StoreError>),
    /// Of records or an errand.
    Other(Result<(), StoreError>),
}
