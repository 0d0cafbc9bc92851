//! Who gets a call: candidates, what excludes them, and the final choice. Each answer carries its reason.

use agent_reach_protocol::{AgentStatus, ErrorCode, Labels, Policy};

use crate::registry::{Agent, HEALTH_MIN, Offer, Registry};
use crate::rng::Rng;

/// What a call asks of its targets.
pub(crate) struct Wanted<'a> {
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
    NotAsked,
    Busy,
}

impl Exclusion {
    pub(crate) const ALL: [Self; 8] = [
        Self::Away,
        Self::Suspect,
        Self::Draining,
        Self::Unhealthy,
        Self::Labels,
        Self::Version,
        Self::NotAsked,
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
            Self::NotAsked => "not_asked",
            Self::Busy => "busy",
        }
    }
}

/// One agent that gets the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) agent: usize,
    /// Index into the agent's offers.
    pub(crate) offer: usize,
    /// Slots taken and slots there are, before this call.
    pub(crate) load: (u32, u32),
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
    pub(crate) excluded: [u32; 8],
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

/// The routing of one call.
#[derive(Debug)]
pub(crate) enum Routed {
    /// To these.
    To(smallvec::SmallVec<[Choice; 1]>, Note),
    /// To nobody.
    Nobody(ErrorCode, Note),
}

/// Finds who takes a call.
///
/// Looks at each agent that offers the name once. Rotation starts where the last choice ended, so that agents
/// of equal load take turns.
pub(crate) fn route(registry: &mut Registry, wanted: &Wanted<'_>, rng: &mut Rng) -> Routed {
    let mut note = Note { policy: wanted.policy, offering: 0, able: 0, excluded: [0; 8], preferred: false };
    let Some((_, offered)) = registry.names.get(wanted.name) else {
        return Routed::Nobody(ErrorCode::NoCapability, note);
    };
    let turn = offered.turn;
    note.offering = u32::try_from(offered.by.len()).unwrap_or(u32::MAX);
    let mut able: smallvec::SmallVec<[(usize, Choice, bool); 8]> = smallvec::SmallVec::new();
    let around = (turn..offered.by.len()).chain(0..turn.min(offered.by.len()));
    for position in around {
        let Some(key) = offered.by.get(position) else { continue };
        let Some(agent) = registry.agents.get(*key) else { continue };
        match consider(agent, wanted) {
            Ok(offer) => {
                let load = (agent.in_flight, agent.max_concurrency);
                let preferred = !wanted.prefer.0.is_empty() && agent.has_labels(wanted.prefer);
                able.push((position, Choice { agent: *key, offer, load }, preferred));
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
        let [.., busy] = note.excluded;
        let code = if busy > 0 { ErrorCode::Overloaded } else { ErrorCode::NoInstance };
        return Routed::Nobody(code, note);
    }
    note.preferred = able.iter().any(|(.., preferred)| *preferred);
    if wanted.count == 1 {
        let Some((position, choice)) = one(&able, wanted.policy, note.preferred, rng) else {
            return Routed::Nobody(ErrorCode::NoInstance, note);
        };
        if let Some(offered) = registry.names.get_mut(wanted.name) {
            offered.turn = position + 1;
        }
        return Routed::To(smallvec::smallvec![choice], note);
    }
    Routed::To(several(able, wanted, rng), note)
}

/// Whether the agent can take the call, and by which offer.
fn consider(agent: &Agent, wanted: &Wanted<'_>) -> Result<usize, Exclusion> {
    if agent.session.is_none() {
        return Err(Exclusion::Away);
    }
    if wanted.agents.is_some_and(|asked| !asked.contains(&&*agent.id)) {
        return Err(Exclusion::NotAsked);
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
    let answers = |offer: &Offer| offer.names().any(|name| &**name == wanted.name);
    let offer =
        agent.offers.iter().position(|offer| answers(offer) && fits(offer)).ok_or(Exclusion::Version)?;
    if agent.in_flight >= agent.max_concurrency { Err(Exclusion::Busy) } else { Ok(offer) }
}

/// Compares shares of slots taken without dividing.
fn lighter(a: (u32, u32), b: (u32, u32)) -> bool {
    u64::from(a.0) * u64::from(b.1) < u64::from(b.0) * u64::from(a.1)
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
            eligible().reduce(|best, next| if lighter(next.1.load, best.1.load) { next } else { best })
        }
        Policy::RoundRobin => eligible().next(),
        Policy::Random => eligible().nth(rng.below(eligible().count())),
    }
}

/// Several different ones, the best by the policy first.
fn several(
    able: smallvec::SmallVec<[(usize, Choice, bool); 8]>,
    wanted: &Wanted<'_>,
    rng: &mut Rng,
) -> smallvec::SmallVec<[Choice; 1]> {
    let mut able = able.into_vec();
    match wanted.policy {
        Policy::RoundRobin => {}
        Policy::LeastLoaded => able.sort_by(|(_, a, _), (_, b, _)| {
            let (a, b) = (a.load, b.load);
            (u64::from(a.0) * u64::from(b.1)).cmp(&(u64::from(b.0) * u64::from(a.1)))
        }),
        Policy::Random => {
            for last in (1..able.len()).rev() {
                able.swap(last, rng.below(last + 1));
            }
        }
    }
    able.sort_by_key(|(.., preferred)| !preferred);
    able.into_iter().take(wanted.count).map(|(_, choice, _)| choice).collect()
}
