//! Ends of calls that handlers served, so that a repeated CALL is answered without a second run.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::notes::Past;
use super::time::Now;
use super::types::Outcome;
use crate::payload::Payload;

/// Most bytes kept, with the bodies. 64 MiB.
pub(crate) const BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long an end is kept that only this life of the process remembers.
const KEEP: Duration = Duration::from_secs(600);
/// How long one is kept that is in the dedupe file: as long as the hub keeps a task's.
pub(crate) const KEEP_ON_DISK: Duration = Duration::from_secs(86_400);
/// What an entry costs besides its bodies, roughly.
const OVERHEAD: usize = 256;

/// One served call, as it can be answered again.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) outcome: Outcome,
    /// The chunks of its stream; `None` when they were too many to keep.
    pub(crate) chunks: Option<Vec<Payload>>,
    pub(crate) execution: Duration,
    /// Of the body that it was served for, where that is looked at.
    pub(crate) fingerprint: u64,
}

impl Served {
    fn bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().flatten().map(|c| c.body.len() + OVERHEAD / 4).sum();
        let end = match &self.outcome {
            Outcome::Completed(payload) => payload.body.len(),
            Outcome::Failed(failure) => {
                failure.message.len() + failure.details.as_ref().map_or(0, |d| d.len())
            }
        };
        chunks + end + OVERHEAD
    }
}

/// The ends kept, oldest first out.
#[derive(Debug)]
pub(crate) struct Memory {
    keep: Duration,
    /// With the moment until which it is kept: an intent kept anew leaves a stale entry in `order` behind.
    by_intent: HashMap<Arc<str>, (Now, Served)>,
    order: VecDeque<(Now, Arc<str>)>,
    bytes: usize,
}

impl Memory {
    fn new(keep: Duration) -> Self {
        Self { keep, by_intent: HashMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// What only this life of the process remembers: nothing yet.
    pub(crate) fn of_this_life() -> Self {
        Self::new(KEEP)
    }

    /// What is in the dedupe file as well. `past`: what earlier lives left there, the oldest first.
    pub(crate) fn on_disk(past: Vec<Past>) -> Self {
        let mut memory = Self::new(KEEP_ON_DISK);
        for Past { intent, fingerprint, outcome, execution, age } in past {
            let served = Served { outcome, chunks: Some(Vec::new()), execution, fingerprint };
            memory.keep_until(Now(memory.keep.saturating_sub(age)), intent, served);
        }
        memory
    }

    pub(crate) fn keep(&mut self, now: Now, intent: Arc<str>, served: Served) {
        self.keep_until(now.after(self.keep), intent, served);
    }

    fn keep_until(&mut self, until: Now, intent: Arc<str>, served: Served) {
        self.bytes += served.bytes() + intent.len();
        if let Some((_, old)) = self.by_intent.insert(Arc::clone(&intent), (until, served)) {
            self.bytes -= old.bytes() + intent.len();
        }
        self.order.push_back((until, intent));
        while self.bytes > BYTES_MAX && self.forget_oldest() {}
    }

    pub(crate) fn find(&self, intent: &str) -> Option<&Served> {
        self.by_intent.get(intent).map(|(_, served)| served)
    }

    /// Lets go of what is over age.
    pub(crate) fn expire(&mut self, now: Now) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) && self.forget_oldest() {}
    }

    pub(crate) fn next_timeout(&self) -> Option<Now> {
        self.order.front().map(|(until, _)| *until)
    }

    fn forget_oldest(&mut self) -> bool {
        let Some((until, intent)) = self.order.pop_front() else { return false };
        if self.by_intent.get(&intent).is_some_and(|(kept, _)| *kept == until)
            && let Some((_, served)) = self.by_intent.remove(&intent)
        {
            self.bytes -= served.bytes() + intent.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(bytes: usize) -> Served {
        let payload = Payload::new(vec![0; bytes]);
        Served {
            outcome: Outcome::Completed(payload),
            chunks: None,
            execution: Duration::ZERO,
            fingerprint: 0,
        }
    }

    #[test]
    fn the_oldest_goes_when_the_bound_is_passed() {
        let mut memory = Memory::of_this_life();
        memory.keep(Now::default(), "a".into(), served(BYTES_MAX / 2));
        memory.keep(Now(Duration::from_secs(1)), "b".into(), served(BYTES_MAX / 2 - 2 * OVERHEAD - 2));
        assert!(memory.find("a").is_some() && memory.find("b").is_some());
        assert_eq!(memory.bytes, BYTES_MAX);
        memory.keep(Now(Duration::from_secs(2)), "c".into(), served(0));
        assert!(memory.find("a").is_none() && memory.find("b").is_some() && memory.find("c").is_some());
    }

    #[test]
    fn an_end_is_forgotten_after_its_time_and_not_before() {
        let mut memory = Memory::of_this_life();
        memory.keep(Now::default(), "a".into(), served(1));
        let end = memory.next_timeout().unwrap();
        memory.expire(Now(end.0 - Duration::from_millis(1)));
        assert!(memory.find("a").is_some());
        memory.expire(end);
        assert!(memory.find("a").is_none());
        assert_eq!((memory.bytes, memory.next_timeout()), (0, None));
    }

    #[test]
    fn what_an_earlier_life_left_is_kept_for_the_rest_of_its_time() {
        let past = |intent: &str, hours: u64| Past {
            intent: intent.into(),
            fingerprint: 1,
            outcome: served(1).outcome,
            execution: Duration::ZERO,
            age: Duration::from_secs(hours * 3600),
        };
        let mut memory = Memory::on_disk(vec![past("old", 30), past("a", 23), past("b", 1)]);
        memory.expire(Now::default());
        assert!(memory.find("old").is_none() && memory.find("a").is_some());
        memory.expire(Now(Duration::from_secs(3600)));
        assert!(memory.find("a").is_none() && memory.find("b").is_some());
    }
}
