//! Sessions of browsers: a cookie in the place of a token.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::Hash;
use super::kept::Kept;
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
    /// When it was opened, in seconds since 1970.
    created: u64,
    /// Counts up: the oldest has the lowest.
    number: u64,
    /// Gone with the session, which is how those hear of it who stay for as long as it lasts.
    open: watch::Sender<()>,
}

/// The end of a session, for what was opened with it and lasts.
#[derive(Clone, Debug)]
pub struct SessionEnd {
    open: watch::Receiver<()>,
    until: Instant,
}

impl SessionEnd {
    /// Waits until the session is over: its time, somebody who logged out, a token that was taken back.
    pub async fn come(mut self) {
        // Nothing is ever sent: what comes is the end of the sender.
        let over = async { while self.open.changed().await.is_ok() {} };
        let (Ok(()) | Err(_)) = tokio::time::timeout_at(self.until.into(), over).await;
    }
}

impl Session {
    /// One that has no place yet.
    fn new(name: Arc<str>, stamp: Stamp, until: Instant, created: u64) -> Self {
        Self { name, stamp, until, created, number: 0, open: watch::Sender::new(()) }
    }
}

/// One moment by the clock that only goes on, and by the one that outlives the process, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) unix: u64,
}

impl Moment {
    /// This one.
    pub(super) fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { now: Instant::now(), unix }
    }
}

/// All that are open, by the hash of their cookie.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<Hash, Session>,
    opened: u64,
}

impl Sessions {
    /// Opens one.
    pub(super) fn open(&mut self, cookie: Hash, name: Arc<str>, stamp: Stamp, at: Moment) {
        let (until, created) = (at.now + SESSION_TIME, at.unix);
        self.insert(cookie, Session::new(name, stamp, until, created), at.now);
    }

    fn insert(&mut self, cookie: Hash, session: Session, now: Instant) {
        self.open.retain(|_, session| session.until > now);
        let own = self.open.values().filter(|open| open.name == session.name).count();
        if own >= SESSIONS_EACH {
            self.end_oldest(|open| open.name == session.name);
        } else if self.open.len() >= SESSIONS_MAX {
            self.end_oldest(|_| true);
        }
        self.opened += 1;
        self.open.insert(cookie, Session { number: self.opened, ..session });
    }

    /// All of them as they are written down, the oldest first.
    pub(super) fn kept(&self) -> Vec<Kept> {
        let mut open: Vec<_> = self.open.iter().collect();
        open.sort_unstable_by_key(|(_, session)| session.number);
        let kept = |(cookie, session): (&Hash, &Session)| Kept {
            cookie: *cookie,
            token: session.stamp.digest(),
            created: session.created,
            until: session.created + SESSION_TIME.as_secs(),
            name: Arc::clone(&session.name),
        };
        open.into_iter().map(kept).collect()
    }

    /// Opens what was written down, as far as its time is not over and its token is the one that it was. A session of
    /// the future does not count either: nobody knows how long it would last.
    pub(super) fn restore(&mut self, kept: Vec<Kept>, tokens: &Tokens, at: Moment) {
        for Kept { cookie, token, created, until, name } in kept {
            let stamp = tokens.stamp(&name).filter(|stamp| stamp.digest() == token);
            let left = until.checked_sub(at.unix).filter(|left| *left > 0 && created <= at.unix);
            if let (Some(stamp), Some(left)) = (stamp, left) {
                let until = at.now + Duration::from_secs(left).min(SESSION_TIME);
                self.insert(cookie, Session::new(name, stamp, until, created), at.now);
            }
        }
    }

    fn end_oldest(&mut self, among: impl Fn(&Session) -> bool) {
        let candidates = self.open.iter().filter(|(_, session)| among(session));
        if let Some(oldest) = candidates.min_by_key(|(_, session)| session.number).map(|(cookie, _)| *cookie)
        {
            self.open.remove(&oldest);
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whose it is, and how it ends.
    pub(super) fn find(&self, cookie: &Hash, now: Instant) -> Option<(&str, SessionEnd)> {
        let session = self.open.get(cookie).filter(|session| session.until > now)?;
        let end = SessionEnd { open: session.open.subscribe(), until: session.until };
        Some((&session.name, end))
    }

    /// Ends one. Whether there was one.
    pub(super) fn close(&mut self, cookie: &Hash) -> bool {
        self.open.remove(cookie).is_some()
    }

    /// Ends those whose token is not as it was. Whether there were any.
    pub(super) fn keep_those_of(&mut self, tokens: &Tokens) -> bool {
        let before = self.open.len();
        self.open.retain(|_, session| tokens.stamp(&session.name).as_ref() == Some(&session.stamp));
        self.open.len() < before
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

    fn whose<'a>(sessions: &'a Sessions, cookie: &Hash, now: Instant) -> Option<&'a str> {
        sessions.find(cookie, now).map(|(name, _)| name)
    }

    #[test]
    fn a_session_lasts_twelve_hours_and_can_be_ended_before() {
        let own = Tokens::default().with_own("dev");
        let (mut sessions, start) = (Sessions::default(), Instant::now());
        let at = Moment { now: start, unix: 1000 };
        sessions.open(cookie(1), "dev".into(), own.stamp("dev").unwrap(), at);
        let late = start + Duration::from_secs(12 * 60 * 60 - 1);
        assert_eq!(whose(&sessions, &cookie(1), late), Some("dev"));
        assert_eq!(whose(&sessions, &cookie(1), late + Duration::from_secs(1)), None);
        sessions.close(&cookie(1));
        assert_eq!(whose(&sessions, &cookie(1), start), None);
    }

    #[test]
    fn a_token_has_so_many_sessions_and_then_its_oldest_ends() {
        let mut tokens = Tokens::default();
        tokens.add("a", Role::Viewer).unwrap();
        let stamp = tokens.stamp("a").unwrap();
        let (mut sessions, start) = (Sessions::default(), Instant::now());
        let at = Moment { now: start, unix: 1000 };
        for n in 0..=SESSIONS_EACH {
            sessions.open(cookie(n), "a".into(), stamp.clone(), at);
        }
        assert_eq!(whose(&sessions, &cookie(0), start), None);
        assert_eq!(whose(&sessions, &cookie(1), start), Some("a"));
        assert_eq!(sessions.open.len(), SESSIONS_EACH);
        for n in 0..SESSIONS_MAX {
            sessions.open(cookie(1000 + n), format!("x{n}").as_str().into(), stamp.clone(), at);
        }
        assert_eq!(sessions.open.len(), SESSIONS_MAX);
    }

    #[test]
    fn what_was_written_down_counts_while_its_time_lasts_and_its_token_is_the_one_it_was() {
        let mut tokens = Tokens::default().with_own("dev");
        for name in ["a", "b", "c"] {
            tokens.add(name, Role::Viewer).unwrap();
        }
        let (mut sessions, now) = (Sessions::default(), Instant::now());
        for (n, name) in ["a", "b", "c", "dev"].into_iter().enumerate() {
            let at = Moment { now, unix: 1000 + n as u64 };
            sessions.open(cookie(n), name.into(), tokens.stamp(name).unwrap(), at);
        }
        let kept = sessions.kept();
        assert_eq!(kept.iter().map(|kept| kept.created).collect::<Vec<_>>(), [1000, 1001, 1002, 1003]);
        // b is no more, c was made anew, with the same name for the same purpose.
        let text = |tokens: &Tokens| {
            let dir = tempfile::tempdir().unwrap();
            tokens.write(&dir.path().join("t")).unwrap();
            Tokens::load(&dir.path().join("t")).unwrap()
        };
        let mut later = Tokens::default();
        later.add("c", Role::Viewer).unwrap();
        later.adopt(&text(&tokens), "a");
        let later = later.with_own("dev");
        let found = |unix: u64, wait: u64| {
            let mut again = Sessions::default();
            again.restore(kept.clone(), &later, Moment { now, unix });
            let then = now + Duration::from_secs(wait);
            (0..4).filter(|n| again.find(&cookie(*n), then).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(found(2000, 0), [0, 3]);
        assert_eq!(found(2000, 43_200 - 1000 - 1), [0, 3], "its time goes on");
        assert_eq!(found(2000, 43_200 - 1000), [3], "and is over when it would have been");
        assert_eq!(found(1000 + 43_200, 0), [3]);
        assert_eq!(found(1000, 0), [0], "what is of the future does not count");
        assert_eq!(found(0, 0), [0; 0]);
    }
}
