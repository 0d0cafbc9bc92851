//! A hub under attack: an unrelated pair of agents that calls all the while, and what the hub holds before, during
//! and after.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part of the harness")]

mod canary;
mod line;
mod measure;
mod siege;
mod vitals;

pub(crate) use line::{Line, client_hello, drip, listen, pour, random};
pub(crate) use siege::{HAIR_TRIGGER, Siege, attacker};

use std::future::Future;
use std::time::Duration;

/// The longest that an attack may hold anything: the hub's longest patience with a peer is fifteen seconds.
pub(crate) const SETTLE: Duration = Duration::from_secs(60);

/// Waits for `future`, at most [`SETTLE`].
///
/// # Panics
/// With `what` was waited for, when it does not come.
pub(crate) async fn bounded<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(SETTLE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {SETTLE:?} in vain for {what}"),
    }
}
