//! What an agent means to offer: what of it is taken, and what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agent_reach_protocol::{Capability, ErrorCode, limits, names};

use crate::authz::Grant;
use crate::hub::{Hub, clip_to};
use crate::offer::Offer;
use crate::schema::Allowance;
use crate::time::Now;

/// Most names of one list for which the nearest of the dictionary are looked for: who has more wrong has another
/// dictionary in mind.
const HINTS_MAX: usize = 4;

/// What an agent is told of one capability: that it is left out and why, or how it was changed.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) text: String,
    /// The code of ERROR when this answers an UPDATE; `None` when nothing was left out.
    pub(crate) left_out: Option<ErrorCode>,
}

impl Notice {
    fn invalid(name: &str, reason: &str) -> Self {
        // A name that broke the grammar may be of any length.
        let text = format!("capability {:?} left out: {reason}", clip_to(name, 160));
        Self { text, left_out: Some(ErrorCode::InvalidRequest) }
    }

    fn forbidden(name: &str) -> Self {
        let text = format!("capability {name} left out: not granted");
        Self { text, left_out: Some(ErrorCode::Unauthorized) }
    }

    /// `name` is the offer's own or an alias of it.
    fn unlisted(offer: &str, name: &str, near: &[&str]) -> Self {
        let which = if name == offer { String::new() } else { format!("its alias {name} is ") };
        let near = if near.is_empty() { String::new() } else { format!("; nearest: {}", near.join(", ")) };
        let text = format!("capability {offer} left out: {which}not in the dictionary{near}");
        Self { text, left_out: Some(ErrorCode::Unauthorized) }
    }

    fn unchecked(name: &str) -> Self {
        let text =
            format!("capability {name}: its schemas are shown and not checked: too many new ones at once");
        Self { text, left_out: None }
    }

    fn folded(asked: &str, name: &str) -> Self {
        Self { text: format!("capability {asked:?} is registered as {name:?}"), left_out: None }
    }
}

impl Hub {
    /// Reads what an agent means to offer beside what it `kept`. What cannot be taken is left out, and said.
    pub(crate) fn read_offers(
        &mut self,
        now: Now,
        listed: &[Capability<'_>],
        grant: &Grant,
        kept: &[Offer],
        allowance: &mut Allowance,
    ) -> (Vec<Offer>, Vec<Notice>) {
        let mut offers: Vec<Offer> = Vec::with_capacity(listed.len());
        let mut taken: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut notices = Vec::new();
        let mut hints = 0;
        let new: BTreeSet<_> = listed.iter().map(|capability| names::fold(capability.name)).collect();
        let stays = |offer: &&Offer| !new.contains(&*offer.name);
        let mut described: usize = kept.iter().filter(stays).map(Offer::described).sum();
        for capability in listed {
            let (mut offer, folded) = match Offer::read(capability, &self.registry.names) {
                Ok(read) => read,
                Err(reason) => {
                    notices.push(Notice::invalid(capability.name, &reason));
                    continue;
                }
            };
            described += offer.described();
            let unlisted = offer.names().find(|name| !grant.lists(name));
            if let Some(name) = unlisted {
                let near = if hints < HINTS_MAX { grant.nearest(name) } else { Vec::new() };
                hints += 1;
                notices.push(Notice::unlisted(&offer.name, name, &near));
            } else if !offer.names().all(|name| grant.may_offer(name)) {
                notices.push(Notice::forbidden(&offer.name));
            } else if taken.contains(&offer.name) {
                notices.push(Notice::invalid(&offer.name, "it is listed twice"));
            } else if described > limits::DESCRIPTIONS_BYTES_MAX {
                let reason = "descriptions and schemas of the agent's capabilities are over 1 MiB together";
                notices.push(Notice::invalid(&offer.name, reason));
            } else {
                match self.read_schemas(now, capability, &mut offer, allowance) {
                    Ok(true) => {}
                    Ok(false) => notices.push(Notice::unchecked(&offer.name)),
                    Err(reason) => {
                        notices.push(Notice::invalid(&offer.name, &reason));
                        continue;
                    }
                }
                if folded {
                    notices.push(Notice::folded(capability.name, &offer.name));
                }
                taken.insert(Arc::clone(&offer.name));
                offers.push(offer);
            }
        }
        (offers, notices)
    }

    /// Takes over the schemas of an offer. `false`: too much would have to be compiled now, so that calls are not held
    /// against them.
    fn read_schemas(
        &mut self,
        now: Now,
        capability: &Capability<'_>,
        offer: &mut Offer,
        allowance: &mut Allowance,
    ) -> Result<bool, String> {
        let (input, output) =
            (capability.input_schema.map(|raw| raw.0), capability.output_schema.map(|raw| raw.0));
        let known = input.and_then(|source| self.inputs.known(source));
        let promised = output.and_then(|source| self.outputs.known(source));
        let is_new = |source: Option<&[u8]>, known: bool| source.filter(|_| !known).map_or(0, <[u8]>::len);
        let new = is_new(input, known.is_some()) + is_new(output, promised.is_some());
        if new > 0 && (self.inputs.is_full() || self.outputs.is_full() || !allowance.take(now, new)) {
            return Ok(false);
        }
        let known = known.map(Ok).or_else(|| input.map(|source| self.inputs.intern(source))).transpose();
        let promised =
            promised.map(Ok).or_else(|| output.map(|source| self.outputs.intern(source))).transpose();
        offer.set_schemas(
            known.map_err(|e| format!("input_schema {e}"))?,
            promised.map_err(|e| format!("output_schema {e}"))?,
        );
        Ok(true)
    }
}

/// Puts new offers in the place of those of the same name, or behind the others while there is room.
pub(crate) fn add(offers: &mut Vec<Offer>, added: Vec<Offer>) -> Vec<(&'static str, Notice)> {
    let places: BTreeMap<Arc<str>, usize> =
        offers.iter().enumerate().map(|(place, offer)| (Arc::clone(&offer.name), place)).collect();
    let mut left_out = Vec::new();
    for mut offer in added {
        let place = places.get(&offer.name).copied().unwrap_or(offers.len());
        if let Some(own) = offers.get_mut(place) {
            offer.succeed(own);
            *own = offer;
        } else if offers.len() < limits::CAPABILITIES_MAX {
            offers.push(offer);
        } else {
            left_out.push(("add", Notice::invalid(&offer.name, "the agent has 1024 capabilities")));
        }
    }
    left_out
}

/// Takes over how the calls of each offer went from the one of the same name before.
pub(crate) fn keep_breakers(before: &mut [Offer], offers: &mut [Offer]) {
    let mut known: BTreeMap<Arc<str>, &mut Offer> =
        before.iter_mut().map(|own| (Arc::clone(&own.name), own)).collect();
    for offer in offers {
        if let Some(own) = known.get_mut(&offer.name) {
            offer.succeed(own);
        }
    }
}

/// Withdraws offers by name; says which there were none of.
pub(crate) fn remove<'a>(offers: &mut Vec<Offer>, listed: &[&'a str]) -> Vec<(&'static str, Notice)> {
    let mut unknown: BTreeMap<_, &'a str> = listed.iter().map(|name| (names::fold(name), *name)).collect();
    offers.retain(|offer| unknown.remove(&*offer.name).is_none());
    unknown.into_values().map(|name| ("remove", Notice::invalid(name, "it is not registered"))).collect()
}
