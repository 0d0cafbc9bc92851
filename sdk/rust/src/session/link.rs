//! The one connection: which phase it is in, whether the other end lives, when to dial again.

use std::time::Duration;

use agent_reach_protocol::{GoodbyeCode, Welcome};

use super::backoff::{Backoff, Rng};
use super::time::Now;
use crate::errors::CloseReason;

/// HELLO must be answered in this time.
const GREETING: Duration = Duration::from_secs(10);
/// After the hub's GOODBYE open calls may end on the old connection for this long.
const LEAVING: Duration = Duration::from_secs(15);
/// After our own GOODBYE the hub's close is waited for so long.
const CLOSING: Duration = Duration::from_secs(2);

/// Where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No socket; dial then.
    Waiting(Now),
    /// A dial is under way; its own bound is the dialler's.
    Dialing,
    /// HELLO is sent, WELCOME must come by then.
    Greeting(Now),
    /// In session, since then.
    Ready(Now),
    /// The hub said GOODBYE with leave to come back; what is open may end until then.
    Leaving(Now),
    /// Nothing is open any more on a connection that the hub leaves; its close is waited for until then.
    Parting(Now),
    /// We said GOODBYE; the socket is let go then at the latest.
    Closing(Now),
    /// Never again.
    Stopped,
}

/// Limits and times that WELCOME gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) keepalive: Duration,
    pub(crate) suspect: Duration,
    pub(crate) gone: Duration,
    pub(crate) max_message: usize,
    pub(crate) max_in_flight: usize,
}

impl Terms {
    pub(crate) fn of(welcome: &Welcome<'_>) -> Self {
        // A hub that says zero must not make a busy loop of us.
        let ms = |n: u64| Duration::from_millis(n.max(10));
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            keepalive: ms(welcome.keepalive_ms),
            suspect: ms(welcome.suspect_ms),
            gone: ms(welcome.gone_ms),
            max_message: size(welcome.max_message),
            max_in_flight: size(welcome.max_in_flight).max(1),
        }
    }
}

impl Terms {
    /// How long the hub may be silent before its link is given up: half way between `suspect_ms` and `gone_ms`. The
    /// hub gives up at `gone_ms`, and settles what is open then: who comes back before that carries its calls on.
    fn patience(&self) -> Duration {
        self.suspect + self.gone.saturating_sub(self.suspect) / 2
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            keepalive: Duration::from_secs(5),
            suspect: Duration::from_secs(15),
            gone: Duration::from_secs(30),
            max_message: agent_reach_protocol::limits::MESSAGE_BYTES_DEFAULT,
            max_in_flight: 1024,
        }
    }
}

/// The connection's state.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) phase: Phase,
    pub(crate) terms: Terms,
    pub(crate) heard: Now,
    pub(crate) wrote: Now,
    pinged: bool,
    backoff: Backoff,
    /// When a GOODBYE asked us to come back at the earliest.
    not_before: Option<Now>,
    /// A GOODBYE with a word that is not in our table: the close code will say what it means.
    pub(crate) unknown_goodbye: Option<(String, String)>,
}

/// What silence asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    Fine,
    Ping,
    Dead,
}

impl Link {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            phase: Phase::Waiting(Now::default()),
            terms: Terms::default(),
            heard: Now::default(),
            wrote: Now::default(),
            pinged: false,
            backoff,
            not_before: None,
            unknown_goodbye: None,
        }
    }

    /// Whether envelopes may be written at all.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Greeting(_) | Phase::Ready(_) | Phase::Leaving(_))
    }

    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    /// Whether answers to what the hub asked can be sent.
    pub(crate) const fn can_answer(&self) -> bool {
        matches!(self.phase, Phase::Ready(_) | Phase::Leaving(_))
    }

    pub(crate) fn opened(&mut self, now: Now) {
        self.phase = Phase::Greeting(now.after(GREETING));
        self.heard(now);
        self.wrote = now;
        self.not_before = None;
        self.unknown_goodbye = None;
    }

    pub(crate) const fn heard(&mut self, now: Now) {
        self.heard = now;
        self.pinged = false;
    }

    /// The hub goes, and we may come back.
    pub(crate) fn leave(&mut self, now: Now, within: Option<Duration>, rng: &mut Rng) {
        self.judge_life(now);
        self.phase = Phase::Leaving(now.after(LEAVING));
        self.not_before = within.map(|window| now.after(rng.within(window)));
    }

    /// The connection that the hub leaves is no longer needed.
    pub(crate) fn part(&mut self, now: Now) {
        self.phase = Phase::Parting(now.after(CLOSING));
    }

    pub(crate) fn close(&mut self, now: Now) {
        self.phase = Phase::Closing(now.after(CLOSING));
    }

    /// Only a session that lived a while makes the waits short again: a hub that greets and throws out
    /// would otherwise be dialled once a second for ever.
    fn judge_life(&mut self, now: Now) {
        if let Phase::Ready(since) = self.phase
            && now.since(since) >= self.terms.gone / 2
        {
            self.backoff.reset();
        }
    }

    /// The socket is gone, or never came: waits before the next dial.
    pub(crate) fn lost(&mut self, now: Now, rng: &mut Rng) {
        self.judge_life(now);
        let wait = self.backoff.next(rng);
        // A window that the hub gave replaces our own wait: it knows when the next hub is there.
        let at = self.not_before.take().unwrap_or_else(|| now.after(wait));
        self.phase = Phase::Waiting(at.max(now));
    }

    /// Looks at the silence of the other end.
    pub(crate) fn liveness(&mut self, now: Now) -> Liveness {
        let silent = now.since(self.heard);
        if !self.can_answer() {
            Liveness::Fine
        } else if silent >= self.terms.patience() {
            Liveness::Dead
        } else if silent >= self.terms.suspect && !self.pinged {
            self.pinged = true;
            Liveness::Ping
        } else {
            Liveness::Fine
        }
    }

    /// Whether the hub must hear from us: two thirds of what it allows, so that one late wake-up costs
    /// nothing.
    pub(crate) fn must_speak(&self, now: Now) -> bool {
        self.can_answer() && now >= self.speak_at()
    }

    fn speak_at(&self) -> Now {
        self.wrote.after(self.terms.keepalive * 2 / 3)
    }

    pub(crate) fn next_timeout(&self) -> Option<Now> {
        match self.phase {
            Phase::Waiting(at) | Phase::Greeting(at) | Phase::Parting(at) | Phase::Closing(at) => Some(at),
            Phase::Dialing | Phase::Stopped => None,
            Phase::Ready(_) => Some(self.speak_at().min(self.silence_at())),
            Phase::Leaving(until) => Some(until.min(self.speak_at()).min(self.silence_at())),
        }
    }

    fn silence_at(&self) -> Now {
        self.heard.after(if self.pinged { self.terms.patience() } else { self.terms.suspect })
    }
}

/// What the end of a session means by its GOODBYE word, else by the close code: `None` to come back.
pub(crate) fn verdict(word: &str, reason: &str, close_code: Option<u16>) -> Option<CloseReason> {
    let comes_back = match GoodbyeCode::parse(word) {
        Some(code) => code.reconnects(),
        None => !matches!(close_code, Some(4500..=4999)),
    };
    if comes_back {
        return None;
    }
    Some(CloseReason::Goodbye { code: word.to_owned(), reason: reason.to_owned() })
}

/// The GOODBYE word of a close code that came without one.
pub(crate) fn word_of(close_code: u16) -> String {
    GoodbyeCode::ALL
        .iter()
        .find(|code| code.close_code() == close_code && close_code >= 4000)
        .map_or_else(|| close_code.to_string(), |code| code.as_str().to_owned())
}
