//! `Accept: text/event-stream`: what a provider sends, as it sends it, and no faster than it is read.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::{JSON, bearer, token};
use raw::http::{ask, send};
use raw::{Hub, RawClient, hub};
use rmpv::Value;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const EVENTS: &str = "Accept: text/event-stream\r\n";

async fn world(config: &str) -> (Hub, RawClient, String) {
    let hub = Hub::serve(hub::OPEN, config);
    let lines = format!("{}{JSON}{EVENTS}", bearer(&token(&hub, "olga", "operator").await));
    let provider = hub.agent("provider", &["x"]).await;
    (hub, provider, lines)
}

/// Events of an answer: name and data.
fn events(body: &str) -> Vec<(String, serde_json::Value)> {
    let events = body.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':'));
    let event = |text: &str| {
        let (name, data) = text.split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name").to_owned();
        let data = data.strip_prefix("data: ").expect("data");
        (name, serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}")))
    };
    events.map(event).collect()
}

/// Reads until this is there.
async fn until(client: &mut TcpStream, text: &str) -> String {
    let mut answer = Vec::new();
    raw::within(text, async {
        while !String::from_utf8_lossy(&answer).contains(text) {
            assert_ne!(client.read_buf(&mut answer).await.expect("bytes"), 0, "no {text}");
        }
    })
    .await;
    String::from_utf8(answer).expect("UTF-8")
}

#[tokio::test]
async fn pieces_come_as_events_and_the_result_ends_them() {
    let (hub, mut provider, lines) = world("").await;
    let (answer, call) = tokio::join!(ask(hub.http(), "POST", "/v1/call/x", &lines, "1"), async {
        let call = provider.taken().await;
        provider.accept(&call).await;
        for seq in 0..2 {
            provider.chunk(&call, seq, map! {"n" => seq}).await;
        }
        provider.complete(&call, Value::from("end")).await;
        call
    });
    assert_eq!((answer.status, answer.field("content-type")), (200, Some("text/event-stream")), "{answer:?}");
    assert_eq!(answer.field("agent-reach-call-id"), Some(call.text("call_id")));
    let events = events(&answer.body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["accept", "chunk", "chunk", "result"], "{answer:?}");
    assert_eq!(events[0].1["target"], "provider");
    assert_eq!(events[1].1, json!({"seq": 0, "body": {"n": 0}}));
    assert_eq!(events[2].1, json!({"seq": 1, "body": {"n": 1}}));
    assert_eq!((&events[3].1["status"], &events[3].1["body"]), (&json!("completed"), &json!("end")));
}

#[tokio::test]
async fn what_fails_before_anything_came_has_its_status_and_later_it_is_an_event() {
    let (hub, mut provider, lines) = world("").await;
    let refused = ask(hub.http(), "POST", "/v1/call/never.offered", &lines, "").await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "no_capability"));
    let (answer, ()) = tokio::join!(ask(hub.http(), "POST", "/v1/call/x", &lines, ""), async {
        let call = provider.taken().await;
        provider.chunk(&call, 0, Value::Nil).await;
        provider.fail(&call, map! {"code" => "handler_error", "message" => "no", "retryable" => false}).await;
    });
    assert_eq!(answer.status, 200);
    let events = events(&answer.body);
    assert_eq!(events.len(), 2, "{answer:?}");
    assert_eq!((events[1].0.as_str(), &events[1].1["code"]), ("error", &json!("handler_error")));
    assert_eq!(events[1].1["status"], 502, "the problem document: {answer:?}");
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_provider_and_one_that_reads_again_goes_on() {
    let (hub, mut provider, lines) = world("").await;
    let mut client = send(hub.http(), "POST", "/v1/call/x", &lines, "").await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    let piece = Value::from("x".repeat(256 * 1024));
    let mut window = call.uint("credit");
    assert_eq!(window, 3, "so many of the longest messages fit beside a result");
    let mut sent = 0;
    // With no more credit it has to wait. What the sockets on the way hold is far less than this.
    while sent < 400 && window > 0 {
        provider.chunk(&call, sent, piece.clone()).await;
        (sent, window) = (sent + 1, window - 1);
        if window == 0 {
            // Whether more may come is known when the hub has dealt with what was sent: a round trip behind it.
            let asked = provider.call("hub.stats", map! {}, Value::Nil).await;
            loop {
                let heard = provider.envelope("CREDIT or RESULT").await;
                match heard.kind {
                    raw::kind::CREDIT => window += heard.uint("n"),
                    _ if heard.kind == raw::kind::RESULT && heard.uint("id") == asked => break,
                    _ => {}
                }
            }
        }
    }
    assert!(sent < 400, "the provider was not stopped");
    let mut read = vec![0; 1 << 20];
    let mut taken = 0;
    raw::within("credit for what was read", async {
        loop {
            tokio::select! {
                got = client.read(&mut read) => taken += got.expect("bytes"),
                heard = provider.envelope("CREDIT") => {
                    assert_eq!(heard.kind, raw::kind::CREDIT, "{heard:?}");
                    break;
                }
            }
        }
    })
    .await;
    assert!(taken > 0);
    provider.complete(&call, Value::Nil).await;
    let end = until(&mut client, "event: result").await;
    assert!(end.contains("event: result"));
    assert!(!hub.log().contains("slow_consumer"), "it was no slow consumer");
}

#[tokio::test]
async fn a_stream_is_cancelled_when_its_client_goes_away() {
    let (hub, mut provider, lines) = world("").await;
    let mut client = send(hub.http(), "POST", "/v1/call/x?credit=100", &lines, "").await;
    let call = provider.taken().await;
    assert_eq!(call.uint("credit"), 100);
    provider.chunk(&call, 0, Value::Nil).await;
    until(&mut client, "event: chunk").await;
    client.shutdown().await.expect("closed");
    drop(client);
    loop {
        let heard = provider.envelope("CANCEL").await;
        if heard.kind == raw::kind::CANCEL {
            assert_eq!(heard.uint("id"), call.uint("id"));
            break;
        }
    }
}

#[tokio::test]
async fn a_watch_of_the_hub_is_a_stream_too() {
    let (hub, _provider, lines) = world("").await;
    let mut client = send(hub.http(), "POST", "/v1/call/hub.events.watch", &lines, "").await;
    let begin = until(&mut client, "event: chunk").await;
    assert!(begin.contains("text/event-stream"), "{begin}");
    let _new = hub.agent("newcomer", &[]).await;
    until(&mut client, "newcomer").await;
}
