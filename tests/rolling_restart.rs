//! Hubs that are stopped on purpose lose no call: one after the other behind a balancer, and one with many at work.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_reach::certs;
use agent_reach_sdk::{Agent, Context};
use raw::Hub;
use sdk_world::proxy::Proxy;
use sdk_world::{Door, Place, agent, until, within};
use tokio::sync::watch;
use tokio::task::JoinSet;

const MANY_HELLOS: (&str, &str) = ("LIMITS__REGISTRATIONS_PER_10S", "1000");
/// A debug build on a busy machine must not be cut off by the clock.
const LONG: Duration = Duration::from_secs(60);

// A hub that is started again holds up the thread that waits for it: agents have others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hubs_behind_a_balancer_are_restarted_one_after_the_other_and_no_call_is_lost_or_run_twice() {
    let mut first = Place::new(&[MANY_HELLOS]);
    let mut second = first.beside(&[MANY_HELLOS]);
    let balancer = Proxy::to(first.address()).await;
    let runs = Arc::new(Mutex::new(BTreeMap::<u64, u32>::new()));
    let counted = Arc::clone(&runs);
    let _provider = agent(first.dir(), balancer.address, "provider")
        .capability("double", move |_: Context, n: u64| {
            *counted.lock().expect("no handler fails").entry(n).or_default() += 1;
            async move { Ok(2 * n) }
        })
        .connect()
        .await
        .expect("a session");
    let (done, stop) = (watch::Sender::new(0_u64), watch::Sender::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..4_u64 {
        let agent = agent(first.dir(), balancer.address, &format!("caller-{caller}")).connect().await;
        callers.spawn(call_on(agent.expect("a session"), caller, done.clone(), stop.subscribe()));
    }
    let mut progress = done.subscribe();
    for round in 0..4 {
        // Some calls on this hub, and then some on the other.
        let some = *progress.borrow() + 40;
        within("calls", progress.wait_for(|done| *done >= some)).await.expect("callers");
        let (old, new) = if round % 2 == 0 { (&mut first, &second) } else { (&mut second, &first) };
        balancer.aim(new.address());
        old.terminate();
        assert!(old.exited().await.success(), "a drain ends well");
        old.restart();
    }
    stop.send_replace(true);
    let mut called = 0;
    while let Some(made) = within("the callers", callers.join_next()).await {
        called += made.expect("no call is lost");
    }
    let runs = runs.lock().expect("no handler fails");
    assert_eq!(runs.len() as u64, called, "each call ran");
    assert!(runs.values().all(|count| *count == 1), "and ran once: {runs:?}");
}

/// Calls one after the other until it is told to stop. How many it made.
async fn call_on(agent: Agent, caller: u64, done: watch::Sender<u64>, stop: watch::Receiver<bool>) -> u64 {
    let mut made = 0;
    while !*stop.borrow() {
        let n = caller * 1_000_000 + made;
        // On the other hub the provider may come after the caller.
        let call = agent.call::<u64>("double", n).wait_for_agent(LONG).accept_timeout(LONG).budget(LONG);
        assert_eq!(call.await.expect("a result"), 2 * n);
        made += 1;
        done.send_modify(|done| *done += 1);
    }
    made
}

#[tokio::test]
async fn two_thousand_agents_with_a_call_open_are_drained_and_none_is_lost() {
    const AGENTS: u64 = 2000;
    const CALLERS: u64 = 8;
    // A rule has room for so many names.
    const EACH: u64 = 1000;
    let mut policy = "version = 1\n".to_owned();
    for part in 0..AGENTS / EACH {
        let ids: Vec<String> = (part * EACH..(part + 1) * EACH).map(|n| format!("\"worker-{n}\"")).collect();
        policy += &format!(
            "[[rules]]\nidentity = \"spiffe://agent-reach/agent/workers-{part}\"\nagent_ids = [{}]\nprovide = [\"*\"]\n",
            ids.join(", ")
        );
    }
    policy += "[[rules]]\nidentity = \"*\"\ncall = [\"*\"]\n";
    let mut hub = Hub::serve(&policy, "[calls]\naccept_timeout_ms = 60000\n");
    let door = Door::new();
    let tls: Vec<_> =
        (0..AGENTS / EACH).map(|part| sdk_world::tls(hub.dir(), &format!("workers-{part}"))).collect();
    let (mut connecting, mut workers) = (JoinSet::new(), Vec::new());
    for n in 0..AGENTS {
        let door = door.clone();
        let held = move |_: Context, n: u64| {
            let door = door.clone();
            async move {
                door.pass().await;
                Ok(2 * n)
            }
        };
        let worker = Agent::builder(format!("wss://{}", hub.agents), format!("worker-{n}"))
            .tls(tls[usize::try_from(n / EACH).expect("a few")].clone())
            .capability("held", held);
        connecting.spawn(async move { worker.connect().await.expect("a session") });
        // As many handshakes at a time as the hub makes at once.
        if connecting.len() >= 32 {
            workers.extend(connecting.join_next().await);
        }
    }
    workers.extend(connecting.join_all().await.into_iter().map(Ok));
    let (mut pending, mut callers) = (Vec::new(), Vec::new());
    for caller in 0..CALLERS {
        let caller_agent =
            agent(hub.dir(), hub.agents, &format!("caller-{caller}")).connect().await.expect("a session");
        for n in (caller..AGENTS).step_by(usize::try_from(CALLERS).expect("a few")) {
            let call = caller_agent.call::<u64>("held", n).agents([format!("worker-{n}")]);
            let call = call.accept_timeout(LONG).timeout(LONG).budget(LONG);
            pending.push((n, call.start().await.expect("made")));
        }
        callers.push(caller_agent);
    }
    door.arrived(AGENTS).await;
    hub.terminate();
    until("the drain", || async { raw::http::get(hub.http(), "/readyz").await.status == 503 }).await;
    door.let_go(usize::try_from(AGENTS).expect("a few"));
    for (n, call) in pending {
        assert_eq!(within("a result", call.result()).await.expect("not lost"), 2 * n);
    }
    assert!(hub.exited().success());
    drop((workers, callers));
}

#[tokio::test]
async fn a_certificate_that_runs_out_is_renewed_without_a_lost_call_and_without_a_second_run() {
    let hub = Hub::dev();
    let door = Door::new();
    let at_the_door = door.clone();
    // Both are issued for a moment, and again for long while they are connected.
    for name in ["provider", "caller"] {
        let order = certs::Order { name, sans: &[], valid: Duration::from_secs(4) };
        certs::issue_order(hub.dir(), &order).expect("a certificate");
    }
    let provider = agent(hub.dir(), hub.agents, "provider")
        .capability("held", move |_: Context, n: u64| {
            let door = at_the_door.clone();
            async move {
                door.pass().await;
                Ok(2 * n)
            }
        })
        .connect()
        .await
        .expect("a session");
    let caller = agent(hub.dir(), hub.agents, "caller").connect().await.expect("a session");
    let call = caller.call::<u64>("held", 21).start().await.expect("made");
    door.arrived(1).await;
    for name in ["provider", "caller"] {
        certs::issue(hub.dir(), name, &[], 1).expect("a certificate");
    }
    until("the end of both", || async { hub.log().matches("credentials_expired").count() >= 2 }).await;
    until("their return", || async { provider.is_connected() && caller.is_connected() }).await;
    door.let_go(1);
    assert_eq!(within("the result", call.result()).await.expect("not lost"), 42);
    assert_eq!(door.count(), 1, "it ran once");
}
