//! The memory of request ids: one intent of one identity runs once.
//!
//! Bounded in bytes. Past the bound the soonest to expire go first. Of what the store keeps as well only a number stays
//! then, so that a repetition is looked for there; what nobody keeps is forgotten, and counted.

mod pack;
mod room;

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use pack::Pack;

use crate::elsewhere::Elsewhere;
use crate::expiry::Expiry;
use crate::fingerprint::Fingerprint;
use crate::request_key::Key;
use crate::store::TaskId;
use crate::time::Now;

/// Ends of a call, as messages: one, or one for each target of a fan-out and the summary.
pub(crate) type Ends = SmallVec<[Bytes; 1]>;

#[derive(Debug)]
enum State {
    /// The call with this index runs.
    Open(usize),
    /// Ended so. `stored`: the change that has the store keep it as well.
    Ended { ends: Ends, until: Now, bytes: usize, good_at: Option<Now>, stored: Option<u64> },
    /// It was this task, whose end the store keeps, from this change on.
    Task { task: TaskId, until: Now, change: u64 },
}

impl State {
    /// Until when an end is kept.
    const fn until(&self) -> Option<Now> {
        match self {
            Self::Open(_) => None,
            Self::Ended { until, .. } | Self::Task { until, .. } => Some(*until),
        }
    }
}

#[derive(Debug)]
struct Entry {
    key: Key,
    identity: Arc<str>,
    fingerprint: Fingerprint,
    state: State,
}

impl Entry {
    /// Whether another asks for the same.
    fn asks_as(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint && *self.identity == *other.identity
    }

    /// What its place among the results goes by. Who makes many fingerprints meet slows down its own calls.
    const fn result_tag(&self) -> u32 {
        Key::new(self.fingerprint.bits()).tag()
    }
}

/// Where an entry stands. The tag keeps searches away from entries of other ids, which are in no cache any more.
#[derive(Clone, Copy, Debug)]
struct Slot {
    tag: u32,
    index: u32,
}

impl Slot {
    fn hash(self) -> u64 {
        spread(self.tag)
    }
}

/// A tag over all bits of a hash, of which the table reads both ends.
const fn spread(tag: u32) -> u64 {
    (tag as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What is known of a request id.
#[derive(Debug)]
pub(crate) enum Known {
    /// Nothing: the call is new.
    No,
    /// This call runs.
    Open(usize),
    /// It ended so.
    Ended(Ends),
    /// It was this task, which has ended.
    Task(TaskId),
    /// The store knows, or once did.
    Elsewhere,
    /// The store is to know, and does not yet, or cannot be relied on yet.
    Coming,
    /// Nothing, but the store may know more ids than are known here.
    Unsure,
    /// It asked for something else.
    Conflict,
}

/// How a call ended whose request id is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) ends: Ends,
    pub(crate) until: Now,
    /// When it came about, if it is a result that a later call for the same may have in the place of none.
    pub(crate) good_at: Option<Now>,
    /// The change that has the store keep it as well.
    pub(crate) stored: Option<u64>,
}

/// All remembered request ids.
#[derive(Debug)]
pub(crate) struct Memory {
    entries: Slab<Entry>,
    /// By seeded hash: peers choose the texts, and must not choose who meets in one place. Nobody walks through the
    /// whole table, so its order is nobody's.
    index: HashTable<Slot>,
    /// The last good result of each identity, capability and body; made when somebody first asks for one, so that a
    /// hub where nobody does pays nothing.
    results: Option<HashTable<Slot>>,
    /// Of ends. What it names may be gone already, or be another's by now.
    expiry: Expiry,
    /// What only the store keeps.
    pub(crate) elsewhere: Elsewhere,
    /// Where ends that are kept for as long as the usual one are copied to.
    pub(crate) pack: Pack,
    bytes: usize,
    bound: usize,
    seed: u64,
}

/// What an entry costs beside its ends: its place in three collections.
const ENTRY_BYTES: usize = size_of::<Entry>() + 96;
/// Which part of the bound may go to what only the store keeps, beside it.
const ELSEWHERE_SHARE: usize = 4;

impl Memory {
    pub(crate) fn new(bound: usize, seed: u64) -> Self {
        Self {
            entries: Slab::new(),
            index: HashTable::new(),
            results: None,
            expiry: Expiry::default(),
            elsewhere: Elsewhere::new(bound / ELSEWHERE_SHARE),
            pack: Pack::default(),
            bytes: 0,
            bound,
            seed,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.expiry.is_empty() && self.elsewhere.is_empty()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn key(&self, identity: &str, request_id: &str) -> Key {
        let seed = xxh3_64_with_seed(identity.as_bytes(), self.seed);
        Key::new(xxh3_128_with_seed(request_id.as_bytes(), seed))
    }

    fn find(&self, key: Key, identity: &str) -> Option<u32> {
        let tag = key.tag();
        let found = self.index.find(spread(tag), |slot| {
            let entry = (slot.tag == tag).then(|| self.entries.get(slot.index as usize)).flatten();
            entry.is_some_and(|entry| entry.key == key && *entry.identity == *identity)
        });
        found.map(|slot| slot.index)
    }

    /// Whether anything is remembered under a request id.
    pub(crate) fn has(&self, identity: &str, request_id: &str) -> bool {
        self.find(self.key(identity, request_id), identity).is_some()
    }

    /// What is known of a request id at `now`.
    pub(crate) fn look_up(
        &self,
        now: Now,
        identity: &str,
        request_id: &str,
        fingerprint: Fingerprint,
    ) -> Known {
        let key = self.key(identity, request_id);
        let found = self.find(key, identity).and_then(|index| self.entries.get(index as usize));
        match found {
            None if self.elsewhere.is_coming(key.number()) => Known::Coming,
            None if self.elsewhere.has(now, key.number()) => Known::Elsewhere,
            None if self.elsewhere.is_unsure(now) => Known::Unsure,
            None => Known::No,
            Some(entry) if entry.state.until().is_some_and(|until| until <= now) => Known::No,
            Some(entry) if entry.fingerprint != fingerprint => Known::Conflict,
            Some(entry) => match &entry.state {
                State::Open(call) => Known::Open(*call),
                State::Ended { ends, .. } => Known::Ended(ends.clone()),
                State::Task { task, .. } => Known::Task(*task),
            },
        }
    }

    /// Notes that the store keeps a request id.
    pub(crate) fn is_elsewhere(&mut self, identity: &str, request_id: &str, until: Now) {
        let number = self.key(identity, request_id).number();
        self.elsewhere.insert(number, until);
    }

    /// Notes that the store does not know a request id, unless it has come to know it since it was asked.
    pub(crate) fn is_nowhere(&mut self, identity: &str, request_id: &str) {
        let number = self.key(identity, request_id).number();
        if !self.elsewhere.is_coming(number) {
            self.elsewhere.remove(number);
        }
    }

    /// Whose an entry is, and what it asks for.
    pub(crate) fn asked(&self, index: u32) -> Option<(Arc<str>, Fingerprint)> {
        let entry = self.entries.get(index as usize)?;
        Some((Arc::clone(&entry.identity), entry.fingerprint))
    }

    /// Notes that a call runs under a request id; returns the entry's handle.
    pub(crate) fn open(
        &mut self,
        identity: Arc<str>,
        request_id: &str,
        fingerprint: Fingerprint,
        call: usize,
    ) -> u32 {
        let key = self.key(&identity, request_id);
        // What is left of an earlier, expired end gives way.
        if let Some(index) = self.find(key, &identity) {
            self.remove(index);
        }
        let entry = Entry { key, identity, fingerprint, state: State::Open(call) };
        self.bytes += ENTRY_BYTES;
        // A slab this large would take terabytes first.
        let index = u32::try_from(self.entries.insert(entry)).unwrap_or(u32::MAX);
        let slot = Slot { tag: key.tag(), index };
        self.index.insert_unique(slot.hash(), slot, |slot| slot.hash());
        index
    }

    /// Keeps the end of a call. Returns how many others were forgotten for it.
    pub(crate) fn end(&mut self, index: u32, kept: Kept) -> usize {
        let Kept { ends, until, good_at, stored } = kept;
        let Some(entry) = self.entries.get_mut(index as usize) else { return 0 };
        debug_assert!(matches!(entry.state, State::Open(_)), "an intent ends once");
        let bytes = ends.iter().map(|end| end.len() + size_of::<Bytes>()).sum();
        entry.state = State::Ended { ends, until, bytes, good_at, stored };
        self.bytes += bytes;
        self.expiry.push(until, index);
        if good_at.is_some() && self.results.is_some() {
            self.keep_result(index);
        }
        self.make_room()
    }

    /// Keeps which task a request id was for. Returns how many others were forgotten for it.
    pub(crate) fn end_task(&mut self, index: u32, task: TaskId, until: Now, change: u64) -> usize {
        let Some(entry) = self.entries.get_mut(index as usize) else { return 0 };
        entry.state = State::Task { task, until, change };
        self.expiry.push(until, index);
        self.make_room()
    }

    /// The last good result of the same identity, capability and body as this entry's, with its age in milliseconds,
    /// unless it is older than `age_ms`.
    pub(crate) fn cached(&mut self, now: Now, index: u32, age_ms: u64) -> Option<(u64, Bytes)> {
        if self.results.is_none() {
            self.results = Some(HashTable::new());
            let all = self.entries.iter().filter_map(|(index, _)| u32::try_from(index).ok());
            for index in all.collect::<Vec<_>>() {
                self.keep_result(index);
            }
        }
        let asked = self.entries.get(index as usize)?;
        let tag = asked.result_tag();
        let found = self.results.as_ref()?.find(spread(tag), |slot| {
            slot.tag == tag && self.entries.get(slot.index as usize).is_some_and(|entry| entry.asks_as(asked))
        })?;
        match &self.entries.get(found.index as usize)?.state {
            State::Ended { ends, until, good_at: Some(at), .. } if *until > now => {
                let age = now.ms_since(*at);
                (age <= age_ms).then(|| Some((age, ends.first()?.clone())))?
            }
            State::Ended { .. } | State::Open(_) | State::Task { .. } => None,
        }
    }

    /// Puts a good result in the place of an earlier one for the same.
    fn keep_result(&mut self, index: u32) {
        let Some(entry) = self.entries.get(index as usize) else { return };
        let State::Ended { good_at: Some(at), .. } = entry.state else { return };
        let Some(results) = &mut self.results else { return };
        let (tag, entries) = (entry.result_tag(), &self.entries);
        let slot = Slot { tag, index };
        let same = |slot: &Slot| entries.get(slot.index as usize).is_some_and(|other| other.asks_as(entry));
        match results.find_mut(spread(tag), same) {
            Some(before) => {
                let good_at = |entry: &Entry| match entry.state {
                    State::Ended { good_at, .. } => good_at,
                    State::Open(_) | State::Task { .. } => None,
                };
                if entries.get(before.index as usize).and_then(good_at) <= Some(at) {
                    *before = slot;
                }
            }
            None => {
                results.insert_unique(slot.hash(), slot, |slot| slot.hash());
            }
        }
    }

    /// Forgets an entry.
    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(entry) = self.take_out(index) {
            self.unlist(index, &entry);
        }
    }

    /// Takes an entry out of its place, which still is in the tables: [`Memory::unlist`] follows.
    fn take_out(&mut self, index: u32) -> Option<Entry> {
        let entry = self.entries.try_remove(index as usize)?;
        let ends = match entry.state {
            State::Ended { bytes, .. } => bytes,
            State::Open(_) | State::Task { .. } => 0,
        };
        self.bytes = self.bytes.saturating_sub(ENTRY_BYTES + ends);
        Some(entry)
    }

    /// Removes what leads to an entry that was taken out.
    fn unlist(&mut self, index: u32, entry: &Entry) {
        if let Ok(slot) = self.index.find_entry(spread(entry.key.tag()), |slot| slot.index == index) {
            slot.remove();
        }
        if let (Some(results), State::Ended { good_at: Some(_), .. }) = (&mut self.results, &entry.state)
            && let Ok(slot) = results.find_entry(spread(entry.result_tag()), |slot| slot.index == index)
        {
            slot.remove();
        }
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some((until, index)) = self.expiry.pop_due(now) {
            if self.ends_at(index, until) {
                self.remove(index);
            }
        }
        self.elsewhere.expire(now);
        if self.entries.is_empty() {
            // A busy hour is not paid for by the quiet ones after it.
            self.entries = Slab::new();
            self.index = HashTable::new();
            self.results = None;
            self.pack = Pack::default();
        }
    }

    /// Whether what the expiry queue says of an entry still holds.
    fn ends_at(&self, index: u32, at: Now) -> bool {
        let entry = self.entries.get(index as usize);
        entry.is_some_and(|entry| entry.state.until() == Some(at))
    }
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
