//! `GET /openapi.json` describes what is served, and nothing else.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use std::collections::BTreeSet;

use http::{JSON, log_in, token};
use raw::http::{Answer, ask, get};
use raw::{Hub, hub};

#[tokio::test]
async fn every_operation_is_served_and_every_served_one_is_described() {
    let hub = Hub::serve(hub::OPEN, "");
    let document = get(hub.http(), "/openapi.json").await;
    assert_eq!((document.status, document.field("content-type")), (200, Some("application/json")));
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().expect("paths");
    let expected = [
        "/",
        "/healthz",
        "/openapi.json",
        "/readyz",
        "/v1/agents",
        "/v1/call/{capability}",
        "/v1/capabilities",
        "/v1/connect",
        "/v1/session",
        "/v1/tasks/{task_id}",
    ];
    assert_eq!(paths.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    for (path, item) in paths {
        let described: BTreeSet<String> = item.as_object().expect("operations").keys().cloned().collect();
        let address = path.replace("{capability}", "x").replace("{task_id}", "1");
        // Nobody has a method of this name: the answer says which there are.
        let answer = ask(hub.http(), "PURGE", &address, "", "").await;
        assert_eq!(answer.status, 405, "{path}: {answer:?}");
        let allowed = answer.field("allow").expect("methods").to_ascii_lowercase();
        let served = allowed.split(',').filter(|method| *method != "head").map(str::to_owned).collect();
        assert_eq!(described, served, "{path}");
        for operation in item.as_object().into_iter().flatten() {
            assert!(
                operation.1["summary"].is_string() && operation.1["responses"]["421"].is_object(),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn what_needs_a_token_says_so_and_does() {
    let hub = Hub::serve(hub::OPEN, "");
    let document = get(hub.http(), "/openapi.json").await.json();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let open = operation["security"].as_array().expect("security").is_empty();
            let address = path.replace("{capability}", "x").replace("{task_id}", "1");
            let answer = ask(hub.http(), &method.to_ascii_uppercase(), &address, "", "").await;
            assert_eq!(answer.status == 401, !open, "{method} {path}: {answer:?}");
            if !open {
                let wrong = "Authorization: Bearer nobody.wrong\r\n";
                let answer = ask(hub.http(), &method.to_ascii_uppercase(), &address, wrong, "").await;
                assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
            }
        }
    }
}

/// Asks as a page of this origin does, with a cookie.
async fn as_page(hub: &Hub, method: &str, path: &str, cookie: &str, lines: &str) -> Answer {
    let lines = format!("Cookie: {cookie}\r\nOrigin: http://{}\r\n{lines}", hub.http());
    ask(hub.http(), method, path, &lines, "").await
}

#[tokio::test]
async fn logging_in_and_out_and_connecting_answer_what_is_described_of_them() {
    let hub = Hub::serve(hub::OPEN, "");
    let document = get(hub.http(), "/openapi.json").await.json();
    let eve = token(&hub, "eve", "viewer").await;
    let described = |method: &str, path: &str, answer: &Answer| {
        let status = answer.status.to_string();
        let response = &document["paths"][path][method]["responses"][&status];
        assert!(response.is_object(), "{method} {path} {answer:?}");
        for name in response["headers"].as_object().into_iter().flat_map(|headers| headers.keys()) {
            assert!(answer.field(name).is_some(), "{method} {path}: no {name} in {answer:?}");
        }
        answer.status
    };
    let mut seen = Vec::new();
    let good = log_in(&hub, &eve, "").await;
    let cookie = good.cookie();
    for answer in [
        good,
        log_in(&hub, "eve.wrong", "").await,
        log_in(&hub, &eve, "Origin: https://evil.example\r\n").await,
        ask(hub.http(), "POST", "/v1/session", "", "{}").await,
        ask(hub.http(), "POST", "/v1/session", JSON, "{}").await,
        ask(hub.http(), "POST", "/v1/session", JSON, &"x".repeat(5000)).await,
    ] {
        seen.push(described("post", "/v1/session", &answer));
    }
    assert_eq!(seen, [204, 401, 403, 415, 422, 413]);
    let shown = as_page(&hub, "GET", "/v1/session", &cookie, "").await;
    assert_eq!(described("get", "/v1/session", &shown), 200);

    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let spoken = format!("{upgrade}Sec-WebSocket-Protocol: agent-reach.v1.json\r\n");
    let plain = as_page(&hub, "GET", "/v1/connect", &cookie, "").await;
    let silent = as_page(&hub, "GET", "/v1/connect", &cookie, upgrade).await;
    let unsaid = ask(hub.http(), "GET", "/v1/connect", &format!("Cookie: {cookie}\r\n{spoken}"), "").await;
    let nobody = ask(hub.http(), "GET", "/v1/connect", &spoken, "").await;
    let told = [plain, silent, unsaid, nobody].map(|answer| described("get", "/v1/connect", &answer));
    assert_eq!(told, [400, 400, 403, 401]);

    let bare = ask(hub.http(), "DELETE", "/v1/session", &format!("Cookie: {cookie}\r\n"), "").await;
    let ended = as_page(&hub, "DELETE", "/v1/session", &cookie, "").await;
    let again = as_page(&hub, "DELETE", "/v1/session", &cookie, "").await;
    let told = [bare, ended, again].map(|answer| described("delete", "/v1/session", &answer));
    assert_eq!(told, [403, 204, 401]);
}
