//! Registration: from HELLO to WELCOME, and what UPDATE changes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::names::{self, Pattern, WINDOW_SEPARATOR};
use agent_reach_protocol::{
    AgentStatus, GoodbyeCode, Granted, Hello, Kind, Labels, Update, Welcome, encode, limits,
};

use crate::authz::{TOKEN_PREFIX, WINDOWS_MAX};
use crate::effects::Fact;
use crate::hub::{Complaint, Hub, Turn};
use crate::input::{ConnectionId, Peer};
use crate::offering::{Notice, add, keep_breakers, remove};
use crate::outbound::Outgoing;
use crate::registry::{About, Agent};
use crate::schema::Allowance;
use crate::session::{Lane, Phase};
use crate::time::{Now, Timer};

/// Times of recent HELLOs of one agent id.
pub(crate) type Hellos = BTreeMap<Arc<str>, Vec<Now>>;

/// The window in which HELLOs of one agent are counted, in milliseconds.
pub(crate) const STORM_WINDOW_MS: u64 = 10_000;

/// What came of putting an agent into the registry.
struct Registration {
    key: usize,
    /// An older connection gave way.
    replaced: bool,
    /// It declares to call other capabilities than before.
    redeclared: bool,
}

impl Hub {
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
        // One that comes back has what it left of its allowance.
        let before = self.registry.find(agent_id).and_then(|key| self.registry.agents.get(key));
        let mut allowance = before.map_or_else(|| Allowance::full(turn.now), |before| before.schemas);
        let (offers, notices) = self.read_offers(turn.now, &hello.capabilities, &grant, &[], &mut allowance);
        let slots = hello.max_concurrency.unwrap_or(limits::MAX_CONCURRENCY_DEFAULT);
        let slots = slots.min(limits::MAX_CONCURRENCY_MAX);
        // Nearly every agent is named as its certificate is: one copy of the name does for both.
        let own = if *agent_id == *peer.name { peer.name } else { agent_id.into() };
        let agent = Agent {
            instance: hello.instance.into(),
            session: Some(id),
            about: About {
                service: hello.service.map(Into::into),
                version: hello.version.map(Into::into),
                sdk: hello.sdk.map(Into::into),
                labels: own_labels(&hello.labels),
            },
            declared,
            offers,
            max_concurrency: u32::try_from(slots).unwrap_or(u32::MAX),
            schemas: allowance,
            status: hello.status.unwrap_or(AgentStatus::Ready),
            drained: self.drained.holds(agent_id, hello.instance),
            ..Agent::new(own, peer.identity, grant, turn.now)
        };
        let Registration { key, replaced, redeclared } = self.register(turn, agent);
        if let Some(load) = &hello.load
            && let Some(agent) = self.registry.agents.get_mut(key)
        {
            agent.report(load);
        }
        self.welcome(turn, id, key, &notices, replaced);
        self.take_up(turn, key);
        if redeclared && let Some(agent) = self.registry.agents.get(key) {
            let owner = (key, agent.serial);
            self.requeue(turn, Some(owner));
        }
    }

    /// An agent is here: it gets what waited for it, and is told of.
    fn take_up(&mut self, turn: &mut Turn<'_>, key: usize) {
        self.give_again(turn, key);
        self.give_back(turn, key);
        self.start_deliveries(turn, key);
        self.may_take_more(key);
        self.announce_agent(turn, key, "agent.connected");
    }

    /// What can be said of a HELLO before looking at what it wants.
    fn admit(&mut self, now: Now, hello: &Hello<'_>, peer: &Peer) -> Result<(), (GoodbyeCode, String)> {
        if hello.v != limits::VERSION {
            let reason = format!("version {} is not spoken here; version {} is", hello.v, limits::VERSION);
            return Err((GoodbyeCode::VersionUnsupported, reason));
        }
        let of_token = peer.identity.starts_with(TOKEN_PREFIX);
        let is_window = of_token && names::split_window(hello.agent_id).is_some();
        if !names::is_agent_id(hello.agent_id) && !is_window {
            let reason = "agent_id is 1-128 of ASCII letters, digits and . _ - : @ + ~".to_owned();
            return Err((GoodbyeCode::ProtocolError, reason));
        }
        if self.draining.is_some() {
            return Err((GoodbyeCode::Draining, "the hub is draining".to_owned()));
        }
        // Only who may be this agent counts towards its storm: nobody else can lock it out.
        if self.policy.grant(&peer.identity, &peer.name, hello.agent_id).is_none() {
            return Ok(());
        }
        let each = self.settings.registrations_per_10s;
        let (counted, most) = if is_window {
            let is_new = self.registry.find(hello.agent_id).is_none();
            if is_new && self.registry.windows(&peer.name) >= WINDOWS_MAX {
                let reason = format!("{} has {WINDOWS_MAX} windows, which is the limit", peer.identity);
                return Err((GoodbyeCode::Unauthorized, reason));
            }
            // Together: who makes up a new name each time is no way around the bound, nor fills the memory.
            (format!("{}{WINDOW_SEPARATOR}", peer.name).into(), each.saturating_mul(WINDOWS_MAX))
        } else {
            (Cow::Borrowed(hello.agent_id), each)
        };
        if self.is_storm(now, &counted, most) {
            let reason = format!("more than {most} registrations of {counted} in 10 s");
            return Err((GoodbyeCode::RateLimited, reason));
        }
        Ok(())
    }

    fn is_storm(&mut self, now: Now, agent_id: &str, most: usize) -> bool {
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

    /// Puts the agent into the registry; the newest connection of an agent wins.
    fn register(&mut self, turn: &mut Turn<'_>, mut agent: Agent) -> Registration {
        let connection = agent.session;
        let name = Arc::clone(&agent.id);
        let identity = Arc::clone(&agent.identity);
        let (mut replaced, mut redeclared) = (false, false);
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
                // Until it is the newer one's, it is nobody whom what is settled now could be given to.
                if let Some(before) = self.registry.agents.get_mut(key) {
                    before.session = None;
                }
                let same = self.registry.agents.get(key).is_some_and(|before| {
                    before.instance == agent.instance && before.identity == agent.identity
                });
                if !same {
                    // Another life of the process has lost what the earlier one was given.
                    self.settle_given(turn, key);
                }
                let mut offers = std::mem::take(&mut agent.offers);
                if same && let Some(before) = self.registry.agents.get_mut(key) {
                    // A lost connection is no cure.
                    keep_breakers(&mut before.offers, &mut offers);
                }
                let window = self.registry.agents.get(key).and_then(|before| before.away_until);
                self.set_agent_timer(key, None);
                if let Some(before) = self.registry.agents.get_mut(key) {
                    agent.id = Arc::clone(&before.id);
                    agent.serial = before.serial;
                    agent.offers = std::mem::take(&mut before.offers);
                    agent.in_flight = before.in_flight;
                    agent.open_bytes = before.open_bytes;
                    agent.detached = std::mem::take(&mut before.detached);
                    agent.orphaned = std::mem::take(&mut before.orphaned);
                    agent.figures = before.figures;
                    redeclared = before.declared != agent.declared;
                    **before = agent;
                }
                self.may_take_less(key);
                self.registry.set_offers(key, offers);
                // Calls it asked for wait for it to ask again, no longer than had it stayed away. What the
                // connection that gave way just now had open has the whole window.
                let until =
                    window.filter(|_| !replaced).unwrap_or_else(|| turn.now.plus_ms(self.settings.resume_ms));
                if self.registry.agents.get(key).is_some_and(|agent| !agent.detached.is_empty()) {
                    self.set_agent_timer(key, Some(until));
                }
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
        Registration { key, replaced, redeclared }
    }

    fn welcome(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        key: usize,
        notices: &[Notice],
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
            warnings: notices.iter().map(|notice| &*notice.text).collect(),
            replaced,
        };
        let message = encode(&welcome, None);
        self.counters.sent(Kind::Welcome);
        self.send(turn, id, Lane::Control, Outgoing::Message(message));
    }

    pub(crate) fn on_update(&mut self, turn: &mut Turn<'_>, key: usize, update: &Update<'_>) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        let Some(id) = agent.session else { return };
        let worked = agent.takes_work();
        if let Some(load) = &update.load {
            agent.report(load);
        }
        let changed = update.status.is_some_and(|status| status != agent.status);
        if let Some(status) = update.status {
            agent.status = status;
        }
        match (worked, agent.takes_work()) {
            (false, true) => self.may_take_more(key),
            (true, false) => self.may_take_less(key),
            _ => {}
        }
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        // A heartbeat changes nothing else.
        if !changed && update.add.is_empty() && update.remove.is_empty() {
            return;
        }
        // It is put back below: reading compares with what is offered.
        let (kept, grant) = (std::mem::take(&mut agent.offers), Arc::clone(&agent.grant));
        let mut allowance = agent.schemas;
        let (added, said) = self.read_offers(turn.now, &update.add, &grant, &kept, &mut allowance);
        if let Some(agent) = self.registry.agents.get_mut(key) {
            (agent.offers, agent.schemas) = (kept, allowance);
        }
        let mut notices: Vec<(&str, Notice)> = said.into_iter().map(|notice| ("add", notice)).collect();
        if !update.add.is_empty() || !update.remove.is_empty() {
            self.may_take_less(key);
            let left_out = self.registry.edit_offers(key, |offers| {
                let mut left_out = add(offers, added);
                left_out.extend(remove(offers, &update.remove));
                left_out
            });
            self.may_take_more(key);
            notices.extend(left_out.into_iter().flatten());
        }
        for (field, notice) in notices {
            if let Some(code) = notice.left_out {
                let kind = Kind::Update.number();
                let complaint = Complaint { kind, id: None, code, message: &notice.text, field: Some(field) };
                self.complain(turn, id, &complaint);
            }
        }
        self.announce_agent(turn, key, "agent.updated");
    }
}

fn read_patterns(calls: Option<&[&str]>) -> Result<Option<Box<[Pattern]>>, String> {
    let Some(calls) = calls else { return Ok(None) };
    let mut patterns = Vec::with_capacity(calls.len());
    for text in calls {
        patterns.push(text.parse().map_err(|e| format!("calls: {text:?} {e}"))?);
    }
    Ok(Some(patterns.into()))
}

/// Owned labels.
fn own_labels(labels: &Labels<'_>) -> Box<[(Box<str>, Box<str>)]> {
    labels.0.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
}
