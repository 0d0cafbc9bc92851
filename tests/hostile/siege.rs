//! The canary, and the rules by which a hub has held.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::vitals::{Vitals, forget_peak, sum};
use super::{SETTLE, bounded};
use crate::raw::peer::canary;
use crate::raw::{Hub, RawClient, http};

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
    before: Vitals,
    made: watch::Receiver<u64>,
    over: Arc<AtomicBool>,
    canary: JoinHandle<Vec<Duration>>,
    /// How many calls were made before the quiet ones, and before the attack.
    quiet_from: u64,
    attack_from: u64,
}

/// Calls until told otherwise, and takes the time of each.
async fn sing(
    mut caller: RawClient,
    mut provider: RawClient,
    made: watch::Sender<u64>,
    over: Arc<AtomicBool>,
) -> Vec<Duration> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        canary(&mut caller, &mut provider, "canary").await;
        took.push(begun.elapsed());
        made.send_replace(took.len() as u64);
    }
    took
}

impl Siege {
    /// A hub with these settings beside [`HAIR_TRIGGER`], whose canary has called for a while.
    pub(crate) async fn begin(settings: &[(&str, &str)]) -> Self {
        let hub = Hub::dev_with(&[&HAIR_TRIGGER, settings].concat());
        let caller = hub.agent("canary-caller", &[]).await;
        let provider = hub.agent("canary-provider", &["canary"]).await;
        let (sender, mut made) = watch::channel(0);
        let over = Arc::new(AtomicBool::new(false));
        let canary = tokio::spawn(sing(caller, provider, sender, Arc::clone(&over)));
        // The first calls fill what is there to be filled; the second lot is measured.
        let mut marks = [0; 2];
        for mark in &mut marks {
            let end = *made.borrow() + calls();
            drop(bounded("the canary's quiet calls", made.wait_for(|count| *count >= end)).await);
            *mark = *made.borrow();
        }
        let before = Vitals::quiet(&hub).await;
        forget_peak(&hub);
        let [quiet_from, attack_from] = marks;
        Self { hub, before, made, over, canary, quiet_from, attack_from }
    }

    /// Whether the canary has not made its calls yet.
    pub(crate) fn goes_on(&self) -> bool {
        *self.made.borrow() < self.attack_from + calls() && !self.canary.is_finished()
    }

    /// Attacks from several sides at once, at least once from each, until the canary has made its calls. One
    /// strike is over when the hub has had enough of it, which has to come.
    pub(crate) async fn attack<F: Future>(&self, sides: usize, strike: impl Fn(usize) -> F) {
        let strike = &strike;
        join_all((0..sides).map(|side| async move {
            loop {
                bounded("the end of a strike", strike(side)).await;
                if !self.goes_on() {
                    break;
                }
            }
        }))
        .await;
    }

    /// Lets the canary make its calls while the attackers hold what they hold.
    pub(crate) async fn hold(&mut self) {
        let end = self.attack_from + calls();
        drop(bounded("the canary's calls under attack", self.made.wait_for(|count| *count >= end)).await);
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
        let Self { hub, before, made, over, canary, quiet_from, attack_from } = self;
        let attack_to = *made.borrow();
        let growth = growth_mib * 1024;
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = Instant::now() + SETTLE;
        let mut now = Vitals::of(&hub).await;
        while !now.is_back(&before, growth) {
            assert!(Instant::now() < deadline, "{what}: the hub holds {now}; before it held {before}");
            assert!(!canary.is_finished(), "{what}: the canary is dead");
            pace.tick().await;
            now = Vitals::of(&hub).await;
        }
        over.store(true, Ordering::Relaxed);
        let took = canary.await.expect("a canary that saw no error");
        let part = |from: u64, to: u64| {
            let range = usize::try_from(from).expect("few")..usize::try_from(to).expect("few");
            summary(took.get(range).expect("calls that were made"))
        };
        eprintln!(
            "{what}: quiet {}; attacked {}",
            part(quiet_from, attack_from),
            part(attack_from, attack_to)
        );
        eprintln!("{what}: before {before}; after {now}");
        assert!(now.peak <= before.rss + growth, "{what}: memory had a peak of {} KiB: {before}", now.peak);
    }
}

fn summary(took: &[Duration]) -> String {
    let mut sorted = took.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied();
    let shown = |percent| at(percent).unwrap_or_default().as_micros();
    format!("{} calls, p50 {} us, p99 {} us, max {} us", sorted.len(), shown(50), shown(99), shown(100))
}
