//! Owns the core. This is the one place where concurrency is chosen: swap it, and nothing else changes.
//!
//! The core stands behind a mutex that each connection's task enters itself, once for a batch: it hands in
//! what it read, takes what is to be written, and leaves. A task of its own for the core would cost every
//! frame two more wake-ups, and wake-ups are what a hop costs (ADR 0001).

mod clock;
mod figures;
mod guests;
mod inbound;
mod memory;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use agent_reach_core::{
    Batch, ConnectionId, Effects, Hub, Input, Now, Outgoing, Peer, Policy, Reloaded, Settings, StoreNews,
};
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::Instant;

use clock::Clock;
pub use guests::Guest;
pub use inbound::{Inbound, Observer};

use crate::store::StoreHandle;
use crate::transport::trust::Distrust;

/// Most messages that are handed in at once: they are decoded under the lock.
const TURN_MESSAGES: usize = 32;
/// Most messages that a connection takes to write at once.
const BATCH_FRAMES: usize = 64;
/// About the most bytes that a connection takes to write at once.
const BATCH_BYTES: usize = 256 * 1024;

/// How many are woken at once to judge their peers again, and the pause then: more would stand in line before calls.
const WAKE_AT_ONCE: usize = 4;
const WAKE_PAUSE: Duration = Duration::from_millis(2);

/// The core, and what has to change together with it.
struct Inner {
    hub: Hub,
    connections: Slab<Slot>,
    generation: u32,
    /// When certificates of open connections run out, the soonest first.
    expiries: BTreeSet<(Now, ConnectionId)>,
    /// Until when the timer task sleeps.
    armed: Option<Now>,
}

/// The shell's side of one connection.
struct Slot {
    generation: u32,
    /// Of its task, while it waits for something to write.
    waker: Option<Waker>,
    expires: Option<Now>,
}

/// Memory that one turn needs and the next uses again.
#[derive(Default)]
struct Scratch {
    effects: Effects,
    wakers: Vec<Waker>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The core behind its lock.
pub struct Driver {
    inner: Mutex<Inner>,
    store: Option<StoreHandle>,
    started: Instant,
    observer: Arc<dyn Observer>,
    clock: Clock,
    empty: Notify,
}

impl Driver {
    /// A hub that has just started. [`Driver::keep_time`] has to run for its deadlines.
    pub fn new(settings: Settings, policy: Policy, observer: Arc<dyn Observer>) -> Arc<Self> {
        Self::with(Hub::new(settings, policy), None, observer)
    }

    /// The same, of a hub that has a store. The store's news have to come to [`Driver::store_news`].
    pub fn over(hub: Hub, store: StoreHandle, observer: Arc<dyn Observer>) -> Arc<Self> {
        Self::with(hub, Some(store), observer)
    }

    fn with(hub: Hub, store: Option<StoreHandle>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let inner =
            Inner { hub, connections: Slab::new(), generation: 0, expiries: BTreeSet::new(), armed: None };
        Arc::new(Self {
            inner: Mutex::new(inner),
            store,
            started: Instant::now(),
            observer,
            clock: Clock::default(),
            empty: Notify::new(),
        })
    }

    /// Names a new connection. `valid_for`: how long its certificate is still good.
    pub fn connect(&self, peer: Peer, valid_for: Option<Duration>) -> ConnectionId {
        self.enter(valid_for, |connection| Input::Connected { connection, peer })
    }

    fn enter(&self, valid_for: Option<Duration>, enters: impl FnOnce(ConnectionId) -> Input) -> ConnectionId {
        let now = self.now();
        let expires =
            valid_for.and_then(|left| u64::try_from(left.as_millis()).ok()).map(|ms| now.plus_ms(ms));
        let mut inner = self.lock();
        inner.generation = inner.generation.wrapping_add(1);
        let generation = inner.generation;
        let index = inner.connections.insert(Slot { generation, waker: None, expires });
        // A table of four thousand million connections has no memory to stand in.
        let connection = ConnectionId { index: u32::try_from(index).unwrap_or(u32::MAX), generation };
        if let Some(expires) = expires {
            inner.expiries.insert((expires, connection));
        }
        self.settle(inner, now, [enters(connection)], None);
        connection
    }

    /// Ends a connection whose certificate names nobody.
    pub fn unidentified(&self, connection: ConnectionId, reason: String) {
        self.settle(self.lock(), self.now(), [Input::Unidentified { connection, reason }], None);
    }

    /// Ends a connection whose peer is trusted no more.
    pub fn distrust(&self, connection: ConnectionId, distrust: Distrust) {
        let revoked = distrust == Distrust::Revoked;
        self.settle(self.lock(), self.now(), [Input::CredentialsEnded { connection, revoked }], None);
    }

    /// Wakes every connection, so that each judges its peer by what is trusted now: a few at a time, since judging
    /// takes a signature or two, and calls are not to wait for all of them.
    pub async fn wake_all(&self) {
        let mut first = 0;
        loop {
            let wakers: Vec<Waker> = {
                let inner = self.lock();
                if first >= inner.connections.capacity() {
                    return;
                }
                let places = first..first + WAKE_AT_ONCE;
                places.filter_map(|place| inner.connections.get(place)?.waker.clone()).collect()
            };
            first += WAKE_AT_ONCE;
            if !wakers.is_empty() {
                wakers.into_iter().for_each(Waker::wake);
                tokio::time::sleep(WAKE_PAUSE).await;
            }
        }
    }

    /// New rules.
    pub fn set_policy(&self, policy: Policy) {
        self.settle(self.lock(), self.now(), [Input::SetPolicy(policy)], None);
    }

    /// Answers [`Observer::reload`].
    pub fn reloaded(&self, number: u64, outcome: Result<Reloaded, String>) {
        self.settle(self.lock(), self.now(), [Input::Reloaded { number, outcome }], None);
    }

    /// One turn of a connection: hands in a bounded part of what it read, takes what it is to write. When
    /// nothing is left to write its task is woken as soon as that changes.
    pub fn turn(
        &self,
        connection: ConnectionId,
        inbox: &mut VecDeque<Inbound>,
        waker: &Waker,
        batch: &mut Vec<Outgoing>,
        may_write: bool,
    ) -> Turn {
        let inner = self.lock();
        let now = self.now();
        let inputs =
            inbox.drain(..inbox.len().min(TURN_MESSAGES)).map(|inbound| inbound.into_input(connection));
        let taken = self.settle(inner, now, inputs, Some(Writer { connection, waker, batch, may_write }));
        if let Some(Batch { since }) = taken.batch {
            self.observer.hop(Duration::from_micros(self.now().micros_since(since)));
        }
        taken.turn
    }

    /// The connection's socket is gone.
    pub fn close(&self, connection: ConnectionId) {
        let mut inner = self.lock();
        let now = self.now();
        let index = connection.index as usize;
        if let Some(slot) = inner.connections.try_remove(index)
            && let Some(expires) = slot.expires
        {
            inner.expiries.remove(&(expires, connection));
        }
        let last = inner.connections.is_empty();
        self.settle(inner, now, [Input::Closed { connection }], None);
        if last {
            self.empty.notify_waiters();
        }
    }

    /// The store has something to say.
    pub fn store_news(&self, news: StoreNews) {
        self.settle(self.lock(), self.now(), [Input::Store(news)], None);
    }

    /// Starts the drain.
    pub fn drain(&self, drain_ms: u64) {
        self.settle(self.lock(), self.now(), [Input::Drain { drain_ms }], None);
    }

    /// Closes every connection at once.
    pub fn stop(&self) {
        self.settle(self.lock(), self.now(), [Input::Stop], None);
    }

    /// Waits until no connection is open.
    pub async fn emptied(&self) {
        loop {
            let notified = self.empty.notified();
            if self.lock().connections.is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Sleeps until something is due, tells the core, and begins again. Never ends by itself.
    pub async fn keep_time(self: Arc<Self>) {
        loop {
            let notified = self.clock.sooner.notified();
            let due = {
                let mut inner = self.lock();
                inner.armed = inner.next_due();
                inner.armed
            };
            self.clock.looked.notify_waiters();
            match due {
                None => notified.await,
                Some(due) => {
                    let until = self.started + Duration::from_micros(due.micros());
                    // Both sides are cancel-safe: a notice that is not heard is found by the next look.
                    tokio::select! {
                        () = tokio::time::sleep_until(until) => self.tick(),
                        () = notified => {}
                    }
                }
            }
        }
    }

    fn tick(&self) {
        let mut inner = self.lock();
        let now = self.now();
        let mut inputs = vec![Input::Tick];
        while let Some((at, connection)) = inner.expiries.first().copied() {
            if at > now {
                break;
            }
            inner.expiries.pop_first();
            inputs.push(Input::CredentialsEnded { connection, revoked: false });
        }
        self.settle(inner, now, inputs, None);
    }

    /// Gives inputs to the core and carries out what comes of them, after the lock is left.
    fn settle(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        now: Now,
        inputs: impl IntoIterator<Item = Input>,
        writer: Option<Writer<'_>>,
    ) -> Taken {
        SCRATCH.with_borrow_mut(|Scratch { effects, wakers }| {
            for input in inputs {
                inner.hub.handle(now, input, effects);
            }
            let awake = writer.as_ref().map(|writer| writer.connection);
            let taken = writer.map(|writer| inner.write(writer)).unwrap_or_default();
            // The one that is here needs no waking: it takes what it has to write, or will when it has written.
            for connection in effects.wake.drain(..).filter(|connection| Some(*connection) != awake) {
                let slot = inner.connections.get_mut(connection.index as usize);
                let slot = slot.filter(|slot| slot.generation == connection.generation);
                wakers.extend(slot.and_then(|slot| slot.waker.take()));
            }
            if let Some(store) = &self.store
                && !(effects.changes.is_empty() && effects.asks.is_empty())
            {
                // Under the lock, which keeps them in order; nothing there waits.
                store.write(effects.changes.drain(..));
                effects.asks.drain(..).for_each(|ask| store.ask(ask));
            }
            let due = inner.next_due();
            let sooner = due.is_some_and(|due| inner.armed.is_none_or(|armed| due < armed));
            if sooner {
                inner.armed = due;
            }
            drop(inner);
            for waker in wakers.drain(..) {
                waker.wake();
            }
            if sooner {
                self.clock.sooner.notify_one();
            }
            if !effects.facts.is_empty() {
                self.observer.facts(&effects.facts);
            }
            effects.reloads.iter().for_each(|number| self.observer.reload(*number));
            effects.clear();
            taken
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic in the core is a fault of ours that must not take every other connection with it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked under the lock: the core's time never goes back, and waiting for the lock takes time.
    fn now(&self) -> Now {
        let micros = self.started.elapsed().as_micros();
        Now::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// A connection that wants what it has to write.
struct Writer<'a> {
    connection: ConnectionId,
    waker: &'a Waker,
    batch: &'a mut Vec<Outgoing>,
    may_write: bool,
}

/// What a connection got of its turn.
#[derive(Debug, Default)]
struct Taken {
    batch: Option<Batch>,
    turn: Turn,
}

/// How it stands with a connection after its turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// The session is over, and what is queued is its last.
    pub over: bool,
    /// The batch was as large as batches get: there may be more.
    pub more: bool,
}

impl Inner {
    fn write(&mut self, writer: Writer<'_>) -> Taken {
        let Writer { connection, waker, batch, may_write } = writer;
        let taken = match may_write {
            true => self.hub.take_outbound(connection, BATCH_FRAMES, BATCH_BYTES, batch),
            false => None,
        };
        let slot = self.connections.get_mut(connection.index as usize);
        if let Some(slot) = slot.filter(|slot| slot.generation == connection.generation) {
            match &mut slot.waker {
                Some(own) => own.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
        Taken { batch: taken, turn: Turn { over: self.hub.is_over(connection), more: is_full(batch) } }
    }

    fn next_due(&self) -> Option<Now> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        match (self.hub.next_timeout(), expiry) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
    }
}

/// Whether a batch may have ended for its size. What a queue adds to each message's bytes is far below the half.
fn is_full(batch: &[Outgoing]) -> bool {
    batch.len() >= BATCH_FRAMES || batch.iter().map(Outgoing::len).sum::<usize>() >= BATCH_BYTES / 2
}
