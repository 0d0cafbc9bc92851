//! `GET /openapi.json` describes what is served, and nothing else.
#![cfg(test)]

#[macro_use]
mod raw;

use std::collections::BTreeSet;

use raw::http::{ask, get};
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
        }
    }
}
