//! What the peers of the simulation know: the hub is judged by nothing else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use agent_reach_core::{ConnectionId, Now, TaskId};
use agent_reach_protocol::{Labels, Policy, Priority};
use bytes::Bytes;

use super::asking::Question;

/// One intent of a caller; it may be asked for several times.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    /// Number in the whole world: it travels with the CALL and comes back in the answer.
    pub(crate) number: u64,
    pub(crate) request_id: Option<String>,
    pub(crate) capability: &'static str,
    pub(crate) body: usize,
    pub(crate) stream: bool,
    pub(crate) credit: u64,
    pub(crate) select: Select,
    pub(crate) agents: Vec<String>,
    /// Only agents of this zone.
    pub(crate) zone: Option<&'static str>,
    pub(crate) notify: bool,
    /// It is a task, whose end goes to this inbox as well.
    pub(crate) task: Option<Option<String>>,
    pub(crate) budget_ms: u64,
    pub(crate) timeout_ms: u64,
    pub(crate) accept_ms: u64,
    pub(crate) keep_ms: u64,
    pub(crate) terms: Terms,
    /// When the hub got it first, and how many agents had registered until then.
    pub(crate) first: Option<(Now, u64)>,
    pub(crate) times_asked: u64,
    /// Windows and CREDIT of all who asked for it, together.
    pub(crate) granted: u64,
    /// When the hub got a piece of it last.
    pub(crate) progress: Option<Now>,
    /// Its caller sent CANCEL.
    pub(crate) cancelled: bool,
    /// Until when its caller has to ask again, since its connection went.
    pub(crate) window: Option<Now>,
    /// A window passed, so the hub may have cancelled it.
    pub(crate) abandoned: bool,
}

/// What a caller says of who may take its call, and of what may be done about trouble.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// Further tries on the same agent.
    pub(crate) retries: u64,
    pub(crate) fallback: bool,
    /// Oldest result that will do, in milliseconds.
    pub(crate) cached_ms: u64,
    /// It waits while all are busy.
    pub(crate) queue: bool,
    /// It waits for so long for somebody to come.
    pub(crate) wait_ms: u64,
    pub(crate) priority: Priority,
    pub(crate) policy: Policy,
    pub(crate) affinity: Option<&'static str>,
    pub(crate) version: Option<&'static str>,
    pub(crate) prefer: Labels<'static>,
}

impl Terms {
    /// One try at once, or none: each phase ends when it says.
    pub(crate) fn are_plain(&self) -> bool {
        self.retries == 0 && !self.fallback && self.cached_ms == 0 && !self.queue && self.wait_ms == 0
    }

    /// Tries that the hub may make beside those that a lost connection takes with it.
    pub(crate) fn tries(&self) -> u64 {
        1 + self.retries + u64::from(self.fallback)
    }
}

/// How many targets an intent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Select {
    One,
    Count(u64),
    All,
}

/// How long a caller may take to ask again, in milliseconds.
pub(crate) const RESUME_MS: u64 = 2000;

impl Intent {
    pub(crate) fn is_fan_out(&self) -> bool {
        self.select != Select::One || self.agents.len() > 1
    }

    /// The caller's connection went: from now on it has so long to ask again.
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
    /// When the hub got it.
    pub(crate) arrived: Option<Now>,
    /// When its end has to have come; `None` for a watch, and before it arrived.
    pub(crate) due: Option<Now>,
    /// When its present phase ends; `None` where that is not known exactly.
    pub(crate) phase_due: Option<Now>,
    /// The intent was asked for before or after it, or a part of its answer could not be told: its stream may
    /// begin late or go elsewhere.
    pub(crate) shared: bool,
    /// Size of the body that it was asked with.
    pub(crate) body: usize,
    /// Its window and the CREDIT sent for it.
    pub(crate) granted: u64,
    /// Next piece of each target.
    pub(crate) next_seq: BTreeMap<String, u64>,
    /// Targets of a fan-out whose part has ended.
    pub(crate) parts: BTreeSet<String>,
    /// It asks for a slot that is certainly free.
    pub(crate) probe: bool,
    /// The task that it was accepted as, and when its caller was told.
    pub(crate) task: Option<TaskId>,
    pub(crate) told: Option<Now>,
    /// Its end was delivered without its id.
    pub(crate) delivered: bool,
    /// What it asks of tasks.
    pub(crate) question: Option<Question>,
}

impl Asked {
    pub(crate) fn new(intent: Option<usize>, granted: u64, shared: bool) -> Self {
        Self {
            intent,
            arrived: None,
            due: None,
            phase_due: None,
            shared,
            body: 0,
            granted,
            next_seq: BTreeMap::new(),
            parts: BTreeSet::new(),
            probe: false,
            task: None,
            told: None,
            delivered: false,
            question: None,
        }
    }
}

/// One CALL that a provider was given.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) caller: String,
    pub(crate) request_id: String,
    pub(crate) capability: String,
    /// The hub's number of the call: later ones have greater ones.
    pub(crate) call: u64,
    /// Number of the intent that it carries; 0 when it carries none.
    pub(crate) number: u64,
    pub(crate) attempt: u64,
    pub(crate) body: usize,
    pub(crate) stream: bool,
    pub(crate) credit: u64,
    pub(crate) granted: u64,
    pub(crate) seq: u64,
    pub(crate) pieces: u64,
    pub(crate) accepted: bool,
    pub(crate) cancelled: bool,
    /// For its caller it is over once it is accepted.
    pub(crate) notify: bool,
    /// The task that it is a try of.
    pub(crate) task: Option<TaskId>,
}

/// What an envelope on its way to the hub means to who sent it.
#[derive(Debug)]
pub(crate) enum On {
    Nothing,
    /// The older connections of the agent are left with it; this one is not.
    Hello,
    /// A CALL of this id; `again` when the same bytes follow it.
    Ask {
        call: u64,
        again: bool,
    },
    /// ACCEPT of an attempt of a call of the hub.
    Accept {
        call: u64,
        attempt: u64,
        task: Option<TaskId>,
    },
    /// A CHUNK of the intent with this number, in an attempt of a call of the hub.
    Piece {
        number: u64,
        call: u64,
        attempt: u64,
        task: Option<TaskId>,
    },
    /// A good RESULT.
    Answer(Box<Given>),
    /// A RESULT that says how a call of the hub failed.
    Failed(Box<Given>),
    /// A RECEIPT.
    Receipt(TaskId),
    /// The agent takes new calls, or it does not: by its word, and by its health.
    Routable {
        status: bool,
        health: bool,
    },
    /// It offers this, or no longer does.
    Offer {
        name: &'static str,
        add: bool,
    },
}

/// An envelope on its way to the hub.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) at: Now,
    pub(crate) text: String,
    pub(crate) message: Bytes,
    pub(crate) on: On,
}

/// What takes an agent out of routing, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Out {
    pub(crate) suspect: Option<Now>,
    pub(crate) status: Option<Now>,
    pub(crate) health: Option<Now>,
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
    /// Since when there is something in its queue: nothing in it is older.
    pub(crate) queued_since: Now,
    /// The same of what it took and has not looked at yet.
    pub(crate) taken_since: Now,
    pub(crate) unheard: bool,
    pub(crate) slow: bool,
    /// From when to when nothing it sends leaves it.
    pub(crate) silence: Option<(Now, Now)>,
    /// From when to when it reads nothing.
    pub(crate) frozen: Option<(Now, Now)>,
    /// How long an envelope takes to the hub at the most, in milliseconds.
    pub(crate) lag_ms: u64,
    /// Envelopes on their way, in order.
    pub(crate) link: VecDeque<Parcel>,
    pub(crate) asked: BTreeMap<u64, Asked>,
    pub(crate) given: BTreeMap<u64, Given>,
    pub(crate) last_given: u64,
    pub(crate) next_id: u64,
    /// CALLs read since the queue was last empty: what is about them may still come behind bodies.
    pub(crate) calls_read: BTreeSet<u64>,
    /// ERRORs that a reused id has to bring.
    pub(crate) complaints_due: u64,
    /// What it offers, as the hub knows it, and since when.
    pub(crate) offered: BTreeMap<&'static str, (bool, Now)>,
    pub(crate) out: Out,
    /// Registered at, for its quota: how many buckets were full since, and what was taken.
    pub(crate) registered: Now,
    pub(crate) buckets: u64,
    pub(crate) taken: u64,
}

impl Conn {
    pub(crate) fn is_silent(&self, now: Now) -> bool {
        self.silence.is_some_and(|(from, to)| from <= now && now < to)
    }

    /// When it reads again, while it reads nothing.
    pub(crate) fn is_frozen(&self, now: Now) -> Option<Now> {
        self.frozen.filter(|(from, to)| *from <= now && now < *to).map(|(_, to)| to)
    }
}

/// One agent over all its lives.
#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) name: String,
    pub(crate) life: u64,
    pub(crate) conn: Option<ConnectionId>,
    pub(crate) slots: u64,
    pub(crate) zone: &'static str,
    /// What it may come to offer, and what it declares in HELLO that it calls.
    pub(crate) offers: Vec<&'static str>,
    pub(crate) declares: Option<Vec<&'static str>>,
    /// Its `qps_limit` for `x.two`.
    pub(crate) qps: Option<f64>,
    /// In so many of a hundred calls it fails in a way that may pass.
    pub(crate) fails: u64,
    pub(crate) intents: Vec<Intent>,
    /// Intents that were open when the connection went.
    pub(crate) unfinished: Vec<usize>,
    /// When it registered, of late.
    pub(crate) registered: VecDeque<Now>,
    /// The life that said HELLO last, and how often each of them registered.
    pub(crate) greeted: u64,
    pub(crate) lived: BTreeMap<u64, u64>,
    /// The life that registered last.
    pub(crate) here: u64,
    /// The life that an operator drains, and since when.
    pub(crate) drained: Option<(u64, Now)>,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Connect(usize),
    Arrive(ConnectionId),
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
    Policy,
    Poke,
    Stale,
    Jump,
    Drain,
    Drained,
    Stop,
    Restart,
    StoreWrites,
    StoreTells,
    StoreReads(u64, u64),
    StoreAnswers(u64, u64),
    StoreSickens,
    StoreRecovers,
    Receipt(ConnectionId, TaskId),
}
