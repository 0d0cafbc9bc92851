//! What is to be seen of the core from outside.

use std::sync::Arc;

use agent_reach_core::{Counters, Gauges};

use super::Driver;

impl Driver {
    /// What keeps the hub from all of its work, in a word: it drains, or its store cannot be written.
    pub fn unready(&self) -> Option<&'static str> {
        let inner = self.lock();
        if inner.hub.is_draining() {
            return Some("draining");
        }
        inner.hub.is_store_ill().then_some("store cannot be written")
    }

    /// How many calls wait for each capability; `None`: for those that nobody ever offered.
    pub fn queued(&self) -> Vec<(Option<Arc<str>>, usize)> {
        self.lock().hub.queued()
    }

    /// Counts and sizes, for a scrape.
    pub fn figures(&self) -> (Counters, Gauges) {
        let inner = self.lock();
        (inner.hub.counters().clone(), inner.hub.gauges())
    }
}
