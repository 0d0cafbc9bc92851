//! Whether a call fits the schemas of who offers its capability.

use std::sync::Arc;

use agent_reach_protocol::codec::Writer;

use super::{Exclusion, Wanted};
use crate::offer::Offer;
use crate::registry::{Agent, Registry};
use crate::schema::{Schema, Violations};

/// Of more different schemas of one capability the further ones make no line of their own.
const SCHEMAS_MAX: usize = 64;
/// Whether a call fits one of an agent's offers, whatever else is in the way.
pub(super) fn fits(agent: &Agent, wanted: &Wanted<'_>, name: &Arc<str>) -> bool {
    agent.offers.iter().filter(|offer| offer.answers_to(name)).any(|offer| misfit(offer, wanted).is_none())
}

/// Why a call does not fit an offer.
pub(super) fn misfit(offer: &Offer, wanted: &Wanted<'_>) -> Option<Exclusion> {
    if offer.input().is_some_and(|schema| !wanted.body.fits(schema)) {
        return Some(Exclusion::Input);
    }
    if wanted.expected.is_some_and(|expected| !expected.is_kept(offer.output())) {
        return Some(Exclusion::Output);
    }
    None
}

/// Where a call that fits nobody does not fit the first of who offers it, as `details` of RESULT; for one of two
/// reasons, of which the body goes first.
pub(crate) fn mismatch(registry: &Registry, wanted: &Wanted<'_>) -> Option<Vec<u8>> {
    let (name, offered) = registry.names.get(wanted.name)?;
    let named = |agent: &&Agent| wanted.agents.is_none_or(|ids| ids.iter().any(|id| **id == *agent.id));
    let agents =
        offered.by.iter().filter_map(|key| registry.agents.get(*key)).map(|agent| &**agent).filter(named);
    let offers = agents.flat_map(|agent| agent.offers.iter().filter(|offer| offer.answers_to(name)));
    let mut promises = Vec::new();
    for offer in offers {
        if let Some(Err(violations)) = offer.input().map(|schema| wanted.body.check(schema)) {
            let mut details = Writer::default();
            violations.write_details(&mut details);
            return Some(details.into_bytes());
        }
        promises.push(offer.output());
    }
    let missing = promises.into_iter().find_map(|promise| wanted.expected?.keeps(promise).err())?;
    let mut details = Writer::default();
    Violations::of_output(&missing).write_details(&mut details);
    Some(details.into_bytes())
}

/// The schemas that a body does not fit, by their places among all of who offers the capability.
pub(crate) fn misfits(registry: &Registry, wanted: &Wanted<'_>) -> Vec<usize> {
    let Some((name, offered)) = registry.names.get(wanted.name) else { return Vec::new() };
    let agents = offered.by.iter().filter_map(|key| registry.agents.get(*key));
    let offers = agents.flat_map(|agent| agent.offers.iter().filter(|offer| offer.answers_to(name)));
    let mut known: Vec<&Arc<Schema>> = Vec::new();
    for schema in offers.filter_map(Offer::input) {
        if known.len() < SCHEMAS_MAX && !known.iter().any(|other| Arc::ptr_eq(other, schema)) {
            known.push(schema);
        }
    }
    let misfit = |(place, schema): (usize, &&Arc<Schema>)| (!wanted.body.fits(schema)).then_some(place);
    known.iter().enumerate().filter_map(misfit).collect()
}
