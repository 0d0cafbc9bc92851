//! What `agent-reach call` can say of a call, each option once against a hub that `dev` runs.
#![cfg(test)]

mod command;
#[macro_use]
mod raw;
mod sdk_world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_reach_sdk::{Agent, AgentBuilder, Capability, Context, HandlerError};
use command::{Ended, Running};
use raw::{Hub, certs};
use rmpv::Value;
use sdk_world::{Door, agent, until};
use serde_json::json;

/// A hub whose tries follow each other quickly.
fn quick() -> Hub {
    Hub::dev_with(&[("CALLS__RETRY_BASE_MS", "1"), ("CALLS__RETRY_JITTER_MS", "1")])
}

async fn connected(builder: AgentBuilder) -> Agent {
    builder.connect().await.expect("a session")
}

fn start(hub: &Hub, arguments: &[&str]) -> Running {
    let mut all = arguments.to_vec();
    all.extend(["--dir", certs::path(hub.dir())]);
    Running::start(hub.dir(), &all)
}

async fn ended(command: Running) -> Ended {
    tokio::task::spawn_blocking(move || command.ended()).await.expect("the command")
}

async fn call(hub: &Hub, arguments: &[&str]) -> Ended {
    ended(start(hub, &[&["call"], arguments].concat())).await
}

/// An agent that always fails, in a way that may pass.
fn failing(hub: &Hub, name: &str) -> AgentBuilder {
    agent(hub.dir(), hub.agents, name).capability("test.fail", |_: Context, _: Value| async {
        Err::<(), _>(HandlerError::new("no_ink", "the pen is dry").retryable())
    })
}

#[tokio::test]
async fn a_failure_tells_every_try_and_its_cause_and_the_trace_every_step_of_them() {
    let hub = quick();
    let (_a, _b) = (connected(failing(&hub, "a")).await, connected(failing(&hub, "b")).await);
    let failed = call(&hub, &["test.fail", "1", "--json", "--retries", "1", "--fallback"]).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    let tried = failed.stderr.lines().filter(|line| line.starts_with("  tried ")).count();
    assert_eq!(tried, 3, "{failed:?}");
    assert!(failed.stderr.contains("agent-reach call: degraded: "), "{failed:?}");
    assert!(failed.stderr.contains("\n  cause: handler_error: the pen is dry\n"), "{failed:?}");
    assert!(failed.stderr.contains("\n  details: {\"code\":\"no_ink\""), "{failed:?}");
    let reply = failed.json();
    assert_eq!(reply["error"]["code"], "degraded");
    let outcomes: Vec<_> =
        reply["attempts"].as_array().expect("a list").iter().map(|tried| &tried["outcome"]).collect();
    assert_eq!(outcomes, ["handler_error"; 3]);

    let trace = ended(start(&hub, &["trace", reply["call_id"].as_str().expect("an id")])).await;
    let steps: Vec<_> = trace.stdout.lines().skip(2).filter_map(|line| line.split("  ").nth(1)).collect();
    let count = |name: &str| steps.iter().filter(|step| **step == name).count();
    assert_eq!((count("retry in"), count("given"), count("answered")), (1, 3, 3), "{trace:?}");
    assert!(
        trace.stdout.contains("try 3") && trace.stdout.contains(" agents able, least_loaded"),
        "{trace:?}"
    );
}

#[tokio::test]
async fn a_version_a_label_and_a_promise_are_required_of_who_gets_the_call() {
    let hub = Hub::dev();
    let promise = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let offered = Capability::new("test.count").version("1.4.0").output_schema(promise);
    let answer = |_: Context, _: Value| async { Ok(json!({"n": 7})) };
    let builder = agent(hub.dir(), hub.agents, "counter").label("zone", "a");
    let _counter = connected(builder.capability(offered, answer)).await;
    let expect = |field: &str| json!({"type": "object", "required": [field]}).to_string();
    let (promised, more) = (expect("n"), expect("more"));
    for (option, value, code) in [
        ("--version", "^1.2", None),
        ("--version", "^2", Some("no_instance")),
        ("--require", "zone=a", None),
        ("--require", "zone=b", Some("no_instance")),
        ("--expect", &*promised, None),
        ("--expect", &*more, Some("schema_mismatch")),
        ("--affinity", "user-1", None),
        ("--label", "zone=b", None),
    ] {
        let called = call(&hub, &["test.count", "1", "--json", option, value]).await;
        let reply = called.json();
        assert_eq!(reply["error"]["code"].as_str(), code, "{option} {value}: {called:?}");
    }
}

#[tokio::test]
async fn who_would_like_it_sooner_is_told_that_it_will_be_later() {
    let hub = Hub::dev();
    let slow = |context: Context, _: Value| async move {
        context.would_take(Duration::from_secs(60)).await;
        Ok("at last")
    };
    let _slow = connected(agent(hub.dir(), hub.agents, "slow").capability("test.slow", slow)).await;
    let called = call(&hub, &["test.slow", "1", "--preferred", "2s"]).await;
    assert_eq!((called.code, &*called.stdout), (Some(0), "\"at last\"\n"), "{called:?}");
    assert_eq!(called.stderr, "slow has it\nslow expects to take 60000 ms\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_waits_for_an_agent_to_come_or_for_a_slot_or_for_neither() {
    let hub = Hub::dev();
    let door = Door::new();
    let watcher = connected(agent(hub.dir(), hub.agents, "watcher")).await;
    let early = start(&hub, &["call", "test.held", "1", "--wait", "20s"]);
    until("the call in the hub", || async {
        let open: Value = watcher.call("hub.calls.list", ()).await.expect("a list");
        open["calls"]
            .as_array()
            .is_some_and(|calls| calls.iter().any(|one| one["capability"].as_str() == Some("test.held")))
    })
    .await;
    let held = door.clone();
    let hold = move |_: Context, _: Value| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok("through")
        }
    };
    let builder = agent(hub.dir(), hub.agents, "holder").max_concurrency(1).capability("test.held", hold);
    let _holder = connected(builder).await;
    door.arrived(1).await;
    let refused = call(&hub, &["test.held", "1", "--no-queue", "--retries", "0"]).await;
    assert!(refused.stderr.starts_with("agent-reach call: overloaded: "), "{refused:?}");
    let spent = call(&hub, &["test.held", "1", "--budget", "20ms"]).await;
    assert!(spent.stderr.starts_with("agent-reach call: budget_exhausted: "), "{spent:?}");
    door.let_go(1);
    let early = ended(early).await;
    assert_eq!((early.code, &*early.stdout), (Some(0), "\"through\"\n"), "{early:?}");
}

#[tokio::test]
async fn an_older_result_is_taken_where_one_will_do() {
    let hub = quick();
    let well = Arc::new(AtomicBool::new(true));
    let is_well = Arc::clone(&well);
    let weather = move |_: Context, _: Value| {
        let well = is_well.load(Ordering::SeqCst);
        async move { if well { Ok("rain") } else { Err(HandlerError::new("down", "down").retryable()) } }
    };
    let _provider =
        connected(agent(hub.dir(), hub.agents, "weather").capability("test.weather", weather)).await;
    // One caller: what another one got is nobody's business.
    certs::run(&["certs", "issue", "me", "--dir", certs::path(hub.dir())]);
    let address = format!("wss://{}", hub.agents);
    let files = ["agents/me.pem", "agents/me-key.pem", "ca.pem"].map(|file| hub.dir().join(file));
    let [cert, key, ca] = [0, 1, 2].map(|place| certs::path(&files[place]));
    let own = ["--hub", &address, "--cert", cert, "--key", key, "--ca", ca];
    let ask = |options: &[&str]| {
        let all = [&["call", "test.weather", "1", "--retries", "0"], options, &own].concat();
        ended(Running::start(hub.dir(), &all))
    };
    let fresh = ask(&[]).await;
    assert_eq!((fresh.code, &*fresh.stdout), (Some(0), "\"rain\"\n"), "{fresh:?}");
    assert!(!fresh.stderr.contains("older"), "{fresh:?}");
    well.store(false, Ordering::SeqCst);
    let older = ask(&["--cached", "10m"]).await;
    assert_eq!((older.code, &*older.stdout), (Some(0), "\"rain\"\n"), "{older:?}");
    assert!(older.stderr.contains("an older result: "), "{older:?}");
    assert!(older.stderr.contains("  tried weather for "), "{older:?}");
    assert_eq!(ask(&[]).await.code, Some(1));
}
