//! What the HTTP listener bounds: the time of heads and bodies, how much is under way, and what is open when a token ends.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::{JSON, bearer, reload, revoke_all, token};
use raw::http::{Answer, ask, field, get, send, status};
use raw::{Hub, RawClient, hub, kind, within};
use rmpv::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const EVENTS: &str = "Accept: text/event-stream\r\n";
/// As docs/http.md says.
const REQUESTS: usize = 512;
const STREAMS: usize = 256;

/// A hub whose listener waits for nobody for long.
fn impatient() -> Hub {
    Hub::serve_in(hub::OPEN, "", |dir| {
        let file = dir.join("agent-reach.toml");
        let text = std::fs::read_to_string(&file).expect("the configuration");
        let text = text.replace("[metrics]", "header_timeout_ms = 100\nbody_timeout_ms = 100\n[metrics]");
        std::fs::write(&file, text).expect("the configuration");
    })
}

/// A hub, the header lines of an operator's token, and a provider of `x` with room for everything.
async fn world() -> (Hub, String, RawClient) {
    let hub = Hub::serve(hub::OPEN, "");
    let lines = format!("{}{JSON}", bearer(&token(&hub, "olga", "operator").await));
    let provider = hub.agent_with("provider", &["x"], map! {"max_concurrency" => 2000}).await;
    (hub, lines, provider)
}

/// All that is left of an answer.
async fn rest(client: &mut TcpStream) -> Answer {
    within("the whole answer", async {
        let mut bytes = Vec::new();
        client.read_to_end(&mut bytes).await.expect("an answer");
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP head");
        Answer { status: status(head), head: head.to_owned(), body: body.to_owned() }
    })
    .await
}

/// The head of an answer, whose body goes on.
async fn head(client: &mut TcpStream) -> String {
    within("a head", async {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
            assert_ne!(client.read_buf(&mut bytes).await.expect("bytes"), 0, "it ended");
        }
        String::from_utf8(bytes).expect("UTF-8")
    })
    .await
}

fn assert_full(answer: &Answer, what: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (503, "overloaded"), "{answer:?}");
    assert_eq!(answer.field("retry-after"), Some("1"));
    assert!(answer.body.contains(&format!("{what} are under way, which is the limit")), "{answer:?}");
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_answered_with_408() {
    let hub = impatient();
    let lines = bearer(&token(&hub, "olga", "operator").await);
    for (path, body) in [("/v1/call/x", "{\"half\":"), ("/v1/call/x", ""), ("/v1/session", "{\"token\":")] {
        let mut client = TcpStream::connect(hub.http()).await.expect("the listener");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\n{lines}{JSON}Content-Length: 100\r\n\r\n{body}"
        );
        client.write_all(head.as_bytes()).await.expect("sent");
        let answer = rest(&mut client).await;
        assert_eq!((answer.status, answer.code().as_str()), (408, "invalid_request"), "{path} {answer:?}");
        assert_eq!(answer.json()["detail"], "the body did not come within 100 ms");
    }
    assert_eq!(get(hub.http(), "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_head_that_does_not_come_in_time_ends_the_connection() {
    let hub = impatient();
    for half in ["", "G", "GET /healthz HTTP/1.1\r\nHost: loc"] {
        let mut client = TcpStream::connect(hub.http()).await.expect("the listener");
        client.write_all(half.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        within("the end of the connection", client.read_to_end(&mut answer)).await.expect("an end");
        assert_eq!(String::from_utf8_lossy(&answer), "", "{half:?}");
    }
    assert_eq!(get(hub.http(), "/healthz").await.status, 200);
}

#[tokio::test]
async fn past_so_many_requests_the_next_is_told_to_come_again_and_one_that_ends_makes_room() {
    let (hub, lines, mut provider) = world().await;
    let (mut open, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        open.push(send(hub.http(), "POST", "/v1/call/x", &lines, "1").await);
        // Each is under way when the provider has it, which takes it at once: all together may be long in coming.
        calls.push(provider.taken().await);
    }
    assert_full(&ask(hub.http(), "POST", "/v1/call/x", &lines, "1").await, "512 requests");
    assert_full(&ask(hub.http(), "GET", "/v1/agents", &lines, "").await, "512 requests");
    assert_eq!(get(hub.http(), "/healthz").await.status, 200, "health is answered meanwhile");
    // Which client's it is nobody knows: all of them are read until one has its answer.
    provider.complete(&calls[0], Value::from("done")).await;
    let reads = open.iter_mut().map(|client| Box::pin(rest(client)));
    let (first, _, _) = futures_util::future::select_all(reads).await;
    assert_eq!((first.status, first.body.as_str()), (200, "\"done\""), "{first:?}");
    assert_eq!(ask(hub.http(), "GET", "/v1/agents", &lines, "").await.status, 200);
}

#[tokio::test]
async fn past_so_many_streams_the_next_is_told_to_come_again_and_calls_go_on() {
    let (hub, lines, mut provider) = world().await;
    let streaming = format!("{lines}{EVENTS}");
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        open.push(send(hub.http(), "POST", "/v1/call/hub.events.watch", &streaming, "{}").await);
    }
    for client in &mut open {
        let head = head(client).await;
        assert_eq!((status(&head), field(&head, "content-type")), (200, Some("text/event-stream")), "{head}");
    }
    assert_full(&ask(hub.http(), "POST", "/v1/call/x", &streaming, "1").await, "256 streams");
    let (answer, ()) = tokio::join!(ask(hub.http(), "POST", "/v1/call/x", &lines, "1"), async {
        let call = provider.taken().await;
        provider.complete(&call, Value::from(2)).await;
    });
    assert_eq!((answer.status, answer.body.as_str()), (200, "2"), "{answer:?}");
}

#[tokio::test]
async fn what_is_open_when_its_token_is_taken_back_ends_with_403_and_a_stream_with_an_error() {
    let (hub, lines, mut provider) = world().await;
    let mut waiting = send(hub.http(), "POST", "/v1/call/x", &lines, "1").await;
    let call = provider.taken().await;
    let mut streaming = send(hub.http(), "POST", "/v1/call/x", &format!("{lines}{EVENTS}"), "2").await;
    let stream = provider.taken().await;
    provider.chunk(&stream, 0, Value::from("piece")).await;
    head(&mut streaming).await;
    // The client has taken the piece, so that there may be another.
    provider.expect(kind::CREDIT, "credit").await;
    let named = format!("{lines}Idempotency-Key: one\r\n");
    let mut keyed = send(hub.http(), "POST", "/v1/call/x", &named, "3").await;
    let third = provider.expect(kind::CALL, "the third call").await;
    revoke_all(&hub).await;
    for client in [&mut waiting, &mut keyed] {
        let answer = rest(client).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "unauthorized"), "{answer:?}");
    }
    let mut text = String::new();
    within("the end of the stream", streaming.read_to_string(&mut text)).await.expect("an end");
    assert!(text.contains("event: error\n") && text.contains("\"code\":\"unauthorized\""), "{text}");
    // The provider need not go on with any of them.
    let mut cancelled = Vec::new();
    while cancelled.len() < 3 {
        let heard = provider.envelope("CANCEL").await;
        if heard.kind == kind::CANCEL {
            cancelled.push(heard.uint("id"));
        }
    }
    cancelled.sort_unstable();
    assert_eq!(cancelled, [call.uint("id"), stream.uint("id"), third.uint("id")]);
    assert_eq!(ask(hub.http(), "POST", "/v1/call/x", &lines, "1").await.status, 401);
}

#[tokio::test]
async fn a_task_goes_on_when_its_token_is_taken_back() {
    let (hub, lines, mut provider) = world().await;
    let stored =
        ask(hub.http(), "POST", "/v1/call/x", &format!("{lines}Prefer: respond-async\r\n"), "1").await;
    assert_eq!(stored.status, 202, "{stored:?}");
    let call = provider.taken().await;
    provider.accept(&call).await;
    let tokens = hub.dir().join("tokens.toml");
    let given = std::fs::read_to_string(&tokens).expect("the tokens");
    revoke_all(&hub).await;
    let address = stored.field("location").expect("an address").to_owned();
    assert_eq!(ask(hub.http(), "GET", &address, &lines, "").await.status, 401);
    provider.complete(&call, Value::from(2)).await;
    // Who gives the token back sees how it ended.
    std::fs::write(&tokens, given).expect("the tokens");
    reload(&hub).await;
    let task = serde_json::json!({"task_id": stored.json()["task_id"]}).to_string();
    let watching = format!("{lines}{EVENTS}");
    let mut events = send(hub.http(), "POST", "/v1/call/hub.tasks.watch", &watching, &task).await;
    let mut heard = Vec::new();
    within("the end of the task", async {
        while !String::from_utf8_lossy(&heard).contains("SUCCEEDED") {
            assert_ne!(events.read_buf(&mut heard).await.expect("bytes"), 0, "it ended");
        }
    })
    .await;
    let shown = ask(hub.http(), "GET", &address, &lines, "").await.json();
    assert_eq!((&shown["state"], &shown["result"]), (&"SUCCEEDED".into(), &2.into()), "{shown}");
}
