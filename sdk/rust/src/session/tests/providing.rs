use super::*;
use agent_reach_protocol::ErrorCode;

fn done(text: &'static str) -> Outcome {
    Outcome::Completed(Payload::new(text.as_bytes()))
}

fn started(effects: &[Effect]) -> RunKey {
    match effects {
        [Effect::Run(call)] => call.run,
        other => panic!("{other:?}"),
    }
}

fn seqs(sent: &[(u64, Bytes)]) -> Vec<u64> {
    sent.iter().filter(|(kind, _)| *kind == 12).map(|(_, m)| read!(m, Chunk).0.seq).collect()
}

#[test]
fn a_quick_result_stands_for_accept() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), Some(b"in")));
    world.pass(ms(4));
    world.give(Work::Finished(run, done("out")));
    let message = world.one();
    let (header, body) = read!(&message, Result);
    assert_eq!((header.id, header.status, header.execution_ms), (Some(1), ResultStatus::Completed, Some(4)));
    assert_eq!(body.as_deref(), Some(&b"out"[..]));
    assert_eq!(world.pass(seconds(1)), []);
    assert_eq!(world.sent(), []);
}

#[test]
fn accept_goes_out_after_its_hold() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.pass(ms(5));
    assert!(matches!(world.sent().as_slice(), [(11, _)]));
    world.give(Work::Finished(run, done("out")));
    assert!(matches!(world.sent().as_slice(), [(14, _)]));
}

#[test]
fn a_repeated_call_joins_the_running_handler_and_its_answer_goes_to_the_newest_id() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.lose();
    world.come_back();
    assert_eq!(world.hub(&dispatch(9, "r", None), None), []);
    assert!(matches!(world.sent().as_slice(), [(11, _)]));
    world.give(Work::Finished(run, done("out")));
    let message = world.one();
    assert_eq!(read!(&message, Result).0.id, Some(9));
}

#[test]
fn a_repeated_call_is_answered_from_memory() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.lose();
    assert_eq!(world.give(Work::Finished(run, done("out"))), []);
    world.come_back();
    assert_eq!(world.sent(), []);
    for id in [9, 10] {
        assert_eq!(world.hub(&dispatch(id, "r", None), None), []);
        let message = world.one();
        let (header, body) = read!(&message, Result);
        assert_eq!((header.id, body.as_deref()), (Some(id), Some(&b"out"[..])));
    }
}

#[test]
fn the_same_request_id_of_another_caller_is_another_call() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.give(Work::Finished(run, done("out")));
    let other = Dispatch { caller: "others", ..dispatch(2, "r", None) };
    started(&world.hub(&other, None));
}

#[test]
fn a_retryable_failure_frees_the_intent_for_its_retry_and_a_final_one_does_not() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    let failure = Failure { retryable: true, ..Failure::new(ErrorCode::HandlerError, "again") };
    world.give(Work::Finished(run, Outcome::Failed(failure)));
    let run = started(&world.hub(&dispatch(2, "r", None), None));
    world.give(Work::Finished(run, Outcome::Failed(Failure::new(ErrorCode::HandlerError, "never"))));
    world.sent();
    assert_eq!(world.hub(&dispatch(3, "r", None), None), []);
    let message = world.one();
    assert_eq!(read!(&message, Result).0.error.unwrap().message, "never");
}

#[test]
fn chunks_wait_for_credit_and_the_end_waits_for_the_chunks() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", Some(2)), None));
    for _ in 0..3 {
        world.give(Work::Emit(run, Payload::default()));
    }
    world.give(Work::Finished(run, done("end")));
    assert_eq!(seqs(&world.sent()), [0, 1]);
    let effects = world.hub(&agent_reach_protocol::Credit { id: 1, n: 1, target: None }, None);
    assert_eq!(effects, [Effect::Grant(run, 1)]);
    let sent = world.sent();
    assert_eq!(sent.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [12, 14]);
}

#[test]
fn a_resumed_stream_is_sent_again_from_its_first_chunk() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", Some(16)), None));
    for _ in 0..3 {
        world.give(Work::Emit(run, Payload::default()));
    }
    assert_eq!(seqs(&world.sent()), [0, 1, 2]);
    world.lose();
    world.give(Work::Emit(run, Payload::default()));
    world.come_back();
    assert_eq!(world.hub(&dispatch(9, "r", Some(2)), None), []);
    assert_eq!(seqs(&world.sent()), [0, 1]);
    world.hub(&agent_reach_protocol::Credit { id: 9, n: 10, target: None }, None);
    assert_eq!(seqs(&world.sent()), [2, 3]);
    world.give(Work::Finished(run, done("end")));
    world.sent();
    world.hub(&dispatch(10, "r", Some(16)), None);
    let sent = world.sent();
    assert_eq!((seqs(&sent), sent.last().unwrap().0), (vec![0, 1, 2, 3], 14));
}

#[test]
fn a_stream_too_long_to_keep_cannot_be_resumed_and_says_so() {
    let mut world = World::new();
    world.max_message = 10_000_000;
    world.give(Input::Start);
    world.greet();
    let run = started(&world.hub(&dispatch(1, "r", Some(16)), None));
    for _ in 0..3 {
        world.give(Work::Emit(run, Payload::new(vec![0; 600_000])));
    }
    world.sent();
    world.lose();
    world.come_back();
    assert_eq!(world.hub(&dispatch(9, "r", Some(16)), None), [Effect::AbortRun(run)]);
    let message = world.one();
    let error = read!(&message, Result).0.error.unwrap();
    assert_eq!(error.code, "handler_error");
    assert!(error.message.contains("cannot be resumed"));
    assert_eq!(world.session.running.in_flight(), 0);
}

#[test]
fn cancel_tells_the_handler_and_drops_it_after_the_grace() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    assert_eq!(world.hub(&Cancel { id: 1, reason: None, wait: false }, None), [Effect::CancelRun(run)]);
    world.pass(ms(4999));
    world.sent();
    assert_eq!(world.pass(ms(1)), [Effect::AbortRun(run)]);
    let message = world.one();
    assert_eq!(read!(&message, Result).0.error.unwrap().code, "cancelled");
    assert_eq!(world.session.running.in_flight(), 0);
}

#[test]
fn an_intent_that_comes_again_while_it_is_cancelled_runs_after_the_old_run_never_beside_it() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.hub(&Cancel { id: 1, reason: None, wait: false }, None);
    assert_eq!(world.hub(&dispatch(2, "r", None), Some(b"in")), []);
    let message = world.one();
    assert_eq!(read!(&message, Result).0.id, Some(1));
    let failure = Failure::new(ErrorCode::HandlerError, "stopped");
    let next = started(&world.give(Work::Finished(run, Outcome::Failed(failure))));
    world.give(Work::Finished(next, done("out")));
    let message = world.one();
    assert_eq!(read!(&message, Result).0.id, Some(2));
}

#[test]
fn an_unknown_capability_is_unsupported_and_one_over_the_bound_is_overloaded() {
    let mut world = World::ready();
    world.hub(&Dispatch { capability: "nope", ..dispatch(1, "r", None) }, None);
    let message = world.one();
    assert_eq!(read!(&message, Result).0.error.unwrap().code, "unsupported");
    started(&world.hub(&dispatch(2, "a", None), None));
    started(&world.hub(&dispatch(3, "b", None), None));
    assert_eq!(world.hub(&dispatch(4, "c", None), None), []);
    let message = world.one();
    let error = read!(&message, Result).0.error.unwrap();
    assert_eq!((error.code, error.retryable), ("overloaded", true));
}

#[test]
fn a_result_over_the_limit_becomes_a_failure_of_that_call() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.give(Work::Finished(run, Outcome::Completed(Payload::new(vec![0; 10_000]))));
    let message = world.one();
    assert_eq!(read!(&message, Result).0.error.unwrap().code, "handler_error");
}

#[test]
fn a_call_that_cannot_be_read_is_refused_alone() {
    let mut world = World::ready();
    // CALL with only an id.
    world.give(Input::Message(Bytes::from_static(b"\x93\x0a\x81\xa2id\x07\xc0")));
    let message = world.one();
    let header = read!(&message, Result).0;
    assert_eq!((header.id, header.error.unwrap().code), (Some(7), "invalid_request"));
}

#[test]
fn a_handler_whose_hub_forgot_it_is_cancelled_in_the_end() {
    let mut world = World::ready();
    let run = started(&world.hub(&dispatch(1, "r", None), None));
    world.lose();
    let effects = world.pass(seconds(61));
    assert!(effects.contains(&Effect::CancelRun(run)), "{effects:?}");
}
