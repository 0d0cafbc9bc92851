use super::*;
use crate::errors::{Accepted, CallError};

fn failed(effects: &[Effect]) -> &CallError {
    match effects {
        [Effect::Tell(_, CallEvent::Ended(Err(error)))] => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_goes_out_with_an_id_of_the_sdk_and_ends_once() {
    let mut world = World::ready();
    assert_eq!(world.open(1, spec()), []);
    let call = world.one();
    let (call, body) = read!(&call, Call);
    assert_eq!((call.id, call.keep_ms, call.budget_ms), (1, Some(600_000), None));
    assert_eq!(body.as_deref(), Some(&b"in"[..]));
    assert!(matches!(world.hub(&accept(1), None).as_slice(), [Effect::Tell(1, CallEvent::Accepted(_))]));
    let effects = world.hub(&result(1), Some(b"out"));
    let [Effect::Tell(1, CallEvent::Ended(Ok((reply, None))))] = effects.as_slice() else {
        panic!("{effects:?}");
    };
    assert_eq!((&*reply.body.body, reply.target.as_deref()), (&b"out"[..], Some("p")));
    assert_eq!(world.hub(&result(1), None), []);
    assert!(world.session.asked.is_empty());
}

#[test]
fn an_empty_payload_is_no_body() {
    let mut world = World::ready();
    world.open(1, CallSpec { payload: Payload::default(), ..spec() });
    let call = world.one();
    assert_eq!(read!(&call, Call).1, None);
}

#[test]
fn an_id_of_the_user_is_kept_and_says_nothing_of_how_long() {
    let mut world = World::ready();
    world.open(1, CallSpec { request_id: Some("mine".to_owned()), ..spec() });
    let call = world.one();
    let call = read!(&call, Call).0;
    assert_eq!((call.request_id, call.keep_ms), (Some("mine"), None));
}

#[test]
fn open_calls_are_sent_again_under_the_same_request_id_with_what_is_left_of_the_budget() {
    let mut world = World::ready();
    world.open(1, CallSpec { budget: Some(seconds(100)), ..spec() });
    world.open(2, spec());
    let first = world.sent();
    world.lose();
    assert_eq!(world.sent(), []);
    world.come_back();
    let again = world.sent();
    assert_eq!(again.len(), 2);
    for ((_, first), (_, again)) in first.iter().zip(&again) {
        let (first, again) = (read!(first, Call).0, read!(again, Call).0);
        assert_eq!(first.request_id, again.request_id);
        assert!(again.id > 2);
    }
    let left = time::millis(seconds(100).saturating_sub(world.now.0));
    assert_eq!(read!(&again[0].1, Call).0.budget_ms, Some(left));
    assert_eq!(read!(&again[1].1, Call).0.budget_ms, None);
    let old = world.hub(&result(1), None);
    assert_eq!(old, [], "ids of the old connection mean nothing on the new one");
    assert!(matches!(world.hub(&result(3), None).as_slice(), [Effect::Tell(1, CallEvent::Ended(Ok(_)))]));
}

#[test]
fn a_budget_that_ends_while_disconnected_fails_the_call_here() {
    let mut world = World::ready();
    world.open(1, CallSpec { budget: Some(ms(10)), ..spec() });
    world.open(2, CallSpec { budget: Some(ms(20)), ..spec() });
    world.sent();
    world.hub(&accept(1), None);
    world.lose();
    world.open(3, CallSpec { budget: Some(ms(30)), ..spec() });
    let effects = world.pass(ms(30));
    let mut told = Vec::new();
    for effect in &effects {
        if let Effect::Tell(key, CallEvent::Ended(Err(error))) = effect {
            told.push((*key, error.accepted));
        }
    }
    assert_eq!(told, [(1, Accepted::Yes), (2, Accepted::Unknown), (3, Accepted::No)]);
    assert!(world.session.asked.is_empty());
}

#[test]
fn the_hub_owns_the_budget_while_connected() {
    let mut world = World::ready();
    world.open(1, CallSpec { budget: Some(ms(1000)), ..spec() });
    world.sent();
    assert_eq!(world.pass(ms(5999)), []);
    let effects = world.pass(ms(1));
    assert_eq!(failed(&effects).code, agent_reach_protocol::ErrorCode::BudgetExhausted);
}

#[test]
fn a_dropped_call_is_cancelled_and_its_end_ignored() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    assert_eq!(world.give(Work::Cancel(1)), []);
    let cancel = world.one();
    assert_eq!(read!(&cancel, Cancel).0, Cancel { id: 1, reason: None, wait: false });
    assert_eq!(world.hub(&result(1), None), []);
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_call_dropped_before_it_was_written_never_leaves() {
    let mut world = World::ready();
    world.open(1, spec());
    world.give(Work::Cancel(1));
    assert_eq!(world.sent(), []);
}

#[test]
fn a_message_over_the_limit_fails_alone_and_never_leaves() {
    let mut world = World::ready();
    world.open(1, spec());
    let overhead = world.one().len() - 2 + 2;
    let body = |n: usize| Payload::new(vec![0; n]);
    let fits = 10_000 - overhead;
    assert_eq!(world.open(2, CallSpec { payload: body(fits), ..spec() }), []);
    assert_eq!(world.one().len(), 10_000 - 1);
    let effects = world.open(3, CallSpec { payload: body(fits + 2), ..spec() });
    let error = failed(&effects);
    assert_eq!(error.code, agent_reach_protocol::ErrorCode::PayloadTooLarge);
    assert_eq!(error.accepted, Accepted::No);
    assert_eq!(world.sent(), []);
}

#[test]
fn calls_over_the_hubs_limit_wait_their_turn() {
    let mut world = World::new();
    world.max_in_flight = 2;
    world.give(Input::Start);
    world.greet();
    for key in 1..=4 {
        world.open(key, spec());
    }
    assert_eq!(world.sent().len(), 2);
    world.hub(&result(1), None);
    let third = world.one();
    assert_eq!(read!(&third, Call).0.id, 3);
}

#[test]
fn waiting_calls_are_bounded() {
    let mut world = World::new();
    world.give(Input::Start);
    for key in 0..1024 {
        assert_eq!(world.open(key, spec()), []);
    }
    let effects = world.open(1024, spec());
    assert_eq!(failed(&effects).code, agent_reach_protocol::ErrorCode::Overloaded);
}

#[test]
fn a_gap_in_a_stream_is_an_interruption_and_a_repetition_gives_its_credit_back() {
    let mut world = World::ready();
    world.open(1, CallSpec { window: Some(16), ..spec() });
    world.sent();
    assert_eq!(world.hub(&chunk(1, 0), None).len(), 1);
    assert_eq!(world.hub(&chunk(1, 0), None), []);
    let credit = world.one();
    assert_eq!(read!(&credit, Credit).0.n, 1);
    assert_eq!(world.hub(&chunk(1, 1), None).len(), 1);
    let effects = world.hub(&chunk(1, 3), None);
    assert_eq!(failed(&effects).code, Code::Interrupted);
    assert!(matches!(world.sent().as_slice(), [(15, _)]));
}

#[test]
fn a_resumed_stream_asks_for_the_room_that_is_left_in_its_window() {
    let mut world = World::ready();
    world.open(1, CallSpec { window: Some(16), ..spec() });
    world.sent();
    for seq in 0..10 {
        world.hub(&chunk(1, seq), None);
    }
    world.give(Work::Consumed(1, 8, None));
    let credit = world.one();
    assert_eq!(read!(&credit, Credit).0.n, 8);
    world.lose();
    world.come_back();
    let call = world.one();
    assert_eq!(read!(&call, Call).0.credit, Some(14));
}

#[test]
fn a_fan_out_tells_each_part_and_then_the_count() {
    let mut world = World::ready();
    world.open(1, CallSpec { select: Some(agent_reach_protocol::Select::All), ..spec() });
    world.sent();
    let part = CallResult { more: true, ..result(1) };
    assert!(matches!(world.hub(&part, None).as_slice(), [Effect::Tell(1, CallEvent::Part { .. })]));
    let summary = agent_reach_protocol::Summary { targets: 1, completed: 1, failed: 0 };
    let end = CallResult { summary: Some(summary), target: None, ..result(1) };
    let effects = world.hub(&end, None);
    assert!(
        matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Ended(Ok((_, Some(s)))))] if *s == summary)
    );
}

#[test]
fn a_call_that_the_hub_could_not_use_fails_alone() {
    let mut world = World::ready();
    world.open(1, spec());
    world.open(2, spec());
    world.sent();
    let error = ErrorReply {
        ref_kind: 10,
        id: Some(1),
        code: "invalid_request",
        message: "id is open",
        details: None,
    };
    let effects = world.hub(&error, None);
    assert_eq!(failed(&effects).code, agent_reach_protocol::ErrorCode::InvalidRequest);
    assert_eq!(world.hub(&result(2), None).len(), 1);
}
