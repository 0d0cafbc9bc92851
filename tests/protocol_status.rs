//! Section 3 of the protocol: what UPDATE changes, and what silence does.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Hub, RECONNECT, RawClient};
use rmpv::Value;

/// A hub with an agent that offers `x`, and a caller.
async fn world() -> (Hub, RawClient, RawClient) {
    let hub = Hub::dev();
    let provider = hub.agent("provider", &["x"]).await;
    let caller = hub.agent("caller", &[]).await;
    (hub, provider, caller)
}

/// Sends UPDATE and waits until the hub has taken it.
async fn update(provider: &mut RawClient, header: Value) {
    provider.update(header).await;
    provider.fence().await;
}

async fn no_instance(caller: &mut RawClient, capability: &str) {
    let id = caller.call(capability, map! {}, Value::Nil).await;
    assert!(caller.failed(id, "no_instance").await.retryable());
}

#[tokio::test]
async fn update_adds_and_removes_capabilities() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("y", map! {}, Value::Nil).await;
    assert!(!caller.failed(id, "no_capability").await.retryable());
    update(&mut provider, map! {"add" => vec![map! {"name" => "y"}]}).await;
    canary(&mut caller, &mut provider, "y").await;
    canary(&mut caller, &mut provider, "x").await;
    update(&mut provider, map! {"remove" => list!["y"]}).await;
    no_instance(&mut caller, "y").await;
    canary(&mut caller, &mut provider, "x").await;
    update(&mut provider, map! {"add" => vec![map! {"name" => "y"}], "remove" => list!["x"]}).await;
    canary(&mut caller, &mut provider, "y").await;
    no_instance(&mut caller, "x").await;
}

#[tokio::test]
async fn a_call_that_is_open_survives_the_removal_of_its_capability() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    update(&mut provider, map! {"remove" => list!["x"]}).await;
    provider.complete(&call, Value::from(1)).await;
    assert_eq!(caller.completed(id).await.content(), Value::from(1));
}

#[tokio::test]
async fn draining_takes_the_agent_out_while_its_open_calls_finish() {
    let (_hub, mut provider, mut caller) = world().await;
    let open = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    update(&mut provider, map! {"status" => "draining"}).await;
    no_instance(&mut caller, "x").await;
    provider.complete(&call, Value::Nil).await;
    caller.completed(open).await;
    update(&mut provider, map! {"status" => "ready"}).await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn degraded_keeps_the_agent_routable() {
    let (_hub, mut provider, mut caller) = world().await;
    update(&mut provider, map! {"status" => "degraded"}).await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn health_below_sixty_takes_the_agent_out() {
    let (_hub, mut provider, mut caller) = world().await;
    for (health, routable) in [(59, false), (60, true), (0, false), (100, true)] {
        update(&mut provider, map! {"load" => map! {"in_flight" => 0, "queued" => 0, "health" => health}})
            .await;
        if routable {
            canary(&mut caller, &mut provider, "x").await;
        } else {
            no_instance(&mut caller, "x").await;
        }
    }
}

#[tokio::test]
async fn hello_may_say_status_and_load() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut draining = hub.agent_with("draining", &["d"], map! {"status" => "draining"}).await;
    let load = map! {"in_flight" => 0, "queued" => 0, "cpu" => 0.5, "memory" => 0.5, "health" => 10};
    let mut ill = hub.agent_with("ill", &["i"], map! {"load" => load}).await;
    no_instance(&mut caller, "d").await;
    no_instance(&mut caller, "i").await;
    update(&mut draining, map! {"status" => "ready"}).await;
    update(&mut ill, map! {"load" => map! {"in_flight" => 0, "queued" => 0, "health" => 90}}).await;
    canary(&mut caller, &mut draining, "d").await;
    canary(&mut caller, &mut ill, "i").await;
}

#[tokio::test]
async fn a_full_level_of_one_capability_weighs_in_routing() {
    let hub = Hub::dev();
    let mut full = hub.agent("full", &["x"]).await;
    let mut empty = hub.agent("empty", &["x"]).await;
    let load =
        |level: f64| map! {"load" => map! {"in_flight" => 0, "queued" => 0, "levels" => map! {"x" => level}}};
    update(&mut full, load(1.0)).await;
    update(&mut empty, load(0.0)).await;
    let mut caller = hub.agent("caller", &[]).await;
    for _ in 0..4 {
        canary(&mut caller, &mut empty, "x").await;
    }
    full.fence().await;
}

#[tokio::test]
async fn a_suspect_agent_is_pinged_and_gets_nothing_new_until_any_frame_comes() {
    let hub = Hub::dev_with(&[
        ("LIVENESS__KEEPALIVE_MS", "100"),
        ("LIVENESS__SUSPECT_MS", "400"),
        ("LIVENESS__GONE_MS", "60000"),
    ]);
    let mut provider = hub.agent("provider", &["x"]).await;
    provider.answers_pings = false;
    let mut caller = hub.agent("caller", &[]).await;
    let payload = provider.expect_ping().await;
    no_instance(&mut caller, "x").await;
    // A pong is a frame, and so is a ping; either makes it alive again.
    provider.raw(&raw::frame(raw::frame::PONG, true, &payload)).await;
    provider.fence().await;
    canary(&mut caller, &mut provider, "x").await;
    provider.expect_ping().await;
    no_instance(&mut caller, "x").await;
    provider.ping(b"alive").await;
    assert_eq!(provider.expect_pong().await, b"alive");
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_silent_agent_is_closed_as_gone_and_its_open_calls_are_settled() {
    let hub = Hub::dev_with(&[
        ("LIVENESS__KEEPALIVE_MS", "100"),
        ("LIVENESS__SUSPECT_MS", "300"),
        ("LIVENESS__GONE_MS", "900"),
        ("LIVENESS__RESUME_MS", "100"),
    ]);
    let mut provider = hub.agent("provider", &["x"]).await;
    provider.answers_pings = false;
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    provider.accept(&call).await;
    caller.accepted(id).await;
    let lost = caller.failed(id, "agent_lost").await;
    assert!(!lost.retryable(), "{lost:?}");
    provider.expect_ping().await;
    let goodbye = provider.envelope("GOODBYE gone").await;
    assert_eq!((goodbye.kind, goodbye.text("code")), (raw::kind::GOODBYE, "gone"));
    let close = provider.expect_close().await;
    assert!(close.is_some_and(|code| RECONNECT.contains(&code)), "{close:?}");
    no_instance(&mut caller, "x").await;
}

#[tokio::test]
async fn answering_pings_is_enough_to_stay() {
    let hub = Hub::dev_with(&[
        ("LIVENESS__KEEPALIVE_MS", "100"),
        ("LIVENESS__SUSPECT_MS", "300"),
        ("LIVENESS__GONE_MS", "800"),
    ]);
    let mut agent = hub.agent("a", &[]).await;
    agent.answers_pings = false;
    for _ in 0..5 {
        let payload = agent.expect_ping().await;
        agent.raw(&raw::frame(raw::frame::PONG, true, &payload)).await;
    }
    agent.fence().await;
}
