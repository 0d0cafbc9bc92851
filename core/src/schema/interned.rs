//! One copy of what many agents register alike.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use xxhash_rust::xxh3::xxh3_128;

/// What is made of bytes, and knows them.
pub(crate) trait Kept: Sized {
    /// Makes it.
    ///
    /// # Errors
    /// Why the bytes are no good, in words.
    fn read(source: &[u8]) -> Result<Self, String>;

    /// The bytes that it was made of.
    fn source(&self) -> &[u8];
}

/// Most that are in use at one time; a compiled schema has some 15 KB.
const IN_USE_MAX: usize = 8192;

/// Entries that are looked through for those that nobody uses, at least.
const SWEEP_MIN: usize = 64;

/// What is in use, by the hash of its bytes.
///
/// Users hold an `Arc`; when the last of them lets go, the content goes with it, and its place here is cleared
/// when as many places again have been taken. So there are never more than twice as many places as there were
/// things in use at one time.
#[derive(Debug)]
pub(crate) struct Interned<T> {
    known: BTreeMap<u128, Weak<T>>,
    sweep_at: usize,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), sweep_at: SWEEP_MIN }
    }
}

impl<T: Kept> Interned<T> {
    /// The shared one of these bytes, made now if nobody uses it yet.
    ///
    /// # Errors
    /// As [`Kept::read`].
    pub(crate) fn intern(&mut self, source: &[u8]) -> Result<Arc<T>, String> {
        let hash = xxh3_128(source);
        let known = self.known.get(&hash).and_then(Weak::upgrade);
        if let Some(known) = &known
            && known.source() == source
        {
            return Ok(Arc::clone(known));
        }
        let new = Arc::new(T::read(source)?);
        // Others may have made bytes of the same hash on purpose: they keep the place, and this one is not shared.
        if known.is_none() {
            self.sweep();
            self.known.insert(hash, Arc::downgrade(&new));
        }
        Ok(new)
    }

    /// The shared one of these bytes, if somebody uses it.
    pub(crate) fn known(&self, source: &[u8]) -> Option<Arc<T>> {
        let known = self.known.get(&xxh3_128(source)).and_then(Weak::upgrade);
        known.filter(|known| known.source() == source)
    }

    /// Whether as many different ones are in use as may be.
    pub(crate) fn is_full(&mut self) -> bool {
        if self.known.len() >= IN_USE_MAX {
            self.known.retain(|_, kept| kept.strong_count() > 0);
        }
        self.known.len() >= IN_USE_MAX
    }

    /// How many are in use or not yet cleared.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    fn sweep(&mut self) {
        if self.known.len() < self.sweep_at {
            return;
        }
        self.known.retain(|_, kept| kept.strong_count() > 0);
        self.sweep_at = SWEEP_MIN.max(self.known.len() * 2);
    }
}
