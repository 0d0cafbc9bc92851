//! What a caller can ask of the hub beside a result, and what it can decide on the way, against the real hub.
#![cfg(test)]

#[macro_use]
mod raw;
mod sdk_world;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_reach_sdk::{
    Accepted, Agent, AgentBuilder, Capability, Code, Context, ErrorCode, HandlerError, Payload, Policy,
    Priority, Reply,
};
use raw::Hub;
use sdk_world::{Count, Door, agent, within};

/// A hub whose tries follow each other quickly.
fn quick() -> Hub {
    Hub::dev_with(&[("CALLS__RETRY_BASE_MS", "1"), ("CALLS__RETRY_JITTER_MS", "1")])
}

async fn connected(builder: AgentBuilder) -> Agent {
    builder.connect().await.expect("a session")
}

/// Fails in a way that may pass, and counts how often it was asked.
fn failing(builder: AgentBuilder, entered: &Count) -> AgentBuilder {
    let entered = entered.clone();
    builder.capability("fails", move |_: Context, (): ()| {
        entered.up();
        async { Err::<(), _>(HandlerError::new("no-ink", "the pen is dry").retryable()) }
    })
}

/// Says who it is.
fn named(builder: AgentBuilder, name: &'static str) -> AgentBuilder {
    builder.capability("name", move |_: Context, (): ()| async move { Ok(name) })
}

/// Everything that the caller sent before has been handled by the hub when this returns.
async fn settled(caller: &Agent) {
    within("the hub", caller.call::<Payload>("hub.stats", ()).reply()).await.expect("figures");
}

#[tokio::test]
async fn a_handler_is_entered_once_for_each_try_that_the_call_may_have_and_the_reply_shows_each() {
    let hub = quick();
    let entered = Count::default();
    let _one = connected(failing(agent(hub.dir(), hub.agents, "one"), &entered)).await;
    let _other = connected(failing(agent(hub.dir(), hub.agents, "other"), &entered)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    // Tries of the hub and of the SDK that multiplied would be more than these.
    for (retries, fallback, expected) in
        [(Some(0), false, 1), (None, false, 3), (Some(1), true, 3), (Some(2), true, 4)]
    {
        let before = entered.get();
        let mut call = caller.call::<()>("fails", ()).allow_fallback(fallback);
        if let Some(retries) = retries {
            call = call.retries(retries);
        }
        let error = within("the end", call.reply()).await.expect_err("it fails");
        assert_eq!((entered.get() - before, error.attempts.len() as u64), (expected, expected));
        assert_eq!(error.accepted, Accepted::Yes);
        let targets: Vec<_> = error.attempts.iter().map(|tried| tried.target.as_str()).collect();
        let own = targets.iter().filter(|target| **target == targets[0]).count();
        assert_eq!(own, targets.len() - usize::from(fallback), "{targets:?}");
        if expected == 1 {
            assert_eq!((&error.code, error.cause.as_ref()), (&Code::Known(ErrorCode::HandlerError), None));
            continue;
        }
        assert_eq!((&error.code, error.retryable), (&Code::Known(ErrorCode::Degraded), false));
        let cause = error.cause.as_ref().expect("its cause");
        assert_eq!((&cause.code, cause.retryable), (&Code::Known(ErrorCode::HandlerError), true));
        let own: std::collections::BTreeMap<String, String> =
            Payload::new(cause.details.clone().expect("the handler's own")).decode().expect("a map");
        assert_eq!(own["code"], "no-ink");
    }
}

#[tokio::test]
async fn a_try_that_goes_well_ends_the_tries() {
    let hub = quick();
    let entered = Count::default();
    let counted = entered.clone();
    let flaky = move |context: Context, (): ()| {
        counted.up();
        async move {
            match context.attempt() {
                1 => Err(HandlerError::new("no-ink", "the pen is dry").retryable()),
                attempt => Ok(attempt),
            }
        }
    };
    let _provider = connected(agent(hub.dir(), hub.agents, "provider").capability("flaky", flaky)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let reply: Reply<u64> = caller.call("flaky", ()).reply().await.expect("the second try");
    assert_eq!((reply.body, entered.get(), reply.cached, reply.duplicate), (2, 2, false, false));
    let outcomes: Vec<_> = reply.attempts.iter().map(|tried| tried.outcome.as_str()).collect();
    assert_eq!(outcomes, ["handler_error", "completed"]);
    assert!(reply.route.is_some() && reply.call_id.is_some() && reply.execution.is_some(), "{reply:?}");
}

#[tokio::test]
async fn an_older_result_stands_in_where_the_caller_takes_one() {
    let hub = quick();
    let well = Arc::new(Mutex::new(true));
    let is_well = Arc::clone(&well);
    let weather = move |_: Context, place: String| {
        let well = *is_well.lock().expect("no panic");
        async move {
            if well {
                Ok(format!("rain in {place}"))
            } else {
                Err(HandlerError::new("down", "down").retryable())
            }
        }
    };
    let _provider = connected(agent(hub.dir(), hub.agents, "provider").capability("weather", weather)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let ask = |place: &str| caller.call::<String>("weather", place).retries(0);
    let age = Duration::from_secs(600);
    assert!(!ask("Ulm").allow_cached(age).reply().await.expect("fresh").cached);
    *well.lock().expect("no panic") = false;
    let old = ask("Ulm").allow_cached(age).reply().await.expect("the older one");
    assert_eq!((old.body.as_str(), old.cached), ("rain in Ulm", true));
    assert_eq!(ask("Ulm").await.expect_err("none wanted").code, ErrorCode::HandlerError);
    let other = ask("Bonn").allow_cached(age).await.expect_err("of another body");
    assert_eq!(other.code, ErrorCode::Degraded);
}

#[tokio::test]
async fn the_urgent_overtake_while_an_agent_is_busy() {
    let hub = Hub::dev();
    let door = Door::new();
    let (held, order) = (door.clone(), Arc::new(Mutex::new(Vec::new())));
    let ran = Arc::clone(&order);
    let work = move |context: Context, (): ()| {
        let (held, ran) = (held.clone(), Arc::clone(&ran));
        async move {
            ran.lock().expect("no panic").push(context.priority());
            held.pass().await;
            Ok(())
        }
    };
    let builder = agent(hub.dir(), hub.agents, "provider").max_concurrency(1).capability("work", work);
    let _provider = connected(builder).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let mut pending = vec![caller.call::<()>("work", ()).start().await.expect("made")];
    door.arrived(1).await;
    for priority in [Priority::Low, Priority::High] {
        pending.push(caller.call::<()>("work", ()).priority(priority).start().await.expect("made"));
    }
    settled(&caller).await;
    door.let_go(3);
    for call in pending {
        within("every end", call.result()).await.expect("a result");
    }
    assert_eq!(*order.lock().expect("no panic"), [Priority::Normal, Priority::High, Priority::Low]);
}

#[tokio::test]
async fn a_call_that_waits_in_the_hub_ends_with_its_budget() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let work = move |_: Context, (): ()| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok(())
        }
    };
    let builder = agent(hub.dir(), hub.agents, "provider").max_concurrency(1).capability("work", work);
    let _provider = connected(builder).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let first = caller.call::<()>("work", ()).start().await.expect("made");
    door.arrived(1).await;
    let short = caller.call::<()>("work", ()).budget(Duration::from_millis(30)).reply();
    let error = within("the budget", short).await.expect_err("spent");
    assert_eq!((&error.code, error.retryable), (&Code::Known(ErrorCode::BudgetExhausted), false));
    door.let_go(1);
    within("the first", first.result()).await.expect("a result");
    assert_eq!(door.count(), 1);
}

#[tokio::test]
async fn a_call_waits_for_an_agent_to_come_where_it_says_so() {
    let hub = Hub::dev();
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let patient = caller.call::<String>("name", ()).wait_for_agent(Duration::from_secs(30));
    let pending = patient.start().await.expect("made");
    settled(&caller).await;
    let _late = connected(named(agent(hub.dir(), hub.agents, "late"), "late")).await;
    assert_eq!(within("the result", pending.result()).await.expect("a result"), "late");
}

#[tokio::test]
async fn calls_with_one_key_go_to_one_agent_and_keys_are_spread() {
    let hub = Hub::dev();
    let _one = connected(named(agent(hub.dir(), hub.agents, "one"), "one")).await;
    let _other = connected(named(agent(hub.dir(), hub.agents, "other"), "other")).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let mut seen = std::collections::BTreeSet::new();
    for key in 0..40 {
        let ask = || caller.call::<String>("name", ()).affinity_key(format!("user-{key}"));
        let first = ask().await.expect("a result");
        assert_eq!(ask().await.expect("a result"), first, "key {key}");
        seen.insert(first);
    }
    assert_eq!(seen.len(), 2, "forty keys on one agent of two");
}

#[tokio::test]
async fn labels_of_the_caller_count_where_it_says_so_and_the_last_value_of_a_label_does() {
    let hub = Hub::dev();
    let mut agents = Vec::new();
    for zone in ["a", "b"] {
        agents.push(connected(named(agent(hub.dir(), hub.agents, zone).label("zone", zone), zone)).await);
    }
    let builder = agent(hub.dir(), hub.agents, "caller").label("zone", "a").label("zone", "b");
    let caller = connected(builder).await;
    for _ in 0..4 {
        let name = || caller.call::<String>("name", ());
        assert_eq!(name().inherit_labels().await.expect("a result"), "b");
        assert_eq!(name().label("zone", "a").inherit_labels().await.expect("a result"), "a");
        assert_eq!(name().inherit_labels().label("zone", "a").await.expect("a result"), "a");
        assert_eq!(name().require("zone", "a").require("zone", "b").await.expect("a result"), "b");
    }
    let nobody = caller.call::<String>("name", ()).require("zone", "c").await.expect_err("nobody there");
    assert_eq!((&nobody.code, nobody.accepted), (&Code::Known(ErrorCode::NoInstance), Accepted::No));
}

#[tokio::test]
async fn versions_and_policies_choose_among_candidates() {
    let hub = Hub::dev();
    let mut agents = Vec::new();
    for (name, version) in [("old", "1.9.0"), ("new", "2.1.0")] {
        let who = move |_: Context, (): ()| async move { Ok(name) };
        let offered = Capability::new("name").version(version);
        agents.push(connected(agent(hub.dir(), hub.agents, name).capability(offered, who)).await);
    }
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    for (requirement, expected) in [("^1", "old"), (">=2, <3", "new")] {
        let name: String = caller.call("name", ()).version(requirement).await.expect("a result");
        assert_eq!(name, expected);
    }
    let neither = caller.call::<String>("name", ()).version("^3").await.expect_err("nobody has it");
    assert_eq!(neither.code, ErrorCode::NoInstance);
    let mut turns = Vec::new();
    for _ in 0..4 {
        turns.push(caller.call::<String>("name", ()).policy(Policy::RoundRobin).await.expect("a result"));
    }
    assert!(turns[0] != turns[1] && turns[0] == turns[2] && turns[1] == turns[3], "{turns:?}");
}

/// `report`, which says that it takes a minute, and then waits for the door or to be cancelled.
fn slow(builder: AgentBuilder, door: &Door, at_work: &Count) -> AgentBuilder {
    let (door, at_work) = (door.clone(), at_work.clone());
    builder.label("pace", "slow").capability("report", move |context: Context, (): ()| {
        let (door, at_work) = (door.clone(), at_work.clone());
        async move {
            at_work.up();
            context.would_take(Duration::from_secs(60)).await;
            tokio::select! {
                () = door.pass() => Ok("slow"),
                () = context.cancelled() => Err(HandlerError::new("stopped", "as was asked")),
            }
        }
    })
}

fn prompt(builder: AgentBuilder, at_work: &Count) -> AgentBuilder {
    let at_work = at_work.clone();
    builder.capability("report", move |_: Context, (): ()| {
        at_work.up();
        async { Ok("prompt") }
    })
}

#[tokio::test]
async fn who_would_like_it_sooner_is_told_and_may_wait_cancel_or_go_elsewhere() {
    let hub = Hub::dev();
    let (door, slowly, promptly) = (Door::new(), Count::default(), Count::default());
    let _slow = connected(slow(agent(hub.dir(), hub.agents, "slow"), &door, &slowly)).await;
    let _prompt = connected(prompt(agent(hub.dir(), hub.agents, "prompt"), &promptly)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let ask = || async {
        let call = caller.call::<String>("report", ()).label("pace", "slow");
        let mut pending = call.preferred_timeout(Duration::from_secs(2)).start().await.expect("made");
        let late = within("its word", pending.would_timeout()).await.expect("no result yet");
        assert_eq!((late.target.as_deref(), late.wait), (Some("slow"), Some(Duration::from_secs(60))));
        pending
    };

    let waited = ask().await;
    door.let_go(1);
    assert_eq!(within("the result", waited.result()).await.expect("a result"), "slow");

    let cancelled = within("the end", ask().await.cancel()).await.expect_err("cancelled");
    assert_eq!((&cancelled.code, cancelled.accepted), (&Code::Known(ErrorCode::Cancelled), Accepted::Yes));
    assert_eq!((slowly.get(), promptly.get()), (2, 0));

    let mut moved = ask().await;
    assert!(within("the move", moved.elsewhere()).await.expect("moved"));
    let reply = within("the result", moved.reply()).await.expect("a result");
    assert_eq!((reply.body.as_str(), reply.target.as_deref()), ("prompt", Some("prompt")));
    assert_eq!((slowly.get(), promptly.get()), (3, 1));
}

#[tokio::test]
async fn a_call_that_nobody_else_can_take_goes_on_where_it_is() {
    let hub = Hub::dev();
    let (door, slowly) = (Door::new(), Count::default());
    let _slow = connected(slow(agent(hub.dir(), hub.agents, "slow"), &door, &slowly)).await;
    let promptly = Count::default();
    let other = prompt(agent(hub.dir(), hub.agents, "prompt").label("zone", "far"), &promptly);
    let _other = connected(other).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let report = || caller.call::<String>("report", ()).preferred_timeout(Duration::from_secs(1));
    for call in [report().require("pace", "slow"), report().agents(["slow"])] {
        let mut pending = call.start().await.expect("made");
        within("phase one", pending.accepted()).await.expect("accepted");
        assert!(!within("the answer", pending.elsewhere()).await.expect("a list"));
        door.let_go(1);
        assert_eq!(within("the result", pending.result()).await.expect("a result"), "slow");
    }
    assert_eq!((slowly.get(), promptly.get()), (2, 0));
}

#[tokio::test]
async fn what_completes_while_it_is_taken_away_is_not_done_again_elsewhere() {
    let hub = Hub::dev();
    let promptly = Count::default();
    let stubborn = |context: Context, (): ()| async move {
        context.would_take(Duration::from_secs(60)).await;
        context.cancelled().await;
        Ok("done all the same")
    };
    let builder = agent(hub.dir(), hub.agents, "stubborn").label("pace", "slow");
    let _stubborn = connected(builder.capability("report", stubborn)).await;
    let _prompt = connected(prompt(agent(hub.dir(), hub.agents, "prompt"), &promptly)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let call = caller.call::<String>("report", ()).label("pace", "slow");
    let mut pending = call.preferred_timeout(Duration::from_secs(2)).start().await.expect("made");
    within("phase one", pending.accepted()).await.expect("accepted");
    assert!(!within("the answer", pending.elsewhere()).await.expect("no failure"));
    assert_eq!(within("the result", pending.result()).await.expect("a result"), "done all the same");
    assert_eq!(promptly.get(), 0);
}

#[tokio::test]
async fn calls_that_wait_in_the_agent_are_told_their_place() {
    let hub = Hub::dev();
    let door = Door::new();
    let held = door.clone();
    let work = move |_: Context, (): ()| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok(())
        }
    };
    let offered = Capability::new("work").max_concurrency(1);
    let _provider = connected(agent(hub.dir(), hub.agents, "provider").capability(offered, work)).await;
    let caller = connected(agent(hub.dir(), hub.agents, "caller")).await;
    let mut pending = Vec::new();
    for expected in [None, Some(0), Some(1)] {
        let mut call = caller.call::<()>("work", ()).start().await.expect("made");
        let accepted = within("phase one", call.accepted()).await.expect("accepted").expect("it is held");
        assert_eq!(accepted.queue_depth, expected);
        pending.push(call);
    }
    assert_eq!(door.count(), 1);
    let cancelled = within("the end", pending.remove(1).cancel()).await.expect_err("cancelled");
    assert_eq!(cancelled.code, ErrorCode::Cancelled);
    door.let_go(2);
    for call in pending {
        within("every end", call.result()).await.expect("a result");
    }
    assert_eq!(door.count(), 2, "the one that was cancelled never ran");
}
