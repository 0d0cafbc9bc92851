//! Tasks that this agent submitted, from CALL to RECEIPT.

use agent_reach_protocol::{CallError as WireError, CallMode, ErrorCode};

use super::*;

fn task() -> CallSpec {
    CallSpec { mode: Some(CallMode::Task), ..spec() }
}

/// The end of a task on whatever connection, without an id.
fn end(task_id: &'static str) -> CallResult<'static> {
    CallResult { id: None, task_id: Some(task_id), request_id: Some("r"), ..result(0) }
}

/// Has a task stored under this name.
fn stored(world: &mut World, key: CallKey, task_id: &'static str) {
    world.open(key, task());
    let message = world.one();
    let id = read!(&message, Call).0.id;
    let accept = Accept { task_id: Some(task_id), target: None, ..accept(id) };
    assert!(matches!(world.hub(&accept, None).as_slice(), [Effect::Tell(_, CallEvent::Accepted(_))]));
}

/// Who was told an end, and nothing else.
fn told(effects: &[Effect]) -> Vec<CallKey> {
    let told = |effect: &Effect| {
        if let Effect::Tell(key, CallEvent::Ended(_)) = effect { Some(*key) } else { None }
    };
    let keys: Vec<CallKey> = effects.iter().filter_map(told).collect();
    assert_eq!(keys.len(), effects.len(), "{effects:?}");
    keys
}

/// What went to the inbox, and nothing else.
fn arrived(effects: &[Effect]) -> Vec<&str> {
    let names: Vec<&str> = effects
        .iter()
        .filter_map(
            |effect| if let Effect::Arrived(end) = effect { Some(end.task_id.as_str()) } else { None },
        )
        .collect();
    assert_eq!(names.len(), effects.len(), "{effects:?}");
    names
}

/// Tasks whose receipts were sent.
fn receipts(world: &mut World) -> Vec<String> {
    let sent = world.sent();
    sent.iter().filter(|(kind, _)| *kind == 16).map(|(_, m)| read!(m, Receipt).0.task_id.to_owned()).collect()
}

#[test]
fn a_stored_task_is_not_sent_again_and_its_end_comes_without_an_id_and_is_confirmed() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    assert_eq!(world.lose(), []);
    world.come_back();
    assert_eq!(world.sent(), []);
    assert_eq!(told(&world.hub(&end("t"), Some(b"out"))), [1]);
    assert_eq!(receipts(&mut world), ["t"]);
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_task_whose_accept_was_lost_is_asked_for_again_under_its_request_id_with_what_is_left_of_its_budget() {
    let mut world = World::ready();
    world.open(1, CallSpec { budget: Some(seconds(100)), ..task() });
    let message = world.one();
    let first = read!(&message, Call).0.request_id.map(str::to_owned);
    world.lose();
    let before = world.now;
    world.come_back();
    let waited = u64::try_from(world.now.since(before).as_millis()).unwrap();
    let message = world.one();
    let again = read!(&message, Call).0;
    assert_eq!(again.request_id.map(str::to_owned), first);
    // Each is cut to whole milliseconds.
    assert!(again.budget_ms.is_some_and(|left| (left + waited).abs_diff(100_000) <= 1), "{again:?}");
    let accept = Accept { task_id: Some("t"), ..accept(again.id) };
    assert_eq!(world.hub(&accept, None).len(), 1);
}

#[test]
fn stored_tasks_leave_room_for_calls_and_do_not_hold_up_a_hub_that_leaves() {
    let mut world = World::new();
    world.max_in_flight = 2;
    world.give(Input::Start);
    world.greet();
    for (key, name) in [(1, "a"), (2, "b"), (3, "c")] {
        stored(&mut world, key, name);
    }
    world.open(4, spec());
    world.open(5, spec());
    let ids: Vec<u64> = world.sent().iter().map(|(_, m)| read!(m, Call).0.id).collect();
    assert_eq!(ids.len(), 2, "three stored tasks take no place");
    for id in ids {
        world.hub(&result(id), None);
    }
    assert!(world.goodbye("draining", Some(0)).contains(&Effect::Close(1000)));
}

#[test]
fn two_handles_of_one_task_both_learn_its_end() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    stored(&mut world, 2, "t");
    assert_eq!(told(&world.hub(&end("t"), None)), [1, 2]);
    assert_eq!(receipts(&mut world), ["t"]);
}

#[test]
fn a_repetition_of_an_ended_task_has_its_end_by_its_id_even_when_that_was_given_out_before() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    world.hub(&end("t"), None);
    world.sent();
    world.open(2, task());
    let message = world.one();
    let id = read!(&message, Call).0.id;
    let duplicate = CallResult { id: Some(id), duplicate: true, ..end("t") };
    assert_eq!(told(&world.hub(&duplicate, None)), [2]);
    assert_eq!(receipts(&mut world), ["t"]);
}

#[test]
fn a_result_that_nobody_waits_for_is_given_out_once_and_confirmed_when_it_is_taken_and_whenever_it_comes_again()
 {
    let mut world = World::ready();
    assert_eq!(arrived(&world.hub(&end("t"), None)), ["t"]);
    assert_eq!(receipts(&mut world), [""; 0], "nobody has it yet");
    assert_eq!(world.hub(&end("t"), None), [], "sent again while it waits");
    assert_eq!(receipts(&mut world), [""; 0]);
    assert_eq!(world.give(Work::Received("t".to_owned())), []);
    assert_eq!(receipts(&mut world), ["t"]);
    world.lose();
    world.come_back();
    world.sent();
    assert_eq!(world.hub(&end("t"), None), [], "the receipt was lost");
    assert_eq!(receipts(&mut world), ["t"]);
}

#[test]
fn a_receipt_that_has_no_connection_goes_out_when_the_result_comes_again() {
    let mut world = World::ready();
    world.hub(&end("t"), None);
    world.lose();
    assert_eq!(world.give(Work::Received("t".to_owned())), []);
    world.come_back();
    assert_eq!(receipts(&mut world), [""; 0]);
    assert_eq!(world.hub(&end("t"), None), []);
    assert_eq!(receipts(&mut world), ["t"]);
}

#[test]
fn the_inbox_is_bounded_and_what_has_no_room_is_left_to_the_hub() {
    let mut world = World::ready();
    for n in 0..300 {
        let name: &'static str = format!("t{n}").leak();
        let expected: &[&str] = if n < 256 { &[name] } else { &[] };
        assert_eq!(arrived(&world.hub(&end(name), None)), expected);
    }
    world.give(Work::Received("t0".to_owned()));
    assert_eq!(receipts(&mut world), ["t0"]);
    assert_eq!(arrived(&world.hub(&end("t299"), None)), ["t299"]);
    assert_eq!(world.hub(&end("t298"), None), []);
}

#[test]
fn a_handle_made_from_an_id_gets_what_comes_and_what_waits_in_the_inbox() {
    let mut world = World::ready();
    assert_eq!(world.give(Work::Claim(1, "a".to_owned())), []);
    assert_eq!(told(&world.hub(&end("a"), None)), [1]);
    world.hub(&end("b"), None);
    assert_eq!(world.give(Work::Claim(2, "b".to_owned())), [Effect::Hand(2, "b".to_owned())]);
    world.give(Work::Forget(2));
    world.give(Work::Received("b".to_owned()));
    assert_eq!(receipts(&mut world), ["a", "b"]);
    assert!(world.session.asked.is_empty());
}

#[test]
fn the_result_of_a_dropped_handle_goes_to_the_inbox() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    assert_eq!(world.give(Work::Forget(1)), []);
    assert_eq!(world.sent(), [], "the task goes on");
    assert_eq!(arrived(&world.hub(&end("t"), None)), ["t"]);
}

#[test]
fn a_failure_is_an_end_too_and_says_whether_a_provider_had_it() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    let error = WireError { code: "budget_exhausted", message: "m", retryable: false, details: None };
    let failed = CallResult { status: ResultStatus::Failed, error: Some(error), target: None, ..end("t") };
    let effects = world.hub(&failed, None);
    let [Effect::Tell(1, CallEvent::Ended(Err(error)))] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(error.code, ErrorCode::BudgetExhausted);
    assert_eq!(error.accepted, crate::Accepted::Unknown, "the hub's ACCEPT is no provider's");
    assert_eq!(receipts(&mut world), ["t"]);
}

#[test]
fn a_closed_agent_ends_its_handles_and_confirms_nothing() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    let effects = world.goodbye("replaced", None);
    assert!(effects.iter().any(
        |effect| matches!(effect, Effect::Tell(1, CallEvent::Ended(Err(error))) if error.code == Code::Closed)
    ));
    assert_eq!(world.sent(), []);
}

#[test]
fn a_watch_that_is_asked_again_begins_anew_and_shows_all_of_it() {
    let mut world = World::ready();
    let watch =
        CallSpec { capability: "hub.tasks.watch".to_owned(), window: Some(16), ..CallSpec::default() };
    world.open(1, watch);
    let message = world.one();
    let id = read!(&message, Call).0.id;
    for seq in 0..3 {
        assert_eq!(world.hub(&chunk(id, seq), None).len(), 1);
    }
    world.lose();
    world.come_back();
    let message = world.one();
    let again = read!(&message, Call).0;
    assert_eq!(again.credit, Some(16));
    let effects = world.hub(&chunk(again.id, 0), None);
    assert!(matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Chunk { seq: 0, .. })]), "{effects:?}");
}
