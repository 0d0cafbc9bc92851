//! Section 4 of the protocol: what a call looks like on both hops, and how it ends.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Hub, RawClient, kind};
use rmpv::Value;

async fn world() -> (Hub, RawClient, RawClient) {
    let hub = Hub::dev();
    let provider = hub.agent("provider", &["x"]).await;
    let caller = hub.agent("caller", &[]).await;
    (hub, provider, caller)
}

/// Bytes that no pattern would give away when a piece is lost or repeated (xorshift, a fixed seed).
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[tokio::test]
async fn a_call_is_accepted_and_then_completed() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"request_id" => "order-1"}, Value::from("question")).await;
    let call = provider.taken().await;
    assert_eq!(call.content(), Value::from("question"));
    provider.accept_with(&call, map! {"queue_depth" => 3}).await;
    let accept = caller.accepted(id).await;
    assert_eq!(accept.text("request_id"), "order-1");
    assert_eq!(accept.text("call_id"), call.text("call_id"));
    assert_eq!(accept.text("target"), "provider");
    assert_eq!((accept.uint("attempt"), accept.uint("queue_depth")), (1, 3));
    provider.complete(&call, Value::from("answer")).await;
    let result = caller.completed(id).await;
    assert_eq!(result.content(), Value::from("answer"));
    assert_eq!(result.text("request_id"), "order-1");
    assert_eq!(result.text("call_id"), call.text("call_id"));
    assert_eq!(result.text("target"), "provider");
    assert!(!result.has("error") && !result.has("more") && !result.has("summary"), "{result:?}");
    caller.fence().await;
    provider.fence().await;
}

#[tokio::test]
async fn a_result_stands_for_the_accept_and_none_is_invented() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    provider.echo().await;
    // `completed` takes nothing but a RESULT as the next envelope.
    caller.completed(id).await;
}

#[tokio::test]
async fn each_accept_is_forwarded() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"preferred_timeout_ms" => 100}, Value::Nil).await;
    let call = provider.taken().await;
    assert_eq!(call.uint("preferred_timeout_ms"), 100);
    provider.accept_with(&call, map! {"would_timeout" => true, "wait_ms" => 900}).await;
    let accept = caller.accepted(id).await;
    assert_eq!((accept.get("would_timeout"), accept.uint("wait_ms")), (&Value::from(true), 900));
    // The caller may wait nevertheless.
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn the_provider_is_told_what_the_contract_lists() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"budget_ms" => 20_000}, Value::Nil).await;
    let call = provider.echo().await;
    assert!(!call.text("request_id").is_empty(), "the hub makes one");
    assert!(!call.text("call_id").is_empty());
    assert_eq!(call.text("capability"), "x");
    assert_eq!(call.text("caller"), "caller");
    assert_eq!(call.uint("attempt"), 1);
    assert!((1..=20_000).contains(&call.uint("deadline_ms")), "{call:?}");
    assert_eq!(call.get("stream"), &Value::from(false));
    assert_eq!((call.text("mode"), call.text("priority")), ("call", "normal"));
    assert!(!call.has("retries") && !call.has("task_id"), "{call:?}");
    let result = caller.completed(id).await;
    assert_eq!(result.text("request_id"), call.text("request_id"));
}

#[tokio::test]
async fn what_is_carried_through_arrives_as_it_was_said() {
    let (_hub, mut provider, mut caller) = world().await;
    let said = map! {
        "request_id" => "r-1",
        "priority" => "high",
        "labels" => map! {"zone" => "north"},
        "traceparent" => "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate" => "vendor=1",
        "content_type" => "text/plain",
        "stream" => true,
        "credit" => 5,
    };
    let id = caller.call("x", said.clone(), Value::Binary(b"plain".to_vec())).await;
    let call = provider.taken().await;
    for (key, value) in said.as_map().expect("a map") {
        let key = key.as_str().expect("a string");
        assert_eq!(call.get(key), value, "{key}");
    }
    assert_eq!(call.bytes(), b"plain");
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn private_keys_are_carried_on_call_accept_chunk_and_result() {
    let (_hub, mut provider, mut caller) = world().await;
    let private = |place: &str| map! {"x-place" => place, "x-deep" => map! {"list" => list![1, "two"]}};
    let check = |envelope: &raw::Envelope, place: &str| {
        assert_eq!(envelope.text("x-place"), place, "{envelope:?}");
        assert_eq!(*envelope.get("x-deep"), map! {"list" => list![1, "two"]}, "{envelope:?}");
    };
    let asked = raw::merged(private("call"), map! {"stream" => true});
    let id = caller.call("x", asked, Value::Nil).await;
    let call = provider.taken().await;
    check(&call, "call");
    provider.accept_with(&call, private("accept")).await;
    check(&caller.accepted(id).await, "accept");
    let chunk = raw::merged(private("chunk"), map! {"id" => call.uint("id"), "seq" => 0});
    provider.send(kind::CHUNK, chunk, Value::Nil).await;
    check(&caller.chunk_of(id, 0).await, "chunk");
    let result = raw::merged(private("result"), map! {"id" => call.uint("id"), "status" => "completed"});
    provider.send(kind::RESULT, result, Value::Nil).await;
    check(&caller.completed(id).await, "result");
}

#[tokio::test]
async fn a_body_of_900_kib_arrives_byte_for_byte_both_ways() {
    let (_hub, mut provider, mut caller) = world().await;
    let body = noise(900 * 1024);
    let id = caller.call("x", map! {"content_type" => "application/octet-stream"}, body.clone().into()).await;
    let call = provider.echo().await;
    assert!(call.bytes() == body, "the body changed on its way to the provider");
    assert!(caller.completed(id).await.bytes() == body, "the body changed on its way back");
}

#[tokio::test]
async fn a_thousand_open_calls_each_get_their_own_answer_in_any_order() {
    let hub = Hub::dev();
    let mut provider = hub.agent_with("provider", &["x"], map! {"max_concurrency" => 1000}).await;
    let mut caller = hub.agent("caller", &[]).await;
    let mut calls = Vec::new();
    for number in 0..1000 {
        caller.call("x", map! {"accept_timeout_ms" => 60_000}, Value::from(number)).await;
    }
    for _ in 0..1000 {
        calls.push(provider.taken().await);
    }
    for call in calls.iter().rev() {
        provider.complete(call, call.body.clone()).await;
    }
    for number in (0..1000_u64).rev() {
        assert_eq!(caller.completed(number + 1).await.content(), Value::from(number));
    }
    caller.fence().await;
}

#[tokio::test]
async fn a_result_tells_its_attempts_route_and_time() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    provider.echo().await;
    let result = caller.completed(id).await;
    let attempts = result.get("attempts").as_array().expect("attempts");
    assert_eq!(attempts.len(), 1, "{result:?}");
    assert_eq!(
        (attempts[0]["target"].as_str(), attempts[0]["outcome"].as_str()),
        (Some("provider"), Some("completed"))
    );
    assert!(attempts[0]["ms"].is_u64() && attempts[0]["reason"].is_str(), "{result:?}");
    assert!(!result.text("route").is_empty(), "{result:?}");
    result.uint("execution_ms");

    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.fail(&call, map! {"code" => "unsupported", "message" => "no", "retryable" => false}).await;
    let result = caller.failed(id, "unsupported").await;
    assert_eq!(result.get("attempts")[0]["outcome"].as_str(), Some("unsupported"), "{result:?}");
}

#[tokio::test]
async fn no_agent_now_is_no_instance_and_none_ever_is_no_capability() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("never.heard", map! {}, Value::Nil).await;
    assert!(!caller.failed(id, "no_capability").await.retryable());
    provider.send(kind::GOODBYE, map! {"code" => "normal"}, Value::Nil).await;
    provider.expect_end().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let result = caller.failed(id, "no_instance").await;
    assert!(result.retryable());
    assert!(!result.text("call_id").is_empty() && !result.text("request_id").is_empty(), "{result:?}");
}

#[tokio::test]
async fn the_codes_that_a_provider_may_say_pass_as_they_are() {
    let (_hub, mut provider, mut caller) = world().await;
    for code in
        ["unsupported", "invalid_request", "schema_mismatch", "overloaded", "rate_limited", "cancelled"]
    {
        let id = caller.call("x", map! {}, Value::Nil).await;
        let call = provider.taken().await;
        provider.fail(&call, map! {"code" => code, "message" => "because", "retryable" => false}).await;
        let result = caller.failed(id, code).await;
        assert_eq!(result.get("error")["message"].as_str(), Some("because"), "{result:?}");
        assert_eq!(result.text("target"), "provider");
    }
}

#[tokio::test]
async fn a_handler_error_says_whether_to_retry_and_keeps_its_own_code() {
    let (_hub, mut provider, mut caller) = world().await;
    for retryable in [true, false] {
        let id = caller.call("x", map! {}, Value::Nil).await;
        let call = provider.taken().await;
        let own = map! {"code" => "E42", "message" => "the printer burns"};
        let error = map! {
            "code" => "handler_error", "message" => "failed", "retryable" => retryable, "details" => own.clone(),
        };
        provider.fail(&call, error).await;
        let result = caller.failed(id, "handler_error").await;
        assert_eq!(result.retryable(), retryable);
        assert_eq!(*result.details(), own);
    }
}

#[tokio::test]
async fn any_other_code_of_a_provider_becomes_handler_error() {
    let (_hub, mut provider, mut caller) = world().await;
    for code in ["E42", "timeout", "agent_lost", "internal", "no_instance", "unauthorized", "completed", ""] {
        let id = caller.call("x", map! {}, Value::Nil).await;
        let call = provider.taken().await;
        provider.fail(&call, map! {"code" => code, "message" => "because", "retryable" => false}).await;
        let result = caller.failed(id, "handler_error").await;
        assert_eq!(result.details()["code"].as_str(), Some(code), "{result:?}");
    }
}

#[tokio::test]
async fn a_failure_may_carry_a_body() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    let error = map! {"code" => "handler_error", "message" => "half done", "retryable" => false};
    let header = map! {"id" => call.uint("id"), "status" => "failed", "error" => error};
    provider.send(kind::RESULT, header, Value::from("the half")).await;
    assert_eq!(caller.failed(id, "handler_error").await.content(), Value::from("the half"));
}

#[tokio::test]
async fn a_notify_completes_with_phase_one() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"mode" => "notify"}, Value::from("news")).await;
    let call = provider.taken().await;
    assert_eq!(call.text("mode"), "notify");
    caller.fence().await;
    provider.accept(&call).await;
    let result = loop {
        // Whether the ACCEPT itself is forwarded too, the contract leaves open: "each one it gets".
        let envelope = caller.envelope("RESULT of a notify").await;
        if envelope.kind == kind::RESULT {
            break envelope;
        }
        assert_eq!(envelope.kind, kind::ACCEPT, "{envelope:?}");
    };
    assert_eq!((result.uint("id"), result.text("status")), (id, "completed"));
    provider.fail(&call, map! {"code" => "handler_error", "message" => "late", "retryable" => false}).await;
    provider.fence().await;
    caller.fence().await;
    let id = caller.call("nobody", map! {"mode" => "notify"}, Value::Nil).await;
    caller.failed(id, "no_capability").await;
}

#[tokio::test]
async fn frames_for_a_call_that_has_ended_are_dropped_without_error() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"stream" => true}, Value::Nil).await;
    let call = provider.echo().await;
    caller.completed(id).await;
    provider.accept(&call).await;
    provider.chunk(&call, 0, Value::Nil).await;
    provider.complete(&call, Value::from("again")).await;
    provider.fail(&call, map! {"code" => "handler_error", "message" => "", "retryable" => true}).await;
    provider.fence().await;
    caller.cancel(id).await;
    caller.credit(id, 5).await;
    caller.fence().await;
    provider.fence().await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_provider_cannot_answer_the_call_of_another() {
    let (hub, mut provider, mut caller) = world().await;
    let mut stranger = hub.agent("stranger", &["y"]).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    stranger.accept(&call).await;
    stranger.complete(&call, Value::from("forged")).await;
    // Dropped or refused, as an id that is not the stranger's; the call itself knows nothing of it.
    drop(stranger.until_fence().await);
    caller.fence().await;
    provider.complete(&call, Value::from("genuine")).await;
    assert_eq!(caller.completed(id).await.content(), Value::from("genuine"));
}
