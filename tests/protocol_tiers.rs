//! Sections 4, 6 and 7 of the protocol: calls that wait, are tried again, and are held against schemas.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::{Envelope, Format, Hub, http};
use rmpv::Value;

/// Quick tries, so that tests wait for them and not for the clock.
const QUICK: [(&str, &str); 2] = [("CALLS__RETRY_BASE_MS", "1"), ("CALLS__RETRY_JITTER_MS", "0")];

fn passing() -> Value {
    map! {"code" => "handler_error", "message" => "not now", "retryable" => true}
}

/// Who was tried, and how that ended.
fn attempts(result: &Envelope) -> Vec<(String, String)> {
    let Value::Array(attempts) = result.get("attempts") else { panic!("{result:?}") };
    let text = |attempt: &Value, key: &str| attempt[key].as_str().expect("a text").to_owned();
    attempts.iter().map(|attempt| (text(attempt, "target"), text(attempt, "outcome"))).collect()
}

#[tokio::test]
async fn a_failure_that_may_pass_is_tried_twice_more_by_default_and_the_attempts_are_told() {
    let hub = Hub::dev_with(&QUICK);
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let mut provider = hub.agent(&format!("provider-{index}"), &[&format!("x{index}")]).await;
        let mut caller = hub.agent_as(&format!("caller-{index}"), format, &[], map! {}).await;
        // Nil reads as absent.
        let id = caller.call(&format!("x{index}"), map! {"retries" => Value::Nil}, Value::from(7)).await;
        let mut seen = Vec::new();
        for attempt in 1..=3 {
            let call = provider.taken().await;
            assert_eq!((call.uint("attempt"), &call.body), (attempt, &Value::Binary(vec![7])));
            seen.push(call.get("request_id").clone());
            provider.fail(&call, passing()).await;
        }
        assert!(seen.iter().all(|id| id == &seen[0]), "one intent, one request_id: {seen:?}");
        let result = caller.failed(id, "degraded").await;
        assert_eq!(attempts(&result).len(), 3, "{result:?}");
        let error = result.get("error");
        assert_eq!(error["details"]["cause"]["code"].as_str(), Some("handler_error"), "{result:?}");
        assert_eq!(error["retryable"].as_bool(), Some(false));
    }
    let page = http::get(hub.metrics(), "/metrics").await.body;
    assert!(page.contains("agent_reach_retries_total{tier=\"same_agent\"} 4"), "{page}");
}

#[tokio::test]
async fn a_call_waits_for_a_slot_and_the_queue_is_on_the_metrics_page() {
    let hub = Hub::dev();
    let mut provider = hub.agent_with("provider", &["x"], map! {"max_concurrency" => 1}).await;
    let mut caller = hub.agent("caller", &[]).await;
    let first = caller.call("x", map! {}, Value::Nil).await;
    let second = caller.call("x", map! {}, Value::Nil).await;
    let refused = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    caller.failed(refused, "overloaded").await;
    let page = http::get(hub.metrics(), "/metrics").await.body;
    assert!(page.contains("agent_reach_queued{capability=\"x\"} 1"), "{page}");
    for id in [first, second] {
        let call = provider.taken().await;
        provider.complete(&call, Value::Nil).await;
        caller.completed(id).await;
    }
    let page = http::get(hub.metrics(), "/metrics").await.body;
    assert!(page.contains("agent_reach_queued{capability=\"x\"} 0"), "{page}");
}

#[tokio::test]
async fn with_wait_ms_a_call_is_taken_by_an_agent_that_comes_later() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {"wait_ms" => 30_000}, Value::Nil).await;
    caller.fence().await;
    let mut provider = hub.agent("provider", &["x"]).await;
    provider.echo().await;
    caller.completed(id).await;
}

#[tokio::test]
async fn fallback_and_an_older_result_come_after_the_tries_on_one_agent() {
    let hub = Hub::dev_with(&QUICK);
    let mut one = hub.agent("one", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {}, Value::from(1)).await;
    one.echo().await;
    caller.completed(id).await;
    let id = caller.call("x", map! {"retries" => 1, "allow_fallback" => true}, Value::from(2)).await;
    let first = one.taken().await;
    let mut two = hub.agent("two", &["x"]).await;
    one.fail(&first, passing()).await;
    let again = one.taken().await;
    one.fail(&again, passing()).await;
    let call = two.taken().await;
    assert_eq!(call.uint("attempt"), 3);
    two.complete(&call, Value::Nil).await;
    let result = caller.completed(id).await;
    let targets: Vec<String> = attempts(&result).into_iter().map(|(target, _)| target).collect();
    assert_eq!(targets, ["one", "one", "two"]);

    let asks =
        map! {"retries" => 0, "allow_cached_ms" => 600_000, "agents" => Value::Array(vec!["one".into()])};
    let id = caller.call("x", asks, Value::from(1)).await;
    let call = one.taken().await;
    one.fail(&call, passing()).await;
    let result = caller.completed(id).await;
    assert_eq!((result.get("cached").as_bool(), &result.body), (Some(true), &Value::Binary(vec![1])));
}

#[tokio::test]
async fn a_body_that_fits_no_schema_reaches_nobody_in_either_encoding() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &[]).await;
    let schema = map! {
        "type" => "object",
        "required" => Value::Array(vec!["amount".into()]),
        "properties" => map! {"amount" => map! {"type" => "integer"}},
    };
    let capability = map! {"name" => "pay", "input_schema" => schema};
    provider.update(map! {"add" => Value::Array(vec![capability])}).await;
    provider.fence().await;
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let mut caller = hub.agent_as(&format!("caller-{index}"), format, &[], map! {}).await;
        let id = caller.call("pay", map! {}, map! {"amount" => "much"}).await;
        let result = caller.failed(id, "schema_mismatch").await;
        let error = result.get("error");
        assert_eq!(error["details"]["violations"][0]["pointer"].as_str(), Some("/amount"), "{result:?}");
        let id = caller.call("pay", map! {}, map! {"amount" => 3}).await;
        provider.echo().await;
        caller.completed(id).await;
    }
}
