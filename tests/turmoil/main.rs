//! The whole hub in a simulated network: the real listener, TLS, upgrade, connections, driver and core, on hosts
//! whose time is virtual and whose links are slow, cut or held, by a seed.
//!
//! A packet that is lost here is lost for good: what a cut link has swallowed leaves a gap that its TCP streams
//! never close, so a connection that was cut is silent for ever. Where TCP would send again, a link is held.
#![cfg(test)]

mod agent;
mod envelope;
mod world;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use agent::Agent;
use world::{HUB, World, same, settings};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Time in which whatever is still possible has happened.
const LONG: Duration = Duration::from_secs(90);
/// The longest way of a message, both ways, with what the steps of the network add.
const ROUND_TRIP: Duration = ms(700);

fn suspect() -> Duration {
    ms(settings().suspect_ms)
}

fn gone() -> Duration {
    ms(settings().gone_ms)
}

/// For which calls each request was run, by whomever.
fn runs(providers: &[&Rc<Agent>]) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (request_id, call_id) in providers.iter().flat_map(|provider| provider.runs()) {
        all.entry(request_id).or_default().push(call_id);
    }
    all
}

/// How often the calls of all ended in each way.
fn counted(callers: &[Rc<Agent>]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for outcome in callers.iter().flat_map(|caller| caller.outcomes()) {
        *counts.entry(outcome).or_default() += 1;
    }
    counts
}

fn none_ran_twice(providers: &[&Rc<Agent>]) {
    let twice: Vec<_> = runs(providers).into_iter().filter(|(_, calls)| calls.len() > 1).collect();
    assert!(twice.is_empty(), "run more than once: {twice:?}");
}

/// A call whose ACCEPT does not come in time has failed, and its request id is free again: whoever lost the
/// connection before it heard so asks once more, and that is another call, which another provider may get while
/// the first has begun after all. Nothing else makes a request run twice.
fn none_ran_twice_for_one_call(callers: &[Rc<Agent>], providers: &[&Rc<Agent>]) {
    for (request_id, mut calls) in runs(providers) {
        let runs = calls.len();
        calls.sort();
        calls.dedup();
        assert_eq!(calls.len(), runs, "{request_id} was run twice for one call: {calls:?}");
        let asked = callers.iter().find_map(|caller| caller.times_asked(&request_id)).unwrap();
        assert!(
            u64::try_from(runs).unwrap() <= asked,
            "{request_id} was run {runs} times, asked for {asked}"
        );
    }
}

#[test]
fn calls_over_slow_links_complete_once_and_streams_stay_in_order() {
    for seed in 0..3 {
        let mut world = World::new(seed, 10..300);
        let provider = world.agent("worker", |agent| agent.providing("work", ms(30)));
        let callers = ["ann", "bob", "cy"].map(|name| world.agent(name, |agent| agent));
        world.all_registered();
        for number in 0..90 {
            let caller = &callers[number % 3];
            if number % 2 == 0 {
                caller.ask("work", [("stream", true.into())]);
            } else {
                caller.ask("work", []);
            }
            world.pass(ms(20));
        }
        world.until("all have ended", LONG, |_| callers.iter().all(|caller| caller.all_ended()));
        for caller in &callers {
            same(caller.name(), &caller.outcomes(), &vec!["completed".to_owned(); 30]);
        }
        assert_eq!(runs(&[&provider]).len(), 90);
        none_ran_twice(&[&provider]);
        world.ends_with_nothing_left();
    }
}

#[test]
fn a_provider_that_is_cut_off_is_suspect_then_gone_and_is_routed_to_when_it_is_back() {
    let mut world = World::new(1, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(2000)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    let under_way = caller.ask("work", []);
    world.until("it was accepted", ms(1000), |_| caller.state().asked[under_way].accepted);

    world.network().partition("worker", HUB);
    let unanswered = caller.ask("work", [("budget_ms", 5000.into())]);
    world.until("it is suspect", suspect() + ROUND_TRIP, |world| world.gauges().agents_suspect == 1);
    let late = caller.ask("work", []);
    world.until("it is gone", gone() - suspect() + ROUND_TRIP, |world| world.gauges().agents_suspect == 0);
    world.until("all have ended", LONG, |_| caller.all_ended());
    let end = |number| caller.end(number).unwrap();
    assert_eq!(end(under_way).outcome, "agent_lost");
    assert!(end(unanswered).after < ms(5000) + ROUND_TRIP, "{:?}", end(unanswered));
    assert_eq!(end(late).outcome, "no_instance");
    assert!(end(late).after < ROUND_TRIP, "{:?}", end(late));

    world.network().repair("worker", HUB);
    world.all_registered();
    let again = caller.ask("work", []);
    world.until("it has ended", LONG, |_| caller.all_ended());
    assert_eq!(end(again).outcome, "completed");
    assert_eq!(provider.state().sessions, 2);
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn a_short_stall_of_a_callers_link_loses_and_doubles_nothing() {
    let mut world = World::new(2, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(100)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    for number in 0..60 {
        match number {
            20 => world.network().hold("caller", HUB),
            40 => world.network().release("caller", HUB),
            _ => {}
        }
        caller.ask("work", []);
        world.pass(ms(100));
    }
    world.until("all have ended", LONG, |_| caller.all_ended());
    same("outcomes", &caller.outcomes(), &vec!["completed".to_owned(); 60]);
    assert_eq!(caller.state().sessions, 1);
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn calls_of_a_caller_that_comes_back_in_time_end_once_and_run_once() {
    let mut world = World::new(3, 10..50);
    // Half of what is asked for is done when the caller is back, the other half is under way.
    let quick = world.agent("quick", |agent| agent.providing("work", ms(1500)));
    let slow = world.agent("slow", |agent| agent.providing("work", ms(8000)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    for _ in 0..20 {
        caller.ask("work", []);
        world.pass(ms(50));
    }
    // What is swallowed leaves the connection silent for ever; the caller finds out before the hub does.
    world.network().partition("caller", HUB);
    world.pass(suspect() + ms(1000));
    world.network().repair("caller", HUB);
    world.until("all have ended", LONG, |_| caller.all_ended());
    same("outcomes", &caller.outcomes(), &vec!["completed".to_owned(); 20]);
    assert_eq!(caller.state().sessions, 2);
    assert!(!quick.runs().is_empty() && !slow.runs().is_empty());
    none_ran_twice(&[&quick, &slow]);
    world.ends_with_nothing_left();
}

#[test]
fn calls_of_a_caller_that_comes_back_too_late_are_cancelled_or_done_and_never_run_again() {
    let mut world = World::new(4, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(20_000)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    for _ in 0..20 {
        caller.ask("work", []);
        world.pass(ms(50));
    }
    world.network().partition("caller", HUB);
    world.pass(gone() + ms(settings().resume_ms) + ms(2000));
    assert_eq!(world.gauges().calls, 0, "the hub gave them up");
    world.network().repair("caller", HUB);
    world.until("all have ended", LONG, |_| caller.all_ended());
    same("outcomes", &caller.outcomes(), &vec!["cancelled".to_owned(); 20]);
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn an_agent_that_is_heard_and_does_not_hear_comes_back_by_itself() {
    let mut world = World::new(5, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(100)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    world.network().partition_oneway(HUB, "worker");
    let lost = caller.ask("work", [("budget_ms", 20_000.into())]);
    // It hears nothing of the hub's, ends the connection, and cannot make another.
    world.until("it gives up", gone() + ROUND_TRIP, |_| !provider.has_session());
    world.until("the hub knows", gone() + ROUND_TRIP, |world| world.gauges().agents_ready == 1);
    world.network().repair_oneway(HUB, "worker");
    world.all_registered();
    world.until("it has ended", LONG, |_| caller.all_ended());
    assert!(caller.end(lost).unwrap().after < ms(20_000) + ROUND_TRIP);
    caller.ask("work", []);
    world.until("it has ended", LONG, |_| caller.all_ended());
    assert_eq!(caller.outcomes().pop().as_deref(), Some("completed"));
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn an_agent_that_hears_and_is_not_heard_is_gone_and_comes_back() {
    let mut world = World::new(6, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(100)));
    let caller = world.agent("caller", |agent| agent);
    world.all_registered();
    world.network().partition_oneway("worker", HUB);
    let lost = caller.ask("work", [("budget_ms", 20_000.into())]);
    world.until("it is suspect", suspect() + ROUND_TRIP, |world| world.gauges().agents_suspect == 1);
    world.until("it hears that it is gone", gone() + ROUND_TRIP, |_| !provider.has_session());
    same("goodbyes", &provider.state().goodbyes, &["gone".to_owned()]);
    world.network().repair_oneway("worker", HUB);
    world.all_registered();
    world.until("it has ended", LONG, |_| caller.all_ended());
    assert!(caller.end(lost).unwrap().after < ms(20_000) + ROUND_TRIP);
    caller.ask("work", []);
    world.until("it has ended", LONG, |_| caller.all_ended());
    assert_eq!(caller.outcomes().pop().as_deref(), Some("completed"));
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn agents_register_again_and_ask_again_when_the_hub_has_crashed() {
    let mut world = World::new(7, 10..50);
    let provider = world.agent("worker", |agent| agent.providing("work", ms(500)));
    let callers = ["ann", "bob"].map(|name| world.agent(name, |agent| agent));
    world.all_registered();
    for number in 0..40 {
        match number {
            15 => {
                // As a machine that loses its power: nothing tells the agents.
                for name in ["worker", "ann", "bob"] {
                    world.network().partition(name, HUB);
                }
                world.network().crash(HUB);
            }
            25 => {
                // The worker first: a hub that has just begun knows nobody who could.
                world.network().bounce(HUB);
                world.network().repair("worker", HUB);
                world.until("it registers", LONG, |world| world.gauges().agents_ready == 1);
                world.network().repair("ann", HUB);
                world.network().repair("bob", HUB);
            }
            _ => {}
        }
        callers[number % 2].ask("work", []);
        world.pass(ms(100));
    }
    world.all_registered();
    world.until("all have ended", LONG, |_| callers.iter().all(|caller| caller.all_ended()));
    for caller in &callers {
        same(caller.name(), &caller.outcomes(), &vec!["completed".to_owned(); 20]);
        assert_eq!(caller.state().sessions, 2);
    }
    none_ran_twice(&[&provider]);
    world.ends_with_nothing_left();
}

#[test]
fn links_that_fail_at_random_end_every_call_once_and_run_no_call_twice() {
    for seed in 0..8 {
        let mut world = World::new(seed, 5..100);
        let providers =
            ["one", "two"].map(|name| world.agent(name, |agent| agent.providing("work", ms(300))));
        let callers = ["ann", "bob", "cy"].map(|name| world.agent(name, |agent| agent));
        world.all_registered();
        let names = ["one", "two", "ann", "bob", "cy"];
        let mut random = Random(seed);
        // How each link is broken, and until which round.
        let mut broken: BTreeMap<&str, usize> = BTreeMap::new();
        for round in 0..150 {
            let name = names[random.below(5)];
            if !broken.contains_key(name) && random.below(8) == 0 {
                match random.below(3) {
                    0 => world.network().partition(name, HUB),
                    1 => world.network().hold(name, HUB),
                    // Whoever is on it is gone with all that was on its way.
                    _ => world.network().partition_oneway(HUB, name),
                }
                broken.insert(name, round + 1 + random.below(50));
            }
            for name in names.iter().filter(|name| broken.get(*name).is_some_and(|until| *until <= round)) {
                world.network().release(*name, HUB);
            }
            broken.retain(|_, until| *until > round);
            callers[random.below(3)].ask("work", []);
            world.pass(ms(200));
        }
        for name in names {
            world.network().release(name, HUB);
        }
        world.until("all have ended", LONG, |_| callers.iter().all(|caller| caller.all_ended()));
        none_ran_twice_for_one_call(&callers, &[&providers[0], &providers[1]]);
        let outcomes = counted(&callers);
        let known = [
            "completed",
            "no_instance",
            "accept_timeout",
            "agent_lost",
            "cancelled",
            "degraded",
            "circuit_open",
        ];
        assert!(
            outcomes.keys().all(|outcome| known.contains(&outcome.as_str())),
            "seed {seed}: {outcomes:?}"
        );
        assert!(outcomes.get("completed") > Some(&50), "seed {seed}: {outcomes:?}");
        world.ends_with_nothing_left();
    }
}

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound).unwrap()
    }
}
