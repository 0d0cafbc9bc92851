//! The hub: one state machine from causes to consequences.
//!
//! `handle` is the only way in. What it decides leaves in two ways: into the outbound queues of connections,
//! which the shell empties with [`Hub::take_outbound`], and as [`Effects`]. Nothing here knows a clock, a
//! socket or a lock.

use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_protocol::codec::{Raw, Writer};
use agent_reach_protocol::{
    DecodeError, ErrorCode, ErrorReply, FieldError, GoodbyeCode, Kind, ToHub, encode, read_to_hub,
};
use bytes::Bytes;
use slab::Slab;

use crate::authz::{Policy, Rights};
use crate::calls::{Call, Leg};
use crate::effects::Effects;
use crate::events::Watch;
use crate::idempotency::Memory;
use crate::input::{ConnectionId, Input};
use crate::latency::Latency;
use crate::operators::Drained;
use crate::outbound::{Batch, Outgoing, Spare};
use crate::refused::Told;
use crate::registration::Hellos;
use crate::registry::{Asked, Registry};
use crate::rng::Rng;
use crate::schema::{Interned, Promise, Schema};
use crate::session::{Lane, Phase, Session, find_mut};
use crate::settings::Settings;
use crate::spans::Sampler;
use crate::stats::{Counters, Gauges};
use crate::tasks::Tasks;
use crate::time::{Now, Timer, Timers};
use crate::traces::Traces;
use crate::waiting::Waiting;

/// How often what has expired is removed, in milliseconds.
const SWEEP_MS: u64 = 10_000;

/// One run of `handle`: its moment, and where its effects go.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    pub(crate) fx: &'a mut Effects,
}

/// What ERROR says of an envelope.
pub(crate) struct Complaint<'a> {
    pub(crate) kind: u64,
    pub(crate) id: Option<u64>,
    pub(crate) code: ErrorCode,
    pub(crate) message: &'a str,
    pub(crate) field: Option<&'a str>,
}

/// The decision core.
#[derive(Debug)]
pub struct Hub {
    pub(crate) settings: Settings,
    pub(crate) policy: Rights,
    pub(crate) sessions: Vec<Option<Box<Session>>>,
    pub(crate) registry: Registry,
    pub(crate) calls: Slab<Call>,
    pub(crate) legs: Slab<Leg>,
    pub(crate) watches: Slab<Watch>,
    pub(crate) memory: Memory,
    pub(crate) traces: Traces,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    pub(crate) latency: Latency,
    /// Refusals that watches were told of lately.
    pub(crate) refusals: Told,
    /// Memory of the process, as the shell told it last.
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) rng: Rng,
    /// Which calls are traced; `None`: none is.
    pub(crate) sampler: Option<Sampler>,
    pub(crate) hellos: Hellos,
    /// Schemas in use, each once.
    pub(crate) inputs: Interned<Schema>,
    pub(crate) outputs: Interned<Promise>,
    /// Calls that wait for who can take them.
    pub(crate) waiting: Waiting,
    /// Agents that may take more than before, since this turn.
    pub(crate) freed: BTreeSet<usize>,
    /// Capabilities of which somebody takes less than before, since this turn.
    pub(crate) doubtful: Vec<Arc<str>>,
    /// Connections whose queue passed its bound in this turn.
    pub(crate) overfull: Vec<ConnectionId>,
    /// Of outbound queues that were emptied.
    pub(crate) spare: Spare,
    /// Bytes in all outbound queues.
    pub(crate) outbound_bytes: usize,
    /// Bytes of all open calls' messages.
    pub(crate) open_bytes: usize,
    /// When the drain ends, while the hub drains.
    pub(crate) draining: Option<Now>,
    /// Agents that operators drain.
    pub(crate) drained: Drained,
    /// Bytes that wait for the credit of watches.
    pub(crate) watch_waiting: usize,
    pub(crate) next_call: u64,
    pub(crate) tasks: Tasks,
    /// Reloads that the shell was asked for and has not answered.
    pub(crate) reloads: usize,
    sweep_at: Option<Now>,
    epoch: u32,
}

impl Hub {
    /// An empty hub.
    pub fn new(settings: Settings, policy: Policy) -> Self {
        let mut rng = Rng::new(settings.seed);
        let epoch = u32::try_from(rng.next() >> 32).unwrap_or_default();
        Self {
            registry: Registry::new(settings.names),
            memory: Memory::new(settings.dedupe_bytes, rng.next()),
            traces: Traces::new(settings.traces),
            policy: Rights::new(policy),
            sessions: Vec::new(),
            calls: Slab::new(),
            legs: Slab::new(),
            watches: Slab::new(),
            timers: Timers::default(),
            counters: Counters::default(),
            latency: Latency::default(),
            refusals: Told::default(),
            resident_bytes: None,
            rng,
            sampler: settings.spans.map(Sampler::new),
            hellos: Hellos::new(),
            inputs: Interned::default(),
            outputs: Interned::default(),
            waiting: Waiting::new(settings.queue_len),
            freed: BTreeSet::new(),
            doubtful: Vec::new(),
            overfull: Vec::new(),
            spare: Spare::default(),
            outbound_bytes: 0,
            open_bytes: 0,
            draining: None,
            drained: Drained::default(),
            watch_waiting: 0,
            next_call: 1,
            tasks: Tasks::new(settings.store),
            reloads: 0,
            sweep_at: None,
            epoch,
            settings,
        }
    }

    /// Takes in one cause. `now` never goes back.
    pub fn handle(&mut self, now: Now, input: Input, effects: &mut Effects) {
        let turn = &mut Turn { now, fx: effects };
        let ticks = matches!(input, Input::Tick);
        match input {
            Input::Connected { connection, peer } => self.on_connected(turn, connection, peer),
            Input::Guest { connection, peer } => self.on_guest(turn, connection, peer),
            Input::Unidentified { connection, reason } => {
                self.refuse(turn, connection, GoodbyeCode::Unauthorized, &reason, None);
            }
            Input::Message { connection, message, fault } => {
                self.on_message(turn, connection, message, fault)
            }
            Input::Alive { connection } => self.on_alive(turn, connection),
            Input::Untrusted { connection, reason } => {
                self.refuse(turn, connection, GoodbyeCode::ProtocolError, &reason, None);
            }
            Input::TooLarge { connection } => {
                let reason = format!("a message may have {} bytes", self.settings.max_message);
                self.refuse(turn, connection, GoodbyeCode::MessageTooLarge, &reason, None);
            }
            Input::Undeliverable { connection, message, reason } => {
                self.on_undeliverable(turn, connection, &message, &reason);
            }
            Input::CredentialsEnded { connection, revoked } => {
                let code =
                    if revoked { GoodbyeCode::CredentialsRevoked } else { GoodbyeCode::CredentialsExpired };
                self.refuse(
                    turn,
                    connection,
                    code,
                    "what it came with, a certificate or a session, is no longer good",
                    None,
                );
            }
            Input::Closed { connection } => self.on_closed(turn, connection),
            Input::Drain { drain_ms } => self.on_drain(turn, drain_ms),
            Input::Stop => self.on_stop(turn),
            Input::Store(news) => self.on_store(turn, news),
            Input::Reloaded { number, outcome } => self.on_reloaded(turn, number, outcome),
            Input::SetPolicy(policy) => self.on_policy(turn, policy),
            Input::Resident { bytes } => self.resident_bytes = Some(bytes),
            Input::Tick => self.on_tick(turn),
        }
        loop {
            self.serve_waiting(turn);
            self.end_slow_consumers(turn);
            // What a session leaves may be for who waits.
            if self.freed.is_empty() && self.doubtful.is_empty() && self.overfull.is_empty() {
                // And who waited may have no time at all.
                if ticks && self.timers.next().is_some_and(|next| next <= now) {
                    self.on_tick(turn);
                    continue;
                }
                break;
            }
        }
    }

    /// When [`Input::Tick`] is due next; `None` while nothing waits for time.
    pub fn next_timeout(&self) -> Option<Now> {
        self.timers.next()
    }

    /// Takes what waits for a connection: up to `frames` messages and about `bytes` bytes. `None` when
    /// nothing waits; the connection is woken when that changes.
    pub fn take_outbound(
        &mut self,
        connection: ConnectionId,
        frames: usize,
        bytes: usize,
        batch: &mut Vec<Outgoing>,
    ) -> Option<Batch> {
        let session = find_mut(&mut self.sessions, connection)?;
        let before = session.outbound.bytes();
        let taken = session.outbound.take(&mut self.spare, frames, bytes, batch);
        let after = session.outbound.bytes();
        self.outbound_bytes = self.outbound_bytes + after - before;
        taken
    }

    /// Whether a connection has nothing left but to take what is queued for it and close.
    pub fn is_over(&self, connection: ConnectionId) -> bool {
        self.session(connection).is_none_or(|session| session.phase == Phase::Over)
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Sizes now.
    pub fn gauges(&self) -> Gauges {
        Gauges::of(self)
    }

    /// How many calls wait for each capability that any wait for; `None`: for those that nobody ever offered.
    pub fn queued(&self) -> Vec<(Option<Arc<str>>, usize)> {
        let offered = |name: &Arc<str>| self.registry.names.get(name).map(|(own, _)| Arc::clone(own));
        self.waiting.by_name().map(|(name, len)| (offered(name), len)).collect()
    }

    /// Whether there is a store that takes no new tasks.
    pub fn is_store_ill(&self) -> bool {
        self.settings.store && !self.tasks.writable()
    }

    /// Whether the hub is draining.
    pub fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// Distinguishes the ids of this run of the hub from those of others.
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    fn on_message(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        message: Bytes,
        fault: Option<FieldError>,
    ) {
        let Some(session) = self.session(id) else { return };
        let phase = session.phase;
        if phase == Phase::Over {
            return;
        }
        self.on_alive(turn, id);
        self.counters.bytes_in += message.len() as u64;
        // Looked at where it lies: what a CALL may say is large, and each move of it a copy.
        let read = read_to_hub(&message, fault);
        match (phase, &read) {
            (_, Err(DecodeError::Untrusted(reason))) => {
                self.refuse(turn, id, GoodbyeCode::ProtocolError, reason, None);
            }
            (Phase::Fresh, Ok((ToHub::Hello(hello), _))) => {
                self.counters.received(Kind::Hello);
                self.on_hello(turn, id, hello);
            }
            (Phase::Fresh, Err(DecodeError::Malformed { kind: Kind::Hello, error, .. })) => {
                let reason = format!("HELLO cannot be used: {error}");
                self.refuse(turn, id, GoodbyeCode::ProtocolError, &reason, None);
            }
            (Phase::Fresh, _) => {
                self.refuse(turn, id, GoodbyeCode::ProtocolError, "the first envelope has to be HELLO", None);
            }
            (Phase::Open(key), Ok((envelope, body))) => {
                self.counters.received(envelope.kind());
                self.on_envelope(turn, id, key, envelope, &message, *body);
            }
            (Phase::Open(key), Err(error)) => self.on_unusable(turn, id, key, error),
            (Phase::Over, _) => {}
        }
    }

    fn on_envelope(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        key: usize,
        envelope: &ToHub<'_>,
        message: &Bytes,
        body: Option<&[u8]>,
    ) {
        match envelope {
            ToHub::Hello(hello) => self.on_hello(turn, id, hello),
            ToHub::Update(update) => self.on_update(turn, key, update),
            ToHub::Goodbye(_) => self.on_goodbye(turn, id),
            ToHub::Call(call) => self.on_call(turn, key, call, message, body),
            ToHub::Accept(accept) => self.on_accept(turn, key, accept),
            ToHub::Chunk(chunk) => self.on_chunk(turn, key, chunk, body),
            ToHub::Credit(credit) => self.on_credit(turn, key, credit),
            ToHub::Result(result) => self.on_result(turn, key, result, body),
            ToHub::Cancel(cancel) => self.on_cancel(turn, key, cancel),
            ToHub::Receipt(receipt) => self.on_receipt(turn, key, receipt),
        }
    }

    /// An envelope with a wrong header fails one thing, never the connection.
    fn on_unusable(&mut self, turn: &mut Turn<'_>, id: ConnectionId, key: usize, error: &DecodeError) {
        match error {
            DecodeError::Malformed { kind: Kind::Hello, .. } => {
                self.refuse(turn, id, GoodbyeCode::ProtocolError, "a second HELLO", None);
            }
            DecodeError::Malformed { kind: Kind::Call, id: Some(call_id), error }
                if !self.is_open(key, *call_id) =>
            {
                self.refuse_call(
                    turn,
                    key,
                    *call_id,
                    &crate::calls::Refusal::invalid(&error.field, &error.to_string()),
                );
            }
            DecodeError::Malformed { kind, id: about, error } => {
                let message = error.to_string();
                let complaint = Complaint {
                    kind: kind.number(),
                    id: *about,
                    code: ErrorCode::InvalidRequest,
                    message: &message,
                    field: Some(&error.field),
                };
                self.complain(turn, id, &complaint);
                if let (Kind::Result | Kind::Chunk, Some(about)) = (kind, about) {
                    self.fail_leg_of(
                        turn,
                        key,
                        *about,
                        &format!("the agent sent a {} whose {message}", kind.name()),
                    );
                }
            }
            DecodeError::UnknownKind { kind, id: about } => {
                let (code, message) = (ErrorCode::UnknownKind, format!("kind {kind} is not known"));
                self.complain(
                    turn,
                    id,
                    &Complaint { kind: *kind, id: *about, code, message: &message, field: None },
                );
            }
            DecodeError::WrongDirection(kind) => {
                let message = format!("{} is sent by the hub only", kind.name());
                let (code, kind) = (ErrorCode::InvalidRequest, kind.number());
                self.complain(turn, id, &Complaint { kind, id: None, code, message: &message, field: None });
            }
            DecodeError::Untrusted(reason) => {
                self.refuse(turn, id, GoodbyeCode::ProtocolError, reason, None);
            }
        }
    }

    /// Whether `call_id` names a call or watch that is open on the agent's connection.
    pub(crate) fn is_open(&self, key: usize, call_id: u64) -> bool {
        self.registry.agents.get(key).is_some_and(|agent| agent.asked.contains_key(&call_id))
    }

    /// Sends ERROR.
    pub(crate) fn complain(&mut self, turn: &mut Turn<'_>, id: ConnectionId, complaint: &Complaint<'_>) {
        let details = complaint.field.map(|field| text_map(&[("field", field)]));
        let reply = ErrorReply {
            ref_kind: complaint.kind,
            id: complaint.id,
            code: complaint.code.as_str(),
            message: clip(complaint.message),
            details: details.as_deref().map(Raw),
        };
        self.counters.sent(Kind::Error);
        self.send(turn, id, Lane::Data, Outgoing::Message(encode(&reply, None)));
    }

    fn on_tick(&mut self, turn: &mut Turn<'_>) {
        while let Some(timer) = self.timers.pop_due(turn.now) {
            match timer {
                Timer::Session(id) => self.on_session_timer(turn, id),
                Timer::Leg(leg) => self.on_leg_timer(turn, leg),
                Timer::Call(call) => self.on_call_timer(turn, call),
                Timer::Line(line) => self.on_line_timer(turn, line),
                Timer::Agent(key) => self.on_agent_timer(turn, key),
                Timer::Delivery(key) => self.on_delivery_timer(turn, key),
                Timer::Question => self.on_question_timer(turn),
                Timer::Sweep => self.on_sweep(turn.now),
                Timer::Drain => self.on_drain_end(turn),
            }
            // What it made room for may be due at this very moment too.
            self.serve_waiting(turn);
        }
    }

    /// An agent that went away did not come back in time, or came back and did not ask again for its calls.
    fn on_agent_timer(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        agent.away_until = None;
        if agent.session.is_some() {
            self.settle_asked(turn, key);
        } else {
            self.forget_agent(turn, key);
        }
    }

    /// Arranges for a sweep, if none is due.
    pub(crate) fn sweep_later(&mut self, now: Now) {
        if self.sweep_at.is_none() {
            let at = now.plus_ms(SWEEP_MS);
            self.sweep_at = Some(at);
            self.timers.set(at, Timer::Sweep);
        }
    }

    fn on_sweep(&mut self, now: Now) {
        self.sweep_at = None;
        self.sweep_hellos(now);
        self.memory.expire(now);
        if !self.hellos.is_empty() || !self.memory.is_empty() {
            self.sweep_later(now);
        }
    }

    /// New rules count from the next call on; sessions that may no longer be their agent end.
    fn on_policy(&mut self, turn: &mut Turn<'_>, policy: Policy) {
        self.policy = Rights::new(policy);
        let mut forbidden = Vec::new();
        for (_, agent) in &mut self.registry.agents {
            let place = agent.session.and_then(|id| self.sessions.get(id.index as usize));
            let name = place.and_then(Option::as_deref).map(|session| Arc::clone(&session.peer.name));
            let name = name.unwrap_or_else(|| Arc::clone(&agent.id));
            // What an agent left behind that is away, or has to leave, waits by the new rules too.
            let grant = self.policy.grant(&agent.identity, &name, &agent.id);
            forbidden.extend(agent.session.filter(|_| grant.is_none()));
            agent.grant = grant.unwrap_or_default();
        }
        for id in forbidden {
            self.refuse(turn, id, GoodbyeCode::Unauthorized, "the policy no longer allows this agent", None);
        }
        self.withdraw_ungranted();
        self.requeue(turn, None);
    }
}

/// A small map of texts as MessagePack: `details` for programs.
pub(crate) fn text_map(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Writer::with_capacity(64);
    out.map(entries.len());
    for (key, value) in entries {
        out.str(key);
        out.str(clip(value));
    }
    out.into_bytes()
}

/// Cuts a text of a peer's to what a message for people may carry.
pub(crate) fn clip(text: &str) -> &str {
    clip_to(text, 1024)
}

/// Cuts a text to so many bytes, at a character.
pub(crate) fn clip_to(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// What an id of an agent stands for, if it is open.
impl Hub {
    pub(crate) fn asked(&self, key: usize, call_id: u64) -> Option<Asked> {
        self.registry.agents.get(key)?.asked.get(&call_id).copied()
    }
}
