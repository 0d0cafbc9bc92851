//! Callers of tasks: as fast as the hub accepts them, or at a pace of their own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::callers::{self, LATENCY_MAX_NS};
use super::steady::Arrivals;
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{CAPABILITIES, FIRST_CALLER, TaskTold, receipt, submit, task_told};

/// What to submit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SubmitJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// How many connections submit.
    pub(crate) callers: u32,
    /// Bytes of each body.
    pub(crate) body: usize,
    /// When tasks are submitted.
    pub(crate) pace: Pace,
    /// How many each caller submits; `None`: without end.
    pub(crate) each: Option<u64>,
}

/// When a caller submits its next task.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// When fewer than so many of its own are under way.
    Window(usize, Until),
    /// So many a second over all callers, at random, as those of many callers come.
    Rate(f64),
}

/// How far a task is when the next may follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Until {
    /// It is stored.
    Accepted,
    /// Its result is here.
    Ended,
}

/// What the callers of a worker count together: `calls` that were accepted and how long that took, `heard` that ended.
struct Counts {
    tally: Tally,
    latency: Histogram<u64>,
}

/// Runs the job until nobody gives orders any more. `Stop` is answered when every caller has submitted what it was
/// to, and has the ACCEPT of each.
///
/// # Errors
/// When the certificates cannot be read, or a caller cannot connect.
pub(super) async fn run(job: SubmitJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Connector::new(job.endpoint.clone())?;
    let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?;
    let counts = Rc::new(RefCell::new(Counts { tally: Tally::default(), latency }));
    let mut idle = Vec::new();
    // A permit for each caller that has submitted all.
    let done = Rc::new(Semaphore::new(0));
    let (mut submitting, mut started) = (JoinSet::new(), 0);
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                for index in 0..job.callers {
                    idle.push(callers::open(&connector, index).await?);
                }
            }
            Order::Start => {
                for (index, link) in idle.drain(..) {
                    let submitter = Submitter::new(index, link, &job, &counts, &done);
                    let counts = Rc::clone(&counts);
                    submitting.spawn_local(async move {
                        if let Err(error) = submitter.run().await {
                            counts.borrow_mut().tally.fail(&error);
                        }
                    });
                    started += 1;
                }
            }
            Order::Stop => wait_for(&done, started, &mut submitting).await,
            Order::Count => {}
        }
        answer(&counted(&mut counts.borrow_mut()))?;
    }
    Ok(())
}

/// Waits until each caller has submitted all, or one has failed.
async fn wait_for(done: &Semaphore, callers: u32, submitting: &mut JoinSet<()>) {
    tokio::select! {
        _permits = done.acquire_many(callers) => {}
        // They end only by failing.
        _ended = submitting.join_next() => {}
    }
}

fn counted(counts: &mut Counts) -> Tally {
    let latency_ns = [0.5, 0.99, 0.999].map(|quantile| counts.latency.value_at_quantile(quantile));
    counts.latency.reset();
    Tally { latency_ns, ..std::mem::take(&mut counts.tally) }
}

struct Submitter {
    link: Link,
    number: u32,
    body: Vec<u8>,
    pace: Pace,
    arrivals: Arrivals,
    each: u64,
    /// How many were submitted: the id of the last.
    sent: u64,
    /// Since when those are waited for that are not accepted.
    unaccepted: HashMap<u64, Instant>,
    /// How many have not ended.
    open: usize,
    counts: Rc<RefCell<Counts>>,
    done: Rc<Semaphore>,
}

impl Submitter {
    fn new(
        index: u32,
        link: Link,
        job: &SubmitJob,
        counts: &Rc<RefCell<Counts>>,
        done: &Rc<Semaphore>,
    ) -> Self {
        let rate = match job.pace {
            Pace::Rate(rate) => rate,
            Pace::Window(..) => 1.0,
        };
        Self {
            link,
            number: FIRST_CALLER + index,
            body: (0..=255).cycle().take(job.body).collect(),
            pace: job.pace,
            arrivals: Arrivals::of(index, rate / f64::from(job.callers)),
            each: job.each.unwrap_or(u64::MAX),
            sent: 0,
            unaccepted: HashMap::new(),
            open: 0,
            counts: Rc::clone(counts),
            done: Rc::clone(done),
        }
    }

    async fn run(mut self) -> Result<()> {
        let begin = Instant::now();
        let mut due = begin + self.arrivals.next();
        while self.sent < self.each || !self.unaccepted.is_empty() {
            match self.pace {
                Pace::Window(most, until) => {
                    while self.sent < self.each && self.under_way(until) < most {
                        self.submit(Instant::now());
                    }
                    self.link.flush().await?;
                    self.link.fill().await?;
                }
                Pace::Rate(_) => {
                    // Since when it was due: that the pace was not kept is no excuse.
                    while self.sent < self.each && due <= Instant::now() {
                        self.submit(due);
                        due = begin + self.arrivals.next();
                    }
                    self.link.flush().await?;
                    tokio::select! {
                        // Cancel-safe: bytes stay in the link.
                        filled = self.link.fill() => filled?,
                        () = sleep_until(due), if self.sent < self.each => {}
                    }
                }
            }
            self.take_all()?;
        }
        self.done.add_permits(1);
        // Those that end later come all the same: what is not confirmed would only be sent again.
        loop {
            self.link.flush().await?;
            self.link.fill().await?;
            self.take_all()?;
        }
    }

    fn under_way(&self, until: Until) -> usize {
        match until {
            Until::Accepted => self.unaccepted.len(),
            Until::Ended => self.open,
        }
    }

    fn submit(&mut self, since: Instant) {
        self.sent += 1;
        self.open += 1;
        let capability = u32::try_from(self.sent % u64::from(CAPABILITIES)).unwrap_or_default();
        self.link.push(&submit(self.number, self.sent, capability, &self.body));
        self.unaccepted.insert(self.sent, since);
    }

    fn take_all(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut counts = self.counts.borrow_mut();
        while let Some(message) = self.link.pop()? {
            match task_told(&message)? {
                TaskTold::Accepted(id) => {
                    let since = self.unaccepted.remove(&id).context("ACCEPT of no new task")?;
                    counts.tally.calls += 1;
                    let took = u64::try_from(now.saturating_duration_since(since).as_nanos())?;
                    counts.latency.saturating_record(took);
                }
                TaskTold::Ended(_, task_id) => {
                    self.open = self.open.checked_sub(1).context("an end too many")?;
                    counts.tally.heard += 1;
                    self.link.push(&receipt(&task_id));
                }
                TaskTold::Nothing => {}
            }
        }
        Ok(())
    }
}
