//! What a hub holds: memory and descriptors as the kernel counts them, and its own gauges.

use std::fmt;

use crate::raw::{Hub, http};

/// What a hub holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// Resident memory, in KiB.
    pub(crate) rss: u64,
    /// The most that it has been since [`forget_peak`], in KiB.
    pub(crate) peak: u64,
    pub(crate) descriptors: usize,
    pub(crate) connections: u64,
    pub(crate) agents: u64,
    pub(crate) in_flight: u64,
    pub(crate) outbound_bytes: u64,
}

impl fmt::Display for Vitals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss, peak, descriptors, connections, agents, in_flight, outbound_bytes } = self;
        write!(
            out,
            "{rss} KiB (peak {peak}), {descriptors} descriptors, {connections} connections, {agents} agents, \
             {in_flight} in flight, {outbound_bytes} bytes queued"
        )
    }
}

impl Vitals {
    pub(crate) async fn of(hub: &Hub) -> Self {
        let page = http::get(hub.metrics(), "/metrics").await.body;
        let status = std::fs::read_to_string(format!("/proc/{}/status", hub.pid())).expect("the hub runs");
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", hub.pid())).expect("the hub runs").count();
        Self {
            rss: kib(&status, "VmRSS:"),
            peak: kib(&status, "VmHWM:"),
            descriptors,
            connections: sum(&page, "agent_reach_connections"),
            agents: sum(&page, "agent_reach_agents"),
            in_flight: sum(&page, "agent_reach_in_flight"),
            outbound_bytes: sum(&page, "agent_reach_outbound_bytes"),
        }
    }

    /// Of several moments the one with the fewest descriptors: reading the metrics takes one itself.
    pub(crate) async fn quiet(hub: &Hub) -> Self {
        let mut least = Self::of(hub).await;
        for _ in 0..20 {
            let now = Self::of(hub).await;
            if now.descriptors <= least.descriptors {
                least = now;
            }
        }
        least
    }

    /// Whether nothing is held any more that was not held `before`; the canary may be amid a call.
    pub(crate) const fn is_back(&self, before: &Self, growth: u64) -> bool {
        self.descriptors <= before.descriptors
            && self.connections == before.connections
            && self.agents == before.agents
            && self.in_flight <= 1
            && self.outbound_bytes <= before.outbound_bytes
            && self.rss <= before.rss + growth
    }
}

/// Lets the peak begin at what is held now.
pub(crate) fn forget_peak(hub: &Hub) {
    std::fs::write(format!("/proc/{}/clear_refs", hub.pid()), "5").expect("the hub runs");
}

fn kib(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("KiB")
}

/// All series of one metric together.
pub(crate) fn sum(page: &str, name: &str) -> u64 {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (_, value) = rest.starts_with(['{', ' ']).then(|| rest.rsplit_once(' '))??;
        value.parse::<f64>().ok()
    });
    // What counts things is a whole number.
    format!("{:.0}", values.sum::<f64>()).parse().expect("a number that is not negative")
}
