//! Time as an argument, and the one ordered set of everything that is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::input::ConnectionId;

/// A moment on the hub's monotonic clock, in microseconds since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now(u64);

impl Now {
    /// The moment `micros` microseconds after the hub's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The moment `ms` milliseconds after the hub's start.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Microseconds since the hub's start.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// This moment and `ms` milliseconds.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// Microseconds from `earlier` to this moment; 0 when it is not earlier.
    pub const fn micros_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Whole milliseconds from `earlier` to this moment; 0 when it is not earlier.
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.micros_since(earlier) / 1000
    }
}

/// What is due when a timer fires. The owner removes its timer before it goes, so an index is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// HELLO has to have come, or the next look at the silence of a session.
    Session(ConnectionId),
    /// The next deadline of a leg.
    Leg(usize),
    /// The end of a call's wait, or its next try.
    Call(usize),
    /// Time may have made room for a line of waiting calls.
    Line(usize),
    /// The end of an absent agent's resume window.
    Agent(usize),
    /// Results that an agent was sent and did not confirm are due again.
    Delivery(usize),
    /// A CALL waits no longer for an answer that the hub has not got.
    Question,
    /// Periodic removal of what has expired.
    Sweep,
    /// The end of a drain.
    Drain,
}

/// A moment that never comes: where no timer is set.
const NEVER: Now = Now(u64::MAX);
/// So many timers may be taken back before the queue is cleaned of them.
const STALE_MIN: usize = 1024;

/// All timers of the hub. Each [`Timer`] is set at most once at a time.
///
/// Nearly all are taken back long before they are due: a call ends in milliseconds, and its deadline is seconds
/// away. So taking back only notes it, in a table by index, and what is noted leaves the queue when it is due or when
/// it has become more than the half. Setting one is cheap as well, since most are later than all before.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    queue: BinaryHeap<Reverse<(Now, Timer)>>,
    set: Set,
}

/// For when each timer is set. What is in the queue and not here was taken back.
#[derive(Debug, Default)]
struct Set {
    /// With the generation of the connection.
    sessions: Vec<(u32, Now)>,
    legs: Vec<Now>,
    calls: Vec<Now>,
    lines: Vec<Now>,
    agents: Vec<Now>,
    deliveries: Vec<Now>,
    question: Option<Now>,
    sweep: Option<Now>,
    drain: Option<Now>,
    count: usize,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Now, timer: Timer) {
        self.set.insert(at, timer);
        self.queue.push(Reverse((at, timer)));
    }

    /// Takes back what was set for `at`; nothing, when that is over.
    pub(crate) fn clear(&mut self, at: Now, timer: Timer) {
        if !self.set.holds(at, timer) {
            return;
        }
        self.set.remove(timer);
        if self.queue.len() > STALE_MIN + 2 * self.set.count {
            let set = &self.set;
            self.queue.retain(|Reverse((at, timer))| set.holds(*at, *timer));
            self.queue.shrink_to(STALE_MIN + 3 * self.set.count);
        }
        self.drop_stale();
    }

    pub(crate) fn next(&self) -> Option<Now> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes the first timer that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, timer)) = self.queue.pop()?;
        self.set.remove(timer);
        self.drop_stale();
        Some(timer)
    }

    pub(crate) const fn len(&self) -> usize {
        self.set.count
    }

    /// Keeps the first of the queue one that is set, so that nothing wakes for what was taken back.
    fn drop_stale(&mut self) {
        while let Some(Reverse((at, timer))) = self.queue.peek()
            && !self.set.holds(*at, *timer)
        {
            self.queue.pop();
        }
    }
}

impl Set {
    fn insert(&mut self, at: Now, timer: Timer) {
        let before = match timer {
            Timer::Session(id) => {
                put(&mut self.sessions, id.index as usize, (id.generation, at), (0, NEVER)).1
            }
            Timer::Leg(index) => put(&mut self.legs, index, at, NEVER),
            Timer::Call(index) => put(&mut self.calls, index, at, NEVER),
            Timer::Line(index) => put(&mut self.lines, index, at, NEVER),
            Timer::Agent(key) => put(&mut self.agents, key, at, NEVER),
            Timer::Delivery(key) => put(&mut self.deliveries, key, at, NEVER),
            Timer::Question => self.question.replace(at).unwrap_or(NEVER),
            Timer::Sweep => self.sweep.replace(at).unwrap_or(NEVER),
            Timer::Drain => self.drain.replace(at).unwrap_or(NEVER),
        };
        debug_assert!(before == NEVER, "{timer:?} is set twice");
        self.count += usize::from(before == NEVER);
    }

    fn remove(&mut self, timer: Timer) {
        let before = match timer {
            Timer::Session(id) => put(&mut self.sessions, id.index as usize, (0, NEVER), (0, NEVER)).1,
            Timer::Leg(index) => put(&mut self.legs, index, NEVER, NEVER),
            Timer::Call(index) => put(&mut self.calls, index, NEVER, NEVER),
            Timer::Line(index) => put(&mut self.lines, index, NEVER, NEVER),
            Timer::Agent(key) => put(&mut self.agents, key, NEVER, NEVER),
            Timer::Delivery(key) => put(&mut self.deliveries, key, NEVER, NEVER),
            Timer::Question => self.question.take().unwrap_or(NEVER),
            Timer::Sweep => self.sweep.take().unwrap_or(NEVER),
            Timer::Drain => self.drain.take().unwrap_or(NEVER),
        };
        self.count -= usize::from(before != NEVER);
    }

    fn holds(&self, at: Now, timer: Timer) -> bool {
        match timer {
            Timer::Session(id) => self.sessions.get(id.index as usize) == Some(&(id.generation, at)),
            Timer::Leg(index) => self.legs.get(index) == Some(&at),
            Timer::Call(index) => self.calls.get(index) == Some(&at),
            Timer::Line(index) => self.lines.get(index) == Some(&at),
            Timer::Agent(key) => self.agents.get(key) == Some(&at),
            Timer::Delivery(key) => self.deliveries.get(key) == Some(&at),
            Timer::Question => self.question == Some(at),
            Timer::Sweep => self.sweep == Some(at),
            Timer::Drain => self.drain == Some(at),
        }
    }
}

/// Puts a value in the place of an index, gives what was there, and makes the table long enough first. Indexes are those of slabs: as dense as the slab is.
fn put<T: Copy>(table: &mut Vec<T>, index: usize, value: T, empty: T) -> T {
    if index >= table.len() {
        table.resize(index + 1, empty);
    }
    table.get_mut(index).map_or(empty, |slot| std::mem::replace(slot, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(index: usize) -> Timer {
        Timer::Leg(index)
    }

    #[test]
    fn timers_come_in_the_order_of_their_moments_and_taken_back_ones_never() {
        let mut timers = Timers::default();
        let session = |generation| Timer::Session(ConnectionId { index: 3, generation });
        for (at, timer) in
            [(5, leg(0)), (3, leg(1)), (4, session(1)), (9, Timer::Sweep), (4, Timer::Agent(7))]
        {
            timers.set(Now(at), timer);
        }
        timers.clear(Now(3), leg(1));
        timers.clear(Now(3), leg(0));
        assert_eq!(
            (timers.next(), timers.len()),
            (Some(Now(4)), 4),
            "nothing is due when the first was taken back"
        );
        timers.clear(Now(4), session(2));
        timers.clear(Now(9), Timer::Sweep);
        timers.set(Now(6), Timer::Sweep);
        let order: Vec<Timer> = std::iter::from_fn(|| timers.pop_due(Now(100))).collect();
        assert_eq!(order, [session(1), Timer::Agent(7), leg(0), Timer::Sweep]);
        assert_eq!((timers.next(), timers.len()), (None, 0));
    }

    #[test]
    fn what_is_taken_back_does_not_pile_up() {
        let mut timers = Timers::default();
        for (key, at) in (1..=10).enumerate() {
            timers.set(Now(1_000_000_000 + at), Timer::Agent(key));
        }
        for (turn, at) in (30_000_000..30_100_000).enumerate() {
            timers.set(Now(at), leg(turn % 64));
            timers.clear(Now(at), leg(turn % 64));
            assert!(timers.queue.len() <= STALE_MIN + 2 * timers.len() + 1);
        }
        assert_eq!((timers.len(), timers.next()), (10, Some(Now(1_000_000_001))));
    }
}
