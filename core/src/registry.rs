//! Agents, and what they offer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use agent_reach_protocol::names::{Pattern, WINDOW_SEPARATOR};
use agent_reach_protocol::{AgentStatus, FieldValue, Labels, Load};
use slab::Slab;
use xxhash_rust::xxh3::xxh3_128;

use crate::authz::{Grant, covers};
use crate::given::Given;
use crate::input::ConnectionId;
use crate::offer::Offer;
use crate::offered::Names;
use crate::schema::Allowance;
use crate::stats::Figures;
use crate::time::Now;

/// Health below this takes an agent out of routing.
pub(crate) const HEALTH_MIN: u64 = 60;

/// What being degraded weighs: as much as a full agent and one capability that is full.
const DEGRADED_WEIGHT: f64 = 4.0;

/// One agent: its registration, and what it has open.
///
/// In the order in which it is written down: what routing reads of every agent that offers a name comes first, and is
/// one line of the processor's cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Agent {
    pub(crate) offers: Vec<Offer>,
    /// The fill of its capabilities as the last load report said it: the one part that routing reads.
    pub(crate) levels: Box<[(Box<str>, f64)]>,
    /// `None` while it is away and may come back.
    pub(crate) session: Option<ConnectionId>,
    pub(crate) max_concurrency: u32,
    /// Slots taken, by the hub's own count.
    pub(crate) in_flight: u32,
    pub(crate) status: AgentStatus,
    /// An operator took it out of work, until its process begins anew or it is given back.
    pub(crate) drained: bool,
    pub(crate) suspect: bool,
    /// It is no agent, and nobody finds it: a caller for the time of one request.
    pub(crate) guest: bool,
    /// What it has to do beside the hub's calls, by its last report; at most as much as it has slots.
    pub(crate) foreign: u16,
    pub(crate) health: Option<u8>,
    /// How many of the calls that it asked for are tasks, which have bounds of their own.
    pub(crate) tasks: u32,
    pub(crate) id: Arc<str>,
    /// Tells it from others that had its place before, or will have it; given by the registry.
    pub(crate) serial: u64,
    pub(crate) identity: Arc<str>,
    pub(crate) instance: Box<str>,
    /// When its resume window ends, while it is away.
    pub(crate) away_until: Option<Now>,
    pub(crate) about: About,
    /// The last load report.
    pub(crate) load: Option<Box<Reported>>,
    pub(crate) grant: Arc<Grant>,
    /// `None`: everything that is granted.
    pub(crate) declared: Option<Box<[Pattern]>>,
    /// What it may yet have compiled.
    pub(crate) schemas: Allowance,
    pub(crate) registered_at: Now,
    /// Calls it asked for that are open on its present connection, by its own ids.
    pub(crate) asked: BTreeMap<u64, Asked>,
    /// Calls it asked for on an earlier connection that it has not asked for again.
    pub(crate) detached: Vec<usize>,
    /// Legs it was given, by the hub's ids on its connection.
    pub(crate) given: Given,
    /// Legs of an earlier connection, until it comes back or is lost.
    pub(crate) orphaned: Vec<usize>,
    pub(crate) next_id: u64,
    /// What its open calls count, of its share of what all may have open.
    pub(crate) open_bytes: usize,
    pub(crate) figures: Figures,
}

/// What an id of a caller stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Call(usize),
    Watch(usize),
    /// A question that the store has not answered.
    Question(u64),
}

/// What an agent says of itself, and nothing decides on.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) service: Option<Box<str>>,
    pub(crate) version: Option<Box<str>>,
    pub(crate) sdk: Option<Box<str>>,
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
}

/// What a load report says of the whole agent.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reported {
    pub(crate) in_flight: Option<u64>,
    pub(crate) queued: Option<u64>,
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
}

impl Agent {
    /// One that says nothing of itself and offers nothing.
    pub(crate) fn new(id: Arc<str>, identity: Arc<str>, grant: Arc<Grant>, now: Now) -> Self {
        Self {
            id,
            serial: 0,
            identity,
            instance: Box::default(),
            session: None,
            away_until: None,
            about: About::default(),
            load: None,
            levels: Box::default(),
            grant,
            declared: None,
            offers: Vec::new(),
            max_concurrency: 0,
            schemas: Allowance::full(now),
            in_flight: 0,
            foreign: 0,
            status: AgentStatus::Ready,
            drained: false,
            suspect: false,
            guest: false,
            health: None,
            registered_at: now,
            asked: BTreeMap::new(),
            tasks: 0,
            detached: Vec::new(),
            given: Given::default(),
            orphaned: Vec::new(),
            next_id: 1,
            open_bytes: 0,
            figures: Figures::default(),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.about.labels.iter().find(|(own, _)| &**own == key).map(|(_, value)| &**value)
    }

    /// Whether policy and the agent's own declaration let it call a name.
    pub(crate) fn may_call(&self, name: &str) -> bool {
        covers(&self.grant.call, name)
            && self.declared.as_deref().is_none_or(|declared| covers(declared, name))
    }

    /// Stands for what it may call; `None` where that is everything.
    pub(crate) fn rights(&self) -> Option<u128> {
        rights_of(&self.grant.call, self.declared.as_deref())
    }

    /// Whether it takes new calls by its own word.
    pub(crate) fn takes_work(&self) -> bool {
        let is_healthy = self.health.is_none_or(|health| u64::from(health) >= HEALTH_MIN);
        !self.is_draining() && is_healthy
    }

    /// Whether it ends what it has and gets nothing new, by its own word or an operator's.
    pub(crate) fn is_draining(&self) -> bool {
        self.drained || self.status == AgentStatus::Draining
    }

    /// Its first offer of a name, given as the shared copy, if it can take a call of it that asks nothing else: it is
    /// here and at work, has a free slot, and the offer lets every call through. `None` says nothing.
    ///
    /// Asked of every agent that offers the name, for every call: without a branch for each part.
    #[inline]
    pub(crate) fn plain_offer(&self, name: &Arc<str>) -> Option<usize> {
        let at_work = self.session.is_some()
            & !self.suspect
            & !self.drained
            & (self.status != AgentStatus::Draining)
            & self.health.is_none_or(|health| u64::from(health) >= HEALTH_MIN)
            & (self.in_flight < self.max_concurrency);
        if !at_work {
            return None;
        }
        for (place, offer) in self.offers.iter().enumerate() {
            // An alias of an earlier offer goes before it, and is a term.
            if Arc::ptr_eq(&offer.name, name) || !offer.has_no_terms() {
                return offer.is_plain(name).then_some(place);
            }
        }
        None
    }

    /// The share of its slots that is taken, by calls of the hub and by what else it said it has to do. One that is
    /// degraded comes after all that are not.
    pub(crate) fn share(&self) -> f64 {
        let taken = f64::from(self.in_flight) + f64::from(self.foreign);
        let degraded = if self.status == AgentStatus::Degraded { DEGRADED_WEIGHT } else { 0.0 };
        taken / f64::from(self.max_concurrency.max(1)) + degraded
    }

    /// The fill of one capability that the agent reports, 0 to 1.
    pub(crate) fn level(&self, name: &str) -> f64 {
        if self.levels.is_empty() { 0.0 } else { self.reported_level(name) }
    }

    #[inline(never)]
    fn reported_level(&self, name: &str) -> f64 {
        self.levels.iter().find(|(own, _)| &**own == name).map_or(0.0, |(_, level)| *level)
    }

    pub(crate) fn has_labels(&self, labels: &Labels<'_>) -> bool {
        labels.0.iter().all(|(key, value)| self.label(key) == Some(*value))
    }

    /// Takes over a load report.
    pub(crate) fn report(&mut self, load: &Load<'_>) {
        // Of what it has to do the hub knows its own calls better, and at every moment: only the rest is taken over.
        let all = load.in_flight.unwrap_or(0).saturating_add(load.queued.unwrap_or(0));
        let foreign = all.saturating_sub(u64::from(self.in_flight));
        self.foreign = u16::try_from(foreign.min(u64::from(self.max_concurrency))).unwrap_or(u16::MAX);
        self.health = load.health.map(|health| u8::try_from(health.min(100)).unwrap_or(100));
        let report =
            Reported { in_flight: load.in_flight, queued: load.queued, cpu: load.cpu, memory: load.memory };
        if !self.levels.is_empty() || load.levels.present() {
            // What it does not offer is no capability of its own to be full.
            let levels = load.levels.0.iter();
            let levels = levels.filter(|(name, _)| self.offers.iter().any(|offer| &*offer.name == *name));
            self.levels = levels.map(|(name, level)| ((*name).into(), *level)).collect();
        }
        // A heartbeat of every agent every few seconds: in the place of the one before.
        match &mut self.load {
            Some(before) => **before = report,
            none => *none = Some(Box::new(report)),
        }
    }

    pub(crate) fn has_open(&self) -> bool {
        self.asked.len() > self.tasks as usize
            || !self.given.is_empty()
            || !self.detached.is_empty()
            || !self.orphaned.is_empty()
    }
}

/// Stands for what is granted and declared to be called; `None` where that is everything.
pub(crate) fn rights_of(granted: &[Pattern], declared: Option<&[Pattern]>) -> Option<u128> {
    if declared.is_none() && granted.contains(&Pattern::All) {
        return None;
    }
    let mut text = String::new();
    for pattern in granted.iter().map(Some).chain([None]).chain(declared.into_iter().flatten().map(Some)) {
        text.push_str(&pattern.map(ToString::to_string).unwrap_or_default());
        text.push(' ');
    }
    Some(xxh3_128(text.as_bytes()))
}

/// All agents.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Each in a place of its own: a slab of them would have room for twice as many, and move them all to grow.
    pub(crate) agents: Slab<Box<Agent>>,
    by_id: BTreeMap<Arc<str>, usize>,
    serials: u64,
    pub(crate) names: Names,
}

impl Registry {
    pub(crate) fn new(names: usize) -> Self {
        Self { agents: Slab::new(), by_id: BTreeMap::new(), serials: 0, names: Names::new(names) }
    }

    pub(crate) fn find(&self, agent_id: &str) -> Option<usize> {
        self.by_id.get(agent_id).copied()
    }

    /// All agents by id, from the first after `after`.
    pub(crate) fn by_id_after<'a>(&'a self, after: &str) -> impl Iterator<Item = (usize, &'a Agent)> {
        self.by_id
            .range::<str, _>((Bound::Excluded(after), Bound::Unbounded))
            .filter_map(|(_, key)| self.agents.get(*key).map(|agent| (*key, &**agent)))
    }

    /// How many windows of one token have a place here, those included that are away and awaited.
    pub(crate) fn windows(&self, name: &str) -> usize {
        let first = format!("{name}{WINDOW_SEPARATOR}");
        let from = self.by_id.range::<str, _>((Bound::Included(first.as_str()), Bound::Unbounded));
        from.take_while(|(id, _)| id.starts_with(&first)).count()
    }

    pub(crate) fn insert(&mut self, mut agent: Agent) -> usize {
        let id = Arc::clone(&agent.id);
        let offers = std::mem::take(&mut agent.offers);
        self.serials += 1;
        agent.serial = self.serials;
        let key = self.agents.insert(Box::new(agent));
        self.by_id.insert(id, key);
        self.set_offers(key, offers);
        key
    }

    /// One that no name leads to.
    pub(crate) fn insert_guest(&mut self, mut agent: Agent) -> usize {
        self.serials += 1;
        (agent.serial, agent.guest) = (self.serials, true);
        self.agents.insert(Box::new(agent))
    }

    pub(crate) fn remove(&mut self, key: usize) -> Option<Box<Agent>> {
        self.set_offers(key, Vec::new());
        let agent = self.agents.try_remove(key)?;
        if !agent.guest {
            self.by_id.remove(&agent.id);
        }
        Some(agent)
    }

    /// Replaces all offers of one agent.
    pub(crate) fn set_offers(&mut self, key: usize, offers: Vec<Offer>) {
        self.edit_offers(key, |own| {
            *own = offers;
            own.shrink_to_fit();
        });
    }

    /// Changes the offers of one agent, and indexes the names that differ: a name that stays is never without
    /// the agent, and a long list costs no more than its changes. `None` for an unknown agent.
    pub(crate) fn edit_offers<R>(
        &mut self,
        key: usize,
        edit: impl FnOnce(&mut Vec<Offer>) -> R,
    ) -> Option<R> {
        let agent = self.agents.get_mut(key)?;
        let names = |offers: &[Offer]| -> BTreeSet<Arc<str>> {
            offers.iter().flat_map(Offer::names).map(Arc::clone).collect()
        };
        let before = names(&agent.offers);
        let answer = edit(&mut agent.offers);
        let after = names(&agent.offers);
        let mut more = false;
        for name in after.difference(&before) {
            self.names.offer(name, key);
            more = true;
        }
        for name in before.difference(&after) {
            self.names.withdraw(name, key);
        }
        // Two offers of a name that is new came with a copy each, and routing compares pointers.
        for offer in agent.offers.iter_mut().filter(|_| more) {
            for name in offer.names_mut() {
                *name = self.names.intern(name);
            }
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;

    #[test]
    fn an_idle_agent_is_small() {
        // Ten thousand of each stand in a hub of ten thousand agents; three offers to an agent.
        assert!(size_of::<Agent>() <= 408, "{}", size_of::<Agent>());
        assert!(size_of::<Session>() <= 104, "{}", size_of::<Session>());
        assert!(size_of::<Offer>() <= 32, "{}", size_of::<Offer>());
    }
}
