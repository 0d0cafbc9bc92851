//! Webhooks: the ends of tasks, posted to the URL that their callers named.
//!
//! The parts, from the pure to the busy: [`allowed`] says which URLs may be called at all, `address` which addresses,
//! [`signature`] signs, [`payload`] writes the body, [`Schedule`] says when to try again; [`Client`] makes one
//! delivery, and [`Worker`] makes all that are due in a [`Book`].
//!
//! A webhook makes the hub call into networks, so its callers decide as little as possible: hosts are on the
//! operator's list, https only, the address that was checked is the one connected to, no redirect is followed and
//! no proxy is used, and everything that a receiver says has a bound.

mod address;
mod book;
mod client;
mod outcome;
pub mod payload;
mod schedule;
pub mod signature;
mod target;
mod worker;

pub use book::{Book, Busy, Due, Unavailable};
pub use client::{Client, ClientError, Letter, Post};
pub use outcome::{Failure, Outcome, retry_after_ms};
pub use payload::NoResult;
pub use schedule::{DELIVERIES_MAX, RETRY_AFTER_MAX_MS, Schedule};
pub use signature::{Keys, KeysError, Secrets};
pub use target::{AllowedHosts, Host, NoHost, Refused, Target, allowed, host_of};
pub use worker::{Bounds, Clock, Worker};

#[cfg(test)]
mod tests;
