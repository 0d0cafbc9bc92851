//! Sessions of browsers: a cookie in the place of a token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Hash;
use crate::tokens::{Stamp, Tokens};

/// Most sessions, of all tokens and of one. Past these the oldest ends.
pub const SESSIONS_MAX: usize = 4096;
/// Of one token.
pub const SESSIONS_EACH: usize = 64;
/// How long a session lasts.
pub const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Debug)]
struct Session {
    name: Arc<str>,
    /// Of the token that it was opened with.
    stamp: Stamp,
    until: Instant,
    /// Counts up: the oldest has the lowest.
    number: u64,
}

/// All that are open, by the hash of their cookie.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<Hash, Session>,
    opened: u64,
}

impl Sessions {
    /// Opens one.
    pub(super) fn open(&mut self, cookie: Hash, name: Arc<str>, stamp: Stamp, now: Instant) {
        self.open.retain(|_, session| session.until > now);
        let own = self.open.values().filter(|session| session.name == name).count();
        if own >= SESSIONS_EACH {
            self.end_oldest(|session| session.name == name);
        } else if self.open.len() >= SESSIONS_MAX {
            self.end_oldest(|_| true);
        }
        self.opened += 1;
        let session = Session { name, stamp, until: now + SESSION_TIME, number: self.opened };
        self.open.insert(cookie, session);
    }

    fn end_oldest(&mut self, among: impl Fn(&Session) -> bool) {
        let candidates = self.open.iter().filter(|(_, session)| among(session));
        if let Some(oldest) = candidates.min_by_key(|(_, session)| session.number).map(|(cookie, _)| *cookie)
        {
            self.open.remove(&oldest);
        }
    }

    /// Whose it is.
    pub(super) fn find(&self, cookie: &Hash, now: Instant) -> Option<&str> {
        self.open.get(cookie).filter(|session| session.until > now).map(|session| &*session.name)
    }

    /// Ends one.
    pub(super) fn close(&mut self, cookie: &Hash) {
        self.open.remove(cookie);
    }

    /// Ends those whose token is not as it was.
    pub(super) fn keep_those_of(&mut self, tokens: &Tokens) {
        self.open.retain(|_, session| tokens.stamp(&session.name).as_ref() == Some(&session.stamp));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Role;

    fn cookie(n: usize) -> Hash {
        let mut hash = Hash::default();
        hash[..8].copy_from_slice(&n.to_le_bytes());
        hash
    }

    #[test]
    fn a_session_lasts_twelve_hours_and_can_be_ended_before() {
        let own = Tokens::default().with_own("dev");
        let (mut sessions, start) = (Sessions::default(), Instant::now());
        sessions.open(cookie(1), "dev".into(), own.stamp("dev").unwrap(), start);
        let late = start + Duration::from_secs(12 * 60 * 60 - 1);
        assert_eq!(sessions.find(&cookie(1), late), Some("dev"));
        assert_eq!(sessions.find(&cookie(1), late + Duration::from_secs(1)), None);
        sessions.close(&cookie(1));
        assert_eq!(sessions.find(&cookie(1), start), None);
    }

    #[test]
    fn a_token_has_so_many_sessions_and_then_its_oldest_ends() {
        let mut tokens = Tokens::default();
        tokens.add("a", Role::Viewer).unwrap();
        let stamp = tokens.stamp("a").unwrap();
        let (mut sessions, start) = (Sessions::default(), Instant::now());
        for n in 0..=SESSIONS_EACH {
            sessions.open(cookie(n), "a".into(), stamp.clone(), start);
        }
        assert_eq!(sessions.find(&cookie(0), start), None);
        assert_eq!(sessions.find(&cookie(1), start), Some("a"));
        assert_eq!(sessions.open.len(), SESSIONS_EACH);
        for n in 0..SESSIONS_MAX {
            sessions.open(cookie(1000 + n), format!("x{n}").as_str().into(), stamp.clone(), start);
        }
        assert_eq!(sessions.open.len(), SESSIONS_MAX);
    }
}
