//! Section 6 of the protocol: idempotency is the resume mechanism.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::{Hub, RawClient, STAY_AWAY};
use rmpv::Value;

async fn world() -> (Hub, RawClient, RawClient) {
    let hub = Hub::dev_with(&[("LIVENESS__RESUME_MS", "700")]);
    let provider = hub.agent_with("provider", &["x"], map! {"instance" => "one"}).await;
    let caller = hub.agent_with("caller", &[], map! {"instance" => "mine"}).await;
    (hub, provider, caller)
}

fn request(id: &str) -> Value {
    map! {"request_id" => id}
}

/// The same instance of the provider on a new connection.
async fn returned(hub: &Hub) -> RawClient {
    hub.agent_with("provider", &["x"], map! {"instance" => "one"}).await
}

#[tokio::test]
async fn a_finished_duplicate_is_answered_from_the_stored_result() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    provider.complete(&call, Value::from("a")).await;
    let first = caller.completed(id).await;
    assert_ne!(first.get("duplicate"), &Value::from(true));
    for _ in 0..2 {
        let id = caller.call("x", request("r"), Value::from("q")).await;
        let again = caller.completed(id).await;
        assert_eq!(again.get("duplicate"), &Value::from(true));
        assert_eq!((again.content(), again.text("request_id")), (Value::from("a"), "r"));
    }
    provider.fence().await;
}

#[tokio::test]
async fn a_failure_that_is_not_retryable_is_stored_and_a_retryable_one_frees_the_id() {
    let (_hub, mut provider, mut caller) = world().await;
    for retryable in [false, true] {
        let name = format!("r-{retryable}");
        let id = caller.call("x", request(&name), Value::Nil).await;
        let call = provider.taken().await;
        provider
            .fail(&call, map! {"code" => "handler_error", "message" => "m", "retryable" => retryable})
            .await;
        caller.failed(id, "handler_error").await;
        let id = caller.call("x", request(&name), Value::Nil).await;
        if retryable {
            provider.echo().await;
            caller.completed(id).await;
        } else {
            assert_eq!(caller.failed(id, "handler_error").await.get("duplicate"), &Value::from(true));
        }
    }
    provider.fence().await;
}

#[tokio::test]
async fn an_open_duplicate_joins_the_first_call() {
    let (_hub, mut provider, mut caller) = world().await;
    caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    let second = caller.call("x", request("r"), Value::from("q")).await;
    // The fence of the caller is not sharp here: it may be told at once that its duplicate was accepted.
    drop(caller.until_fence().await);
    provider.fence().await;
    provider.complete(&call, Value::from("a")).await;
    loop {
        let result = caller.envelope("the RESULT of the duplicate").await;
        if result.uint("id") == second {
            assert_eq!((result.text("status"), result.content()), ("completed", Value::from("a")));
            break;
        }
    }
}

#[tokio::test]
async fn the_same_id_with_another_body_or_capability_conflicts() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &["x", "y"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let open = caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    for finished in [false, true] {
        if finished {
            provider.complete(&call, Value::Nil).await;
            caller.completed(open).await;
        }
        for (capability, body) in [("x", "other"), ("y", "q")] {
            let id = caller.call(capability, request("r"), Value::from(body)).await;
            assert!(!caller.failed(id, "idempotency_conflict").await.retryable());
        }
    }
    provider.fence().await;
}

#[tokio::test]
async fn the_same_id_of_another_caller_is_another_call() {
    let (hub, mut provider, mut caller) = world().await;
    let mut other = hub.agent("other", &[]).await;
    let id = caller.call("x", request("r"), Value::from(1)).await;
    provider.echo().await;
    assert_eq!(caller.completed(id).await.content(), Value::from(1));
    let id = other.call("x", request("r"), Value::from(2)).await;
    provider.echo().await;
    assert_eq!(other.completed(id).await.content(), Value::from(2));
}

#[tokio::test]
async fn an_outcome_is_remembered_for_keep_ms() {
    let (hub, mut provider, mut caller) = world().await;
    let _clock = hub.agent("clock", &["clock"]).await;
    let ask = map! {"request_id" => "r", "keep_ms" => 100};
    for _ in 0..2 {
        let id = caller.call("x", ask.clone(), Value::Nil).await;
        provider.echo().await;
        assert_ne!(caller.completed(id).await.get("duplicate"), &Value::from(true));
        caller.hub_time("clock", 300).await;
    }
}

#[tokio::test]
async fn a_provider_that_returns_gets_its_unfinished_calls_again() {
    let (hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    provider.vanish().await;
    let mut provider = returned(&hub).await;
    let again = provider.taken().await;
    assert_eq!(again.uint("attempt"), 2);
    assert_eq!((again.text("request_id"), again.content()), ("r", Value::from("q")));
    assert_eq!(again.text("call_id"), call.text("call_id"));
    provider.complete(&again, Value::from("a")).await;
    let result = caller.completed(id).await;
    assert_eq!(result.content(), Value::from("a"));
}

#[tokio::test]
async fn a_second_connection_of_the_same_instance_takes_the_open_calls_over() {
    let (hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    let mut renewed = returned(&hub).await;
    provider.expect_goodbye("replaced", STAY_AWAY).await;
    let again = renewed.taken().await;
    assert_eq!(again.text("request_id"), call.text("request_id"));
    renewed.complete(&again, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn a_provider_that_returns_as_another_instance_has_lost_its_calls() {
    let (hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    provider.vanish().await;
    let mut stranger = hub.agent_with("provider", &["x"], map! {"instance" => "two"}).await;
    assert!(!caller.failed(id, "agent_lost").await.retryable());
    stranger.fence().await;
    raw::peer::canary(&mut caller, &mut stranger, "x").await;
}

#[tokio::test]
async fn a_provider_that_does_not_return_in_time_has_lost_its_calls() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    provider.vanish().await;
    let result = caller.failed(id, "agent_lost").await;
    assert!(!result.retryable());
    assert_eq!(result.get("attempts")[0]["outcome"].as_str(), Some("agent_lost"), "{result:?}");
}

#[tokio::test]
async fn a_lost_call_may_be_tried_again_when_it_was_not_accepted_or_is_idempotent() {
    let hub = Hub::dev_with(&[("LIVENESS__RESUME_MS", "200")]);
    let offer = |idempotent: bool| {
        map! {"capabilities" => vec![map! {"name" => "x", "idempotent" => idempotent}]}
    };
    let mut caller = hub.agent("caller", &[]).await;
    for (idempotent, accepted) in [(false, false), (true, true), (true, false)] {
        let mut provider = hub.agent_with("provider", &[], offer(idempotent)).await;
        let id = caller.call("x", map! {}, Value::Nil).await;
        let call = provider.taken().await;
        if accepted {
            provider.accept(&call).await;
            caller.accepted(id).await;
        }
        provider.vanish().await;
        assert!(
            caller.failed(id, "agent_lost").await.retryable(),
            "idempotent {idempotent}, accepted {accepted}"
        );
    }
}

#[tokio::test]
async fn a_caller_that_returns_and_calls_again_gets_the_answer_of_the_first_call() {
    let (hub, mut provider, mut caller) = world().await;
    let _clock = hub.agent("clock", &["clock"]).await;
    caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.vanish().await;
    let mut caller = hub.agent_with("caller", &[], map! {"instance" => "mine"}).await;
    caller.last_id = 70;
    let id = caller.call("x", request("r"), Value::from("q")).await;
    drop(caller.until_fence().await);
    caller.hub_time("clock", 900).await;
    // resume_ms is over: the call would have been cancelled, had the caller not come back for it.
    provider.fence().await;
    provider.complete(&call, Value::from("a")).await;
    assert_eq!(caller.completed(id).await.content(), Value::from("a"));
}

#[tokio::test]
async fn a_result_that_came_while_the_caller_was_away_waits_for_it() {
    let (hub, mut provider, mut caller) = world().await;
    caller.call("x", request("r"), Value::from("q")).await;
    let call = provider.taken().await;
    caller.vanish().await;
    provider.complete(&call, Value::from("a")).await;
    provider.fence().await;
    let mut caller = hub.agent_with("caller", &[], map! {"instance" => "mine"}).await;
    let id = caller.call("x", request("r"), Value::from("q")).await;
    assert_eq!(caller.completed(id).await.content(), Value::from("a"));
    provider.fence().await;
}

#[tokio::test]
async fn a_caller_that_stays_away_cancels_its_calls() {
    let (hub, mut provider, mut caller) = world().await;
    caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.vanish().await;
    provider.cancelled(&call).await;
    // One that comes back but does not ask again has given it up as well.
    let mut caller = hub.agent_with("caller", &[], map! {"instance" => "mine"}).await;
    caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.vanish().await;
    let mut back = hub.agent_with("caller", &[], map! {"instance" => "mine"}).await;
    provider.cancelled(&call).await;
    back.fence().await;
}
