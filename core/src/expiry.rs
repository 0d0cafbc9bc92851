//! A queue of what expires, the soonest first.
//!
//! Nearly everything is kept for one of a few times, so moments come in a few rising sequences. Each of these is
//! a list of its own, where both ends cost nothing; a heap takes what fits none of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::time::Now;

/// Most rising sequences; what peers choose beyond them costs a little more.
const RUNS_MAX: usize = 8;

/// Moments with the number of what expires then. Nothing is taken out of the middle: the owner has to know of
/// what comes out whether it still means anything.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    runs: Vec<VecDeque<(Now, u32)>>,
    rest: BinaryHeap<Reverse<(Now, u32)>>,
}

/// Where the soonest stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    Run(usize),
    Rest,
}

impl Expiry {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.rest.is_empty()
    }

    pub(crate) fn push(&mut self, at: Now, number: u32) {
        // Of the sequences it can continue the one that it continues most closely, which leaves the others open.
        let full = self.runs.len() >= RUNS_MAX;
        let fitting = self.runs.iter_mut().filter(|run| run.back().is_none_or(|(last, _)| *last <= at));
        match fitting.max_by_key(|run| run.back().copied()) {
            Some(run) => run.push_back((at, number)),
            None if !full => self.runs.push(VecDeque::from([(at, number)])),
            None => self.rest.push(Reverse((at, number))),
        }
    }

    fn soonest(&self) -> Option<(Now, Place)> {
        let runs = self.runs.iter().enumerate();
        let runs = runs.filter_map(|(place, run)| Some((run.front()?.0, Place::Run(place))));
        let rest = self.rest.peek().map(|Reverse((at, _))| (*at, Place::Rest));
        runs.chain(rest).min_by_key(|(at, _)| *at)
    }

    /// Takes out the soonest.
    pub(crate) fn pop(&mut self) -> Option<(Now, u32)> {
        let (_, place) = self.soonest()?;
        let Place::Run(place) = place else { return self.rest.pop().map(|Reverse(soonest)| soonest) };
        let run = self.runs.get_mut(place)?;
        let soonest = run.pop_front();
        if run.is_empty() {
            self.runs.swap_remove(place);
        }
        soonest
    }

    /// Takes out the soonest, if its moment has come.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<(Now, u32)> {
        self.soonest().filter(|(at, _)| *at <= now)?;
        self.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn whatever_the_order_of_coming_the_soonest_goes_first() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut expiry = Expiry::default();
            let mut left = Vec::new();
            for number in 0..500 {
                let at = Now::from_millis(u64::from(number) / 8 + rng.next() % (1 << (seed % 10)));
                expiry.push(at, number);
                left.push(at);
                if rng.below(3) == 0 {
                    let soonest = left.iter().copied().min().unwrap();
                    assert_eq!(expiry.pop().unwrap().0, soonest);
                    left.swap_remove(left.iter().position(|at| *at == soonest).unwrap());
                }
            }
            left.sort_unstable();
            for at in left {
                assert_eq!(expiry.pop().unwrap().0, at);
            }
            assert!(expiry.is_empty() && expiry.pop().is_none());
        }
    }

    #[test]
    fn two_keep_times_are_two_lists_and_an_empty_queue_holds_none() {
        let mut expiry = Expiry::default();
        for number in 0..100 {
            let now = Now::from_micros(u64::from(number));
            expiry.push(now.plus_ms(if number % 2 == 0 { 10 } else { 1000 }), number);
        }
        assert_eq!((expiry.runs.len(), expiry.rest.len()), (2, 0));
        while expiry.pop_due(Now::from_millis(2000)).is_some() {}
        assert_eq!((expiry.runs.capacity() <= 8, expiry.is_empty()), (true, true));
    }

    #[test]
    fn what_is_not_due_stays() {
        let mut expiry = Expiry::default();
        expiry.push(Now::from_millis(5), 1);
        assert_eq!(expiry.pop_due(Now::from_millis(4)), None);
        assert_eq!(expiry.pop_due(Now::from_millis(5)), Some((Now::from_millis(5), 1)));
    }
}
