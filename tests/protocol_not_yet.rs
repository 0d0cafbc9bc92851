//! Keys of CALL whose features this version of the hub does not have: asking for one fails with the key named, so
//! that nobody believes to have it. When a feature comes, its line here goes.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Format, Hub};
use rmpv::Value;

#[tokio::test]
async fn a_feature_that_is_not_there_yet_is_refused_by_its_key() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &["x"]).await;
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let mut caller = hub.agent_as(&format!("caller-{index}"), format, &[], map! {}).await;
        for (field, value) in [
            ("mode", Value::from("task")),
            ("callback_url", Value::from("https://example.org/hook")),
            ("reply_to", Value::from("agent:caller")),
        ] {
            let id = caller.call("x", Value::Map(vec![(Value::from(field), value)]), Value::Nil).await;
            caller.invalid(id, field).await;
        }
        caller.fence().await;
        canary(&mut caller, &mut provider, "x").await;
    }
}

#[tokio::test]
async fn the_defaults_of_what_is_not_there_yet_are_taken() {
    let hub = Hub::dev();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let defaults = map! {"allow_fallback" => false, "allow_cached_ms" => 0, "queue" => true, "wait_ms" => 0};
    let id = caller.call("x", defaults, Value::Nil).await;
    provider.echo().await;
    caller.completed(id).await;
}
