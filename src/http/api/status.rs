//! What a call's end is in HTTP.

use std::time::Duration;

use agent_reach_protocol::{ErrorCode, GoodbyeCode};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::http::Problem;

/// How long who may try again waits, where nothing says better.
const PAUSE: Duration = Duration::from_secs(1);

/// The status that a code has. `details`: of a call that went through further tiers, where the cause stands.
pub(crate) fn status_of(code: ErrorCode, details: &Map<String, Value>) -> StatusCode {
    match code {
        ErrorCode::NoInstance | ErrorCode::Overloaded | ErrorCode::ShuttingDown | ErrorCode::CircuitOpen => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        ErrorCode::NoCapability => StatusCode::NOT_FOUND,
        ErrorCode::Unauthorized => StatusCode::FORBIDDEN,
        ErrorCode::InvalidRequest | ErrorCode::SchemaMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::AcceptTimeout | ErrorCode::Timeout | ErrorCode::BudgetExhausted | ErrorCode::Orphaned => {
            StatusCode::GATEWAY_TIMEOUT
        }
        ErrorCode::HandlerError | ErrorCode::AgentLost | ErrorCode::Cancelled => StatusCode::BAD_GATEWAY,
        ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::IdempotencyConflict => StatusCode::CONFLICT,
        ErrorCode::Internal | ErrorCode::UnknownKind => StatusCode::INTERNAL_SERVER_ERROR,
        ErrorCode::Degraded => {
            let cause = details.get("cause").and_then(|cause| cause.get("code")?.as_str());
            match cause.and_then(ErrorCode::parse) {
                Some(cause) if cause != ErrorCode::Degraded => status_of(cause, &Map::new()),
                Some(_) | None => StatusCode::BAD_GATEWAY,
            }
        }
    }
}

/// Why a call failed, as RESULT and ERROR say it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failed {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) retryable: bool,
    pub(super) details: Map<String, Value>,
}

impl Failed {
    pub(super) fn problem(self) -> Problem {
        let Self { code, message, retryable, details } = self;
        let code = ErrorCode::parse(&code).unwrap_or(ErrorCode::Internal);
        let status = status_of(code, &details);
        let again = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let said = details.get("retry_after_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let mut problem = Problem::new(status, code, message);
        problem.retry_after = again.then(|| said.unwrap_or(PAUSE));
        (problem.retryable, problem.details) = (retryable, details);
        problem
    }
}

/// The end of who was sent away before the call had one.
pub(super) fn sent_away(said: Option<GoodbyeCode>) -> Problem {
    let (code, message) = match said {
        Some(
            GoodbyeCode::Unauthorized | GoodbyeCode::CredentialsRevoked | GoodbyeCode::CredentialsExpired,
        ) => (ErrorCode::Unauthorized, "the token may not do this any more"),
        Some(GoodbyeCode::SlowConsumer) => (ErrorCode::Overloaded, "answers were read too slowly"),
        Some(GoodbyeCode::MessageTooLarge) => (ErrorCode::PayloadTooLarge, "the request is too large"),
        Some(
            GoodbyeCode::Normal
            | GoodbyeCode::Draining
            | GoodbyeCode::Gone
            | GoodbyeCode::RateLimited
            | GoodbyeCode::Replaced
            | GoodbyeCode::ProtocolError
            | GoodbyeCode::VersionUnsupported,
        )
        | None => (ErrorCode::ShuttingDown, "the hub stops"),
    };
    let (message, retryable) = (message.to_owned(), code.retryable());
    Failed { code: code.as_str().to_owned(), message, retryable, details: Map::new() }.problem()
}

/// A request that cannot be used, for this of its parts.
pub(super) fn invalid(field: &str, detail: String) -> Problem {
    let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::InvalidRequest, detail);
    problem.details.insert("field".to_owned(), field.into());
    problem
}
