//! A request as the CALL that it asks for.

use std::time::Duration;

use agent_reach_core::TraceId;
use axum::http::{HeaderMap, HeaderValue, header};
use serde_json::{Map, Value};

use super::options::{OPTIONS, Takes};
use super::status::invalid;
use crate::http::Problem;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// The result.
    Result,
    /// To know that the task is stored.
    Task,
    /// Each piece as it comes.
    Stream,
}

/// A CALL without its body.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    header: Map<String, Value>,
    pub(super) wants: Wants,
    /// The client named the request, so that it can ask again.
    pub(super) named: bool,
    /// The trace that it belongs to, where that is one.
    pub(super) traceparent: Option<HeaderValue>,
}

/// The id of the one CALL of a guest.
pub(super) const ID: u64 = 1;

impl Asking {
    /// A CALL that says nothing but its name.
    pub(super) fn plain(capability: &str) -> Self {
        let mut header = Map::new();
        header.insert("id".to_owned(), ID.into());
        header.insert("capability".to_owned(), capability.into());
        Self { header, wants: Wants::Result, named: false, traceparent: None }
    }

    /// What address and headers ask for. `window`: of a stream that says none.
    ///
    /// # Errors
    /// When one of them cannot be used. What a value may be is for the hub to say, which does it for every caller.
    pub(super) fn read(
        capability: &str,
        query: Option<&str>,
        headers: &HeaderMap,
        window: u64,
    ) -> Result<Self, Problem> {
        let mut asking = Self::plain(capability);
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            asking.option(&name, &value)?;
        }
        if let Some(key) = text_of(headers, "idempotency-key")? {
            // By the draft of its standard it stands in quotation marks, and nearly everybody leaves them out.
            let quoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"'));
            asking.put("request_id", quoted.unwrap_or(key).into(), "Idempotency-Key")?;
            asking.named = true;
        }
        if let Some(seconds) = text_of(headers, "request-timeout")? {
            asking.put("timeout_ms", milliseconds(seconds)?.into(), "Request-Timeout")?;
        }
        for name in ["traceparent", "tracestate"] {
            if let Some(value) = text_of(headers, name)? {
                asking.put(name, value.into(), name)?;
            }
        }
        let trace = headers.get("traceparent");
        asking.traceparent =
            trace.filter(|trace| trace.to_str().is_ok_and(|text| TraceId::of(text).is_some())).cloned();
        if says(headers, "prefer", "respond-async") {
            asking.put("mode", "task".into(), "Prefer")?;
        }
        if asking.header.get("mode").is_some_and(|mode| mode == "task") {
            asking.wants = Wants::Task;
        } else if says(headers, header::ACCEPT.as_str(), "text/event-stream") {
            asking.wants = Wants::Stream;
            asking.header.insert("stream".to_owned(), true.into());
            asking.header.entry("credit").or_insert_with(|| window.into());
        }
        Ok(asking)
    }

    /// The envelope, as JSON. The body is one value, or nothing.
    pub(super) fn with_body(&self, body: &str) -> String {
        let body = if body.trim_ascii().is_empty() { "null" } else { body };
        // What is no single value is not an array of three with it, and refused as such.
        format!("[10,{},{body}]", Value::Object(self.header.clone()))
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        let Some((_, key, takes, _)) = OPTIONS.iter().find(|(own, ..)| *own == name) else {
            return Err(invalid(name, format!("there is no parameter {name:?}")));
        };
        let number =
            || value.parse::<u64>().map_err(|_| invalid(name, format!("{name} takes a number from 0")));
        let value = match takes {
            Takes::Text => value.into(),
            Takes::Count => number()?.into(),
            Takes::Flag => {
                let flag = value.parse::<bool>();
                flag.map_err(|_| invalid(name, format!("{name} takes true or false")))?.into()
            }
            Takes::CountOrText => value.parse::<u64>().map_or_else(|_| value.into(), Value::from),
            Takes::Json => serde_json::from_str(value)
                .map_err(|error| invalid(name, format!("{name} takes JSON: {error}")))?,
            Takes::Texts => {
                let list = self.header.entry(*key).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut().into_iter().for_each(|list| list.push(value.into()));
                return Ok(());
            }
            Takes::Labels => {
                let Some((label, value)) = value.split_once('=') else {
                    return Err(invalid(name, format!("{name} takes key=value")));
                };
                let map = self.header.entry(*key).or_insert_with(|| Value::Object(Map::new()));
                let taken = map.as_object_mut().and_then(|map| map.insert(label.to_owned(), value.into()));
                return if taken.is_some() { Err(twice(name)) } else { Ok(()) };
            }
        };
        self.put(key, value, name)
    }

    fn put(&mut self, key: &str, value: Value, named: &str) -> Result<(), Problem> {
        // The same thing said twice in the same way is no contradiction.
        match self.header.insert(key.to_owned(), value) {
            Some(before) if self.header.get(key) != Some(&before) => Err(twice(named)),
            Some(_) | None => Ok(()),
        }
    }
}

fn twice(name: &str) -> Problem {
    invalid(name, format!("{name} is said twice, or in two ways"))
}

/// The text of a header that stands there once at the most.
fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut all = headers.get_all(name).iter();
    let Some(value) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(twice(name));
    }
    value.to_str().map(Some).map_err(|_| invalid(name, format!("{name} has to be ASCII")))
}

/// Whether a list has this item, whatever parameters that has.
fn says(headers: &HeaderMap, name: &str, item: &str) -> bool {
    let all = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut items = all.flat_map(|value| value.split(','));
    items.any(|own| own.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(item))
}

fn milliseconds(seconds: &str) -> Result<u64, Problem> {
    let plain = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = seconds.parse::<f64>().ok().filter(|_| plain);
    let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ms = time.and_then(|time| u64::try_from(time.as_millis()).ok()).filter(|ms| *ms > 0);
    ms.ok_or_else(|| {
        invalid("Request-Timeout", "Request-Timeout takes a number of seconds above 0".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(query: &str, lines: &[(&'static str, &'static str)]) -> Result<Asking, Problem> {
        let headers = lines
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_static(value)));
        Asking::read("a.b", Some(query), &headers.collect(), 3)
    }

    fn header_of(query: &str, lines: &[(&'static str, &'static str)]) -> Value {
        Value::Object(read(query, lines).unwrap().header)
    }

    #[test]
    fn parameters_and_headers_become_the_keys_of_a_call() {
        assert_eq!(header_of("", &[]), json!({"id": 1, "capability": "a.b"}));
        let query =
            "agent=x&agent=y&select=2&label=zone%3Deu&label=tier=1=2&retries=0&queue=false&version=%5E1.2";
        let lines =
            [("idempotency-key", "\"k 1\""), ("request-timeout", "1.5"), ("prefer", "wait=5, Respond-Async")];
        assert_eq!(
            header_of(query, &lines),
            json!({
                "id": 1, "capability": "a.b", "agents": ["x", "y"], "select": 2,
                "labels": {"zone": "eu", "tier": "1=2"}, "retries": 0, "queue": false, "version": "^1.2",
                "request_id": "k 1", "timeout_ms": 1500, "mode": "task",
            })
        );
        assert_eq!(
            header_of("select=all&expected_output=%7B%7D", &[("accept", "text/event-stream;q=1, */*")]),
            json!({
                "id": 1, "capability": "a.b", "select": "all", "expected_output": {}, "stream": true, "credit": 3,
            })
        );
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (query, lines, field) in [
            ("agents=x", &[][..], "agents"),
            ("retries=-1", &[], "retries"),
            ("retries=1&retries=2", &[], "retries"),
            ("queue=yes", &[], "queue"),
            ("label=zone", &[], "label"),
            ("label=a=1&label=a=2", &[], "label"),
            ("expected_output=%7B", &[], "expected_output"),
            ("timeout_ms=1", &[("request-timeout", "1")], "Request-Timeout"),
            ("", &[("request-timeout", "0")], "Request-Timeout"),
            ("", &[("request-timeout", "-1")], "Request-Timeout"),
            ("", &[("request-timeout", "1e3")], "Request-Timeout"),
            ("", &[("request-timeout", "99999999999999999999999")], "Request-Timeout"),
            ("mode=notify", &[("prefer", "respond-async")], "Prefer"),
        ] {
            let problem = read(query, lines).unwrap_err();
            assert_eq!((problem.status.as_u16(), &problem.details["field"]), (422, &json!(field)), "{query}");
        }
        let mut headers = HeaderMap::new();
        headers.append("idempotency-key", HeaderValue::from_static("a"));
        headers.append("idempotency-key", HeaderValue::from_static("b"));
        assert!(Asking::read("a.b", None, &headers, 3).is_err(), "which of them counts?");
    }

    #[test]
    fn a_trace_is_told_back_where_it_is_one() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read("", &[("traceparent", good)]).unwrap().traceparent.unwrap(), good);
        assert_eq!(read("", &[("traceparent", "nonsense")]).unwrap().traceparent, None);
    }

    #[test]
    fn a_body_is_one_value_or_none() {
        let asking = Asking::plain("a");
        let header = "[10,{\"capability\":\"a\",\"id\":1},";
        assert_eq!(asking.with_body(" \n"), format!("{header}null]"));
        assert_eq!(asking.with_body("{\"x\":1}"), format!("{header}{{\"x\":1}}]"));
    }
}
