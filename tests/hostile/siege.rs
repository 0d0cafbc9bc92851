//! An attack on a hub with a canary in it, and the rules by which the hub has held.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::MissedTickBehavior;

use super::canary::{self, Canary};
use super::measure::{self, Mark};
use super::vitals::{Vitals, forget_peak, sum};
use super::{SETTLE, bounded};
use crate::raw::{Hub, Identity, http};

/// Short patience, so that what a peer can hold for a time is seen to end. The memory of ended calls is small,
/// or the canary's own calls would hide what an attack leaves behind.
pub(crate) const HAIR_TRIGGER: [(&str, &str); 6] = [
    ("AGENTS__HANDSHAKE_TIMEOUT_MS", "1000"),
    ("LIVENESS__KEEPALIVE_MS", "1000"),
    ("LIVENESS__SUSPECT_MS", "3000"),
    ("LIVENESS__GONE_MS", "4000"),
    ("LIVENESS__RESUME_MS", "300"),
    ("DEDUPE__MAX_BYTES", "262144"),
];

/// Between two looks at the hub.
const PACE: Duration = Duration::from_millis(50);

/// Calls of the canary before and under attack: enough to see an error. `HOSTILE_CALLS` asks for more, so that
/// its latencies say something.
fn calls() -> u64 {
    std::env::var("HOSTILE_CALLS").map_or(200, |calls| calls.parse().expect("a number"))
}

/// A hub with a canary in it.
pub(crate) struct Siege {
    pub(crate) hub: Hub,
    /// Certificates of the attackers, `attacker-0` and so on: made before anything is measured.
    pub(crate) identities: Vec<Identity>,
    before: Vitals,
    canary: Canary,
    /// When the quiet calls began, and when the attack did.
    marks: [Mark; 2],
    strikes: AtomicUsize,
}

impl Siege {
    /// A hub with these settings beside [`HAIR_TRIGGER`] and so many attackers, whose canary has called for a while.
    pub(crate) async fn begin(settings: &[(&str, &str)], attackers: usize) -> Self {
        let hub = Hub::dev_with(&[&HAIR_TRIGGER, settings].concat());
        let identities = (0..attackers).map(|number| hub.identity(&attacker(number))).collect();
        let mut canary = Canary::begin(&hub).await;
        if canary::is_apart() {
            measure::yield_to_the_hub();
        }
        // The first calls fill what is there to be filled; the second lot is measured.
        canary.until(calls()).await;
        let before = Vitals::quiet(&hub).await;
        let quiet = Mark::at(&hub, canary.made());
        canary.until(quiet.calls + calls()).await;
        forget_peak(&hub);
        let attack = Mark::at(&hub, canary.made());
        Self { hub, identities, before, canary, marks: [quiet, attack], strikes: AtomicUsize::new(0) }
    }

    /// How many calls the canary has to make under attack, in all its life.
    fn target(&self) -> u64 {
        let [_, attack] = self.marks;
        attack.calls + calls()
    }

    /// Whether the canary has not made its calls yet.
    pub(crate) fn goes_on(&self) -> bool {
        self.canary.made() < self.target() && !self.canary.is_dead()
    }

    /// Attacks from several sides at once, at least once from each, until the canary has made its calls. One
    /// strike is over when the hub has had enough of it, which has to come.
    pub(crate) async fn attack<F: Future>(&self, sides: usize, strike: impl Fn(usize) -> F) {
        let strike = &strike;
        join_all((0..sides).map(|side| async move {
            loop {
                bounded("the end of a strike", strike(side)).await;
                self.strikes.fetch_add(1, Ordering::Relaxed);
                if !self.goes_on() {
                    break;
                }
            }
        }))
        .await;
    }

    /// Lets the canary make its calls while the attackers hold what they hold.
    pub(crate) async fn hold(&mut self) {
        self.canary.until(self.target()).await;
    }

    /// Waits until the hub's metrics say so many of this name, all series together.
    pub(crate) async fn until(&self, name: &str, count: u64) {
        let page = async || http::get(self.hub.metrics(), "/metrics").await.body;
        let mut pace = tokio::time::interval(PACE);
        bounded(&format!("{count} of {name}"), async {
            while sum(&page().await, name) < count {
                pace.tick().await;
            }
        })
        .await;
    }

    /// Judges: the canary saw no error, memory grew by no more than so many MiB and is back in these bounds, and
    /// descriptors and gauges are where they were. What the attackers still hold has to be dropped after this.
    pub(crate) async fn end(self, what: &str, growth_mib: u64) {
        let Self { hub, before, canary, marks: [quiet, attack], strikes, .. } = self;
        let marks = [quiet, attack, Mark::at(&hub, canary.made())];
        let growth = growth_mib * 1024;
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = Instant::now() + SETTLE;
        let mut now = Vitals::of(&hub).await;
        while !now.is_back(&before, growth) {
            assert!(Instant::now() < deadline, "{what}: the hub holds {now}; before it held {before}");
            assert!(!canary.is_dead(), "{what}: the canary is dead");
            pace.tick().await;
            now = Vitals::of(&hub).await;
        }
        let took = canary.end().await;
        measure::report(what, marks, &took, strikes.into_inner(), [before, now]);
        assert!(now.peak <= before.rss + growth, "{what}: memory had a peak of {} KiB: {before}", now.peak);
    }
}

/// The name of an attacker.
pub(crate) fn attacker(number: usize) -> String {
    format!("attacker-{number}")
}
