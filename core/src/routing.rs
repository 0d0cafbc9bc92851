//! Who gets a call: candidates, what excludes them, and the final choice. Each answer carries its reason.

use std::sync::Arc;

use agent_reach_protocol::{AgentStatus, Labels, Policy};
use smallvec::SmallVec;

use crate::registry::{Agent, HEALTH_MIN, Offer, Registry};
use crate::rng::Rng;
use crate::text::push_number;
use crate::time::Now;

/// What a call asks of its targets.
pub(crate) struct Wanted<'a> {
    pub(crate) now: Now,
    /// Who asks.
    pub(crate) caller: usize,
    /// Canonical name, aliases of the policy already resolved.
    pub(crate) name: &'a str,
    /// Exactly these agents.
    pub(crate) agents: Option<&'a [&'a str]>,
    /// How many at most.
    pub(crate) count: usize,
    pub(crate) policy: Policy,
    pub(crate) prefer: &'a Labels<'a>,
    pub(crate) require: &'a Labels<'a>,
    pub(crate) version: Option<&'a semver::VersionReq>,
}

/// Why an agent that offers the capability does not get the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    Away,
    Suspect,
    Draining,
    Unhealthy,
    Labels,
    Version,
    /// It does not offer the capability (any more), or was left out of the choice.
    NotOffered,
    /// The caller may not call the name under which this agent offers it.
    Forbidden,
    /// Its `qps_limit` is reached.
    RateLimited,
    Busy,
}

impl Exclusion {
    pub(crate) const ALL: [Self; 10] = [
        Self::Away,
        Self::Suspect,
        Self::Draining,
        Self::Unhealthy,
        Self::Labels,
        Self::Version,
        Self::NotOffered,
        Self::Forbidden,
        Self::RateLimited,
        Self::Busy,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Unhealthy => "unhealthy",
            Self::Labels => "labels",
            Self::Version => "version",
            Self::NotOffered => "not_offered",
            Self::Forbidden => "forbidden",
            Self::RateLimited => "rate_limited",
            Self::Busy => "busy",
        }
    }
}

/// One agent that gets the call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) agent: usize,
    /// Index into the agent's offers.
    pub(crate) offer: usize,
    /// Slots taken and slots there are, before this call.
    pub(crate) load: (u32, u32),
    /// What least_loaded compares: the share of slots taken, and the fill that the agent reports.
    pub(crate) weight: f64,
}

/// How the choice came about; small and copied into the call's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) policy: Policy,
    /// Agents that offer the capability.
    pub(crate) offering: u32,
    /// Of those, able to take the call.
    pub(crate) able: u32,
    /// The others, by reason, in the order of [`Exclusion::ALL`].
    pub(crate) excluded: [u32; 10],
    /// Whether preferred labels decided among the able.
    pub(crate) preferred: bool,
}

impl Note {
    /// The one-line form: `route` in RESULT.
    pub(crate) fn line(&self, directed: bool, load: Option<(u32, u32)>) -> String {
        let mut line = String::with_capacity(96);
        line.push_str(if directed { "directed" } else { self.policy.as_str() });
        line.push_str(": ");
        push_number(&mut line, self.able);
        line.push_str(" of ");
        push_number(&mut line, self.offering);
        line.push_str(" able");
        if let Some((taken, slots)) = load {
            line.push_str(", ");
            push_number(&mut line, taken);
            line.push('/');
            push_number(&mut line, slots);
            line.push_str(" in flight");
        }
        if self.preferred {
            line.push_str(", by labels");
        }
        line
    }
}

/// Why nobody gets a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// Nobody ever offered the capability.
    NeverOffered,
    /// Who could take it has its slots full.
    Busy,
    /// Who could take it has reached its `qps_limit`.
    RateLimited,
    /// Who could take it offers it under a name that the caller may not call.
    Forbidden,
    /// Nobody could.
    NoneAble,
}

/// The routing of one call.
#[derive(Debug)]
pub(crate) enum Routed {
    /// To these.
    To(SmallVec<[Choice; 1]>, Note),
    /// To nobody.
    Nobody(NoRoute, Note),
}

/// Finds who takes a call.
///
/// Looks at each agent that offers the name once. Rotation starts where the last choice ended, so that agents
/// of equal load take turns.
pub(crate) fn route(registry: &mut Registry, wanted: &Wanted<'_>, rng: &mut Rng) -> Routed {
    let mut note = Note { policy: wanted.policy, offering: 0, able: 0, excluded: [0; 10], preferred: false };
    // Named agents are looked up, and not searched for among all who offer: both lists may be long.
    let named = wanted.agents.map(|ids| named(registry, ids));
    let agents = &registry.agents;
    let Some((name, offered)) = registry.names.get_mut(wanted.name) else {
        return Routed::Nobody(NoRoute::NeverOffered, note);
    };
    note.offering = u32::try_from(offered.by.len()).unwrap_or(u32::MAX);
    let candidates = named.as_deref().unwrap_or(&offered.by);
    let (before, after) = candidates.split_at(offered.turn.min(candidates.len()));
    let caller = agents.get(wanted.caller).map(|caller| &**caller);
    let mut choosing = Choosing::new(wanted);
    for (start, part) in [(offered.turn, after), (0, before)] {
        for (place, key) in part.iter().enumerate() {
            let Some(agent) = agents.get(*key) else { continue };
            let offer = match consider(agent, wanted, name, caller) {
                Ok(offer) => offer,
                Err(why) => {
                    if let Some(count) = note.excluded.get_mut(why as usize) {
                        *count += 1;
                    }
                    continue;
                }
            };
            let weight = agent.share() + agent.level(wanted.name);
            let preferred = !wanted.prefer.0.is_empty() && agent.has_labels(wanted.prefer);
            note.able += 1;
            note.preferred |= preferred;
            if choosing.wants(weight, preferred) {
                let load = (agent.in_flight, agent.max_concurrency);
                let choice = Choice { agent: *key, offer, load, weight };
                choosing.add(Able { position: start + place, choice, preferred });
            }
        }
    }
    if note.able == 0 {
        return Routed::Nobody(why_nobody(&note), note);
    }
    if wanted.count == 1 {
        let Some(Able { position, choice, .. }) = choosing.one(rng) else {
            return Routed::Nobody(NoRoute::NoneAble, note);
        };
        // The turn goes round among all who offer it, not among those that one caller names.
        if named.is_none() {
            offered.turn = position + 1;
        }
        return Routed::To(smallvec::smallvec![choice], note);
    }
    Routed::To(choosing.several(wanted.count, rng), note)
}

const fn why_nobody(note: &Note) -> NoRoute {
    let [.., forbidden, rate_limited, busy] = note.excluded;
    if busy > 0 {
        NoRoute::Busy
    } else if rate_limited > 0 {
        NoRoute::RateLimited
    } else if forbidden > 0 {
        NoRoute::Forbidden
    } else {
        NoRoute::NoneAble
    }
}

/// Why an agent that is named does not get the call.
pub(crate) fn exclusion(registry: &Registry, agent_id: &str, wanted: &Wanted<'_>) -> Exclusion {
    let Some(agent) = registry.find(agent_id).and_then(|key| registry.agents.get(key)) else {
        return Exclusion::Away;
    };
    let Some((name, _)) = registry.names.get(wanted.name) else {
        return if agent.session.is_none() { Exclusion::Away } else { Exclusion::NotOffered };
    };
    let caller = registry.agents.get(wanted.caller).map(|caller| &**caller);
    // It could: it was left out for another reason, which only the choice knows.
    consider(agent, wanted, name, caller).err().unwrap_or(Exclusion::NotOffered)
}

/// The agents of these ids that are known, each once.
fn named(registry: &Registry, ids: &[&str]) -> Vec<usize> {
    let mut keys: Vec<usize> = ids.iter().filter_map(|id| registry.find(id)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Whether the agent can take the call, and by which offer. `name` is the shared copy of the name wanted.
///
/// Asked of every agent that offers the name, for every call: what few calls ask for stands aside.
#[inline(always)]
fn consider(
    agent: &Agent,
    wanted: &Wanted<'_>,
    name: &Arc<str>,
    caller: Option<&Agent>,
) -> Result<usize, Exclusion> {
    if agent.session.is_none() {
        return Err(Exclusion::Away);
    }
    let answering = |offer: &Offer| offer.answers_to(name);
    let mut place = agent.offers.iter().position(answering).ok_or(Exclusion::NotOffered)?;
    if agent.suspect {
        return Err(Exclusion::Suspect);
    }
    if agent.status == AgentStatus::Draining {
        return Err(Exclusion::Draining);
    }
    if agent.health.is_some_and(|health| u64::from(health) < HEALTH_MIN) {
        return Err(Exclusion::Unhealthy);
    }
    if !wanted.require.0.is_empty() && !agent.has_labels(wanted.require) {
        return Err(Exclusion::Labels);
    }
    if let Some(asked) = wanted.version {
        place = of_version(agent, name, asked).ok_or(Exclusion::Version)?;
    }
    if let Some(offer) = agent.offers.get(place)
        && !offer.is_plain(name)
    {
        may_take(offer, wanted, name, caller)?;
    }
    if agent.in_flight >= agent.max_concurrency { Err(Exclusion::Busy) } else { Ok(place) }
}

/// The first offer of a name whose version is one of those asked for.
fn of_version(agent: &Agent, name: &Arc<str>, asked: &semver::VersionReq) -> Option<usize> {
    agent.offers.iter().position(|offer| {
        offer.answers_to(name) && offer.version().is_some_and(|version| asked.matches(version))
    })
}

/// Whether an offer's own terms let the call through.
fn may_take(
    offer: &Offer,
    wanted: &Wanted<'_>,
    name: &Arc<str>,
    caller: Option<&Agent>,
) -> Result<(), Exclusion> {
    // The name asked for was looked at already; what an agent's alias leads to is known only here.
    if !Arc::ptr_eq(&offer.name, name) && !caller.is_some_and(|caller| caller.may_call(&offer.name)) {
        return Err(Exclusion::Forbidden);
    }
    match offer.quota() {
        Some(quota) if !quota.has_room(wanted.now) => Err(Exclusion::RateLimited),
        Some(_) | None => Ok(()),
    }
}

/// An agent that can take the call.
#[derive(Clone, Copy, Debug)]
struct Able {
    /// Its place among the candidates.
    position: usize,
    choice: Choice,
    /// Whether the preferred labels fit.
    preferred: bool,
}

/// The final choice. Candidates come in the order of rotation.
///
/// A single target by load or by turn needs no list of all who could: the best so far is enough, once among
/// those with the preferred labels and once among the others.
struct Choosing {
    policy: Policy,
    best: [Option<Able>; 2],
    /// Only a weight below this changes the choice: among those without the preferred labels, and with.
    bar: [f64; 2],
    /// Everyone, where the policy has to see all of them.
    all: Option<Vec<Able>>,
}

impl Choosing {
    fn new(wanted: &Wanted<'_>) -> Self {
        let needs_all = wanted.count != 1 || wanted.policy == Policy::Random;
        let (best, bar) = ([None, None], [f64::INFINITY; 2]);
        Self { policy: wanted.policy, best, bar, all: needs_all.then(Vec::new) }
    }

    /// Whether an agent of this weight changes the choice.
    fn wants(&self, weight: f64, preferred: bool) -> bool {
        let [other, with_labels] = self.bar;
        weight < if preferred { with_labels } else { other }
    }

    fn add(&mut self, able: Able) {
        if let Some(all) = &mut self.all {
            return all.push(able);
        }
        let next = match self.policy {
            Policy::LeastLoaded => able.choice.weight,
            Policy::RoundRobin | Policy::Random => f64::NEG_INFINITY,
        };
        let place = usize::from(able.preferred);
        if let (Some(best), Some(bar)) = (self.best.get_mut(place), self.bar.get_mut(place)) {
            (*best, *bar) = (Some(able), next);
        }
    }

    /// One of the able; those with the preferred labels go before all others.
    fn one(self, rng: &mut Rng) -> Option<Able> {
        let Some(all) = self.all else {
            let [other, preferred] = self.best;
            return preferred.or(other);
        };
        let preferred = all.iter().any(|able| able.preferred);
        let eligible = || all.iter().filter(|able| able.preferred == preferred);
        eligible().nth(rng.below(eligible().count())).copied()
    }

    /// Several different ones, the best by the policy first.
    fn several(self, count: usize, rng: &mut Rng) -> SmallVec<[Choice; 1]> {
        let mut able = self.all.unwrap_or_default();
        match self.policy {
            Policy::RoundRobin => {}
            Policy::LeastLoaded => able.sort_by(|a, b| a.choice.weight.total_cmp(&b.choice.weight)),
            Policy::Random => {
                for last in (1..able.len()).rev() {
                    able.swap(last, rng.below(last + 1));
                }
            }
        }
        able.sort_by_key(|able| !able.preferred);
        able.into_iter().take(count).map(|able| able.choice).collect()
    }
}

#[cfg(test)]
#[path = "routing_tests.rs"]
mod tests;
