//! What is in no log, whoever wants to know: bodies, and secrets.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::{Hub, hub};
use rmpv::Value;

/// In every body and detail of the test, and in nothing else.
const BODY: &str = "only-for-the-other-end";
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn neither_bodies_nor_secrets_are_in_the_log_at_any_level() {
    let dir = tempfile::tempdir().unwrap();
    let secrets = dir.path().join("callbacks.secret");
    std::fs::write(&secrets, format!("whsec_{SECRET}\n")).unwrap();
    let config = format!(
        "[tracing]\nlog = \"trace\"\nformat = \"json\"\n[callbacks]\nallowed_hosts = [\"hooks.example.com\"]\nsecret_file = \
         {secrets:?}\n"
    );
    let hub = Hub::serve(hub::OPEN, &config);
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;

    let id = caller.call("x", map! {}, Value::from(BODY)).await;
    let call = provider.taken().await;
    assert_eq!(call.content(), Value::from(BODY), "the body does arrive");
    provider.complete(&call, Value::from(BODY)).await;
    caller.completed(id).await;
    let id = caller.call("x", map! { "mode" => "task" }, Value::from(BODY)).await;
    caller.accepted(id).await;
    let call = provider.taken().await;
    provider.complete(&call, Value::from(BODY)).await;
    caller.completed(id).await;

    let log = hub.log();
    assert!(log.contains("\"level\":\"DEBUG\"") && log.contains("call ended"), "it does log: {log}");
    let key = std::fs::read_to_string(hub.dir().join("hub-key.pem")).unwrap();
    let key = key.lines().nth(1).unwrap();
    for secret in [BODY, SECRET, key] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}
