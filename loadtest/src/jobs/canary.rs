//! A pair of agents at work while a hub is attacked (`make hostile`): one call at a time, and how long each took.
//!
//! A process of its own, so that what it measures is the hub's doing and not that of whoever attacks. It writes a
//! line for every [`BATCH`] calls, with the nanoseconds of each, until stdin is closed. The first call that does not
//! come back as it was sent ends it with an error.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::time::{Instant, timeout};

use super::provide::Provider;
use crate::client::{Connector, Endpoint, Link};
use crate::dialect::{Ask, Dialect, FIRST_CALLER, Outcome, RequestIds, Told, Want, agent};

/// Calls that are told of together: so few that who waits for a number of calls hears of it soon.
const BATCH: u64 = 50;
/// The longest that a call may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is sent there and back.
const BODY: &[u8] = b"canary";

/// Where the hub is.
#[derive(Debug, Args)]
pub(crate) struct CanaryArgs {
    /// Address of the hub's agent listener
    #[arg(long)]
    hub: SocketAddr,
    /// Directory with the hub's certificate authority
    #[arg(long)]
    certs: PathBuf,
}

/// Calls until stdin is closed.
///
/// # Errors
/// When a call fails or does not come back.
pub(crate) fn run(args: &CanaryArgs) -> Result<()> {
    let endpoint = Endpoint { address: args.hub, certs: args.certs.clone(), dialect: Dialect::Hub };
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        // Nothing is said on stdin: that it ends is what counts, however it ends.
        let _end = std::io::stdin().lock().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let connector = Connector::new(endpoint)?;
        let provider = open(&connector, 0, Some(1)).await?;
        let caller = open(&connector, FIRST_CALLER, None).await?;
        tokio::select! {
            answered = answer(provider) => answered.context("the canary's provider"),
            called = sing(caller, &over) => called.context("the canary's caller"),
        }
    })
}

async fn open(connector: &Connector, number: u32, groups: Option<u32>) -> Result<Link> {
    let name = agent(number);
    connector.register(&name, connector.identity(&name)?, number, groups).await
}

async fn answer(mut link: Link) -> Result<()> {
    let mut provider = Provider::new(Dialect::Hub, 0);
    loop {
        link.fill().await?;
        provider.hear(&mut link).await?;
    }
}

async fn sing(mut link: Link, over: &AtomicBool) -> Result<()> {
    let mut line = String::new();
    for id in 1.. {
        let begun = Instant::now();
        let called = timeout(PATIENCE, call(&mut link, id)).await;
        called.with_context(|| format!("call {id} took longer than {PATIENCE:?}"))??;
        write!(line, "{} ", begun.elapsed().as_nanos())?;
        if id % BATCH == 0 {
            if over.load(Ordering::Relaxed) {
                break;
            }
            line.push('\n');
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes())?;
            out.flush()?;
            line.clear();
        }
    }
    Ok(())
}

async fn call(link: &mut Link, id: u64) -> Result<()> {
    let ask = Ask { capability: 0, agent: 0, want: Want::Result { directed: false } };
    link.push(&Dialect::Hub.call(FIRST_CALLER, id, ask, RequestIds::None, BODY));
    loop {
        let message = link.next().await?;
        match Dialect::Hub.told(&message)? {
            Told::Ended(ended, Outcome::Completed(body)) if ended == id && body == BODY => return Ok(()),
            Told::Accepted(_) | Told::Nothing => {}
            other @ (Told::Ended(..) | Told::Part(_) | Told::Chunk(..)) => bail!("call {id}: {other:?}"),
        }
    }
}
