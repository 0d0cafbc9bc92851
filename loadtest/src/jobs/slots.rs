//! Agents whose work takes time: each has some hands, and calls that find them all full wait with the agent.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::callers::LATENCY_MAX_NS;
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{CallKey, Dialect, Heard, accept, agent, hello_with_slots};
use crate::process::now_ns;

/// Bytes at the front of a call's body: who calls, and which of its calls it is. Those of a result follow with when the
/// call's slot became free, 0 for one that had never been taken.
pub(super) const HEAD_BYTES: usize = 8;

/// Which agents to connect. All offer the same capabilities.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SlotsJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// The agents.
    pub(crate) agents: Vec<Hands>,
}

/// How an agent works.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Hands {
    /// How many calls it says that it takes at a time.
    pub(crate) slots: u64,
    /// How many it works on at a time.
    pub(crate) hands: u32,
    /// How long each takes, in microseconds.
    pub(crate) work_us: u64,
}

/// What an agent did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Worked {
    /// Calls that it answered.
    pub(crate) calls: u64,
    /// Time from each CALL to its RESULT, summed, in nanoseconds.
    pub(crate) busy_ns: u64,
    /// From the first CALL to the last RESULT, in nanoseconds.
    pub(crate) span_ns: u64,
    /// Median and 99th percentile of the time between a RESULT and the CALL that took its slot, in nanoseconds.
    pub(crate) empty_ns: [u64; 2],
    /// Calls that came when all slots were taken.
    pub(crate) over: u64,
    /// Calls that came after a later one of the same caller.
    pub(crate) overtaken: u64,
}

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read, or an agent cannot connect.
pub(super) async fn run(job: SlotsJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Connector::new(job.endpoint.clone())?;
    let failures = Rc::<RefCell<Tally>>::default();
    let mut places = Vec::new();
    let mut serving = JoinSet::new();
    while let Some(order) = inbox.recv().await {
        if order == Order::Connect {
            for (number, hands) in (0..).zip(&job.agents) {
                let name = agent(number);
                let hello = hello_with_slots(&name, number, Some(1), hands.slots);
                let link = connector.introduce(&name, connector.identity(&name)?, number, &hello).await?;
                let place = Rc::new(RefCell::new(Place::new(*hands)?));
                places.push(Rc::clone(&place));
                serving.spawn_local(serve(link, place, Rc::clone(&failures)));
            }
        }
        let mut said = std::mem::take(&mut *failures.borrow_mut());
        said.worked = places.iter().map(|place| place.borrow_mut().count()).collect();
        answer(&said)?;
    }
    Ok(())
}

async fn serve(mut link: Link, place: Rc<RefCell<Place>>, failures: Rc<RefCell<Tally>>) {
    loop {
        let next = place.borrow().next();
        let turn = tokio::select! {
            // Cancel-safe: bytes stay in the link.
            filled = link.fill() => filled,
            () = done(next) => Ok(()),
        };
        let turn = turn.and_then(|()| place.borrow_mut().turn(&mut link));
        let turn = match turn {
            Ok(()) => link.flush().await,
            Err(error) => Err(error),
        };
        if let Err(error) = turn {
            return failures.borrow_mut().fail(&error);
        }
    }
}

async fn done(next: Option<Instant>) {
    match next {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// A call that is worked on, or waits for a hand.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    ends_at: u64,
    call: CallKey,
    came_at: u64,
    slot_free_at: u64,
    body: Bytes,
}

/// The calls of one agent. Times are nanoseconds of the machine's clock.
struct Place {
    hands: Hands,
    /// When each hand is free.
    free: BinaryHeap<Reverse<u64>>,
    working: BinaryHeap<Reverse<Work>>,
    /// When slots became free that are not taken again, oldest first; 0: was never taken.
    slots: VecDeque<u64>,
    /// Latest call of each caller.
    latest: HashMap<u32, u32>,
    first_at: u64,
    last_at: u64,
    worked: Worked,
    empty: Histogram<u64>,
}

impl Place {
    fn new(hands: Hands) -> Result<Self> {
        Ok(Self {
            hands,
            free: (0..hands.hands).map(|_| Reverse(0)).collect(),
            working: BinaryHeap::new(),
            slots: (0..hands.slots).map(|_| 0).collect(),
            latest: HashMap::new(),
            first_at: 0,
            last_at: 0,
            worked: Worked::default(),
            empty: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?,
        })
    }

    /// When the next call is done.
    fn next(&self) -> Option<Instant> {
        let Reverse(work) = self.working.peek()?;
        let rest = work.ends_at.saturating_sub(now_ns().ok()?);
        Some(Instant::now() + Duration::from_nanos(rest))
    }

    /// Takes what has come, and answers what is done.
    fn turn(&mut self, link: &mut Link) -> Result<()> {
        let now = now_ns()?;
        while let Some(message) = link.pop()? {
            if let Heard::Call(call, body) = Dialect::Hub.heard(&message)? {
                link.push(&accept(call));
                self.take(call, body, now)?;
            }
        }
        // Now again: a slot that is free a moment later than was thought would look taken too early.
        let now = now_ns()?;
        while let Some(Reverse(work)) = self.working.peek().filter(|Reverse(work)| work.ends_at <= now) {
            link.push(&Dialect::Hub.result(0, work.call, &Self::end_of(work)));
            self.worked.calls += 1;
            self.worked.busy_ns += now.saturating_sub(work.came_at);
            self.last_at = now;
            self.slots.push_back(now);
            self.working.pop();
        }
        Ok(())
    }

    fn take(&mut self, call: CallKey, body: Bytes, now: u64) -> Result<()> {
        let slot_free_at = self.slots.pop_front();
        self.worked.over += u64::from(slot_free_at.is_none());
        if let Some(free_at) = slot_free_at.filter(|at| *at > 0) {
            self.empty.saturating_record(now.saturating_sub(free_at));
        }
        if self.first_at == 0 {
            self.first_at = now;
        }
        let mut head = body.clone();
        let caller = head.try_get_u32().context("a call that says no caller")?;
        let number = head.try_get_u32().context("a call that says no number")?;
        let latest = self.latest.entry(caller).or_default();
        self.worked.overtaken += u64::from(number < *latest);
        *latest = number.max(*latest);
        let hand_free_at = self.free.pop().map_or(0, |Reverse(at)| at);
        let ends_at = now.max(hand_free_at) + self.hands.work_us * 1000;
        self.free.push(Reverse(ends_at));
        let slot_free_at = slot_free_at.unwrap_or_default();
        self.working.push(Reverse(Work { ends_at, call, came_at: now, slot_free_at, body }));
        Ok(())
    }

    /// The body of a result: as long as that of the call, or as its own head.
    fn end_of(work: &Work) -> Vec<u8> {
        let mut body: Vec<u8> = work.body.iter().copied().take(HEAD_BYTES).collect();
        body.extend(work.slot_free_at.to_be_bytes());
        body.extend(work.body.iter().skip(body.len()));
        body
    }

    /// What was done since the last time.
    fn count(&mut self) -> Worked {
        let at = |quantile| self.empty.value_at_quantile(quantile);
        let empty_ns = [at(0.5), at(0.99)];
        let span_ns = self.last_at.saturating_sub(self.first_at);
        self.empty.reset();
        self.first_at = 0;
        Worked { empty_ns, span_ns, ..std::mem::take(&mut self.worked) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn body(number: u32) -> Bytes {
        [7_u32.to_be_bytes(), number.to_be_bytes()].concat().into()
    }

    fn ends(place: &Place) -> Vec<u64> {
        let mut ends: Vec<u64> = place.working.iter().map(|Reverse(work)| work.ends_at).collect();
        ends.sort_unstable();
        ends
    }

    #[test]
    fn a_call_that_finds_every_hand_full_waits_for_the_first_that_is_free() {
        let mut place = Place::new(Hands { slots: 8, hands: 2, work_us: 5000 }).unwrap();
        for (number, at) in [(1, MS), (2, 2 * MS), (3, 3 * MS), (4, 20 * MS)] {
            place.take((0, u64::from(number)), body(number), at).unwrap();
        }
        assert_eq!(ends(&place), [6 * MS, 7 * MS, 11 * MS, 25 * MS]);
        assert_eq!((place.worked.over, place.worked.overtaken), (0, 0));
    }

    #[test]
    fn more_calls_than_slots_and_calls_out_of_order_are_counted() {
        let mut place = Place::new(Hands { slots: 2, hands: 2, work_us: 5000 }).unwrap();
        for (number, at) in [(2, 1), (1, 2), (3, 3)] {
            place.take((0, u64::from(number)), body(number), at).unwrap();
        }
        let worked = place.count();
        assert_eq!((worked.over, worked.overtaken), (1, 1));
    }

    #[test]
    fn a_result_says_when_the_slot_of_its_call_became_free() {
        let mut place = Place::new(Hands { slots: 1, hands: 1, work_us: 5000 }).unwrap();
        place.slots = [42].into();
        place.take((0, 1), body(9), 50).unwrap();
        let Some(Reverse(work)) = place.working.pop() else { panic!("no work") };
        let said = Place::end_of(&work);
        assert_eq!(said, [&body(9)[..], &42_u64.to_be_bytes()].concat());
        assert_eq!(place.count().empty_ns, [8, 8]);
    }
}
