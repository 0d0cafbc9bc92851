//! Calls that were open when the connection was lost, and fan-outs with pieces.

use agent_reach_protocol::{CallError as WireError, ErrorCode, Select};

use super::*;
use crate::errors::{Accepted, CallError};

fn all() -> CallSpec {
    CallSpec { select: Some(Select::All), window: Some(4), ..spec() }
}

fn refused(id: u64, code: &'static str) -> CallResult<'static> {
    let error = WireError { code, message: "m", retryable: false, details: None };
    CallResult { status: ResultStatus::Failed, error: Some(error), target: None, ..result(id) }
}

fn failed(effects: &[Effect]) -> &CallError {
    match effects {
        [Effect::Tell(_, CallEvent::Ended(Err(error)))] => error,
        other => panic!("{other:?}"),
    }
}

/// The id of the next CALL, however long it takes.
fn asked(world: &mut World) -> u64 {
    loop {
        let sent = world.sent();
        // Heartbeats go out meanwhile.
        let calls: Vec<_> = sent.iter().filter(|(kind, _)| *kind == 10).collect();
        if let [(_, call)] = calls.as_slice() {
            return read!(call, Call).0.id;
        }
        assert_eq!(calls.len(), 0, "{calls:?}");
        world.pass(ms(50));
    }
}

fn piece(id: u64, target: &'static str, seq: u64) -> Chunk<'static> {
    Chunk { target: Some(target), ..chunk(id, seq) }
}

#[test]
fn a_call_from_before_the_reconnect_is_asked_again_while_its_provider_may_be_on_the_way_back() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    world.lose();
    world.come_back();
    let mut id = asked(&mut world);
    for code in ["no_capability", "no_instance"] {
        assert_eq!(world.hub(&refused(id, code), None), []);
        assert_eq!(world.sent(), []);
        id = asked(&mut world);
    }
    assert!(matches!(world.hub(&result(id), None).as_slice(), [Effect::Tell(1, CallEvent::Ended(Ok(_)))]));
    assert!(world.session.asked.is_empty());
}

#[test]
fn asking_again_ends_ten_seconds_after_the_reconnect_with_an_unknown_outcome() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    world.lose();
    world.come_back();
    let back = world.now;
    let error = loop {
        let id = asked(&mut world);
        let effects = world.hub(&refused(id, "no_capability"), None);
        if !effects.is_empty() {
            break failed(&effects).clone();
        }
    };
    assert_eq!((&error.code, error.accepted), (&Code::Known(ErrorCode::NoCapability), Accepted::Unknown));
    assert!(world.now.since(back) <= seconds(10) && world.now.since(back) >= seconds(8));
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_call_made_in_this_session_fails_at_once_when_nobody_is_there() {
    let mut world = World::ready();
    world.open(1, spec());
    let id = asked(&mut world);
    let effects = world.hub(&refused(id, "no_instance"), None);
    assert_eq!(failed(&effects).accepted, Accepted::No);
}

#[test]
fn a_call_that_crossed_the_hubs_goodbye_goes_out_on_the_next_connection() {
    let mut world = World::ready();
    world.open(1, spec());
    let id = asked(&mut world);
    world.goodbye("draining", Some(100));
    assert_eq!(world.hub(&refused(id, "shutting_down"), None), [Effect::Close(1000)]);
    world.lose();
    world.come_back();
    let id = asked(&mut world);
    assert_eq!(world.hub(&result(id), None).len(), 1);
}

#[test]
fn each_target_of_a_fan_out_counts_its_own_chunks() {
    let mut world = World::ready();
    world.open(1, all());
    world.sent();
    for (target, seq) in [("a", 0), ("b", 0), ("a", 1), ("b", 1)] {
        let effects = world.hub(&piece(1, target, seq), None);
        assert!(matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Chunk { .. })]), "{effects:?}");
    }
    world.give(Work::Consumed(1, 2, Some("a".to_owned())));
    let credit = world.one();
    let credit = read!(&credit, Credit).0;
    assert_eq!((credit.n, credit.target), (2, Some("a")));
}

#[test]
fn a_gap_in_one_targets_chunks_ends_that_target_only() {
    let mut world = World::ready();
    world.open(1, all());
    world.sent();
    let effects = world.hub(&piece(1, "a", 1), None);
    assert!(matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Part { result: Err(error), .. })]
            if error.code == Code::Interrupted && error.target.as_deref() == Some("a")));
    assert_eq!(world.hub(&piece(1, "a", 2), None), []);
    assert!(matches!(world.sent().as_slice(), [(13, _)]), "its credit goes back, so that it can end");
    let part = |target| CallResult { more: true, target: Some(target), ..result(1) };
    assert_eq!(world.hub(&part("a"), None), []);
    assert_eq!(world.hub(&piece(1, "b", 0), None).len(), 1);
    assert_eq!(world.hub(&part("b"), None).len(), 1);
}

#[test]
fn a_part_that_was_told_before_the_reconnect_is_not_told_again() {
    let mut world = World::ready();
    world.open(1, all());
    world.sent();
    let part = |id| CallResult { more: true, ..result(id) };
    assert_eq!(world.hub(&part(1), None).len(), 1);
    world.lose();
    world.come_back();
    let id = asked(&mut world);
    assert_eq!(world.hub(&part(id), None), []);
}

/// The hub ends the connection as a slow consumer's, and the agent comes back.
fn cut_off(world: &mut World) -> Vec<Effect> {
    let mut effects = world.goodbye("slow_consumer", None);
    effects.extend(world.lose());
    world.come_back();
    effects.retain(|effect| matches!(effect, Effect::Tell(..)));
    effects
}

/// How many CALLs were to be written.
fn calls(world: &mut World) -> usize {
    world.sent().iter().filter(|(kind, _)| *kind == 10).count()
}

#[test]
fn after_slow_consumer_calls_go_out_one_after_the_other() {
    let mut world = World::ready();
    for key in 1..=4 {
        world.open(key, spec());
    }
    assert_eq!(calls(&mut world), 4);
    assert_eq!(cut_off(&mut world), []);
    let first = asked(&mut world);
    world.hub(&result(first), None);
    assert_eq!(calls(&mut world), 1, "when one has ended");
    world.pass(ms(199));
    assert_eq!(calls(&mut world), 0);
    world.pass(ms(1));
    assert_eq!(calls(&mut world), 1, "when the pause is over");
    world.pass(ms(200));
    assert_eq!(calls(&mut world), 1);
    for key in 5..=6 {
        world.open(key, spec());
    }
    assert_eq!(calls(&mut world), 2, "everything is out: what is new has no pause");
}

#[test]
fn a_call_whose_connection_ends_as_a_slow_consumers_five_times_in_a_row_fails() {
    let mut world = World::ready();
    world.open(1, CallSpec { budget: Some(seconds(600)), ..spec() });
    for _ in 0..2 {
        assert_eq!(cut_off(&mut world), []);
        assert_eq!(calls(&mut world), 1);
    }
    world.pass(seconds(20));
    world.sent();
    for _ in 0..4 {
        assert_eq!(cut_off(&mut world), []);
        assert_eq!(calls(&mut world), 1);
    }
    let effects = cut_off(&mut world);
    let error = failed(&effects);
    assert!(error.code == ErrorCode::Overloaded, "{error:?}");
    assert_eq!(error.accepted, Accepted::Unknown);
    assert_eq!(calls(&mut world), 0);
    assert!(world.session.asked.is_empty());
}
