//! Callers that ask for more than anybody can take at once, and wait.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Buf;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::callers::{self, LATENCY_MAX_NS};
use super::slots::HEAD_BYTES;
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Dialect, FIRST_CALLER, Outcome, Told, call_by};
use crate::process::now_ns;

/// Longest that is waited for all calls to end: more than any deadline that the hub keeps by default.
const PATIENCE: Duration = Duration::from_secs(90);

/// What to call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WaitersJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// How many connections call.
    pub(crate) callers: u32,
    /// Calls of each.
    pub(crate) calls: u32,
    /// Calls in flight of each.
    pub(crate) in_flight: u32,
    /// Bytes of each body.
    pub(crate) body: usize,
}

/// How calls waited.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waited {
    /// Median, 99th and 99.9th percentile of the time from when a call could have had its slot to its ACCEPT, in
    /// nanoseconds.
    pub(crate) after_slot_ns: [u64; 3],
    /// The same of the time from the CALL to its ACCEPT.
    pub(crate) to_accept_ns: [u64; 3],
    /// When the last call had left, on the machine's clock; 0 before.
    pub(crate) sent_at_ns: u64,
}

struct Counts {
    tally: Tally,
    after_slot: Histogram<u64>,
    to_accept: Histogram<u64>,
}

type Shared = Rc<RefCell<Counts>>;

/// Runs the job until nobody gives orders any more. `Stop` is answered when all calls have ended.
///
/// # Errors
/// When the certificates cannot be read, or a caller cannot connect.
pub(super) async fn run(job: WaitersJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
    let counts = Counts { tally: Tally::default(), after_slot: histogram()?, to_accept: histogram()? };
    let counts = Rc::new(RefCell::new(counts));
    let (mut idle, mut calling) = (Vec::new(), JoinSet::new());
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Connect => {
                for index in 0..job.callers {
                    idle.push(callers::open(&connector, index).await?);
                }
            }
            Order::Start => {
                for (index, link) in idle.drain(..) {
                    calling.spawn_local(work(index, link, job.clone(), Rc::clone(&counts)));
                }
            }
            Order::Count => {}
            Order::Stop => {
                // What has not ended by then is missing, and the counts say so.
                let _in_time =
                    timeout(PATIENCE, async { while calling.join_next().await.is_some() {} }).await;
            }
        }
        answer(&count(&mut counts.borrow_mut()))?;
    }
    Ok(())
}

fn count(counts: &mut Counts) -> Tally {
    let of = |histogram: &mut Histogram<u64>| {
        let said = [0.5, 0.99, 0.999].map(|quantile| histogram.value_at_quantile(quantile));
        histogram.reset();
        said
    };
    let mut said = std::mem::take(&mut counts.tally);
    said.waited.after_slot_ns = of(&mut counts.after_slot);
    said.waited.to_accept_ns = of(&mut counts.to_accept);
    said
}

async fn work(index: u32, link: Link, job: WaitersJob, counts: Shared) {
    let open = HashMap::new();
    let caller = Caller { link, index, asked: 0, all_sent: false, open, job, counts: Rc::clone(&counts) };
    if let Err(error) = caller.call().await {
        counts.borrow_mut().tally.fail(&error);
    }
}

/// A call that has not ended.
struct Open {
    sent_at: u64,
    accepted_at: Option<u64>,
}

struct Caller {
    link: Link,
    index: u32,
    /// How many calls were sent: the number of the last.
    asked: u32,
    all_sent: bool,
    open: HashMap<u64, Open>,
    job: WaitersJob,
    counts: Shared,
}

impl Caller {
    async fn call(mut self) -> Result<()> {
        self.ask(self.job.in_flight)?;
        self.link.flush().await?;
        self.sent()?;
        while !self.open.is_empty() {
            self.link.fill().await?;
            let now = now_ns()?;
            let mut ended = 0;
            while let Some(message) = self.link.pop()? {
                ended += u32::from(self.take(&Dialect::Hub.told(&message)?, now)?);
            }
            self.ask(ended)?;
            self.link.flush().await?;
            self.sent()?;
        }
        Ok(())
    }

    fn ask(&mut self, count: u32) -> Result<()> {
        let now = now_ns()?;
        for _ in 0..count.min(self.job.calls - self.asked) {
            self.asked += 1;
            let id = u64::from(self.asked);
            let mut body = self.head(id).to_vec();
            body.resize(self.job.body.max(body.len()), 0);
            self.link.push(&call_by(id, None, &body));
            self.open.insert(id, Open { sent_at: now, accepted_at: None });
        }
        Ok(())
    }

    /// Notes when the last call left.
    fn sent(&mut self) -> Result<()> {
        if self.asked == self.job.calls && !self.all_sent {
            self.all_sent = true;
            self.counts.borrow_mut().tally.waited.sent_at_ns = now_ns()?;
        }
        Ok(())
    }

    /// Whether a call has ended.
    fn take(&mut self, told: &Told, now: u64) -> Result<bool> {
        match told {
            Told::Accepted(id) => {
                let open = self.open.get_mut(id).context("ACCEPT of no open call")?;
                if open.accepted_at.replace(now).is_some() {
                    bail!("call {id} was accepted twice");
                }
                Ok(false)
            }
            Told::Ended(id, outcome) => {
                let open = self.open.remove(id).context("an answer to no open call")?;
                let ended = self.end(*id, &open, outcome);
                let mut counts = self.counts.borrow_mut();
                match ended {
                    Ok([after_slot, to_accept]) => {
                        counts.tally.calls += 1;
                        counts.after_slot.saturating_record(after_slot);
                        counts.to_accept.saturating_record(to_accept);
                    }
                    Err(error) => counts.tally.fail(&error),
                }
                Ok(true)
            }
            Told::Chunk(..) | Told::Part(_) => bail!("{told:?}"),
            Told::Nothing => Ok(false),
        }
    }

    /// How long a call waited: since it could have had its slot, and since it was sent.
    fn end(&self, id: u64, open: &Open, outcome: &Outcome) -> Result<[u64; 2]> {
        let mut body = match outcome {
            Outcome::Completed(body) => body.clone(),
            Outcome::Summary(_) => bail!("call {id} ended as a fan-out"),
            Outcome::Failed(code) => bail!("a call failed: {code}"),
        };
        let accepted_at = open.accepted_at.context("a result without ACCEPT")?;
        if body.get(..HEAD_BYTES) != Some(&self.head(id)[..]) {
            bail!("call {id} has the result of another");
        }
        body.advance(HEAD_BYTES);
        let slot_free_at = body.try_get_u64().context("a result that does not say when its slot was free")?;
        let could_at = slot_free_at.max(open.sent_at);
        Ok([accepted_at.saturating_sub(could_at), accepted_at.saturating_sub(open.sent_at)])
    }

    fn head(&self, id: u64) -> [u8; HEAD_BYTES] {
        (u64::from(FIRST_CALLER + self.index) << 32 | id).to_be_bytes()
    }
}
