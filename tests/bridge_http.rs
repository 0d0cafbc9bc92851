//! `agent-reach bridge http`: the real binary between a real hub and a real web service.
#![cfg(test)]

mod bridge_world;
#[macro_use]
mod raw;
mod sdk_world;

use std::net::SocketAddr;
use std::time::Duration;

use agent_reach_sdk::{CallError, Code, ErrorCode, Payload};
use bridge_world::service::{Asked, json, says, serve, serve_tls, silent, streams};
use bridge_world::{Bridge, CAPABILITY, NAME, call, caller, details};
use bytes::Bytes;
use raw::Hub;
use rmpv::Value;
use sdk_world::{Door, Place, within};
use serde_json::json as value;
use tokio::sync::mpsc;

/// A bridge to the path `/do?x=1` of a service.
fn bridge(hub: &Hub, service: SocketAddr, arguments: &[&str]) -> Bridge {
    let url = format!("http://{service}/do?x=1");
    Bridge::start(hub.dir(), "http", NAME, &[&CAPABILITY, arguments].concat(), &["--url", &url])
}

#[tokio::test]
async fn a_call_is_a_post_of_its_body_and_the_answer_is_its_result() {
    let hub = Hub::dev();
    let (tell, mut asked) = mpsc::channel(10);
    let service = serve(move |asked: Asked| {
        let tell = tell.clone();
        async move {
            tell.send(asked).await.expect("a test");
            json(r#" {"sum": 3, "big": 18446744073709551615, "text": "größer\u0000"} "#)
        }
    })
    .await;
    let headers = ["--header", "X-Tier: gold", "--header-env", "Authorization=BRIDGE_TEST_SECRET"];
    let _bridge = bridge(&hub, service, &headers);
    let caller = caller(&hub).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let reply = caller
        .call::<serde_json::Value>("old.code", value!({"a": [1, null, "ü"]}))
        .request_id("order 17\r\nX-Evil: 1")
        .trace(parent, None)
        .timeout(Duration::from_secs(20))
        .reply();
    let reply = within("an answer", reply).await.expect("a result");
    assert_eq!(reply.body, value!({"sum": 3, "big": u64::MAX, "text": "größer\0"}));
    assert_eq!(reply.target.as_deref(), Some(NAME));
    let asked = asked.recv().await.expect("a request");
    assert_eq!(asked.line, "POST /do?x=1");
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&asked.body).unwrap(),
        value!({"a": [1, null, "ü"]})
    );
    let id = "order%2017%0D%0AX-Evil:%201";
    for (name, text) in [
        ("content-type", "application/json"),
        ("agent-reach-caller", "caller"),
        ("agent-reach-capability", "old.code"),
        ("agent-reach-request-id", id),
        ("idempotency-key", id),
        ("x-tier", "gold"),
        ("authorization", "Bearer s3cret"),
        ("host", &*service.to_string()),
    ] {
        assert_eq!(asked.header(name), Some(text), "{name}");
    }
    assert_eq!(asked.header("x-evil"), None);
    assert!(asked.header("traceparent").unwrap().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    let left: f64 = asked.header("request-timeout").unwrap().parse().unwrap();
    assert!(left > 0.0 && left <= 20.0, "{left}");
}

#[tokio::test]
async fn bytes_of_another_kind_go_through_as_they_are() {
    let hub = Hub::dev();
    let service = serve(|asked: Asked| async move {
        let kind = asked.header("content-type").unwrap().to_owned();
        says(200, &kind, [&asked.body[..], b"\xff"].concat())
    })
    .await;
    let _bridge = bridge(&hub, service, &[]);
    let caller = caller(&hub).await;
    let png = Payload::new(&b"\x89PNG\0"[..]).content_type("image/png");
    let back: Payload = within("bytes", caller.call("old.code", png).into_future()).await.expect("a result");
    assert_eq!(back, Payload::new(&b"\x89PNG\0\xff"[..]).content_type("image/png"));
}

#[tokio::test]
async fn several_capabilities_are_one_service_which_is_told_which() {
    let hub = Hub::dev();
    let service = serve(|asked: Asked| async move {
        json(format!("\"{}\"", asked.header("agent-reach-capability").unwrap()))
    })
    .await;
    let _bridge = bridge(&hub, service, &["--capability", "new.code"]);
    let caller = caller(&hub).await;
    for name in ["old.code", "new.code"] {
        let said: String = within("a result", caller.call(name, ()).into_future()).await.expect("a result");
        assert_eq!(said, name);
    }
}

#[tokio::test]
async fn a_service_behind_tls_is_believed_only_with_its_authority() {
    let hub = Hub::dev();
    let service = serve_tls(hub.dir(), |_| async { json("1") }).await;
    let url = format!("https://{service}/");
    let ca = hub.dir().join("ca.pem").display().to_string();
    let trusted = ["--capability", "a.trusted", "--url-ca", &ca];
    let _trusted = Bridge::start(hub.dir(), "http", "a", &trusted, &["--url", &url]);
    let _other = Bridge::start(hub.dir(), "http", "b", &["--capability", "a.stranger"], &["--url", &url]);
    let caller = caller(&hub).await;
    let call = |name: &'static str| caller.call::<u64>(name, ()).retries(0).into_future();
    assert_eq!(within("an answer", call("a.trusted")).await.expect("a result"), 1);
    let error = within("a failure", call("a.stranger")).await.expect_err("a stranger");
    let told = details(&error);
    assert_eq!((told["code"].as_str(), error.retryable), (Some("connect"), true));
    assert!(told["message"].as_str().unwrap().contains("certificate"), "{told}");
}

#[tokio::test]
async fn events_and_lines_are_streamed_as_the_service_writes_them() {
    let hub = Hub::dev();
    let caller = caller(&hub).await;
    for (kind, first, second, end) in [
        ("text/event-stream", "event: x\r\ndata: {\"n\":1}\r\n\r\nda", "ta: two\n\n: rest\n\ndata: lost", ""),
        ("application/x-ndjson", "{\"n\":1}\n\ntw", "o\n", "3"),
    ] {
        let (send, parts) = mpsc::channel(10);
        let parts = std::sync::Mutex::new(Some(parts));
        let service = serve(move |asked: Asked| {
            assert!(asked.header("accept").unwrap().starts_with("text/event-stream"));
            let parts = parts.lock().unwrap().take().expect("asked once");
            async move { streams(kind, parts) }
        })
        .await;
        let _bridge = bridge(&hub, service, &[]);
        let mut stream =
            caller.call::<()>("old.code", ()).stream::<serde_json::Value>().await.expect("a stream");
        send.send(Bytes::from_static(first.as_bytes())).await.unwrap();
        let chunk = within("a chunk", stream.next()).await.unwrap().expect("a chunk");
        assert_eq!(chunk.body, value!({"n": 1}), "before the service has written the rest");
        send.send(Bytes::from_static(second.as_bytes())).await.unwrap();
        assert_eq!(within("a chunk", stream.next()).await.unwrap().expect("a chunk").body, value!("two"));
        send.send(Bytes::from_static(end.as_bytes())).await.unwrap();
        drop(send);
        if !end.is_empty() {
            assert_eq!(within("the rest", stream.next()).await.unwrap().expect("a chunk").body, value!(3));
        }
        assert_eq!(within("the end", stream.next()).await, None);
        stream.end().await.expect("a whole stream");
    }
}

#[tokio::test]
async fn who_does_not_stream_gets_the_list_of_all_pieces() {
    let hub = Hub::dev();
    let service = serve(|_| async { says(200, "application/x-ndjson", "1\n\"two\"\nthree\n[4]\n") }).await;
    let _bridge = bridge(&hub, service, &[]);
    let caller = caller(&hub).await;
    assert_eq!(call(&caller, value!(null)).await.expect("a result"), value!([1, "two", "three", [4]]));
}

#[tokio::test]
async fn a_cancelled_call_ends_its_request() {
    let hub = Hub::dev();
    let (service, mut told) = silent().await;
    let _bridge = bridge(&hub, service, &[]);
    let caller = caller(&hub).await;
    let pending = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(within("the request", told.recv()).await, Some("asked"));
    drop(pending);
    assert_eq!(within("the end of the request", told.recv()).await, Some("gone"));
}

#[tokio::test]
async fn a_call_past_its_time_ends_its_request() {
    let hub = Hub::dev();
    let (service, mut told) = silent().await;
    let _bridge = bridge(&hub, service, &["--timeout", "1s"]);
    let caller = caller(&hub).await;
    let error = call(&caller, value!(null)).await.expect_err("no answer");
    assert!(error.code == ErrorCode::Timeout, "{error:?}");
    assert_eq!(within("the request", told.recv()).await, Some("asked"));
    assert_eq!(within("the end of the request", told.recv()).await, Some("gone"));
}

#[tokio::test]
async fn a_call_past_its_time_ends_its_request_even_while_the_hub_is_away() {
    let mut hub = Place::new(&[]);
    let (service, mut told) = silent().await;
    let url = format!("http://{service}/");
    let arguments = [&CAPABILITY[..], &["--timeout", "1s", "--url", &url]].concat();
    let _bridge = Bridge::start(hub.dir(), "http", NAME, &arguments, &[]);
    let caller = hub.agent("caller").connect().await.expect("a session");
    let _pending = caller.call::<()>("old.code", ()).start().await.expect("begun");
    assert_eq!(within("the request", told.recv()).await, Some("asked"));
    hub.kill();
    assert_eq!(within("the end of the request", told.recv()).await, Some("gone"));
}

#[tokio::test]
async fn a_failure_says_what_the_service_said_and_whether_to_try_again() {
    let hub = Hub::dev();
    let service = serve(|asked: Asked| async move {
        let status: u16 = String::from_utf8_lossy(&asked.body).parse().unwrap();
        let mut answer = says(status, "text/plain", "why\n".repeat(10_000));
        answer.headers_mut().insert("retry-after", "7".parse().unwrap());
        answer.headers_mut().insert("location", "/elsewhere".parse().unwrap());
        answer
    })
    .await;
    let _bridge = bridge(&hub, service, &[]);
    let caller = caller(&hub).await;
    for (status, code, retryable, after) in [
        (400, ErrorCode::HandlerError, false, None),
        (404, ErrorCode::HandlerError, false, None),
        (307, ErrorCode::HandlerError, false, None),
        (408, ErrorCode::HandlerError, true, None),
        (429, ErrorCode::RateLimited, true, Some(7_000)),
        (500, ErrorCode::HandlerError, false, None),
        (502, ErrorCode::HandlerError, false, None),
        (503, ErrorCode::Overloaded, true, Some(7_000)),
    ] {
        let error = call(&caller, value!(status)).await.expect_err("a failure");
        let told = details(&error);
        assert_eq!((&error.code, error.retryable), (&Code::Known(code), retryable), "{status}");
        assert_eq!((told["status"].as_u64(), told["retry_after_ms"].as_u64()), (Some(status), after));
        let body = told["body"].as_str().unwrap();
        assert!(body.starts_with("why\nwhy") && body.len() <= 2048, "{}", body.len());
    }
}

#[tokio::test]
async fn what_may_have_had_an_effect_is_tried_again_only_where_that_is_harmless() {
    let hub = Hub::dev();
    let service = serve(|_| async { says(500, "text/plain", "") }).await;
    let _bridge = bridge(&hub, service, &["--idempotent"]);
    let caller = caller(&hub).await;
    assert!(call(&caller, value!(null)).await.expect_err("a failure").retryable);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_tried_again() {
    let hub = Hub::dev();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _bridge = bridge(&hub, free, &[]);
    let caller = caller(&hub).await;
    let error = call(&caller, value!(null)).await.expect_err("nobody is there");
    assert_eq!((details(&error)["code"].as_str(), error.retryable), (Some("connect"), true));
}

#[tokio::test]
async fn an_answer_that_is_too_large_or_no_json_fails_its_call_and_no_other() {
    let hub = Hub::dev();
    let service = serve(|asked: Asked| async move {
        match &asked.body[..] {
            b"1" => json(format!("\"{}\"", "x".repeat(5_000))),
            // No length before it.
            b"2" => {
                let (send, parts) = mpsc::channel(10);
                for _ in 0..5 {
                    send.send(Bytes::from(vec![b' '; 1_000])).await.unwrap();
                }
                streams("application/json", parts)
            }
            b"3" => says(200, "application/x-ndjson", format!("1\n{}\n", "2".repeat(5_000))),
            b"4" => says(200, "application/x-ndjson", "12345678\n".repeat(1_000)),
            b"5" => says(200, "text/event-stream", "data: 12345678\n".repeat(1_000)),
            b"6" => json("{"),
            _ => json("\"fits\""),
        }
    })
    .await;
    let _bridge = bridge(&hub, service, &["--max-answer", "4000"]);
    let caller = caller(&hub).await;
    for number in 1..=6 {
        let error = call(&caller, value!(number)).await.expect_err("too much");
        let code = if number == 6 { "bad_answer" } else { "answer_too_large" };
        assert_eq!((details(&error)["code"].as_str(), error.retryable), (Some(code), false), "{number}");
    }
    assert_eq!(call(&caller, value!(7)).await.expect("a result"), value!("fits"));
}

// The service answers while the test waits for a line of the bridge's log.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_not_well_gets_no_calls_until_it_is() {
    let hub = Hub::dev();
    let (well, probed) = tokio::sync::watch::channel(true);
    let service = serve(move |asked: Asked| {
        let status = if *probed.borrow() { 200 } else { 500 };
        async move {
            if asked.line == "GET /health" { says(status, "text/plain", "") } else { json("\"served\"") }
        }
    })
    .await;
    let health = format!("http://{service}/health");
    let bridge = bridge(&hub, service, &["--health", &health, "--health-every", "20ms"]);
    let caller = caller(&hub).await;
    assert_eq!(call(&caller, value!(null)).await.expect("a result"), value!("served"));
    well.send_replace(false);
    assert!(bridge.says("the service is not well").contains("HTTP 500"));
    let of_bridge = |agents: Vec<agent_reach_sdk::AgentInfo>| {
        agents.into_iter().find(|agent| agent.agent_id == NAME).expect("it is there").load.health
    };
    sdk_world::until("the hub's word", || async { of_bridge(caller.agents().await.unwrap()) == Some(0) })
        .await;
    let error: CallError =
        within("a refusal", caller.call::<Value>("old.code", ()).queue(false).into_future())
            .await
            .expect_err("ill");
    assert!(error.code == ErrorCode::NoInstance, "{error:?}");
    well.send_replace(true);
    let waits = caller.call::<String>("old.code", ()).wait_for_agent(Duration::from_secs(20));
    assert_eq!(within("the service", waits.into_future()).await.expect("a result"), "served");
}

#[tokio::test]
async fn told_to_stop_it_finishes_what_is_open_and_says_goodbye() {
    let hub = Hub::dev();
    let door = Door::new();
    let at_door = door.clone();
    let service = serve(move |_| {
        let door = at_door.clone();
        async move {
            door.pass().await;
            json("\"done\"")
        }
    })
    .await;
    let bridge = bridge(&hub, service, &[]);
    let caller = caller(&hub).await;
    let pending = caller.call::<String>("old.code", ()).start().await.expect("begun");
    door.arrived(1).await;
    bridge.terminate();
    bridge.says("draining");
    door.let_go(1);
    assert_eq!(within("the result", pending.result()).await.expect("a result"), "done");
    assert_eq!(bridge.ended().await.code, Some(0));
    let error = call(&caller, value!(null)).await.expect_err("it has gone");
    assert!(error.code == ErrorCode::NoCapability || error.code == ErrorCode::NoInstance, "{error:?}");
}

#[tokio::test]
async fn the_exit_code_says_what_was_wrong() {
    let hub = Hub::dev();
    let usage = |arguments: &[&str]| Bridge::begin(hub.dir(), "http", NAME, &CAPABILITY, arguments).ended();
    for (arguments, word) in [
        (&["--url", "ftp://x/"][..], "http:// or https://"),
        (&["--url", "http://x/", "--header-env", "A=NOT_SET_AT_ALL"], "NOT_SET_AT_ALL"),
        (&["--url", "http://x/", "--header", "content-length: 5"], "set by the bridge"),
        (&["--url", "http://x/", "--url-ca", "/no/such.pem"], "/no/such.pem"),
        (&["--url", "http://x/", "--log", "a=b=c"], "--log"),
        (&["--url", "http://x/", "--capability", "Not A Name"], "capability name"),
    ] {
        let ended = usage(arguments).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(word), "{ended:?}");
    }
    let nowhere = Bridge::spawn(
        hub.dir(),
        &["bridge", "http", "--capability", "a.b", "--url", "http://x/", "--dir", "no"],
    );
    assert_eq!(nowhere.ended().await.code, Some(3));
    let first = Bridge::start(hub.dir(), "http", NAME, &CAPABILITY, &["--url", "http://127.0.0.1:9/"]);
    let _second = Bridge::start(hub.dir(), "http", NAME, &CAPABILITY, &["--url", "http://127.0.0.1:9/"]);
    let ended = first.ended().await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stderr.contains("replaced"), "{ended:?}");
}
