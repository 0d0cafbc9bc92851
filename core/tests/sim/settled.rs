//! What has to be left when nothing goes on any more: nothing.

use std::collections::BTreeSet;

use agent_reach_core::{CallTrace, ConnectionId, Gauges, Hop};
use agent_reach_protocol::{AgentStatus, Call, Update, encode};

use super::model::{Asked, Conn, Event, On, RESUME_MS};
use super::setting::{BUDGET_MAX_MS, IN_FLIGHT, Rules};
use super::tasks::REDELIVER_MS;
use super::{Sim, invariants, tasks};
use crate::world::{call, cancel, update};

/// Time in which a probe is answered, in milliseconds.
pub(super) const PROBE_MS: u64 = 3000;

/// What one probe counts among what is open, at the most.
const PROBE_BYTES: usize = 2800;

impl Sim {
    /// Nobody begins anything, everybody answers: then every call, slot, timer and byte comes back, while
    /// the connections stay.
    pub(super) fn becomes_quiet(&mut self) {
        self.quiet = true;
        *self.met.entry("quiet").or_default() += 1;
        self.note(|| "it becomes quiet".to_owned());
        for conn in self.conns.values_mut() {
            (conn.slow, conn.silence, conn.frozen, conn.lag_ms) = (false, None, None, 0);
        }
        self.store.lag_ms = 0;
        if self.store.ill {
            self.store_recovers();
        }
        self.wake_everybody();
        // Long enough for any budget, the slot of a cancelled call behind it, and who hung in between.
        self.end = self.now.plus_ms(2 * BUDGET_MAX_MS + RESUME_MS + 5000);
        while !self.is_settled() && self.step() {}
        tasks::every_task_has_come_home(self);
        self.probe();
        self.end = self.now.plus_ms(PROBE_MS);
        while self.step() {}
        // Who left in between may have been away.
        // Or still had something to confirm.
        self.end = self.end.plus_ms(RESUME_MS + 2 * REDELIVER_MS + 1);
        while self.step() {}
        // And who came back in the last moment looks once more whether anything is owed to it.
        for _ in 0..4 {
            let gauges = self.hub.gauges();
            if gauges.timers <= gauges.connections + 1 {
                break;
            }
            self.end = self.end.plus_ms(REDELIVER_MS);
            while self.step() {}
        }
        self.now = self.end;
        while self.hub.next_timeout().is_some_and(|next| next <= self.now) {
            self.tick();
        }
        self.audit();
        invariants::after_every_step(self);
        all_slots_are_free(self, 0);
    }

    fn is_settled(&self) -> bool {
        let gauges = self.hub.gauges();
        let owed = |conn: &Conn| {
            let own = self.players[conn.agent].name.as_str();
            conn.welcomed && self.store.owed.iter().any(|(agent, _)| **agent == *own)
        };
        self.store.is_idle()
            && !self.conns.values().any(owed)
            && gauges.calls + gauges.in_flight + gauges.agents_away + gauges.watches == 0
            && self.conns.values().all(|conn| conn.link.is_empty() && !conn.pending)
    }

    /// Whoever was frozen reads on, and whoever hung works on.
    fn wake_everybody(&mut self) {
        let open: Vec<ConnectionId> = self.conns.keys().copied().collect();
        for id in open {
            self.later(0, 10, Event::Read(id));
            self.later(10, 20, Event::Keepalive(id));
            let watches = self.conns[&id].asked.iter();
            let watches = watches.filter(|(_, asked)| asked.intent.is_none() && asked.due.is_none());
            let watches: Vec<u64> = watches.map(|(call, _)| *call).collect();
            for watch in watches {
                self.send(id, encode(&cancel(watch), None), On::Nothing, |_| format!("CANCEL {watch}"));
            }
            let given: Vec<u64> = self.conns[&id].given.keys().copied().collect();
            for call in given {
                self.later(0, 500, Event::Work(id, call));
            }
        }
    }

    /// Takes every slot there is at once: none may have been lost.
    fn probe(&mut self) {
        // And those that look whether anything is still to be delivered.
        all_slots_are_free(self, 2 * registered(&self.hub.gauges()));
        self.set_rules(Rules::Open);
        let usable: Vec<ConnectionId> = self
            .conns
            .values()
            .filter(|conn| conn.welcomed && !conn.left && !conn.ended)
            // An operator's word holds until the operator takes it back.
            .filter(|conn| self.players[conn.agent].drained.is_none())
            .map(|c| c.id)
            .collect();
        let asker = usable.iter().copied().find(|id| self.players[self.conns[id].agent].declares.is_none());
        let Some(asker) = asker else { return };
        // What one asker may have open has its bounds.
        let bytes = self.settings.open_bytes.min(self.settings.open_bytes_each);
        let mut left = (bytes / PROBE_BYTES).min(IN_FLIGHT);
        for id in usable {
            let conn = &self.conns[&id];
            let player = &self.players[conn.agent];
            let offered = conn.offered.iter().find(|(name, (on, since))| {
                // Rules in force since it was offered may have taken it away.
                let granted = self.rules_since(*since).all(|rules| rules.may_provide(&player.name, name));
                *on && granted && **name != "x.two"
            });
            let Some((name, target, slots)) =
                offered.map(|(name, _)| (*name, player.name.clone(), player.slots))
            else {
                continue;
            };
            let slots = usize::try_from(slots).unwrap();
            if slots > left {
                continue;
            }
            left -= slots;
            self.say_status(id, AgentStatus::Ready, 100);
            self.say_anew(id, name);
            for _ in 0..slots {
                self.ask_directly(asker, name, &target);
            }
            *self.met.entry("probed").or_default() += 1;
        }
    }

    /// What is withdrawn and offered again has failed nobody yet.
    fn say_anew(&mut self, id: ConnectionId, name: &'static str) {
        let Some(agent) = self.conns.get(&id).map(|conn| conn.agent) else { return };
        for add in [false, true] {
            let said = match add {
                true => Update { add: vec![self.offer(agent, name)], ..update() },
                false => Update { remove: vec![name], ..update() },
            };
            self.send(id, encode(&said, None), On::Offer { name, add }, |_| format!("UPDATE {name} {add}"));
        }
    }

    fn ask_directly(&mut self, id: ConnectionId, name: &'static str, target: &str) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let mut asked = Asked::new(None, 0, false);
        asked.due = Some(agent_reach_core::Now::from_micros(u64::MAX));
        asked.probe = true;
        conn.asked.insert(call_id, asked);
        let asking =
            Call { agents: Some(vec![target]), accept_timeout_ms: Some(PROBE_MS), ..call(call_id, name) };
        let text = format!("CALL {call_id} {name} of {target}");
        self.send(id, encode(&asking, None), On::Ask { call: call_id, again: false }, |_| text);
    }
}

/// While the connections are still there: no call, no slot, no byte, and one timer for each session.
fn all_slots_are_free(sim: &Sim, windows: usize) {
    let gauges = sim.hub.gauges();
    let registered = registered(&gauges);
    let left = [
        ("calls", gauges.calls),
        ("in_flight", gauges.in_flight),
        ("waiting", gauges.waiting),
        ("breakers_half_open", gauges.breakers_half_open),
        ("open_bytes", gauges.open_bytes),
        ("watches", gauges.watches),
        ("agents_away", gauges.agents_away),
    ];
    for (what, left) in left {
        assert!(left == 0, "what_is_settled_returns_to_zero: {what} in {gauges:?}");
    }
    // One for each session that is open or may become so, the sweep, and windows that nobody waits for.
    let most = gauges.connections + 1 + windows;
    assert!(
        registered <= gauges.timers && gauges.timers <= most,
        "what_is_settled_returns_to_zero: {} timers of {registered} to {most}",
        gauges.timers
    );
}

fn registered(gauges: &Gauges) -> usize {
    gauges.agents_ready + gauges.agents_degraded + gauges.agents_draining + gauges.agents_suspect
}

/// A stopped hub has nobody, and runs nothing but what somebody left behind before.
pub(super) fn nothing_runs_after_a_stop(sim: &Sim) {
    let gauges = &sim.hub.gauges();
    let left = (registered(gauges), gauges.watches);
    assert!(left == (0, 0), "nothing_runs_after_a_stop: {gauges:?}");
    // Tasks that wait rest.
    let left = (gauges.calls - sim.tasks.open.len(), gauges.in_flight, gauges.open_bytes);
    assert!(left == (0, 0, 0) || gauges.agents_away > 0, "nothing_runs_after_a_stop: {gauges:?}");
}

/// When a drain and the resume window behind it are over, nothing runs and nobody is registered.
pub(super) fn nothing_is_left_after_a_drain(sim: &Sim) {
    let over = sim.hub.next_timeout().is_none_or(|next| next > sim.now);
    if sim.drained.is_some() && over && sim.now >= sim.gone_by {
        let gauges = sim.hub.gauges();
        nothing_runs_after_a_stop(sim);
        assert!(gauges.agents_away == 0, "nothing_is_left_after_a_drain: {gauges:?}");
    }
}

/// When everybody has left and every window has passed, nothing is left of anybody.
pub(super) fn nothing_is_left(sim: &Sim) {
    let gauges = sim.hub.gauges();
    let resting = sim.tasks.open.len();
    if sim.drained.is_some() && resting > 0 {
        // Tasks that wait are left to the next hub.
        let left = (gauges.calls, gauges.in_flight, gauges.timers, gauges.connections, gauges.outbound_bytes);
        assert!(left == (resting, 0, 0, 0, 0), "nothing_is_left: {gauges:?} but for {resting} tasks");
        return;
    }
    let store_ill = sim.stopped && gauges.store_ill;
    assert!(gauges == Gauges { store_ill, ..Gauges::default() }, "nothing_is_left: {gauges:?}");
    for (id, stored) in &sim.store.tasks {
        let over = stored.end.is_some() || sim.stopped;
        assert!(over, "an_accepted_task_is_never_lost: {id} has no end: {stored:?}");
    }
}

/// The spans of a traced call: each below one that is there, and within the call's time.
pub(crate) fn is_a_tree(trace: &CallTrace) {
    let spans = trace.spans();
    let mut known = BTreeSet::new();
    for (place, span) in spans.iter().enumerate() {
        let parent = span.parent.map(|parent| parent.to_bytes());
        assert!(place == 0 || parent.is_some_and(|parent| known.contains(&parent)), "no parent: {span:?}");
        assert!(known.insert(span.id.to_bytes()), "two spans have one id: {span:?}");
        assert!(trace.started <= span.start && span.start <= span.end, "{span:?}");
        assert!(span.end <= trace.ended, "{span:?}");
    }
    let ends = spans.iter().filter(|span| span.hop == Hop::Result).count();
    assert_eq!(ends, 1, "a call has one end: {spans:?}");
}
