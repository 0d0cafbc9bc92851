//! The Rust SDK asks and provides, against the real hub.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::time::Duration;

use agent_reach_sdk::{
    Accepted, Agent, Capability, Code, Context, ErrorCode, HandlerError, Payload, Reply, Summary,
};
use raw::Hub;
use sdk_world::{Count, Door, agent, within};

async fn connect(hub: &Hub, name: &str) -> Agent {
    agent(hub.dir(), hub.agents, name).connect().await.expect("a session")
}

/// An agent whose `echo` says what it got, and whose `name` says who it is.
async fn echo(hub: &Hub, name: &'static str) -> Agent {
    agent(hub.dir(), hub.agents, name)
        .capability("echo", |_: Context, body: Payload| async move { Ok(body) })
        .capability("name", move |_: Context, (): ()| async move { Ok(name) })
        .connect()
        .await
        .expect("a session")
}

#[tokio::test]
async fn a_call_goes_to_whoever_has_the_capability_or_to_whom_it_names() {
    let hub = Hub::dev();
    let _first = echo(&hub, "first").await;
    let _second = echo(&hub, "second").await;
    let caller = connect(&hub, "caller").await;
    let anybody: String = caller.call("name", ()).await.expect("a result");
    assert!(["first", "second"].contains(&anybody.as_str()), "{anybody}");
    for name in ["first", "second"] {
        let reply: Reply<String> = caller.call("name", ()).agents([name]).reply().await.expect("a result");
        assert_eq!((reply.body.as_str(), reply.target.as_deref()), (name, Some(name)));
        assert_eq!(reply.attempts.len(), 1);
    }
}

#[tokio::test]
async fn bodies_arrive_byte_for_byte_whatever_they_are() {
    let hub = Hub::dev();
    let _provider = echo(&hub, "provider").await;
    let caller = connect(&hub, "caller").await;
    let numbers = (u64::MAX, i64::MIN, 86_699_530_287_996_692_u64, 0.1_f64);
    assert_eq!(caller.call::<(u64, i64, u64, f64)>("echo", numbers).await.expect("a result"), numbers);
    let text = "\u{0}é😀".to_owned();
    assert_eq!(caller.call::<String>("echo", &text).await.expect("a result"), text);
    for bytes in [
        &b"\xc4\x03\x00\xff\x80"[..],
        b"\xc4\x00",
        b"\xa0",
        b"\x81\x01\xa1x",
        b"\x81\xc4\x01a\xc0",
        b"\xc1 is no MessagePack",
        b"",
    ] {
        let back: Payload = caller.call("echo", Payload::new(bytes)).await.expect("a result");
        assert_eq!(back.body, bytes);
    }
    let json = Payload::new(&b"{\"a\":1}"[..]).content_type("application/json");
    assert_eq!(caller.call::<Payload>("echo", json.clone()).await.expect("a result"), json);
}

#[tokio::test]
async fn failures_say_their_code_whether_to_try_again_and_whether_a_provider_had_the_call() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .max_concurrency(1)
        .capability("fails", |_: Context, retryable: bool| async move {
            let error = HandlerError::new("no-stock", "sold out");
            Err::<(), _>(if retryable { error.retryable() } else { error })
        })
        .capability("held", move |_: Context, (): ()| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(())
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;

    let unknown = caller.call::<()>("nobody.has.this", ()).await.expect_err("nobody");
    assert_eq!(unknown.code, ErrorCode::NoCapability);
    assert_eq!((unknown.retryable, unknown.accepted), (false, Accepted::No));

    for retryable in [false, true] {
        let failed = caller.call::<()>("fails", retryable).retries(0).await.expect_err("it fails");
        assert_eq!(failed.code, ErrorCode::HandlerError);
        assert_eq!((failed.retryable, failed.accepted), (retryable, Accepted::Yes));
        assert_eq!(failed.target.as_deref(), Some("provider"));
        let details: std::collections::BTreeMap<String, String> = failed.details_as().expect("details");
        assert_eq!((details["code"].as_str(), details["message"].as_str()), ("no-stock", "sold out"));
    }

    let wrong = caller.call::<()>("fails", "no bool").await.expect_err("the handler takes a bool");
    assert_eq!((&wrong.code, wrong.retryable), (&Code::Known(ErrorCode::InvalidRequest), false));

    let short = caller.call::<()>("held", ()).timeout(Duration::from_millis(50)).retries(0);
    let slow = within("the timeout", short.into_future()).await.expect_err("too slow");
    assert_eq!(slow.code, ErrorCode::Timeout);
    assert_eq!((slow.retryable, slow.accepted), (true, Accepted::Yes));
}

#[tokio::test]
async fn a_busy_agent_is_overloaded_and_had_nothing() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .max_concurrency(1)
        .capability("held", move |_: Context, (): ()| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(())
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    let first = caller.call::<()>("held", ()).start().await.expect("made");
    door.arrived(1).await;
    let second = caller.call::<()>("held", ()).queue(false).await.expect_err("no slot");
    assert_eq!(second.code, ErrorCode::Overloaded);
    assert_eq!((second.retryable, second.accepted), (true, Accepted::No));
    door.let_go(1);
    first.result().await.expect("a result");
    assert_eq!(door.count(), 1);
}

#[tokio::test]
async fn phase_one_is_seen_before_the_result_is_there() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .capability("held", move |_: Context, n: u64| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(n + 1)
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    let mut pending = caller.call::<u64>("held", 41).start().await.expect("made");
    let acceptance =
        within("phase one", pending.accepted()).await.expect("accepted").expect("before the result");
    assert_eq!((acceptance.target.as_deref(), acceptance.attempt), (Some("provider"), Some(1)));
    door.let_go(1);
    assert_eq!(within("phase two", pending.result()).await.expect("a result"), 42);
}

#[tokio::test]
async fn notify_ends_with_phase_one() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .capability("held", move |_: Context, (): ()| {
            let held = held.clone();
            async move {
                held.pass().await;
                Ok(())
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    let reply = within("phase one", caller.call::<()>("held", ()).notify()).await.expect("accepted");
    assert_eq!(reply.target.as_deref(), Some("provider"));
    door.arrived(1).await;
    door.let_go(1);
}

#[tokio::test]
async fn one_failing_target_of_a_fan_out_fails_only_its_own_part() {
    let hub = Hub::dev();
    let mut agents = Vec::new();
    for name in ["a", "b", "c"] {
        let builder =
            agent(hub.dir(), hub.agents, name).capability("vote", move |_: Context, (): ()| async move {
                if name == "b" { Err(HandlerError::new("no", "not me")) } else { Ok(name) }
            });
        agents.push(builder.connect().await.expect("a session"));
    }
    let caller = connect(&hub, "caller").await;
    let mut all =
        within("all parts", caller.call::<String>("vote", ()).all().into_future()).await.expect("an end");
    assert_eq!(all.summary, Summary { targets: 3, completed: 2, failed: 1 });
    all.parts.sort_by(|one, other| one.target.cmp(&other.target));
    let ends: Vec<_> = all.parts.iter().map(|part| part.result.as_ref().map(|r| r.body.as_str())).collect();
    assert!(matches!(ends.as_slice(), [Ok("a"), Err(_), Ok("c")]), "{ends:?}");
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_here_while_the_others_finish() {
    let hub = Hub::dev();
    let runs = Count::default();
    let counted = runs.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .capability("count", move |_: Context, body: Payload| {
            counted.up();
            async move { Ok(body.body.len()) }
        })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    for times in [1, 10] {
        let mut pending = Vec::new();
        for number in 0..20 {
            let size = if number == 7 { times << 20 } else { 10 };
            let body = Payload::new(vec![0_u8; size]);
            pending.push(caller.call::<usize>("count", body).start().await.expect("made"));
        }
        for (number, call) in pending.into_iter().enumerate() {
            let ended = within("every end", call.result()).await;
            if number == 7 {
                let error = ended.expect_err("too large");
                assert_eq!(error.code, ErrorCode::PayloadTooLarge);
                assert_eq!((error.retryable, error.accepted), (false, Accepted::No));
            } else {
                assert_eq!(ended.expect("a result"), 10);
            }
        }
    }
    assert_eq!(runs.get(), 38);
    let connections = caller.agents().await.expect("a list");
    assert!(connections.iter().all(|agent| agent.status == "ready"), "{connections:?}");
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_own_call_only() {
    let hub = Hub::dev();
    let _provider = echo(&hub, "provider").await;
    let caller = connect(&hub, "caller").await;
    let mut pending = Vec::new();
    for number in 0..20_u8 {
        let body = if number == 7 { vec![0xc1] } else { vec![number] };
        pending.push(caller.call::<u8>("echo", Payload::new(body)).start().await.expect("made"));
    }
    for (number, call) in (0..20_u8).zip(pending) {
        match within("every end", call.result()).await {
            Ok(body) => assert_eq!(body, number),
            Err(error) => {
                assert_eq!((number, &error.code, error.accepted), (7, &Code::Decode, Accepted::Yes));
            }
        }
    }
}

#[tokio::test]
async fn dropping_a_pending_call_reaches_the_handler() {
    let hub = Hub::dev();
    let (told, mut hears) = tokio::sync::mpsc::channel(1);
    let door = Door::new();
    let held = door.clone();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .max_concurrency(1)
        .capability("waits", move |context: Context, (): ()| {
            let (told, held) = (told.clone(), held.clone());
            async move {
                held.let_go(1);
                held.pass().await;
                context.cancelled().await;
                told.send(context.is_cancelled()).await?;
                Err::<(), _>(HandlerError::new("stopped", "nobody waits"))
            }
        })
        .capability("free", |_: Context, (): ()| async { Ok(()) })
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    let pending = caller.call::<()>("waits", ()).start().await.expect("made");
    door.arrived(1).await;
    drop(pending);
    assert_eq!(within("the cancelling", hears.recv()).await, Some(true));
    sdk_world::until("the slot", || async { caller.call::<()>("free", ()).queue(false).await.is_ok() }).await;
}

#[tokio::test]
async fn private_keys_reach_the_handler_and_others_are_refused_here() {
    let hub = Hub::dev();
    let _provider = agent(hub.dir(), hub.agents, "provider")
        .capability(
            "tenant",
            |context: Context, (): ()| async move { Ok(context.private::<String>("x-tenant")) },
        )
        .connect()
        .await
        .expect("a session");
    let caller = connect(&hub, "caller").await;
    let tenant: Option<String> =
        caller.call("tenant", ()).private("x-tenant", "acme").await.expect("a result");
    assert_eq!(tenant.as_deref(), Some("acme"));
    assert_eq!(caller.call::<Option<String>>("tenant", ()).await.expect("a result"), None);
    let error = caller.call::<()>("tenant", ()).private("tenant", "acme").await.expect_err("no x-");
    assert_eq!(error.code, ErrorCode::InvalidRequest);
}

#[tokio::test]
async fn lists_of_agents_and_capabilities_come_whole_over_several_pages() {
    let hub = Hub::dev_with(&[("LIMITS__MAX_MESSAGE", "16384")]);
    let provider = connect(&hub, "provider").await;
    let about = "d".repeat(1000);
    for number in 0..40 {
        let capability = Capability::new(format!("many.n{number:02}"))
            .description(&about)
            .version("1.2.3")
            .timeout(Duration::from_secs(7))
            .idempotent(true)
            .input_schema(std::collections::BTreeMap::from([("type", "string")]));
        provider.add_capability(capability, |_: Context, (): ()| async { Ok(()) }).await.expect("added");
    }
    let caller = connect(&hub, "caller").await;
    let mut known = Vec::new();
    sdk_world::until("all capabilities", || async {
        caller.capabilities().await.is_ok_and(|all| all.len() == 40)
    })
    .await;
    known.extend(caller.capabilities().await.expect("a list"));
    for (number, capability) in known.iter().enumerate() {
        assert_eq!(capability.name, format!("many.n{number:02}"));
        let [offer] = capability.agents.as_slice() else { panic!("{capability:?}") };
        assert_eq!((offer.agent_id.as_str(), offer.status.as_str()), ("provider", "ready"));
        assert_eq!((offer.version.as_deref(), offer.timeout), (Some("1.2.3"), Some(Duration::from_secs(7))));
        assert!(offer.idempotent && offer.description.as_deref() == Some(&about));
        let schema: std::collections::BTreeMap<String, String> =
            offer.input_schema.as_ref().expect("a schema").decode().expect("as it was sent");
        assert_eq!(schema["type"], "string");
    }
    let agents = caller.agents().await.expect("a list");
    let names: Vec<_> =
        agents.iter().map(|agent| (agent.agent_id.as_str(), agent.capabilities.len())).collect();
    assert_eq!(names, [("caller", 0), ("provider", 40)]);
}
