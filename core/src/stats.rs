//! Counts and sizes, for metrics and `hub.stats`.

use agent_reach_protocol::{AgentStatus, ErrorCode, Kind};

use crate::hub::Hub;

/// Highest number of a kind, and one.
const KINDS: usize = 17;
const CODES: usize = ErrorCode::ALL.len();

/// Counts since the hub's start. They only grow.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    frames_in: [u64; KINDS],
    frames_out: [u64; KINDS],
    /// Bytes of envelopes that came, as MessagePack.
    pub bytes_in: u64,
    /// Bytes of envelopes that were queued to leave, as MessagePack.
    pub bytes_out: u64,
    /// Frames for ids that had ended: dropped, never an error.
    pub late: u64,
    /// Calls that ended with a result.
    pub calls_completed: u64,
    /// Calls that ended without one.
    pub calls_failed: u64,
    failed: [u64; CODES],
}

impl Counters {
    pub(crate) fn received(&mut self, kind: Kind) {
        if let Some(count) = self.frames_in.get_mut(kind as usize) {
            *count += 1;
        }
    }

    pub(crate) fn sent(&mut self, kind: Kind) {
        if let Some(count) = self.frames_out.get_mut(kind as usize) {
            *count += 1;
        }
    }

    /// Counts a call that ended with this code, or was refused with it.
    pub(crate) fn call_failed(&mut self, code: ErrorCode) {
        self.calls_failed += 1;
        if let Some(count) = self.failed.get_mut(code as usize) {
            *count += 1;
        }
    }

    /// Calls that ended with this code.
    pub fn failed(&self, code: ErrorCode) -> u64 {
        self.failed.get(code as usize).copied().unwrap_or_default()
    }

    /// Usable envelopes of one kind that came.
    pub fn frames_in(&self, kind: Kind) -> u64 {
        self.frames_in.get(kind as usize).copied().unwrap_or_default()
    }

    /// Envelopes of one kind that were queued to leave.
    pub fn frames_out(&self, kind: Kind) -> u64 {
        self.frames_out.get(kind as usize).copied().unwrap_or_default()
    }
}

/// Sizes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Connections the core knows, registered or not; no guests.
    pub connections: usize,
    /// Guests: callers that are no agents.
    pub guests: usize,
    /// Registered agents that are routable by their own word.
    pub agents_ready: usize,
    /// Registered agents with some capabilities withdrawn.
    pub agents_degraded: usize,
    /// Registered agents that take nothing new.
    pub agents_draining: usize,
    /// Registered agents that are silent.
    pub agents_suspect: usize,
    /// Agents that went away and may come back.
    pub agents_away: usize,
    /// Open calls.
    pub calls: usize,
    /// Slots taken in all agents.
    pub in_flight: usize,
    /// Calls that wait for who can take them.
    pub waiting: usize,
    /// Pairs of agent and capability whose breaker is open.
    pub breakers_open: usize,
    /// Pairs whose breaker has a trial under way.
    pub breakers_half_open: usize,
    /// Pairs whose breaker is closed.
    pub breakers_closed: usize,
    /// Open tasks: queued, received, processing.
    pub tasks: [usize; 3],
    /// Bytes of all open tasks.
    pub task_bytes: usize,
    /// Whether there is a store that takes no new tasks.
    pub store_ill: bool,
    /// Open watches.
    pub watches: usize,
    /// Timers set.
    pub timers: usize,
    /// Bytes in all outbound queues.
    pub outbound_bytes: usize,
    /// Bytes of all open calls' messages.
    pub open_bytes: usize,
    /// Remembered ends.
    pub remembered: usize,
    /// Bytes of remembered ends.
    pub remembered_bytes: usize,
}

impl Gauges {
    pub(crate) fn of(hub: &Hub) -> Self {
        let mut gauges = Self {
            connections: hub.sessions.iter().flatten().count(),
            calls: hub.calls.len(),
            in_flight: hub.legs.len(),
            waiting: hub.waiting.len(),
            tasks: hub.tasks.counts(),
            task_bytes: hub.tasks.bytes(),
            store_ill: hub.is_store_ill(),
            watches: hub.watches.len(),
            timers: hub.timers.len(),
            outbound_bytes: hub.outbound_bytes,
            open_bytes: hub.open_bytes,
            remembered: hub.memory.len(),
            remembered_bytes: hub.memory.bytes(),
            ..Self::default()
        };
        for (_, agent) in &hub.registry.agents {
            if agent.guest {
                gauges.guests += 1;
                continue;
            }
            let count = match (agent.session, agent.suspect, agent.drained, agent.status) {
                (None, ..) => &mut gauges.agents_away,
                (_, true, ..) => &mut gauges.agents_suspect,
                (_, _, true, _) | (.., AgentStatus::Draining) => &mut gauges.agents_draining,
                (.., AgentStatus::Ready) => &mut gauges.agents_ready,
                (.., AgentStatus::Degraded) => &mut gauges.agents_degraded,
            };
            *count += 1;
            for offer in &agent.offers {
                *match offer.breaker() {
                    Some(breaker) if breaker.has_trial() => &mut gauges.breakers_half_open,
                    Some(breaker) if !breaker.is_closed() => &mut gauges.breakers_open,
                    Some(_) | None => &mut gauges.breakers_closed,
                } += 1;
            }
        }
        gauges.connections -= gauges.guests.min(gauges.connections);
        gauges
    }
}

/// Counts of ended calls, for `hub.agents.get`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Moving average from CALL to RESULT, in microseconds.
    pub(crate) latency_us: u64,
}

impl Figures {
    /// Counts one ended call; the average moves by an eighth.
    pub(crate) const fn record(&mut self, completed: bool, latency_us: u64) {
        if completed {
            self.completed += 1;
        } else {
            self.failed += 1;
        }
        self.latency_us = if self.latency_us == 0 {
            latency_us
        } else {
            self.latency_us - self.latency_us / 8 + latency_us / 8
        };
    }
}
