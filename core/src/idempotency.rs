//! The memory of request ids: one intent of one identity runs once.
//!
//! Bounded in bytes. Past the bound the soonest to expire are forgotten first, and counted.

use std::sync::Arc;

use bytes::Bytes;
use slab::Slab;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use crate::expiry::Expiry;
use crate::time::Now;

/// Ends of a call, as messages: one, or one for each target of a fan-out and the summary.
pub(crate) type Ends = smallvec::SmallVec<[Bytes; 1]>;

/// What a CALL asks for, as far as a repetition has to agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    /// Of the capability asked for and the body. The caller alone could make two collide, to its own harm.
    pub(crate) fn of(capability: &str, body: Option<&[u8]>) -> Self {
        let body = body.map_or(0, xxh3_128);
        Self(body ^ xxh3_128(capability.as_bytes()).rotate_left(1))
    }
}

#[derive(Debug)]
enum State {
    /// The call with this index runs.
    Open(usize),
    /// Ended so.
    Ended { ends: Ends, until: Now, bytes: usize },
}

/// No entry.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    hash: u64,
    /// The next entry of its chain; [`NONE`] after the last.
    next: u32,
    identity: Arc<str>,
    request_id: Arc<str>,
    fingerprint: Fingerprint,
    state: State,
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
    /// It asked for something else.
    Conflict,
}

/// All remembered request ids.
#[derive(Debug)]
pub(crate) struct Memory {
    entries: Slab<Entry>,
    /// Where the entries of each hash begin, as many places as a power of two; at most one entry to a place on
    /// average. By seeded hash: peers choose the texts, and must not choose who meets in one chain. The entry's own
    /// texts decide, and nobody walks through all chains, so their order is nobody's.
    chains: Vec<u32>,
    /// Of ends. What it names may be gone already, or be another's by now.
    expiry: Expiry,
    bytes: usize,
    bound: usize,
    seed: u64,
}

/// What an entry costs beside its texts and ends: its place in three collections.
const ENTRY_BYTES: usize = size_of::<Entry>() + 96;

impl Memory {
    pub(crate) fn new(bound: usize, seed: u64) -> Self {
        Self { entries: Slab::new(), chains: Vec::new(), expiry: Expiry::default(), bytes: 0, bound, seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.expiry.is_empty()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn hash(&self, identity: &str, request_id: &str) -> u64 {
        xxh3_64_with_seed(request_id.as_bytes(), xxh3_64_with_seed(identity.as_bytes(), self.seed))
    }

    fn find(&self, hash: u64, identity: &str, request_id: &str) -> Option<u32> {
        let mut index = *self.chains.get(self.place(hash))?;
        while let Some(entry) = self.entries.get(index as usize) {
            if entry.hash == hash && &*entry.request_id == request_id && &*entry.identity == identity {
                return Some(index);
            }
            index = entry.next;
        }
        None
    }

    /// The chain of a hash.
    fn place(&self, hash: u64) -> usize {
        let mask = (self.chains.len() as u64).saturating_sub(1);
        usize::try_from(hash & mask).unwrap_or_default()
    }

    /// Puts a new entry into its chain; with more entries than chains it makes twice as many.
    fn link(&mut self, index: u32) {
        if self.entries.len() > self.chains.len() {
            let places = self.entries.len().next_power_of_two().max(16);
            self.chains = vec![NONE; places];
            let all: Vec<u32> =
                self.entries.iter().filter_map(|(index, _)| u32::try_from(index).ok()).collect();
            for index in all {
                self.put_first(index);
            }
        } else {
            self.put_first(index);
        }
    }

    fn put_first(&mut self, index: u32) {
        let Some(hash) = self.entries.get(index as usize).map(|entry| entry.hash) else { return };
        let place = self.place(hash);
        if let (Some(first), Some(entry)) = (self.chains.get_mut(place), self.entries.get_mut(index as usize))
        {
            entry.next = std::mem::replace(first, index);
        }
    }

    /// Takes an entry that is gone out of its chain.
    fn unlink(&mut self, index: u32, gone: &Entry) {
        let place = self.place(gone.hash);
        let Some(first) = self.chains.get_mut(place) else { return };
        if *first == index {
            *first = gone.next;
            return;
        }
        let mut before = *first;
        while let Some(entry) = self.entries.get_mut(before as usize) {
            if entry.next == index {
                entry.next = gone.next;
                return;
            }
            before = entry.next;
        }
    }

    /// Whether anything is remembered under a request id.
    pub(crate) fn has(&self, identity: &str, request_id: &str) -> bool {
        self.find(self.hash(identity, request_id), identity, request_id).is_some()
    }

    /// What is known of a request id at `now`.
    pub(crate) fn look_up(
        &self,
        now: Now,
        identity: &str,
        request_id: &str,
        fingerprint: Fingerprint,
    ) -> Known {
        let Some(index) = self.find(self.hash(identity, request_id), identity, request_id) else {
            return Known::No;
        };
        let Some(entry) = self.entries.get(index as usize) else { return Known::No };
        match &entry.state {
            State::Ended { until, .. } if *until <= now => Known::No,
            _ if entry.fingerprint != fingerprint => Known::Conflict,
            State::Open(call) => Known::Open(*call),
            State::Ended { ends, .. } => Known::Ended(ends.clone()),
        }
    }

    /// Notes that a call runs under a request id; returns the entry's handle.
    pub(crate) fn open(
        &mut self,
        identity: &Arc<str>,
        request_id: &Arc<str>,
        fingerprint: Fingerprint,
        call: usize,
    ) -> u32 {
        let hash = self.hash(identity, request_id);
        // What is left of an earlier, expired end gives way.
        if let Some(index) = self.find(hash, identity, request_id) {
            self.remove(index);
        }
        let entry = Entry {
            hash,
            next: NONE,
            identity: Arc::clone(identity),
            request_id: Arc::clone(request_id),
            fingerprint,
            state: State::Open(call),
        };
        self.bytes += ENTRY_BYTES + request_id.len();
        // A slab this large would take terabytes first.
        let index = u32::try_from(self.entries.insert(entry)).unwrap_or(u32::MAX);
        self.link(index);
        index
    }

    /// Keeps the end of a call until `until`. Returns how many others were forgotten for it.
    pub(crate) fn end(&mut self, index: u32, ends: Ends, until: Now) -> usize {
        let Some(entry) = self.entries.get_mut(index as usize) else { return 0 };
        debug_assert!(matches!(entry.state, State::Open(_)), "an intent ends once");
        let bytes = ends.iter().map(|end| end.len() + size_of::<Bytes>()).sum();
        entry.state = State::Ended { ends, until, bytes };
        self.bytes += bytes;
        self.expiry.push(until, index);
        let mut forgotten = 0;
        while self.bytes > self.bound {
            let Some((until, soonest)) = self.expiry.pop() else { break };
            if self.ends_at(soonest, until) {
                self.remove(soonest);
                forgotten += 1;
            }
        }
        forgotten
    }

    /// Forgets an entry.
    pub(crate) fn remove(&mut self, index: u32) {
        let Some(entry) = self.entries.try_remove(index as usize) else { return };
        self.unlink(index, &entry);
        self.bytes = self.bytes.saturating_sub(ENTRY_BYTES + entry.request_id.len());
        if let State::Ended { bytes, .. } = entry.state {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now: Now) {
        while let Some((until, index)) = self.expiry.pop_due(now) {
            if self.ends_at(index, until) {
                self.remove(index);
            }
        }
        if self.entries.is_empty() {
            // A busy hour is not paid for by the quiet ones after it.
            self.entries = Slab::new();
            self.chains = Vec::new();
        }
    }

    /// Whether what the expiry queue says of an entry still holds.
    fn ends_at(&self, index: u32, at: Now) -> bool {
        let entry = self.entries.get(index as usize);
        entry.is_some_and(|entry| matches!(entry.state, State::Ended { until, .. } if until == at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &'static str) -> Ends {
        smallvec::smallvec![Bytes::from_static(text.as_bytes())]
    }

    fn memory(bound: usize) -> (Memory, Arc<str>) {
        (Memory::new(bound, 7), "identity".into())
    }

    const NOW: Now = Now::from_micros(0);

    #[test]
    fn a_request_id_is_open_then_ended_then_forgotten() {
        let (mut memory, identity) = memory(1 << 20);
        let print = Fingerprint::of("a", Some(b"x"));
        assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::No));
        let entry = memory.open(&identity, &"r".into(), print, 3);
        assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::Open(3)));
        memory.end(entry, ends("done"), NOW.plus_ms(10));
        assert!(matches!(memory.look_up(NOW, "identity", "r", print), Known::Ended(e) if e == ends("done")));
        let later = NOW.plus_ms(10);
        assert!(matches!(memory.look_up(later, "identity", "r", print), Known::No));
        memory.expire(later);
        assert_eq!((memory.len(), memory.bytes()), (0, 0));
    }

    #[test]
    fn another_body_or_capability_conflicts_and_another_identity_does_not() {
        let (mut memory, identity) = memory(1 << 20);
        memory.open(&identity, &"r".into(), Fingerprint::of("a", Some(b"x")), 3);
        for other in
            [Fingerprint::of("a", Some(b"y")), Fingerprint::of("b", Some(b"x")), Fingerprint::of("a", None)]
        {
            assert!(matches!(memory.look_up(NOW, "identity", "r", other), Known::Conflict));
        }
        assert!(matches!(memory.look_up(NOW, "other", "r", Fingerprint::of("a", Some(b"x"))), Known::No));
    }

    #[test]
    fn an_id_that_is_used_again_after_its_end_expired_is_not_forgotten_with_the_old_end() {
        let (mut memory, identity) = memory(1 << 20);
        let print = Fingerprint::of("a", None);
        let entry = memory.open(&identity, &"r".into(), print, 0);
        memory.end(entry, ends("old"), NOW.plus_ms(10));
        // No sweep has come by: the old end gives way, and the new entry takes its place.
        let again = memory.open(&identity, &"r".into(), print, 1);
        assert_eq!(again, entry);
        memory.expire(NOW.plus_ms(20));
        assert!(matches!(memory.look_up(NOW.plus_ms(20), "identity", "r", print), Known::Open(1)));
        memory.end(again, ends("new"), NOW.plus_ms(40));
        memory.expire(NOW.plus_ms(30));
        assert_eq!(memory.len(), 1);
        memory.expire(NOW.plus_ms(40));
        assert_eq!((memory.len(), memory.bytes(), memory.is_empty()), (0, 0, true));
    }

    #[test]
    fn among_many_each_is_found_until_it_is_removed_and_not_after() {
        let (mut memory, identity) = memory(1 << 20);
        let print = Fingerprint::of("a", None);
        let mut rng = crate::rng::Rng::new(3);
        let mut open: Vec<(u32, String)> = Vec::new();
        for n in 0..3000 {
            if n % 3 == 2 {
                let (index, name) = open.swap_remove(rng.below(open.len()));
                memory.remove(index);
                assert!(!memory.has("identity", &name));
            } else {
                let name = format!("id-{n}");
                let index = memory.open(&identity, &name.as_str().into(), print, n);
                open.push((index, name));
            }
        }
        assert!(open.iter().all(|(_, name)| memory.has("identity", name)));
        assert!(open.len() == memory.len() && memory.chains.len() <= 2 * memory.len());
    }

    #[test]
    fn past_the_bound_the_soonest_to_expire_goes_first() {
        let (mut memory, identity) = memory(2 * (ENTRY_BYTES + 64));
        let print = Fingerprint::of("a", None);
        let mut forgotten = 0;
        for (name, until) in [("late", 30), ("soon", 10), ("middle", 20)] {
            let entry = memory.open(&identity, &name.into(), print, 0);
            forgotten += memory.end(entry, ends("e"), NOW.plus_ms(until));
        }
        assert_eq!(forgotten, 1);
        assert!(matches!(memory.look_up(NOW, "identity", "soon", print), Known::No));
        assert!(matches!(memory.look_up(NOW, "identity", "late", print), Known::Ended(_)));
    }
}
