//! Tasks over HTTP: `Prefer: respond-async` and `/v1/tasks`.
#![cfg(test)]

#[macro_use]
mod raw;
mod http;

use http::{JSON, bearer, token};
use raw::http::{Answer, ask};
use raw::{Hub, hub};
use serde_json::json;

const ASYNC: &str = "Prefer: respond-async\r\n";

async fn get(hub: &Hub, path: &str, token: &str) -> Answer {
    ask(hub.http(), "GET", path, &bearer(token), "").await
}

#[tokio::test]
async fn a_task_is_accepted_with_its_address_and_survives_a_killed_hub() {
    let mut hub = Hub::serve(hub::OPEN, "");
    let olga = token(&hub, "olga", "operator").await;
    let lines = format!("{}{JSON}{ASYNC}Idempotency-Key: t1\r\n", bearer(&olga));
    let accepted = ask(hub.http(), "POST", "/v1/call/late.worker", &lines, "{\"n\": 1}").await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    assert_eq!(accepted.field("preference-applied"), Some("respond-async"));
    let location = accepted.field("location").expect("an address").to_owned();
    let task_id = accepted.json()["task_id"].as_str().expect("an id").to_owned();
    assert_eq!(location, format!("/v1/tasks/{task_id}"));
    assert_eq!(accepted.json()["request_id"], "t1");
    let waiting = get(&hub, &location, &olga).await;
    assert_eq!((waiting.status, &waiting.json()["state"]), (200, &json!("QUEUED")), "{waiting:?}");

    hub.kill_and_start_again();
    let again = ask(hub.http(), "POST", "/v1/call/late.worker", &lines, "{\"n\": 1}").await;
    assert_eq!(
        (again.status, again.field("location")),
        (202, Some(location.as_str())),
        "the same task: {again:?}"
    );
    let mut worker = hub.agent("worker", &["late.worker"]).await;
    let call = worker.taken().await;
    assert_eq!((call.text("task_id"), call.text("caller")), (task_id.as_str(), "olga"));
    worker.complete(&call, map! {"done" => true}).await;
    // A watch of the task ends with it.
    let watch = format!("{}{JSON}Accept: text/event-stream\r\n", bearer(&olga));
    let body = json!({"task_id": task_id}).to_string();
    let mut client = raw::http::send(hub.http(), "POST", "/v1/call/hub.tasks.watch", &watch, &body).await;
    raw::within("the end of the task", async {
        use tokio::io::AsyncReadExt as _;
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("SUCCEEDED") {
            assert_ne!(
                client.read_buf(&mut seen).await.expect("bytes"),
                0,
                "{}",
                String::from_utf8_lossy(&seen)
            );
        }
    })
    .await;
    let ended = get(&hub, &location, &olga).await.json();
    assert_eq!((&ended["state"], &ended["result"]), (&json!("SUCCEEDED"), &json!({"done": true})), "{ended}");
    let late = ask(hub.http(), "POST", "/v1/call/late.worker", &lines, "{\"n\": 1}").await;
    assert_eq!((late.status, late.field("location")), (202, Some(location.as_str())), "{late:?}");
    assert_eq!(late.field("agent-reach-duplicate"), Some("true"));
}

#[tokio::test]
async fn a_task_is_its_owners_alone_and_nobody_is_told_that_it_is_there() {
    let hub = Hub::serve(hub::OPEN, "");
    let (olga, otto) = (token(&hub, "olga", "operator").await, token(&hub, "otto", "operator").await);
    let lines = format!("{}{JSON}{ASYNC}", bearer(&olga));
    let accepted = ask(hub.http(), "POST", "/v1/call/some.work", &lines, "").await;
    let location = accepted.field("location").expect("an address").to_owned();
    let unknown = get(&hub, "/v1/tasks/00000000-0000-0000-0000-000000000000", &otto).await;
    let others = get(&hub, &location, &otto).await;
    for answer in [&unknown, &others] {
        assert_eq!((answer.status, answer.code().as_str()), (404, "invalid_request"), "{answer:?}");
    }
    assert_eq!(unknown.json()["detail"], others.json()["detail"]);
    let delete = async |token: &str| ask(hub.http(), "DELETE", &location, &bearer(token), "").await;
    assert_eq!(delete(&otto).await.status, 404);
    let cancelled = delete(&olga).await;
    assert_eq!((cancelled.status, &cancelled.json()["cancelled"]), (200, &json!(true)), "{cancelled:?}");
    let ended = get(&hub, &location, &olga).await.json();
    assert_eq!(
        (&ended["state"], &ended["error"]["code"]),
        (&json!("FAILED"), &json!("cancelled")),
        "{ended}"
    );
    let again = delete(&olga).await;
    assert_eq!((again.status, &again.json()["cancelled"]), (200, &json!(false)));
}

#[tokio::test]
async fn a_task_that_cannot_be_is_a_problem_and_what_the_hub_answers_is_none() {
    let hub = Hub::serve(hub::OPEN, "");
    let lines = format!("{}{JSON}{ASYNC}", bearer(&token(&hub, "olga", "operator").await));
    let refused = ask(hub.http(), "POST", "/v1/call/x?callback_url=http://127.0.0.1/", &lines, "").await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let own = ask(hub.http(), "POST", "/v1/call/hub.stats", &lines, "").await;
    assert_eq!((own.status, own.field("location")), (200, None), "{own:?}");
    let viewer = format!("{}{JSON}{ASYNC}", bearer(&token(&hub, "vera", "viewer").await));
    assert_eq!(ask(hub.http(), "POST", "/v1/call/x", &viewer, "").await.status, 403);
}
