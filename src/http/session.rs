//! `/v1/session`: a browser shows its token once and has a cookie then.

use agent_reach_core::TOKEN_PREFIX;
use agent_reach_protocol::ErrorCode;
use axum::Extension;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::gate::{COOKIE, Gate, cookie, from};
use super::media::{json, require_json};
use super::routes::{Routes, Verb};
use super::{Problem, body};
use crate::access::{SESSION_TIME, Visitor};

/// Where it is.
pub(super) const PATH: &str = "/v1/session";
/// Most bytes of what is sent to log in.
const LOGIN_BYTES_MAX: usize = 4096;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogIn {
    token: String,
}

/// The routes.
pub(super) fn routes(gate: &Gate) -> Routes {
    let (opening, closing) = (gate.clone(), gate.clone());
    let open = async move |request: Request| {
        log_in(&opening, request).await.unwrap_or_else(IntoResponse::into_response)
    };
    let close = async move |headers: HeaderMap| {
        if let Some(cookie) = cookie(&headers) {
            closing.access.log_out(cookie).await;
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        response.headers_mut().insert(header::SET_COOKIE, set_cookie(&closing, &headers, "", 0));
        response
    };
    let own = Routes::new().on(Verb::Get, PATH, show).on(Verb::Delete, PATH, close);
    Routes::new().on(Verb::Post, PATH, open).and(own.behind(|routes| gate.before(routes)))
}

async fn show(Extension(visitor): Extension<Visitor>) -> Response {
    let document = serde_json::json!({
        "identity": format!("{TOKEN_PREFIX}{}", visitor.name),
        "agent_id": &*visitor.name,
        "role": visitor.role,
    });
    json(StatusCode::OK, document.to_string())
}

async fn log_in(gate: &Gate, request: Request) -> Result<Response, Problem> {
    // Another page must not have its visitor work here under a token of its own.
    gate.refuse_foreign(request.headers())?;
    require_json(request.headers())?;
    let (from, (parts, body)) = (from(&request), request.into_parts());
    let body = body::take(body, LOGIN_BYTES_MAX, gate.body_time).await?;
    let Ok(LogIn { token }) = serde_json::from_slice(&body) else {
        let detail = "the body has to be {\"token\": \"…\"}".to_owned();
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidRequest, detail));
    };
    let cookie = gate.access.log_in(from, &token).await.map_err(|refused| gate.refused(refused))?;
    let mut response = (StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-store")]).into_response();
    response.headers_mut().insert(header::SET_COOKIE, session_cookie(gate, &parts.headers, &cookie));
    Ok(response)
}

/// The header that gives a browser its session.
pub(super) fn session_cookie(gate: &Gate, headers: &HeaderMap, cookie: &str) -> HeaderValue {
    set_cookie(gate, headers, cookie, SESSION_TIME.as_secs())
}

fn set_cookie(gate: &Gate, headers: &HeaderMap, cookie: &str, seconds: u64) -> HeaderValue {
    // Behind something that ends TLS the browser still says how it came.
    let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
    let secure = if gate.tls || origin.starts_with(b"https://") { "; Secure" } else { "" };
    let text = format!("{COOKIE}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // The letters of Base64 and these words are all good in a header.
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""))
}
