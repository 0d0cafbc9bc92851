//! A call whose pieces are told as they come: server-sent events.

use std::convert::Infallible;
use std::fmt::Write as _;

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::call::told;
use super::visit::{Head, Heard, Visit};
use crate::http::Problem;

/// Silence after which something is said, so that nobody on the way takes the connection for dead.
const SILENCE: Duration = Duration::from_secs(15);

struct Streaming {
    visit: Visit,
    first: Option<Heard>,
    /// Whose last chunk was given to the client, and not yet taken: the next is asked for when this is.
    given: Option<Option<String>>,
    _place: Option<OwnedSemaphorePermit>,
}

/// The answer, which begins with what was heard already.
pub(super) fn stream(visit: Visit, first: Heard, place: Option<OwnedSemaphorePermit>) -> Response {
    let head = match &first {
        Heard::Accept(head) | Heard::Chunk(head, _) | Heard::Result(head, _) => head.clone(),
    };
    let streaming = Streaming { visit, first: Some(first), given: None, _place: place };
    let events = unfold(Some(streaming), async |streaming| {
        let mut streaming = streaming?;
        let (text, goes_on) = streaming.next().await;
        Some((Ok::<_, Infallible>(text), goes_on.then_some(streaming)))
    });
    let media = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    told(&head, (StatusCode::OK, media, Body::from_stream(events)).into_response())
}

impl Streaming {
    /// The next event, and whether there may be another.
    async fn next(&mut self) -> (String, bool) {
        if let Some(target) = self.given.take() {
            self.visit.credit(target.as_deref());
        }
        let heard = match self.first.take() {
            Some(first) => Ok(first),
            None => match timeout(SILENCE, self.visit.hear()).await {
                Ok(heard) => heard,
                Err(_) => return (":\n\n".to_owned(), true),
            },
        };
        match heard {
            Ok(Heard::Accept(head)) => (event("accept", &accepted(&head), None), true),
            Ok(Heard::Chunk(head, body)) => {
                self.given = Some(head.target.clone());
                let piece = json!({"seq": head.seq, "target": head.target});
                (event("chunk", &piece, Some(body)), true)
            }
            Ok(Heard::Result(mut head, body)) => {
                let ended = self.visit.has_ended();
                let text = match ended && !head.is_completed() && head.summary.is_none() {
                    true => event("error", &head.problem().document(), None),
                    false => event("result", &result(&mut head), Some(body)),
                };
                (text, !ended)
            }
            Err(problem) => (event("error", &Problem::document(&problem), None), false),
        }
    }
}

fn accepted(head: &Head) -> Value {
    json!({
        "call_id": head.call_id, "request_id": head.request_id, "target": head.target, "attempt": head.attempt,
    })
}

fn result(head: &mut Head) -> Value {
    let error = head.error.take().map(|error| error.problem().document());
    json!({
        "status": head.status, "call_id": head.call_id, "request_id": head.request_id, "target": head.target,
        "execution_ms": head.execution_ms, "duplicate": head.duplicate, "cached": head.cached, "more": head.more,
        "summary": head.summary, "error": error,
    })
}

/// An event: what is said of it without what is not there, and its body as it came.
fn event(name: &str, said: &Value, body: Option<Option<Box<RawValue>>>) -> String {
    let fields = said.as_object().into_iter().flatten();
    let mut data = String::from("{");
    let mut comma = "";
    for (key, value) in fields.filter(|(_, value)| !value.is_null()) {
        // Writing to a text does not fail.
        write!(data, "{comma}{}:{value}", Value::from(key.as_str())).ok();
        comma = ",";
    }
    if let Some(body) = body {
        let body = body.as_ref().map_or("null", |body| body.get());
        write!(data, "{comma}\"body\":{body}").ok();
    }
    data.push('}');
    let mut text = format!("event: {name}\n");
    // JSON that an agent wrote itself may have lines.
    for line in data.split(['\n', '\r']) {
        writeln!(text, "data: {line}").ok();
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_leaves_out_what_is_not_there_and_keeps_lines_apart() {
        let body = RawValue::from_string("{\"a\":\r\n1}".to_owned()).unwrap();
        assert_eq!(
            event("chunk", &json!({"seq": 0, "target": null}), Some(Some(body))),
            "event: chunk\ndata: {\"seq\":0,\"body\":{\"a\":\ndata: \ndata: 1}}\n\n"
        );
        assert_eq!(event("result", &json!({}), Some(None)), "event: result\ndata: {\"body\":null}\n\n");
    }
}
