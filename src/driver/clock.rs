//! How the task that keeps time is told, and what it tells.

use tokio::sync::Notify;

use super::Driver;

/// Between [`Driver::keep_time`] and everybody else.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Told when something is due sooner than was known.
    pub(super) sooner: Notify,
    /// Told whenever what is due has been looked at.
    pub(super) looked: Notify,
}

impl Driver {
    /// Has the clock look at what is due, and waits until it has: for ever, where the clock or the core hangs.
    pub async fn clock_ticks(&self) {
        let looked = self.clock.looked.notified();
        self.clock.sooner.notify_one();
        looked.await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use agent_reach_core::{Fact, Policy, Settings};

    use super::super::Observer;
    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn facts(&self, _: &[Fact]) {}
        fn hop(&self, _: Duration) {}
        fn reload(&self, _: u64) {}
    }

    #[tokio::test]
    async fn a_clock_ticks_when_it_is_asked_to_and_one_that_does_not_run_never_does() {
        let driver = Driver::new(Settings::default(), Policy::open(), Arc::new(Nobody));
        let mut unanswered = pin!(driver.clock_ticks());
        assert_eq!(unanswered.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        let clock = tokio::spawn(Arc::clone(&driver).keep_time());
        unanswered.await;
        driver.clock_ticks().await;
        clock.abort();
    }
}
