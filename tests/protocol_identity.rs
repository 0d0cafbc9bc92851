//! Section 1 of the protocol: who a certificate proves, and which agent_id that allows.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::certs::{dns, uri};
use raw::{Format, Hub, Identity, RawClient, STAY_AWAY, hub};
use rcgen::SanType;

/// A connection with a certificate made by hand that has said HELLO as `agent_id`.
async fn greeted(hub: &Hub, agent_id: &str, common_name: &str, names: Vec<SanType>) -> RawClient {
    let identity = Identity::odd(hub.dir(), common_name, names);
    let mut client = hub.connect_with(agent_id, Format::MsgPack, &identity).await;
    client.hello(&[], map! {}).await;
    client
}

#[tokio::test]
async fn an_issued_certificate_allows_its_own_name() {
    let hub = Hub::dev();
    let identity = hub.identity("worker-7");
    assert!(identity.name().starts_with("spiffe://"), "{}", identity.name());
    assert!(identity.name().ends_with("/agent/worker-7"), "{}", identity.name());
    hub.agent("worker-7", &[]).await.fence().await;
}

#[tokio::test]
async fn the_uri_comes_before_the_dns_name_and_that_before_the_common_name() {
    let hub = Hub::dev();
    let spiffe = || uri("spiffe://example.org/agent/from-uri");
    for (agent_id, names) in [
        ("from-uri", vec![spiffe()]),
        ("from-uri", vec![dns("from-dns"), spiffe()]),
        ("from-dns", vec![dns("from-dns")]),
        ("from-cn", vec![]),
    ] {
        greeted(&hub, agent_id, "from-cn", names).await.welcome().await;
    }
}

#[tokio::test]
async fn only_the_first_kind_present_counts() {
    let hub = Hub::dev();
    let spiffe = || uri("spiffe://example.org/agent/from-uri");
    for (agent_id, names) in [
        ("from-dns", vec![spiffe(), dns("from-dns")]),
        ("from-cn", vec![spiffe()]),
        ("from-cn", vec![dns("from-dns")]),
        // A URI that names nobody is not passed over for the DNS name beside it.
        ("from-dns", vec![uri("https://example.org/agent/x"), dns("from-dns")]),
    ] {
        let mut client = greeted(&hub, agent_id, "from-cn", names).await;
        client.expect_goodbye("unauthorized", STAY_AWAY).await;
    }
}

#[tokio::test]
async fn a_uri_of_any_other_form_is_unauthorized() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    for text in [
        "spiffe://example.org/agent/a/b",
        "spiffe://example.org/agent/",
        "spiffe://example.org/agent",
        "spiffe://example.org/agent/a/",
        "spiffe://example.org/agent//a",
        "spiffe://example.org/workload/a",
        "spiffe://example.org/x/agent/a",
        "spiffe://example.org/agent/a?b",
        "spiffe://example.org/agent/a#b",
        "spiffe://example.org/agent/%61",
        "spiffe://example.org/agent/a%2Fb",
        "spiffe://example.org/agent/a\u{1}",
        "spiffe:///agent/a",
        "https://example.org/agent/a",
        "urn:agent:a",
    ] {
        let mut client = greeted(&hub, "a", "a", vec![uri(text)]).await;
        client.expect_goodbye("unauthorized", STAY_AWAY).await;
    }
}

#[tokio::test]
async fn more_than_one_name_of_the_kind_that_counts_is_unauthorized() {
    let hub = Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "1000")]);
    let spiffe = |name: &str| uri(&format!("spiffe://example.org/agent/{name}"));
    for names in [vec![spiffe("a"), spiffe("b")], vec![dns("a"), dns("b")], vec![spiffe("b"), spiffe("a")]] {
        greeted(&hub, "a", "a", names).await.expect_goodbye("unauthorized", STAY_AWAY).await;
    }
}

#[tokio::test]
async fn the_first_rule_that_matches_counts_and_none_is_unauthorized() {
    let policy = "version = 1\n\
        [[rules]]\nidentity = \"spiffe://example.org/agent/boss\"\nagent_ids = [\"worker\", \"boss\"]\n\
        provide = [\"jobs.*\"]\ncall = [\"*\"]\n\
        [[rules]]\nidentity = \"spiffe://example.org/agent/boss\"\nagent_ids = [\"never\"]\nprovide = [\"*\"]\n\
        call = [\"*\"]\n";
    let hub = Hub::serve(policy, "");
    let spiffe = |name: &str| vec![uri(&format!("spiffe://example.org/agent/{name}"))];
    let welcome = greeted(&hub, "worker", "x", spiffe("boss")).await.welcome().await;
    assert_eq!(*welcome.get("granted"), map! {"provide" => list!["jobs.*"], "call" => list!["*"]});
    greeted(&hub, "never", "x", spiffe("boss")).await.expect_goodbye("unauthorized", STAY_AWAY).await;
    greeted(&hub, "other", "x", spiffe("other")).await.expect_goodbye("unauthorized", STAY_AWAY).await;
    // The same name under another trust domain is another identity.
    let elsewhere = vec![uri("spiffe://elsewhere.org/agent/boss")];
    greeted(&hub, "boss", "x", elsewhere).await.expect_goodbye("unauthorized", STAY_AWAY).await;
}

#[tokio::test]
async fn a_rule_for_everybody_allows_the_own_name_only() {
    let hub = Hub::serve(hub::OPEN, "");
    hub.agent("a", &[]).await.fence().await;
    let mut other = hub.connect("a").await;
    other.hello(&[], map! {"agent_id" => "b"}).await;
    other.expect_goodbye("unauthorized", STAY_AWAY).await;
}
