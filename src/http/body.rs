//! Bodies of requests.

use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use bytes::Bytes;
use tokio::time::timeout;

use super::Problem;

/// Takes in a body of at most so many bytes, in a bounded time.
///
/// # Errors
/// 413 or 408.
pub(super) async fn take(body: Body, most: usize, time: Duration) -> Result<Bytes, Problem> {
    let taken = timeout(time, to_bytes(body, most)).await.map_err(|_| {
        let detail = format!("the body did not come within {} ms", time.as_millis());
        Problem::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::InvalidRequest, detail)
    })?;
    taken.map_err(|_| too_large(most))
}

/// What is answered to a body of more bytes.
pub(super) fn too_large(most: usize) -> Problem {
    let detail = format!("this takes {most} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::PayloadTooLarge, detail)
}
