//! Tokens that were found good just now, so that not each request of a program costs what a token costs to check.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use tokio::sync::watch;

use super::Hash;
use crate::tokens::MAX_TOKENS;

/// How long one is known.
const KNOWN: Duration = Duration::from_secs(600);

/// Of this process alone: what is kept is of no use to who reads its memory later and wants the tokens.
pub(super) type Key = hmac::Key;

/// A new one.
pub(super) fn key() -> Result<Key, aws_lc_rs::error::Unspecified> {
    let mut bytes = Hash::default();
    SystemRandom::new().fill(&mut bytes)?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// What stands for a token.
pub(super) fn keyed(key: &Key, token: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(hmac::sign(key, token.as_bytes()).as_ref());
    hash
}

/// Those that are known. There is one token to a name, so no more than names.
#[derive(Debug, Default)]
pub(super) struct Shown(BTreeMap<Hash, (Arc<str>, Instant)>);

impl Shown {
    /// Whose it is.
    pub(super) fn find(&self, hash: &Hash, now: Instant) -> Option<&str> {
        self.0.get(hash).filter(|(_, until)| *until > now).map(|(name, _)| &**name)
    }

    /// Is known from now on.
    pub(super) fn insert(&mut self, hash: Hash, name: Arc<str>, now: Instant) {
        if self.0.len() >= MAX_TOKENS {
            self.0.retain(|_, (_, until)| *until > now);
        }
        if self.0.len() < MAX_TOKENS {
            self.0.insert(hash, (name, now + KNOWN));
        }
    }
}

/// Those that are being checked. There are no more of them than requests.
#[derive(Debug, Default)]
pub(super) struct UnderCheck(BTreeMap<Hash, watch::Receiver<()>>);

/// Who checks a token.
pub(super) enum Begun {
    /// Who asks does, and drops this at the end.
    Now(watch::Sender<()>),
    /// Somebody else does, until this is closed.
    Already(watch::Receiver<()>),
}

impl UnderCheck {
    /// Begins, unless it is being checked already.
    pub(super) fn begin(&mut self, hash: Hash) -> Begun {
        if let Some(other) = self.0.get(&hash) {
            return Begun::Already(other.clone());
        }
        let (end, others) = watch::channel(());
        self.0.insert(hash, others);
        Begun::Now(end)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// It is not being checked any more.
    pub(super) fn end(&mut self, hash: &Hash) {
        self.0.remove(hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_for_ten_minutes_and_another_never() {
        let (key, start) = (key().unwrap(), Instant::now());
        let mut shown = Shown::default();
        shown.insert(keyed(&key, "a.b"), "a".into(), start);
        assert_eq!(shown.find(&keyed(&key, "a.b"), start), Some("a"));
        assert_eq!(shown.find(&keyed(&key, "a.b"), start + KNOWN), None);
        assert_eq!(shown.find(&keyed(&key, "a.c"), start), None);
        assert_ne!(keyed(&key, "a.b"), keyed(&super::key().unwrap(), "a.b"), "the key is of the process");
    }

    #[test]
    fn what_is_known_has_a_bound() {
        let (mut shown, start) = (Shown::default(), Instant::now());
        let hash = |n: usize| {
            let mut hash = Hash::default();
            hash[..8].copy_from_slice(&n.to_le_bytes());
            hash
        };
        for n in 0..MAX_TOKENS * 2 {
            shown.insert(hash(n), "a".into(), start);
        }
        assert_eq!(shown.0.len(), MAX_TOKENS);
        shown.insert(hash(usize::MAX), "b".into(), start + KNOWN);
        assert_eq!(shown.find(&hash(usize::MAX), start + KNOWN), Some("b"), "old ones give way");
    }
}
