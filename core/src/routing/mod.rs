//! Who gets a call: candidates, what excludes them, and the final choice. Each answer carries its reason.

mod choice;
mod fit;
mod note;

use std::sync::Arc;

use agent_reach_protocol::{Labels, Policy};
use slab::Slab;
use smallvec::SmallVec;

use crate::authz::{Grant, covers};
use crate::breaker::Breaker;
use crate::offer::Offer;
use crate::registry::{Agent, HEALTH_MIN, Registry};
use crate::rng::Rng;
use crate::schema::{Body, Expected};
use crate::time::Now;

use choice::{Able, Choosing, EXACT_MAX, probe, weigh};
use fit::{fits, misfit};
pub(crate) use fit::{misfits, mismatch};
pub(crate) use note::{Exclusion, NoRoute, Note};

/// What a call asks of its targets.
pub(crate) struct Wanted<'a> {
    pub(crate) now: Now,
    /// Who asks.
    pub(crate) caller: usize,
    /// What it may call, where it is not there.
    pub(crate) grant: Option<&'a Grant>,
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
    /// Calls of one key go to one agent while it has room.
    pub(crate) affinity_key: Option<&'a str>,
    /// None of these: they were tried.
    pub(crate) except: &'a [Arc<str>],
    /// What an `input_schema` has to fit.
    pub(crate) body: &'a Body<'a>,
    /// What an `output_schema` has to promise.
    pub(crate) expected: Option<&'a Expected>,
}

impl Wanted<'_> {
    /// Whether it asks nothing but the name, and for one agent by load or by turn: every free agent that offers it without
    /// terms can take it.
    fn is_plain(&self) -> bool {
        self.count == 1
            && self.policy != Policy::Random
            && self.prefer.0.is_empty()
            && self.require.0.is_empty()
            && self.version.is_none()
            && self.expected.is_none()
            && self.except.is_empty()
            && self.affinity_key.is_none()
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
/// Looks at each agent that offers the name once, or at a few of very many. Rotation starts where the last choice
/// ended, so that agents of equal load take turns.
pub(crate) fn route(registry: &mut Registry, wanted: &Wanted<'_>, rng: &mut Rng) -> Routed {
    let mut note = Note::of(wanted);
    // Named agents are looked up, and not searched for among all who offer: both lists may be long.
    let named = wanted.agents.map(|ids| named(registry, ids));
    let agents = &registry.agents;
    let Some((name, offered)) = registry.names.get_mut(wanted.name) else {
        return Routed::Nobody(NoRoute::NeverOffered, note);
    };
    note.offering = u32::try_from(offered.by.len()).unwrap_or(u32::MAX);
    if named.is_none()
        && offered.by.len() > EXACT_MAX
        && let Some((position, choice)) = probe(agents, offered, name, wanted, rng, &mut note)
    {
        offered.turn = position + 1;
        return Routed::To(smallvec::smallvec![choice], note);
    }
    let candidates = named.as_deref().unwrap_or(&offered.by);
    let (before, after) = candidates.split_at(offered.turn.min(candidates.len()));
    let caller = agents.get(wanted.caller).map(|caller| &**caller);
    let turns = [(offered.turn, after), (0, before)];
    let best = if wanted.is_plain() {
        plain_best(agents, turns, name, (wanted, caller), &mut note)
    } else {
        let choosing = weigh_all(agents, turns, name, (wanted, caller), &mut note);
        match (note.able, wanted.count) {
            (0, _) => None,
            (_, 1) => choosing.one(rng),
            (_, count) => return Routed::To(choosing.several(count, rng), note),
        }
    };
    if let Some(Able { position, choice, .. }) = best {
        // The turn goes round among all who offer it, not among those that one caller names.
        if named.is_none() {
            offered.turn = position + 1;
        }
        return Routed::To(smallvec::smallvec![choice], note);
    }
    let fits_nobody = note.excluded_by(Exclusion::Input) + note.excluded_by(Exclusion::Output) > 0
        && !candidates.iter().filter_map(|key| agents.get(*key)).any(|agent| fits(agent, wanted, name));
    Routed::Nobody(if fits_nobody { NoRoute::Mismatch } else { why_nobody(&note) }, note)
}

/// Candidates in the order of rotation: two rows of agents, each with the place of its first among all.
type Turns<'a> = [(usize, &'a [usize]); 2];

/// The first in the order of rotation, or the least loaded, of those who can take a call that asks nothing but the name.
///
/// Nearly every call: a few instructions for each agent.
fn plain_best(
    agents: &Slab<Box<Agent>>,
    turns: Turns<'_>,
    name: &Arc<str>,
    (wanted, caller): (&Wanted<'_>, Option<&Agent>),
    note: &mut Note,
) -> Option<Able> {
    let by_load = wanted.policy == Policy::LeastLoaded;
    let (mut able, mut best, mut bar) = (0, None, f64::INFINITY);
    for (start, part) in turns {
        for (place, key) in part.iter().enumerate() {
            let Some(agent) = agents.get(*key) else { continue };
            let offer = match agent.plain_offer(name) {
                Some(offer) => offer,
                None => match consider(agent, wanted, name, caller) {
                    Ok(offer) => offer,
                    Err(why) => {
                        note.exclude(why);
                        continue;
                    }
                },
            };
            able += 1;
            let weight = agent.share() + agent.level(wanted.name);
            if weight < bar {
                bar = if by_load { weight } else { f64::NEG_INFINITY };
                let load = (agent.in_flight, agent.max_concurrency);
                let choice = Choice { agent: *key, offer, load, weight };
                best = Some(Able { position: start + place, choice, preferred: false });
            }
        }
    }
    note.able = able;
    best
}

/// Everybody who can take a call, for the final choice.
fn weigh_all(
    agents: &Slab<Box<Agent>>,
    turns: Turns<'_>,
    name: &Arc<str>,
    (wanted, caller): (&Wanted<'_>, Option<&Agent>),
    note: &mut Note,
) -> Choosing {
    let mut choosing = Choosing::new(wanted);
    for (start, part) in turns {
        for (place, key) in part.iter().enumerate() {
            let Some(agent) = agents.get(*key) else { continue };
            let offer = match consider(agent, wanted, name, caller) {
                Ok(offer) => offer,
                Err(why) => {
                    note.exclude(why);
                    continue;
                }
            };
            let weight = weigh(agent, wanted);
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
    choosing
}

fn why_nobody(note: &Note) -> NoRoute {
    let [.., forbidden, _, _, _, tripped, rate_limited, busy] = note.excluded;
    if busy > 0 {
        NoRoute::Busy
    } else if rate_limited > 0 {
        NoRoute::RateLimited
    } else if tripped > 0 {
        NoRoute::Tripped
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

/// Whether one agent can take a call.
pub(crate) fn can_take(registry: &Registry, key: usize, wanted: &Wanted<'_>) -> bool {
    let Some(agent) = registry.agents.get(key) else { return false };
    let Some((name, _)) = registry.names.get(wanted.name) else { return false };
    let named = wanted.agents.is_none_or(|ids| ids.iter().any(|id| **id == *agent.id));
    let caller = registry.agents.get(wanted.caller).map(|caller| &**caller);
    named && consider(agent, wanted, name, caller).is_ok()
}

/// When the next of those who offer a capability can take a call again that only time keeps from it.
pub(crate) fn next_chance(registry: &Registry, name: &str, now: Now) -> Option<Now> {
    let (name, offered) = registry.names.get(name)?;
    let agents = offered.by.iter().filter_map(|key| registry.agents.get(*key));
    let offers = agents.flat_map(|agent| agent.offers.iter().filter(|offer| offer.answers_to(name)));
    offers.filter_map(|offer| chance_of(offer, now)).min()
}

/// When time alone may let an offer take a call that it cannot take now.
pub(crate) fn chance_of(offer: &Offer, now: Now) -> Option<Now> {
    let quota = offer.quota().map(|quota| quota.next_at(now));
    let trial = offer.breaker().and_then(Breaker::opens_at);
    [quota, trial].into_iter().flatten().filter(|at| *at > now).min()
}

/// Who can take a call, of all who offer its capability.
pub(crate) fn all_who_can_take(registry: &Registry, wanted: &Wanted<'_>) -> Vec<usize> {
    let Some((_, offered)) = registry.names.get(wanted.name) else { return Vec::new() };
    offered.by.iter().copied().filter(|key| can_take(registry, *key, wanted)).collect()
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
/// Most calls do not get here: see [`Agent::plain_offer`].
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
    if agent.is_draining() {
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
        && (wanted.expected.is_some() || !offer.is_plain(name))
    {
        may_take(offer, wanted, name, caller)?;
    }
    if !wanted.except.is_empty() && wanted.except.contains(&agent.id) {
        return Err(Exclusion::Tried);
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
    if !Arc::ptr_eq(&offer.name, name) {
        let may = match (caller, wanted.grant) {
            (Some(caller), _) => caller.may_call(&offer.name),
            (None, Some(grant)) => covers(&grant.call, &offer.name),
            (None, None) => false,
        };
        if !may {
            return Err(Exclusion::Forbidden);
        }
    }
    if let Some(misfit) = misfit(offer, wanted) {
        return Err(misfit);
    }
    if offer.breaker().is_some_and(|breaker| !breaker.admits(wanted.now)) {
        return Err(Exclusion::Tripped);
    }
    match offer.quota() {
        Some(quota) if !quota.has_room(wanted.now) => Err(Exclusion::RateLimited),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
#[path = "../routing_tests.rs"]
mod tests;
