//! Errors in HTTP: RFC 9457 problem documents with the protocol's codes.

use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What went wrong with a request: `{status, title, code, detail, retryable, details}`. It has no `type`, which
/// by the RFC means that `title` is the status' own phrase.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// The protocol's code.
    pub code: ErrorCode,
    /// What happened here, for people.
    pub detail: String,
    /// Whether the same request may be sent again and end in another way.
    pub retryable: bool,
    /// More for programs; an empty object when there is nothing.
    pub details: serde_json::Map<String, serde_json::Value>,
    /// After which time it may: the header `Retry-After`, in whole seconds.
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// A problem that is retryable as its code says, without details.
    pub fn new(status: StatusCode, code: ErrorCode, detail: String) -> Self {
        let (retryable, details) = (code.retryable(), serde_json::Map::new());
        Self { status, code, detail, retryable, details, retry_after: None }
    }

    /// The same, that may be sent again after this time.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }
}

impl Problem {
    /// The document itself.
    pub(super) fn document(&self) -> serde_json::Value {
        serde_json::json!({
            "status": self.status.as_u16(),
            "title": self.status.canonical_reason().unwrap_or_default(),
            "code": self.code.as_str(),
            "detail": self.detail,
            "retryable": self.retryable,
            "details": self.details,
        })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = self.document();
        let media = HeaderValue::from_static("application/problem+json");
        let mut response =
            (self.status, [(header::CONTENT_TYPE, media)], document.to_string()).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"agent-reach\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        if let Some(time) = self.retry_after {
            let seconds = time.as_millis().div_ceil(1000).max(1).to_string();
            if let Ok(seconds) = HeaderValue::from_str(&seconds) {
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
            }
        }
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
