//! Callers: a fixed number of calls in flight, each replaced when it ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Ask, CAPABILITIES, FIRST_CALLER, Outcome, RequestIds, Told, Want};

/// Longest latency that is told apart, in nanoseconds.
pub(super) const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Who is called, and what for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Plan {
    /// Every capability in turn, without end.
    Capabilities {
        /// How many agents there are.
        agents: u32,
        /// How many groups they form.
        groups: u32,
    },
    /// Every agent once.
    EachAgentOnce {
        /// How many agents there are.
        agents: u32,
        /// How many groups they form.
        groups: u32,
    },
    /// Every agent is told, again and again.
    Notices {
        /// How many agents there are.
        agents: u32,
    },
    /// Streams of every capability in turn, without end.
    Streams {
        /// How many agents there are.
        agents: u32,
        /// How many chunks each stream has.
        chunks: u64,
        /// How many may be under way.
        credit: u64,
    },
}

/// What to call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallersJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// How many connections call.
    pub(crate) callers: u32,
    /// Calls in flight, over all callers.
    pub(crate) in_flight: u32,
    /// Bytes of each body.
    pub(crate) body: usize,
    /// How a call is named.
    pub(crate) request_ids: RequestIds,
    /// Who is called.
    pub(crate) plan: Plan,
    /// New calls begin only when all of a caller's have ended, and then together.
    pub(crate) bursts: bool,
}

/// What the callers of a worker count together.
pub(super) struct Counts {
    pub(super) tally: Tally,
    pub(super) latency: Histogram<u64>,
    /// Number of the next call, over all callers.
    next: u64,
}

impl Counts {
    /// Nothing yet.
    ///
    /// # Errors
    /// None that happens: the bounds of the histogram are good.
    pub(super) fn new() -> Result<Self> {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?;
        Ok(Self { tally: Tally::default(), latency, next: 0 })
    }
}

type Shared = Rc<RefCell<Counts>>;

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read, or a caller cannot connect.
pub(super) async fn run(job: CallersJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let counts = Rc::new(RefCell::new(Counts::new()?));
    let mut idle = Vec::new();
    let mut calling = JoinSet::new();
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                for index in 0..job.callers {
                    idle.push(open(&connector, index).await?);
                    counts.borrow_mut().tally.connected += 1;
                }
            }
            Order::Start => {
                for link in idle.drain(..) {
                    calling.spawn_local(work(link, job.clone(), Rc::clone(&counts)));
                }
            }
            Order::Count | Order::Stop => {}
        }
        answer(&counted(&mut counts.borrow_mut()))?;
    }
    Ok(())
}

/// What was counted since the last time.
pub(super) fn counted(counts: &mut Counts) -> Tally {
    let at = |quantile| counts.latency.value_at_quantile(quantile);
    let latency_ns = [at(0.5), at(0.99), at(0.999)];
    counts.latency.reset();
    let fresh = Tally { connected: counts.tally.connected, ..Tally::default() };
    Tally { latency_ns, ..std::mem::replace(&mut counts.tally, fresh) }
}

/// Connects the caller of this index.
///
/// # Errors
/// When it cannot.
pub(super) async fn open(connector: &Connector, index: u32) -> Result<(u32, Link)> {
    let name = format!("caller-{index:06}");
    let identity = connector.identity(&name)?;
    Ok((index, connector.register(&name, identity, FIRST_CALLER + index, None).await?))
}

async fn work((index, link): (u32, Link), job: CallersJob, counts: Shared) {
    let body = match job.plan {
        // A stream's body begins with its length.
        Plan::Streams { chunks, .. } => {
            chunks.to_be_bytes().into_iter().chain((0..=255).cycle()).take(job.body.max(8)).collect()
        }
        Plan::Capabilities { .. } | Plan::EachAgentOnce { .. } | Plan::Notices { .. } => {
            (0..=255).cycle().take(job.body).collect()
        }
    };
    // What does not divide goes to the first callers.
    let window = job.in_flight / job.callers + u32::from(index < job.in_flight % job.callers);
    let open = HashMap::new();
    let caller = Caller { link, number: FIRST_CALLER + index, body, window, open, next_id: 1, job, counts };
    let counts = Rc::clone(&caller.counts);
    if let Err(error) = caller.call().await {
        let mut counts = counts.borrow_mut();
        counts.tally.connected -= 1;
        counts.tally.fail(&error);
    }
}

/// A call that has not ended.
struct Open {
    began: Instant,
    /// Who was asked, where the caller knows.
    agent: u32,
    /// Chunks that were read since credit was given.
    read: u64,
}

struct Caller {
    link: Link,
    number: u32,
    body: Vec<u8>,
    window: u32,
    open: HashMap<u64, Open>,
    next_id: u64,
    job: CallersJob,
    counts: Shared,
}

impl Caller {
    async fn call(mut self) -> Result<()> {
        self.ask(self.window);
        self.link.flush().await?;
        loop {
            self.link.fill().await?;
            let now = Instant::now();
            let mut ended = 0;
            while let Some(message) = self.link.pop()? {
                ended += u32::from(self.take(&message, now)?);
            }
            match self.job.bursts {
                false => self.ask(ended),
                true if self.open.is_empty() => self.ask(self.window),
                true => {}
            }
            self.link.flush().await?;
        }
    }

    fn ask(&mut self, count: u32) {
        let now = Instant::now();
        for _ in 0..count {
            let mut counts = self.counts.borrow_mut();
            let Some(ask) = self.job.plan.ask(counts.next) else { return };
            counts.next += 1;
            let id = self.next_id;
            self.next_id += 1;
            let dialect = self.job.endpoint.dialect;
            self.link.push(&dialect.call(self.number, id, ask, self.job.request_ids, &self.body));
            self.open.insert(id, Open { began: now, agent: ask.agent, read: 0 });
        }
    }

    /// Whether a call has ended.
    fn take(&mut self, message: &bytes::Bytes, now: Instant) -> Result<bool> {
        let dialect = self.job.endpoint.dialect;
        let mut counts = self.counts.borrow_mut();
        match dialect.told(message)? {
            Told::Chunk(id, ..) => {
                counts.tally.chunks += 1;
                let Plan::Streams { credit, .. } = self.job.plan else { return Ok(false) };
                let stream = self.open.get_mut(&id).context("a chunk of no open call")?;
                stream.read += 1;
                if stream.read >= credit.div_ceil(2) {
                    self.link.push(&dialect.credit(self.number, id, stream.agent, stream.read));
                    stream.read = 0;
                }
                Ok(false)
            }
            Told::Ended(id, outcome) => {
                let Open { began, .. } = self.open.remove(&id).context("an answer to no open call")?;
                match outcome {
                    Outcome::Completed(_) | Outcome::Summary(_) => {
                        counts.tally.calls += 1;
                        counts.latency.saturating_record(u64::try_from((now - began).as_nanos())?);
                    }
                    Outcome::Failed(code) => counts.tally.fail(&anyhow!("a call failed: {code}")),
                }
                Ok(true)
            }
            Told::Accepted(_) | Told::Part(_) | Told::Nothing => Ok(false),
        }
    }
}

impl Plan {
    /// Who is asked with the call of this number; `None`: all have been.
    fn ask(self, number: u64) -> Option<Ask> {
        let in_turn = |agents: u32, groups: u32, want| {
            let capability = u32::try_from(number % u64::from(groups * CAPABILITIES)).ok()?;
            let agent = u32::try_from(number % u64::from(agents)).ok()?;
            Some(Ask { capability, agent, want })
        };
        match self {
            Self::Capabilities { agents, groups } => {
                in_turn(agents, groups, Want::Result { directed: false })
            }
            Self::EachAgentOnce { agents, groups } => {
                let agent = u32::try_from(number).ok().filter(|agent| *agent < agents)?;
                let capability = agent % groups * CAPABILITIES;
                Some(Ask { capability, agent, want: Want::Result { directed: true } })
            }
            Self::Notices { agents } => {
                let agent = agents.checked_sub(1)?;
                Some(Ask { capability: 0, agent, want: Want::Notice })
            }
            Self::Streams { agents, credit, .. } => in_turn(agents, 1, Want::Chunks { credit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_and_every_agent_gets_its_turn() {
        let plan = Plan::Capabilities { agents: 4, groups: 2 };
        let asked = (0..12).map(|number| plan.ask(number).unwrap());
        let (capabilities, agents): (Vec<_>, Vec<_>) = asked.map(|ask| (ask.capability, ask.agent)).unzip();
        assert_eq!(capabilities, [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]);
        assert_eq!(agents, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn a_plan_of_each_agent_once_ends() {
        let plan = Plan::EachAgentOnce { agents: 3, groups: 2 };
        let asked: Vec<_> = (0..4).map_while(|number| plan.ask(number)).collect();
        let offered: Vec<_> = asked.iter().map(|ask| (ask.agent, ask.capability)).collect();
        assert_eq!(offered, [(0, 0), (1, 3), (2, 0)]);
        assert!(asked.iter().all(|ask| ask.want == Want::Result { directed: true }));
    }
}
