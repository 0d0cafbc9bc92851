//! RESULT, as a provider writes it.

use agent_reach_protocol::{
    CallError, CallResult, ErrorCode, Private, ResultStatus, encode, limits::TEXT_BYTES_MAX,
};
use bytes::Bytes;

use crate::session::types::{Failure, raw};

/// The ids of a CALL, where its header could be read.
pub(super) type Ids<'a> = Option<(&'a str, &'a str)>;

pub(super) fn blank(id: u64, ids: Ids<'_>) -> CallResult<'_> {
    CallResult {
        id: Some(id),
        status: ResultStatus::Failed,
        request_id: ids.map(|(request_id, _)| request_id),
        call_id: ids.map(|(_, call_id)| call_id),
        target: None,
        task_id: None,
        execution_ms: None,
        attempts: Vec::new(),
        route: None,
        cached: false,
        duplicate: false,
        error: None,
        more: false,
        summary: None,
        content_type: None,
        private: Private::default(),
    }
}

pub(super) fn failed(id: u64, ids: Ids<'_>, failure: &Failure, execution_ms: Option<u64>) -> Bytes {
    let mut end = failure.message.len().min(TEXT_BYTES_MAX);
    while !failure.message.is_char_boundary(end) {
        end -= 1;
    }
    let error = CallError {
        code: failure.code.as_str(),
        message: failure.message.get(..end).unwrap_or_default(),
        retryable: failure.retryable,
        details: raw(failure.details.as_ref()),
    };
    encode(&CallResult { error: Some(error), execution_ms, ..blank(id, ids) }, None)
}

/// A RESULT for a CALL that no run stands for.
pub(crate) fn refusal(id: u64, ids: Ids<'_>, failure: &Failure) -> Bytes {
    failed(id, ids, failure, None)
}

pub(super) fn too_large(what: &str, bytes: usize, limit: usize) -> Failure {
    let text = format!("the {what} has {bytes} bytes as a message, the hub takes {limit}");
    Failure::new(ErrorCode::HandlerError, text)
}
