//! Sessions: from an open WebSocket to a registered agent, its liveness, and its end.

use std::sync::Arc;

use agent_reach_protocol::{Goodbye, GoodbyeCode, Kind, encode};

use crate::effects::{Fact, Liveness};
use crate::hub::{Hub, Turn, clip};
use crate::input::{ConnectionId, Peer};
use crate::outbound::{Mark, Outbound, Outgoing};
use crate::registration::STORM_WINDOW_MS;
use crate::time::{Now, Timer};

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// HELLO has not come.
    Fresh,
    /// Registered, as this agent.
    Open(usize),
    /// Ended; only what is queued still leaves.
    Over,
}

/// One WebSocket.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) outbound: Outbound,
    pub(crate) last_seen: Now,
    pub(crate) timer_at: Now,
}

/// The session of a connection, where other parts of the hub are in use beside it.
pub(crate) fn find_mut(sessions: &mut [Option<Box<Session>>], id: ConnectionId) -> Option<&mut Session> {
    sessions.get_mut(id.index as usize)?.as_deref_mut().filter(|session| session.id == id)
}

impl Hub {
    pub(crate) fn session(&self, id: ConnectionId) -> Option<&Session> {
        self.sessions.get(id.index as usize)?.as_deref().filter(|session| session.id == id)
    }

    pub(crate) fn session_mut(&mut self, id: ConnectionId) -> Option<&mut Session> {
        find_mut(&mut self.sessions, id)
    }

    pub(crate) fn on_connected(&mut self, turn: &mut Turn<'_>, id: ConnectionId, peer: Peer) {
        let timer_at = turn.now.plus_ms(self.settings.handshake_timeout_ms);
        self.timers.set(timer_at, Timer::Session(id));
        self.enter(turn.now, id, peer, timer_at);
    }

    /// Makes a session, before it is anybody's.
    pub(crate) fn enter(&mut self, now: Now, id: ConnectionId, peer: Peer, timer_at: Now) {
        let index = id.index as usize;
        while self.sessions.len() <= index {
            self.sessions.push(None);
        }
        let outbound = Outbound::default();
        let session = Session { id, peer, phase: Phase::Fresh, outbound, last_seen: now, timer_at };
        if let Some(place) = self.sessions.get_mut(index) {
            *place = Some(Box::new(session));
        }
    }

    pub(crate) fn on_closed(&mut self, turn: &mut Turn<'_>, id: ConnectionId) {
        self.leave(turn, id, "closed", false);
        let Some(session) = self.session(id) else { return };
        let (timer_at, unsent) = (session.timer_at, session.outbound.bytes());
        self.timers.clear(timer_at, Timer::Session(id));
        // What was never taken goes with its queue.
        self.outbound_bytes = self.outbound_bytes.saturating_sub(unsent);
        if let Some(place) = self.sessions.get_mut(id.index as usize) {
            *place = None;
        }
    }

    /// Any frame proves life.
    pub(crate) fn on_alive(&mut self, turn: &mut Turn<'_>, id: ConnectionId) {
        let suspect_ms = self.settings.suspect_ms;
        let Some(session) = self.session_mut(id) else { return };
        session.last_seen = turn.now;
        let Phase::Open(key) = session.phase else { return };
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        if agent.suspect {
            agent.suspect = false;
            self.may_take_more(key);
            // The timer of a suspect waits for `gone_ms`, which may be far beyond its next silence.
            self.set_session_timer(id, turn.now.plus_ms(suspect_ms));
            let Some(agent) = self.registry.agents.get(key) else { return };
            turn.fx.facts.push(Fact::Liveness { agent: Arc::clone(&agent.id), to: Liveness::Ready });
            self.announce_agent(turn, key, "agent.ready");
        }
    }

    /// The session's timer fired: HELLO did not come, or it is time to look at the silence.
    ///
    /// There is one timer for each session, and frames do not move it: it finds out when it fires how much
    /// silence there really was, and is set again for the rest.
    pub(crate) fn on_session_timer(&mut self, turn: &mut Turn<'_>, id: ConnectionId) {
        let (suspect_ms, gone_ms) = (self.settings.suspect_ms, self.settings.gone_ms);
        let Some(session) = self.session(id) else { return };
        let Phase::Open(key) = session.phase else {
            if session.phase == Phase::Fresh {
                self.refuse(turn, id, GoodbyeCode::ProtocolError, "no HELLO in time", None);
            }
            return;
        };
        let last_seen = session.last_seen;
        let suspect = self.registry.agents.get(key).is_some_and(|agent| agent.suspect);
        if turn.now >= last_seen.plus_ms(gone_ms) {
            if let Some(agent) = self.registry.agents.get(key) {
                turn.fx.facts.push(Fact::Liveness { agent: Arc::clone(&agent.id), to: Liveness::Gone });
            }
            self.goodbye(turn, id, GoodbyeCode::Gone, "silent for too long", None);
            self.leave(turn, id, "gone", true);
            return;
        }
        let next = if turn.now >= last_seen.plus_ms(suspect_ms) {
            if !suspect {
                self.become_suspect(turn, id, key);
            }
            last_seen.plus_ms(gone_ms)
        } else {
            last_seen.plus_ms(suspect_ms)
        };
        self.set_session_timer(id, next);
    }

    fn become_suspect(&mut self, turn: &mut Turn<'_>, id: ConnectionId, key: usize) {
        if let Some(agent) = self.registry.agents.get_mut(key) {
            agent.suspect = true;
            turn.fx.facts.push(Fact::Liveness { agent: Arc::clone(&agent.id), to: Liveness::Suspect });
        }
        self.announce_agent(turn, key, "agent.suspect");
        self.send(turn, id, Lane::Control, Outgoing::Ping);
    }

    pub(crate) fn set_session_timer(&mut self, id: ConnectionId, at: Now) {
        let Some(session) = self.session_mut(id) else { return };
        let before = std::mem::replace(&mut session.timer_at, at);
        self.timers.clear(before, Timer::Session(id));
        self.timers.set(at, Timer::Session(id));
    }

    /// Queues something for a connection and notes when its queue passes the bound.
    pub(crate) fn send(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        lane: Lane,
        outgoing: Outgoing,
    ) -> Mark {
        let bound = self.settings.outbound_bytes;
        let spare = &mut self.spare;
        let Some(session) = find_mut(&mut self.sessions, id) else { return Mark::default() };
        if session.phase == Phase::Over {
            return Mark::default();
        }
        let queue = &mut session.outbound;
        let before = queue.bytes();
        if before > bound && !matches!(outgoing, Outgoing::Close { .. }) {
            // Past its bound already: the session ends with this turn, and nothing more is piled up for it but its end.
            return Mark::default();
        }
        if queue.is_empty() {
            turn.fx.wake.push(id);
        }
        let mark = match lane {
            Lane::Data => queue.push_data(spare, turn.now, outgoing),
            Lane::Control => {
                queue.push_control(spare, turn.now, outgoing);
                Mark::default()
            }
            Lane::About(mark) => {
                queue.push_control_about(spare, turn.now, mark, outgoing);
                mark
            }
        };
        let after = queue.bytes();
        if after > bound {
            self.overfull.push(id);
        }
        self.outbound_bytes = self.outbound_bytes + after - before;
        mark
    }

    /// Whether what is queued for an agent has passed the bound, so that its session ends with this turn.
    pub(crate) fn is_overfull(&self, key: usize) -> bool {
        let id = self.registry.agents.get(key).and_then(|agent| agent.session);
        let session = id.and_then(|id| self.session(id));
        session.is_none_or(|session| session.outbound.bytes() > self.settings.outbound_bytes)
    }

    /// Ends the sessions whose queues passed their bound. Done after the input that filled them, so that
    /// no loop over calls has its calls change under it.
    pub(crate) fn end_slow_consumers(&mut self, turn: &mut Turn<'_>) {
        while let Some(id) = self.overfull.pop() {
            self.end_slow_consumer(turn, id, "the outbound queue is full");
        }
        // Each may be within its own bound, and all together still be more than there is memory.
        while self.outbound_bytes > self.settings.outbound_total {
            let queues = self.sessions.iter().flatten().filter(|session| session.phase != Phase::Over);
            let fullest = queues.max_by_key(|session| session.outbound.bytes()).map(|session| session.id);
            let Some(id) = fullest else { return };
            let before = self.outbound_bytes;
            self.end_slow_consumer(
                turn,
                id,
                "all outbound queues together are full, and this is the fullest",
            );
            if self.outbound_bytes >= before {
                return;
            }
        }
    }

    fn end_slow_consumer(&mut self, turn: &mut Turn<'_>, id: ConnectionId, reason: &'static str) {
        let Some(session) = self.session(id) else { return };
        let Phase::Open(key) = session.phase else { return };
        if let Some(agent) = self.registry.agents.get(key) {
            turn.fx.facts.push(Fact::SlowConsumer { agent: Arc::clone(&agent.id) });
        }
        self.goodbye(turn, id, GoodbyeCode::SlowConsumer, reason, None);
        self.leave(turn, id, "slow_consumer", false);
    }

    /// Says GOODBYE and ends the connection: what was queued is dropped, GOODBYE and close follow at once.
    pub(crate) fn goodbye(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        code: GoodbyeCode,
        reason: &str,
        reconnect_after_ms: Option<u64>,
    ) {
        self.clear_outbound(id);
        let reason = clip(reason);
        let goodbye = Goodbye { code: code.as_str(), reason: Some(reason), reconnect_after_ms };
        self.counters.sent(Kind::Goodbye);
        self.send(turn, id, Lane::Control, Outgoing::Message(encode(&goodbye, None)));
        self.close(turn, id, code);
    }

    /// Drops what waits for a connection.
    pub(crate) fn clear_outbound(&mut self, id: ConnectionId) {
        let Some(session) = self.session_mut(id) else { return };
        let dropped = session.outbound.bytes();
        session.outbound.clear();
        self.outbound_bytes = self.outbound_bytes.saturating_sub(dropped);
    }

    /// Queues the WebSocket close behind everything else; nothing is sent after it.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>, id: ConnectionId, code: GoodbyeCode) {
        if self.is_over(id) {
            return;
        }
        let close = Outgoing::Close { code: code.close_code(), reason: code.as_str() };
        self.send(turn, id, Lane::Data, close);
        // A queue that is not empty wakes nobody, and this connection may wait for its peer to take something.
        turn.fx.wake.push(id);
        if let Some(session) = self.session_mut(id)
            && session.phase == Phase::Fresh
        {
            session.phase = Phase::Over;
        }
    }

    /// Ends a session that did not become, or may not stay, an agent.
    pub(crate) fn refuse(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        code: GoodbyeCode,
        reason: &str,
        agent_id: Option<&str>,
    ) {
        let Some(session) = self.session(id) else { return };
        if session.phase == Phase::Over {
            return;
        }
        if session.phase == Phase::Fresh {
            let identity = Arc::clone(&session.peer.identity);
            let agent = agent_id.unwrap_or_default().to_owned();
            turn.fx.facts.push(Fact::Refused { identity, agent, reason: code.as_str() });
        }
        let storm = (code == GoodbyeCode::RateLimited).then_some(STORM_WINDOW_MS);
        let after = if code == GoodbyeCode::Draining { Some(self.come_back_ms()) } else { storm };
        self.goodbye(turn, id, code, reason, after);
        self.leave(turn, id, code.as_str(), false);
    }

    /// Takes a session out of service. Its agent may come back within the resume window, unless `settle`.
    pub(crate) fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        reason: &'static str,
        settle: bool,
    ) {
        let Some(session) = self.session_mut(id) else { return };
        let phase = std::mem::replace(&mut session.phase, Phase::Over);
        let timer_at = session.timer_at;
        self.timers.clear(timer_at, Timer::Session(id));
        let Phase::Open(key) = phase else { return };
        let resume_ms = self.settings.resume_ms;
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        // A newer connection may have taken over already: the late end of the older one is not the agent's.
        if agent.session != Some(id) {
            return;
        }
        agent.session = None;
        agent.suspect = false;
        if agent.guest {
            return self.leave_guest(turn, key);
        }
        let (id, identity) = (Arc::clone(&agent.id), Arc::clone(&agent.identity));
        turn.fx.facts.push(Fact::Left { agent: id, identity, reason });
        self.announce_left(turn, key, reason);
        self.detach(turn, key);
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        if settle || !agent.has_open() {
            self.forget_agent(turn, key);
        } else {
            self.set_agent_timer(key, Some(turn.now.plus_ms(resume_ms)));
        }
    }

    /// Sets the one end of an agent's resume window, or takes it away.
    pub(crate) fn set_agent_timer(&mut self, key: usize, until: Option<Now>) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        let before = std::mem::replace(&mut agent.away_until, until);
        if let Some(before) = before {
            self.timers.clear(before, Timer::Agent(key));
        }
        if let Some(until) = until {
            self.timers.set(until, Timer::Agent(key));
        }
    }

    /// The resume window of an absent agent is over, or there is none: what it had open is settled.
    pub(crate) fn forget_agent(&mut self, turn: &mut Turn<'_>, key: usize) {
        self.may_take_less(key);
        self.settle_given(turn, key);
        self.settle_asked(turn, key);
        self.set_agent_timer(key, None);
        let Some(agent) = self.registry.remove(key) else { return };
        // What it declared to call bound its tasks for as long as it was here.
        if agent.declared.is_some() && self.tasks.are_of(&agent.identity) {
            self.requeue(turn, Some((key, agent.serial)));
        }
    }

    pub(crate) fn on_goodbye(&mut self, turn: &mut Turn<'_>, id: ConnectionId) {
        self.close(turn, id, GoodbyeCode::Normal);
        self.leave(turn, id, "normal", false);
    }
}

/// Which way through the outbound queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// In order.
    Data,
    /// Ahead of data.
    Control,
    /// Ahead of data, but not of the message at this mark.
    About(Mark),
}
