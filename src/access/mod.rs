//! Who comes to the HTTP listener: what tokens prove, the sessions of browsers, and how often somebody may be wrong.
//!
//! Nothing that is shown here is kept: of tokens the file has hashes, and so there are of what this process makes itself
//! (sessions, the link of `dev`). Sessions outlive the process in a file of their own, the link does not; both end with a
//! reload that takes the token back.

mod attempts;
mod keeper;
mod kept;
mod link;
mod sessions;
mod shown;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::{Semaphore, watch};
use tracing::{info, warn};

use crate::tokens::{Role, Stamp, Tokens};
use attempts::Attempts;
use keeper::Keeper;
use link::Link;
use sessions::{Moment, Sessions};
pub use sessions::{SESSION_TIME, SESSIONS_EACH, SESSIONS_MAX, SessionEnd};
use shown::{Begun, Shown, UnderCheck};

/// Most tokens that are checked at one time. Each takes tens of milliseconds of a processor and 19 MiB: a flood of wrong
/// ones must not take more than that from everybody else.
const CHECKS_MAX: usize = 2;
/// Bytes of what this process makes itself.
const SECRET_BYTES: usize = 32;

/// Stands for a secret.
type Hash = [u8; 32];

/// Somebody whose token or session is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visitor {
    /// The name of the token.
    pub name: Arc<str>,
    /// What it is for.
    pub role: Role,
}

/// Why nobody is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The token is not one of this hub's, or a link was used before.
    Wrong,
    /// Too many were wrong; the time after which another may be shown.
    TooMany(Duration),
    /// The system has no randomness, or the process is ending.
    Unable,
}

/// What the HTTP listener knows of those who come to it.
pub struct Access {
    state: Mutex<State>,
    checks: Semaphore,
    shown_key: shown::Key,
    keeper: Option<Keeper>,
}

struct State {
    tokens: Arc<Tokens>,
    shown: Shown,
    checking: UnderCheck,
    sessions: Sessions,
    link: Option<Link>,
    attempts: Attempts,
}

impl Access {
    /// With the tokens that count now.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn new(tokens: Tokens) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let state = State {
            tokens: Arc::new(tokens),
            shown: Shown::default(),
            checking: UnderCheck::default(),
            sessions: Sessions::default(),
            link: None,
            attempts: Attempts::default(),
        };
        let shown_key = shown::key()?;
        let checks = Semaphore::new(CHECKS_MAX);
        Ok(Self { state: Mutex::new(state), checks, shown_key, keeper: None })
    }

    /// The same, with the sessions of a file, in which they are kept from now on ([`Access::keep_sessions`]). One that
    /// cannot be used is named in the log, and has none. Waits for the disk.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn keeping(tokens: Tokens, path: PathBuf) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut own = Self::new(tokens)?;
        let kept = kept::read(&path).unwrap_or_else(|problem| {
            warn!(%problem, "sessions of browsers begin anew");
            Vec::new()
        });
        let read = kept.len();
        let state = own.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.sessions.restore(kept, &state.tokens, Moment::now());
        info!(open = state.sessions.len(), read, "sessions of browsers are kept");
        own.keeper = Some(Keeper::new(path));
        Ok(own)
    }

    /// Other tokens count from now on. Sessions whose token is gone, or is another one or for something else, end.
    pub fn set_tokens(&self, tokens: Tokens) {
        let mut state = self.state();
        state.tokens = Arc::new(tokens);
        state.shown = Shown::default();
        let State { tokens, sessions, .. } = &mut *state;
        if sessions.keep_those_of(tokens) {
            self.note();
        }
    }

    /// Makes a token of this process that can be used for one session, and no more, in the place of one made before.
    /// The tokens need [`Tokens::with_own`].
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn make_link(&self) -> Result<String, aws_lc_rs::error::Unspecified> {
        let secret = secret()?;
        self.state().link = Some(Link::new(hash(&secret)));
        Ok(secret)
    }

    /// Whose token this is. `from`: who shows it, as far as that is known.
    ///
    /// # Errors
    /// When it is nobody's, or nobody may try.
    pub async fn bearer(&self, from: Option<IpAddr>, token: &str) -> Result<Visitor, Refused> {
        let key = shown::keyed(&self.shown_key, token);
        let _checking = loop {
            let begun = {
                let mut state = self.state();
                let known = state.shown.find(&key, Instant::now()).and_then(|name| state.visitor(name));
                if let Some(visitor) = known {
                    return Ok(visitor);
                }
                state.checking.begin(key)
            };
            match begun {
                Begun::Now(end) => break Checking { access: self, key, _end: end },
                // Many requests of a program that has just begun are one token, and no guesses.
                Begun::Already(mut other) => drop(other.changed().await),
            }
        };
        let (visitor, stamp) = self.check(from, token).await?;
        let mut state = self.state();
        // Since it was checked another token of its name may count.
        if state.tokens.stamp(&visitor.name).as_ref() == Some(&stamp) {
            state.shown.insert(key, Arc::clone(&visitor.name), Instant::now());
        }
        Ok(visitor)
    }

    /// A session for who shows a token, or the token of the link for the first time. What its cookie is to be.
    ///
    /// # Errors
    /// When it is nobody's, or nobody may try.
    pub async fn log_in(&self, from: Option<IpAddr>, token: &str) -> Result<String, Refused> {
        let used = {
            let mut state = self.state();
            let used = state.link.as_mut().is_some_and(|link| link.use_up(&hash(token)));
            let own = if used { state.tokens.own().map(str::to_owned) } else { None };
            own.and_then(|name| Some((state.visitor(&name)?, state.tokens.stamp(&name)?)))
        };
        let (visitor, stamp) = match used {
            Some(own) => own,
            None => self.check(from, token).await?,
        };
        let cookie = secret().map_err(|_| Refused::Unable)?;
        {
            let mut state = self.state();
            let State { tokens, sessions, .. } = &mut *state;
            if tokens.stamp(&visitor.name).as_ref() != Some(&stamp) {
                return Err(Refused::Wrong);
            }
            sessions.open(hash(&cookie), visitor.name, stamp, Moment::now());
            self.note();
        }
        self.settled().await;
        Ok(cookie)
    }

    /// Whose session this is, by its cookie, and how it ends.
    pub fn session(&self, cookie: &str) -> Option<(Visitor, SessionEnd)> {
        let state = self.state();
        let (name, end) = state.sessions.find(&hash(cookie), Instant::now())?;
        Some((state.visitor(name)?, end))
    }

    /// Ends a session, also for a hub that is started on the same file later.
    pub async fn log_out(&self, cookie: &str) {
        {
            let mut state = self.state();
            if state.sessions.close(&hash(cookie)) {
                self.note();
            }
        }
        self.settled().await;
    }

    fn note(&self) {
        self.keeper.iter().for_each(Keeper::note);
    }

    /// Ends when sessions are written as they are now, or that takes too long.
    pub async fn settled(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.settled().await;
        }
    }

    /// Compares a token with the hash of its name. Says what of the file it was compared with.
    async fn check(&self, from: Option<IpAddr>, token: &str) -> Result<(Visitor, Stamp), Refused> {
        // Counted before it is known to be wrong, so that many at one time are no way around it.
        self.state().attempts.begin(from, Instant::now()).map_err(Refused::TooMany)?;
        let _permit = self.checks.acquire().await.map_err(|_| Refused::Unable)?;
        let (tokens, presented) = (Arc::clone(&self.state().tokens), token.to_owned());
        let checking = tokio::task::spawn_blocking(move || {
            let name = tokens.verify(&presented)?;
            Some((tokens.stamp(name)?, name.to_owned()))
        });
        let (stamp, name) = checking.await.map_err(|_| Refused::Unable)?.ok_or(Refused::Wrong)?;
        let mut state = self.state();
        state.attempts.was_right(from);
        // It may have been taken back meanwhile.
        if state.tokens.stamp(&name).as_ref() != Some(&stamp) {
            return Err(Refused::Wrong);
        }
        Ok((state.visitor(&name).ok_or(Refused::Wrong)?, stamp))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A token is being checked, for as long as this is there.
struct Checking<'a> {
    access: &'a Access,
    key: Hash,
    _end: watch::Sender<()>,
}

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        self.access.state().checking.end(&self.key);
    }
}

impl State {
    fn visitor(&self, name: &str) -> Option<Visitor> {
        Some(Visitor { name: name.into(), role: self.tokens.role(name)? })
    }
}

/// Something that nobody can guess, to be shown later.
fn secret() -> Result<String, aws_lc_rs::error::Unspecified> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Of what nobody can guess: nothing slower is needed, and no key.
fn hash(secret: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests;
