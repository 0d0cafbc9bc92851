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

/// Which handles an end goes to, and nothing else.
fn delivered(effects: &[Effect]) -> &[CallKey] {
    let [Effect::Deliver(keys, _)] = effects else { panic!("{effects:?}") };
    keys
}

/// The end of a task as handles have it.
fn held(task_id: &str) -> Box<TaskEnd> {
    let result = Err(crate::CallError::known(ErrorCode::Cancelled, "m"));
    Box::new(TaskEnd { task_id: task_id.to_owned(), result })
}

/// The program has it.
fn take(world: &mut World, task_id: &str) {
    assert_eq!(world.give(Work::Received(task_id.to_owned())), []);
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
    assert_eq!(delivered(&world.hub(&end("t"), Some(b"out"))), [1]);
    assert_eq!(receipts(&mut world), [""; 0], "the handle has it, the program does not");
    assert_eq!(world.hub(&end("t"), None), [], "sent again while it is there");
    assert_eq!(receipts(&mut world), [""; 0]);
    take(&mut world, "t");
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
    assert_eq!(delivered(&world.hub(&end("t"), None)), [1, 2]);
    take(&mut world, "t");
    take(&mut world, "t");
    assert_eq!(receipts(&mut world), ["t"], "once for both");
}

#[test]
fn a_repetition_of_an_ended_task_has_its_end_by_its_id_even_when_that_was_given_out_before() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    world.hub(&end("t"), None);
    take(&mut world, "t");
    world.sent();
    world.open(2, task());
    let message = world.one();
    let id = read!(&message, Call).0.id;
    let duplicate = CallResult { id: Some(id), duplicate: true, ..end("t") };
    assert_eq!(delivered(&world.hub(&duplicate, None)), [2]);
    assert_eq!(receipts(&mut world), ["t"]);
    assert_eq!(world.give(Work::Returned(held("t"))), [], "the program had it from the first one");
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
    assert_eq!(delivered(&world.hub(&end("a"), None)), [1]);
    world.hub(&end("b"), None);
    assert_eq!(world.give(Work::Claim(2, "b".to_owned())), [Effect::Hand(2, "b".to_owned())]);
    world.give(Work::Moved(2, "b".to_owned()));
    assert_eq!(receipts(&mut world), [""; 0]);
    take(&mut world, "b");
    take(&mut world, "a");
    assert_eq!(receipts(&mut world), ["b", "a"]);
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
fn a_result_that_meets_a_handle_which_is_being_dropped_goes_to_the_inbox_and_is_confirmed_when_it_is_taken() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    assert_eq!(delivered(&world.hub(&end("t"), None)), [1]);
    assert_eq!(arrived(&world.give(Work::Returned(held("t")))), ["t"]);
    assert_eq!(world.give(Work::Forget(1)), [], "the word of the drop comes too late");
    assert_eq!(world.hub(&end("t"), None), [], "sent again while it waits");
    assert_eq!(receipts(&mut world), [""; 0]);
    take(&mut world, "t");
    assert_eq!(receipts(&mut world), ["t"]);
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_result_that_one_of_two_handles_gave_back_is_the_other_ones_and_not_the_inboxs() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    stored(&mut world, 2, "t");
    world.hub(&end("t"), None);
    assert_eq!(world.give(Work::Returned(held("t"))), []);
    assert_eq!(receipts(&mut world), [""; 0]);
    assert_eq!(arrived(&world.give(Work::Returned(held("t")))), ["t"], "both are gone");
}

#[test]
fn a_result_that_comes_back_from_a_handle_goes_to_one_that_was_made_meanwhile() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    world.hub(&end("t"), None);
    world.give(Work::Claim(2, "t".to_owned()));
    assert_eq!(delivered(&world.give(Work::Returned(held("t")))), [2]);
    world.hub(&end("u"), None);
    assert_eq!(world.give(Work::Claim(3, "u".to_owned())), [Effect::Hand(3, "u".to_owned())]);
    world.give(Work::Moved(3, "u".to_owned()));
    assert_eq!(arrived(&world.give(Work::Returned(held("u")))), ["u"], "from the inbox and back");
}

#[test]
fn a_result_that_comes_back_to_a_full_inbox_is_left_to_the_hub() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    world.hub(&end("t"), None);
    for n in 0..256 {
        world.hub(&end(format!("t{n}").leak()), None);
    }
    assert_eq!(world.give(Work::Returned(held("t"))), []);
    take(&mut world, "t0");
    assert_eq!(arrived(&world.hub(&end("t"), None)), ["t"], "sent again, and there is room");
}

#[test]
fn a_task_that_was_stored_while_its_submit_was_let_go_of_ends_in_the_inbox() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    assert_eq!(world.give(Work::Cancel(1)), []);
    assert_eq!(arrived(&world.hub(&end("t"), None)), ["t"]);
}

#[test]
fn a_failure_is_an_end_too_and_says_whether_a_provider_had_it() {
    let mut world = World::ready();
    stored(&mut world, 1, "t");
    let error = WireError { code: "budget_exhausted", message: "m", retryable: false, details: None };
    let failed = CallResult { status: ResultStatus::Failed, error: Some(error), target: None, ..end("t") };
    let effects = world.hub(&failed, None);
    let [Effect::Deliver(keys, told)] = effects.as_slice() else { panic!("{effects:?}") };
    let error = told.result.as_ref().unwrap_err();
    assert_eq!((keys.as_slice(), &error.code), (&[1][..], &Code::Known(ErrorCode::BudgetExhausted)));
    assert_eq!(error.accepted, crate::Accepted::Unknown, "the hub's ACCEPT is no provider's");
    take(&mut world, "t");
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
