//! A caller that asks at its own pace, however long the answers take.

use std::collections::HashMap;
use std::time::Duration;

use agent_reach_protocol::Policy;
use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::callers::{self, LATENCY_MAX_NS};
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Dialect, FIRST_CALLER, Outcome, Told, call_by};

/// Longest that is waited for all calls to end: more than any deadline that the hub keeps by default.
const PATIENCE: Duration = Duration::from_secs(90);

/// What to call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SteadyJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// Who is chosen.
    pub(crate) policy: Choice,
    /// How many calls.
    pub(crate) calls: u32,
    /// How many of them a second, on average: they come at random, as those of many callers do.
    pub(crate) rate: f64,
    /// Bytes of each body.
    pub(crate) body: usize,
}

/// A policy that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// The one with the most free room.
    LeastLoaded,
    /// In turn.
    RoundRobin,
}

impl Choice {
    /// As it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LeastLoaded => "least_loaded",
            Self::RoundRobin => "round_robin",
        }
    }

    const fn policy(self) -> Policy {
        match self {
            Self::LeastLoaded => Policy::LeastLoaded,
            Self::RoundRobin => Policy::RoundRobin,
        }
    }
}

/// Runs the job until nobody gives orders any more. `Stop` is answered when all calls have ended.
///
/// # Errors
/// When the certificates cannot be read, or the caller cannot connect or loses its connection.
pub(super) async fn run(job: SteadyJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Connector::new(job.endpoint.clone())?;
    let mut link = None;
    while let Some(order) = inbox.recv().await {
        let tally = match order {
            Order::Connect => {
                link = Some(callers::open(&connector, 0).await?.1);
                Tally::default()
            }
            Order::Stop => call(link.take().context("no connection")?, &job).await?,
            Order::Start | Order::Count => Tally::default(),
        };
        answer(&tally)?;
    }
    Ok(())
}

async fn call(link: Link, job: &SteadyJob) -> Result<Tally> {
    let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)?;
    let open = HashMap::new();
    let mut caller = Caller { link, open, latency, tally: Tally::default() };
    let mut body = (u64::from(FIRST_CALLER) << 32).to_be_bytes().to_vec();
    body.resize(job.body.max(body.len()), 0);
    let mut arrivals = Arrivals::new(job.rate);
    let begin = Instant::now();
    for id in 1..=job.calls {
        let due = begin + arrivals.next();
        caller.wait_until(due).await?;
        if let Some(number) = body.get_mut(4..8) {
            number.copy_from_slice(&id.to_be_bytes());
        }
        caller.link.push(&call_by(id.into(), Some(job.policy.policy()), &body));
        caller.link.flush().await?;
        // Since when it was due: that the pace was not kept is no excuse.
        caller.open.insert(id.into(), due);
    }
    let end = Instant::now() + PATIENCE;
    while !caller.open.is_empty() && Instant::now() < end {
        if let Ok(filled) = timeout_at(end, caller.link.fill()).await {
            filled?;
            caller.take_all()?;
        }
    }
    let at = |quantile| caller.latency.value_at_quantile(quantile);
    let latency_ns = [at(0.5), at(0.99), at(0.999)];
    Ok(Tally { latency_ns, ..caller.tally })
}

struct Caller {
    link: Link,
    /// When each call was due that has not ended.
    open: HashMap<u64, Instant>,
    latency: Histogram<u64>,
    tally: Tally,
}

impl Caller {
    /// Takes what comes until then.
    async fn wait_until(&mut self, due: Instant) -> Result<()> {
        loop {
            tokio::select! {
                // Cancel-safe: bytes stay in the link.
                filled = self.link.fill() => filled?,
                () = sleep_until(due) => return Ok(()),
            }
            self.take_all()?;
        }
    }

    fn take_all(&mut self) -> Result<()> {
        let now = Instant::now();
        while let Some(message) = self.link.pop()? {
            let told = Dialect::Hub.told(&message)?;
            match told {
                Told::Ended(id, outcome) => {
                    let due = self.open.remove(&id).context("an answer to no open call")?;
                    match outcome {
                        Outcome::Completed(_) => {
                            self.tally.calls += 1;
                            self.latency.saturating_record(u64::try_from((now - due).as_nanos())?);
                        }
                        Outcome::Summary(_) | Outcome::Failed(_) => {
                            self.tally.fail(&anyhow::anyhow!("a call ended as {outcome:?}"));
                        }
                    }
                }
                Told::Chunk(..) | Told::Part(_) => bail!("{told:?}"),
                Told::Accepted(_) | Told::Nothing => {}
            }
        }
        Ok(())
    }
}

/// When calls of many independent callers come: the same in every run.
pub(super) struct Arrivals {
    state: u64,
    mean: f64,
    at: f64,
}

impl Arrivals {
    fn new(rate: f64) -> Self {
        Self::of(0, rate)
    }

    /// Those of one of several groups of callers that know nothing of each other.
    pub(super) fn of(group: u32, rate: f64) -> Self {
        let state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * u64::from(group) + 1);
        Self { state, mean: 1.0 / rate, at: 0.0 }
    }

    /// Time of the next, since the beginning.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are left")]
    pub(super) fn next(&mut self) -> Duration {
        // Xorshift.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let share = ((self.state >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        self.at -= share.ln() * self.mean;
        Duration::from_secs_f64(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_at_random_and_on_average_at_the_rate() {
        let mut arrivals = Arrivals::new(100.0);
        let times: Vec<f64> = (0..10_000).map(|_| arrivals.next().as_secs_f64()).collect();
        let last = times.last().copied().unwrap_or_default();
        assert!((95.0..105.0).contains(&last), "{last}");
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        // Of gaps that know nothing of each other the share e^-1 is longer than the mean.
        let long = gaps.filter(|gap| *gap > 0.01).count();
        assert!((3500..3860).contains(&long), "{long}");
    }
}
