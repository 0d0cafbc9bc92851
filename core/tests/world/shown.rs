//! What the hub sends, as one line of text for each envelope.

use std::fmt::Write as _;

use agent_reach_core::Outgoing;
use agent_reach_protocol::{
    Accept, CallMode, CallResult, Chunk, Dispatch, ResultStatus, ToAgent, Welcome, decode_to_agent,
};
use bytes::Bytes;

/// One line. Ids that the hub makes are left out: they differ from run to run of a real hub.
pub(crate) fn shown(outgoing: &Outgoing) -> String {
    let message = match outgoing {
        Outgoing::Ping => return "PING".to_owned(),
        Outgoing::Close { code, reason } => return format!("CLOSE {code} {reason}"),
        Outgoing::Message(_) | Outgoing::Shared(_) => outgoing.message().expect("an envelope"),
    };
    let (envelope, body) = decode_to_agent(&message).expect("the hub writes what can be read");
    let mut line = match envelope {
        ToAgent::Welcome(welcome) => welcome_line(&welcome),
        ToAgent::Goodbye(goodbye) => {
            let after = goodbye.reconnect_after_ms.map_or_else(String::new, |ms| format!(" after={ms}"));
            format!("GOODBYE {}{after}", goodbye.code)
        }
        ToAgent::Error(error) => {
            let id = error.id.map_or_else(String::new, |id| format!(" id={id}"));
            format!("ERROR {} kind={}{id}", error.code, error.ref_kind)
        }
        ToAgent::Call(call) => call_line(&call),
        ToAgent::Accept(accept) => accept_line(&accept),
        ToAgent::Chunk(chunk) => chunk_line(&chunk),
        ToAgent::Credit(credit) => format!("CREDIT {} +{}", credit.id, credit.n),
        ToAgent::Result(result) => result_line(&result),
        ToAgent::Cancel(cancel) => format!("CANCEL {} {}", cancel.id, cancel.reason.unwrap_or_default()),
    };
    if let Some(body) = body {
        write!(line, " {:?}", String::from_utf8_lossy(&body)).unwrap();
    }
    line
}

/// The bodies of messages, in order.
pub(crate) fn bodies(batch: &[Outgoing]) -> Vec<Bytes> {
    let body = |outgoing: &Outgoing| decode_to_agent(&outgoing.message()?).expect("readable").1;
    batch.iter().filter_map(body).collect()
}

fn welcome_line(welcome: &Welcome<'_>) -> String {
    let mut line = "WELCOME".to_owned();
    if welcome.replaced {
        line.push_str(" replaced");
    }
    if !welcome.warnings.is_empty() {
        write!(line, " {:?}", welcome.warnings).unwrap();
    }
    line
}

fn call_line(call: &Dispatch<'_>) -> String {
    let mut line = format!("CALL {} {} by={} try={}", call.id, call.capability, call.caller, call.attempt);
    if call.stream {
        write!(line, " credit={}", call.credit.expect("a stream names its window")).unwrap();
    }
    if call.mode != CallMode::Call {
        write!(line, " {}", call.mode.as_str()).unwrap();
    }
    line
}

fn accept_line(accept: &Accept<'_>) -> String {
    let mut line = format!("ACCEPT {}", accept.id);
    if let Some(target) = accept.target {
        write!(line, " of={target} try={}", accept.attempt.unwrap_or_default()).unwrap();
    }
    line.push_str(if accept.task_id.is_some() { " task" } else { "" });
    line
}

fn chunk_line(chunk: &Chunk<'_>) -> String {
    let mut line = format!("CHUNK {} #{}", chunk.id, chunk.seq);
    if let Some(target) = chunk.target {
        write!(line, " of={target}").unwrap();
    }
    line
}

fn result_line(result: &CallResult<'_>) -> String {
    assert!(result.id.is_some() || result.task_id.is_some(), "only a task's result has no id");
    let mut line = format!("RESULT {}", result.id.map_or_else(|| "-".to_owned(), |id| id.to_string()));
    match &result.error {
        None => line.push_str(" completed"),
        Some(error) => {
            write!(line, " {}", error.code).unwrap();
            line.push_str(if error.retryable { " retryable" } else { "" });
        }
    }
    assert_eq!(result.status == ResultStatus::Completed, result.error.is_none(), "status and error agree");
    if let Some(target) = result.target {
        write!(line, " of={target}").unwrap();
    }
    if let Some(summary) = result.summary {
        write!(line, " summary={}/{}/{}", summary.targets, summary.completed, summary.failed).unwrap();
    }
    for (set, word) in [
        (result.task_id.is_some(), " task"),
        (result.more, " more"),
        (result.duplicate, " duplicate"),
        (result.cached, " cached"),
    ] {
        line.push_str(if set { word } else { "" });
    }
    line
}
