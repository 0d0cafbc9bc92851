//! The body of a webhook: the end of a task as JSON.

use agent_reach_protocol::json::from_msgpack;
use agent_reach_protocol::{CallResult, ToAgent, decode_to_agent, encode};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What the header of a RESULT has for a receiver, each value as the JSON edge writes it.
#[derive(Deserialize)]
struct Header<'a> {
    #[serde(borrow)]
    status: &'a RawValue,
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    target: Option<&'a RawValue>,
    #[serde(borrow)]
    execution_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    attempts: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    content_type: Option<&'a RawValue>,
}

/// The body.
#[derive(Serialize)]
struct Payload<'a> {
    task_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a RawValue>,
    capability: &'a str,
    status: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_ms: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a RawValue>,
}

/// The stored end of a task is no RESULT: our own fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored end of the task is no RESULT")]
pub struct NoResult;

/// Writes the body of a task's webhook from its end, which is a RESULT. A body that says it is MessagePack and is
/// not comes as the bytes that it is.
///
/// # Errors
/// [`NoResult`].
pub fn payload(task_id: &str, capability: &str, end: &Bytes) -> Result<Bytes, NoResult> {
    let (ToAgent::Result(result), body) = decode_to_agent(end).map_err(|_| NoResult)? else {
        return Err(NoResult);
    };
    let text = match from_msgpack(end) {
        Ok(text) => text,
        Err(_) => {
            let opaque = CallResult { content_type: Some("application/octet-stream"), ..result };
            from_msgpack(&encode(&opaque, body.as_deref())).map_err(|_| NoResult)?
        }
    };
    let (_, header, result): (u64, Header<'_>, &RawValue) =
        serde_json::from_str(&text).map_err(|_| NoResult)?;
    let payload = Payload {
        task_id,
        request_id: header.request_id,
        capability,
        status: header.status,
        // A failure has no result; null would look like one.
        result: (header.error.is_none() || body.is_some()).then_some(result),
        error: header.error,
        content_type: header.content_type,
        target: header.target,
        call_id: header.call_id,
        execution_ms: header.execution_ms,
        attempts: header.attempts,
        summary: header.summary,
    };
    serde_json::to_vec(&payload).map(Bytes::from).map_err(|_| NoResult)
}

#[cfg(test)]
mod tests {
    use agent_reach_protocol::{Attempt, CallError, ResultStatus};
    use serde_json::{Value, json};

    use super::*;

    fn written(result: &CallResult<'_>, body: Option<&[u8]>) -> Value {
        let payload = payload("t-1", "order.create", &encode(result, body)).unwrap();
        serde_json::from_slice(&payload).unwrap()
    }

    #[test]
    fn a_result_is_written_as_the_json_subprotocol_writes_it() {
        let result = CallResult {
            request_id: Some("r-1"),
            task_id: Some("t-1"),
            call_id: Some("c-1"),
            target: Some("agent-1"),
            execution_ms: Some(12),
            attempts: vec![Attempt { target: "agent-1", outcome: "completed", ms: 12, reason: "only one" }],
            route: Some("only one"),
            ..CallResult::of(ResultStatus::Completed)
        };
        let body = [0x82, 0xa1, b'a', 0x01, 0xa1, b'b', 0xc4, 0x01, 0xff];
        let expected = json!({
            "task_id": "t-1",
            "request_id": "r-1",
            "capability": "order.create",
            "status": "completed",
            "result": {"a": 1, "b": {"$bin": "/w=="}},
            "target": "agent-1",
            "call_id": "c-1",
            "execution_ms": 12,
            "attempts": [{"target": "agent-1", "outcome": "completed", "ms": 12, "reason": "only one"}],
        });
        assert_eq!(written(&result, Some(&body)), expected);
    }

    #[test]
    fn a_failure_has_an_error_and_no_result() {
        let details = [0x81, 0xa4, b'c', b'o', b'd', b'e', 0xa1, b'x'];
        let error = CallError {
            code: "handler_error",
            message: "no \"stock\"",
            retryable: true,
            details: Some(agent_reach_protocol::codec::Raw(&details)),
        };
        let result = CallResult { error: Some(error), ..CallResult::of(ResultStatus::Failed) };
        let expected = json!({
            "task_id": "t-1",
            "capability": "order.create",
            "status": "failed",
            "error": {
                "code": "handler_error",
                "message": "no \"stock\"",
                "retryable": true,
                "details": {"code": "x"},
            },
        });
        assert_eq!(written(&result, None), expected);
    }

    #[test]
    fn a_body_is_shown_by_its_content_type_and_a_broken_one_as_bytes() {
        let of = |content_type, body: Option<&[u8]>| {
            let result = CallResult { content_type, ..CallResult::of(ResultStatus::Completed) };
            written(&result, body)["result"].clone()
        };
        assert_eq!(of(None, None), Value::Null);
        assert_eq!(of(Some("application/json"), Some(b"[1, 2]")), json!([1, 2]));
        assert_eq!(of(Some("image/png"), Some(b"\x89P")), json!({"$bin": "iVA="}));
        assert_eq!(of(None, Some(b"\xc1")), json!({"$bin": "wQ=="}));
        assert_eq!(of(None, Some(b"\x01\x02")), json!({"$bin": "AQI="}));
    }

    #[test]
    fn what_is_no_result_is_no_webhook() {
        for end in [&b""[..], b"\x93", b"\xc1", &encode(&agent_reach_protocol::Accept::of(1), None)] {
            assert_eq!(payload("t", "c", &Bytes::copy_from_slice(end)), Err(NoResult));
        }
    }
}
