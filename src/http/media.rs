//! What a request says its body is, and what it takes.

use agent_reach_protocol::ErrorCode;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Problem;

/// Whether a body is JSON by its `Content-Type`. It is asked of every one: a page of another origin can send any other type
/// without the browser asking this listener first.
pub(super) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let said = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let media = said.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    let detail = "the body has to be JSON, under Content-Type: application/json".to_owned();
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::InvalidRequest, detail))
}

/// A JSON text of the moment, which nobody on the way may keep.
pub(super) fn json(status: StatusCode, text: String) -> Response {
    let media = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    let mut response = (status, media, text).into_response();
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
