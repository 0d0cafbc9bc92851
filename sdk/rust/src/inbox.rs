//! What a caller has not yet taken of its call: a small queue that allocates nothing while empty.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use agent_reach_protocol::ErrorCode;

use crate::control::{Control, Item};
use crate::errors::{Accepted, CallError, Code};
use crate::session::{CallEvent, CallKey, TaskEnd};

/// Most bytes that wait for one caller. A hub that keeps to the credit stays far below it.
const BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
struct State {
    events: VecDeque<CallEvent>,
    bytes: usize,
    ended: bool,
    /// The end is that of this task, and nobody has seen it yet.
    task: Option<String>,
    /// The caller let go.
    abandoned: bool,
    /// A task goes on without its handle.
    keeps_running: bool,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<State>>;

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    // No code under the lock can panic; a poisoned state would still be whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two ends of one call. Dropping the first ends the call, dropping the second cancels it.
pub(crate) fn inbox(key: CallKey, control: Arc<Control>) -> (Sender, Receiver) {
    let shared = Shared::default();
    (Sender { shared: Arc::clone(&shared), taken: false }, Receiver { shared, key, control })
}

/// The end at the connection.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Shared,
    /// The task that owns the connection has the call.
    taken: bool,
}

impl Sender {
    /// Hands an event over. `false` when the caller let more wait than is allowed.
    pub(crate) fn push(&self, event: CallEvent) -> bool {
        let state = lock(&self.shared);
        state.ended || Self::put(state, event)
    }

    /// Hands the end of a task over. `false` when nobody is there to take it: the caller let go, or has its end.
    pub(crate) fn deliver(&self, end: &TaskEnd) -> bool {
        let mut state = lock(&self.shared);
        if state.ended || state.abandoned {
            return false;
        }
        state.task = Some(end.task_id.clone());
        Self::put(state, CallEvent::Ended(end.result.clone().map(|reply| (reply, None))));
        true
    }

    fn put(mut state: MutexGuard<'_, State>, event: CallEvent) -> bool {
        state.bytes += size(&event);
        let fits = state.bytes <= BYTES_MAX;
        state.ended = matches!(event, CallEvent::Ended(_));
        state.events.push_back(event);
        if !fits && !state.ended {
            state.ended = true;
            let text = "more waits to be read than is allowed";
            state.events.push_back(CallEvent::Ended(Err(CallError::known(ErrorCode::Overloaded, text))));
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        fits
    }
}

impl Sender {
    /// From here on the call may have left.
    pub(crate) const fn take(&mut self) {
        self.taken = true;
    }

    /// Whether the caller let go already.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.shared).abandoned
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // The task that owns the connection is gone, or never took the call: nobody else will end it.
        let accepted = if self.taken { Accepted::Unknown } else { Accepted::No };
        let error = CallError::new(Code::Closed, "the agent is closed").accepted(accepted);
        self.push(CallEvent::Ended(Err(error)));
    }
}

/// The caller's end.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Shared,
    key: CallKey,
    control: Arc<Control>,
}

impl Receiver {
    /// The next event; `None` after the end.
    pub(crate) fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<CallEvent>> {
        let mut state = lock(&self.shared);
        if let Some(event) = state.events.pop_front() {
            state.bytes = state.bytes.saturating_sub(size(&event));
            if state.events.is_empty()
                && let Some(task_id) = state.task.take()
            {
                drop(state);
                self.control.push(Item::Received(task_id));
            }
            return Poll::Ready(Some(event));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) async fn next(&self) -> Option<CallEvent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Which call it is.
    pub(crate) const fn key(&self) -> CallKey {
        self.key
    }

    /// From here on dropping this end leaves the call alone.
    pub(crate) fn keep_running(&self) {
        lock(&self.shared).keeps_running = true;
    }

    /// The caller took so many chunks; in a fan-out of this target.
    pub(crate) fn grant(&self, n: u64, target: Option<String>) {
        self.control.push(Item::Consumed(self.key, n, target));
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        // Set before the word is sent: whoever takes the word first finds this when the call comes.
        state.abandoned = true;
        if !state.ended {
            let keeps_running = state.keeps_running;
            drop(state);
            self.control.push(if keeps_running { Item::Forget(self.key) } else { Item::Cancel(self.key) });
        } else if let Some(task_id) = state.task.take()
            && let Some(CallEvent::Ended(result)) = state.events.pop_back()
        {
            drop(state);
            let result = result.map(|(reply, _)| reply);
            self.control.push(Item::Returned(Box::new(TaskEnd { task_id, result })));
        }
    }
}

fn size(event: &CallEvent) -> usize {
    match event {
        CallEvent::Accepted(_) => 64,
        CallEvent::Chunk { payload, .. } => payload.body.len() + 64,
        CallEvent::Part { result: Ok(reply), .. } | CallEvent::Ended(Ok((reply, _))) => {
            reply.body.body.len() + 64
        }
        CallEvent::Part { result: Err(_), .. } | CallEvent::Ended(Err(_)) => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_the_connection_never_took_had_no_provider_and_of_one_that_it_took_nobody_knows() {
        for (taken, expected) in [(false, Accepted::No), (true, Accepted::Unknown)] {
            let (mut sender, receiver) = inbox(1, Arc::default());
            if taken {
                sender.take();
            }
            drop(sender);
            let waker = Waker::noop();
            let polled = receiver.poll_next(&Context::from_waker(waker));
            let Poll::Ready(Some(CallEvent::Ended(Err(error)))) = polled else { panic!("{polled:?}") };
            assert_eq!((&error.code, error.accepted), (&Code::Closed, expected));
        }
    }

    fn stored() -> (Sender, Receiver, TaskEnd, Arc<Control>) {
        let control = Arc::<Control>::default();
        let (sender, receiver) = inbox(1, Arc::clone(&control));
        receiver.keep_running();
        let result = Err(CallError::known(ErrorCode::Cancelled, "m"));
        (sender, receiver, TaskEnd { task_id: "t".to_owned(), result }, control)
    }

    fn words(control: &Control) -> Vec<Item> {
        let mut items = Vec::new();
        control.take(Waker::noop(), &mut items);
        items
    }

    #[test]
    fn a_tasks_result_counts_as_received_when_the_program_takes_it() {
        let (sender, receiver, end, control) = stored();
        assert!(sender.deliver(&end));
        assert!(words(&control).is_empty());
        let taken = receiver.poll_next(&Context::from_waker(Waker::noop()));
        assert!(matches!(taken, Poll::Ready(Some(CallEvent::Ended(_)))), "{taken:?}");
        assert!(matches!(words(&control).as_slice(), [Item::Received(task_id)] if task_id == "t"));
        drop((sender, receiver));
        assert!(words(&control).is_empty());
    }

    #[test]
    fn a_handle_that_is_dropped_with_its_result_gives_it_back_and_one_that_was_dropped_before_takes_none() {
        let (sender, receiver, end, control) = stored();
        assert!(sender.deliver(&end));
        drop(receiver);
        let words_said = words(&control);
        assert!(matches!(words_said.as_slice(), [Item::Returned(back)] if **back == end), "{words_said:?}");

        let (sender, receiver, end, control) = stored();
        drop(receiver);
        assert!(!sender.deliver(&end));
        assert!(matches!(words(&control).as_slice(), [Item::Forget(1)]));
    }
}
