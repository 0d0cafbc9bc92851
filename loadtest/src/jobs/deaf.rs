//! A caller that asks for a lot and does not read it. When the hub ends it, another one comes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Order, Tally, answer};
use crate::client::{Connector, Endpoint};
use crate::dialect::{Ask, CAPABILITIES, Dialect, RequestIds, Want};

/// Its own buffer, in bytes: what the system takes in for it is not aimed at the hub.
const BUFFER_BYTES: u32 = 16 * 1024;
/// Between two frames that say it lives. The first that cannot be sent tells that the hub has ended it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(20);
/// Its number, for its address.
const NUMBER: u32 = 150_000;

/// What to ask for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeafJob {
    /// Where to.
    pub(crate) endpoint: Endpoint,
    /// Whose first capability is called, of the groups of agents.
    pub(crate) group: u32,
    /// Results or chunks that it asks for at once.
    pub(crate) pieces: u32,
    /// Whether all come on one stream, with credit for all of them, or each as the result of a call.
    pub(crate) stream: bool,
    /// Whether it reads after all, for comparison.
    pub(crate) reads: bool,
}

/// Runs the job until nobody gives orders any more.
///
/// # Errors
/// When the certificates cannot be read.
pub(super) async fn run(job: DeafJob, mut inbox: mpsc::Receiver<Order>) -> Result<()> {
    let connector = Connector::new(job.endpoint.clone())?;
    let connector = if job.reads { connector } else { connector.with_receive_buffer(BUFFER_BYTES) };
    let (connector, shared) = (Rc::new(connector), Rc::<RefCell<Tally>>::default());
    let mut living = JoinSet::new();
    while let Some(order) = inbox.recv().await {
        match order {
            Order::Start => {
                living.spawn_local(live_on(Rc::clone(&connector), job.clone(), Rc::clone(&shared)));
            }
            Order::Stop => living.shutdown().await,
            Order::Connect | Order::Count => {}
        }
        answer(&std::mem::take(&mut *shared.borrow_mut()))?;
    }
    Ok(())
}

async fn live_on(connector: Rc<Connector>, job: DeafJob, shared: Rc<RefCell<Tally>>) {
    for life in 0_u32.. {
        match live(&connector, &job, life).await {
            Ok(()) => shared.borrow_mut().lives += 1,
            Err(error) => {
                shared.borrow_mut().fail(&error);
                sleep(SIGN_OF_LIFE).await;
            }
        }
    }
}

/// One life, under a name of its own: one name may not register too often.
async fn live(connector: &Connector, job: &DeafJob, life: u32) -> Result<()> {
    let name = format!("deaf-{life:06}");
    let number = NUMBER + life;
    let mut link = connector.register(&name, connector.identity(&name)?, number, None).await?;
    let capability = job.group * CAPABILITIES;
    let credit = u64::from(job.pieces);
    let (calls, want) = match job.stream {
        true => (1, Want::Chunks { credit }),
        false => (job.pieces, Want::Result { directed: false }),
    };
    for id in 1..=calls {
        let ask = Ask { capability, agent: 0, want };
        link.push(&Dialect::Hub.call(number, id.into(), ask, RequestIds::None, &credit.to_be_bytes()));
    }
    if job.reads {
        link.flush().await?;
        loop {
            link.fill().await?;
            while link.pop()?.is_some() {}
        }
    }
    // How the socket notices that it was ended is of no interest.
    while link.flush().await.is_ok() {
        sleep(SIGN_OF_LIFE).await;
        link.push(&Dialect::Hub.keepalive());
    }
    Ok(())
}
