//! Request ids that only the store keeps: a number for each, so that a repetition is looked for there.
//!
//! Two ids may have one number, and there is a bound of how many are known by number: past it the store is asked about
//! every id. So it may be asked in vain; nothing is ever missed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashTable;
use slab::Slab;

use crate::expiry::Expiry;
use crate::time::Now;

/// One number, and when it is over.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    until: Now,
}

/// What one takes in the three collections, in bytes.
const SLOT_BYTES: usize = size_of::<Slot>() + 40;

/// All of them, bounded; past the bound the soonest to expire go first.
#[derive(Debug, Default)]
pub(crate) struct Elsewhere {
    slots: Slab<Slot>,
    index: HashTable<u32>,
    /// What it names may be gone already, or be another's by now.
    expiry: Expiry,
    most: usize,
    /// Until when there may be ids without a number here.
    unsure_until: Now,
    coming: Coming,
}

/// Numbers of ids of which the store may say that it does not know them though it does, or will: the change that brings
/// them there is on its way, or a question from before it was written is not answered.
#[derive(Debug, Default)]
struct Coming {
    /// Each with its latest change.
    numbers: BTreeMap<u64, u64>,
    /// Changes that are not written.
    unwritten: BTreeMap<u64, u64>,
    /// The latest change that is.
    written: u64,
    /// Questions about ids that are not answered.
    asked: BTreeSet<u64>,
    /// Changes that are written, with the latest question from before.
    settling: VecDeque<(u64, u64, u64)>,
}

impl Coming {
    fn add(&mut self, number: u64, change: u64) {
        if change > self.written {
            self.numbers.insert(number, change);
            self.unwritten.insert(change, number);
        } else if !self.asked.is_empty() {
            self.numbers.insert(number, change);
            self.settle(number, change);
        }
    }

    fn settle(&mut self, number: u64, change: u64) {
        self.settling.push_back((self.asked.last().copied().unwrap_or(0), number, change));
    }

    /// Lets go of those that no open question is from before.
    fn let_go(&mut self) {
        let first = self.asked.first().copied().unwrap_or(u64::MAX);
        while let Some((_, number, change)) =
            self.settling.front().copied().filter(|(asked, ..)| *asked < first)
        {
            self.settling.pop_front();
            if self.numbers.get(&number) == Some(&change) {
                self.numbers.remove(&number);
            }
        }
    }
}

impl Elsewhere {
    /// Room for so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { most: bytes / SLOT_BYTES, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn find(&self, number: u64) -> Option<u32> {
        let is_it = |slot: &u32| self.slots.get(*slot as usize).is_some_and(|slot| slot.number == number);
        self.index.find(number, is_it).copied()
    }

    /// Whether the store may know an id of this number at `now`.
    pub(crate) fn has(&self, now: Now, number: u64) -> bool {
        let slot = self.find(number).and_then(|slot| self.slots.get(slot as usize));
        slot.is_some_and(|slot| slot.until > now)
    }

    /// Whether it may know any other at `now`.
    pub(crate) fn is_unsure(&self, now: Now) -> bool {
        self.unsure_until > now
    }

    /// Adds a number, or has it last longer.
    pub(crate) fn insert(&mut self, number: u64, until: Now) {
        if let Some(slot) = self.find(number) {
            if self.slots.get(slot as usize).is_some_and(|slot| slot.until >= until) {
                return;
            }
            self.remove(number);
        }
        // A slab this large would take terabytes first.
        let slot = u32::try_from(self.slots.insert(Slot { number, until })).unwrap_or(u32::MAX);
        let slots = &self.slots;
        self.index
            .insert_unique(number, slot, |slot| slots.get(*slot as usize).map_or(0, |slot| slot.number));
        self.expiry.push(until, slot);
        while self.slots.len() > self.most {
            let Some((until, soonest)) = self.expiry.pop() else { break };
            if self.drop_at(soonest, until) {
                self.unsure_until = self.unsure_until.max(until);
            }
        }
    }

    /// Notes that the store knows a number from a change on, and not before.
    pub(crate) fn comes_with(&mut self, number: u64, change: u64) {
        self.coming.add(number, change);
    }

    /// Whether what the store says of a number cannot be relied on.
    pub(crate) fn is_coming(&self, number: u64) -> bool {
        self.coming.numbers.contains_key(&number)
    }

    /// The store has written all changes up to this one.
    pub(crate) fn written(&mut self, up_to: u64) {
        self.coming.written = self.coming.written.max(up_to);
        while let Some(first) = self.coming.unwritten.first_entry().filter(|first| *first.key() <= up_to) {
            let (change, number) = first.remove_entry();
            self.coming.settle(number, change);
        }
        self.coming.let_go();
    }

    /// These changes will never be written.
    pub(crate) fn refused(&mut self, changes: &[u64]) {
        for change in changes {
            if let Some(number) = self.coming.unwritten.remove(change) {
                self.coming.settle(number, *change);
            }
        }
        self.coming.let_go();
    }

    /// The store is asked about an id.
    pub(crate) fn asks(&mut self, question: u64) {
        self.coming.asked.insert(question);
    }

    /// It has answered, and what it said was taken in; or nobody wants to know any more.
    pub(crate) fn answered(&mut self, question: u64) {
        if self.coming.asked.remove(&question) {
            self.coming.let_go();
        }
    }

    /// Takes a number out.
    pub(crate) fn remove(&mut self, number: u64) {
        let slots = &self.slots;
        let is_it = |slot: &u32| slots.get(*slot as usize).is_some_and(|slot| slot.number == number);
        if let Ok(found) = self.index.find_entry(number, is_it) {
            let (slot, _) = found.remove();
            self.slots.try_remove(slot as usize);
        }
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some((until, slot)) = self.expiry.pop_due(now) {
            self.drop_at(slot, until);
        }
    }

    /// Takes out what is at a place, if what the expiry queue says of it still holds.
    fn drop_at(&mut self, slot: u32, until: Now) -> bool {
        let found = self.slots.get(slot as usize).filter(|slot| slot.until == until);
        let Some(number) = found.map(|slot| slot.number) else { return false };
        self.remove(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now::from_millis(1000);

    #[test]
    fn a_number_is_known_until_its_end_and_after_it_is_taken_out_no_more() {
        let mut elsewhere = Elsewhere::new(1 << 20);
        elsewhere.insert(7, NOW.plus_ms(10));
        assert!(elsewhere.has(NOW, 7) && !elsewhere.has(NOW, 8));
        assert!(!elsewhere.has(NOW.plus_ms(10), 7));
        elsewhere.insert(7, NOW.plus_ms(20));
        elsewhere.expire(NOW.plus_ms(10));
        assert!(elsewhere.has(NOW.plus_ms(10), 7), "the later end counts");
        elsewhere.expire(NOW.plus_ms(20));
        assert!(elsewhere.is_empty());
        elsewhere.insert(7, NOW.plus_ms(10));
        elsewhere.remove(7);
        assert!(!elsewhere.has(NOW, 7) && elsewhere.is_empty());
    }

    #[test]
    fn a_number_is_coming_until_the_last_change_of_it_is_written() {
        let mut elsewhere = Elsewhere::new(1 << 20);
        elsewhere.comes_with(7, 3);
        elsewhere.comes_with(8, 2);
        elsewhere.comes_with(7, 5);
        let coming = |elsewhere: &Elsewhere| [7, 8].map(|number| elsewhere.is_coming(number));
        elsewhere.written(1);
        assert_eq!(coming(&elsewhere), [true, true]);
        elsewhere.asks(9);
        elsewhere.written(4);
        assert_eq!(coming(&elsewhere), [true, true], "the ninth question is from before");
        elsewhere.asks(10);
        elsewhere.answered(9);
        assert_eq!(coming(&elsewhere), [true, false]);
        elsewhere.written(5);
        elsewhere.comes_with(8, 1);
        assert_eq!(coming(&elsewhere), [true, true], "what is written may have been asked for before");
        elsewhere.answered(10);
        elsewhere.comes_with(8, 1);
        assert_eq!(coming(&elsewhere), [false, false]);
        let Coming { numbers, unwritten, settling, asked, .. } = &elsewhere.coming;
        assert!(numbers.is_empty() && unwritten.is_empty() && settling.is_empty() && asked.is_empty());
    }

    #[test]
    fn past_the_bound_every_number_may_be_known_until_what_went_has_expired() {
        let mut elsewhere = Elsewhere::new(10 * SLOT_BYTES);
        for number in 0..100 {
            elsewhere.insert(number << 57 | number, NOW.plus_ms(1000 - number));
        }
        assert_eq!(elsewhere.slots.len(), 10);
        assert!(elsewhere.is_unsure(NOW), "the soonest to expire went, and may be asked for");
        let later = NOW.plus_ms(990);
        assert!(!elsewhere.is_unsure(later));
        let left: Vec<u64> = (0..100).filter(|number| elsewhere.has(later, number << 57 | number)).collect();
        assert_eq!(left, (0..10).collect::<Vec<_>>());
    }
}
