//! `GET /v1/connect`: a WebSocket for who has a token and no certificate: browsers, and agents behind what ends TLS.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use agent_reach_core::{Peer, TOKEN_PREFIX};
use agent_reach_protocol::ErrorCode;
use agent_reach_protocol::limits::CONNECT_PATH;
use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::Problem;
use super::routes::{Routes, Verb};
use crate::access::{SessionEnd, Visitor};
use crate::connection::{Connection, Encoding};
use crate::driver::Driver;
use crate::transport::listener::Room;
use crate::transport::threads::Threads;
use crate::transport::trust::Distrust;
use crate::transport::upgrade::{Refusal, choose};
use crate::transport::wire::Plain;

/// Most WebSockets of the HTTP listener.
const SOCKETS_MAX: usize = 1024;

/// What the route stands on.
#[derive(Clone)]
pub struct Connects {
    /// The hub.
    pub driver: Arc<Driver>,
    /// Where its connections live.
    pub threads: Arc<Threads>,
    /// Longest message, in bytes.
    pub max_message: usize,
}

impl Connects {
    /// Of a hub whose messages have at most so many bytes.
    #[must_use]
    pub fn new(driver: &Arc<Driver>, threads: &Arc<Threads>, max_message: usize) -> Self {
        Self { driver: Arc::clone(driver), threads: Arc::clone(threads), max_message }
    }
}

/// The route, for who is let in.
pub(super) fn routes(connects: Connects) -> Routes {
    let room = Arc::new(Semaphore::new(SOCKETS_MAX));
    let handler = async move |Extension(visitor): Extension<Visitor>, request: Request| {
        upgrade(&connects, &room, visitor, request).unwrap_or_else(IntoResponse::into_response)
    };
    Routes::new().on(Verb::Get, CONNECT_PATH, handler)
}

fn upgrade(
    connects: &Connects,
    room: &Arc<Semaphore>,
    visitor: Visitor,
    request: Request,
) -> Result<Response, Problem> {
    let (mut parts, _) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let session = parts.extensions.remove::<SessionEnd>();
    let (response, encoding) = choose(&Request::from_parts(parts, ()))
        .map_err(|Refusal(status, text)| Problem::new(status, ErrorCode::InvalidRequest, text))?;
    let Some(upgrade) = upgrade else {
        let detail = "this connection cannot become a WebSocket".to_owned();
        return Err(Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, detail));
    };
    let Ok(place) = Arc::clone(room).try_acquire_owned() else {
        let detail = format!("{SOCKETS_MAX} WebSockets are open here, which is the limit");
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, detail);
        return Err(problem.retry_after(Duration::from_secs(1)));
    };
    let own = connects.clone();
    // On the thread where it will live, once the answer has left.
    let thread = connects.threads.next().clone();
    drop(thread.spawn(async move { serve(own, upgrade, encoding, (visitor.name, session), place).await }));
    Ok(response.map(|()| Body::empty()))
}

async fn serve(
    connects: Connects,
    upgrade: OnUpgrade,
    encoding: Encoding,
    (name, session): (Arc<str>, Option<SessionEnd>),
    place: OwnedSemaphorePermit,
) {
    let Connects { driver, max_message, .. } = connects;
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "upgrade refused"),
    };
    let peer = peer_of(name);
    let id = driver.connect(peer, None);
    let wire = Plain::new(TokioIo::new(upgraded));
    let own = Connection::new(wire, Arc::clone(&driver), id, encoding, max_message);
    let mut connection = pin!(own.in_place_of(Room::of(place)));
    if let Some(session) = session {
        tokio::select! {
            () = &mut connection => return,
            // Who logs out somewhere is out everywhere. A page that has logged in again comes back.
            () = session.come() => driver.distrust(id, Distrust::Expired),
        }
    }
    connection.await;
}

/// Who has the token of a name, as the core knows peers.
pub(super) fn peer_of(name: Arc<str>) -> Peer {
    Peer { identity: format!("{TOKEN_PREFIX}{name}").into(), name }
}
