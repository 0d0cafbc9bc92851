//! `POST /v1/call/{capability}` and what the hub itself answers, as a client without an SDK sees them.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::{JSON, bearer, token};
use raw::http::{Answer, ask, send};
use raw::{Envelope, Hub, RawClient, hub};
use rmpv::Value;
use serde_json::json;

struct World {
    hub: Hub,
    provider: RawClient,
    operator: String,
}

async fn world() -> World {
    let hub = Hub::serve(hub::OPEN, "");
    let operator = token(&hub, "olga", "operator").await;
    let provider = hub.agent("provider", &["x"]).await;
    World { hub, provider, operator }
}

impl World {
    async fn post(&self, path: &str, lines: &str, body: &str) -> Answer {
        ask(self.hub.http(), "POST", path, &format!("{}{JSON}{lines}", bearer(&self.operator)), body).await
    }

    /// A call that the provider answers.
    async fn answered(
        &mut self,
        path: &str,
        lines: &str,
        body: &str,
        answers: impl AsyncFnOnce(&mut RawClient, &Envelope),
    ) -> (Answer, Envelope) {
        let lines = format!("{}{JSON}{lines}", bearer(&self.operator));
        let provider = &mut self.provider;
        let work = async move {
            let call = provider.taken().await;
            answers(provider, &call).await;
            call
        };
        tokio::join!(ask(self.hub.http(), "POST", path, &lines, body), work)
    }
}

#[tokio::test]
async fn json_goes_in_and_comes_out_and_the_agent_sees_what_every_caller_sends() {
    let mut world = world().await;
    let body = r#"{"n": 9007199254740993, "bytes": {"$bin": "AAE="}, "text": "ä"}"#;
    let (answer, call) = world
        .answered("/v1/call/x", "", body, async |provider, call| {
            let answer = map! {"ok" => true, "bytes" => Value::Binary(vec![2]), "big" => u64::MAX};
            provider.complete(call, answer).await;
        })
        .await;
    assert_eq!((call.text("caller"), call.text("capability")), ("olga", "x"));
    let content = call.content();
    assert_eq!(content["n"].as_u64(), Some(9_007_199_254_740_993));
    assert_eq!(content["bytes"], Value::Binary(vec![0, 1]));
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("application/json")), "{answer:?}");
    let expected = json!({"ok": true, "bytes": {"$bin": "Ag=="}, "big": {"$int": "18446744073709551615"}});
    assert_eq!(answer.json(), expected);
    assert_eq!(answer.field("agent-reach-target"), Some("provider"));
    assert_eq!(answer.field("agent-reach-call-id"), Some(call.text("call_id")));
    assert_eq!(answer.field("agent-reach-request-id"), Some(call.text("request_id")));
    assert_eq!(
        (answer.field("agent-reach-duplicate"), answer.field("cache-control")),
        (None, Some("no-store"))
    );
}

#[tokio::test]
async fn no_body_is_nil_in_both_directions() {
    let mut world = world().await;
    let (answer, call) = world
        .answered("/v1/call/x", "", "", async |provider, call| provider.complete(call, Value::Nil).await)
        .await;
    assert_eq!((answer.status, answer.body.as_str(), &call.body), (200, "null", &Value::Nil));
}

#[tokio::test]
async fn headers_and_parameters_say_what_a_call_says() {
    let mut world = world().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let lines =
        format!("Request-Timeout: 7\r\ntraceparent: {trace}\r\ntracestate: a=b\r\nIdempotency-Key: k1\r\n");
    let path = "/v1/call/x?agent=provider&priority=high&label=zone=eu&budget_ms=9000&preferred_timeout_ms=5";
    let (answer, call) = world
        .answered(path, &lines, "1", async |provider, call| provider.complete(call, Value::from(2)).await)
        .await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "2"), "{answer:?}");
    assert_eq!(answer.field("traceparent"), Some(trace));
    assert_eq!(answer.field("agent-reach-request-id"), Some("k1"));
    assert_eq!((call.text("request_id"), call.text("priority")), ("k1", "high"));
    assert_eq!((call.text("traceparent"), call.text("tracestate")), (trace, "a=b"));
    assert_eq!(call.uint("preferred_timeout_ms"), 5);
    assert!(call.uint("deadline_ms") <= 9000, "{call:?}");
    assert_eq!(call.get("labels")["zone"].as_str(), Some("eu"));
}

#[tokio::test]
async fn the_same_key_runs_once_and_another_body_conflicts() {
    let mut world = world().await;
    let key = "Idempotency-Key: \"order-7\"\r\n";
    let (first, _) = world
        .answered("/v1/call/x", key, "{}", async |provider, call| {
            provider.complete(call, Value::from("done")).await
        })
        .await;
    assert_eq!((first.status, first.field("agent-reach-duplicate")), (200, None));
    let again = world.post("/v1/call/x", "Idempotency-Key: order-7\r\n", "{}").await;
    assert_eq!((again.status, again.body.as_str()), (200, "\"done\""));
    assert_eq!(again.field("agent-reach-duplicate"), Some("true"));
    let other = world.post("/v1/call/x", key, "[]").await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency_conflict"));
}

#[tokio::test]
async fn every_failure_has_the_status_of_its_code() {
    let mut world = world().await;
    for (code, status, retry) in [
        ("handler_error", 502, false),
        ("overloaded", 503, true),
        ("rate_limited", 429, true),
        ("invalid_request", 422, false),
        ("schema_mismatch", 422, false),
        ("unsupported", 501, false),
        ("cancelled", 502, false),
    ] {
        let (answer, call) = world
            .answered("/v1/call/x?retries=0", "", "", async |provider, call| {
                let error = map! {"code" => code, "message" => "no", "retryable" => false};
                let header = map! {"id" => call.uint("id"), "status" => "failed", "error" => error};
                provider.send(raw::kind::RESULT, header, Value::Nil).await;
            })
            .await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{answer:?}");
        assert_eq!(answer.field("retry-after").is_some(), retry, "{answer:?}");
        assert_eq!(answer.field("agent-reach-call-id"), Some(call.text("call_id")));
        assert_eq!((&answer.json()["detail"], &answer.json()["retryable"]), (&json!("no"), &json!(retry)));
    }
}

#[tokio::test]
async fn what_the_hub_refuses_has_the_status_of_its_code() {
    let mut world = world().await;
    let viewer = token(&world.hub, "vera", "viewer").await;
    for (path, lines, body, status, code) in [
        ("/v1/call/never.offered", "", "", 404, "no_capability"),
        ("/v1/call/x?agent=nobody", "", "", 503, "no_instance"),
        ("/v1/call/Not%20a%20name", "", "", 422, "invalid_request"),
        ("/v1/call/x?priority=urgent", "", "", 422, "invalid_request"),
        ("/v1/call/x?nonsense=1", "", "", 422, "invalid_request"),
        ("/v1/call/x?mode=later", "", "", 422, "invalid_request"),
        ("/v1/call/x", "Request-Timeout: soon\r\n", "", 422, "invalid_request"),
        ("/v1/call/x", "", "{", 422, "invalid_request"),
        ("/v1/call/x", "", "1,2", 422, "invalid_request"),
        ("/v1/call/x", "", "1],[1", 422, "invalid_request"),
        ("/v1/call/x", "", r#"{"$int": "ten"}"#, 422, "invalid_request"),
        ("/v1/call/hub.agents.get", "", "{}", 422, "invalid_request"),
    ] {
        let answer = world.post(path, lines, body).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path} {body}: {answer:?}");
        assert_eq!(answer.field("retry-after").is_some(), status == 503, "{answer:?}");
    }
    let text = format!("{}Content-Type: text/plain\r\n", bearer(&world.operator));
    assert_eq!(ask(world.hub.http(), "POST", "/v1/call/x", &text, "1").await.status, 415);
    assert_eq!(ask(world.hub.http(), "POST", "/v1/call/x", JSON, "1").await.status, 401);
    let seen = format!("{}{JSON}", bearer(&viewer));
    let refused = ask(world.hub.http(), "POST", "/v1/call/x", &seen, "1").await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "unauthorized"));
    let read = ask(world.hub.http(), "POST", "/v1/call/hub.stats", &seen, "").await;
    assert_eq!(read.status, 200, "a viewer reads: {read:?}");
    let reload = ask(world.hub.http(), "POST", "/v1/call/hub.config.reload", &seen, "").await;
    assert_eq!(reload.status, 403);
    // Nobody of those reached the agent.
    let (answer, _) = world
        .answered("/v1/call/x", "", "", async |provider, call| provider.complete(call, Value::Nil).await)
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn time_that_runs_out_is_a_504() {
    let mut world = world().await;
    let (answer, _) =
        world.answered("/v1/call/x?accept_timeout_ms=20&retries=0", "", "", async |_, _| {}).await;
    assert_eq!((answer.status, answer.code().as_str()), (504, "accept_timeout"));
    world.provider.expect(raw::kind::CANCEL, "CANCEL").await;
    let (answer, _) = world
        .answered("/v1/call/x?retries=0", "Request-Timeout: 0.05\r\n", "", async |provider, call| {
            provider.accept(call).await;
        })
        .await;
    assert_eq!((answer.status, answer.code().as_str()), (504, "timeout"));
}

#[tokio::test]
async fn a_body_over_the_longest_message_is_a_413() {
    let hub = Hub::serve(hub::OPEN, "[limits]\nmax_message = 2048\n");
    let lines = format!("{}{JSON}", bearer(&token(&hub, "olga", "operator").await));
    let long = format!("\"{}\"", "x".repeat(3000));
    let answer = ask(hub.http(), "POST", "/v1/call/x", &lines, &long).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "payload_too_large"));
    let whole = format!("\"{}\"", "x".repeat(2040));
    let answer = ask(hub.http(), "POST", "/v1/call/x", &lines, &whole).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "payload_too_large"), "with its header it is");
}

#[tokio::test]
async fn a_fan_out_answers_with_all_results() {
    let mut world = world().await;
    let mut second = world.hub.agent("second", &["x"]).await;
    let lines = format!("{}{JSON}", bearer(&world.operator));
    let (answer, (), ()) = tokio::join!(
        ask(world.hub.http(), "POST", "/v1/call/x?select=all", &lines, ""),
        async {
            let call = world.provider.taken().await;
            world.provider.complete(&call, Value::from(1)).await;
        },
        async {
            let call = second.taken().await;
            second
                .fail(&call, map! {"code" => "handler_error", "message" => "no", "retryable" => false})
                .await;
        }
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut document = answer.json();
    assert_eq!(document["summary"], json!({"targets": 2, "completed": 1, "failed": 1}));
    let results = document["results"].as_array_mut().expect("results");
    results.sort_by_key(|result| result["target"].to_string());
    assert_eq!((&results[0]["body"], &results[0]["status"]), (&json!(1), &json!("completed")));
    assert_eq!(
        (&results[1]["error"]["code"], &results[1]["status"]),
        (&json!("handler_error"), &json!("failed"))
    );
}

#[tokio::test]
async fn a_call_is_cancelled_when_its_client_goes_away() {
    let mut world = world().await;
    let lines = format!("{}{JSON}", bearer(&world.operator));
    let client = send(world.hub.http(), "POST", "/v1/call/x", &lines, "1").await;
    let call = world.provider.taken().await;
    world.provider.accept(&call).await;
    drop(client);
    world.provider.cancelled(&call).await;
}

#[tokio::test]
async fn a_call_with_a_key_waits_for_its_client_to_come_back_and_runs_once() {
    let mut world = world().await;
    let lines = format!("{}{JSON}Idempotency-Key: k\r\n", bearer(&world.operator));
    let client = send(world.hub.http(), "POST", "/v1/call/x", &lines, "1").await;
    let call = world.provider.taken().await;
    world.provider.accept(&call).await;
    drop(client);
    let (answer, ()) = tokio::join!(ask(world.hub.http(), "POST", "/v1/call/x", &lines, "1"), async {
        // A later call shows that the hub has dealt with both by then.
        world.provider.complete(&call, Value::from("once")).await;
    });
    assert_eq!((answer.status, answer.body.as_str()), (200, "\"once\""), "{answer:?}");
    assert_eq!(answer.field("agent-reach-call-id"), Some(call.text("call_id")), "the same call");
}

#[tokio::test]
async fn a_call_with_a_key_is_cancelled_when_its_client_stays_away() {
    let hub = Hub::serve(hub::OPEN, "[liveness]\nresume_ms = 50\n");
    let lines = format!("{}{JSON}Idempotency-Key: k\r\n", bearer(&token(&hub, "olga", "operator").await));
    let mut provider = hub.agent("provider", &["x"]).await;
    let client = send(hub.http(), "POST", "/v1/call/x", &lines, "1").await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    drop(client);
    provider.cancelled(&call).await;
}

#[tokio::test]
async fn agents_and_capabilities_are_listed_with_filters() {
    let world = world().await;
    let second = world.hub.agent("second", &["y", "z"]).await;
    let lines = bearer(&world.operator);
    let get = async |path: &str| ask(world.hub.http(), "GET", path, &lines, "").await;
    let names = |answer: &Answer, list: &str, key: &str| -> Vec<String> {
        let document = answer.json();
        let list = document[list].as_array().unwrap_or_else(|| panic!("{answer:?}"));
        list.iter().map(|item| item[key].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(names(&get("/v1/agents").await, "agents", "agent_id"), ["provider", "second"]);
    assert_eq!(names(&get("/v1/agents?capability=y").await, "agents", "agent_id"), ["second"]);
    assert_eq!(names(&get("/v1/agents?limit=1").await, "agents", "agent_id"), ["provider"]);
    assert_eq!(names(&get("/v1/agents?after=provider").await, "agents", "agent_id"), ["second"]);
    assert_eq!(names(&get("/v1/agents?label=zone=eu").await, "agents", "agent_id"), [""; 0]);
    assert_eq!(names(&get("/v1/capabilities").await, "capabilities", "name"), ["x", "y", "z"]);
    assert_eq!(names(&get("/v1/capabilities?name=z").await, "capabilities", "name"), ["z"]);
    for path in
        ["/v1/agents?limit=0", "/v1/agents?limit=a", "/v1/agents?what=1", "/v1/capabilities?label=a=b"]
    {
        assert_eq!(get(path).await.status, 422, "{path}");
    }
    drop(second);
    for path in ["/v1/agents", "/v1/capabilities", "/v1/tasks/1"] {
        assert_eq!(ask(world.hub.http(), "GET", path, "", "").await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn a_request_does_not_disturb_the_agent_that_has_the_same_token() {
    let mut world = world().await;
    let (answer, _) = world
        .answered("/v1/call/x", "", "", async |provider, call| provider.complete(call, Value::Nil).await)
        .await;
    assert_eq!(answer.status, 200);
    let lines = bearer(&world.operator);
    let agents = ask(world.hub.http(), "GET", "/v1/agents?agent_id=olga", &lines, "").await.json();
    assert_eq!(agents["agents"], json!([]), "who calls over HTTP is no agent");
}
