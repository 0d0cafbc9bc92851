//! What comes after a try that failed: the same agent again, another, an older result, and then the failure.
#![cfg(test)]

mod world;

use agent_reach_core::{Fact, Settings, Tier};
use agent_reach_protocol::{AgentStatus, Call, Capability, Hello, ToAgent, Update, decode_to_agent};
use world::{World, accept, call, caller, capability, chunk, completed, failed, provider, shown, update};

/// A caller and this provider, without the random part: tries come at known moments.
fn world(offers: Capability<'_>) -> World {
    let mut w = World::with(Settings { retry_jitter_ms: 0, ..Settings::default() });
    w.join("c", caller("c"));
    w.join("p", Hello { capabilities: vec![offers], ..caller("p") });
    w
}

fn tries(retries: u64) -> Call<'static> {
    Call { retries: Some(retries), ..call(1, "a") }
}

/// The one RESULT that waits for the caller: as a line, its attempts, and the cause that its details name.
fn end(w: &mut World) -> (String, Vec<String>, Option<String>) {
    let batch = w.take("c");
    let ends: Vec<_> = batch.iter().filter(|outgoing| shown(outgoing).starts_with("RESULT")).collect();
    assert_eq!(ends.len(), 1, "{:?}", batch.iter().map(shown).collect::<Vec<_>>());
    let message = ends[0].message().unwrap();
    let Ok((ToAgent::Result(result), _)) = decode_to_agent(&message) else { panic!("a RESULT") };
    let attempts = result.attempts.iter().map(|attempt| format!("{} {}", attempt.target, attempt.outcome));
    let details = result.error.as_ref().and_then(|error| error.details);
    let cause = details.and_then(|details| {
        let value = rmpv::decode::read_value(&mut &*details.0).unwrap();
        Some(
            value.as_map()?.iter().find(|(key, _)| key.as_str() == Some("cause"))?.1["code"]
                .as_str()?
                .to_owned(),
        )
    });
    (shown(ends[0]), attempts.collect(), cause)
}

#[test]
fn a_failure_that_may_pass_is_tried_again_on_the_same_agent_after_growing_pauses() {
    let mut w = world(capability("a"));
    w.say_with("c", &tries(2), "x");
    for (attempt, pause) in [(1, 500), (2, 1000)] {
        assert_eq!(w.heard("p"), [format!("CALL {attempt} a by=c try={attempt} \"x\"")]);
        w.say("p", &failed(attempt, "handler_error", true));
        w.advance(pause - 1);
        assert_eq!(w.heard("p"), [""; 0], "not before its time");
        w.advance(1);
    }
    assert_eq!(w.heard("p"), ["CALL 3 a by=c try=3 \"x\""]);
    w.say("p", &completed(3));
    let (line, attempts, _) = end(&mut w);
    assert_eq!(line, "RESULT 1 completed of=p");
    assert_eq!(attempts, ["p handler_error", "p handler_error", "p completed"]);
}

#[test]
fn when_all_tries_are_used_up_the_call_is_degraded_and_names_its_cause() {
    let mut w = world(capability("a"));
    w.say("c", &tries(1));
    w.say("p", &failed(1, "handler_error", true));
    w.advance(500);
    w.say("p", &failed(2, "handler_error", true));
    let (line, attempts, cause) = end(&mut w);
    assert_eq!((line.as_str(), cause.as_deref()), ("RESULT 1 degraded of=p", Some("handler_error")));
    assert_eq!(attempts.len(), 2);
    assert_eq!(w.hub.gauges().calls, 0);
}

#[test]
fn a_failure_that_will_not_pass_is_tried_exactly_once() {
    for (code, retryable) in [("handler_error", false), ("unsupported", true), ("invalid_request", true)] {
        let mut w = world(capability("a"));
        w.say("c", &Call { allow_fallback: true, ..tries(5) });
        w.say("p", &failed(1, code, retryable));
        let (line, attempts, _) = end(&mut w);
        assert!(line.contains(code) && attempts.len() == 1, "{line}");
    }
}

#[test]
fn a_call_that_asks_for_no_tier_gets_its_error_itself() {
    let mut w = world(capability("a"));
    w.say("c", &tries(0));
    w.say("p", &failed(1, "handler_error", true));
    assert_eq!(end(&mut w).0, "RESULT 1 handler_error retryable of=p");
}

#[test]
fn two_further_tries_are_the_default() {
    let mut w = world(capability("a"));
    w.say("c", &Call { retries: None, ..tries(0) });
    for attempt in 1..=3 {
        w.say("p", &failed(attempt, "handler_error", true));
        w.advance(2000);
    }
    assert_eq!(end(&mut w).1.len(), 3);
}

#[test]
fn after_the_tries_on_one_agent_comes_exactly_one_on_another() {
    let mut w = world(capability("a"));
    w.say("c", &Call { allow_fallback: true, ..tries(1) });
    for name in ["q", "r"] {
        w.join(name, provider(name, "a"));
    }
    w.say("p", &failed(1, "handler_error", true));
    w.advance(500);
    w.say("p", &failed(2, "handler_error", true));
    let given: Vec<String> = w.all_heard().into_iter().filter(|line| line.contains("try=3")).collect();
    assert_eq!(given.len(), 1, "{given:?}");
    let other = &given[0][..1];
    assert!(other != "p");
    w.say(other, &failed(1, "handler_error", true));
    w.advance(5000);
    let (line, attempts, cause) = end(&mut w);
    assert!(line.contains("degraded") && cause.is_some(), "{line}");
    assert_eq!(attempts, ["p handler_error", "p handler_error", &format!("{other} handler_error")]);
    let tiers: Vec<Tier> = w
        .take_facts()
        .into_iter()
        .filter_map(|fact| if let Fact::Retry(tier) = fact { Some(tier) } else { None })
        .collect();
    assert_eq!(tiers, [Tier::SameAgent, Tier::OtherAgent]);
}

#[test]
fn a_call_for_one_agent_never_leaves_it() {
    let mut w = world(capability("a"));
    w.join("q", provider("q", "a"));
    w.say("c", &Call { allow_fallback: true, agents: Some(vec!["p"]), ..tries(1) });
    w.say("p", &failed(1, "handler_error", true));
    w.advance(500);
    w.say("p", &failed(2, "handler_error", true));
    assert_eq!(w.heard("q"), [""; 0]);
    assert!(end(&mut w).0.contains("degraded"));
}

#[test]
fn who_does_not_accept_in_time_is_asked_again_and_the_late_answer_is_dropped() {
    let mut w = world(capability("a"));
    w.say("c", &tries(1));
    w.advance(3000);
    assert_eq!(w.heard("p"), ["CALL 1 a by=c try=1", "CANCEL 1 accept_timeout"]);
    w.advance(500);
    assert_eq!(w.heard("p"), ["CALL 2 a by=c try=2"]);
    w.say("p", &completed(1));
    assert_eq!(w.heard("c"), [""; 0]);
    w.say("p", &completed(2));
    assert_eq!(end(&mut w).1, ["p accept_timeout", "p completed"]);
}

#[test]
fn work_that_was_accepted_and_took_too_long_runs_again_only_where_that_does_no_harm() {
    for (idempotent, again) in [(false, false), (true, true)] {
        let mut w = world(Capability { idempotent, ..capability("a") });
        w.join("q", provider("q", "b"));
        w.say("c", &Call { timeout_ms: Some(1000), allow_fallback: true, ..tries(2) });
        w.say("p", &accept(1));
        w.advance(1000);
        w.heard("p");
        w.advance(500);
        assert_eq!(w.heard("p").len(), usize::from(again));
        if !again {
            assert!(end(&mut w).0.contains("timeout retryable"));
        }
    }
}

#[test]
fn what_was_lost_before_it_was_accepted_goes_to_another_agent() {
    let mut w = world(capability("a"));
    w.say("c", &Call { allow_fallback: true, accept_timeout_ms: Some(30_000), ..tries(2) });
    w.join("q", provider("q", "a"));
    w.heard("p");
    w.lose("p");
    w.advance(10_000);
    w.input(agent_reach_core::Input::Alive { connection: w.connection("q") });
    w.advance(500);
    assert_eq!(w.heard("q"), ["CALL 1 a by=c try=2"], "p is gone: no use in trying it again");
    w.say("q", &completed(1));
    assert_eq!(end(&mut w).1, ["p agent_lost", "q completed"]);
}

#[test]
fn what_was_lost_after_it_was_accepted_is_not_run_again_unless_that_does_no_harm() {
    for (idempotent, end_is) in [(false, Some("agent_lost")), (true, None)] {
        let mut w = world(Capability { idempotent, ..capability("a") });
        w.say("c", &Call { allow_fallback: true, ..tries(0) });
        w.say("p", &accept(1));
        w.join("q", provider("q", "a"));
        w.lose("p");
        w.advance(10_000);
        match end_is {
            Some(code) => {
                let (line, attempts, _) = end(&mut w);
                assert!(line.contains(code) && !line.contains("retryable") && attempts.len() == 1, "{line}");
                assert_eq!(w.heard("q"), [""; 0]);
            }
            None => assert_eq!(w.heard("q"), ["CALL 1 a by=c try=2"]),
        }
    }
}

#[test]
fn a_stream_of_which_the_caller_has_a_piece_is_not_begun_again() {
    let mut w = world(Capability { idempotent: true, ..capability("a") });
    w.say("c", &Call { stream: true, allow_fallback: true, ..tries(2) });
    w.say_with("p", &chunk(1, 0), "piece");
    w.say("p", &failed(1, "handler_error", true));
    assert!(end(&mut w).0.contains("handler_error"));
}

#[test]
fn a_try_that_would_come_after_the_budget_is_not_made() {
    let mut w = world(capability("a"));
    w.say("c", &Call { budget_ms: Some(400), ..tries(2) });
    w.say("p", &failed(1, "handler_error", true));
    assert_eq!(end(&mut w).0, "RESULT 1 handler_error retryable of=p");
}

#[test]
fn a_cancel_between_two_tries_ends_the_call_at_once() {
    for wait in [false, true] {
        let mut w = world(capability("a"));
        w.say("c", &tries(2));
        w.say("p", &failed(1, "handler_error", true));
        w.heard("p");
        w.say("c", &agent_reach_protocol::Cancel { wait, ..world::cancel(1) });
        let (line, attempts, _) = end(&mut w);
        assert!(line.contains("cancelled") && attempts.len() == 1, "{line}");
        w.advance(5000);
        assert_eq!(w.heard("p"), [""; 0]);
    }
}

#[test]
fn the_same_request_id_joins_between_two_tries_and_adds_none() {
    let mut w = world(capability("a"));
    let asks = |id| Call { id, request_id: Some("r"), ..tries(1) };
    w.say("c", &asks(1));
    w.say("p", &failed(1, "handler_error", true));
    w.say("c", &asks(2));
    w.advance(500);
    assert_eq!(w.heard("p").len(), 2);
    w.say("p", &completed(2));
    let heard = w.heard("c");
    assert!(heard.len() == 2 && heard.iter().all(|line| line.contains("completed")), "{heard:?}");
}

#[test]
fn a_try_on_an_agent_without_room_waits_for_its_slot() {
    let mut w = world(capability("b"));
    w.join("q", Hello { max_concurrency: Some(1), ..provider("q", "a") });
    w.say("c", &Call { queue: None, ..tries(1) });
    w.say("q", &failed(1, "handler_error", true));
    w.say("c", &Call { id: 2, ..tries(0) });
    w.advance(500);
    assert_eq!(w.heard("q").len(), 2, "the second call has the slot");
    w.say("q", &completed(2));
    assert_eq!(w.heard("q"), ["CALL 3 a by=c try=2"]);
}

#[test]
fn when_an_agent_takes_no_more_the_further_tries_on_it_are_not_made() {
    let mut w = world(capability("a"));
    w.say("c", &tries(5));
    w.say("p", &failed(1, "handler_error", true));
    w.say("p", &Update { status: Some(AgentStatus::Draining), ..update() });
    w.advance(500);
    let (line, _, cause) = end(&mut w);
    assert_eq!((line.as_str(), cause.as_deref()), ("RESULT 1 degraded of=p", Some("handler_error")));
}

#[test]
fn an_older_result_is_given_where_it_is_allowed_and_young_enough() {
    let mut w = world(capability("a"));
    let asks = |id, cached| Call { id, allow_cached_ms: Some(cached), ..tries(0) };
    w.say_with("c", &asks(1, 0), "x");
    assert_eq!(w.heard("p").len(), 1);
    w.say_with("p", &completed(1), "good");
    assert_eq!(end(&mut w).0, "RESULT 1 completed of=p \"good\"");
    w.advance(1000);
    w.say_with("c", &asks(2, 1000), "x");
    w.say("p", &failed(2, "handler_error", true));
    let (line, attempts, _) = end(&mut w);
    assert_eq!(line, "RESULT 2 completed of=p cached \"good\"");
    assert_eq!(attempts, ["p handler_error"]);
    w.advance(1);
    w.say_with("c", &asks(3, 1000), "x");
    w.say("p", &failed(3, "handler_error", true));
    let (line, _, cause) = end(&mut w);
    assert_eq!(
        (line.as_str(), cause.as_deref()),
        ("RESULT 3 degraded of=p", Some("handler_error")),
        "too old"
    );
    w.say_with("c", &asks(4, 5000), "another body");
    w.say("p", &failed(4, "handler_error", true));
    assert!(end(&mut w).0.contains("degraded"), "of another body");
}

#[test]
fn an_older_result_also_stands_in_when_nobody_can_take_the_call() {
    let mut w = world(capability("a"));
    w.say_with("c", &tries(0), "x");
    w.say_with("p", &completed(1), "good");
    end(&mut w);
    w.say("p", &Update { status: Some(AgentStatus::Draining), ..update() });
    w.say_with("c", &Call { id: 2, allow_cached_ms: Some(60_000), ..tries(0) }, "x");
    assert_eq!(end(&mut w).0, "RESULT 2 completed of=p cached \"good\"");
}

#[test]
fn a_cached_answer_does_not_become_young_by_being_given() {
    let mut w = world(capability("a"));
    w.say_with("c", &tries(0), "x");
    w.say_with("p", &completed(1), "good");
    end(&mut w);
    for id in 2..5 {
        w.advance(400);
        w.say_with("c", &Call { id, allow_cached_ms: Some(1000), ..tries(0) }, "x");
        w.say("p", &failed(id, "handler_error", true));
        assert_eq!(end(&mut w).0.contains("cached"), id < 4, "{id}");
    }
}

#[test]
fn nobody_gets_an_older_result_of_another_identity() {
    let mut w = world(capability("a"));
    w.say_with("c", &tries(0), "x");
    w.say_with("p", &completed(1), "secret");
    w.join("d", caller("d"));
    w.say_with("d", &Call { allow_cached_ms: Some(60_000), ..tries(0) }, "x");
    w.say("p", &failed(2, "handler_error", true));
    let heard = w.heard("d");
    assert!(heard.len() == 1 && heard[0].contains("degraded"), "{heard:?}");
}
