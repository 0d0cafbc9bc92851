//! Answers of a web service, as results and failures of calls.

use std::time::{SystemTime, UNIX_EPOCH};

use agent_reach_sdk::{ErrorCode, HandlerError, Payload};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::body;
use super::job::{EXCERPT_BYTES_MAX, Job, excerpt};
use super::lines::Lines;
use super::pieces::Pieces;
use crate::callbacks::retry_after_ms;

/// How an answer is read.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// One JSON value.
    Json,
    /// One JSON value on each line.
    Lines,
    /// Events of a server.
    Events,
    /// Nobody says.
    Unsaid,
    /// Bytes.
    Opaque(String),
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        let Some(header) = headers.get(CONTENT_TYPE) else { return Self::Unsaid };
        let text = String::from_utf8_lossy(header.as_bytes()).into_owned();
        let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "" => Self::Unsaid,
            "application/json" => Self::Json,
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Self::Lines,
            "text/event-stream" => Self::Events,
            other if other.ends_with("+json") => Self::Json,
            _ => Self::Opaque(text),
        }
    }
}

/// What a failure tells programs.
#[derive(Serialize)]
struct Details<'a> {
    code: &'a str,
    message: &'a str,
    status: u16,
    /// Beginning of what the service said.
    body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// Reads an answer to its end.
///
/// # Errors
/// What the call fails with: another status than 2xx, an answer that is too large, is no JSON or breaks off.
pub(super) async fn read(job: &Job, answer: Response<Incoming>) -> Result<Payload, HandlerError> {
    let (head, body) = answer.into_parts();
    let mut body = Incomplete { job, body };
    if !head.status.is_success() {
        return Err(refused(job, head.status, &head.headers, &body.beginning().await));
    }
    match Kind::of(&head.headers) {
        Kind::Json => {
            let bytes = body.whole().await?;
            if bytes.is_empty() {
                return Ok(Payload::default());
            }
            body::from_json(&bytes)
                .ok_or_else(|| HandlerError::new("bad_answer", "the answer says that it is JSON, and is not"))
        }
        Kind::Lines => body.lines().await,
        Kind::Events => body.events().await,
        Kind::Unsaid => Ok(body::from_output(&body.whole().await?)),
        Kind::Opaque(content_type) => Ok(body::opaque(body.whole().await?, &content_type)),
    }
}

/// A failure by its status. Who says "later" has not done it; what an error of the server has done nobody knows.
fn refused(job: &Job, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> HandlerError {
    let number = status.as_u16();
    let message = match number {
        300..=399 => format!("the service answers HTTP {number}; redirects are not followed"),
        _ => format!("the service answers HTTP {number}"),
    };
    let error = match number {
        429 => HandlerError::wire(ErrorCode::RateLimited, message.as_str()),
        503 => HandlerError::wire(ErrorCode::Overloaded, message.as_str()),
        408 | 425 => HandlerError::new("http_status", message.as_str()).retryable(),
        500.. => job.unknown("http_status", message.as_str()),
        _ => HandlerError::new("http_status", message.as_str()),
    };
    let retry_after_ms = matches!(number, 429 | 503).then(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        retry_after_ms(header?, u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
    });
    error.details(Details {
        code: "http_status",
        message: &message,
        status: number,
        body: excerpt(body),
        retry_after_ms: retry_after_ms.flatten(),
    })
}

/// A body that still comes.
struct Incomplete<'a> {
    job: &'a Job,
    body: Incoming,
}

impl Incomplete<'_> {
    /// What comes next; `None` at the end.
    async fn part(&mut self) -> Result<Option<Bytes>, HandlerError> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame
                .map_err(|error| self.job.unknown("no_answer", format!("the answer breaks off: {error}")))?;
            // Trailers say nothing that a caller would hear.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }

    async fn whole(&mut self) -> Result<Bytes, HandlerError> {
        let most = self.job.answer_max;
        if self.body.size_hint().lower() > most as u64 {
            return Err(self.job.too_large());
        }
        let mut whole = BytesMut::new();
        while let Some(part) = self.part().await? {
            if whole.len() + part.len() > most {
                return Err(self.job.too_large());
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole.freeze())
    }

    /// As much as a failure shows of it, and as far as it comes.
    async fn beginning(&mut self) -> Vec<u8> {
        let mut beginning = Vec::new();
        while beginning.len() < EXCERPT_BYTES_MAX {
            let Ok(Some(part)) = self.part().await else { break };
            beginning.extend_from_slice(&part);
        }
        beginning
    }

    async fn lines(&mut self) -> Result<Payload, HandlerError> {
        let mut lines = Lines::new(self.job.answer_max);
        let mut pieces = Pieces::new(self.job);
        loop {
            let part = self.part().await?;
            lines.push(part.as_deref().unwrap_or_default());
            while let Some(line) = lines.next().map_err(|_| self.job.too_large())? {
                push_unless_empty(&mut pieces, &line).await?;
            }
            if part.is_none() {
                push_unless_empty(&mut pieces, &lines.rest().unwrap_or_default()).await?;
                return Ok(pieces.end());
            }
        }
    }

    /// The data of each event. What has no empty line behind it is no event, as the standard has it.
    async fn events(&mut self) -> Result<Payload, HandlerError> {
        let mut lines = Lines::new(self.job.answer_max);
        let mut pieces = Pieces::new(self.job);
        let mut data = Event::default();
        while let Some(part) = self.part().await? {
            lines.push(&part);
            while let Some(line) = lines.next().map_err(|_| self.job.too_large())? {
                if let Some(event) = data.line(&line) {
                    pieces.push(&event).await?;
                }
                if data.data.len() > self.job.answer_max {
                    return Err(self.job.too_large());
                }
            }
        }
        Ok(pieces.end())
    }
}

async fn push_unless_empty(pieces: &mut Pieces<'_>, line: &Bytes) -> Result<(), HandlerError> {
    if line.iter().all(u8::is_ascii_whitespace) { Ok(()) } else { pieces.push(line).await }
}

/// The data of an event whose lines come.
#[derive(Default)]
struct Event {
    data: BytesMut,
    any: bool,
}

impl Event {
    /// Takes a line; the data of the event that it ends.
    fn line(&mut self, line: &[u8]) -> Option<Bytes> {
        if line.is_empty() {
            return std::mem::take(&mut self.any).then(|| self.data.split().freeze());
        }
        // Names, ids and comments are of no use to a caller.
        let value = match line.strip_prefix(b"data") {
            Some([]) => line.get(..0),
            Some(rest) => rest.strip_prefix(b":").map(|value| value.strip_prefix(b" ").unwrap_or(value)),
            None => None,
        };
        if let Some(value) = value {
            if self.any {
                self.data.extend_from_slice(b"\n");
            }
            self.any = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(content_type: &'static str) -> Kind {
        Kind::of(&HeaderMap::from_iter([(CONTENT_TYPE, content_type.parse().unwrap())]))
    }

    #[test]
    fn the_content_type_says_how_an_answer_is_read() {
        assert_eq!(Kind::of(&HeaderMap::new()), Kind::Unsaid);
        assert_eq!(kind("Application/JSON; charset=utf-8"), Kind::Json);
        assert_eq!(kind("application/problem+json"), Kind::Json);
        assert_eq!(kind("application/x-ndjson"), Kind::Lines);
        assert_eq!(kind("text/event-stream"), Kind::Events);
        assert_eq!(kind("text/html; charset=x"), Kind::Opaque("text/html; charset=x".to_owned()));
    }

    #[test]
    fn an_event_is_its_data_up_to_an_empty_line() {
        let mut event = Event::default();
        let lines = [
            "",
            ": hello",
            "event: x",
            "data: a",
            "data:b",
            "data",
            "database: c",
            "id: 1",
            "",
            "",
            "data:",
            "",
        ];
        let events: Vec<_> = lines.iter().filter_map(|line| event.line(line.as_bytes())).collect();
        assert_eq!(events, [&b"a\nb\n"[..], b""]);
    }
}
