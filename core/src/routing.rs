//! Who gets a call: candidates, what excludes them, and the final choice. Each answer carries its reason.

use std::sync::Arc;

use agent_reach_protocol::{AgentStatus, Labels, Policy};
use slab::Slab;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::breaker::Breaker;
use crate::offered::Offered;
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
    /// Calls of one key go to one agent while it has room.
    pub(crate) affinity_key: Option<&'a str>,
    /// None of these: they were tried.
    pub(crate) except: &'a [Arc<str>],
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
    /// It was tried, and failed.
    Tried,
    /// Too few of its calls succeed: its breaker is open.
    Tripped,
    /// Its `qps_limit` is reached.
    RateLimited,
    Busy,
}

impl Exclusion {
    pub(crate) const ALL: [Self; 12] = [
        Self::Away,
        Self::Suspect,
        Self::Draining,
        Self::Unhealthy,
        Self::Labels,
        Self::Version,
        Self::NotOffered,
        Self::Forbidden,
        Self::Tried,
        Self::Tripped,
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
            Self::Tried => "tried",
            Self::Tripped => "tripped",
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
    pub(crate) excluded: [u32; 12],
    /// Whether preferred labels decided among the able.
    pub(crate) preferred: bool,
    /// Whether an affinity key decided.
    pub(crate) affine: bool,
    /// How many were looked at, where there are too many to look at all.
    pub(crate) probed: Option<u32>,
}

impl Note {
    /// The one-line form: `route` in RESULT.
    pub(crate) fn line(&self, directed: bool, load: Option<(u32, u32)>) -> String {
        let mut line = String::with_capacity(96);
        line.push_str(if directed { "directed" } else { self.policy.as_str() });
        line.push_str(": ");
        push_number(&mut line, self.able);
        if let Some(probed) = self.probed {
            line.push_str(" of ");
            push_number(&mut line, probed);
            line.push_str(" probed");
        }
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
        if self.affine {
            line.push_str(", by affinity");
        }
        line
    }

    const fn of(wanted: &Wanted<'_>) -> Self {
        Self {
            policy: wanted.policy,
            offering: 0,
            able: 0,
            excluded: [0; 12],
            preferred: false,
            affine: wanted.affinity_key.is_some(),
            probed: None,
        }
    }

    fn exclude(&mut self, why: Exclusion) {
        if let Some(count) = self.excluded.get_mut(why as usize) {
            *count += 1;
        }
    }

    /// How many were left out for a reason.
    pub(crate) fn excluded_by(&self, why: Exclusion) -> u32 {
        self.excluded.get(why as usize).copied().unwrap_or_default()
    }

    /// Whether an agent may yet take the call without anything new being offered.
    pub(crate) fn has_hope(&self) -> bool {
        use Exclusion::{Away, Busy, RateLimited, Suspect, Tripped};
        self.able > 0
            || [Busy, RateLimited, Tripped, Suspect, Away].iter().any(|why| self.excluded_by(*why) > 0)
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
    /// The breaker of who could take it is open.
    Tripped,
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
    let mut choosing = Choosing::new(wanted);
    for (start, part) in [(offered.turn, after), (0, before)] {
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

/// Most agents of which all are looked at.
const EXACT_MAX: usize = 256;
/// Of more than that so many are looked at in search of two that are able.
const PROBES: u32 = 16;

/// The better of two able agents among a few taken at random, which is nearly as good as the best of all (Mitzenmacher,
/// "The Power of Two Choices"), and costs the same for any number. `None`: all have to be looked at, since what is
/// asked for is rare, or since hardly anybody is able.
fn probe(
    agents: &Slab<Box<Agent>>,
    offered: &Offered,
    name: &Arc<str>,
    wanted: &Wanted<'_>,
    rng: &mut Rng,
    note: &mut Note,
) -> Option<(usize, Choice)> {
    let is_plain = wanted.prefer.0.is_empty() && wanted.require.0.is_empty() && wanted.version.is_none();
    if !is_plain || wanted.count != 1 || wanted.affinity_key.is_some() {
        return None;
    }
    let caller = agents.get(wanted.caller).map(|caller| &**caller);
    let enough = if wanted.policy == Policy::LeastLoaded { 2 } else { 1 };
    let mut best: Option<(usize, Choice)> = None;
    let mut seen = *note;
    for probes in 1..=PROBES {
        let position = match wanted.policy {
            Policy::RoundRobin => (offered.turn + probes as usize - 1) % offered.by.len(),
            Policy::LeastLoaded | Policy::Random => rng.below(offered.by.len()),
        };
        let Some(key) = offered.by.get(position) else { continue };
        let Some(agent) = agents.get(*key) else { continue };
        match consider(agent, wanted, name, caller) {
            Err(why) => seen.exclude(why),
            Ok(offer) => {
                let load = (agent.in_flight, agent.max_concurrency);
                let choice = Choice { agent: *key, offer, load, weight: weigh(agent, wanted) };
                seen.able += 1;
                if best.is_none_or(|(_, best)| choice.weight < best.weight) {
                    best = Some((position, choice));
                }
            }
        }
        if seen.able >= enough {
            *note = Note { probed: Some(probes), ..seen };
            return best;
        }
    }
    None
}

/// What decides between able agents; the smallest is chosen.
fn weigh(agent: &Agent, wanted: &Wanted<'_>) -> f64 {
    match wanted.affinity_key {
        None => agent.share() + agent.level(wanted.name),
        Some(key) => rendezvous(key, &agent.id),
    }
}

/// Rendezvous hashing: of all agents that can take it the one with the least of these, so that each key has an order of
/// agents of its own, and goes to the next in it only while those before are not able.
#[inline(never)]
#[expect(clippy::cast_precision_loss, reason = "53 of 64 bits order as well")]
fn rendezvous(key: &str, agent: &str) -> f64 {
    xxh3_64_with_seed(agent.as_bytes(), xxh3_64(key.as_bytes())) as f64
}

fn why_nobody(note: &Note) -> NoRoute {
    let [.., forbidden, _, tripped, rate_limited, busy] = note.excluded;
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
    if !Arc::ptr_eq(&offer.name, name) && !caller.is_some_and(|caller| caller.may_call(&offer.name)) {
        return Err(Exclusion::Forbidden);
    }
    if offer.breaker().is_some_and(|breaker| !breaker.admits(wanted.now)) {
        return Err(Exclusion::Tripped);
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
        // A key decides in the place of the policy: the least weight.
        let policy = if wanted.affinity_key.is_some() { Policy::LeastLoaded } else { wanted.policy };
        let needs_all = wanted.count != 1 || policy == Policy::Random;
        let (best, bar) = ([None, None], [f64::INFINITY; 2]);
        Self { policy, best, bar, all: needs_all.then(Vec::new) }
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
