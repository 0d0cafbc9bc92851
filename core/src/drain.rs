//! How the hub ends: a drain that lets open calls finish, or a stop that lets nothing.

use agent_reach_protocol::{Goodbye, GoodbyeCode, Kind, encode};

use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::outbound::Outgoing;
use crate::registry::Agent;
use crate::session::{Lane, Phase};
use crate::time::Timer;

/// WebSocket's own close code of a side that goes away.
const STOPPED: u16 = 1001;

impl Hub {
    /// No new sessions and no new calls. Every agent is told at once, with its own moment to come back, and
    /// stays connected while it has open calls.
    pub(crate) fn on_drain(&mut self, turn: &mut Turn<'_>, drain_ms: u64) {
        if self.draining.is_some() {
            return;
        }
        let until = turn.now.plus_ms(drain_ms);
        self.draining = Some(until);
        self.timers.set(until, Timer::Drain);
        self.rest_tasks(turn);
        let open: Vec<(ConnectionId, Phase)> =
            self.sessions.iter().flatten().map(|session| (session.id, session.phase)).collect();
        for (id, phase) in open {
            let after = self.come_back_ms();
            let goodbye = Goodbye {
                code: GoodbyeCode::Draining.as_str(),
                reason: Some("the hub is draining"),
                reconnect_after_ms: Some(after),
            };
            self.counters.sent(Kind::Goodbye);
            self.send(turn, id, Lane::Control, Outgoing::Message(encode(&goodbye, None)));
            match phase {
                Phase::Open(key) => self.end_watches(turn, key),
                Phase::Fresh | Phase::Over => {}
            }
            self.close_if_idle(turn, id);
        }
    }

    /// A moment to come back, in milliseconds: five hundred a second do, and nobody before a second.
    pub(crate) fn come_back_ms(&mut self) -> u64 {
        let window = 1000 + self.sessions.len() * 2;
        1000 + self.rng.below(window) as u64
    }

    /// While draining: a connection without open calls has nothing left to wait for.
    pub(crate) fn close_if_idle(&mut self, turn: &mut Turn<'_>, id: ConnectionId) {
        if self.draining.is_none() {
            return;
        }
        let Some(session) = self.session(id) else { return };
        let idle = match session.phase {
            Phase::Fresh => true,
            Phase::Open(key) => self
                .registry
                .agents
                .get(key)
                .is_none_or(|agent| !agent.has_open() && !self.is_waited_for(agent)),
            Phase::Over => return,
        };
        if idle {
            self.close(turn, id, GoodbyeCode::Draining);
            self.leave(turn, id, "draining", false);
        }
    }

    /// Whether calls wait that an agent may take, which are open as well.
    fn is_waited_for(&self, agent: &Agent) -> bool {
        let mut names = agent.offers.iter().flat_map(|offer| offer.names());
        !self.waiting.is_empty() && names.any(|name| !self.waiting.lines_of(name).is_empty())
    }

    pub(crate) fn on_drain_end(&mut self, turn: &mut Turn<'_>) {
        let open: Vec<ConnectionId> = self.sessions.iter().flatten().map(|session| session.id).collect();
        for id in open {
            self.close(turn, id, GoodbyeCode::Draining);
            self.leave(turn, id, "draining", false);
        }
    }

    /// The process ends now: every connection is closed, without a GOODBYE that would promise more.
    pub(crate) fn on_stop(&mut self, turn: &mut Turn<'_>) {
        self.leave_tasks(turn);
        let open: Vec<ConnectionId> = self.sessions.iter().flatten().map(|session| session.id).collect();
        for id in open {
            // One that has its close keeps it.
            if self.is_over(id) {
                continue;
            }
            // Nothing may follow the close, so what waits goes.
            self.clear_outbound(id);
            self.send(turn, id, Lane::Control, Outgoing::Close { code: STOPPED, reason: "stopped" });
            turn.fx.wake.push(id);
            self.leave(turn, id, "stopped", true);
        }
    }
}
