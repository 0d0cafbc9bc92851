//! Callers: a fixed number of calls in flight, each replaced when it ends.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Ask, CAPABILITIES, Dialect, FIRST_CALLER, RequestIds};

/// Longest latency that is told apart, in microseconds.
const LATENCY_MAX_US: u64 = 60_000_000;

/// Who is called.
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
}

/// What the callers of a worker count together.
struct Counts {
    tally: Tally,
    latency: Histogram<u64>,
    /// Number of the next call, over all callers.
    next: u64,
}

type Shared = Rc<RefCell<Counts>>;

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read, or a caller cannot connect.
pub(super) async fn run(job: CallersJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let latency = Histogram::new_with_bounds(1, LATENCY_MAX_US, 3)?;
    let counts = Rc::new(RefCell::new(Counts { tally: Tally::default(), latency, next: 0 }));
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
            Order::Count => {}
        }
        answer(&counted(&mut counts.borrow_mut()))?;
    }
    Ok(())
}

fn counted(counts: &mut Counts) -> Tally {
    let at = |quantile| counts.latency.value_at_quantile(quantile);
    let latency_us = [at(0.5), at(0.99), at(0.999)];
    counts.latency.reset();
    let fresh = Tally { connected: counts.tally.connected, ..Tally::default() };
    Tally { latency_us, ..std::mem::replace(&mut counts.tally, fresh) }
}

async fn open(connector: &Connector, index: u32) -> Result<(u32, Link)> {
    let name = format!("caller-{index:06}");
    let mut link = connector.connect(&name, index).await.with_context(|| name.clone())?;
    link.push(&connector.dialect().hello(&name, FIRST_CALLER + index, None));
    let welcome = link.next().await?;
    connector.dialect().welcomed(&welcome)?;
    Ok((index, link))
}

async fn work(caller: (u32, Link), job: CallersJob, counts: Shared) {
    if let Err(error) = call(caller, &job, &counts).await {
        let mut counts = counts.borrow_mut();
        counts.tally.connected -= 1;
        counts.tally.fail(&error);
    }
}

async fn call((index, mut link): (u32, Link), job: &CallersJob, counts: &Shared) -> Result<()> {
    let dialect = job.endpoint.dialect;
    let body: Vec<u8> = (0..=255).cycle().take(job.body).collect();
    // What does not divide goes to the first callers.
    let window = job.in_flight / job.callers + u32::from(index < job.in_flight % job.callers);
    let mut open: HashMap<u64, Instant> = HashMap::new();
    let mut next_id = 1;
    let mut ask = |link: &mut Link, open: &mut HashMap<u64, Instant>| {
        let mut counts = counts.borrow_mut();
        let Some(ask) = job.plan.ask(counts.next) else { return };
        counts.next += 1;
        link.push(&encoded(dialect, index, next_id, ask, job, &body));
        open.insert(next_id, Instant::now());
        next_id += 1;
    };
    for _ in 0..window {
        ask(&mut link, &mut open);
    }
    link.flush().await?;
    loop {
        link.fill().await?;
        let now = Instant::now();
        while let Some(message) = link.pop()? {
            match dialect.ended(&message) {
                Ok(id) => {
                    let began = open.remove(&id).context("an answer to no open call")?;
                    let took = u64::try_from((now - began).as_micros())?;
                    let mut counts = counts.borrow_mut();
                    counts.tally.calls += 1;
                    counts.latency.saturating_record(took);
                }
                Err(error) => counts.borrow_mut().tally.fail(&error),
            }
            ask(&mut link, &mut open);
        }
        link.flush().await?;
    }
}

fn encoded(dialect: Dialect, index: u32, id: u64, ask: Ask, job: &CallersJob, body: &[u8]) -> bytes::Bytes {
    dialect.call(FIRST_CALLER + index, id, ask, job.request_ids, body)
}

impl Plan {
    /// Who is asked with the call of this number; `None`: all have been.
    fn ask(self, number: u64) -> Option<Ask> {
        match self {
            Self::Capabilities { agents, groups } => {
                let (names, n) = (u64::from(groups * CAPABILITIES), u64::from(agents));
                let capability = u32::try_from(number % names).ok()?;
                let agent = u32::try_from(number % n).ok()?;
                Some(Ask { capability, agent, directed: false })
            }
            Self::EachAgentOnce { agents, groups } => {
                let agent = u32::try_from(number).ok().filter(|agent| *agent < agents)?;
                Some(Ask { capability: agent % groups * CAPABILITIES, agent, directed: true })
            }
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
        let offered: Vec<_> = asked.iter().map(|ask| (ask.agent, ask.capability, ask.directed)).collect();
        assert_eq!(offered, [(0, 0, true), (1, 3, true), (2, 0, true)]);
    }
}
