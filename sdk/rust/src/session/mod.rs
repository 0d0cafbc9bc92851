//! The session: every decision of the SDK, with time and chance passed in. No socket, no clock, no task.
//!
//! [`Session::handle`] takes what happened and says what is to be done; what is to be written waits in
//! [`Session::pop`]; [`Session::next_timeout`] says when to come back.

mod answers;
mod asked;
mod backoff;
mod link;
pub(crate) mod memory;
mod notes;
mod outbound;
mod registration;
mod results;
mod running;
#[cfg(test)]
mod tests;
mod time;
mod types;

use std::time::Duration;

use agent_reach_protocol::{
    DecodeError, ErrorReply, Goodbye, GoodbyeCode, Kind, ToAgent, Welcome, decode_to_agent, encode,
};
use bytes::Bytes;

use asked::Asked;
pub(crate) use backoff::{Backoff, Rng};
use link::{Link, Liveness, Phase, Terms};
pub(crate) use memory::Memory;
pub(crate) use notes::{Note, Past, Says};
use outbound::Outbound;
use registration::Change;
pub(crate) use registration::Registration;
use running::Running;
pub(crate) use running::disk::interrupted;
pub(crate) use time::Now;
pub use types::{Acceptance, Load, Reply};
pub(crate) use types::{
    CallEvent, CallKey, CallSpec, Effect, Failure, Input, Invocation, Outcome, Pairs, RunKey, TaskEnd, Work,
    put,
};

use crate::errors::{CloseReason, Code, ConnectError};

/// Longest window for coming back that a hub's GOODBYE is believed.
const AWAY_MAX: Duration = Duration::from_secs(3600);

/// What the parts of a session work on together.
pub(crate) struct Context<'a> {
    now: Now,
    /// In session: new CALLs may go out.
    ready: bool,
    /// Answers to what the hub asked may go out.
    open: bool,
    max_message: usize,
    max_in_flight: usize,
    outbound: &'a mut Outbound,
    effects: &'a mut Vec<Effect>,
}

/// The state of one agent's life.
#[derive(Debug)]
pub(crate) struct Session {
    registration: Registration,
    link: Link,
    outbound: Outbound,
    asked: Asked,
    running: Running,
    rng: Rng,
    /// The agent closes: at the latest then.
    drain: Option<Now>,
}

/// Borrows the parts that [`Context`] needs, leaving the others free.
macro_rules! context {
    ($session:ident, $now:expr, $effects:expr) => {
        Context {
            now: $now,
            ready: $session.link.is_ready(),
            open: $session.link.can_answer(),
            max_message: $session.link.terms.max_message,
            max_in_flight: $session.link.terms.max_in_flight,
            outbound: &mut $session.outbound,
            effects: $effects,
        }
    };
}

impl Session {
    /// A session that waits for [`Input::Start`]. `grace` is how long a cancelled handler may take to end
    /// by itself, `on_disk` what the dedupe file has, if there is one.
    pub(crate) fn new(
        registration: Registration,
        grace: Duration,
        backoff: Backoff,
        seed: u64,
        on_disk: Option<Memory>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let max = usize::try_from(registration.max_concurrency).unwrap_or(usize::MAX);
        Self {
            link: Link::new(backoff),
            outbound: Outbound::default(),
            asked: Asked::new(&mut rng),
            running: Running::new(max, grace, on_disk),
            rng,
            drain: None,
            registration,
        }
    }

    /// The next message for the socket.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.outbound.pop()
    }

    /// Whether anything waits for the socket.
    pub(crate) fn has_outgoing(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Whether callers and handlers may hand in more work.
    pub(crate) const fn has_room(&self) -> bool {
        self.outbound.has_room()
    }

    /// Whether the socket may be read.
    pub(crate) const fn may_read(&self) -> bool {
        self.outbound.may_read()
    }

    /// When [`Input::Timeout`] is due.
    pub(crate) fn next_timeout(&self) -> Option<Now> {
        if self.link.phase == Phase::Stopped {
            return None;
        }
        // Once the goodbye is said, the bound of the drain is behind us.
        let drain = self.drain.filter(|_| !matches!(self.link.phase, Phase::Closing(_)));
        [self.link.next_timeout(), self.asked.next_timeout(), self.running.next_timeout(), drain]
            .into_iter()
            .flatten()
            .min()
    }

    /// Takes what happened; `effects` gets what is to be done, in order.
    pub(crate) fn handle(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.link.phase == Phase::Stopped {
            if let Input::Work(Work::Open(key, spec)) = input {
                self.asked.open(&mut context!(self, now, effects), key, spec);
                self.asked.fail_all(&mut context!(self, now, effects), "the agent is closed");
            }
            return;
        }
        match input {
            Input::Start => self.dial(effects),
            Input::Opened => self.opened(now, effects),
            Input::DialFailed(error) => self.dial_failed(now, error, effects),
            Input::Message(message) => self.message(now, &message, effects),
            Input::Text => self.untrusted(now, "a text message on the MessagePack subprotocol", effects),
            Input::Alive => self.link.heard(now),
            Input::Lost(code, reason) => self.lost(now, code, &reason, effects),
            Input::Wrote => self.link.wrote = now,
            Input::Close(bound) => self.close(now, bound),
            Input::Timeout => self.timeout(now, effects),
            Input::SetLoad(load) => {
                self.registration.load = load;
                self.update(&Change::Nothing);
            }
            Input::SetStatus(status) => {
                self.registration.status = Some(status);
                self.update(&Change::Status);
            }
            Input::Add(capability) => {
                let name = capability.name.clone();
                self.registration.capabilities.insert(name.clone(), capability);
                self.update(&Change::Added(name));
            }
            Input::Remove(name) => {
                self.registration.capabilities.remove(&name);
                self.update(&Change::Removed(name));
            }
            Input::Work(work) => self.work(now, work, effects),
        }
        self.settle(now, effects);
    }

    fn work(&mut self, now: Now, work: Work, effects: &mut Vec<Effect>) {
        let cx = &mut context!(self, now, effects);
        match work {
            Work::Open(key, spec) => self.asked.open(cx, key, spec),
            Work::Cancel(key) => self.asked.cancel(cx, key),
            Work::Withdraw(key) => self.asked.withdraw(cx, key),
            Work::Forget(key) => self.asked.forget(cx, key),
            Work::Consumed(key, n, target) => self.asked.consumed(cx, key, n, target.as_deref()),
            Work::Claim(key, task_id) => self.asked.claim(cx, key, task_id),
            Work::Received(task_id) => self.asked.received(cx, &task_id),
            Work::Moved(key, task_id) => self.asked.moved(key, &task_id),
            Work::Returned(end) => self.asked.returned(cx, *end),
            Work::Emit(run, payload) => self.running.on_emit(cx, run, payload),
            Work::WouldTake(run, time) => self.running.on_would_take(cx, run, time),
            Work::Finished(run, outcome) => self.running.on_finished(cx, run, outcome),
            Work::Noted(run) => self.running.on_noted(cx, run),
        }
    }

    fn load(&self) -> registration::Work {
        let waiting = self.running.queued();
        let running = self.running.in_flight().saturating_sub(waiting);
        registration::Work { running: running as u64, waiting: waiting as u64 }
    }

    fn update(&mut self, change: &Change) {
        if self.link.can_answer() {
            let message = self.registration.update(self.load(), change);
            self.outbound.control(message);
        }
    }

    fn dial(&mut self, effects: &mut Vec<Effect>) {
        self.link.phase = Phase::Dialing;
        effects.push(Effect::Dial);
    }

    fn opened(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.link.phase != Phase::Dialing {
            effects.push(Effect::Abort);
            return;
        }
        self.link.opened(now);
        let hello = self.registration.hello(self.load());
        self.outbound.control(hello);
    }

    fn dial_failed(&mut self, now: Now, error: ConnectError, effects: &mut Vec<Effect>) {
        if error.is_final() {
            return self.stop(now, CloseReason::Connect(error), effects);
        }
        tracing::info!(%error, "dial failed");
        self.link.lost(now, &mut self.rng);
    }

    fn lost(&mut self, now: Now, close_code: Option<u16>, reason: &str, effects: &mut Vec<Effect>) {
        if self.link.phase == Phase::Dialing || matches!(self.link.phase, Phase::Waiting(_)) {
            return;
        }
        self.outbound.clear();
        if matches!(self.link.phase, Phase::Closing(_)) {
            return self.stop(now, CloseReason::Closed, effects);
        }
        let word_and_reason = self.link.unknown_goodbye.take().or_else(|| {
            let code = close_code.filter(|code| matches!(code, 4500..=4999))?;
            Some((link::word_of(code), reason.to_owned()))
        });
        if let Some((word, said)) = word_and_reason
            && let Some(end) = link::verdict(&word, &said, close_code)
        {
            return self.stop(now, end, effects);
        }
        tracing::info!(close_code, reason, "connection lost");
        self.link.lost(now, &mut self.rng);
        self.asked.lost(now);
        self.running.lost(&mut context!(self, now, effects));
    }

    /// Lets the socket go without waiting for the other end.
    fn abort(&mut self, now: Now, reason: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Abort);
        self.lost(now, None, reason, effects);
    }

    fn message(&mut self, now: Now, message: &Bytes, effects: &mut Vec<Effect>) {
        // Frames that were read in one go with the one that ended the session mean nothing any more.
        if !self.link.is_open() && !matches!(self.link.phase, Phase::Closing(_)) {
            return;
        }
        self.link.heard(now);
        match decode_to_agent(message) {
            Ok((envelope, body)) => self.envelope(now, envelope, body, effects),
            Err(DecodeError::Untrusted(reason)) => self.untrusted(now, &reason, effects),
            Err(DecodeError::Malformed { kind, id, error }) => {
                self.malformed(now, kind, id, &error.to_string(), effects);
            }
            Err(error @ (DecodeError::UnknownKind { .. } | DecodeError::WrongDirection(_))) => {
                tracing::debug!(%error, "envelope ignored");
            }
        }
    }

    fn envelope(&mut self, now: Now, envelope: ToAgent<'_>, body: Option<Bytes>, effects: &mut Vec<Effect>) {
        if let ToAgent::Goodbye(goodbye) = &envelope {
            return self.goodbye(now, goodbye, effects);
        }
        if matches!(self.link.phase, Phase::Greeting(_)) {
            return match &envelope {
                ToAgent::Welcome(welcome) => self.welcome(now, welcome, effects),
                ToAgent::Error(error) => self.fault(now, error, effects),
                ToAgent::Goodbye(_)
                | ToAgent::Call(_)
                | ToAgent::Accept(_)
                | ToAgent::Chunk(_)
                | ToAgent::Credit(_)
                | ToAgent::Result(_)
                | ToAgent::Cancel(_) => self.untrusted(now, "an envelope before WELCOME", effects),
            };
        }
        if !self.link.can_answer() {
            return;
        }
        let cx = &mut context!(self, now, effects);
        match envelope {
            ToAgent::Accept(header) => self.asked.on_accept(cx, &header),
            ToAgent::Chunk(header) => self.asked.on_chunk(cx, &header, body),
            ToAgent::Result(header) => self.asked.on_result(cx, &header, body),
            ToAgent::Credit(header) => self.running.on_credit(cx, header.id, header.n),
            ToAgent::Cancel(header) => self.running.on_cancel(cx, header.id),
            ToAgent::Call(header) => {
                let offered = self.registration.capabilities.get(header.capability);
                self.running.on_call(cx, offered, &header, body);
            }
            ToAgent::Error(header) => self.fault(now, &header, effects),
            ToAgent::Welcome(_) | ToAgent::Goodbye(_) => {}
        }
    }

    fn welcome(&mut self, now: Now, welcome: &Welcome<'_>, effects: &mut Vec<Effect>) {
        self.link.terms = Terms::of(welcome);
        self.link.phase = Phase::Ready(now);
        for warning in &welcome.warnings {
            tracing::warn!(warning, "the hub warns");
        }
        tracing::info!(session = welcome.session, hub = welcome.hub, "session open");
        effects.push(Effect::Ready(self.link.terms.max_message));
        self.asked.resume(&mut context!(self, now, effects));
    }

    /// ERROR: one of our envelopes could not be used. Costs at most the call that it belonged to.
    fn fault(&mut self, now: Now, header: &ErrorReply<'_>, effects: &mut Vec<Effect>) {
        tracing::warn!(
            ref_kind = header.ref_kind,
            code = header.code,
            text = header.message,
            "the hub could not use an envelope"
        );
        if let Some(id) = header.id
            && matches!(Kind::from_number(header.ref_kind), Some(Kind::Call | Kind::Credit | Kind::Cancel))
        {
            let cx = &mut context!(self, now, effects);
            self.asked.on_fault(cx, id, Code::of(header.code), header.message);
        }
    }

    /// An envelope of the hub whose header cannot be read: fails the one thing that it is about.
    fn malformed(&mut self, now: Now, kind: Kind, id: Option<u64>, text: &str, effects: &mut Vec<Effect>) {
        tracing::warn!(kind = kind.name(), id, error = text, "envelope cannot be read");
        match kind {
            Kind::Welcome => return self.untrusted(now, text, effects),
            Kind::Goodbye => return self.abort(now, "a GOODBYE that cannot be read", effects),
            Kind::Hello
            | Kind::Update
            | Kind::Error
            | Kind::Credit
            | Kind::Cancel
            | Kind::Receipt
            | Kind::Call
            | Kind::Accept
            | Kind::Chunk
            | Kind::Result => {}
        }
        let Some(id) = id else { return };
        let cx = &mut context!(self, now, effects);
        if kind == Kind::Call {
            let failure = Failure::new(agent_reach_protocol::ErrorCode::InvalidRequest, text);
            cx.outbound.body(running::refusal(id, None, &failure));
        } else if matches!(kind, Kind::Accept | Kind::Chunk | Kind::Result) {
            let code = if kind == Kind::Chunk { Code::Interrupted } else { Code::Decode };
            self.asked.on_fault(cx, id, code, text);
        }
    }

    /// The other end does not speak the protocol: leave, and try again later.
    fn untrusted(&mut self, now: Now, reason: &str, effects: &mut Vec<Effect>) {
        tracing::warn!(reason, "the hub broke the protocol");
        self.abort(now, reason, effects);
    }

    fn goodbye(&mut self, now: Now, goodbye: &Goodbye<'_>, effects: &mut Vec<Effect>) {
        let reason = goodbye.reason.unwrap_or_default();
        tracing::info!(code = goodbye.code, reason, "the hub says goodbye");
        if matches!(self.link.phase, Phase::Closing(_)) {
            return;
        }
        match GoodbyeCode::parse(goodbye.code) {
            Some(code) if code.reconnects() => {
                let within = goodbye.reconnect_after_ms.map(|ms| Duration::from_millis(ms).min(AWAY_MAX));
                self.link.leave(now, within, &mut self.rng);
                effects.push(Effect::Leaving);
                if code == GoodbyeCode::SlowConsumer {
                    self.asked.cut(&mut context!(self, now, effects));
                }
            }
            Some(_) => {
                effects.push(Effect::Abort);
                let end = CloseReason::Goodbye { code: goodbye.code.to_owned(), reason: reason.to_owned() };
                self.stop(now, end, effects);
            }
            None => {
                self.link.leave(now, None, &mut self.rng);
                effects.push(Effect::Leaving);
                self.link.unknown_goodbye = Some((goodbye.code.to_owned(), reason.to_owned()));
            }
        }
    }

    fn close(&mut self, now: Now, bound: Duration) {
        let at = now.after(bound);
        if let Some(earlier) = self.drain {
            self.drain = Some(earlier.min(at));
            return;
        }
        self.drain = Some(at);
        self.registration.status = Some(agent_reach_protocol::AgentStatus::Draining);
        self.update(&Change::Status);
    }

    fn timeout(&mut self, now: Now, effects: &mut Vec<Effect>) {
        match self.link.phase {
            Phase::Waiting(at) if now >= at => self.dial(effects),
            Phase::Greeting(until) if now >= until => self.abort(now, "no WELCOME in time", effects),
            Phase::Leaving(until) | Phase::Parting(until) if now >= until => {
                self.abort(now, "left after goodbye", effects);
            }
            Phase::Closing(until) if now >= until => {
                effects.push(Effect::Abort);
                return self.stop(now, CloseReason::Closed, effects);
            }
            Phase::Waiting(_)
            | Phase::Dialing
            | Phase::Greeting(_)
            | Phase::Ready(_)
            | Phase::Leaving(_)
            | Phase::Parting(_)
            | Phase::Closing(_)
            | Phase::Stopped => {}
        }
        match self.link.liveness(now) {
            Liveness::Fine => {}
            Liveness::Ping => effects.push(Effect::Ping),
            Liveness::Dead => self.abort(now, "the hub is silent", effects),
        }
        if self.link.must_speak(now) {
            // Counts as written now, lest a socket that takes nothing makes one more with every wake-up.
            self.link.wrote = now;
            self.update(&Change::Nothing);
        }
        self.asked.on_timeout(&mut context!(self, now, effects));
        self.running.on_timeout(&mut context!(self, now, effects));
    }

    /// Ends what has nothing left to wait for: a connection that the hub leaves, and a drained agent.
    fn settle(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if let Phase::Leaving(_) = self.link.phase
            && self.link.unknown_goodbye.is_none()
            && self.asked.on_wire() == 0
            && self.running.on_wire() == 0
            && self.outbound.is_empty()
        {
            // Closed in order, since the last answers may still be on their way out.
            self.link.part(now);
            effects.push(Effect::Close(GoodbyeCode::Normal.close_code()));
        }
        let Some(bound) = self.drain else { return };
        if matches!(self.link.phase, Phase::Closing(_) | Phase::Stopped) {
            return;
        }
        if self.running.is_busy() && now < bound {
            return;
        }
        self.running.abort_all(&mut context!(self, now, effects));
        self.asked.fail_all(&mut context!(self, now, effects), "the agent is closed");
        if !self.link.is_open() {
            return self.stop(now, CloseReason::Closed, effects);
        }
        let goodbye = Goodbye { code: GoodbyeCode::Normal.as_str(), reason: None, reconnect_after_ms: None };
        self.outbound.body(encode(&goodbye, None));
        self.link.close(now);
        effects.push(Effect::Close(GoodbyeCode::Normal.close_code()));
    }

    fn stop(&mut self, now: Now, reason: CloseReason, effects: &mut Vec<Effect>) {
        self.link.phase = Phase::Stopped;
        self.drain = None;
        self.outbound.clear();
        self.running.abort_all(&mut context!(self, now, effects));
        self.asked.fail_all(&mut context!(self, now, effects), &reason.to_string());
        effects.push(Effect::Stopped(reason));
    }
}
