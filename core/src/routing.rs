//! Who gets a call: candidates, what excludes them, and the final choice. Each answer carries its reason.

use agent_reach_protocol::{AgentStatus, Labels, Policy};

use crate::registry::{Agent, HEALTH_MIN, Offer, Registry};
use crate::rng::Rng;
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
        use std::fmt::Write as _;
        let mut line = String::with_capacity(64);
        let policy = if directed { "directed" } else { self.policy.as_str() };
        let written = write!(line, "{policy}: {} of {} able", self.able, self.offering);
        let written = written.and_then(|()| match load {
            Some((taken, slots)) => write!(line, ", {taken}/{slots} in flight"),
            None => Ok(()),
        });
        // Writing to a String cannot fail.
        debug_assert!(written.is_ok());
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
    To(smallvec::SmallVec<[Choice; 1]>, Note),
    /// To nobody.
    Nobody(NoRoute, Note),
}

/// Finds who takes a call.
///
/// Looks at each agent that offers the name once. Rotation starts where the last choice ended, so that agents
/// of equal load take turns.
pub(crate) fn route(registry: &mut Registry, wanted: &Wanted<'_>, rng: &mut Rng) -> Routed {
    let mut note = Note { policy: wanted.policy, offering: 0, able: 0, excluded: [0; 10], preferred: false };
    let Some((_, offered)) = registry.names.get(wanted.name) else {
        return Routed::Nobody(NoRoute::NeverOffered, note);
    };
    let turn = offered.turn;
    note.offering = u32::try_from(offered.by.len()).unwrap_or(u32::MAX);
    let mut able: Able = Able::new();
    // Named agents are looked up, and not searched for among all who offer: both lists may be long.
    let named = wanted.agents.map(|ids| named(registry, ids));
    let candidates = named.as_deref().unwrap_or(&offered.by);
    let around = (turn..candidates.len()).chain(0..turn.min(candidates.len()));
    for position in around {
        let Some(key) = candidates.get(position) else { continue };
        let Some(agent) = registry.agents.get(*key) else { continue };
        match consider(agent, wanted, registry.agents.get(wanted.caller)) {
            Ok(offer) => {
                let load = (agent.in_flight, agent.max_concurrency);
                let share = f64::from(agent.in_flight) / f64::from(agent.max_concurrency.max(1));
                let weight = share + agent.level(wanted.name);
                let preferred = !wanted.prefer.0.is_empty() && agent.has_labels(wanted.prefer);
                able.push((position, Choice { agent: *key, offer, load, weight }, preferred));
            }
            Err(why) => {
                let slot = Exclusion::ALL.iter().position(|own| *own == why);
                if let Some(count) = slot.and_then(|slot| note.excluded.get_mut(slot)) {
                    *count += 1;
                }
            }
        }
    }
    note.able = u32::try_from(able.len()).unwrap_or(u32::MAX);
    if able.is_empty() {
        let [.., forbidden, rate_limited, busy] = note.excluded;
        let why = if busy > 0 {
            NoRoute::Busy
        } else if rate_limited > 0 {
            NoRoute::RateLimited
        } else if forbidden > 0 {
            NoRoute::Forbidden
        } else {
            NoRoute::NoneAble
        };
        return Routed::Nobody(why, note);
    }
    note.preferred = able.iter().any(|(.., preferred)| *preferred);
    if wanted.count == 1 {
        let Some((position, choice)) = one(&able, wanted.policy, note.preferred, rng) else {
            return Routed::Nobody(NoRoute::NoneAble, note);
        };
        // The turn goes round among all who offer it, not among those that one caller names.
        if wanted.agents.is_none()
            && let Some(offered) = registry.names.get_mut(wanted.name)
        {
            offered.turn = position + 1;
        }
        return Routed::To(smallvec::smallvec![choice], note);
    }
    Routed::To(several(able, wanted, rng), note)
}

/// Why an agent that is named does not get the call.
pub(crate) fn exclusion(registry: &Registry, agent_id: &str, wanted: &Wanted<'_>) -> Exclusion {
    let Some(agent) = registry.find(agent_id).and_then(|key| registry.agents.get(key)) else {
        return Exclusion::Away;
    };
    // It could: it was left out for another reason, which only the choice knows.
    consider(agent, wanted, registry.agents.get(wanted.caller)).err().unwrap_or(Exclusion::NotOffered)
}

/// The agents of these ids that are known, each once.
fn named(registry: &Registry, ids: &[&str]) -> Vec<usize> {
    let mut keys: Vec<usize> = ids.iter().filter_map(|id| registry.find(id)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Agents that can take a call: their place among the candidates, how, and whether preferred labels fit.
type Able = smallvec::SmallVec<[(usize, Choice, bool); 8]>;

/// Whether the agent can take the call, and by which offer.
fn consider(agent: &Agent, wanted: &Wanted<'_>, caller: Option<&Agent>) -> Result<usize, Exclusion> {
    if agent.session.is_none() {
        return Err(Exclusion::Away);
    }
    let answers = |(_, offer): &(usize, &Offer)| offer.names().any(|name| &**name == wanted.name);
    let mut answering = agent.offers.iter().enumerate().filter(answers).peekable();
    if answering.peek().is_none() {
        return Err(Exclusion::NotOffered);
    }
    if agent.suspect {
        return Err(Exclusion::Suspect);
    }
    if agent.status == AgentStatus::Draining {
        return Err(Exclusion::Draining);
    }
    if agent.health.is_some_and(|health| u64::from(health) < HEALTH_MIN) {
        return Err(Exclusion::Unhealthy);
    }
    if !agent.has_labels(wanted.require) {
        return Err(Exclusion::Labels);
    }
    let fits = |offer: &Offer| match (wanted.version, &offer.version) {
        (None, _) => true,
        (Some(asked), Some(own)) => asked.matches(own),
        (Some(_), None) => false,
    };
    let (index, offer) = answering.find(|(_, offer)| fits(offer)).ok_or(Exclusion::Version)?;
    // The name asked for was looked at already; what an agent's alias leads to is known only here.
    if &*offer.name != wanted.name && !caller.is_some_and(|caller| caller.may_call(&offer.name)) {
        return Err(Exclusion::Forbidden);
    }
    if offer.quota.as_ref().is_some_and(|quota| !quota.has_room(wanted.now)) {
        return Err(Exclusion::RateLimited);
    }
    if agent.in_flight >= agent.max_concurrency { Err(Exclusion::Busy) } else { Ok(index) }
}

/// One of the able. The list is not empty, and starts where the last choice ended.
fn one(
    able: &[(usize, Choice, bool)],
    policy: Policy,
    preferred: bool,
    rng: &mut Rng,
) -> Option<(usize, Choice)> {
    let eligible =
        || able.iter().filter(|(.., own)| !preferred || *own).map(|(at, choice, _)| (*at, *choice));
    match policy {
        Policy::LeastLoaded => {
            eligible().reduce(|best, next| if next.1.weight < best.1.weight { next } else { best })
        }
        Policy::RoundRobin => eligible().next(),
        Policy::Random => eligible().nth(rng.below(eligible().count())),
    }
}

/// Several different ones, the best by the policy first.
fn several(able: Able, wanted: &Wanted<'_>, rng: &mut Rng) -> smallvec::SmallVec<[Choice; 1]> {
    let mut able = able.into_vec();
    match wanted.policy {
        Policy::RoundRobin => {}
        Policy::LeastLoaded => able.sort_by(|(_, a, _), (_, b, _)| a.weight.total_cmp(&b.weight)),
        Policy::Random => {
            for last in (1..able.len()).rev() {
                able.swap(last, rng.below(last + 1));
            }
        }
    }
    able.sort_by_key(|(.., preferred)| !preferred);
    able.into_iter().take(wanted.count).map(|(_, choice, _)| choice).collect()
}
