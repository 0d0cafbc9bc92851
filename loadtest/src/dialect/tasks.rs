//! What callers of tasks say and hear.

use agent_reach_protocol::limits::KEEP_MS_MADE;
use agent_reach_protocol::{
    Accept, Call, CallMode, CallResult, Receipt, ResultStatus, ToAgent, decode_to_agent, encode,
};
use anyhow::{Result, bail};
use bytes::Bytes;

use super::envelopes::{capability, empty_call, empty_result, request_id};

/// What a caller of tasks was told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TaskTold {
    /// The task of this CALL is stored.
    Accepted(u64),
    /// The task of this CALL has ended well; its name.
    Ended(u64, String),
    /// Something else.
    Nothing,
}

/// A task of the caller with this number.
pub(crate) fn submit(caller: u32, id: u64, number: u32, body: &[u8]) -> Bytes {
    let (name, request_id) = (capability(number), request_id(caller, id));
    let task = Call {
        request_id: Some(&request_id),
        keep_ms: Some(KEEP_MS_MADE),
        mode: Some(CallMode::Task),
        ..empty_call(id, &name)
    };
    encode(&task, Some(body))
}

/// The end of a task, with a small result, as a hub stores it.
pub(crate) fn end_of_task(task_id: &str, request_id: &str) -> Bytes {
    let end = CallResult {
        task_id: Some(task_id),
        request_id: Some(request_id),
        target: Some("agent-000000"),
        ..empty_result()
    };
    encode(&end, Some(b"\xa4done"))
}

/// Says that the end of a task has come.
pub(crate) fn receipt(task_id: &str) -> Bytes {
    encode(&Receipt { task_id }, None)
}

/// What a caller of tasks was told.
///
/// # Errors
/// When a task was not accepted, failed or came home twice, or the hub wants the caller gone.
pub(crate) fn task_told(message: &Bytes) -> Result<TaskTold> {
    match decode_to_agent(message)? {
        (ToAgent::Accept(Accept { id, task_id: Some(_), .. }), _) => Ok(TaskTold::Accepted(id)),
        (
            ToAgent::Result(CallResult {
                id: Some(id),
                task_id: Some(task_id),
                status: ResultStatus::Completed,
                ..
            }),
            _,
        ) => Ok(TaskTold::Ended(id, task_id.to_owned())),
        (ToAgent::Accept(_), _) => Ok(TaskTold::Nothing),
        (other @ (ToAgent::Result(_) | ToAgent::Goodbye(_) | ToAgent::Error(_)), _) => {
            bail!("a task went wrong: {other:?}")
        }
        _ => Ok(TaskTold::Nothing),
    }
}

#[cfg(test)]
mod tests {
    use agent_reach_protocol::{ToHub, decode_to_hub};

    use super::*;

    #[test]
    fn a_hub_reads_a_task_and_its_receipt() {
        let message = submit(7, 9, 4, b"body");
        let (ToHub::Call(call), body) = decode_to_hub(&message, None).unwrap() else { panic!("no CALL") };
        assert_eq!((call.id, call.mode, body.as_deref()), (9, Some(CallMode::Task), Some(&b"body"[..])));
        assert_eq!(call.request_id.map(str::len), Some(36));
        let message = receipt("a-name");
        let (ToHub::Receipt(receipt), _) = decode_to_hub(&message, None).unwrap() else { panic!("none") };
        assert_eq!(receipt.task_id, "a-name");
    }
}
