//! What the peers of the simulation know: the hub is judged by nothing else.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach_core::{ConnectionId, Now};

/// One intent of a caller; it may be asked for several times.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    pub(crate) request_id: Option<String>,
    pub(crate) capability: &'static str,
    pub(crate) body: usize,
    pub(crate) stream: bool,
    pub(crate) credit: u64,
    pub(crate) all: bool,
    pub(crate) agents: Vec<String>,
    pub(crate) notify: bool,
    pub(crate) budget_ms: u64,
    pub(crate) timeout_ms: u64,
    pub(crate) keep_ms: u64,
    pub(crate) times_asked: u64,
    /// Its caller sent CANCEL.
    pub(crate) cancelled: bool,
    /// Until when its caller has to ask again, since its connection went.
    pub(crate) window: Option<Now>,
    /// A window passed, so the hub may have cancelled it.
    pub(crate) abandoned: bool,
}

/// How long a caller may take to ask again, in milliseconds.
pub(crate) const RESUME_MS: u64 = 2000;

impl Intent {
    /// The caller went away or came back: from now on it has so long to ask again.
    pub(crate) fn open_window(&mut self, now: Now) {
        self.abandoned |= self.window.is_some_and(|end| now >= end);
        self.window = Some(now.plus_ms(RESUME_MS));
    }

    /// The caller asked, in time or not.
    pub(crate) fn close_window(&mut self, now: Now) {
        self.abandoned |= self.window.take().is_some_and(|end| now >= end);
    }
}

/// One CALL of a caller that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Which intent of its agent; `None` for a call to the hub itself.
    pub(crate) intent: Option<usize>,
    /// When its end has to have come; `None` for a watch.
    pub(crate) due: Option<Now>,
    /// The intent was asked for before or after it, so its stream may begin late or go elsewhere.
    pub(crate) shared: bool,
    /// Next piece of each target.
    pub(crate) next_seq: BTreeMap<String, u64>,
}

/// One CALL that a provider was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) caller: String,
    pub(crate) request_id: String,
    pub(crate) capability: String,
    pub(crate) stream: bool,
    pub(crate) credit: u64,
    pub(crate) seq: u64,
    pub(crate) pieces: u64,
    pub(crate) accepted: bool,
    pub(crate) cancelled: bool,
    /// For its caller it is over once it is accepted.
    pub(crate) notify: bool,
}

/// One WebSocket, as its peer sees it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: ConnectionId,
    pub(crate) agent: usize,
    pub(crate) life: u64,
    /// The hub was told that it is closed.
    pub(crate) closed: bool,
    /// The hub's WebSocket close was read.
    pub(crate) ended: bool,
    pub(crate) welcomed: bool,
    /// The hub has let go of it, and hears it no more; its peer may not know.
    pub(crate) left: bool,
    /// A read is scheduled: the hub has woken it and it has not yet read everything.
    pub(crate) pending: bool,
    pub(crate) slow: bool,
    /// From when to when nothing it sends arrives.
    pub(crate) silence: Option<(Now, Now)>,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) given: BTreeMap<u64, Given>,
    pub(crate) last_given: u64,
    pub(crate) next_id: u64,
    /// CALLs read since the queue was last empty: what is about them may still come behind bodies.
    pub(crate) calls_read: BTreeSet<u64>,
    /// ERRORs that a reused id has to bring.
    pub(crate) complaints_due: u64,
}

impl Conn {
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.silence.is_some_and(|(from, to)| from <= now && now < to)
    }
}

/// One agent over all its lives.
#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) name: String,
    pub(crate) life: u64,
    pub(crate) conn: Option<ConnectionId>,
    pub(crate) slots: u64,
    pub(crate) offers: Vec<&'static str>,
    pub(crate) intents: Vec<Intent>,
    /// Intents that were open when the connection went.
    pub(crate) unfinished: Vec<usize>,
    /// `(caller, request_id)` that this life completed, and until when the hub remembers it.
    pub(crate) completed: BTreeMap<(u64, String, String), Now>,
}

/// What can happen next.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Connect(usize),
    Read(ConnectionId),
    Close(ConnectionId),
    Keepalive(ConnectionId),
    Ask(ConnectionId),
    Work(ConnectionId, u64),
    Cancel(ConnectionId, u64),
    Nonsense(ConnectionId),
    Update(ConnectionId),
    Lose(usize),
    Audit,
    Drain,
}
