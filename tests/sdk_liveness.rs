//! The Rust SDK lives whatever its handlers do, notices a link that carries nothing, and leaves in order.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use agent_reach_sdk::{Accepted, Agent, CloseReason, Context, ErrorCode};
use raw::Hub;
use sdk_world::proxy::Proxy;
use sdk_world::{Door, agent, until, within};

/// Silence counts after one second and a half, on a machine with much else to do.
const QUICK: [(&str, &str); 4] = [
    ("LIVENESS__KEEPALIVE_MS", "200"),
    ("LIVENESS__SUSPECT_MS", "1000"),
    ("LIVENESS__GONE_MS", "1500"),
    ("LIVENESS__RESUME_MS", "300"),
];
const GONE: Duration = Duration::from_millis(1500);

/// A program of one thread whose handler blocks that thread until the returned end says something.
fn blocking_program(hub: &Hub) -> (mpsc::Sender<()>, std::thread::JoinHandle<CloseReason>) {
    let builder = agent(hub.dir(), hub.agents, "provider");
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let program = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let builder = builder.capability("blocks", move |_: Context, (): ()| {
                let blocked = Arc::clone(&blocked);
                async move {
                    // The one thread of this runtime does nothing else until the test says so.
                    blocked.lock().expect("one at a time").recv()?;
                    Ok(())
                }
            });
            builder.connect().await.expect("a session").closed().await
        })
    });
    (unblock, program)
}

#[tokio::test]
async fn a_handler_that_blocks_its_whole_runtime_costs_no_heartbeat() {
    let hub = Hub::dev_with(&QUICK);
    let (unblock, program) = blocking_program(&hub);
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    until("the provider", || async { caller.agents().await.is_ok_and(|all| all.len() == 2) }).await;
    let mut pending = caller.call::<()>("blocks", ()).start().await.expect("made");
    within("phase one", pending.accepted()).await.expect("accepted");
    until("three times the silence that ends a session", || async {
        let all = caller.agents().await.expect("a list");
        let provider = all.iter().find(|agent| agent.agent_id == "provider").expect("it is there");
        assert_eq!(provider.status, "ready");
        provider.connected > 3 * GONE
    })
    .await;
    unblock.send(()).expect("it waits");
    let reply = within("the result", pending.reply()).await.expect("a result");
    assert_eq!(reply.attempts.len(), 1);
    let _newer = agent(hub.dir(), hub.agents, "provider").connect().await.expect("a session");
    let end = tokio::task::spawn_blocking(|| program.join().expect("no panic")).await.expect("no panic");
    assert!(matches!(end, CloseReason::Goodbye { code, .. } if code == "replaced"));
}

#[tokio::test]
async fn an_agent_ends_with_the_runtime_of_its_program() {
    let hub = Hub::dev();
    let builder = agent(hub.dir(), hub.agents, "short-lived");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("one");
    let short: Agent = runtime.spawn(builder.connect()).await.expect("no panic").expect("a session");
    assert!(short.is_connected());
    runtime.shutdown_background();
    assert_eq!(within("the end", short.closed()).await, CloseReason::RuntimeStopped);
}

/// With `held`, which waits at the door.
async fn held(hub: &Hub, address: std::net::SocketAddr, door: &Door) -> Agent {
    let door = door.clone();
    agent(hub.dir(), address, "provider")
        .capability("held", move |_: Context, n: u64| {
            let door = door.clone();
            async move {
                door.pass().await;
                Ok(n)
            }
        })
        .capability("echo", |_: Context, n: u64| async move { Ok(n) })
        .connect()
        .await
        .expect("a session")
}

#[tokio::test]
async fn a_frozen_link_of_a_provider_is_noticed_by_both_sides_and_everything_settles() {
    let hub = Hub::dev_with(&QUICK);
    let link = Proxy::to(hub.agents).await;
    let door = Door::new();
    let provider = held(&hub, link.address, &door).await;
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut pending =
        caller.call::<u64>("held", 1).timeout(Duration::from_secs(60)).start().await.expect("made");
    within("phase one", pending.accepted()).await.expect("accepted");
    link.refuse(true);
    link.freeze();
    let frozen = Instant::now();
    // The hub's side: the agent is gone and its call is settled.
    let error = within("the loss", pending.result()).await.expect_err("lost");
    assert_eq!(error.code, ErrorCode::AgentLost);
    assert_eq!((error.retryable, error.accepted), (false, Accepted::Yes));
    assert!(frozen.elapsed() < 3 * GONE, "settled after {:?}", frozen.elapsed());
    // The agent's side.
    until("the agent's notice", || async { !provider.is_connected() }).await;
    assert!(frozen.elapsed() < 3 * GONE, "noticed after {:?}", frozen.elapsed());
    let nobody = caller.call::<u64>("echo", 1).await.expect_err("nobody");
    assert_eq!(nobody.code, ErrorCode::NoInstance);
    link.refuse(false);
    until("its return", || async { caller.call::<u64>("echo", 7).await.is_ok_and(|n| n == 7) }).await;
    assert_eq!(door.count(), 1);
    door.let_go(1);
}

#[tokio::test]
async fn a_caller_behind_a_frozen_link_comes_back_for_its_result() {
    let hub = Hub::dev_with(&[QUICK[0], QUICK[1], QUICK[2]]);
    let link = Proxy::to(hub.agents).await;
    let door = Door::new();
    let _provider = held(&hub, hub.agents, &door).await;
    let caller = agent(hub.dir(), link.address, "caller").connect().await.expect("a session");
    let pending = caller.call::<u64>("held", 5).start().await.expect("made");
    door.arrived(1).await;
    link.freeze();
    door.let_go(1);
    link.opened(2).await;
    assert_eq!(within("the result", pending.result()).await.expect("a result"), 5);
    assert!(door.count() <= 1, "one run");
}

#[tokio::test]
async fn closing_lets_every_running_handler_end_and_takes_nothing_new() {
    let hub = Hub::dev();
    let door = Door::new();
    let provider = held(&hub, hub.agents, &door).await;
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut pending = Vec::new();
    for n in 0..3_u64 {
        pending.push(caller.call::<u64>("held", n).start().await.expect("made"));
        door.arrived(n + 1).await;
    }
    let closing = tokio::spawn(async move { provider.close().await });
    until("the drain", || async {
        let all = caller.agents().await.expect("a list");
        all.iter().any(|agent| agent.agent_id == "provider" && agent.status == "draining")
    })
    .await;
    let refused = caller.call::<u64>("echo", 1).await.expect_err("draining");
    assert_eq!((&refused.retryable, refused.accepted), (&true, Accepted::No));
    for (n, call) in (0..3_u64).zip(pending) {
        assert!(!closing.is_finished(), "{n} of 3 have ended");
        door.let_go(1);
        assert_eq!(within("the result", call.result()).await.expect("a result"), n);
    }
    assert_eq!(within("the close", closing).await.expect("no panic"), CloseReason::Closed);
    until("its leaving", || async { caller.agents().await.is_ok_and(|all| all.len() == 1) }).await;
}

#[tokio::test]
async fn closing_drops_a_handler_that_outlasts_the_drain_time_and_tells_its_caller() {
    let hub = Hub::dev();
    let door = Door::new();
    let provider = held(&hub, hub.agents, &door).await;
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let mut pending = caller.call::<u64>("held", 1).start().await.expect("made");
    within("phase one", pending.accepted()).await.expect("accepted");
    let end = within("the close", provider.close_within(Duration::from_millis(50))).await;
    assert_eq!(end, CloseReason::Closed);
    let error = within("the end of the call", pending.result()).await.expect_err("dropped");
    assert_eq!(error.code, ErrorCode::Cancelled);
}
