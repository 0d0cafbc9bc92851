//! `hub.stats`: figures of the hub at one moment, for people and programs that look after it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use agent_reach_protocol::ErrorCode;
use serde::Serialize;

use crate::hub::Hub;
use crate::latency::{Latency, Phase};
use crate::time::Now;
use crate::views::pack;

/// Most capabilities, and most breakers, that are shown each.
const SHOWN: usize = 50;

#[derive(Debug, Serialize)]
struct StatsView<'a> {
    hub: &'a str,
    draining: bool,
    policy_version: u64,
    connections: usize,
    agents: usize,
    agents_ready: usize,
    agents_suspect: usize,
    agents_away: usize,
    capabilities: usize,
    open_calls: usize,
    in_flight: usize,
    waiting: usize,
    waiting_by_capability: Vec<WaitingView<'a>>,
    watches: usize,
    calls_completed: u64,
    calls_failed: u64,
    failed_by_code: BTreeMap<&'static str, u64>,
    latency: LatencyView,
    breakers_open: usize,
    breakers_half_open: usize,
    breakers: Vec<BreakerView<'a>>,
    late_frames: u64,
    bytes_in: u64,
    bytes_out: u64,
    outbound_bytes: usize,
    open_bytes: usize,
    remembered: usize,
    remembered_bytes: usize,
    /// Left out until the shell has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct WaitingView<'a> {
    capability: &'a str,
    calls: usize,
}

#[derive(Debug, Serialize)]
struct BreakerView<'a> {
    agent_id: &'a str,
    capability: &'a str,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct LatencyView {
    window_ms: u64,
    accept: QuantilesView,
    process: QuantilesView,
    total: QuantilesView,
}

/// Times in microseconds; left out where there was no call.
#[derive(Debug, Serialize)]
struct QuantilesView {
    calls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p90_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_us: Option<u64>,
}

impl Hub {
    /// The answer of `hub.stats`.
    pub(crate) fn stats(&self, now: Now) -> Vec<u8> {
        let gauges = self.gauges();
        let failed = ErrorCode::ALL.iter().map(|code| (code.as_str(), self.counters.failed(*code)));
        pack(&StatsView {
            hub: &self.settings.hub_name,
            draining: self.is_draining(),
            policy_version: self.policy.version,
            connections: gauges.connections,
            agents: self.registry.agents.len() - gauges.agents_away,
            agents_ready: gauges.agents_ready,
            agents_suspect: gauges.agents_suspect,
            agents_away: gauges.agents_away,
            capabilities: self.registry.names.iter().filter(|(_, offered)| !offered.by.is_empty()).count(),
            open_calls: gauges.calls,
            in_flight: gauges.in_flight,
            waiting: gauges.waiting,
            waiting_by_capability: self.longest_lines(),
            watches: gauges.watches,
            calls_completed: self.counters.calls_completed,
            calls_failed: self.counters.calls_failed,
            failed_by_code: failed.filter(|(_, count)| *count > 0).collect(),
            latency: LatencyView {
                window_ms: Latency::WINDOW_MS,
                accept: self.quantiles(now, Phase::Accept),
                process: self.quantiles(now, Phase::Process),
                total: self.quantiles(now, Phase::Total),
            },
            breakers_open: gauges.breakers_open,
            breakers_half_open: gauges.breakers_half_open,
            breakers: self.tripped(gauges.breakers_open + gauges.breakers_half_open),
            late_frames: self.counters.late,
            bytes_in: self.counters.bytes_in,
            bytes_out: self.counters.bytes_out,
            outbound_bytes: gauges.outbound_bytes,
            open_bytes: gauges.open_bytes,
            remembered: gauges.remembered,
            remembered_bytes: gauges.remembered_bytes,
            resident_bytes: self.resident_bytes,
        })
    }

    /// The capabilities that most calls wait for, the longest line first.
    fn longest_lines(&self) -> Vec<WaitingView<'_>> {
        let by_name = self.waiting.by_name().filter(|(_, calls)| *calls > 0);
        let mut lines: Vec<_> =
            by_name.map(|(capability, calls)| WaitingView { capability, calls }).collect();
        lines.sort_by_key(|line| (Reverse(line.calls), line.capability));
        lines.truncate(SHOWN);
        lines
    }

    /// Breakers that are not closed, in the order of the agents' ids. They are looked for as long as there are any.
    fn tripped(&self, there_are: usize) -> Vec<BreakerView<'_>> {
        let offers = self.registry.by_id_after("").flat_map(|(_, agent)| {
            agent.offers.iter().filter_map(|offer| Some((&*agent.id, &*offer.name, offer.breaker()?)))
        });
        let tripped = offers.filter(|(.., breaker)| breaker.has_trial() || !breaker.is_closed());
        let views = tripped.map(|(agent_id, capability, breaker)| BreakerView {
            agent_id,
            capability,
            state: if breaker.has_trial() { "half_open" } else { "open" },
        });
        views.take(SHOWN.min(there_are)).collect()
    }

    fn quantiles(&self, now: Now, phase: Phase) -> QuantilesView {
        let told = self.latency.quantiles(now, phase);
        let of_some = |us| (told.count > 0).then_some(us);
        QuantilesView {
            calls: told.count,
            p50_us: of_some(told.p50),
            p90_us: of_some(told.p90),
            p99_us: of_some(told.p99),
        }
    }
}
