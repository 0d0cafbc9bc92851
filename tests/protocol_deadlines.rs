//! Section 4 of the protocol: CANCEL, the three deadlines, and whose slot is taken until when. Time passes by the
//! hub's own clock: a call that a silent agent never accepts ends when it has.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Hub, RawClient, kind};
use rmpv::Value;

/// A hub with a provider of `x` that has room for `room` calls, a caller, and a silent agent that is the clock.
async fn world(room: u64) -> (Hub, RawClient, RawClient, RawClient) {
    let hub = Hub::dev();
    let provider = hub.agent_with("provider", &["x"], map! {"max_concurrency" => room}).await;
    let caller = hub.agent("caller", &[]).await;
    let clock = hub.agent("clock", &["clock"]).await;
    (hub, provider, caller, clock)
}

async fn overloaded(caller: &mut RawClient) {
    let id = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    caller.failed(id, "overloaded").await;
}

#[tokio::test]
async fn cancel_is_answered_at_once_and_reaches_the_provider() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    caller.last_id = 500;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    caller.cancel(id).await;
    assert!(!caller.failed(id, "cancelled").await.retryable());
    provider.cancelled(&call).await;
    provider.complete(&call, Value::from("too late")).await;
    provider.fence().await;
    caller.fence().await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn cancel_with_wait_is_answered_with_what_the_provider_answers() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    for completed in [true, false] {
        let id = caller.call("x", map! {}, Value::Nil).await;
        let call = provider.taken().await;
        caller.send(kind::CANCEL, map! {"id" => id, "wait" => true}, Value::Nil).await;
        provider.cancelled(&call).await;
        caller.fence().await;
        if completed {
            provider.complete(&call, Value::from("done before")).await;
            assert_eq!(caller.completed(id).await.content(), Value::from("done before"));
        } else {
            provider.fail(&call, map! {"code" => "cancelled", "message" => "ok", "retryable" => false}).await;
            caller.failed(id, "cancelled").await;
        }
    }
}

#[tokio::test]
async fn the_slot_of_a_cancelled_call_is_taken_until_the_providers_result() {
    let (_hub, mut provider, mut caller, _clock) = world(1).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.cancel(id).await;
    caller.failed(id, "cancelled").await;
    provider.cancelled(&call).await;
    overloaded(&mut caller).await;
    provider.fail(&call, map! {"code" => "cancelled", "message" => "", "retryable" => false}).await;
    provider.fence().await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn the_slot_of_a_cancelled_call_is_free_timeout_ms_after_the_cancel() {
    let (_hub, mut provider, mut caller, _clock) = world(1).await;
    let id = caller.call("x", map! {"timeout_ms" => 600}, Value::Nil).await;
    let call = provider.taken().await;
    caller.cancel(id).await;
    caller.failed(id, "cancelled").await;
    provider.cancelled(&call).await;
    overloaded(&mut caller).await;
    caller.hub_time("clock", 800).await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn the_slot_of_a_timed_out_call_is_taken_until_the_providers_result() {
    let (_hub, mut provider, mut caller, _clock) = world(1).await;
    let id = caller.call("x", map! {"accept_timeout_ms" => 100, "timeout_ms" => 20_000}, Value::Nil).await;
    let call = provider.taken().await;
    caller.failed(id, "accept_timeout").await;
    provider.cancelled(&call).await;
    overloaded(&mut caller).await;
    provider.complete(&call, Value::Nil).await;
    provider.fence().await;
    caller.fence().await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_missed_phase_one_is_accept_timeout() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    let id = caller.call("x", map! {"accept_timeout_ms" => 100}, Value::Nil).await;
    let call = provider.taken().await;
    let result = caller.failed(id, "accept_timeout").await;
    assert!(result.retryable());
    assert_eq!(result.get("attempts")[0]["outcome"].as_str(), Some("accept_timeout"), "{result:?}");
    provider.cancelled(&call).await;
}

#[tokio::test]
async fn a_missed_processing_time_is_timeout_and_counts_from_the_accept() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    let id = caller.call("x", map! {"timeout_ms" => 500}, Value::Nil).await;
    let call = provider.taken().await;
    // Longer than timeout_ms, but within accept_timeout_ms: phase one has a time of its own.
    caller.hub_time("clock", 700).await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    assert!(caller.failed(id, "timeout").await.retryable());
    provider.cancelled(&call).await;
}

#[tokio::test]
async fn a_spent_budget_is_budget_exhausted() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    for accepted in [false, true] {
        let id = caller.call("x", map! {"budget_ms" => 200}, Value::Nil).await;
        let call = provider.taken().await;
        assert!(call.uint("deadline_ms") <= 200, "{call:?}");
        if accepted {
            provider.accept(&call).await;
            caller.accepted(id).await;
        }
        assert!(!caller.failed(id, "budget_exhausted").await.retryable());
        provider.cancelled(&call).await;
    }
}

#[tokio::test]
async fn each_chunk_restarts_the_processing_time() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    let id = caller.call("x", map! {"stream" => true, "timeout_ms" => 1500}, Value::Nil).await;
    let call = provider.taken().await;
    for seq in 0..2 {
        provider.chunk(&call, seq, Value::Nil).await;
        caller.chunk_of(id, seq).await;
        caller.hub_time("clock", 900).await;
    }
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
}

#[tokio::test]
async fn no_chunk_restarts_the_budget() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    let id = caller.call("x", map! {"stream" => true, "budget_ms" => 700}, Value::Nil).await;
    let call = provider.taken().await;
    provider.chunk(&call, 0, Value::Nil).await;
    caller.chunk_of(id, 0).await;
    caller.hub_time("clock", 400).await;
    provider.chunk(&call, 1, Value::Nil).await;
    caller.chunk_of(id, 1).await;
    caller.failed(id, "budget_exhausted").await;
    provider.cancelled(&call).await;
}

#[tokio::test]
async fn priority_scales_the_processing_time() {
    let (_hub, mut provider, mut caller, _clock) = world(5).await;
    let ask = |priority: &str| map! {"timeout_ms" => 1000, "priority" => priority};
    let low = caller.call("x", ask("low"), Value::Nil).await;
    let normal = caller.call("x", ask("normal"), Value::Nil).await;
    let high = caller.call("x", ask("high"), Value::Nil).await;
    for id in [low, normal, high] {
        let call = provider.taken().await;
        provider.accept(&call).await;
        caller.accepted(id).await;
    }
    for id in [low, normal, high] {
        caller.failed(id, "timeout").await;
    }
}

#[tokio::test]
async fn a_capabilitys_own_time_is_the_default_and_with_a_fifth_more_the_most() {
    let hub = Hub::dev();
    let offer = map! {"capabilities" => vec![map! {"name" => "x", "timeout_ms" => 300}]};
    let mut provider = hub.agent_with("provider", &[], offer).await;
    let mut caller = hub.agent("caller", &[]).await;
    for extra in [map! {}, map! {"timeout_ms" => 30_000}] {
        let id = caller.call("x", extra, Value::Nil).await;
        let call = provider.taken().await;
        provider.accept(&call).await;
        caller.accepted(id).await;
        caller.failed(id, "timeout").await;
        provider.cancelled(&call).await;
    }
}

#[tokio::test]
async fn the_times_of_calls_that_name_none_are_configured() {
    let hub = Hub::dev_with(&[("CALLS__ACCEPT_TIMEOUT_MS", "150"), ("CALLS__TIMEOUT_MS", "200")]);
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.failed(id, "accept_timeout").await;
    provider.cancelled(&call).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    caller.failed(id, "timeout").await;
}

#[tokio::test]
async fn cancelling_a_fan_out_cancels_every_part() {
    let hub = Hub::dev();
    let mut agents = [hub.agent("a", &["x"]).await, hub.agent("b", &["x"]).await];
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {"select" => "all"}, Value::Nil).await;
    let mut calls = Vec::new();
    for agent in &mut agents {
        calls.push(agent.taken().await);
    }
    caller.cancel(id).await;
    for (agent, call) in agents.iter_mut().zip(&calls) {
        agent.cancelled(call).await;
    }
    loop {
        let result = caller.result(id).await;
        if result.get("more") != &Value::from(true) {
            break;
        }
        assert_eq!(result.code(), "cancelled");
    }
    caller.fence().await;
}
