//! Section 3 of the protocol: HELLO and WELCOME, names, GOODBYE, one connection for each agent.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::{Hub, Identity, RECONNECT, RawClient, STAY_AWAY, hub, kind};
use rmpv::Value;

/// The strings of a list in a header.
fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().unwrap_or_else(|| panic!("no list: {value}"));
    items.iter().map(|item| item.as_str().expect("a string").to_owned()).collect()
}

#[tokio::test]
async fn welcome_says_what_the_contract_lists() {
    let hub = Hub::dev();
    let mut client = hub.connect("a").await;
    client.hello(&["x"], map! {"service" => "s", "version" => "1.0.0", "sdk" => "raw"}).await;
    let welcome = client.welcome().await;
    assert!(!welcome.text("session").is_empty() && !welcome.text("hub").is_empty(), "{welcome:?}");
    for (key, value) in [
        ("keepalive_ms", 5_000),
        ("suspect_ms", 15_000),
        ("gone_ms", 30_000),
        ("max_message", 1_048_576),
        ("max_in_flight", 1_024),
    ] {
        assert_eq!(welcome.uint(key), value, "{key}");
    }
    assert!(!strings(&welcome.get("granted")["provide"]).is_empty(), "{welcome:?}");
    assert!(!strings(&welcome.get("granted")["call"]).is_empty(), "{welcome:?}");
    assert!(strings(welcome.get("warnings")).is_empty(), "{welcome:?}");
    assert!(welcome.get("features").is_array(), "{welcome:?}");
    assert_ne!(welcome.get("replaced"), &Value::from(true), "{welcome:?}");
}

#[tokio::test]
async fn welcome_says_the_configured_times_and_limits() {
    let hub = Hub::dev_with(&[
        ("LIVENESS__KEEPALIVE_MS", "1000"),
        ("LIVENESS__SUSPECT_MS", "3000"),
        ("LIVENESS__GONE_MS", "3001"),
        ("LIMITS__MAX_IN_FLIGHT", "7"),
    ]);
    let mut client = hub.connect("a").await;
    client.hello(&[], map! {"features" => list!["telepathy"]}).await;
    let welcome = client.welcome().await;
    let said = ["keepalive_ms", "suspect_ms", "gone_ms", "max_in_flight"].map(|key| welcome.uint(key));
    assert_eq!(said, [1000, 3000, 3001, 7]);
}

#[tokio::test]
async fn a_name_is_folded_with_a_warning_and_serves_under_its_folded_form() {
    let hub = Hub::dev();
    let mut provider = hub.connect("provider").await;
    provider.hello(&["Text_Analysis.Sentiment", "plain"], map! {}).await;
    let warnings = strings(provider.welcome().await.get("warnings"));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("Text_Analysis.Sentiment"), "{warnings:?}");
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call("text-analysis.sentiment", map! {}, Value::Nil).await;
    assert_eq!(provider.echo().await.text("capability"), "text-analysis.sentiment");
    caller.completed(id).await;
}

#[tokio::test]
async fn a_refused_name_is_left_out_with_a_warning_and_the_others_register() {
    let hub = Hub::dev();
    let long = "x".repeat(129);
    let refused = ["two words", ".a", "a.", "a..b", "ä", "a/b", "*", "a.*", "hub.mine", "hub.stats"];
    let names = [refused.as_slice(), &["", &long, "good.one", "good.two"]].concat();
    let mut provider = hub.connect("provider").await;
    provider.hello(&names, map! {}).await;
    let warnings = strings(provider.welcome().await.get("warnings"));
    assert_eq!(warnings.len(), refused.len() + 2, "{warnings:?}");
    for name in refused {
        assert!(
            warnings.iter().any(|warning| warning.contains(name)),
            "no warning names {name:?}: {warnings:?}"
        );
    }
    let mut caller = hub.agent("caller", &[]).await;
    for good in ["good.one", "good.two"] {
        raw::peer::canary(&mut caller, &mut provider, good).await;
    }
}

#[tokio::test]
async fn a_name_that_policy_does_not_grant_is_left_out_with_a_warning() {
    let policy = "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"open.*\"]\ncall = [\"*\"]\n";
    let hub = Hub::serve(policy, "");
    let mut provider = hub.connect("provider").await;
    provider.hello(&["open.door", "open", "secret.door"], map! {}).await;
    let welcome = provider.welcome().await;
    let warnings = strings(welcome.get("warnings"));
    assert_eq!(warnings.len(), 2, "`open.*` is below `open` and not `open` itself: {warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("secret.door")), "{warnings:?}");
    assert_eq!(*welcome.get("granted"), map! {"provide" => list!["open.*"], "call" => list!["*"]});
    let mut caller = hub.agent("caller", &[]).await;
    raw::peer::canary(&mut caller, &mut provider, "open.door").await;
    let id = caller.call("secret.door", map! {}, Value::Nil).await;
    caller.failed(id, "no_capability").await;
}

#[tokio::test]
async fn what_policy_does_not_grant_may_not_be_called() {
    let policy =
        "version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [\"open.*\", \"exact\"]\n";
    let hub = Hub::serve(policy, "");
    let mut provider = hub.agent("provider", &["open", "open.door", "exact", "exact.more"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    for allowed in ["open.door", "exact"] {
        raw::peer::canary(&mut caller, &mut provider, allowed).await;
    }
    for forbidden in ["open", "exact.more", "unheard-of", "hub.stats"] {
        let id = caller.call(forbidden, map! {}, Value::Nil).await;
        assert!(!caller.failed(id, "unauthorized").await.retryable());
    }
}

#[tokio::test]
async fn what_an_agent_did_not_declare_it_may_not_call() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &["order", "order.create", "order.create.fast", "pay"]).await;
    let mut caller = hub.agent_with("caller", &[], map! {"calls" => list!["order.*"]}).await;
    for declared in ["order.create", "order.create.fast"] {
        raw::peer::canary(&mut caller, &mut provider, declared).await;
    }
    for undeclared in ["order", "orders", "pay", "hub.stats"] {
        let id = caller.call(undeclared, map! {}, Value::Nil).await;
        caller.failed(id, "unauthorized").await;
    }
    let mut mute = hub.agent_with("mute", &[], map! {"calls" => list![]}).await;
    let id = mute.call("pay", map! {}, Value::Nil).await;
    mute.failed(id, "unauthorized").await;
}

#[tokio::test]
async fn a_pattern_of_any_other_form_is_an_error() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    let identity = hub.identity("a");
    for pattern in ["a*", "*.a", "a.*.b", "**", "a.**", ".*", "", "a b"] {
        let mut client = hub.connect_with("a", raw::Format::MsgPack, &identity).await;
        client.hello(&[], map! {"calls" => list![pattern]}).await;
        client.expect_protocol_error().await;
    }
}

#[tokio::test]
async fn rights_are_checked_on_the_alias_and_on_what_it_resolves_to() {
    let offer = map! {"name" => "mail.send", "aliases" => list!["letter.post"]};
    let rule = |call: &str| {
        format!("version = 1\n[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [{call}]\n")
    };
    for (call, allowed) in [("\"*\"", true), ("\"letter.post\"", false), ("\"mail.send\"", false)] {
        let hub = Hub::serve(&rule(call), "");
        let capabilities = map! {"capabilities" => vec![offer.clone()]};
        let mut provider = hub.agent_with("provider", &[], capabilities).await;
        let mut caller = hub.agent("caller", &[]).await;
        let id = caller.call("letter.post", map! {}, Value::Nil).await;
        if allowed {
            assert_eq!(provider.echo().await.text("capability"), "mail.send", "the provider's own name");
            caller.completed(id).await;
        } else {
            caller.failed(id, "unauthorized").await;
        }
    }
}

#[tokio::test]
async fn the_newest_connection_of_an_agent_replaces_the_older() {
    let hub = Hub::dev();
    let mut old = hub.agent("provider", &["x"]).await;
    let mut new = hub.connect("provider").await;
    new.hello(&["x"], map! {}).await;
    assert_eq!(new.welcome().await.get("replaced"), &Value::from(true));
    old.expect_goodbye("replaced", STAY_AWAY).await;
    let mut caller = hub.agent("caller", &[]).await;
    raw::peer::canary(&mut caller, &mut new, "x").await;
}

#[tokio::test]
async fn the_end_of_a_replaced_connection_does_not_touch_the_newer() {
    let hub = Hub::dev();
    let old = hub.agent("provider", &["x"]).await;
    let mut new = hub.agent("provider", &["x"]).await;
    old.vanish().await;
    let mut caller = hub.agent("caller", &[]).await;
    raw::peer::canary(&mut caller, &mut new, "x").await;
    new.fence().await;
}

/// Connects with one certificate again and again.
async fn again(hub: &Hub, identity: &Identity) -> RawClient {
    let mut client = hub.connect_with("a", raw::Format::MsgPack, identity).await;
    client.hello(&[], map! {}).await;
    client
}

#[tokio::test]
async fn more_than_five_hellos_in_ten_seconds_are_a_storm() {
    let hub = Hub::dev();
    let identity = hub.identity("a");
    let mut last = again(&hub, &identity).await;
    last.welcome().await;
    for _ in 1..5 {
        let mut next = again(&hub, &identity).await;
        next.welcome().await;
        last.expect_goodbye("replaced", STAY_AWAY).await;
        last = next;
    }
    let goodbye = again(&hub, &identity).await.expect_goodbye("rate_limited", RECONNECT).await;
    assert!(goodbye["reconnect_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{goodbye}");
    last.fence().await;
    hub.agent("b", &[]).await.fence().await;
}

#[tokio::test]
async fn no_hello_in_time_ends_the_connection() {
    let hub = Hub::dev_with(&[("AGENTS__HANDSHAKE_TIMEOUT_MS", "3000")]);
    let mut silent = hub.connect("silent").await;
    silent.expect_protocol_error().await;
    let mut pinging = hub.connect("pinging").await;
    pinging.ping(b"is no HELLO").await;
    pinging.expect_pong().await;
    pinging.expect_protocol_error().await;
}

#[tokio::test]
async fn a_normal_goodbye_is_closed_with_1000_and_the_agent_is_gone() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut provider = hub.agent("provider", &["x"]).await;
    provider.send(kind::GOODBYE, map! {"code" => "normal", "reason" => "end of work"}, Value::Nil).await;
    assert_eq!(provider.expect_end().await, Some(1000));
    let id = caller.call("x", map! {}, Value::Nil).await;
    assert!(caller.failed(id, "no_instance").await.retryable());
}

#[tokio::test]
async fn an_agent_that_left_comes_back_under_its_name() {
    let hub = Hub::dev();
    let mut caller = hub.agent("caller", &[]).await;
    let mut provider = hub.agent("provider", &["x"]).await;
    provider.send(kind::GOODBYE, map! {"code" => "normal"}, Value::Nil).await;
    provider.expect_end().await;
    let mut provider = hub.connect("provider").await;
    provider.hello(&["x"], map! {}).await;
    assert_ne!(provider.welcome().await.get("replaced"), &Value::from(true));
    raw::peer::canary(&mut caller, &mut provider, "x").await;
}

#[tokio::test]
async fn an_agent_may_call_itself() {
    let hub = Hub::serve(hub::OPEN, "");
    let mut agent = hub.agent("a", &["x"]).await;
    let id = agent.call("x", map! {}, Value::from("me")).await;
    let call = agent.echo().await;
    assert_eq!(call.text("caller"), "a");
    assert_eq!(agent.completed(id).await.content(), Value::from("me"));
}
