//! Guests: who calls without being an agent, for the time of one request.
//!
//! A guest has a session and an agent's place in the registry, so that everything that holds for callers holds for it: its
//! rights, its request ids, bounds, traces and the audit. No name leads to that place. So it disturbs no agent of its name,
//! is in no list, is given nothing, and is not waited for when it is gone.

use agent_reach_protocol::GoodbyeCode;

use crate::hub::{Hub, Turn};
use crate::input::{ConnectionId, Peer};
use crate::registry::Agent;
use crate::session::Phase;
use crate::time::Now;

impl Hub {
    pub(crate) fn on_guest(&mut self, turn: &mut Turn<'_>, id: ConnectionId, peer: Peer) {
        let grant = self.policy.grant(&peer.identity, &peer.name, &peer.name);
        // It has no deadline and no heartbeat: whoever opened it closes it.
        self.enter(turn.now, id, peer.clone(), Now::default());
        let Some(grant) = grant else {
            let reason = format!("{} may not be agent {:?}", peer.identity, peer.name);
            return self.refuse(turn, id, GoodbyeCode::Unauthorized, &reason, Some(&peer.name));
        };
        let guest = Agent::new(peer.name, peer.identity, grant, turn.now);
        let key = self.registry.insert_guest(Agent { session: Some(id), ..guest });
        if let Some(session) = self.session_mut(id) {
            session.phase = Phase::Open(key);
        }
    }

    /// A guest does not come back: what it asked for is cancelled, but its tasks.
    pub(crate) fn leave_guest(&mut self, turn: &mut Turn<'_>, key: usize) {
        self.detach(turn, key);
        self.forget_agent(turn, key);
    }
}
