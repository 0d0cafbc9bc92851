//! Callers that do everything at once and check that every number they send comes back exactly once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::callers::{self, LATENCY_MAX_NS};
use super::ledger::{Due, Ledger};
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Ask, CAPABILITIES, Dialect, FIRST_CALLER, RequestIds, Told, Want};

/// Longest that is waited for what was sent to come back: more than any deadline that the hub keeps by default.
const PATIENCE: Duration = Duration::from_secs(90);
/// Chunks of a stream.
const CHUNKS: u64 = 40;
/// Its window.
const CREDIT: u64 = 8;
/// Of so many calls one is a notice to all, two are streams, four go to agents that come and go, and the rest
/// are plain.
const ROUND: u64 = 32;

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MixedJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// How many agents stay, all with the first three capabilities.
    pub(crate) agents: u32,
    /// How many connections call.
    pub(crate) callers: u32,
    /// Calls in flight of each.
    pub(crate) window: u32,
    /// Bytes of each body.
    pub(crate) body: usize,
}

struct Shared {
    tally: RefCell<Tally>,
    latency: RefCell<Histogram<u64>>,
    stopping: Cell<bool>,
    ledgers: RefCell<Vec<Rc<RefCell<Ledger>>>>,
}

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read, or a caller cannot connect.
pub(super) async fn run(job: MixedJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let latency = RefCell::new(Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?);
    let (tally, ledgers) = Default::default();
    let shared = Rc::new(Shared { tally, latency, stopping: Cell::new(false), ledgers });
    let (mut idle, mut calling) = (Vec::new(), JoinSet::new());
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                for index in 0..job.callers {
                    idle.push(callers::open(&connector, index).await?);
                    shared.tally.borrow_mut().connected += 1;
                }
            }
            Order::Start => {
                for (index, link) in idle.drain(..) {
                    let ledger = Rc::new(RefCell::new(Ledger::new(FIRST_CALLER + index)));
                    shared.ledgers.borrow_mut().push(Rc::clone(&ledger));
                    calling.spawn_local(work(index, link, job.clone(), ledger, Rc::clone(&shared)));
                }
            }
            Order::Count => {}
            Order::Stop => {
                shared.stopping.set(true);
                // What has not come back by then is missing, and the ledgers say so.
                let _in_time =
                    timeout(PATIENCE, async { while calling.join_next().await.is_some() {} }).await;
            }
        }
        answer(&count(&shared))?;
    }
    Ok(())
}

fn count(shared: &Shared) -> Tally {
    let mut latency = shared.latency.borrow_mut();
    let at = |quantile| latency.value_at_quantile(quantile);
    let latency_ns = [at(0.5), at(0.99), at(0.999)];
    latency.reset();
    let mut tally = shared.tally.borrow_mut();
    let fresh = Tally { connected: tally.connected, ..Tally::default() };
    let mut said = Tally { latency_ns, ..std::mem::replace(&mut *tally, fresh) };
    shared.ledgers.borrow().iter().for_each(|ledger| said.account += ledger.borrow().close());
    said
}

async fn work(index: u32, link: Link, job: MixedJob, ledger: Rc<RefCell<Ledger>>, shared: Rc<Shared>) {
    let caller = Caller { link, index, next_id: 1, job, ledger, shared: Rc::clone(&shared) };
    if let Err(error) = caller.call().await {
        let mut tally = shared.tally.borrow_mut();
        tally.connected -= 1;
        tally.fail(&error);
    }
}

struct Caller {
    link: Link,
    index: u32,
    next_id: u64,
    job: MixedJob,
    ledger: Rc<RefCell<Ledger>>,
    shared: Rc<Shared>,
}

impl Caller {
    async fn call(mut self) -> Result<()> {
        self.ask(self.job.window);
        self.link.flush().await?;
        loop {
            if self.shared.stopping.get() && self.ledger.borrow().is_settled() {
                // Longer than others need, so that an end which comes twice still finds its reader.
                return self.listen().await;
            }
            self.link.fill().await?;
            let ended = self.take_all()?;
            if !self.shared.stopping.get() {
                self.ask(ended);
            }
            self.link.flush().await?;
        }
    }

    async fn listen(&mut self) -> Result<()> {
        const LONGER: Duration = Duration::from_millis(200);
        let end = Instant::now() + LONGER;
        while let Ok(filled) = tokio::time::timeout_at(end, self.link.fill()).await {
            filled?;
            self.take_all()?;
        }
        Ok(())
    }

    fn ask(&mut self, count: u32) {
        let now = Instant::now();
        for _ in 0..count {
            let id = self.next_id;
            self.next_id += 1;
            let (due, ask) = self.plan(id);
            let head = self.ledger.borrow_mut().send(id, due, now);
            let mut body = head.to_vec();
            body.resize(self.job.body.max(head.len()), 0);
            let number = FIRST_CALLER + self.index;
            self.link.push(&Dialect::Hub.call(number, id, ask, RequestIds::Sdk, &body));
        }
    }

    /// Callers begin at different places of the round.
    fn plan(&self, id: u64) -> (Due, Ask) {
        let turn = id + u64::from(self.index);
        let names = u64::from(CAPABILITIES);
        let capability = u32::try_from(turn % names).unwrap_or_default();
        let ask = |want| Ask { capability, agent: 0, want };
        let plain = ask(Want::Result { directed: false });
        match turn % ROUND {
            0 => (Due::Parts(u64::from(self.job.agents)), ask(Want::Notice)),
            8 | 24 => (Due::Chunks(CHUNKS), ask(Want::Chunks { credit: CREDIT })),
            // What the agents that come and go offer stands right after what the others do.
            4 | 12 | 20 | 28 => (Due::BodyOrLoss, Ask { capability: capability + CAPABILITIES, ..plain }),
            _ => (Due::Body, plain),
        }
    }

    /// Takes all that has come. Says how many calls have ended.
    fn take_all(&mut self) -> Result<u32> {
        let now = Instant::now();
        let mut ended = 0;
        while let Some(message) = self.link.pop()? {
            let mut ledger = self.ledger.borrow_mut();
            match Dialect::Hub.told(&message)? {
                Told::Chunk(id, seq, body) => {
                    self.shared.tally.borrow_mut().chunks += 1;
                    let come = ledger.chunk(id, seq, &body);
                    if come.is_some_and(|come| come % CREDIT.div_ceil(2) == 0) {
                        let number = FIRST_CALLER + self.index;
                        self.link.push(&Dialect::Hub.credit(number, id, 0, CREDIT.div_ceil(2)));
                    }
                }
                Told::Part(id) => ledger.part(id),
                Told::Ended(id, outcome) => {
                    self.shared.tally.borrow_mut().calls += 1;
                    ended += 1;
                    if let Some((began, true)) = ledger.end(id, &outcome) {
                        let took = u64::try_from((now - began).as_nanos()).context("a very long call")?;
                        self.shared.latency.borrow_mut().saturating_record(took);
                    }
                }
                Told::Accepted(_) | Told::Nothing => {}
            }
        }
        Ok(ended)
    }
}
