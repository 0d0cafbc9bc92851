//! Section 8 of the protocol: what the hub itself provides.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::{Format, Hub, RawClient, hub, kind, mentions};
use rmpv::Value;

/// Calls one of the hub's own capabilities; the answer's body.
async fn ask(caller: &mut RawClient, capability: &str, body: Value) -> Value {
    let id = caller.call(capability, map! {}, body).await;
    let result = caller.completed(id).await;
    let content = result.content();
    assert!(content.is_map(), "bodies are maps: {content}");
    content
}

/// The entry of a list whose `key` is `value`.
fn entry<'a>(list: &'a Value, key: &str, value: &str) -> &'a Value {
    let items = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    let found = items.iter().find(|item| item[key].as_str() == Some(value));
    found.unwrap_or_else(|| panic!("no {key} {value} in {list}"))
}

fn offer() -> Value {
    map! {
        "name" => "text.shout",
        "version" => "1.2.0",
        "description" => "says it louder",
        "input_schema" => map! {"type" => "string"},
        "output_schema" => map! {"type" => "string", "minLength" => 1},
    }
}

async fn world() -> (Hub, RawClient, RawClient) {
    let hub = Hub::dev();
    let hello = map! {"capabilities" => vec![offer()], "labels" => map! {"zone" => "north"}};
    let provider = hub.agent_with("provider", &[], hello).await;
    let caller = hub.agent("caller", &[]).await;
    (hub, provider, caller)
}

#[tokio::test]
async fn agents_are_listed_with_status_and_capabilities() {
    let (_hub, mut provider, mut caller) = world().await;
    let listed = ask(&mut caller, "hub.agents.list", Value::Nil).await;
    assert_eq!(listed["agents"].as_array().expect("agents").len(), 2, "{listed}");
    entry(&listed["agents"], "agent_id", "caller");
    let entry_of = entry(&listed["agents"], "agent_id", "provider");
    assert_eq!(entry_of["status"].as_str(), Some("ready"), "{entry_of}");
    assert!(mentions(&entry_of["capabilities"], "text.shout"), "{entry_of}");
    provider.update(map! {"status" => "draining"}).await;
    provider.fence().await;
    let listed = ask(&mut caller, "hub.agents.list", map! {}).await;
    assert_eq!(
        entry(&listed["agents"], "agent_id", "provider")["status"].as_str(),
        Some("draining"),
        "{listed}"
    );
}

#[tokio::test]
async fn one_agent_is_told_by_its_id() {
    let (_hub, mut provider, mut caller) = world().await;
    provider.update(map! {"load" => map! {"in_flight" => 1, "queued" => 7, "health" => 77}}).await;
    provider.fence().await;
    caller.call("text.shout", map! {}, Value::from("hey")).await;
    provider.taken().await;
    let told = ask(&mut caller, "hub.agents.get", map! {"agent_id" => "provider"}).await;
    let agent = &told["agent"];
    assert_eq!(agent["agent_id"].as_str(), Some("provider"), "{told}");
    assert_eq!(agent["load"]["health"].as_u64(), Some(77), "{told}");
    assert!(mentions(&agent["capabilities"], "text.shout"), "{told}");
    let id = caller.call("hub.agents.get", map! {}, map! {"agent_id" => "nobody"}).await;
    let result = caller.result(id).await;
    assert_eq!(result.text("status"), "failed", "{result:?}");
    let id = caller.call("hub.agents.get", map! {}, map! {}).await;
    caller.invalid(id, "agent_id").await;
}

#[tokio::test]
async fn the_dictionary_has_schemas_and_who_offers_them() {
    let (_hub, _provider, mut caller) = world().await;
    let dictionary = ask(&mut caller, "hub.capabilities.list", Value::Nil).await;
    let capability = entry(&dictionary["capabilities"], "name", "text.shout");
    for (key, value) in offer().as_map().expect("a map") {
        assert!(
            contains(capability, key.as_str().expect("a string"), value),
            "no {key} {value} in {capability}"
        );
    }
    assert!(mentions(capability, "provider"), "{capability}");
}

/// Whether `key` has `value` in the map itself or in one below it.
fn contains(map: &Value, key: &str, value: &Value) -> bool {
    let below = map.as_map().into_iter().flatten().map(|(_, value)| value);
    let below = below.chain(map.as_array().into_iter().flatten());
    map[key] == *value || below.into_iter().any(|inner| contains(inner, key, value))
}

#[tokio::test]
async fn open_calls_are_listed_until_they_end() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("text.shout", map! {"request_id" => "shout-1"}, Value::from("hey")).await;
    let call = provider.taken().await;
    let open = ask(&mut caller, "hub.calls.list", Value::Nil).await;
    let listed = entry(&open["calls"], "call_id", call.text("call_id"));
    assert_eq!(listed["capability"].as_str(), Some("text.shout"), "{listed}");
    assert!(mentions(listed, "caller") && mentions(listed, "provider"), "{listed}");
    provider.complete(&call, Value::Nil).await;
    caller.completed(id).await;
    let open = ask(&mut caller, "hub.calls.list", Value::Nil).await;
    assert!(!mentions(&open, call.text("call_id")), "{open}");
}

#[tokio::test]
async fn stats_are_figures() {
    let (_hub, _provider, mut caller) = world().await;
    let stats = ask(&mut caller, "hub.stats", Value::Nil).await;
    assert!(stats.as_map().is_some_and(|figures| !figures.is_empty()), "{stats}");
}

#[tokio::test]
async fn a_trace_tells_the_decisions_of_a_call() {
    let (_hub, mut provider, mut caller) = world().await;
    let id = caller.call("text.shout", map! {}, Value::from("hey")).await;
    provider.echo().await;
    let call_id = caller.completed(id).await.text("call_id").to_owned();
    let trace = ask(&mut caller, "hub.traces.get", map! {"call_id" => call_id.as_str()}).await;
    for told in [call_id.as_str(), "provider", "text.shout"] {
        assert!(mentions(&trace, told), "no {told} in {trace}");
    }
    let id = caller.call("hub.traces.get", map! {}, map! {"call_id" => "nothing"}).await;
    assert_eq!(caller.result(id).await.text("status"), "failed");
}

/// Begins to watch events; its id, once it is accepted.
async fn watch(caller: &mut RawClient) -> u64 {
    let id = caller.call("hub.events.watch", map! {"stream" => true, "credit" => 1000}, Value::Nil).await;
    caller.accepted(id).await;
    id
}

/// Reads chunks of the watch until one has all of `words`.
async fn seen(caller: &mut RawClient, id: u64, next: &mut u64, words: &[&str]) {
    loop {
        let chunk = caller.chunk_of(id, *next).await;
        *next += 1;
        let content = chunk.content();
        if words.iter().all(|word| mentions(&content, word)) {
            return;
        }
    }
}

#[tokio::test]
async fn a_watch_begins_with_the_state_now_and_goes_on_with_changes_until_cancelled() {
    let (hub, _provider, mut caller) = world().await;
    let id = watch(&mut caller).await;
    let mut next = 0;
    seen(&mut caller, id, &mut next, &["provider"]).await;
    let mut newcomer = hub.agent("newcomer", &["y"]).await;
    seen(&mut caller, id, &mut next, &["newcomer"]).await;
    newcomer.update(map! {"status" => "draining"}).await;
    seen(&mut caller, id, &mut next, &["newcomer", "draining"]).await;
    newcomer.send(kind::GOODBYE, map! {"code" => "normal"}, Value::Nil).await;
    seen(&mut caller, id, &mut next, &["newcomer"]).await;
    caller.cancel(id).await;
    loop {
        let envelope = caller.envelope("the end of the watch").await;
        if envelope.kind == kind::RESULT {
            assert_eq!(envelope.code(), "cancelled");
            break;
        }
        assert_eq!(envelope.kind, kind::CHUNK);
    }
    let _later = hub.agent("later", &["y"]).await;
    caller.fence().await;
    let id = watch(&mut caller).await;
    seen(&mut caller, id, &mut 0, &["later"]).await;
}

#[tokio::test]
async fn a_watch_tells_of_calls() {
    let (hub, mut provider, mut caller) = world().await;
    let mut watcher = hub.agent("watcher", &[]).await;
    let id = watch(&mut watcher).await;
    let mut next = 0;
    caller.call("text.shout", map! {}, Value::from("hey")).await;
    let call = provider.echo().await;
    seen(&mut watcher, id, &mut next, &[call.text("call_id")]).await;
}

#[tokio::test]
async fn a_watch_never_sends_more_than_its_credit() {
    let (hub, _provider, mut caller) = world().await;
    let id = caller.call("hub.events.watch", map! {"stream" => true, "credit" => 1}, Value::Nil).await;
    caller.accepted(id).await;
    caller.chunk_of(id, 0).await;
    for name in ["b", "c", "d"] {
        hub.agent(name, &["y"]).await.fence().await;
    }
    caller.fence().await;
    caller.credit(id, 1).await;
    caller.chunk_of(id, 1).await;
}

#[tokio::test]
async fn an_operator_disconnects_an_agent() {
    let hub = Hub::serve(hub::OPEN, "");
    let mut operator = hub.agent("operator", &[]).await;
    let mut victim = hub.agent("victim", &["x"]).await;
    let id = operator.call("hub.agents.disconnect", map! {}, map! {"agent_id" => "victim"}).await;
    operator.completed(id).await;
    victim.expect(kind::GOODBYE, "GOODBYE").await;
    victim.expect_close().await;
    let id = operator.call("x", map! {}, Value::Nil).await;
    operator.failed(id, "no_instance").await;
}

#[tokio::test]
async fn a_star_does_not_cover_what_operators_do() {
    let policy = "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [\"*\"]\n";
    let hub = Hub::serve(policy, "");
    let mut caller = hub.agent("caller", &[]).await;
    let mut other = hub.agent("other", &[]).await;
    for capability in ["hub.agents.disconnect", "hub.agents.drain", "hub.config.reload", "hub.tasks.retry"] {
        let id = caller.call(capability, map! {}, map! {"agent_id" => "other"}).await;
        caller.failed(id, "unauthorized").await;
    }
    other.fence().await;
    ask(&mut caller, "hub.agents.list", Value::Nil).await;
}

#[tokio::test]
async fn the_name_alone_lets_an_operator_disconnect() {
    let policy = "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = []\n\
                  call = [\"hub.agents.disconnect\", \"hub.stats\"]\n";
    let hub = Hub::serve(policy, "");
    let mut caller = hub.agent("caller", &[]).await;
    let mut other = hub.agent("other", &[]).await;
    ask(&mut caller, "hub.agents.disconnect", map! {"agent_id" => "other"}).await;
    other.expect(kind::GOODBYE, "GOODBYE").await;
    let id = caller.call("hub.agents.list", map! {}, Value::Nil).await;
    caller.failed(id, "unauthorized").await;
}

#[tokio::test]
async fn an_unknown_capability_of_the_hub_is_no_capability() {
    let (_hub, _provider, mut caller) = world().await;
    let id = caller.call("hub.weather.get", map! {}, Value::Nil).await;
    caller.failed(id, "no_capability").await;
}

#[tokio::test]
async fn json_agents_ask_the_hub_too() {
    let (hub, _provider, _caller) = world().await;
    let mut json = hub.agent_as("json", Format::Json, &[], map! {}).await;
    let listed = ask(&mut json, "hub.agents.list", Value::Nil).await;
    entry(&listed["agents"], "agent_id", "provider");
}
