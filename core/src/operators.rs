//! What operators do to agents: `hub.agents.disconnect` and `hub.agents.drain`.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::GoodbyeCode;
use serde::{Deserialize, Serialize};

use crate::calls::{Failure, Refusal};
use crate::effects::Fact;
use crate::hub::{Hub, Turn};
use crate::meta::{read, read_text};
use crate::views::pack;

/// The body of `hub.agents.drain`. The id is looked for apart, with the error that its absence deserves.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Drain {
    /// `false` gives the agent back to work.
    draining: bool,
}

impl Default for Drain {
    fn default() -> Self {
        Self { draining: true }
    }
}

/// Agents that are drained at a time.
const DRAINED_MAX: usize = 4096;

/// Agents that operators drain, by id: each with the life of its process that is meant. A connection that is lost and
/// made again is no way out.
#[derive(Debug, Default)]
pub(crate) struct Drained(BTreeMap<Box<str>, Box<str>>);

impl Drained {
    /// Whether an agent that registers is drained. Another life of its process begins anew.
    pub(crate) fn holds(&mut self, agent_id: &str, instance: &str) -> bool {
        let Some(own) = self.0.get(agent_id) else { return false };
        let same = **own == *instance;
        if !same {
            self.0.remove(agent_id);
        }
        same
    }

    /// Whether one more has room, once those that are not here have given theirs.
    fn has_room(&mut self, is_here: impl Fn(&str) -> bool) -> bool {
        if self.0.len() >= DRAINED_MAX {
            self.0.retain(|agent_id, _| is_here(agent_id));
        }
        self.0.len() < DRAINED_MAX
    }

    fn set(&mut self, agent_id: &str, instance: Option<&str>) {
        match instance {
            Some(instance) => self.0.insert(agent_id.into(), instance.into()),
            None => self.0.remove(agent_id),
        };
    }
}

impl Hub {
    /// The agent is told to come back, so that a stuck connection is replaced by a fresh one; who is to stay
    /// away has its certificate revoked.
    pub(crate) fn disconnect_agent(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Answer<'a> {
            disconnected: &'a str,
        }
        let agent_id = read_text(body, "agent_id")?;
        let agent = self.registry.find(agent_id).and_then(|key| self.registry.agents.get(key));
        let id = agent.and_then(|agent| agent.session).ok_or_else(|| unknown_agent(agent_id))?;
        self.note_act(turn, key, "hub.agents.disconnect", agent_id);
        self.goodbye(turn, id, GoodbyeCode::Draining, "disconnected by an operator", Some(1000));
        self.leave(turn, id, "operator", false);
        Ok(pack(&Answer { disconnected: agent_id }))
    }

    /// The agent gets no new call and ends those it has, as if it had said so itself, and is not told: also one whose
    /// program knows nothing of draining can be emptied before it is stopped.
    pub(crate) fn drain_agent(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        body: Option<&[u8]>,
    ) -> Result<Vec<u8>, Refusal> {
        #[derive(Serialize)]
        struct Answer<'a> {
            agent_id: &'a str,
            draining: bool,
            in_flight: u32,
        }
        let agent_id = read_text(body, "agent_id")?;
        let Drain { draining } = read(body)?;
        let drained = self.registry.find(agent_id).ok_or_else(|| unknown_agent(agent_id))?;
        let registry = &self.registry;
        if draining && !self.drained.has_room(|agent_id| registry.find(agent_id).is_some()) {
            return Err(Failure::overloaded(&format!("{DRAINED_MAX} agents are drained")).into());
        }
        let Some(agent) = self.registry.agents.get_mut(drained) else { return Err(unknown_agent(agent_id)) };
        self.drained.set(agent_id, draining.then_some(&*agent.instance));
        let (worked, before) = (agent.takes_work(), agent.drained);
        agent.drained = draining;
        let (works, in_flight) = (agent.takes_work(), agent.in_flight);
        if before != draining {
            let act = if draining { agent_id.to_owned() } else { format!("{agent_id} back to work") };
            self.note_act(turn, key, "hub.agents.drain", &act);
            self.announce_agent(turn, drained, "agent.updated");
        }
        match (worked, works) {
            (false, true) => self.may_take_more(drained),
            (true, false) => self.may_take_less(drained),
            (true, true) | (false, false) => {}
        }
        Ok(pack(&Answer { agent_id, draining, in_flight }))
    }

    /// Tells of something that is to be answered for.
    pub(crate) fn note_act(&self, turn: &mut Turn<'_>, key: usize, capability: &'static str, subject: &str) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        let (agent, identity) = (Arc::clone(&agent.id), Arc::clone(&agent.identity));
        turn.fx.facts.push(Fact::Act { capability, agent, identity, subject: subject.into() });
    }
}

/// No agent of this id is in the registry, or it has no connection where it needs one.
pub(crate) fn unknown_agent(agent_id: &str) -> Refusal {
    Refusal::invalid("agent_id", &format!("agent {agent_id:?} is not connected"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_drained_has_a_bound_and_who_is_gone_gives_its_place() {
        let mut drained = Drained::default();
        for n in 0..DRAINED_MAX {
            assert!(drained.has_room(|_| true));
            drained.set(&n.to_string(), Some("one"));
        }
        assert!(!drained.has_room(|_| true));
        assert!(drained.has_room(|agent_id| agent_id != "7"));
        assert_eq!((drained.holds("7", "one"), drained.holds("8", "one")), (false, true));
    }
}
