//! Who gets a call.
#![cfg(test)]

mod world;

use std::collections::BTreeMap;

use agent_reach_protocol::{AgentStatus, Call, Capability, Hello, Labels, Load, Policy, Update};
use proptest::prelude::*;
use world::*;

fn labels<'a>(pairs: &[(&'a str, &'a str)]) -> Labels<'a> {
    Labels(pairs.to_vec())
}

/// Asks once, and says who was given the call.
fn given_to(w: &mut World, asking: &Call<'_>) -> String {
    w.say("c", asking);
    let heard = w.all_heard();
    assert_eq!(heard.len(), 1, "{heard:?}");
    heard[0].split(':').next().unwrap().to_owned()
}

fn world_of(names: &[&'static str]) -> World {
    let mut w = World::new();
    for name in names {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    w
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// `least_loaded` equals a naive scan: the smallest share of slots taken, and overloaded when all are full.
    #[test]
    fn least_loaded_is_what_a_naive_scan_finds(
        slots in proptest::collection::vec(1_u64..6, 1..6),
        steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..60),
    ) {
        let mut w = World::new();
        let names: Vec<String> = (0..slots.len()).map(|n| format!("p{n}")).collect();
        for (name, slots) in names.iter().zip(&slots) {
            w.join(name, Hello { max_concurrency: Some(*slots), ..provider(name, "echo") });
        }
        w.join("c", caller("c"));
        let mut taken: Vec<u64> = vec![0; slots.len()];
        // Who runs which call, by the hub's id there.
        let mut running: Vec<(usize, u64)> = Vec::new();
        let mut given: Vec<u64> = vec![0; slots.len()];
        for (id, (ask, index)) in steps.iter().enumerate() {
            if !ask && !running.is_empty() {
                let (at, call) = running.swap_remove(index.index(running.len()));
                w.say(&names[at], &completed(call));
                w.all_heard();
                taken[at] -= 1;
                continue;
            }
            w.say("c", &call(id as u64, "echo"));
            let heard = w.all_heard();
            let able = (0..slots.len()).filter(|at| taken[*at] < slots[*at]);
            let least = able.clone().min_by(|a, b| (taken[*a] * slots[*b]).cmp(&(taken[*b] * slots[*a])));
            let Some(least) = least else {
                prop_assert_eq!(heard, [format!("c: RESULT {id} overloaded retryable")]);
                continue;
            };
            let at = names.iter().position(|name| heard[0].starts_with(&format!("{name}: CALL"))).unwrap();
            prop_assert_eq!(taken[at] * slots[least], taken[least] * slots[at], "{} and {}", at, least);
            taken[at] += 1;
            given[at] += 1;
            running.push((at, given[at]));
        }
    }
}

#[test]
fn agents_of_equal_load_take_turns() {
    let mut w = world_of(&["p1", "p2", "p3"]);
    let mut order = Vec::new();
    for id in 1..=6 {
        let name = given_to(&mut w, &call(id, "echo"));
        w.say(&name, &completed(id.div_ceil(3)));
        w.all_heard();
        order.push(name);
    }
    assert_eq!(order, ["p1", "p2", "p3", "p1", "p2", "p3"]);
}

#[test]
fn round_robin_goes_in_turn_whatever_the_load() {
    let mut w = world_of(&["p1", "p2", "p3"]);
    let asking = |id| Call { policy: Some(Policy::RoundRobin), ..call(id, "echo") };
    let order: Vec<String> = (1..=5).map(|id| given_to(&mut w, &asking(id))).collect();
    assert_eq!(order, ["p1", "p2", "p3", "p1", "p2"]);
}

#[test]
fn random_reaches_everyone_about_equally_often() {
    let mut w = world_of(&["p1", "p2", "p3"]);
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for id in 1..=600 {
        let name = given_to(&mut w, &Call { policy: Some(Policy::Random), ..call(id, "echo") });
        *times.entry(name.clone()).or_default() += 1;
        let given = own.entry(name.clone()).or_default();
        *given += 1;
        w.say(&name, &completed(*given));
        w.all_heard();
    }
    assert_eq!(times.len(), 3);
    assert!(times.values().all(|times| (150..250).contains(times)), "{times:?}");
}

#[test]
fn required_labels_exclude_and_preferred_ones_only_prefer() {
    let mut w = World::new();
    w.join("p1", provider("p1", "echo"));
    w.join("p2", Hello { labels: labels(&[("zone", "b"), ("gpu", "yes")]), ..provider("p2", "echo") });
    w.join("c", caller("c"));
    let prefer = Call { labels: labels(&[("zone", "b")]), ..call(1, "echo") };
    assert_eq!(given_to(&mut w, &prefer), "p2");
    assert_eq!(given_to(&mut w, &Call { id: 2, ..prefer.clone() }), "p2", "though p1 has less to do");
    assert_eq!(given_to(&mut w, &Call { id: 3, labels: labels(&[("zone", "z")]), ..prefer.clone() }), "p1");
    assert_eq!(
        given_to(&mut w, &Call { id: 4, require: labels(&[("gpu", "yes")]), ..call(4, "echo") }),
        "p2"
    );
    w.say("c", &Call { require: labels(&[("gpu", "no")]), ..call(5, "echo") });
    assert_eq!(w.all_heard(), ["c: RESULT 5 no_instance retryable"]);
}

#[test]
fn a_version_requirement_takes_only_what_matches_it() {
    let mut w = World::new();
    for (name, version) in [("p1", Some("1.4.0")), ("p2", Some("2.1.3")), ("p3", None)] {
        let offer = Capability { version, ..capability("echo") };
        w.join(name, Hello { capabilities: vec![offer], ..caller(name) });
    }
    w.join("c", caller("c"));
    assert_eq!(given_to(&mut w, &Call { version: Some("^2"), ..call(1, "echo") }), "p2");
    assert_eq!(given_to(&mut w, &Call { version: Some(">=1, <2"), ..call(2, "echo") }), "p1");
    w.say("c", &Call { version: Some("^3"), ..call(3, "echo") });
    w.say("c", &Call { version: Some("newest"), ..call(4, "echo") });
    assert_eq!(w.all_heard(), ["c: RESULT 3 no_instance retryable", "c: RESULT 4 invalid_request"]);
}

#[test]
fn draining_and_unhealthy_agents_get_nothing_new_and_degraded_ones_do() {
    let mut w = world_of(&["p"]);
    let health = |health| Update { load: Some(Load { health: Some(health), ..load() }), ..update() };
    let status = |status| Update { status: Some(status), ..update() };
    for (id, said, takes) in [
        (1, status(AgentStatus::Draining), false),
        (2, status(AgentStatus::Degraded), true),
        (3, status(AgentStatus::Ready), true),
        (4, health(59), false),
        (5, health(60), true),
    ] {
        w.say("p", &said);
        w.say("c", &call(id, "echo"));
        let heard = w.all_heard();
        let expected = if takes { "p: CALL" } else { "c: RESULT" };
        assert!(heard.len() == 1 && heard[0].starts_with(expected), "{said:?}: {heard:?}");
    }
}

#[test]
fn what_is_withdrawn_is_known_and_without_an_instance_and_what_never_was_is_unknown() {
    let mut w = world_of(&["p"]);
    w.say("p", &Update { add: vec![capability("sum")], remove: vec!["echo"], ..update() });
    w.say("c", &call(1, "echo"));
    w.say("c", &call(2, "never"));
    w.say("c", &call(3, "Sum"));
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 1 no_instance retryable", "c: RESULT 2 no_capability", "p: CALL 1 sum by=c try=1"]
    );
}

#[test]
fn a_directed_call_never_leaves_its_agent() {
    let mut w = world_of(&["p1", "p2"]);
    let to = |id, agent| Call { agents: Some(vec![agent]), ..call(id, "echo") };
    assert_eq!(given_to(&mut w, &to(1, "p2")), "p2");
    assert_eq!(given_to(&mut w, &to(2, "p2")), "p2");
    w.say("c", &to(3, "p3"));
    w.say("c", &to(4, "c"));
    w.lose("p2");
    w.say("c", &to(5, "p2"));
    assert_eq!(
        w.all_heard(),
        [
            "c: RESULT 3 no_instance retryable",
            "c: RESULT 4 no_instance retryable",
            "c: RESULT 5 no_instance retryable"
        ]
    );
}

#[test]
fn an_alias_reaches_the_provider_under_its_own_name() {
    let mut w = World::new();
    let offer = Capability { aliases: vec!["Say_Again"], ..capability("echo") };
    w.join("p", Hello { capabilities: vec![offer], ..caller("p") });
    w.join("c", caller("c"));
    w.say("c", &call(1, "say-again"));
    w.say("c", &call(2, "say_again"));
    assert_eq!(w.all_heard(), ["p: CALL 1 echo by=c try=1", "p: CALL 2 echo by=c try=1"]);
}

#[test]
fn names_that_are_offered_again_and_again_do_not_push_others_out_of_memory() {
    let settings = agent_reach_core::Settings { names: 3, ..Default::default() };
    let mut w = World::with(settings);
    w.join("q", provider("q", "rare"));
    w.lose("q");
    w.join("p", provider("p", "echo"));
    for _ in 0..10 {
        w.say("p", &Update { remove: vec!["echo"], ..update() });
        w.say("p", &Update { add: vec![capability("echo")], ..update() });
    }
    w.join("c", caller("c"));
    w.say("c", &call(1, "rare"));
    assert_eq!(w.all_heard(), ["c: RESULT 1 no_instance retryable"]);
}
