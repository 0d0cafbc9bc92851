//! Certificates, revocation lists and the policy, replaced while the hub runs.
#![cfg(test)]

#[macro_use]
mod raw;

use std::path::Path;
use std::process::Command;

use raw::peer::canary;
use raw::{Format, Hub, Identity, RawClient, STAY_AWAY, certs, http, hub};
use rmpv::Value;

/// A policy under which `a` and `b` may do everything, and whoever else is in `more`.
fn policy(version: u32, more: &str) -> String {
    let rule = |name: &str| {
        format!(
            "[[rules]]\nidentity = \"spiffe://agent-reach/agent/{name}\"\nprovide = [\"*\"]\ncall = [\"*\", \"hub.*\"]\n"
        )
    };
    format!("version = {version}\n{}{}{more}", rule("a"), rule("b"))
}

/// A hub with a revocation list and the policy of [`policy`].
fn serve(more: &str) -> Hub {
    Hub::serve_in(&policy(1, more), "", |dir| {
        let file = dir.join("agent-reach.toml");
        let text = std::fs::read_to_string(&file).expect("the configuration");
        let crl = format!("[agents]\ncrl = {:?}\n", dir.join("crl.pem").display().to_string());
        std::fs::write(file, text.replace("[agents]\n", &crl)).expect("the configuration");
    })
}

/// Puts a file in the place of another one, whole.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(new, path).expect("the file in its place");
}

fn signal(hub: &Hub, name: &str) {
    let status = Command::new("kill").args([name, &hub.pid().to_string()]).status().expect("kill");
    assert!(status.success(), "the hub was gone before {name}");
}

/// Asks for a reload and gives what it says.
async fn reload(client: &mut RawClient) -> Value {
    let id = client.call("hub.config.reload", map! {}, Value::Nil).await;
    client.completed(id).await.content()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

async fn figure(hub: &Hub, series: &str) -> Option<f64> {
    let page = http::get(hub.metrics(), "/metrics").await.body;
    let line = page.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test]
async fn a_reload_says_what_changed_and_what_was_the_same_stays() {
    let hub = serve("");
    let (mut a, mut b) = (hub.agent("a", &[]).await, hub.agent("b", &["x"]).await);
    let nothing = reload(&mut a).await;
    assert_eq!((nothing["policy_version"].as_u64(), texts(&nothing["changed"])), (Some(1), vec![]));
    replace(&hub.dir().join("policy.toml"), &policy(2, ""));
    let changed = reload(&mut a).await;
    assert_eq!(
        (changed["policy_version"].as_u64(), texts(&changed["changed"])),
        (Some(2), vec!["policy.file"])
    );
    canary(&mut a, &mut b, "x").await;
    assert_eq!(figure(&hub, "agent_reach_config_reloads_total{outcome=\"completed\"}").await, Some(2.0));
}

#[tokio::test]
async fn who_may_no_longer_be_its_agent_is_ended_and_who_may_call_less_stays_and_is_refused() {
    let everybody = "[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\ncall = [\"*\"]\n";
    let hub = serve(everybody);
    let (mut a, mut b) = (hub.agent("a", &["y"]).await, hub.agent("b", &["x"]).await);
    let mut c = hub.agent("c", &["x"]).await;
    let less = policy(2, "").replacen("call = [\"*\", \"hub.*\"]", "call = [\"hub.*\"]", 1);
    replace(&hub.dir().join("policy.toml"), &less);
    reload(&mut b).await;
    c.expect_goodbye("unauthorized", STAY_AWAY).await;
    let id = a.call("x", map! {}, Value::Nil).await;
    a.failed(id, "unauthorized").await;
    canary(&mut b, &mut a, "y").await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing_and_is_named() {
    let hub = serve("");
    let (mut a, mut b) = (hub.agent("a", &[]).await, hub.agent("b", &["x"]).await);
    let (policy_file, crl_file) = (hub.dir().join("policy.toml"), hub.dir().join("crl.pem"));
    let crl = std::fs::read_to_string(&crl_file).expect("the list");
    // The policy is good, and is not taken either: all or nothing.
    replace(&policy_file, &policy(2, ""));
    replace(&crl_file, "nonsense\n");
    let id = a.call("hub.config.reload", map! {}, Value::Nil).await;
    let failed = a.failed(id, "handler_error").await;
    let message = failed.get("error")["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("crl.pem"), "{message}");
    replace(&crl_file, &crl);
    replace(&policy_file, "version = 2\n[[rules]]\nidentity = \"*\"\ncall = \"everything\"\n");
    let id = a.call("hub.config.reload", map! {}, Value::Nil).await;
    let failed = a.failed(id, "handler_error").await;
    let message = failed.get("error")["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("policy.toml:4: rules[1].call"), "{message}");
    canary(&mut a, &mut b, "x").await;
    let stats = a.call("hub.stats", map! {}, Value::Nil).await;
    assert_eq!(a.completed(stats).await.content()["policy_version"].as_u64(), Some(1));
    assert_eq!(figure(&hub, "agent_reach_config_reloads_total{outcome=\"failed\"}").await, Some(2.0));
    assert!(hub.log().contains("a reload has failed; what was loaded before counts"));
}

#[tokio::test]
async fn a_revoked_agent_is_ended_by_a_reload_and_all_others_stay() {
    let hub = serve("[[rules]]\nidentity = \"*\"\nprovide = [\"*\"]\n");
    let (mut a, mut b) = (hub.agent("a", &[]).await, hub.agent("b", &["x"]).await);
    let mut c = hub.agent("c", &["y"]).await;
    let identity = hub.identity("c");
    certs::run(&["certs", "revoke", "c", "--dir", certs::path(hub.dir())]);
    let changed = reload(&mut a).await;
    assert_eq!(texts(&changed["changed"]), ["agents.crl"]);
    c.expect_goodbye("credentials_revoked", STAY_AWAY).await;
    canary(&mut a, &mut b, "x").await;
    let dial = raw::Dial::new(&hub).identity(identity).protocols(Format::MsgPack.subprotocol());
    assert!(dial.open().await.is_err(), "a revoked certificate does not come in again");
    assert_eq!(
        figure(&hub, "agent_reach_auth_failures_total{reason=\"certificate_revoked\"}").await,
        Some(1.0)
    );
}

#[tokio::test]
async fn agents_of_an_authority_that_is_none_any_more_are_ended() {
    let hub = Hub::serve(hub::OPEN, "");
    let mut old = hub.agent("old", &[]).await;
    let other = tempfile::TempDir::new().expect("a directory");
    certs::run(&["certs", "init", "--dir", certs::path(other.path())]);
    let both = ["ca.pem"].map(|file| {
        let read = |dir: &Path| std::fs::read_to_string(dir.join(file)).expect("an authority");
        (read(hub.dir()), read(other.path()))
    });
    let [(own, new)] = both;
    replace(&hub.dir().join("ca.pem"), &format!("{own}{new}"));
    reload(&mut old).await;
    old.fence().await;
    let identity = Identity::issue("new", other.path());
    let mut new_agent = hub.connect_with("new", Format::MsgPack, &identity).await;
    new_agent.hello(&[], map! {}).await;
    new_agent.welcome().await;
    replace(&hub.dir().join("ca.pem"), &new);
    reload(&mut new_agent).await;
    old.expect_goodbye("credentials_revoked", STAY_AWAY).await;
    new_agent.fence().await;
}

#[tokio::test]
async fn a_new_certificate_of_the_hub_is_shown_to_who_comes_and_nobody_is_dropped() {
    let hub = serve("");
    let (mut a, mut b) = (hub.agent("a", &[]).await, hub.agent("b", &["x"]).await);
    let call = a.call("x", map! {}, Value::from("before")).await;
    let taken = b.taken().await;
    let until = figure(&hub, "agent_reach_certificate_expiry_seconds{certificate=\"agents\"}").await;
    certs::run(&["certs", "issue", "hub", "--dir", certs::path(hub.dir()), "--days", "30"]);
    signal(&hub, "-HUP");
    // The signal goes before: who asks then hears of nothing that is new, or of what the signal has read.
    reload(&mut a).await;
    b.complete(&taken, Value::from("after")).await;
    assert_eq!(a.completed(call).await.content(), Value::from("after"));
    let renewed = figure(&hub, "agent_reach_certificate_expiry_seconds{certificate=\"agents\"}").await;
    assert!(renewed < until, "{renewed:?} {until:?}: 30 days are less than a year");
    let dial = raw::Dial::new(&hub).identity(hub.identity("c")).protocols(Format::MsgPack.subprotocol());
    let opened = dial.open().await.expect("a connection");
    let shown =
        opened.stream.get_ref().get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
    assert_eq!(shown.as_ref(), certs::read_chain(&hub.dir().join("hub.pem")).first());
}

#[tokio::test]
async fn a_changed_file_is_found_by_itself() {
    let hub = serve("[[rules]]\nidentity = \"*\"\n");
    let mut c = hub.agent("c", &[]).await;
    replace(&hub.dir().join("policy.toml"), &policy(2, ""));
    c.expect_goodbye("unauthorized", STAY_AWAY).await;
    // It is said once all have heard of it.
    raw::within("the line of the log", async {
        while !hub.log().lines().any(|line| line.contains("reloaded") && line.contains("policy.file")) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn only_who_is_named_for_it_may_reload() {
    let hub = Hub::serve("version = 1\n[[rules]]\nidentity = \"*\"\ncall = [\"*\"]\n", "");
    let mut a = hub.agent("a", &[]).await;
    let id = a.call("hub.config.reload", map! {}, Value::Nil).await;
    a.failed(id, "unauthorized").await;
}
