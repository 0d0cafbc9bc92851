//! `GET /healthz`, `GET /readyz` and `GET /metrics`.

use agent_reach_protocol::ErrorCode;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::{Problem, with_problems};

/// Where the process says that it answers.
pub(super) const HEALTH: &str = "/healthz";
/// Where the hub says that it takes its work.
pub(super) const READY: &str = "/readyz";

/// Health for whoever supervises the hub. `/healthz` is 200 `ok` while the process answers at all; `/readyz`
/// is 200 `ready`, or 503 and the word that `unready` gives: `draining`, or what else keeps the hub from its work.
///
/// They are two since a hub that drains is well: a supervisor must send it no new clients, and must not
/// restart it.
pub fn health_router<R>(unready: R) -> Router
where
    R: Fn() -> Option<&'static str> + Clone + Send + Sync + 'static,
{
    let healthz = async || text(StatusCode::OK, "text/plain; charset=utf-8", "ok".into());
    let readyz = async move || {
        let (status, word) = match unready() {
            None => (StatusCode::OK, "ready"),
            Some(word) => (StatusCode::SERVICE_UNAVAILABLE, word),
        };
        text(status, "text/plain; charset=utf-8", word.into())
    };
    Router::new().route(HEALTH, get(healthz)).route(READY, get(readyz))
}

/// The whole of the metrics listener: `/metrics` in Prometheus' text format, problem documents elsewhere.
///
/// `scrape` runs on a thread for blocking work: it may wait for the core, and reads `/proc`.
pub fn metrics_router<S>(scrape: S) -> Router
where
    S: Fn() -> String + Clone + Send + Sync + 'static,
{
    let metrics = async move || match tokio::task::spawn_blocking(scrape).await {
        Ok(page) => text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page),
        // It panicked, or the runtime is ending.
        Err(_) => {
            let detail = "the figures could not be read".to_owned();
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal, detail).into_response()
        }
    };
    with_problems(Router::new().route("/metrics", get(metrics)))
}

/// An answer of the moment, which no proxy may keep.
fn text(status: StatusCode, media: &'static str, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, media), (header::CACHE_CONTROL, "no-store")], body).into_response()
}
