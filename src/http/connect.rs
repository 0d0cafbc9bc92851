//! `GET /v1/connect`: a WebSocket for who has a token and no certificate: browsers, and agents behind what ends TLS.

use std::sync::Arc;

use agent_reach_core::{Peer, TOKEN_PREFIX};
use agent_reach_protocol::ErrorCode;
use agent_reach_protocol::limits::CONNECT_PATH;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::debug;

use super::{Problem, origin_is_own};
use crate::connection::{Connection, Encoding};
use crate::driver::Driver;
use crate::telemetry::metrics::Metrics;
use crate::tokens::Tokens;
use crate::transport::listener::Room;
use crate::transport::threads::Threads;
use crate::transport::upgrade::{Refusal, choose};
use crate::transport::wire::Plain;

/// Most WebSockets of the HTTP listener.
const SOCKETS_MAX: usize = 1024;
/// Most tokens that are checked at one time. Each takes tens of milliseconds of a processor and 19 MiB: a flood of wrong
/// ones must not take more than that from everybody else.
const CHECKS_MAX: usize = 2;

/// What the route stands on.
#[derive(Clone)]
pub struct Connects {
    /// The hub.
    pub driver: Arc<Driver>,
    /// Where its connections live.
    pub threads: Arc<Threads>,
    /// The tokens that count now.
    pub tokens: watch::Receiver<Arc<Tokens>>,
    /// Who counts wrong tokens.
    pub metrics: Arc<Metrics>,
    /// Longest message, in bytes.
    pub max_message: usize,
}

/// The route. `origins`: whose pages may connect beside this listener's own.
pub fn connect_router(connects: Connects, origins: &[String]) -> Router {
    let origins: Arc<[String]> = origins.into();
    let room = Arc::new(Semaphore::new(SOCKETS_MAX));
    let checks = Arc::new(Semaphore::new(CHECKS_MAX));
    let handler = async move |request: Request| {
        if !origin_is_own(request.headers(), &origins) {
            let detail =
                "pages of that origin may not connect; add it to http.allowed_origins if they should";
            let (status, code) = (StatusCode::FORBIDDEN, ErrorCode::Unauthorized);
            return Problem::new(status, code, detail.to_owned()).into_response();
        }
        let upgraded = upgrade(&connects, &room, &checks, request).await;
        upgraded.unwrap_or_else(IntoResponse::into_response)
    };
    Router::new().route(CONNECT_PATH, get(handler))
}

async fn upgrade(
    connects: &Connects,
    room: &Arc<Semaphore>,
    checks: &Semaphore,
    request: Request,
) -> Result<Response, Problem> {
    let name = authenticate(connects, checks, request.headers()).await?;
    let (mut parts, _) = request.into_parts();
    let upgrade = parts.extensions.remove::<OnUpgrade>();
    let (response, encoding) = choose(&Request::from_parts(parts, ()))
        .map_err(|Refusal(status, text)| Problem::new(status, ErrorCode::InvalidRequest, text))?;
    let Some(upgrade) = upgrade else {
        let detail = "this connection cannot become a WebSocket".to_owned();
        return Err(Problem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest, detail));
    };
    let Ok(place) = Arc::clone(room).try_acquire_owned() else {
        let detail = format!("{SOCKETS_MAX} WebSockets are open here, which is the limit");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, detail));
    };
    let own = connects.clone();
    // On the thread where it will live, once the answer has left.
    let thread = connects.threads.next().clone();
    drop(thread.spawn(async move { serve(own, upgrade, encoding, name, place).await }));
    Ok(response.map(|()| Body::empty()))
}

/// The name of who shows a token.
async fn authenticate(
    connects: &Connects,
    checks: &Semaphore,
    headers: &HeaderMap,
) -> Result<String, Problem> {
    let Some(token) = bearer(headers).map(str::to_owned) else {
        return Err(no_token("this needs a token: Authorization: Bearer TOKEN"));
    };
    let Ok(_permit) = checks.acquire().await else {
        return Err(no_token("the hub is ending"));
    };
    let tokens = Arc::clone(&connects.tokens.borrow());
    let checked = tokio::task::spawn_blocking(move || tokens.verify(&token).map(str::to_owned)).await;
    match checked {
        Ok(Some(name)) => Ok(name),
        Ok(None) | Err(_) => {
            connects.metrics.auth_failure("token");
            Err(no_token("the token is not one of this hub's"))
        }
    }
}

fn no_token(detail: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, ErrorCode::Unauthorized, detail.to_owned())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok())?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

async fn serve(
    connects: Connects,
    upgrade: OnUpgrade,
    encoding: Encoding,
    name: String,
    place: OwnedSemaphorePermit,
) {
    let Connects { driver, max_message, .. } = connects;
    let upgraded = match upgrade.await {
        Ok(upgraded) => upgraded,
        Err(error) => return debug!(%error, "upgrade refused"),
    };
    let peer = Peer { identity: format!("{TOKEN_PREFIX}{name}").into(), name: name.into() };
    let id = driver.connect(peer, None);
    let wire = Plain::new(TokioIo::new(upgraded));
    Connection::new(wire, driver, id, encoding, max_message).in_place_of(Room::of(place)).await;
}
