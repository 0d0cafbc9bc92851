//! Request ids that only the store keeps: a number for each, so that a repetition is looked for there.
//!
//! Two ids may have one number, and there is a bound of how many are known by number: past it the store is asked about
//! every id. So it may be asked in vain; nothing is ever missed.

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
