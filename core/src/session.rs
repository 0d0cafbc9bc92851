//! Sessions: from an open WebSocket to a registered agent, its liveness, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::names::{self, Pattern};
use agent_reach_protocol::{
    AgentStatus, Capability, ErrorCode, Goodbye, GoodbyeCode, Granted, Hello, Kind, Update, Welcome, encode,
    limits,
};

use crate::authz;
use crate::effects::{Fact, Liveness};
use crate::hub::{Complaint, Hub, Turn};
use crate::input::{ConnectionId, Peer};
use crate::outbound::{Mark, Outbound, Outgoing};
use crate::registry::{About, Agent, Figures, Offer, own_labels};
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
    timer_at: Now,
}

/// Times of recent HELLOs of one agent id.
pub(crate) type Hellos = BTreeMap<Arc<str>, Vec<Now>>;

/// The window in which HELLOs of one agent are counted, in milliseconds.
const STORM_WINDOW_MS: u64 = 10_000;

impl Hub {
    pub(crate) fn session(&self, id: ConnectionId) -> Option<&Session> {
        self.sessions.get(id.index as usize)?.as_ref().filter(|session| session.id == id)
    }

    pub(crate) fn session_mut(&mut self, id: ConnectionId) -> Option<&mut Session> {
        self.sessions.get_mut(id.index as usize)?.as_mut().filter(|session| session.id == id)
    }

    pub(crate) fn on_connected(&mut self, turn: &mut Turn<'_>, id: ConnectionId, peer: Peer) {
        let index = id.index as usize;
        while self.sessions.len() <= index {
            self.sessions.push(None);
        }
        let timer_at = turn.now.plus_ms(self.settings.handshake_timeout_ms);
        self.timers.set(timer_at, Timer::Session(id));
        let outbound = Outbound::default();
        let session = Session { id, peer, phase: Phase::Fresh, outbound, last_seen: turn.now, timer_at };
        if let Some(place) = self.sessions.get_mut(index) {
            *place = Some(session);
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

    fn set_session_timer(&mut self, id: ConnectionId, at: Now) {
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
        let Some(session) = self.session_mut(id) else { return Mark::default() };
        if session.phase == Phase::Over {
            return Mark::default();
        }
        let queue = &mut session.outbound;
        if queue.is_empty() {
            turn.fx.wake.push(id);
        }
        let before = queue.bytes();
        let mark = match lane {
            Lane::Data => queue.push_data(turn.now, outgoing),
            Lane::Control => {
                queue.push_control(turn.now, outgoing);
                Mark::default()
            }
            Lane::About(mark) => {
                queue.push_control_about(turn.now, mark, outgoing);
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

    /// Ends the sessions whose queues passed their bound. Done after the input that filled them, so that
    /// no loop over calls has its calls change under it.
    pub(crate) fn end_slow_consumers(&mut self, turn: &mut Turn<'_>) {
        while let Some(id) = self.overfull.pop() {
            let Some(session) = self.session(id) else { continue };
            let Phase::Open(key) = session.phase else { continue };
            if let Some(agent) = self.registry.agents.get(key) {
                turn.fx.facts.push(Fact::SlowConsumer { agent: Arc::clone(&agent.id) });
            }
            self.goodbye(turn, id, GoodbyeCode::SlowConsumer, "the outbound queue is full", None);
            self.leave(turn, id, "slow_consumer", false);
        }
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
        let Some(session) = self.session_mut(id) else { return };
        let dropped = session.outbound.bytes();
        session.outbound.clear();
        self.outbound_bytes = self.outbound_bytes.saturating_sub(dropped);
        let reason = clip(reason);
        let goodbye = Goodbye { code: code.as_str(), reason: Some(reason), reconnect_after_ms };
        self.counters.sent(Kind::Goodbye);
        self.send(turn, id, Lane::Control, Outgoing::Message(encode(&goodbye, None)));
        // A queue that was not empty woke nobody: its owner has not come yet. It is told again now.
        turn.fx.wake.push(id);
        self.close(turn, id, code);
    }

    /// Queues the WebSocket close behind everything else; nothing is sent after it.
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>, id: ConnectionId, code: GoodbyeCode) {
        let close = Outgoing::Close { code: code.close_code(), reason: code.as_str() };
        self.send(turn, id, Lane::Data, close);
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
        turn.fx.facts.push(Fact::Left { agent: Arc::clone(&agent.id), reason });
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
    fn set_agent_timer(&mut self, key: usize, until: Option<Now>) {
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
        self.settle_given(turn, key);
        self.settle_asked(turn, key);
        self.set_agent_timer(key, None);
        self.registry.remove(key);
    }

    pub(crate) fn on_hello(&mut self, turn: &mut Turn<'_>, id: ConnectionId, hello: &Hello<'_>) {
        let Some(session) = self.session(id) else { return };
        if session.phase != Phase::Fresh {
            return self.refuse(turn, id, GoodbyeCode::ProtocolError, "a second HELLO", None);
        }
        let peer = session.peer.clone();
        let agent_id = hello.agent_id;
        if let Err((code, reason)) = self.admit(turn.now, hello, &peer) {
            return self.refuse(turn, id, code, &reason, Some(agent_id));
        }
        let Some(grant) = self.policy.grant(&peer.identity, &peer.name, agent_id) else {
            let reason = format!("{} may not be agent {agent_id:?}", peer.identity);
            return self.refuse(turn, id, GoodbyeCode::Unauthorized, &reason, Some(agent_id));
        };
        let declared = match read_patterns(hello.calls.as_deref()) {
            Ok(declared) => declared,
            Err(reason) => {
                return self.refuse(turn, id, GoodbyeCode::ProtocolError, &reason, Some(agent_id));
            }
        };
        let (offers, warnings) = self.read_offers(&hello.capabilities, &grant);
        let max_concurrency = hello.max_concurrency.unwrap_or(limits::MAX_CONCURRENCY_DEFAULT);
        let agent = Agent {
            id: agent_id.into(),
            identity: peer.identity,
            instance: hello.instance.into(),
            session: Some(id),
            away_until: None,
            about: Box::new(About {
                service: hello.service.map(Into::into),
                version: hello.version.map(Into::into),
                sdk: hello.sdk.map(Into::into),
                labels: own_labels(&hello.labels),
                load: None,
            }),
            grant,
            declared,
            offers,
            max_concurrency: u32::try_from(max_concurrency).unwrap_or(u32::MAX),
            in_flight: 0,
            status: hello.status.unwrap_or(AgentStatus::Ready),
            suspect: false,
            health: None,
            registered_at: turn.now,
            asked: BTreeMap::new(),
            detached: Vec::new(),
            given: BTreeMap::new(),
            orphaned: Vec::new(),
            next_id: 1,
            figures: Figures::default(),
        };
        let (key, replaced) = self.register(turn, agent);
        if let Some(load) = &hello.load
            && let Some(agent) = self.registry.agents.get_mut(key)
        {
            agent.report(load);
        }
        self.welcome(turn, id, key, &warnings, replaced);
        self.give_again(turn, key);
        self.announce_agent(turn, key, "agent.connected");
    }

    /// What can be said of a HELLO before looking at what it wants.
    fn admit(&mut self, now: Now, hello: &Hello<'_>, peer: &Peer) -> Result<(), (GoodbyeCode, String)> {
        if hello.v != limits::VERSION {
            let reason = format!("version {} is not spoken here; version {} is", hello.v, limits::VERSION);
            return Err((GoodbyeCode::VersionUnsupported, reason));
        }
        if !names::is_agent_id(hello.agent_id) {
            let reason = "agent_id is 1-128 of ASCII letters, digits and . _ - : @ + ~".to_owned();
            return Err((GoodbyeCode::ProtocolError, reason));
        }
        if self.draining.is_some() {
            return Err((GoodbyeCode::Draining, "the hub is draining".to_owned()));
        }
        // Only who may be this agent counts towards its storm: nobody else can lock it out.
        if self.policy.grant(&peer.identity, &peer.name, hello.agent_id).is_some()
            && self.is_storm(now, hello.agent_id)
        {
            let reason = format!(
                "more than {} registrations of {} in 10 s",
                self.settings.registrations_per_10s, hello.agent_id
            );
            return Err((GoodbyeCode::RateLimited, reason));
        }
        Ok(())
    }

    fn is_storm(&mut self, now: Now, agent_id: &str) -> bool {
        let most = self.settings.registrations_per_10s;
        let recent = match self.hellos.get_mut(agent_id) {
            Some(recent) => recent,
            None => self.hellos.entry(agent_id.into()).or_default(),
        };
        recent.retain(|at| now.ms_since(*at) < STORM_WINDOW_MS);
        if recent.len() >= most {
            return true;
        }
        recent.push(now);
        self.sweep_later(now);
        false
    }

    /// Forgets HELLOs that no longer count.
    pub(crate) fn sweep_hellos(&mut self, now: Now) {
        self.hellos.retain(|_, recent| {
            recent.retain(|at| now.ms_since(*at) < STORM_WINDOW_MS);
            !recent.is_empty()
        });
    }

    fn read_offers(&mut self, listed: &[Capability<'_>], grant: &authz::Grant) -> (Vec<Offer>, Vec<String>) {
        let mut offers: Vec<Offer> = Vec::with_capacity(listed.len());
        let mut warnings = Vec::new();
        for capability in listed {
            match Offer::read(capability, &mut self.registry.names) {
                Err(warning) => warnings.push(warning),
                Ok((offer, _)) if !offer.names().all(|name| authz::covers(&grant.provide, name)) => {
                    warnings.push(format!("capability {} left out: not granted", offer.name));
                }
                Ok((offer, _)) if offers.iter().any(|other| other.name == offer.name) => {
                    warnings.push(format!("capability {} left out: it is listed twice", offer.name));
                }
                Ok((offer, warning)) => {
                    warnings.extend(warning);
                    offers.push(offer);
                }
            }
        }
        (offers, warnings)
    }

    /// Puts the agent into the registry; the newest connection of an agent wins.
    fn register(&mut self, turn: &mut Turn<'_>, mut agent: Agent) -> (usize, bool) {
        let connection = agent.session;
        let name = Arc::clone(&agent.id);
        let identity = Arc::clone(&agent.identity);
        let mut replaced = false;
        let key = match self.registry.find(&name) {
            None => self.registry.insert(agent),
            Some(key) => {
                let older = self.registry.agents.get(key).and_then(|before| before.session);
                if let Some(older) = older {
                    replaced = true;
                    self.goodbye(turn, older, GoodbyeCode::Replaced, "a newer connection took over", None);
                    if let Some(session) = self.session_mut(older) {
                        session.phase = Phase::Over;
                        let timer_at = session.timer_at;
                        self.timers.clear(timer_at, Timer::Session(older));
                    }
                    self.detach(turn, key);
                }
                let same =
                    self.registry.agents.get(key).is_some_and(|before| before.instance == agent.instance);
                if !same {
                    // Another life of the process has lost what the earlier one was given.
                    self.settle_given(turn, key);
                }
                let offers = std::mem::take(&mut agent.offers);
                self.set_agent_timer(key, None);
                if let Some(before) = self.registry.agents.get_mut(key) {
                    agent.id = Arc::clone(&before.id);
                    agent.offers = std::mem::take(&mut before.offers);
                    agent.in_flight = before.in_flight;
                    agent.detached = std::mem::take(&mut before.detached);
                    agent.orphaned = std::mem::take(&mut before.orphaned);
                    agent.figures = before.figures;
                    *before = agent;
                }
                self.registry.set_offers(key, offers);
                // Calls it asked for wait for it to ask again, no longer than had it stayed away.
                self.await_asking_again(turn.now, key);
                key
            }
        };
        if let Some(id) = connection
            && let Some(session) = self.session_mut(id)
        {
            session.phase = Phase::Open(key);
            let next = turn.now.plus_ms(self.settings.suspect_ms);
            self.set_session_timer(id, next);
        }
        turn.fx.facts.push(Fact::Registered { agent: name, identity, replaced });
        (key, replaced)
    }

    fn await_asking_again(&mut self, now: Now, key: usize) {
        if self.registry.agents.get(key).is_some_and(|agent| !agent.detached.is_empty()) {
            self.set_agent_timer(key, Some(now.plus_ms(self.settings.resume_ms)));
        }
    }

    fn welcome(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        key: usize,
        warnings: &[String],
        replaced: bool,
    ) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        let session = format!("{:08x}-{}-{}", self.epoch(), id.index, id.generation);
        let provide: Vec<String> = agent.grant.provide.iter().map(ToString::to_string).collect();
        let call: Vec<String> = match &agent.declared {
            None => agent.grant.call.iter().map(ToString::to_string).collect(),
            Some(declared) => declared.iter().map(ToString::to_string).collect(),
        };
        let welcome = Welcome {
            session: &session,
            hub: &self.settings.hub_name,
            features: Vec::new(),
            keepalive_ms: self.settings.keepalive_ms,
            suspect_ms: self.settings.suspect_ms,
            gone_ms: self.settings.gone_ms,
            max_message: self.settings.max_message as u64,
            max_in_flight: self.settings.max_in_flight as u64,
            granted: Granted {
                provide: provide.iter().map(String::as_str).collect(),
                call: call.iter().map(String::as_str).collect(),
            },
            warnings: warnings.iter().map(String::as_str).collect(),
            replaced,
        };
        let message = encode(&welcome, None);
        self.counters.sent(Kind::Welcome);
        self.send(turn, id, Lane::Control, Outgoing::Message(message));
    }

    pub(crate) fn on_update(&mut self, turn: &mut Turn<'_>, key: usize, update: &Update<'_>) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        let Some(id) = agent.session else { return };
        if let Some(load) = &update.load {
            agent.report(load);
        }
        let changed = update.status.is_some_and(|status| status != agent.status);
        if let Some(status) = update.status {
            agent.status = status;
        }
        let mut refused: Vec<(ErrorCode, String)> = Vec::new();
        if !update.add.is_empty() {
            let grant = agent.grant.clone();
            let (offers, warnings) = self.read_offers(&update.add, &grant);
            refused.extend(warnings.into_iter().filter(|w| w.contains("left out")).map(|warning| {
                let forbidden = warning.ends_with("not granted");
                (if forbidden { ErrorCode::Unauthorized } else { ErrorCode::InvalidRequest }, warning)
            }));
            self.registry.add_offers(key, offers);
        }
        for name in &update.remove {
            if !self.registry.remove_offer(key, &names::fold(name)) {
                refused.push((ErrorCode::InvalidRequest, format!("remove: {name:?} is not registered")));
            }
        }
        for (code, message) in refused {
            let field = if message.starts_with("remove") { "remove" } else { "add" };
            let kind = Kind::Update.number();
            self.complain(
                turn,
                id,
                &Complaint { kind, id: None, code, message: &message, field: Some(field) },
            );
        }
        if changed || !update.add.is_empty() || !update.remove.is_empty() {
            self.announce_agent(turn, key, "agent.updated");
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

fn read_patterns(calls: Option<&[&str]>) -> Result<Option<Box<[Pattern]>>, String> {
    let Some(calls) = calls else { return Ok(None) };
    let mut patterns = Vec::with_capacity(calls.len());
    for text in calls {
        patterns.push(text.parse().map_err(|e| format!("calls: {text:?} {e}"))?);
    }
    Ok(Some(patterns.into()))
}

/// Cuts a reason to what GOODBYE may carry, at a character.
fn clip(text: &str) -> &str {
    let mut end = text.len().min(1024);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}
