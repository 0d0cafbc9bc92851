//! The paragraph "Strictness" of the protocol: one bad envelope fails one thing, never the hub.
#![cfg(test)]

#[macro_use]
mod raw;

use raw::peer::canary;
use raw::{Format, Hub, RawClient, STAY_AWAY, kind};
use rmpv::Value;

/// A hub on which one name may register as often as the tests need.
fn hub() -> Hub {
    Hub::dev_with(&[("LIMITS__REGISTRATIONS_PER_10S", "100000")])
}

/// A provider and a caller that show, after each bad envelope, that the hub still works.
async fn pair(hub: &Hub) -> (RawClient, RawClient) {
    (hub.agent("canary-caller", &[]).await, hub.agent("canary-provider", &["canary"]).await)
}

#[tokio::test]
async fn an_unknown_kind_is_answered_with_error_and_the_connection_stays() {
    let hub = hub();
    for format in Format::BOTH {
        let mut client = hub.agent_as("a", format, &[], map! {}).await;
        for unknown in [0, 6, 9, 17, 99, 127, 128, 65_536, u64::from(u32::MAX) + 1] {
            client.send(unknown, map! {"id" => 7}, Value::Nil).await;
            client.expect_error(unknown, "unknown_kind").await;
        }
        client.fence().await;
    }
}

#[tokio::test]
async fn a_kind_of_the_hubs_own_is_answered_with_error_and_the_connection_stays() {
    let hub = hub();
    let mut client = hub.agent("a", &[]).await;
    for hubs_own in [kind::WELCOME, kind::ERROR] {
        client.send(hubs_own, map! {"code" => "normal"}, Value::Nil).await;
        let error = client.expect(kind::ERROR, "ERROR").await;
        assert_eq!(error.uint("ref_kind"), hubs_own);
    }
    client.fence().await;
}

#[tokio::test]
async fn a_wrong_header_is_answered_with_error_and_the_connection_stays() {
    let hub = hub();
    let (mut caller, mut provider) = pair(&hub).await;
    for format in Format::BOTH {
        let mut client = hub.agent_as("a", format, &["x"], map! {}).await;
        let wrong = [
            (kind::UPDATE, map! {"status" => "happy"}),
            (kind::UPDATE, map! {"status" => 1}),
            (kind::UPDATE, map! {"load" => "much"}),
            (kind::UPDATE, map! {"load" => map! {"in_flight" => "many", "queued" => 0}}),
            (kind::UPDATE, map! {"add" => "x"}),
            (kind::UPDATE, map! {"remove" => map! {"x" => 1}}),
            (kind::ACCEPT, map! {}),
            (kind::ACCEPT, map! {"id" => "1"}),
            (kind::ACCEPT, map! {"id" => 1.0}),
            (kind::ACCEPT, map! {"id" => -1}),
            (kind::CHUNK, map! {"seq" => 0}),
            (kind::CHUNK, map! {"id" => 1}),
            (kind::CHUNK, map! {"id" => 1, "seq" => "0"}),
            (kind::CREDIT, map! {"n" => 1}),
            (kind::CREDIT, map! {"id" => 1}),
            (kind::CREDIT, map! {"id" => 1, "n" => -1}),
            (kind::RESULT, map! {"status" => "completed"}),
            (kind::RESULT, map! {"id" => 1}),
            (kind::RESULT, map! {"id" => 1, "status" => "great"}),
            (kind::RESULT, map! {"id" => 1, "status" => "failed", "error" => "bad"}),
            (kind::CANCEL, map! {}),
            (kind::CANCEL, map! {"id" => 1, "wait" => "yes"}),
        ];
        for (wrong_kind, header) in wrong {
            client.send(wrong_kind, header.clone(), Value::Nil).await;
            client.expect_error(wrong_kind, "invalid_request").await;
        }
        client.fence().await;
        canary(&mut caller, &mut provider, "canary").await;
    }
}

#[tokio::test]
async fn a_call_without_a_usable_id_is_answered_with_error() {
    let hub = hub();
    for format in Format::BOTH {
        let mut client = hub.agent_as("a", format, &[], map! {}).await;
        let ids = [
            Value::Nil,
            Value::from("1"),
            Value::from(1.0),
            Value::from(1.5),
            Value::from(-1),
            Value::from(true),
        ];
        for id in ids {
            client.send(kind::CALL, map! {"id" => id, "capability" => "x", "retries" => 0}, Value::Nil).await;
            let error = client.expect_error(kind::CALL, "invalid_request").await;
            assert!(error["id"].is_nil(), "{error}");
        }
        client.send(kind::CALL, map! {"capability" => "x", "retries" => 0}, Value::Nil).await;
        client.expect_error(kind::CALL, "invalid_request").await;
        client.fence().await;
    }
}

#[tokio::test]
async fn a_call_with_a_wrong_header_fails_with_the_field_named() {
    let hub = hub();
    let (mut caller, mut provider) = pair(&hub).await;
    let long = "x".repeat(129);
    for format in Format::BOTH {
        let mut client = hub.agent_as("a", format, &[], map! {}).await;
        let wrong = [
            ("capability", Value::Nil),
            ("capability", Value::from(5)),
            ("capability", Value::from("")),
            ("capability", Value::from("two words")),
            ("capability", Value::from("a..b")),
            ("capability", Value::from(long.as_str())),
            ("request_id", Value::from("")),
            ("request_id", Value::from(long.as_str())),
            ("request_id", Value::from(5)),
            ("version", Value::from("newest")),
            ("agents", Value::from("b")),
            ("agents", Value::Array(vec![Value::from(1)])),
            ("select", Value::from("some")),
            ("select", Value::from(-1)),
            ("select", Value::from(1.5)),
            ("policy", Value::from("best")),
            ("labels", Value::from("zone")),
            ("require", Value::from("zone")),
            ("mode", Value::from("later")),
            ("stream", Value::from("yes")),
            ("credit", Value::from("some")),
            ("accept_timeout_ms", Value::from("3000")),
            ("timeout_ms", Value::from(-5)),
            ("budget_ms", Value::from(1.5)),
            ("preferred_timeout_ms", Value::from("soon")),
            ("priority", Value::from("urgent")),
            ("keep_ms", Value::from("long")),
            ("traceparent", Value::from(5)),
            ("content_type", Value::from(5)),
        ];
        for (field, value) in wrong {
            let id = client.call("canary", Value::Map(vec![(Value::from(field), value)]), Value::Nil).await;
            client.invalid(id, field).await;
        }
        client.fence().await;
        canary(&mut caller, &mut provider, "canary").await;
    }
}

#[tokio::test]
async fn names_at_their_limits_are_taken() {
    let hub = hub();
    let longest = format!("{}.{}", "a".repeat(64), "b".repeat(63));
    let mut provider = hub.agent("provider", &[&longest]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let id = caller.call(&longest, map! {"request_id" => "r".repeat(128)}, Value::Nil).await;
    assert_eq!(provider.echo().await.text("request_id"), "r".repeat(128));
    caller.completed(id).await;
    let id = caller.call("canary", map! {"request_id" => "r".repeat(129)}, Value::Nil).await;
    caller.invalid(id, "request_id").await;
}

#[tokio::test]
async fn unknown_header_keys_are_ignored() {
    let hub = hub();
    let mut provider =
        hub.agent_with("provider", &["x"], map! {"shoe_size" => 43, "mood" => map! {"a" => 1}}).await;
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let mut caller =
            hub.agent_as(&format!("caller-{index}"), format, &[], map! {"colour" => "red"}).await;
        caller.update(map! {"weather" => list!["rain"]}).await;
        let id = caller
            .call("x", map! {"colour" => "red", "deep" => map! {"er" => list![1, 2]}}, Value::Nil)
            .await;
        let call = provider.echo().await;
        assert!(!call.has("colour"), "a key that is neither known nor private goes no further: {call:?}");
        caller.completed(id).await;
        caller.fence().await;
    }
}

#[tokio::test]
async fn a_missing_body_is_nil() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let header = map! {"id" => 1, "capability" => "x", "retries" => 0};
    caller.message(&raw::pack(&Value::Array(vec![Value::from(kind::CALL), header]))).await;
    assert_eq!(provider.echo().await.body, Value::Nil);
    assert_eq!(caller.completed(1).await.body, Value::Nil);
}

#[tokio::test]
async fn an_id_counts_by_value_in_any_width() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let widths: [&[u8]; 9] = [
        &[7],
        &[0xcc, 7],
        &[0xcd, 0, 7],
        &[0xce, 0, 0, 0, 7],
        &[0xcf, 0, 0, 0, 0, 0, 0, 0, 7],
        &[0xd0, 7],
        &[0xd1, 0, 7],
        &[0xd2, 0, 0, 0, 7],
        &[0xd3, 0, 0, 0, 0, 0, 0, 0, 7],
    ];
    for width in widths {
        // [10, {id: 7 in that width, capability: "x", retries: 0}]
        let call =
            [&[0x92, 10, 0x83, 0xa2, b'i', b'd'], width, b"\xaacapability\xa1x\xa7retries\x00"].concat();
        caller.message(&call).await;
        provider.echo().await;
        caller.completed(7).await;
    }
    // The kind of the same call, in eight bytes.
    let call = b"\x92\xcf\x00\x00\x00\x00\x00\x00\x00\x0a\x83\xa2id\x08\xaacapability\xa1x\xa7retries\x00";
    caller.message(call).await;
    provider.echo().await;
    caller.completed(8).await;
}

#[tokio::test]
async fn the_greatest_id_is_an_id() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    let mut caller = hub.agent("caller", &[]).await;
    let header = map! {"id" => u64::MAX, "capability" => "x", "retries" => 0};
    caller.send(kind::CALL, header, Value::Nil).await;
    provider.echo().await;
    caller.completed(u64::MAX).await;
}

#[tokio::test]
async fn an_id_that_is_still_open_gets_error_and_the_first_call_is_untouched() {
    let hub = hub();
    let mut provider = hub.agent("provider", &["x"]).await;
    for (index, format) in Format::BOTH.into_iter().enumerate() {
        let mut caller = hub.agent_as(&format!("caller-{index}"), format, &[], map! {}).await;
        let id = caller.call("x", map! {}, Value::from("first")).await;
        let first = provider.taken().await;
        // The second is broken too: not even then is it answered with a RESULT, which would end the first.
        for capability in [Value::from("x"), Value::from(5)] {
            let header = map! {"id" => id, "capability" => capability, "retries" => 0};
            caller.send(kind::CALL, header, Value::from("second")).await;
            let error = caller.expect_error(kind::CALL, "invalid_request").await;
            assert_eq!(error["id"], Value::from(id));
        }
        caller.fence().await;
        provider.fence().await;
        provider.complete(&first, Value::from("done")).await;
        assert_eq!(caller.completed(id).await.content(), Value::from("done"));
        // The id has ended and may be used again.
        caller.last_id = id - 1;
        canary(&mut caller, &mut provider, "x").await;
    }
}

#[tokio::test]
async fn anything_before_hello_ends_the_connection() {
    let hub = hub();
    for format in Format::BOTH {
        for early in [kind::UPDATE, kind::CALL, kind::GOODBYE, 99] {
            let mut client = hub.connect_as("a", format).await;
            let header = map! {"id" => 1, "capability" => "x", "retries" => 0, "code" => "normal"};
            client.send(early, header, Value::Nil).await;
            client.expect_protocol_error().await;
        }
    }
}

#[tokio::test]
async fn a_second_hello_ends_the_connection() {
    let hub = hub();
    for format in Format::BOTH {
        let mut client = hub.agent_as("a", format, &[], map! {}).await;
        client.hello(&[], map! {}).await;
        client.expect_protocol_error().await;
    }
}

#[tokio::test]
async fn a_hello_that_cannot_be_used_ends_the_connection() {
    let hub = hub();
    let wrong = [
        ("v", Value::Nil),
        ("v", Value::from("1")),
        ("agent_id", Value::Nil),
        ("agent_id", Value::from(7)),
        ("agent_id", Value::from("")),
        ("instance", Value::Nil),
        ("instance", Value::from(7)),
        ("capabilities", Value::from("x")),
        ("capabilities", Value::Array(vec![Value::from("x")])),
        ("max_concurrency", Value::from("many")),
        ("max_concurrency", Value::from(-1)),
        ("labels", Value::from("zone")),
        ("status", Value::from("happy")),
        ("calls", Value::from("x")),
    ];
    let identity = hub.identity("a");
    for format in Format::BOTH {
        for (field, value) in &wrong {
            let mut client = hub.connect_with("a", format, &identity).await;
            client.hello(&[], Value::Map(vec![(Value::from(*field), value.clone())])).await;
            client.expect_protocol_error().await;
        }
    }
}

#[tokio::test]
async fn another_version_is_unsupported() {
    let hub = hub();
    for version in [0, 2, 1000] {
        let mut client = hub.connect("a").await;
        client.hello(&[], map! {"v" => version}).await;
        client.expect_goodbye("version_unsupported", STAY_AWAY).await;
    }
}
