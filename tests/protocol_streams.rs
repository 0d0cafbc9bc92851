//! Section 4 of the protocol: CHUNK and CREDIT.
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

#[tokio::test]
async fn chunks_arrive_in_order_and_before_the_result() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"stream" => true, "credit" => 10}, Value::Nil).await;
    let call = provider.taken().await;
    assert_eq!((call.get("stream"), call.uint("credit")), (&Value::from(true), 10));
    provider.accept(&call).await;
    for seq in 0..10 {
        provider.chunk(&call, seq, Value::from(seq)).await;
    }
    provider.complete(&call, Value::from("end")).await;
    caller.accepted(id).await;
    for seq in 0..10 {
        assert_eq!(caller.chunk_of(id, seq).await.content(), Value::from(seq));
    }
    assert_eq!(caller.completed(id).await.content(), Value::from("end"));
}

#[tokio::test]
async fn the_first_window_is_sixteen_chunks() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"stream" => true}, Value::Nil).await;
    let call = provider.taken().await;
    assert_eq!(call.uint("credit"), 16);
    for seq in 0..16 {
        provider.chunk(&call, seq, Value::Nil).await;
        caller.chunk_of(id, seq).await;
    }
    provider.chunk(&call, 16, Value::Nil).await;
    caller.failed(id, "handler_error").await;
    provider.cancelled(&call).await;
}

#[tokio::test]
async fn credit_reaches_the_provider_under_its_own_id_and_allows_more_chunks() {
    let (_hub, mut provider, mut caller) = world().await;
    caller.last_id = 1000;
    let id = caller.call("x", map! {"stream" => true, "credit" => 1}, Value::Nil).await;
    let call = provider.taken().await;
    provider.chunk(&call, 0, Value::Nil).await;
    caller.chunk_of(id, 0).await;
    for round in 0..3 {
        caller.credit(id, 2).await;
        let credit = provider.expect(kind::CREDIT, "CREDIT").await;
        assert_eq!((credit.uint("id"), credit.uint("n")), (call.uint("id"), 2));
        for seq in [1 + 2 * round, 2 + 2 * round] {
            provider.chunk(&call, seq, Value::Nil).await;
            caller.chunk_of(id, seq).await;
        }
    }
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn a_chunk_past_the_credit_fails_the_call_and_not_the_connection() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {"stream" => true, "credit" => 2}, Value::Nil).await;
    let call = provider.taken().await;
    for seq in 0..3 {
        provider.chunk(&call, seq, Value::from(seq)).await;
    }
    caller.chunk_of(id, 0).await;
    caller.chunk_of(id, 1).await;
    caller.failed(id, "handler_error").await;
    provider.cancelled(&call).await;
    provider.complete(&call, Value::Nil).await;
    provider.fence().await;
    caller.fence().await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_first_chunk_stands_for_the_accept() {
    let (hub, mut provider, mut caller) = world().await;
    let _clock = hub.agent("clock", &["clock"]).await;
    let id = caller.call("x", map! {"stream" => true, "accept_timeout_ms" => 500}, Value::Nil).await;
    let call = provider.taken().await;
    provider.chunk(&call, 0, Value::Nil).await;
    caller.chunk_of(id, 0).await;
    caller.hub_time("clock", 700).await;
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn two_streams_of_one_caller_do_not_mix() {
    let (_hub, mut provider, mut caller) = world().await;
    let mut ids = Vec::new();
    let mut calls = Vec::new();
    for _ in 0..2 {
        ids.push(caller.call("x", map! {"stream" => true, "credit" => 4}, Value::Nil).await);
        calls.push(provider.taken().await);
    }
    for seq in 0..4 {
        for (id, call) in ids.iter().zip(&calls) {
            provider.chunk(call, seq, Value::from(*id)).await;
            assert_eq!(caller.chunk_of(*id, seq).await.content(), Value::from(*id));
        }
    }
    // Past the credit of one, the other goes on.
    provider.chunk(&calls[0], 4, Value::Nil).await;
    caller.failed(ids[0], "handler_error").await;
    provider.cancelled(&calls[0]).await;
    provider.complete(&calls[1], Value::Nil).await;
    caller.completed(ids[1]).await;
}

#[tokio::test]
async fn a_fan_out_of_streams_says_whose_chunk_it_is() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut agents = [hub.agent("a", &["x"]).await, hub.agent("b", &["x"]).await];
    let id = caller.call("x", map! {"stream" => true, "select" => "all"}, Value::Nil).await;
    for agent in &mut agents {
        let call = agent.taken().await;
        agent.chunk(&call, 0, Value::Nil).await;
        assert_eq!(caller.chunk_of(id, 0).await.text("target"), agent.name);
        agent.complete(&call, Value::Nil).await;
        assert_eq!(caller.completed(id).await.text("target"), agent.name);
    }
    assert!(caller.completed(id).await.has("summary"));
}
