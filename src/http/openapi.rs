//! `GET /openapi.json`: what is served, in the words of OpenAPI 3.1.
//!
//! The paths are those of the routes themselves ([`Routes`](super::routes::Routes)), and a test fails when one of them is not
//! described here, or something is described that is not served.

use agent_reach_protocol::limits::{SUBPROTOCOL_JSON, SUBPROTOCOL_MSGPACK};
use serde_json::{Map, Value, json};

use super::api::{OPTIONS, Takes};
use super::gate::COOKIE;
use super::routes::Verb;

/// What holds for requests of pages.
const ORIGIN: &str =
    "Of a page: this listener's own, or one of http.allowed_origins; else 403. With a session it is needed";

/// Where the document is.
pub(super) const PATH: &str = "/openapi.json";

/// An operation as it is described, and whether it needs a token or a session.
struct Operation {
    summary: &'static str,
    open: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    /// Answers that are no problem.
    good: Vec<(&'static str, Value)>,
    /// Statuses of problems.
    problems: &'static [u16],
}

/// The document, of these routes.
pub(super) fn document(listed: &[(Verb, &'static str)]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for (verb, path) in listed {
        let Some(operation) = describe(*verb, path) else { continue };
        let item = paths.entry(*path).or_insert_with(|| Value::Object(Map::new()));
        if let Some(item) = item.as_object_mut() {
            item.insert(verb.word().to_owned(), operation.value());
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agent-Reach",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The HTTP API of an Agent-Reach hub. docs/http.md says it in prose.",
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
            "schemas": {"Problem": problem_schema()},
        },
    })
}

impl Operation {
    fn new(summary: &'static str, problems: &'static [u16]) -> Self {
        Self { summary, open: false, parameters: Vec::new(), body: None, good: Vec::new(), problems }
    }

    fn open(mut self) -> Self {
        self.open = true;
        self
    }

    fn with(mut self, parameters: Vec<Value>) -> Self {
        self.parameters = parameters;
        self
    }

    fn taking(mut self, required: bool, schema: Value) -> Self {
        let media = json!({"application/json": {"schema": schema}});
        self.body = Some(json!({"required": required, "content": media}));
        self
    }

    fn answering(mut self, status: &'static str, description: &str, content: Value) -> Self {
        let mut response = json!({"description": description});
        if let (Some(response), false) = (response.as_object_mut(), content.is_null()) {
            response.insert("content".to_owned(), content);
        }
        self.good.push((status, response));
        self
    }

    /// Names a header of an answer that stands here already.
    fn telling(mut self, status: &str, name: &str, description: &str) -> Self {
        let headers = json!({name: {"description": description, "schema": {"type": "string"}}});
        let answers = self.good.iter_mut().filter(|(own, _)| *own == status);
        for response in answers.filter_map(|(_, response)| response.as_object_mut()) {
            response.insert("headers".to_owned(), headers.clone());
        }
        self
    }

    fn value(self) -> Value {
        let mut responses: Map<String, Value> =
            self.good.into_iter().map(|(status, response)| (status.to_owned(), response)).collect();
        // Every request may name a host that is not this hub's.
        for status in self.problems.iter().chain(&[421]) {
            responses.insert(status.to_string(), problem_response(*status));
        }
        let security = if self.open { json!([]) } else { json!([{"token": []}, {"session": []}]) };
        let mut value = json!({
            "summary": self.summary, "security": security, "parameters": self.parameters, "responses": responses,
        });
        if let (Some(value), Some(body)) = (value.as_object_mut(), self.body) {
            value.insert("requestBody".to_owned(), body);
        }
        value
    }
}

/// What is served under a method and path.
fn describe(verb: Verb, path: &str) -> Option<Operation> {
    let html = || json!({"text/html": {"schema": {"type": "string"}}});
    let text = || json!({"text/plain": {"schema": {"type": "string"}}});
    let map = || of_json(json!({"type": "object"}));
    Some(match (verb, path) {
        (Verb::Get, "/healthz") => {
            Operation::new("Whether the process answers", &[]).open().answering("200", "It does", text())
        }
        (Verb::Get, "/readyz") => Operation::new("Whether the hub takes all of its work", &[])
            .open()
            .answering("200", "It does", text())
            .answering("503", "Why it does not, in a word", text()),
        (Verb::Get, "/") => Operation::new("The console", &[429, 503])
            .open()
            .with(vec![query(
                "token",
                json!({"type": "string"}),
                "Becomes a session, and leaves the address",
            )])
            .answering("200", "The page", html())
            .answering("303", "A session was opened", Value::Null)
            .answering("304", "The page has not changed", Value::Null)
            .answering("401", "The token is not one of this hub's, or was used before", html())
            .answering("403", "The link was not opened as a page", html()),
        (Verb::Get, PATH) => {
            Operation::new("This document", &[]).open().answering("200", "The document", map())
        }
        (Verb::Get | Verb::Post | Verb::Delete, _) => return describe_api(verb, path),
    })
}

/// The same, of what stands under `/v1`.
fn describe_api(verb: Verb, path: &str) -> Option<Operation> {
    let map = || of_json(json!({"type": "object"}));
    Some(match (verb, path) {
        (Verb::Get, "/v1/connect") => Operation::new(
            "The WebSocket, docs/protocol.md; 400 to what is no upgrade, or offers neither subprotocol",
            &[400, 401, 403, 429, 503],
        )
        .with(upgrade_parameters())
        .answering("101", "The WebSocket is open", Value::Null)
        .telling("101", "Sec-WebSocket-Protocol", "The subprotocol that was chosen"),
        (Verb::Post, "/v1/session") => {
            Operation::new("Log in: a cookie for a token", &[401, 403, 408, 413, 415, 422, 429, 503])
                .open()
                .with(vec![in_header("Origin", json!({"type": "string"}), ORIGIN)])
                .taking(
                    true,
                    json!({
                        "type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"],
                        "additionalProperties": false,
                    }),
                )
                .answering("204", "The session is open, and its cookie set", Value::Null)
                .telling("204", "Set-Cookie", "HttpOnly, SameSite=Strict, 12 hours")
        }
        (Verb::Get, "/v1/session") => Operation::new("Who this is", &[401, 403, 429, 503]).answering(
            "200",
            "Whose token or session it is",
            of_json(session_schema()),
        ),
        (Verb::Delete, "/v1/session") => Operation::new("Log out", &[401, 403, 429, 503])
            .with(vec![in_header("Origin", json!({"type": "string"}), ORIGIN)])
            .answering("204", "The session is ended", Value::Null)
            .telling("204", "Set-Cookie", "Takes the cookie back"),
        (Verb::Post, "/v1/call/{capability}") => call(),
        (Verb::Get, "/v1/agents") => {
            Operation::new("The agents that are connected", &[401, 403, 422, 429, 503])
                .with(list_parameters(&["agent_id", "capability", "status", "after"], true))
                .answering(
                    "200",
                    "The agents, and more: true where there are more",
                    of_json(list_schema("agents")),
                )
        }
        (Verb::Get, "/v1/capabilities") => {
            Operation::new("What is offered, and by whom", &[401, 403, 422, 429, 503])
                .with(list_parameters(&["name", "after"], false))
                .answering("200", "The capabilities", of_json(list_schema("capabilities")))
        }
        (Verb::Get, "/v1/tasks/{task_id}") => {
            Operation::new("A task of one's own", &[401, 403, 404, 429, 503])
                .with(vec![in_path("task_id", 256)])
                .answering("200", "Its state, and its result or error once it has ended", map())
        }
        (Verb::Delete, "/v1/tasks/{task_id}") => {
            Operation::new("Cancel a task of one's own", &[401, 403, 404, 429, 503])
                .with(vec![in_path("task_id", 256)])
                .answering("200", "Its state, and whether this ended it", map())
        }
        (Verb::Get | Verb::Post | Verb::Delete, _) => return None,
    })
}

fn call() -> Operation {
    let problems = &[400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 501, 502, 503, 504];
    let headers = [
        (
            "Idempotency-Key",
            "The request_id: one business intent, which runs once",
            json!({"type": "string", "maxLength": 128}),
        ),
        ("Prefer", "respond-async makes a task of the call", json!({"type": "string"})),
        (
            "Request-Timeout",
            "Time for the work, in seconds",
            json!({"type": "number", "exclusiveMinimum": 0}),
        ),
        ("traceparent", "The trace it belongs to (W3C Trace Context)", json!({"type": "string"})),
        ("tracestate", "The same", json!({"type": "string"})),
    ];
    let headers = headers.into_iter().map(|(name, description, schema)| in_header(name, schema, description));
    let options = OPTIONS
        .iter()
        .map(|(name, _, takes, description)| query(name, option_schema(name, *takes), description));
    let results = json!({
        "application/json": {"schema": {}},
        "text/event-stream": {"schema": {"type": "string"}},
    });
    Operation::new("Call a capability", problems)
        .with([in_path("capability", 512)].into_iter().chain(headers).chain(options).collect())
        .taking(false, json!({}))
        .answering(
            "200",
            "What it answered; of several agents, results and summary; as a stream, events",
            results,
        )
        .answering(
            "202",
            "The task is stored, and is where Location says",
            of_json(json!({
                "type": "object", "properties": {"task_id": {"type": "string"}}, "required": ["task_id"],
            })),
        )
}

fn option_schema(name: &str, takes: Takes) -> Value {
    match takes {
        Takes::Text => match name {
            "policy" => json!({"enum": ["least_loaded", "round_robin", "random"]}),
            "priority" => json!({"enum": ["low", "normal", "high"]}),
            "mode" => json!({"enum": ["call", "notify", "task"]}),
            _ => json!({"type": "string", "minLength": 1}),
        },
        Takes::Count => json!({"type": "integer", "minimum": 0}),
        Takes::Flag => json!({"type": "boolean"}),
        Takes::CountOrText => json!({"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["one", "all"]}]}),
        Takes::Json => json!({"type": "string", "contentMediaType": "application/schema+json"}),
        Takes::Texts => json!({"type": "array", "items": {"type": "string", "minLength": 1}}),
        Takes::Labels => json!({"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.*$"}}),
    }
}

fn query(name: &str, schema: Value, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

fn in_header(name: &str, schema: Value, description: &str) -> Value {
    json!({"name": name, "in": "header", "description": description, "schema": schema})
}

/// What makes a request one for a WebSocket (RFC 6455).
fn upgrade_parameters() -> Vec<Value> {
    let protocols = [SUBPROTOCOL_MSGPACK, SUBPROTOCOL_JSON];
    let required = |name, schema, description| {
        let mut header = in_header(name, schema, description);
        if let Some(header) = header.as_object_mut() {
            header.insert("required".to_owned(), true.into());
        }
        header
    };
    vec![
        required("Connection", json!({"enum": ["Upgrade"]}), "Upgrade"),
        required("Upgrade", json!({"enum": ["websocket"]}), "websocket"),
        required("Sec-WebSocket-Version", json!({"enum": ["13"]}), "13"),
        required(
            "Sec-WebSocket-Key",
            json!({"type": "string", "pattern": "^[A-Za-z0-9+/]{22}==$"}),
            "16 bytes in Base64",
        ),
        required(
            "Sec-WebSocket-Protocol",
            json!({"enum": protocols}),
            "What is spoken; several, with commas",
        ),
        in_header("Origin", json!({"type": "string"}), ORIGIN),
    ]
}

fn in_path(name: &str, most: usize) -> Value {
    json!({
        "name": name, "in": "path", "required": true,
        "schema": {"type": "string", "minLength": 1, "maxLength": most},
    })
}

fn list_parameters(texts: &[&str], labels: bool) -> Vec<Value> {
    let text = |name: &&str| query(name, json!({"type": "string"}), "A filter, or where to go on");
    let limit =
        query("limit", json!({"type": "integer", "minimum": 1, "maximum": u32::MAX}), "Most that are listed");
    let labels =
        labels.then(|| query("label", option_schema("label", Takes::Labels), "A label, as key=value"));
    texts.iter().map(text).chain([limit]).chain(labels).collect()
}

fn of_json(schema: Value) -> Value {
    json!({"application/json": {"schema": schema}})
}

fn list_schema(name: &str) -> Value {
    let items = json!({"type": "array", "items": {"type": "object"}});
    json!({"type": "object", "properties": {name: items, "more": {"type": "boolean"}}, "required": [name]})
}

fn session_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "identity": {"type": "string"}, "agent_id": {"type": "string"}, "role": {"enum": ["viewer", "operator"]},
        },
        "required": ["identity", "agent_id", "role"],
    })
}

fn problem_schema() -> Value {
    json!({
        "type": "object",
        "description": "RFC 9457, with a code of docs/protocol.md",
        "properties": {
            "status": {"type": "integer"}, "title": {"type": "string"}, "code": {"type": "string"},
            "detail": {"type": "string"}, "retryable": {"type": "boolean"}, "details": {"type": "object"},
        },
        "required": ["status", "title", "code", "detail", "retryable", "details"],
    })
}

fn problem_response(status: u16) -> Value {
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let reason = axum::http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut response = json!({
        "description": reason.unwrap_or_default(), "content": {"application/problem+json": {"schema": schema}},
    });
    if let (Some(response), 429 | 503) = (response.as_object_mut(), status) {
        let header =
            json!({"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}});
        response.insert("headers".to_owned(), header);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_served_is_not_described() {
        assert!(describe(Verb::Post, "/").is_none() && describe(Verb::Get, "/v1/nothing").is_none());
        assert_eq!(document(&[])["paths"], json!({}));
    }
}
