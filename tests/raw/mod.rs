//! A harness for black-box tests: the real binary, real mTLS, and a WebSocket client that owns every byte it
//! sends. It knows the protocol only from its contract and shares no code with the hub, so that a mistake in the
//! hub's codec cannot hide behind the same mistake here.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else comes fails the test, and says what it was"
)]
#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test file uses its own part of the harness"
)]

#[macro_use]
pub(crate) mod value;
pub(crate) mod certs;
pub(crate) mod client;
pub(crate) mod dial;
pub(crate) mod frame;
pub(crate) mod http;
pub(crate) mod hub;
pub(crate) mod peer;

pub(crate) use certs::Identity;
pub(crate) use client::{Incoming, RawClient};
pub(crate) use dial::{Dial, Refused};
pub(crate) use frame::{Format, frame};
pub(crate) use hub::Hub;
pub(crate) use value::{Envelope, json_of, mentions, merged, pack, value_of};

use std::future::Future;
use std::time::Duration;

/// The longest that a test waits for anything that the hub has promised.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for `future`, at most [`PATIENCE`].
///
/// # Panics
/// With `what` was waited for, when it does not come.
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}

/// Close codes after which a client reconnects.
pub(crate) const RECONNECT: std::ops::RangeInclusive<u16> = 4000..=4499;
/// Close codes after which a client does not reconnect.
pub(crate) const STAY_AWAY: std::ops::RangeInclusive<u16> = 4500..=4999;

/// The numbers of the envelope kinds.
pub(crate) mod kind {
    pub(crate) const HELLO: u64 = 1;
    pub(crate) const WELCOME: u64 = 2;
    pub(crate) const UPDATE: u64 = 3;
    pub(crate) const GOODBYE: u64 = 4;
    pub(crate) const ERROR: u64 = 5;
    pub(crate) const CALL: u64 = 10;
    pub(crate) const ACCEPT: u64 = 11;
    pub(crate) const CHUNK: u64 = 12;
    pub(crate) const CREDIT: u64 = 13;
    pub(crate) const RESULT: u64 = 14;
    pub(crate) const CANCEL: u64 = 15;
    pub(crate) const RECEIPT: u64 = 16;
}
