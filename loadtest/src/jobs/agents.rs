//! Agents: registered connections that say now and then that they live, and answer calls at once.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::provide::Provider;
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Identity, Link};
use crate::dialect::agent;

/// Which agents to connect.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AgentsJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// Number of the first.
    pub(crate) first: u32,
    /// How many.
    pub(crate) count: u32,
    /// Agents of one group offer the same three capabilities.
    pub(crate) groups: u32,
    /// How many connect at a time.
    pub(crate) at_a_time: u32,
    /// Time between two UPDATEs of one agent, in milliseconds; 0: none are sent.
    pub(crate) keepalive_ms: u64,
}

type Shared = Rc<RefCell<Tally>>;

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read.
pub(super) async fn run(job: AgentsJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let tally = Shared::default();
    let mut serving = JoinSet::new();
    // Before the first order is answered: whoever gives it knows then that nothing is left to prepare.
    let numbers = job.first..job.first + job.count;
    let identity = |number| Ok((number, connector.identity(&agent(number))?));
    let mut identities = numbers.map(identity).collect::<Result<Vec<_>>>()?;
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                connect(&job, &connector, std::mem::take(&mut identities), &tally, &mut serving).await;
            }
            Order::Start | Order::Count | Order::Stop => {}
        }
        let said = {
            let mut tally = tally.borrow_mut();
            let fresh = Tally { connected: tally.connected, ..Tally::default() };
            std::mem::replace(&mut *tally, fresh)
        };
        answer(&said)?;
    }
    Ok(())
}

async fn connect(
    job: &AgentsJob,
    connector: &Arc<Connector>,
    identities: Vec<(u32, Identity)>,
    tally: &Shared,
    serving: &mut JoinSet<()>,
) {
    let mut opening = JoinSet::new();
    let mut identities = identities.into_iter();
    loop {
        while opening.len() < job.at_a_time as usize
            && let Some((number, identity)) = identities.next()
        {
            opening.spawn_local(open(Arc::clone(connector), number, identity, job.groups));
        }
        match opening.join_next().await {
            Some(Ok(Ok((number, link)))) => {
                tally.borrow_mut().connected += 1;
                let provider = Provider::new(connector.dialect(), number);
                serving.spawn_local(serve(link, provider, phase(job, number), Rc::clone(tally)));
            }
            Some(Ok(Err(error))) => tally.borrow_mut().fail(&error),
            Some(Err(error)) => tally.borrow_mut().fail(&error.into()),
            None => return,
        }
    }
}

async fn open(
    connector: Arc<Connector>,
    number: u32,
    identity: Identity,
    groups: u32,
) -> Result<(u32, Link)> {
    Ok((number, connector.register(&agent(number), identity, number, Some(groups)).await?))
}

/// The keepalive of one agent: its period, and when in it.
#[derive(Clone, Copy)]
struct Phase {
    period: Duration,
    offset: Duration,
}

/// Spreads the agents evenly over the period, however fast they connected.
fn phase(job: &AgentsJob, number: u32) -> Option<Phase> {
    let position = u64::from(number - job.first);
    let offset = job.keepalive_ms * position / u64::from(job.count.max(1));
    (job.keepalive_ms > 0).then_some(Phase {
        period: Duration::from_millis(job.keepalive_ms),
        offset: Duration::from_millis(offset),
    })
}

async fn serve(link: Link, provider: Provider, phase: Option<Phase>, tally: Shared) {
    if let Err(error) = keep(link, provider, phase, &tally).await {
        let mut tally = tally.borrow_mut();
        tally.connected -= 1;
        tally.fail(&error);
    }
}

async fn keep(mut link: Link, mut provider: Provider, phase: Option<Phase>, tally: &Shared) -> Result<()> {
    let Some(Phase { period, offset }) = phase else {
        loop {
            link.fill().await?;
            let heard = provider.hear(&mut link).await?;
            tally.borrow_mut().heard += heard;
        }
    };
    let keepalive = provider.dialect().keepalive();
    let mut clock = tokio::time::interval_at(Instant::now() + offset, period);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // Both are cancel-safe: a tick that is not taken stays due, and bytes stay in the link.
        tokio::select! {
            _ = clock.tick() => {
                link.push(&keepalive);
                link.flush().await?;
                tally.borrow_mut().keepalives += 1;
            }
            filled = link.fill() => {
                filled?;
                let heard = provider.hear(&mut link).await?;
                tally.borrow_mut().heard += heard;
            }
        }
    }
}
