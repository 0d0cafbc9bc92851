//! `POST /v1/call/{capability}`.

use std::time::Duration;

use agent_reach_protocol::ErrorCode;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::value::RawValue;

use super::asking::{Asking, Wants};
use super::status::{Failed, invalid};
use super::visit::{Head, Heard, Visit};
use super::{Api, BODY_UNIT, stream};
use crate::access::Visitor;
use crate::connection::{Edge as _, Encoding};
use crate::driver::Inbound;
use crate::http::media::{json, require_json};
use crate::http::{Problem, body};

/// Most bytes of the results of a fan-out that are gathered for one answer, in longest messages.
const GATHERED_MAX: usize = 16;

pub(super) async fn call(
    api: Api,
    Path(capability): Path<String>,
    Extension(visitor): Extension<Visitor>,
    request: Request,
) -> Response {
    answer(&api, &capability, &visitor, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn answer(
    api: &Api,
    capability: &str,
    visitor: &Visitor,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asking = Asking::read(capability, parts.uri.query(), &parts.headers, api.window())?;
    let inbound = read_body(api, &asking, &parts.headers, body).await?;
    let place = match asking.wants {
        Wants::Stream => Some(api.stream_place()?),
        Wants::Result | Wants::Task => None,
    };
    let mut visit = api.visit(visitor, asking.named)?;
    visit.say(inbound);
    let mut response = match asking.wants {
        Wants::Result => whole(&mut visit, GATHERED_MAX.saturating_mul(api.bounds.max_message)).await?,
        Wants::Task => task(&mut visit).await?,
        Wants::Stream => {
            let first = visit.hear().await?;
            match first {
                // What fails before anything came has a status that says so.
                Heard::Result(mut head, _)
                    if visit.has_ended() && !head.is_completed() && head.summary.is_none() =>
                {
                    failed(&mut head)
                }
                first @ (Heard::Accept(_) | Heard::Chunk(..) | Heard::Result(..)) => {
                    stream::stream(visit, first, place)
                }
            }
        }
    };
    if let Some(trace) = asking.traceparent {
        response.headers_mut().insert(HeaderName::from_static("traceparent"), trace);
    }
    Ok(response)
}

/// Takes in the body, in a bounded time and within what all bodies together may take.
async fn read_body(api: &Api, asking: &Asking, headers: &HeaderMap, body: Body) -> Result<Inbound, Problem> {
    let most = api.bounds.max_message;
    let too_large = || body::too_large(most);
    let said = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let said: usize = match said {
        Some(length) => length,
        None if headers.contains_key(header::TRANSFER_ENCODING) => most,
        None => 0,
    };
    if said > most {
        return Err(too_large());
    }
    if said > 0 {
        require_json(headers)?;
    }
    let units = u32::try_from(said / BODY_UNIT + 1).unwrap_or(u32::MAX);
    let Ok(_room) = api.bodies.try_acquire_many(units) else {
        // The same words as where there are too many requests.
        return Err(full());
    };
    let bytes = body::take(body, most, api.bounds.body_time).await?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid("body", "the body is no UTF-8".to_owned()))?;
    match Encoding::Json.text(&asking.with_body(text)) {
        Inbound::Message(message, _) if message.len() > most => Err(too_large()),
        Inbound::Untrusted(reason) => {
            Err(invalid("body", format!("the body has to be one value of JSON: {reason}")))
        }
        inbound @ (Inbound::Message(..)
        | Inbound::Alive
        | Inbound::TooLarge
        | Inbound::Broken
        | Inbound::Undeliverable(..)) => Ok(inbound),
    }
}

fn full() -> Problem {
    let detail = "too many bodies are on their way in".to_owned();
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded, detail);
    problem.retry_after(Duration::from_secs(1))
}

/// One target's part of the answer to a fan-out.
#[derive(Serialize)]
struct Part {
    target: Option<String>,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
    body: Option<Box<RawValue>>,
}

impl Part {
    fn of(head: &mut Head, body: Option<Box<RawValue>>) -> Self {
        let error = head.error.take().map(|Failed { code, message, retryable, details }| {
            serde_json::json!({"code": code, "message": message, "retryable": retryable, "details": details})
        });
        Self { target: head.target.clone(), status: std::mem::take(&mut head.status), error, body }
    }
}

#[derive(Serialize)]
struct FanOut {
    results: Vec<Part>,
    summary: serde_json::Value,
}

/// The result, or all of them.
async fn whole(visit: &mut Visit, most: usize) -> Result<Response, Problem> {
    let (mut results, mut bytes) = (Vec::new(), 0_usize);
    loop {
        match visit.hear().await? {
            Heard::Accept(_) | Heard::Chunk(..) => {}
            Heard::Result(mut head, body) if head.more => {
                bytes = bytes.saturating_add(body.as_ref().map_or(0, |body| body.get().len()));
                if bytes > most {
                    let detail =
                        format!("the results have more than {most} bytes together; have them streamed");
                    return Err(Problem::new(StatusCode::BAD_GATEWAY, ErrorCode::PayloadTooLarge, detail));
                }
                results.push(Part::of(&mut head, body));
            }
            Heard::Result(mut head, body) => {
                let text = match head.summary.take() {
                    Some(summary) => serde_json::to_string(&FanOut { results, summary }).unwrap_or_default(),
                    None if head.is_completed() => {
                        body.map_or("null".to_owned(), |body| body.get().to_owned())
                    }
                    None => return Ok(failed(&mut head)),
                };
                return Ok(told(&head, json(StatusCode::OK, text)));
            }
        }
    }
}

/// That the task is stored, and where it is.
async fn task(visit: &mut Visit) -> Result<Response, Problem> {
    loop {
        match visit.hear().await? {
            Heard::Accept(head) if head.task_id.is_some() => return Ok(accepted(&head)),
            // The same was asked for before, and has ended.
            Heard::Result(head, _) if head.task_id.is_some() => return Ok(accepted(&head)),
            Heard::Result(mut head, _) if !head.is_completed() => return Ok(failed(&mut head)),
            // What the hub itself answers is no task.
            Heard::Result(head, body) => {
                let text = body.map_or("null".to_owned(), |body| body.get().to_owned());
                return Ok(told(&head, json(StatusCode::OK, text)));
            }
            Heard::Accept(_) | Heard::Chunk(..) => {}
        }
    }
}

fn accepted(head: &Head) -> Response {
    let task_id = head.task_id.as_deref().unwrap_or_default();
    let document =
        serde_json::json!({"task_id": task_id, "request_id": head.request_id, "call_id": head.call_id});
    let mut response = told(head, json(StatusCode::ACCEPTED, document.to_string()));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/tasks/{task_id}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    let applied = HeaderValue::from_static("respond-async");
    response.headers_mut().insert(HeaderName::from_static("preference-applied"), applied);
    response
}

fn failed(head: &mut Head) -> Response {
    let problem = head.problem();
    told(head, problem.into_response())
}

/// An answer with what the hub said of the call.
pub(super) fn told(head: &Head, mut response: Response) -> Response {
    let word = |is: bool| is.then_some("true");
    for (name, value) in [
        ("agent-reach-call-id", head.call_id.as_deref()),
        ("agent-reach-request-id", head.request_id.as_deref()),
        ("agent-reach-target", head.target.as_deref()),
        ("agent-reach-duplicate", word(head.duplicate)),
        ("agent-reach-cached", word(head.cached)),
    ] {
        // An id may be any text, and not every text is good in a header.
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
