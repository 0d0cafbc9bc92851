//! The hub's answers, copied out of the message they were read from.

use std::time::Duration;

use agent_reach_protocol::{Accept, CallResult, ErrorCode, ResultStatus};
use bytes::Bytes;
use serde::Deserialize;

use super::types::{Acceptance, Reply};
use crate::errors::{Accepted, Attempt, CallError, Cause, Code};
use crate::payload::Payload;

fn text(word: Option<&str>) -> Option<String> {
    word.map(str::to_owned)
}

pub(crate) fn acceptance(header: &Accept<'_>, request_id: &str) -> Acceptance {
    Acceptance {
        request_id: request_id.to_owned(),
        call_id: text(header.call_id),
        target: text(header.target),
        attempt: header.attempt,
        queue_depth: header.queue_depth,
        would_timeout: header.would_timeout,
        wait: header.wait_ms.map(Duration::from_millis),
        task_id: text(header.task_id),
    }
}

pub(crate) fn reply(header: &CallResult<'_>, body: Option<Bytes>, request_id: &str) -> Reply<Payload> {
    Reply {
        body: Payload { body: body.unwrap_or_default(), content_type: text(header.content_type) },
        target: text(header.target),
        call_id: text(header.call_id),
        request_id: request_id.to_owned(),
        attempts: attempts(header),
        route: text(header.route),
        execution: header.execution_ms.map(Duration::from_millis),
        cached: header.cached,
        duplicate: header.duplicate,
        task_id: text(header.task_id),
    }
}

fn attempts(header: &CallResult<'_>) -> Vec<Attempt> {
    let owned = |a: &agent_reach_protocol::Attempt<'_>| Attempt {
        target: a.target.to_owned(),
        outcome: a.outcome.to_owned(),
        ms: a.ms,
        reason: a.reason.to_owned(),
    };
    header.attempts.iter().map(owned).collect()
}

pub(crate) fn failure(header: &CallResult<'_>, request_id: &str, accepted: Accepted) -> CallError {
    let mut error = match &header.error {
        Some(wire) => {
            let mut error = CallError::new(Code::of(wire.code), wire.message);
            error.retryable = wire.retryable;
            error.details = wire.details.map(|raw| Bytes::copy_from_slice(raw.0));
            error
        }
        None if header.status == ResultStatus::NoInstance => {
            CallError::known(ErrorCode::NoInstance, "no agent can take it now")
        }
        None => CallError::known(ErrorCode::Internal, "the hub gave no reason"),
    };
    error.attempts = attempts(header);
    error.cause = (error.code == ErrorCode::Degraded).then(|| cause(&error)).flatten();
    error.accepted = if accepted == Accepted::Yes { accepted } else { accepted_by(&error) };
    error.request_id = request_id.to_owned();
    error.call_id = text(header.call_id);
    error.target = text(header.target);
    error
}

/// What `details` of a `degraded` say.
fn cause(error: &CallError) -> Option<Cause> {
    #[derive(Deserialize)]
    struct Details {
        cause: Entry,
    }
    #[derive(Deserialize)]
    struct Entry {
        code: String,
        #[serde(default)]
        message: String,
        #[serde(default)]
        retryable: bool,
        details: Option<rmpv::Value>,
    }
    let Details { cause: Entry { code, message, retryable, details } } = error.details_as().ok()?;
    let details = details.and_then(|value| rmp_serde::to_vec_named(&value).ok()).map(Bytes::from);
    Some(Cause { code: Code::of(&code), message, retryable, details })
}

/// What the tries say of a call whose ACCEPT was not seen. One that a provider had is enough; that none had it must
/// be certain of all of them.
fn accepted_by(error: &CallError) -> Accepted {
    let code = error.cause.as_ref().map_or(&error.code, |cause| &cause.code);
    let tries = error.attempts.iter().map(|tried| accepted_by_code(&Code::of(&tried.outcome)));
    tries.fold(accepted_by_code(code), |all, tried| match (all, tried) {
        (Accepted::Yes, _) | (_, Accepted::Yes) => Accepted::Yes,
        (Accepted::Unknown, _) | (_, Accepted::Unknown) => Accepted::Unknown,
        (Accepted::No, Accepted::No) => Accepted::No,
    })
}

/// What a code alone says of a call whose ACCEPT was not seen: a RESULT that came first stands for it.
fn accepted_by_code(code: &Code) -> Accepted {
    use ErrorCode as E;
    let Code::Known(code) = code else { return Accepted::Unknown };
    match code {
        E::HandlerError | E::Timeout => Accepted::Yes,
        E::NoInstance
        | E::NoCapability
        | E::Unauthorized
        | E::InvalidRequest
        | E::SchemaMismatch
        | E::PayloadTooLarge
        | E::Overloaded
        | E::RateLimited
        | E::CircuitOpen
        | E::Unsupported
        | E::IdempotencyConflict
        | E::ShuttingDown
        | E::UnknownKind => Accepted::No,
        E::AcceptTimeout
        | E::BudgetExhausted
        | E::AgentLost
        | E::Cancelled
        | E::Degraded
        | E::Orphaned
        | E::Internal => Accepted::Unknown,
    }
}
