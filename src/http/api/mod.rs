//! The API under `/v1`: calls, tasks and what the hub knows, for who has a token or a session.
//!
//! Each request is a guest of the core for as long as it takes ([`crate::driver::Guest`]), so that rights, request ids,
//! bounds, traces and the audit are those of every caller. What is JSON here is what it is on the JSON subprotocol.

mod asking;
mod call;
mod options;
mod reading;
mod status;
mod stream;
mod visit;

pub(super) use options::{OPTIONS, Takes};

use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Problem;
use super::connect::peer_of;
use super::routes::{Routes, Verb};
use crate::access::Visitor;
use crate::driver::{Driver, Guest};
use visit::Visit;

/// Most requests that are under way at one time.
const CALLS_MAX: usize = 512;
/// How many of them may be streams.
const STREAMS_MAX: usize = 256;
/// Chunks that the provider of a stream may be ahead, where all of them are small beside the outbound queue.
const WINDOW: usize = 16;
/// What bodies are counted in, in bytes.
const BODY_UNIT: usize = 1024;

/// What a hub's settings are to its API.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Longest message, and longest body of a request. Bytes.
    pub max_message: usize,
    /// Most that waits for one caller before it is too slow. Bytes.
    pub outbound_bytes: usize,
    /// Most bytes of bodies that are on their way in at one time.
    pub queue_bytes: usize,
    /// How long a body may take to come.
    pub body_time: Duration,
    /// How long a call with a key of its own waits for a client that went away.
    pub resume: Duration,
}

/// What the routes stand on.
#[derive(Clone)]
pub struct Api {
    driver: Arc<Driver>,
    bounds: Bounds,
    calls: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

impl Api {
    /// Of this hub.
    #[must_use]
    pub fn new(driver: &Arc<Driver>, bounds: Bounds) -> Self {
        let bodies = (bounds.queue_bytes / BODY_UNIT).min(Semaphore::MAX_PERMITS);
        Self {
            driver: Arc::clone(driver),
            bounds,
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            bodies: Arc::new(Semaphore::new(bodies)),
        }
    }

    /// Lets one request in. `keeps`: its call waits for a client that goes away.
    fn visit(&self, visitor: &Visitor, keeps: bool) -> Result<Visit, Problem> {
        let place = place_among(&self.calls, CALLS_MAX, "requests")?;
        let guest = Guest::new(&self.driver, peer_of(Arc::clone(&visitor.name)));
        Ok(Visit::new(guest, place, keeps.then_some(self.bounds.resume)))
    }

    fn stream_place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        place_among(&self.streams, STREAMS_MAX, "streams")
    }

    /// How many chunks a provider may be ahead: no more than fit beside a result into what may wait for a caller, so that a
    /// client that does not read stops its provider, and is not cut off for being slow.
    fn window(&self) -> u64 {
        let fit = (self.bounds.outbound_bytes / self.bounds.max_message.max(1)).saturating_sub(1);
        fit.clamp(1, WINDOW) as u64
    }
}

/// A place in a bounded number of them.
fn place_among(places: &Arc<Semaphore>, most: usize, what: &str) -> Result<OwnedSemaphorePermit, Problem> {
    Arc::clone(places).try_acquire_owned().map_err(|_| {
        let detail = format!("{most} {what} are under way, which is the limit");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, detail);
        problem.retry_after(Duration::from_secs(1))
    })
}

/// The routes, for who is let in.
pub(super) fn routes(api: &Api) -> Routes {
    let [calling, agents, capabilities, task, cancelling] = [api, api, api, api, api].map(Api::clone);
    Routes::new()
        .on(Verb::Post, "/v1/call/{capability}", move |path, visitor, request| {
            call::call(calling, path, visitor, request)
        })
        .on(Verb::Get, "/v1/agents", move |visitor, uri| reading::agents(agents, visitor, uri))
        .on(Verb::Get, "/v1/capabilities", move |visitor, uri| {
            reading::capabilities(capabilities, visitor, uri)
        })
        .on(Verb::Get, "/v1/tasks/{task_id}", move |path, visitor| reading::task(task, path, visitor))
        .on(Verb::Delete, "/v1/tasks/{task_id}", move |path, visitor| {
            reading::cancel_task(cancelling, path, visitor)
        })
}
