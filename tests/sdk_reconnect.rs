//! What the Rust SDK keeps over lost connections, against the real hub.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use agent_reach_sdk::{Accepted, Agent, AgentBuilder, CloseReason, Code, ConnectError, Context, ErrorCode};
use raw::Hub;
use sdk_world::proxy::Proxy;
use sdk_world::{Door, Place, agent, until, within};

const MANY_HELLOS: (&str, &str) = ("LIMITS__REGISTRATIONS_PER_10S", "1000");

/// With `held`, which waits at the door and then doubles.
fn held(builder: AgentBuilder, door: &Door) -> AgentBuilder {
    let door = door.clone();
    builder.capability("held", move |_: Context, n: u64| {
        let door = door.clone();
        async move {
            door.pass().await;
            Ok(2 * n)
        }
    })
}

async fn connected(builder: AgentBuilder) -> Agent {
    builder.connect().await.expect("a session")
}

#[tokio::test]
async fn open_calls_survive_a_killed_hub_and_an_accepted_one_runs_once() {
    let mut place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let _provider = connected(held(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let mut accepted = caller.call::<u64>("held", 1).request_id("accepted").start().await.expect("made");
    within("phase one", accepted.accepted()).await.expect("accepted");
    door.arrived(1).await;
    place.kill();
    until("the loss", || async { !caller.is_connected() }).await;
    let meanwhile = caller.call::<u64>("held", 2).start().await.expect("made");
    place.restart();
    door.arrived(2).await;
    door.let_go(2);
    let first = within("the first", accepted.reply()).await.expect("a result");
    assert_eq!((first.body, first.request_id.as_str()), (2, "accepted"));
    assert_eq!(within("the second", meanwhile.result()).await.expect("a result"), 4);
    assert_eq!(door.count(), 2, "one run for each intent");
}

#[tokio::test]
async fn a_result_that_was_ready_when_the_hub_was_killed_is_told_by_the_next_one() {
    let mut place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let _provider = connected(held(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let pending = caller.call::<u64>("held", 1).start().await.expect("made");
    door.arrived(1).await;
    place.kill();
    until("the loss", || async { !caller.is_connected() }).await;
    door.let_go(1);
    place.restart();
    assert_eq!(within("the result", pending.result()).await.expect("a result"), 2);
    assert_eq!(door.count(), 1);
}

#[tokio::test]
async fn a_provider_that_is_cut_off_five_times_runs_each_intent_once_and_has_what_it_added() {
    let hub = Hub::dev_with(&[MANY_HELLOS]);
    let link = Proxy::to(hub.agents).await;
    let door = Door::new();
    let provider = connected(held(agent(hub.dir(), link.address, "provider"), &door)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let mut pending = Vec::new();
    for round in 0..5_u64 {
        pending.push(caller.call::<u64>("held", round).start().await.expect("made"));
        door.arrived(round + 1).await;
        link.cut();
        let added = format!("added.n{round}");
        provider
            .add_capability(added.as_str(), move |_: Context, (): ()| async move { Ok(round) })
            .await
            .expect("added");
        link.opened(round + 2).await;
        for round in 0..=round {
            let name = format!("added.n{round}");
            until("what was added", || async {
                caller.call::<u64>(&name, ()).await.is_ok_and(|n| n == round)
            })
            .await;
        }
    }
    door.let_go(5);
    for (round, call) in (0..5).zip(pending) {
        let reply = within("the result", call.reply()).await.expect("a result");
        assert_eq!(reply.body, 2 * round);
    }
    assert_eq!(door.count(), 5, "one run for each intent");
}

#[tokio::test]
async fn a_caller_that_is_cut_off_five_times_has_one_run_and_its_result() {
    let hub = Hub::dev_with(&[MANY_HELLOS]);
    let link = Proxy::to(hub.agents).await;
    let door = Door::new();
    let _provider = connected(held(agent(hub.dir(), hub.agents, "provider"), &door)).await;
    let caller = connected(agent(hub.dir(), link.address, "caller")).await;
    let pending = caller.call::<u64>("held", 21).start().await.expect("made");
    for cut in 1..=5 {
        door.arrived(1).await;
        link.cut();
        link.opened(cut + 1).await;
    }
    door.let_go(1);
    assert_eq!(within("the result", pending.result()).await.expect("a result"), 42);
    assert_eq!(door.count(), 1);
}

#[tokio::test]
async fn twins_under_one_request_id_run_once_and_both_get_the_result() {
    let hub = Hub::dev();
    let door = Door::new();
    let _provider = connected(held(agent(hub.dir(), hub.agents, "provider"), &door)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    for round in 1..=50_u64 {
        let id = format!("order-{round}");
        let make = || caller.call::<u64>("held", round).request_id(&id).start();
        let (one, other) = (make().await.expect("made"), make().await.expect("made"));
        door.arrived(round).await;
        door.let_go(1);
        for call in [one, other] {
            assert_eq!(within("both results", call.result()).await.expect("a result"), 2 * round);
        }
        let late = within("the stored result", make().await.expect("made").reply()).await.expect("a result");
        assert_eq!((late.body, late.duplicate), (2 * round, true));
        assert_eq!(door.count(), round);
    }
    let other = caller.call::<u64>("held", 1000).request_id("order-1").await.expect_err("another body");
    assert_eq!((&other.code, other.retryable), (&Code::Known(ErrorCode::IdempotencyConflict), false));
}

#[tokio::test]
async fn a_replaced_agent_stays_away_and_says_so() {
    let hub = Hub::dev();
    let _provider = connected(held(agent(hub.dir(), hub.agents, "provider"), &Door::new())).await;
    let older = connected(agent(hub.dir(), hub.agents, "twin")).await;
    let pending = older.call::<u64>("held", 1).start().await.expect("made");
    let newer = connected(agent(hub.dir(), hub.agents, "twin")).await;
    let end = within("the end of the older", older.closed()).await;
    assert!(matches!(&end, CloseReason::Goodbye { code, .. } if code == "replaced"), "{end:?}");
    assert_eq!(within("its call", pending.result()).await.expect_err("closed").code, Code::Closed);
    let after = older.call::<u64>("held", 1).await.expect_err("closed");
    assert_eq!((&after.code, after.accepted), (&Code::Closed, Accepted::No));
    assert!(newer.is_connected());
    newer.agents().await.expect("the newer one goes on");
}

#[tokio::test]
async fn an_agent_that_is_not_who_it_says_is_refused_for_good() {
    let hub = Hub::dev();
    let tls = sdk_world::tls(hub.dir(), "me");
    let refused = agent(hub.dir(), hub.agents, "other").tls(tls).connect();
    let error = within("the refusal", refused).await.expect_err("unauthorized");
    assert!(matches!(&error, ConnectError::Refused { code, .. } if code == "unauthorized"), "{error:?}");
}

#[tokio::test]
async fn calls_outlive_a_draining_hub_on_the_old_connection_and_on_the_next() {
    let mut place = Place::new(&[MANY_HELLOS]);
    let door = Door::new();
    let _provider = connected(held(place.agent("provider"), &door)).await;
    let caller = connected(place.agent("caller")).await;
    let open = caller.call::<u64>("held", 1).start().await.expect("made");
    door.arrived(1).await;
    place.terminate();
    until("the drain", || async { !caller.is_connected() }).await;
    let later = caller.call::<u64>("held", 2).start().await.expect("made");
    door.let_go(1);
    assert_eq!(within("the open call", open.result()).await.expect("a result"), 2);
    assert!(place.exited().await.success());
    place.restart();
    door.let_go(1);
    assert_eq!(within("the later call", later.result()).await.expect("a result"), 4);
    assert_eq!(door.count(), 2);
}
