//! The final choice among those who can take a call.

use std::sync::Arc;

use agent_reach_protocol::Policy;
use slab::Slab;
use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Choice, Note, Wanted, consider};
use crate::offered::Offered;
use crate::registry::Agent;
use crate::rng::Rng;

/// Most agents of which all are looked at.
pub(super) const EXACT_MAX: usize = 256;
/// Of more than that so many are looked at in search of two that are able.
const PROBES: u32 = 16;

/// The better of two able agents among a few taken at random, which is nearly as good as the best of all (Mitzenmacher,
/// "The Power of Two Choices"), and costs the same for any number. `None`: all have to be looked at, since what is
/// asked for is rare, or since hardly anybody is able.
pub(super) fn probe(
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
pub(super) fn weigh(agent: &Agent, wanted: &Wanted<'_>) -> f64 {
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

/// An agent that can take the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Able {
    /// Its place among the candidates.
    pub(super) position: usize,
    pub(super) choice: Choice,
    /// Whether the preferred labels fit.
    pub(super) preferred: bool,
}

/// The final choice. Candidates come in the order of rotation.
///
/// A single target by load or by turn needs no list of all who could: the best so far is enough, once among
/// those with the preferred labels and once among the others.
pub(super) struct Choosing {
    policy: Policy,
    best: [Option<Able>; 2],
    /// Only a weight below this changes the choice: among those without the preferred labels, and with.
    bar: [f64; 2],
    /// Everyone, where the policy has to see all of them.
    all: Option<Vec<Able>>,
}

impl Choosing {
    pub(super) fn new(wanted: &Wanted<'_>) -> Self {
        // A key decides in the place of the policy: the least weight.
        let policy = if wanted.affinity_key.is_some() { Policy::LeastLoaded } else { wanted.policy };
        let needs_all = wanted.count != 1 || policy == Policy::Random;
        let (best, bar) = ([None, None], [f64::INFINITY; 2]);
        Self { policy, best, bar, all: needs_all.then(Vec::new) }
    }

    /// Whether an agent of this weight changes the choice.
    pub(super) fn wants(&self, weight: f64, preferred: bool) -> bool {
        let [other, with_labels] = self.bar;
        weight < if preferred { with_labels } else { other }
    }

    pub(super) fn add(&mut self, able: Able) {
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
    pub(super) fn one(self, rng: &mut Rng) -> Option<Able> {
        let Some(all) = self.all else {
            let [other, preferred] = self.best;
            return preferred.or(other);
        };
        let preferred = all.iter().any(|able| able.preferred);
        let eligible = || all.iter().filter(|able| able.preferred == preferred);
        eligible().nth(rng.below(eligible().count())).copied()
    }

    /// Several different ones, the best by the policy first.
    pub(super) fn several(self, count: usize, rng: &mut Rng) -> SmallVec<[Choice; 1]> {
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
