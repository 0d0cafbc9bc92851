//! HTTP on the `[http]` and `[metrics]` listeners: health, metrics, and how any of it is served.
//!
//! Routes are axum's, so that the API and the console can be merged into them. The connections are hyper's
//! own (see [`serve`]): `axum::serve` has no bound on connections or on slow headers, and waits for ever for
//! an idle client when it shuts down.

mod api;
mod body;
mod connect;
mod console;
mod gate;
mod health;
mod host;
mod media;
mod openapi;
mod problem;
mod routes;
mod serve;
mod session;

pub use api::{Api, Bounds};
pub use connect::Connects;
pub use gate::Gate;
pub use health::{health_router, metrics_router};
pub use host::AllowedHosts;
pub use problem::Problem;
pub use serve::{ServeOptions, serve};

use agent_reach_protocol::ErrorCode;
use axum::Router;
use axum::http::{StatusCode, Uri};
use routes::{Routes, Verb};

/// The whole of a listener: the routes, a problem document for every other path and method, and the check of
/// `Host` before all of it.
pub fn listener_router(routes: Router, hosts: AllowedHosts) -> Router {
    hosts.guard(with_problems(routes))
}

/// The API and the console, for who has a token or a session.
pub fn api_router(gate: &Gate, connects: Connects, api: &Api) -> Router {
    let routes = routes_of(gate, connects, api);
    let document = openapi::document(&listed(&routes)).to_string();
    let described = async move || media::json(StatusCode::OK, document);
    routes.on(Verb::Get, openapi::PATH, described).router.merge(console::files_router())
}

/// All that the listener serves but the files of the console.
fn listed(routes: &Routes) -> Vec<(Verb, &'static str)> {
    let beside = [health::HEALTH, health::READY, openapi::PATH].map(|path| (Verb::Get, path));
    routes.listed.iter().copied().chain(beside).collect()
}

/// All but the files of the console, and what describes it.
fn routes_of(gate: &Gate, connects: Connects, api: &Api) -> Routes {
    let guarded = connect::routes(connects).and(api::routes(api)).behind(|routes| gate.before(routes));
    guarded.and(session::routes(gate)).and(console::routes(gate))
}

/// Answers 404 and 405 with problem documents.
fn with_problems(routes: Router) -> Router {
    routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method)
}

async fn no_such_path(uri: Uri) -> Problem {
    let detail = format!("there is nothing at {}", crate::telemetry::logging::cut(uri.path()));
    Problem::new(StatusCode::NOT_FOUND, ErrorCode::InvalidRequest, detail)
}

async fn no_such_method() -> Problem {
    let detail = "this path has other methods; the Allow header names them".to_owned();
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::InvalidRequest, detail)
}

#[cfg(test)]
mod tests;
