//! Peers as nobody wants them: agents that come and go all the time, and readers that do not read.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::provide::Provider;
use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Ask, Dialect, RequestIds, Want, agent};

/// Number of the first agent that comes and goes.
const FIRST: u32 = 100_000;
/// How many names they take turns with.
const PLACES: u32 = 49_000;
/// Shortest and longest stay, in milliseconds.
const STAY_MS: (u64, u64) = (50, 500);
/// Who does not read gets so much to read that no buffer on the way holds it.
const SLOW_BODY_BYTES: usize = 64 * 1024;
/// Its own buffer, in bytes.
const SLOW_BUFFER_BYTES: u32 = 16 * 1024;
/// Between two of its lives.
const SLOW_PAUSE: Duration = Duration::from_millis(500);

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct UnsteadyJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// How many agents come and go at a time, with the capabilities of the second of two groups.
    pub(crate) fleeting: u32,
    /// How many callers do not read.
    pub(crate) slow: u32,
}

type Shared = Rc<RefCell<Tally>>;

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read.
pub(super) async fn run(job: UnsteadyJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Arc::new(Connector::new(job.endpoint.clone())?);
    let small = Arc::new(Connector::new(job.endpoint.clone())?.with_receive_buffer(SLOW_BUFFER_BYTES));
    let shared = Shared::default();
    let mut working = JoinSet::new();
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Start => {
                for index in 0..job.fleeting {
                    let (connector, shared) = (Arc::clone(&connector), Rc::clone(&shared));
                    working.spawn_local(come_and_go(connector, index, job.fleeting, shared));
                }
                for index in 0..job.slow {
                    let (connector, shared) = (Arc::clone(&small), Rc::clone(&shared));
                    working.spawn_local(never_read(connector, index, job.slow, shared));
                }
            }
            Order::Stop => working.shutdown().await,
            Order::Connect | Order::Count => {}
        }
        answer(&std::mem::take(&mut *shared.borrow_mut()))?;
    }
    Ok(())
}

/// Lives one life after the other, each as another agent: one name may not register too often.
async fn come_and_go(connector: Arc<Connector>, index: u32, step: u32, shared: Shared) {
    for life in 0_u64.. {
        // Odd: the second of two groups.
        let place = (life * u64::from(step) + u64::from(index)) % u64::from(PLACES);
        let number = FIRST + u32::try_from(place).unwrap_or_default() * 2 + 1;
        let (shortest, longest) = STAY_MS;
        let stay = shortest + (life * 37 + u64::from(index) * 101) % (longest - shortest);
        match live(&connector, number, Duration::from_millis(stay), life % 2 == 0).await {
            Ok(()) => shared.borrow_mut().lives += 1,
            Err(error) => {
                shared.borrow_mut().fail(&error);
                sleep(SLOW_PAUSE).await;
            }
        }
    }
}

async fn live(connector: &Connector, number: u32, stay: Duration, peaceful: bool) -> Result<()> {
    let (mut link, dialect) = (open(connector, &agent(number), number, Some(2)).await?, connector.dialect());
    let mut provider = Provider::new(dialect, number);
    let end = Instant::now() + stay;
    while let Ok(filled) = timeout_at(end, link.fill()).await {
        filled?;
        provider.hear(&mut link).await?;
    }
    if let Some(goodbye) = dialect.goodbye().filter(|_| peaceful) {
        link.push(&goodbye);
        link.flush().await?;
    }
    Ok(())
}

/// Asks and asks until the hub has had enough, and comes again.
async fn never_read(connector: Arc<Connector>, index: u32, step: u32, shared: Shared) {
    for life in 0.. {
        let number = index + life * step;
        // The hub ends it, and counts that. How the socket notices is of no interest.
        if let Err(error) = flood(&connector, number).await {
            shared.borrow_mut().fail(&error);
        }
        sleep(SLOW_PAUSE).await;
    }
}

async fn flood(connector: &Connector, number: u32) -> Result<()> {
    let mut link = open(connector, &format!("slow-{number:06}"), number, None).await?;
    let body = vec![0; SLOW_BODY_BYTES];
    let ask = Ask { capability: 0, agent: 0, want: Want::Result { directed: false } };
    let mut id = 0;
    loop {
        id += 1;
        link.push(&Dialect::Hub.call(number, id, ask, RequestIds::None, &body));
        if link.flush().await.is_err() {
            return Ok(());
        }
    }
}

async fn open(connector: &Connector, name: &str, number: u32, groups: Option<u32>) -> Result<Link> {
    connector.register(name, connector.identity(name)?, number, groups).await
}
