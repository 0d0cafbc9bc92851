//! Tasks that this agent serves: how far they are, and what is on disk before what is said.

use agent_reach_protocol::ErrorCode;

use super::*;

fn given(id: u64, request_id: &'static str) -> Dispatch<'static> {
    Dispatch {
        task_id: Some("t"),
        mode: agent_reach_protocol::CallMode::Task,
        ..dispatch(id, request_id, None)
    }
}

fn done(text: &'static str) -> Outcome {
    Outcome::Completed(Payload::new(text.as_bytes()))
}

/// An agent with a dedupe file that has this in it.
fn with_file(past: Vec<Past>) -> World {
    let mut world = World::new();
    let on_disk = Some(Memory::on_disk(past));
    let registration = world.session.registration.clone();
    world.session = Session::new(registration, seconds(5), Backoff::default(), 7, on_disk);
    world.give(Input::Start);
    world.greet();
    world
}

/// The same that ends what it offers once only.
fn idempotent(mut world: World) -> World {
    world.give(Input::Add(Capability::new("x").idempotent(true)));
    world.sent();
    world
}

fn started(effects: &[Effect]) -> RunKey {
    match effects {
        [Effect::Run(call)] => call.run,
        other => panic!("{other:?}"),
    }
}

/// The one note, and who waits for it.
fn noted(effects: &[Effect]) -> (Option<RunKey>, &str, &Says, bool) {
    match effects {
        [Effect::Note(note)] => (note.run, &note.intent, &note.says, note.task),
        other => panic!("{other:?}"),
    }
}

/// The queue depths of the ACCEPTs that were sent.
fn depths(world: &mut World) -> Vec<(u64, Option<u64>)> {
    let sent = world.sent();
    let accepts = sent.iter().filter(|(kind, _)| *kind == 11);
    accepts.map(|(_, m)| read!(m, Accept).0).map(|accept| (accept.id, accept.queue_depth)).collect()
}

fn past(request_id: &str, body: &[u8], outcome: Outcome) -> Past {
    Past {
        intent: format!("them\0x\0{request_id}").into(),
        fingerprint: xxhash_rust::xxh3::xxh3_64(body),
        outcome,
        execution: ms(3),
        age: Duration::ZERO,
    }
}

#[test]
fn accept_says_of_a_task_whether_its_handler_has_begun_and_says_so_again_when_it_does() {
    let mut world = World::ready();
    world.give(Input::Add(Capability::new("x").max_concurrency(1)));
    world.sent();
    let first = started(&world.hub(&given(1, "r1"), None));
    assert_eq!(world.hub(&given(2, "r2"), None), []);
    world.pass(ms(5));
    assert_eq!(depths(&mut world), [(1, Some(0)), (2, None)]);
    let effects = world.give(Work::Finished(first, done("a")));
    let second = started(&effects);
    assert_eq!(depths(&mut world), [(2, Some(0))]);
    world.give(Work::Finished(second, done("b")));
    assert_eq!(depths(&mut world), []);
}

#[test]
fn of_a_call_that_is_no_task_nothing_more_is_said_when_its_handler_begins() {
    let mut world = World::ready();
    world.give(Input::Add(Capability::new("x").max_concurrency(1)));
    world.sent();
    let first = started(&world.hub(&dispatch(1, "r1", None), None));
    world.hub(&dispatch(2, "r2", None), None);
    world.pass(ms(5));
    assert_eq!(depths(&mut world), [(1, None), (2, Some(0))]);
    world.give(Work::Finished(first, done("a")));
    assert_eq!(depths(&mut world), []);
}

#[test]
fn a_task_that_said_more_than_is_kept_goes_on_after_a_reconnect_and_counts_anew() {
    let mut world = World::new();
    world.max_message = 10_000_000;
    world.give(Input::Start);
    world.greet();
    let stream = |id, credit| Dispatch { stream: true, credit: Some(credit), ..given(id, "r") };
    let run = started(&world.hub(&stream(1, 4), None));
    for _ in 0..3 {
        world.give(Work::Emit(run, Payload::new(vec![0; 600_000])));
    }
    world.sent();
    world.lose();
    world.come_back();
    world.sent();
    // Of its four permits one is left, so three more make the four of the new window.
    assert_eq!(world.hub(&stream(9, 4), None), [Effect::Grant(run, 3)]);
    world.give(Work::Emit(run, Payload::default()));
    world.give(Work::Finished(run, done("out")));
    let sent = world.sent();
    let seqs: Vec<u64> =
        sent.iter().filter(|(kind, _)| *kind == 12).map(|(_, m)| read!(m, Chunk).0.seq).collect();
    assert_eq!((seqs, sent.last().unwrap().0), (vec![0], 14));
}

#[test]
fn without_a_file_nothing_is_noted() {
    let mut world = World::ready();
    let run = started(&world.hub(&given(1, "r"), None));
    assert_eq!(world.give(Work::Finished(run, done("out"))), []);
    assert!(matches!(world.sent().as_slice(), [(14, _)]));
}

#[test]
fn a_task_is_noted_before_it_runs_and_its_end_before_it_is_told() {
    let mut world = with_file(vec![]);
    let effects = world.hub(&given(1, "r"), Some(b"in"));
    let (Some(run), "them\0x\0r", Says::Begun, true) = noted(&effects) else { panic!("{effects:?}") };
    world.pass(ms(5));
    assert_eq!(depths(&mut world), [(1, None)], "it has not begun");
    assert_eq!(started(&world.give(Work::Noted(run))), run);
    assert_eq!(depths(&mut world), [(1, Some(0))]);
    let effects = world.give(Work::Finished(run, done("out")));
    let (waits, _, says, true) = noted(&effects) else { panic!("{effects:?}") };
    assert_eq!((waits, says), (Some(run), &Says::Ended(done("out"), Duration::ZERO)));
    assert_eq!(world.sent(), [], "it is not written yet");
    assert_eq!(world.give(Work::Noted(run)), []);
    let message = world.one();
    assert_eq!(read!(&message, Result).1.as_deref(), Some(&b"out"[..]));
}

#[test]
fn an_idempotent_capability_begins_at_once() {
    let mut world = idempotent(with_file(vec![]));
    let run = started(&world.hub(&given(1, "r"), None));
    let effects = world.give(Work::Finished(run, done("out")));
    assert!(matches!(noted(&effects), (Some(_), _, Says::Ended(..), true)));
}

#[test]
fn what_an_earlier_life_did_is_answered_and_not_done_again_unless_it_is_another_body() {
    let mut world = with_file(vec![past("r", b"in", done("out"))]);
    assert_eq!(world.hub(&Dispatch { attempt: 2, ..given(1, "r") }, Some(b"in")), []);
    let message = world.one();
    let (header, body) = read!(&message, Result);
    assert_eq!((header.id, header.execution_ms, body.as_deref()), (Some(1), Some(3), Some(&b"out"[..])));
    let effects = world.hub(&given(2, "r"), Some(b"other"));
    assert!(matches!(noted(&effects), (Some(_), _, Says::Begun, _)));
}

#[test]
fn what_an_earlier_life_began_and_did_not_end_is_of_unknown_outcome() {
    let mut world = with_file(vec![past("r", b"", Outcome::Failed(interrupted()))]);
    assert_eq!(world.hub(&given(1, "r"), None), []);
    let message = world.one();
    let error = read!(&message, Result).0.error.unwrap();
    assert_eq!((error.code, error.retryable), ("handler_error", false));
    assert!(error.message.contains("unknown"), "{error:?}");
}

#[test]
fn what_was_done_while_the_hub_was_away_is_told_a_day_later_and_no_longer() {
    for (hours, told) in [(23, true), (25, false)] {
        let mut world = idempotent(with_file(vec![]));
        let run = started(&world.hub(&given(1, "r"), None));
        world.lose();
        world.give(Work::Finished(run, done("out")));
        world.give(Work::Noted(run));
        let begun = world.now;
        while world.now < begun.after(seconds(hours * 3600)) {
            world.pass(seconds(600));
        }
        // It has been dialling since.
        world.give(Input::Opened);
        world.sent();
        world.welcome();
        let effects = world.hub(&given(9, "r"), None);
        assert_eq!(effects.is_empty(), told, "{hours} h: {effects:?}");
    }
}

#[test]
fn a_failure_that_may_pass_and_a_cancelled_run_free_their_intent_on_disk_too() {
    let failure = Failure { retryable: true, ..Failure::new(ErrorCode::HandlerError, "again") };
    for cancelled in [false, true] {
        let mut world = with_file(vec![]);
        let effects = world.hub(&given(1, "r"), None);
        let run = noted(&effects).0.unwrap();
        world.give(Work::Noted(run));
        if cancelled {
            world.hub(&Cancel { id: 1, reason: None, wait: false }, None);
        }
        let effects = world.give(Work::Finished(run, Outcome::Failed(failure.clone())));
        assert_eq!(noted(&effects), (None, "them\0x\0r", &Says::Free, false));
        assert!(matches!(world.sent().as_slice(), [(14, _)]));
        assert!(matches!(noted(&world.hub(&given(2, "r"), None)), (Some(_), _, Says::Begun, _)));
    }
}

#[test]
fn a_call_that_is_no_task_is_told_at_once_and_noted_as_done_without_its_result() {
    let mut world = with_file(vec![]);
    let effects = world.hub(&dispatch(1, "r", None), None);
    let run = noted(&effects).0.unwrap();
    world.give(Work::Noted(run));
    let effects = world.give(Work::Finished(run, done("out")));
    let (None, _, Says::Ended(Outcome::Failed(_), _), false) = noted(&effects) else { panic!("{effects:?}") };
    assert!(matches!(world.sent().as_slice(), [(14, _)]));
    // This life still knows it in full.
    world.hub(&dispatch(2, "r", None), None);
    let message = world.one();
    assert_eq!(read!(&message, Result).1.as_deref(), Some(&b"out"[..]));
}

#[test]
fn a_call_cancelled_before_its_note_is_written_never_runs() {
    let mut world = with_file(vec![]);
    let run = noted(&world.hub(&given(1, "r"), None)).0.unwrap();
    let effects = world.hub(&Cancel { id: 1, reason: None, wait: false }, None);
    assert!(matches!(noted(&effects), (None, _, Says::Free, _)));
    assert_eq!(world.give(Work::Noted(run)), []);
    assert!(matches!(world.sent().as_slice(), [(14, _)]));
    assert_eq!(world.session.running.in_flight(), 0);
}

#[test]
fn an_agent_that_closes_waits_for_what_is_being_written() {
    let mut world = idempotent(with_file(vec![]));
    let run = started(&world.hub(&given(1, "r"), None));
    world.give(Input::Close(seconds(10)));
    let effects = world.give(Work::Finished(run, done("out")));
    assert!(matches!(noted(&effects), (Some(_), ..)), "no goodbye yet");
    world.sent();
    assert_eq!(world.give(Work::Noted(run)), [Effect::Close(1000)]);
    let kinds: Vec<u64> = world.sent().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [14, 4]);
}

#[test]
fn a_connection_lost_while_an_end_is_written_loses_nothing() {
    let mut world = idempotent(with_file(vec![]));
    let run = started(&world.hub(&given(1, "r"), None));
    world.give(Work::Finished(run, done("out")));
    world.lose();
    world.come_back();
    world.sent();
    assert_eq!(world.hub(&given(9, "r"), None), [], "it joins the run whose end is being written");
    world.sent();
    world.give(Work::Noted(run));
    let message = world.one();
    let (header, body) = read!(&message, Result);
    assert_eq!((header.id, body.as_deref()), (Some(9), Some(&b"out"[..])));
}
