//! What callers tell the connection without waiting: at most a few entries for each open call.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use futures_util::task::AtomicWaker;

use crate::session::{CallKey, TaskEnd};

/// A word from a caller.
#[derive(Debug)]
pub(crate) enum Item {
    Cancel(CallKey),
    Forget(CallKey),
    Consumed(CallKey, u64, Option<String>),
    Received(String),
    /// A handle is gone, with the result of its task still in it.
    Returned(Box<TaskEnd>),
    /// The last handle of the agent is gone.
    Unheld,
}

/// Bounded by the open calls: one [`Item::Cancel`] or [`Item::Forget`] each, one [`Item::Received`] or
/// [`Item::Returned`] for each result of a task, and one [`Item::Consumed`] for each half window of chunks that came.
#[derive(Debug, Default)]
pub(crate) struct Control {
    items: Mutex<Vec<Item>>,
    waker: AtomicWaker,
}

impl Control {
    pub(crate) fn push(&self, item: Item) {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        self.waker.wake();
    }

    /// Takes everything; `into` must be empty.
    pub(crate) fn take(&self, waker: &Waker, into: &mut Vec<Item>) {
        self.waker.register(waker);
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *items, into);
    }
}
