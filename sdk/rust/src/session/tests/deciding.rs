//! What a provider says when it accepts, and what a caller does about it: both ends of a negotiation.

use super::*;
use crate::errors::{Accepted, CallError};
use agent_reach_protocol::{CallError as WireError, ErrorCode, codec::Raw};

fn liking(id: u64, request_id: &'static str, preferred_ms: u64) -> Dispatch<'static> {
    Dispatch { preferred_timeout_ms: Some(preferred_ms), ..dispatch(id, request_id, None) }
}

fn done() -> Outcome {
    Outcome::Completed(Payload::default())
}

fn started(effects: &[Effect]) -> Vec<RunKey> {
    let run = |effect: &Effect| if let Effect::Run(call) = effect { Some(call.run) } else { None };
    effects.iter().filter_map(run).collect()
}

/// Whether ACCEPT says that it will be late, the time it names, and the place in the line.
fn said(message: &Bytes) -> (bool, Option<u64>, Option<u64>) {
    let accept = read!(message, Accept).0;
    (accept.would_timeout, accept.wait_ms, accept.queue_depth)
}

fn narrow() -> World {
    let mut world = World::ready();
    world.give(Input::Add(Capability::new("x").max_concurrency(1)));
    world.sent();
    world
}

fn ended(effects: &[Effect]) -> Result<(), &CallError> {
    match effects {
        [Effect::Tell(_, CallEvent::Ended(end))] => end.as_ref().map(drop),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handler_that_will_be_late_says_so_at_once_and_one_that_will_not_says_nothing() {
    let mut world = World::ready();
    let [late, punctual] = [liking(1, "a", 1000), liking(2, "b", 5000)].map(|call| {
        let effects = world.hub(&call, None);
        started(&effects)[0]
    });
    world.give(Work::WouldTake(punctual, seconds(5)));
    assert_eq!(world.sent(), []);
    world.give(Work::WouldTake(late, seconds(5)));
    assert_eq!(said(&world.one()), (true, Some(5000), None));
    world.pass(ms(5));
    assert_eq!(said(&world.one()), (false, None, None), "the other's own");
    world.give(Work::WouldTake(punctual, ms(5001)));
    assert_eq!(said(&world.one()), (true, Some(5001), None), "it has changed its mind");
}

#[test]
fn without_a_word_a_handler_is_expected_to_take_as_long_as_they_usually_do() {
    let mut world = World::ready();
    let run = started(&world.hub(&liking(1, "a", 1000), None))[0];
    world.pass(ms(5));
    assert_eq!(said(&world.one()), (false, None, None), "nothing is known yet");
    world.pass(ms(2995));
    world.give(Work::Finished(run, done()));
    world.sent();
    for (id, preferred_ms, expected) in [(2, 2999, (true, Some(3000), None)), (3, 3000, (false, None, None))]
    {
        world.hub(&liking(id, if id == 2 { "b" } else { "c" }, preferred_ms), None);
        world.pass(ms(5));
        assert_eq!(said(&world.one()), expected);
    }
}

#[test]
fn calls_over_the_bound_of_a_capability_wait_in_their_order_and_say_how_many_are_before_them() {
    let mut world = narrow();
    world.session.running = Running::new(3, seconds(5), None);
    let first = started(&world.hub(&liking(1, "a", 1), None))[0];
    assert_eq!(world.hub(&liking(2, "b", 1), None), []);
    assert_eq!(world.hub(&dispatch(3, "c", None), None), []);
    world.hub(&dispatch(4, "d", None), None);
    let refused = world.one();
    assert_eq!(read!(&refused, Result).0.error.unwrap().code, "overloaded", "the agent's own bound holds");
    assert_eq!((world.session.load().running, world.session.load().waiting), (1, 2));
    world.pass(ms(5));
    let accepts: Vec<_> = world.sent().iter().map(|(_, message)| said(message).2).collect();
    assert_eq!(accepts, [None, Some(0), Some(1)]);
    let second = started(&world.give(Work::Finished(first, done())));
    assert_eq!(second.len(), 1);
    assert_eq!(started(&world.give(Work::Finished(second[0], done()))).len(), 1);
    assert_eq!((world.session.load().running, world.session.load().waiting), (1, 0));
}

#[test]
fn the_line_makes_a_call_late_that_would_be_in_time_without_it() {
    let mut world = narrow();
    let run = started(&world.hub(&dispatch(1, "a", None), None))[0];
    world.pass(ms(1000));
    world.give(Work::Finished(run, done()));
    world.sent();
    world.hub(&liking(2, "b", 1500), None);
    world.hub(&liking(3, "c", 1500), None);
    world.pass(ms(5));
    let accepts: Vec<_> = world.sent().iter().map(|(_, message)| said(message)).collect();
    assert_eq!(accepts, [(false, None, None), (true, Some(2000), Some(0))]);
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_never_starts_and_the_next_has_its_place() {
    let mut world = narrow();
    world.session.running = Running::new(3, seconds(5), None);
    let first = started(&world.hub(&dispatch(1, "a", None), None))[0];
    world.hub(&dispatch(2, "b", None), None);
    world.hub(&dispatch(3, "c", Some(4)), None);
    assert_eq!(world.hub(&Cancel { id: 2, reason: None, wait: false }, None), []);
    let end = world.one();
    let end = read!(&end, Result).0;
    assert_eq!((end.id, end.error.unwrap().code), (Some(2), "cancelled"));
    assert_eq!(world.hub(&agent_reach_protocol::Credit { id: 3, n: 2, target: None }, None), []);
    match world.give(Work::Finished(first, done())).as_slice() {
        [Effect::Run(call)] => assert_eq!((&*call.request_id, call.credit), ("c", 6)),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.session.running.in_flight(), 1);
}

#[test]
fn a_handler_that_has_to_be_dropped_makes_room_too() {
    let mut world = narrow();
    let first = started(&world.hub(&dispatch(1, "a", None), None))[0];
    world.hub(&dispatch(2, "b", None), None);
    world.hub(&Cancel { id: 1, reason: None, wait: false }, None);
    let effects = world.pass(seconds(5));
    assert!(effects.contains(&Effect::AbortRun(first)) && started(&effects).len() == 1, "{effects:?}");
}

#[test]
fn a_withdrawn_call_ends_with_what_its_provider_answers() {
    let mut world = World::ready();
    for (id, status) in [(1, ResultStatus::Completed), (2, ResultStatus::Failed)] {
        world.open(id, spec());
        world.sent();
        assert_eq!(world.give(Work::Withdraw(id)), []);
        let cancel = world.one();
        assert_eq!(read!(&cancel, Cancel).0, Cancel { id, reason: None, wait: true });
        world.give(Work::Withdraw(id));
        assert_eq!(world.sent(), [], "once is enough");
        let error = WireError { code: "cancelled", message: "", retryable: false, details: None };
        let error = (status == ResultStatus::Failed).then_some(error);
        let effects = world.hub(&CallResult { status, error, ..result(id) }, None);
        let end = ended(&effects);
        assert_eq!(end.is_ok(), status == ResultStatus::Completed, "{effects:?}");
    }
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_call_that_is_withdrawn_before_it_was_written_never_leaves() {
    let mut world = World::ready();
    world.open(1, spec());
    let effects = world.give(Work::Withdraw(1));
    let error = ended(&effects).unwrap_err();
    assert_eq!((&error.code, error.accepted), (&Code::Known(ErrorCode::Cancelled), Accepted::No));
    assert_eq!(world.sent(), []);
    assert!(world.session.asked.is_empty());
}

#[test]
fn a_withdrawn_call_is_asked_for_again_after_a_lost_connection_and_cancelled_behind_that() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    world.give(Work::Withdraw(1));
    world.lose();
    world.come_back();
    let sent = world.sent();
    let [(10, call), (15, cancel)] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!(read!(cancel, Cancel).0, Cancel { id: read!(call, Call).0.id, reason: None, wait: true });
    let error = WireError { code: "no_instance", message: "", retryable: true, details: None };
    let nobody = CallResult { status: ResultStatus::NoInstance, error: Some(error), ..result(2) };
    assert!(ended(&world.hub(&nobody, None)).is_err(), "nobody waits for a provider's return");
}

#[test]
fn a_call_that_a_provider_may_have_since_before_is_not_taken_back_unwritten() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    world.lose();
    world.come_back();
    assert_eq!(world.give(Work::Withdraw(1)), [], "its end is still to be learnt");
    let kinds: Vec<_> = world.sent().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [10, 15]);
}

/// RESULT of a call that failed as `code` after these tries.
fn failed(world: &mut World, code: &str, cause: Option<&str>, tries: &[&str]) -> CallError {
    world.open(1, spec());
    let call = world.one();
    let id = read!(&call, Call).0.id;
    let attempts =
        tries.iter().map(|outcome| agent_reach_protocol::Attempt { target: "p", outcome, ms: 1, reason: "" });
    let details = cause.map(|code| {
        let entry = [("code", code), ("message", "dry")].map(|(k, v)| (k.into(), v.into())).to_vec();
        let retryable = ("retryable".into(), true.into());
        let more = ("details".into(), rmpv::Value::Map(vec![("ink".into(), 0.into())]));
        let entry = rmpv::Value::Map([entry, vec![retryable, more]].concat());
        rmp_serde::to_vec(&rmpv::Value::Map(vec![("cause".into(), entry)])).unwrap()
    });
    let details = details.as_deref().map(Raw);
    let error = WireError { code, message: "all used up", retryable: false, details };
    let attempts = attempts.collect();
    let end = CallResult { status: ResultStatus::Failed, error: Some(error), attempts, ..result(id) };
    let effects = world.hub(&end, None);
    assert_eq!(world.sent(), [], "trying again is the hub's affair alone");
    ended(&effects).unwrap_err().clone()
}

#[test]
fn a_degraded_failure_has_its_cause() {
    let mut world = World::ready();
    let error = failed(&mut world, "degraded", Some("handler_error"), &["handler_error"]);
    let cause = error.cause.as_ref().unwrap();
    assert_eq!(
        (&cause.code, &*cause.message, cause.retryable),
        (&Code::Known(ErrorCode::HandlerError), "dry", true)
    );
    assert_eq!(cause.details.as_deref(), Some(&b"\x81\xa3ink\x00"[..]));
    assert_eq!(error.accepted, Accepted::Yes);
    let other = failed(&mut world, "handler_error", None, &["handler_error"]);
    assert_eq!(other.cause, None);
    let bare = failed(&mut world, "degraded", None, &[]);
    assert_eq!((bare.cause.clone(), bare.accepted), (None, Accepted::Unknown), "a hub that does not say");
}

#[test]
fn a_provider_had_a_call_when_it_had_one_of_its_tries() {
    let mut world = World::ready();
    let mut of = |code, cause, tries: &[&str]| failed(&mut world, code, cause, tries).accepted;
    assert_eq!(of("overloaded", None, &[]), Accepted::No);
    assert_eq!(of("overloaded", None, &["handler_error"]), Accepted::Yes);
    assert_eq!(of("degraded", Some("overloaded"), &["overloaded", "overloaded"]), Accepted::No);
    assert_eq!(of("degraded", Some("overloaded"), &["agent_lost", "overloaded"]), Accepted::Unknown);
    assert_eq!(of("degraded", Some("agent_lost"), &["timeout", "agent_lost"]), Accepted::Yes);
}
