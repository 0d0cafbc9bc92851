//! Section 4 of the protocol: which agents get a call, and how many.
#![cfg(test)]

#[macro_use]
mod raw;

use std::collections::BTreeMap;

use raw::peer::canary;
use raw::{Hub, RawClient, kind};
use rmpv::Value;

/// A hub with `names` that all offer `x`, and a caller.
async fn world(names: &[&str]) -> (Hub, Vec<RawClient>, RawClient) {
    let hub = Hub::dev();
    let mut agents = Vec::new();
    for name in names {
        agents.push(hub.agent(name, &["x"]).await);
    }
    let caller = hub.agent("caller", &[]).await;
    (hub, agents, caller)
}

/// How many calls each agent was sent; the caller must have been answered by a fence first.
async fn shares(agents: &mut [RawClient]) -> Vec<usize> {
    let mut shares = Vec::new();
    for agent in agents {
        let calls = agent.until_fence().await;
        assert!(calls.iter().all(|envelope| envelope.kind == kind::CALL), "{calls:?}");
        shares.push(calls.len());
    }
    shares
}

/// A fan-out's answers by target, and the RESULT that ended it.
async fn fan_out(caller: &mut RawClient, id: u64) -> (BTreeMap<String, raw::Envelope>, raw::Envelope) {
    let mut answers = BTreeMap::new();
    loop {
        let envelope = caller.envelope("a RESULT of the fan-out").await;
        if envelope.kind == kind::ACCEPT {
            continue;
        }
        assert_eq!((envelope.kind, envelope.uint("id")), (kind::RESULT, id), "{envelope:?}");
        if envelope.has("summary") {
            assert_ne!(envelope.get("more"), &Value::from(true), "{envelope:?}");
            return (answers, envelope);
        }
        assert_eq!(envelope.get("more"), &Value::from(true), "{envelope:?}");
        let twice = answers.insert(envelope.text("target").to_owned(), envelope);
        assert!(twice.is_none(), "one target answered twice: {twice:?}");
    }
}

fn summary(result: &raw::Envelope) -> [u64; 3] {
    ["targets", "completed", "failed"].map(|key| result.get("summary")[key].as_u64().expect("a count"))
}

#[tokio::test]
async fn a_directed_call_goes_to_that_agent_and_to_no_other() {
    let (_hub, mut agents, mut caller) = world(&["a", "b", "c"]).await;
    for _ in 0..3 {
        let id = caller.call("x", map! {"agents" => list!["b"]}, Value::Nil).await;
        agents[1].echo().await;
        let result = caller.completed(id).await;
        assert_eq!(result.text("target"), "b");
        assert!(!result.has("summary"), "one agent is no fan-out: {result:?}");
    }
    for agent in &mut agents {
        agent.fence().await;
    }
}

#[tokio::test]
async fn a_directed_call_never_leaves_the_agents_named() {
    let (hub, mut agents, mut caller) = world(&["a"]).await;
    let _other = hub.agent("other", &["y"]).await;
    for absent in ["nobody", "other"] {
        let id = caller.call("x", map! {"agents" => list![absent]}, Value::Nil).await;
        caller.failed(id, "no_instance").await;
    }
    agents[0].fence().await;
}

#[tokio::test]
async fn several_agents_are_a_fan_out_in_which_one_failure_fails_only_its_own() {
    let (_hub, mut agents, mut caller) = world(&["a", "b", "c"]).await;
    let id = caller.call("x", map! {"agents" => list!["a", "b"]}, Value::from("q")).await;
    agents[0].echo().await;
    let call = agents[1].taken().await;
    agents[1].fail(&call, map! {"code" => "unsupported", "message" => "no", "retryable" => false}).await;
    let (answers, end) = fan_out(&mut caller, id).await;
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((answers["a"].text("status"), answers["a"].content()), ("completed", Value::from("q")));
    assert_eq!((answers["b"].text("status"), answers["b"].code()), ("failed", "unsupported"));
    assert_eq!(summary(&end), [2, 1, 1]);
    agents[2].fence().await;
    caller.fence().await;
}

#[tokio::test]
async fn select_all_reaches_all_and_select_n_that_many() {
    let (_hub, mut agents, mut caller) = world(&["a", "b", "c"]).await;
    let id = caller.call("x", map! {"select" => "all"}, Value::Nil).await;
    for agent in &mut agents {
        agent.echo().await;
    }
    let (answers, end) = fan_out(&mut caller, id).await;
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(summary(&end), [3, 3, 0]);

    let id = caller.call("x", map! {"select" => 2}, Value::Nil).await;
    caller.fence().await;
    let mut reached = 0;
    for agent in &mut agents {
        for call in agent.until_fence().await {
            agent.complete(&call, Value::Nil).await;
            reached += 1;
        }
    }
    assert_eq!(reached, 2);
    let (answers, end) = fan_out(&mut caller, id).await;
    assert_eq!((answers.len(), summary(&end)), (2, [2, 2, 0]));
}

#[tokio::test]
async fn a_fan_out_forwards_each_accept_with_its_target() {
    let (_hub, mut agents, mut caller) = world(&["a", "b"]).await;
    let id = caller.call("x", map! {"select" => "all"}, Value::Nil).await;
    for agent in &mut agents {
        let call = agent.taken().await;
        agent.accept(&call).await;
        let accept = caller.accepted(id).await;
        assert_eq!(accept.text("target"), agent.name);
        agent.complete(&call, Value::Nil).await;
        let result = caller.completed(id).await;
        assert_eq!((result.text("target"), result.get("more")), (agent.name.as_str(), &Value::from(true)));
    }
    assert_eq!(summary(&caller.result(id).await), [2, 2, 0]);
}

#[tokio::test]
async fn a_fan_out_in_which_one_target_is_lost_still_ends() {
    let (_hub, mut agents, mut caller) = world(&["a", "b"]).await;
    let id = caller.call("x", map! {"select" => "all", "timeout_ms" => 300}, Value::Nil).await;
    let mut lost = agents.pop().expect("b");
    let call = lost.taken().await;
    lost.accept(&call).await;
    agents[0].echo().await;
    let (answers, end) = fan_out(&mut caller, id).await;
    assert_eq!((answers["a"].text("status"), answers["b"].code()), ("completed", "timeout"));
    assert_eq!(summary(&end), [2, 1, 1]);
}

#[tokio::test]
async fn least_loaded_fills_agents_in_proportion_to_their_room() {
    let hub = Hub::dev();
    let mut agents = Vec::new();
    for (name, room) in [("small", 2), ("large", 4)] {
        agents.push(hub.agent_with(name, &["x"], map! {"max_concurrency" => room}).await);
    }
    let mut caller = hub.agent("caller", &[]).await;
    for _ in 0..3 {
        caller.call("x", map! {}, Value::Nil).await;
    }
    caller.fence().await;
    assert_eq!(shares(&mut agents).await, [1, 2], "half of the calls use half of each one's room");
    for _ in 0..3 {
        caller.call("x", map! {}, Value::Nil).await;
    }
    caller.fence().await;
    assert_eq!(shares(&mut agents).await, [1, 2], "and the rest the rest");
    let id = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    caller.failed(id, "overloaded").await;
}

#[tokio::test]
async fn round_robin_takes_turns() {
    let (_hub, mut agents, mut caller) = world(&["a", "b", "c"]).await;
    let mut order = Vec::new();
    for _ in 0..6 {
        let id = caller.call("x", map! {"policy" => "round_robin", "mode" => "notify"}, Value::Nil).await;
        caller.fence().await;
        for agent in &mut agents {
            for call in agent.until_fence().await {
                agent.complete(&call, Value::Nil).await;
                order.push(agent.name.clone());
            }
        }
        caller.completed(id).await;
    }
    assert_eq!(order[..3], order[3..], "{order:?}");
    order.truncate(3);
    order.sort();
    assert_eq!(order, ["a", "b", "c"]);
}

#[tokio::test]
async fn random_takes_one_of_the_candidates() {
    let (_hub, mut agents, mut caller) = world(&["a", "b"]).await;
    for _ in 0..20 {
        caller.call("x", map! {"policy" => "random"}, Value::Nil).await;
    }
    caller.fence().await;
    assert_eq!(shares(&mut agents).await.iter().sum::<usize>(), 20);
}

#[tokio::test]
async fn labels_are_preferred_and_required_ones_must_be_there() {
    let hub = Hub::dev();
    let mut north =
        hub.agent_with("north", &["x"], map! {"labels" => map! {"zone" => "n", "gpu" => "yes"}}).await;
    let mut south = hub.agent_with("south", &["x"], map! {"labels" => map! {"zone" => "s"}}).await;
    let mut caller = hub.agent("caller", &[]).await;
    for (key, zone) in [("labels", "n"), ("labels", "s"), ("require", "n"), ("require", "s")] {
        asked_and_fenced(&mut caller, map! {key => map! {"zone" => zone}}).await;
        let (asked, other) = if zone == "n" { (&mut north, &mut south) } else { (&mut south, &mut north) };
        assert_eq!(asked.until_fence().await.len(), 1, "{key} {zone}");
        other.fence().await;
    }
    // A preference that nobody fulfils is no condition; a requirement is.
    let id = caller.call("x", map! {"labels" => map! {"zone" => "west"}}, Value::Nil).await;
    caller.fence().await;
    let mut calls = Vec::new();
    for agent in [&mut north, &mut south] {
        for call in agent.until_fence().await {
            agent.complete(&call, Value::Nil).await;
            calls.push(call);
        }
    }
    assert_eq!(calls.len(), 1);
    caller.completed(id).await;
    for unmet in [map! {"zone" => "west"}, map! {"zone" => "s", "gpu" => "yes"}] {
        let id = caller.call("x", map! {"require" => unmet}, Value::Nil).await;
        caller.failed(id, "no_instance").await;
    }
}

/// A call with these keys that stays open, and a fence behind it.
async fn asked_and_fenced(caller: &mut RawClient, extra: Value) {
    caller.call("x", extra, Value::Nil).await;
    caller.fence().await;
}

#[tokio::test]
async fn a_version_requirement_takes_only_agents_that_fulfil_it() {
    let hub = Hub::dev();
    let offer = |version: &str| map! {"capabilities" => vec![map! {"name" => "x", "version" => version}]};
    let mut one = hub.agent_with("one", &[], offer("1.4.0")).await;
    let mut two = hub.agent_with("two", &[], offer("2.0.1")).await;
    let mut caller = hub.agent("caller", &[]).await;
    for (requirement, first) in
        [("^1.2", true), ("^2", false), (">=2.0.0", false), ("=1.4.0", true), ("<2", true)]
    {
        let id = caller.call("x", map! {"version" => requirement}, Value::Nil).await;
        if first {
            one.echo().await
        } else {
            two.echo().await
        };
        caller.completed(id).await;
    }
    let id = caller.call("x", map! {"version" => "^3"}, Value::Nil).await;
    caller.failed(id, "no_instance").await;
}

#[tokio::test]
async fn an_alias_reaches_the_capability_under_its_own_name() {
    let hub = Hub::dev();
    let offer = map! {"name" => "mail.send", "aliases" => list!["post", "letter.send"]};
    let mut provider = hub.agent_with("provider", &[], map! {"capabilities" => vec![offer]}).await;
    let mut caller = hub.agent("caller", &[]).await;
    for name in ["mail.send", "post", "letter.send"] {
        let id = caller.call(name, map! {}, Value::Nil).await;
        assert_eq!(provider.echo().await.text("capability"), "mail.send");
        caller.completed(id).await;
    }
}

#[tokio::test]
async fn an_agent_never_gets_more_than_it_has_room_for() {
    let hub = Hub::dev();
    let mut provider = hub.agent_with("provider", &["x"], map! {"max_concurrency" => 2}).await;
    let mut caller = hub.agent("caller", &[]).await;
    let first = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.call("x", map! {}, Value::Nil).await;
    provider.taken().await;
    let id = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    let result = caller.failed(id, "overloaded").await;
    assert!(result.retryable());
    assert!(result.details()["retry_after_ms"].is_u64(), "{result:?}");
    provider.fence().await;
    provider.complete(&call, Value::Nil).await;
    caller.completed(first).await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_caller_has_no_more_calls_open_than_welcome_says() {
    let hub = Hub::dev_with(&[("LIMITS__MAX_IN_FLIGHT", "2")]);
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let first = caller.call("x", map! {}, Value::Nil).await;
    let call = provider.taken().await;
    caller.call("x", map! {}, Value::Nil).await;
    provider.taken().await;
    let third = caller.call("x", map! {}, Value::Nil).await;
    caller.failed(third, "overloaded").await;
    provider.complete(&call, Value::Nil).await;
    caller.completed(first).await;
    canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn a_capability_takes_no_more_than_its_qps_limit() {
    let hub = Hub::dev();
    let offer = map! {"capabilities" => vec![map! {"name" => "x", "qps_limit" => 0.01}]};
    let mut provider = hub.agent_with("provider", &[], offer).await;
    let mut caller = hub.agent("caller", &[]).await;
    let first = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    let second = caller.call("x", map! {"queue" => false}, Value::Nil).await;
    assert!(caller.failed(second, "rate_limited").await.retryable());
    provider.echo().await;
    caller.completed(first).await;
    provider.fence().await;
}
