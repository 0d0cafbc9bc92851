//! Calls that are part of a trace: their hops as a tree of spans, and what their providers are told.
#![cfg(test)]

mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use agent_reach_core::{CallTrace, Fact, Hop, Outcome, Sampling, Settings, Span};
use agent_reach_protocol::{Call, CallMode, Hello, Select, ToAgent, decode_to_agent};
use world::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

fn tracing(ratio: f64) -> Settings {
    let spans = Some(Sampling { ratio, seed: 11 });
    Settings { spans, retry_jitter_ms: 0, ..Settings::default() }
}

fn pair(settings: Settings) -> World {
    let mut w = World::with(settings);
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w
}

fn sampled(id: u64) -> Call<'static> {
    Call { traceparent: Some(SAMPLED), tracestate: Some("k=v"), ..call(id, "echo") }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn traces(w: &mut World) -> Vec<Arc<CallTrace>> {
    let traced = |fact| if let Fact::CallTraced(trace) = fact { Some(trace) } else { None };
    w.take_facts().into_iter().filter_map(traced).collect()
}

/// The one traced call that has ended since the last look.
fn trace(w: &mut World) -> Arc<CallTrace> {
    let mut all = traces(w);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// What waits for a provider: `traceparent` and `tracestate` of each CALL.
fn told(w: &mut World, name: &str) -> Vec<(Option<String>, Option<String>)> {
    let calls = w.take(name).into_iter().filter_map(|outgoing| {
        let message = outgoing.message()?;
        let Ok((ToAgent::Call(call), _)) = decode_to_agent(&message) else { return None };
        Some((call.traceparent.map(str::to_owned), call.tracestate.map(str::to_owned)))
    });
    calls.collect()
}

fn outcome(span: &Span<'_>) -> String {
    span.outcome.map_or_else(String::new, |outcome| format!(" {}", outcome.as_str()))
}

/// A line for each span, with its depth, its time in milliseconds since the call came, and its events.
fn tree(trace: &CallTrace) -> Vec<String> {
    let spans = trace.spans();
    let mut depths: BTreeMap<[u8; 8], usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for (place, span) in spans.iter().enumerate() {
        let parent = span.parent.filter(|_| place > 0).map(|parent| parent.to_bytes());
        let depth = parent.map_or(0, |parent| depths[&parent] + 1);
        assert_eq!(depths.insert(span.id.to_bytes(), depth), None, "two spans have one id: {spans:?}");
        assert!(trace.started <= span.start && span.start <= span.end && span.end <= trace.ended, "{span:?}");
        let what = match &span.hop {
            Hop::Receive => "receive".to_owned(),
            Hop::Route { able, offering, chosen, excluded, .. } => {
                format!("route {able}/{offering} to {chosen:?} without {excluded:?}")
            }
            Hop::Queue { before } => format!("queue behind {before}"),
            Hop::Deliver { target, attempt, .. } => format!("deliver {target} try={attempt}"),
            Hop::Accept => "accept".to_owned(),
            Hop::Process => "process".to_owned(),
            Hop::Result => "result".to_owned(),
        };
        let (from, to) = (span.start.ms_since(trace.started), span.end.ms_since(trace.started));
        let events: String = span.events.iter().map(|event| format!(" [{}]", event.name)).collect();
        lines.push(format!("{}{what} {from}..{to}{}{events}", "  ".repeat(depth), outcome(span)));
    }
    lines
}

/// The ids of the deliveries, in order.
fn deliveries(trace: &CallTrace) -> Vec<String> {
    let spans = trace.spans();
    let deliver = |span: &&Span<'_>| matches!(span.hop, Hop::Deliver { .. });
    spans.iter().filter(deliver).map(|span| hex(&span.id.to_bytes())).collect()
}

#[test]
fn a_call_has_each_hop_once_below_the_callers_span() {
    let mut w = pair(tracing(0.0));
    w.say("c", &sampled(1));
    w.advance(3);
    w.say("p", &accept(1));
    w.advance(5);
    w.say("p", &completed(1));
    let trace = trace(&mut w);
    assert_eq!(
        tree(&trace),
        [
            "receive 0..8 completed",
            "  route 1/1 to [\"p\"] without [] 0..0",
            "  deliver p try=1 0..8 completed",
            "    accept 0..3",
            "    process 3..8 completed",
            "  result 8..8",
        ]
    );
    let spans = trace.spans();
    assert_eq!(hex(&trace.trace_id().to_bytes()), TRACE);
    assert_eq!(spans[0].parent.map(|parent| hex(&parent.to_bytes())).as_deref(), Some(PARENT));
    assert_eq!((trace.flags(), trace.tracestate()), (1, Some("k=v")));
    assert_eq!((&*trace.caller, &*trace.capability, trace.known), ("c", "echo", true));
    assert_eq!((trace.mode, trace.outcome), (CallMode::Call, Outcome::Completed));
}

#[test]
fn a_provider_is_told_the_span_of_its_delivery_as_its_parent() {
    let mut w = pair(tracing(0.0));
    w.say("c", &sampled(1));
    let calls = told(&mut w, "p");
    w.say("p", &completed(1));
    let deliver = &deliveries(&trace(&mut w))[0];
    assert_eq!(calls, [(Some(format!("00-{TRACE}-{deliver}-01")), Some("k=v".to_owned()))]);
    assert_ne!(deliver, PARENT);
}

#[test]
fn what_is_not_traced_goes_through_as_it_came() {
    let texts = [Some(SAMPLED), Some(UNSAMPLED), Some("nonsense"), None];
    for (settings, texts) in [(Settings::default(), &texts[..]), (tracing(0.0), &texts[1..])] {
        for traceparent in texts {
            let mut w = pair(settings.clone());
            w.say("c", &Call { traceparent: *traceparent, ..sampled(1) });
            let same = (traceparent.map(str::to_owned), Some("k=v".to_owned()));
            assert_eq!(told(&mut w, "p"), [same]);
            w.say("p", &completed(1));
            assert_eq!(traces(&mut w), [], "{traceparent:?}");
        }
    }
}

#[test]
fn a_trace_begins_here_for_the_share_of_calls_that_came_without_one() {
    let mut w = pair(tracing(1.0));
    w.say("c", &Call { traceparent: Some("nonsense"), ..sampled(1) });
    let calls = told(&mut w, "p");
    w.say("p", &completed(1));
    let begun = trace(&mut w);
    let own = hex(&begun.trace_id().to_bytes());
    let deliver = &deliveries(&begun)[0];
    assert_eq!(
        calls,
        [(Some(format!("00-{own}-{deliver}-01")), None)],
        "a tracestate is of the trace it came with"
    );
    assert_eq!((begun.spans()[0].parent, begun.tracestate()), (None, None));
    w.say("c", &Call { traceparent: Some(UNSAMPLED), ..sampled(2) });
    w.say("p", &completed(2));
    assert_eq!(traces(&mut w), [], "the caller has decided");
}

#[test]
fn every_try_is_a_delivery_of_its_own() {
    let mut w = pair(tracing(0.0));
    w.join("q", provider("q", "echo"));
    w.say("c", &Call { agents: Some(vec!["p"]), retries: Some(1), ..sampled(1) });
    w.say("p", &failed(1, "handler_error", true));
    w.advance(500);
    w.say("p", &accept(2));
    w.advance(20);
    w.say("p", &completed(2));
    let calls = told(&mut w, "p");
    let trace = trace(&mut w);
    assert_eq!(
        tree(&trace),
        [
            "receive 0..520 completed [retry_in]",
            "  route 1/2 to [\"p\"] without [] 0..0",
            "  deliver p try=1 0..0 handler_error",
            "    accept 0..0",
            "    process 0..0 handler_error",
            "  route 1/2 to [\"p\"] without [] 500..500",
            "  deliver p try=2 500..520 completed",
            "    accept 500..500",
            "    process 500..520 completed",
            "  result 520..520",
        ]
    );
    let parents: Vec<String> = deliveries(&trace).iter().map(|id| format!("00-{TRACE}-{id}-01")).collect();
    assert_eq!(calls.into_iter().filter_map(|(parent, _)| parent).collect::<Vec<_>>(), parents);
}

#[test]
fn a_call_that_waits_has_its_wait_and_both_choices() {
    let mut w = pair(tracing(0.0));
    w.lose("p");
    w.advance(10_000);
    w.join("q", Hello { max_concurrency: Some(1), ..provider("q", "echo") });
    w.say("c", &call(1, "echo"));
    w.say("c", &Call { queue: Some(true), ..sampled(2) });
    w.advance_alive(700);
    w.say("q", &completed(1));
    w.say("q", &completed(2));
    assert_eq!(
        tree(&trace(&mut w)),
        [
            "receive 0..700 completed",
            "  route 0/1 to [] without [(\"busy\", 1)] 0..0",
            "  queue behind 0 0..700",
            "  route 1/1 to [\"q\"] without [] 700..700",
            "  deliver q try=1 700..700 completed",
            "    accept 700..700",
            "    process 700..700 completed",
            "  result 700..700",
        ]
    );
}

#[test]
fn each_target_of_a_fan_out_has_a_delivery_and_a_parent_of_its_own() {
    let mut w = pair(tracing(0.0));
    w.join("q", provider("q", "echo"));
    w.say("c", &Call { select: Some(Select::All), ..sampled(1) });
    let calls = [told(&mut w, "p"), told(&mut w, "q")].concat();
    w.advance(1);
    w.say("q", &completed(1));
    w.advance(1);
    w.say("p", &failed(1, "unsupported", false));
    let trace = trace(&mut w);
    assert_eq!(
        tree(&trace),
        [
            "receive 0..2 completed",
            "  route 2/2 to [\"p\", \"q\"] without [] 0..0",
            "  deliver p try=1 0..2 unsupported",
            "  deliver q try=1 0..1 completed",
            "    accept 0..1",
            "    process 1..1 completed",
            "    accept 0..2",
            "    process 2..2 unsupported",
            "  result 2..2",
        ]
    );
    let parents: Vec<String> = deliveries(&trace).iter().map(|id| format!("00-{TRACE}-{id}-01")).collect();
    assert_eq!(calls.into_iter().filter_map(|(parent, _)| parent).collect::<Vec<_>>(), parents);
}

#[test]
fn a_provider_that_comes_back_is_given_a_second_delivery() {
    let mut w = pair(tracing(0.0));
    w.say("c", &sampled(1));
    w.advance(1);
    w.lose("p");
    w.advance(1);
    w.join_and_hear("p#2", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2"]);
    w.say("p#2", &completed(1));
    assert_eq!(
        tree(&trace(&mut w)),
        [
            "receive 0..2 completed",
            "  route 1/1 to [\"p\"] without [] 0..0",
            "  deliver p try=1 0..1 agent_lost [target_away]",
            "    accept 0..1 agent_lost",
            "  deliver p try=2 2..2 completed",
            "    accept 2..2",
            "    process 2..2 completed",
            "  result 2..2",
        ]
    );
}

#[test]
fn a_notify_has_no_processing_and_an_agent_that_never_accepts_none_either() {
    let mut w = pair(tracing(0.0));
    w.say("c", &Call { mode: Some(CallMode::Notify), ..sampled(1) });
    w.say("p", &accept(1));
    let notify = tree(&trace(&mut w));
    assert_eq!(notify[2..], ["  deliver p try=1 0..0 completed", "    accept 0..0", "  result 0..0"]);
    w.say("c", &Call { accept_timeout_ms: Some(50), ..sampled(2) });
    w.advance(50);
    let silent = tree(&trace(&mut w));
    assert_eq!(
        silent[2..],
        [
            "  deliver p try=1 0..50 accept_timeout [cancel_sent]",
            "    accept 0..50 accept_timeout",
            "  result 50..50"
        ]
    );
}

#[test]
fn a_call_that_is_refused_or_cancelled_is_traced_as_well() {
    let mut w = pair(tracing(0.0));
    w.say("c", &Call { capability: "nobody.offers.this", ..sampled(1) });
    let refused = trace(&mut w);
    assert_eq!(
        tree(&refused),
        ["receive 0..0 no_capability", "  route 0/0 to [] without [] 0..0", "  result 0..0"]
    );
    assert!(!refused.known);
    w.say("c", &sampled(2));
    w.advance(4);
    w.say("c", &cancel(2));
    assert_eq!(
        tree(&trace(&mut w))[..3],
        [
            "receive 0..4 cancelled [cancel_asked]",
            "  route 1/1 to [\"p\"] without [] 0..0",
            "  deliver p try=1 0..4 cancelled [cancel_sent]",
        ]
    );
}

#[test]
fn a_call_of_more_steps_than_are_kept_still_ends_and_names_a_span_that_is_there() {
    let mut w = World::with(tracing(0.0));
    let names: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
    for name in &names {
        w.join(name, provider(name, "echo"));
    }
    w.join("c", caller("c"));
    w.say("c", &Call { select: Some(Select::All), ..sampled(1) });
    let told: Vec<String> = names.iter().filter_map(|name| told(&mut w, name).remove(0).0).collect();
    for name in &names {
        w.say(name, &completed(1));
    }
    let trace = trace(&mut w);
    let spans = trace.spans();
    assert!(spans.len() < 1000 && spans.iter().all(|span| span.end <= trace.ended));
    let ids: Vec<String> = spans.iter().map(|span| hex(&span.id.to_bytes())).collect();
    for parent in told {
        assert!(ids.contains(&parent[36..52].to_owned()), "{parent} is no span that was exported");
    }
    assert!(trace.bytes() < 64 * 1024, "{}", trace.bytes());
}

#[test]
fn a_task_is_traced_from_its_call_to_its_end_and_after_a_restart_from_there() {
    let mut w = World::with_store(tracing(0.0));
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &Call { traceparent: Some(SAMPLED), ..task(1, "echo") });
    w.write();
    w.say("p", &accept(1));
    w.write();
    assert_eq!(traces(&mut w), []);
    w.crash(Settings { started_unix_ms: 2_000_000, seed: 2, ..tracing(0.0) });
    w.join_and_hear("p", provider("p", "echo"), &["WELCOME", "CALL 1 echo by=c try=2 task"]);
    w.write();
    w.say("p", &completed(1));
    w.write();
    let trace = trace(&mut w);
    let spans = trace.spans();
    assert_eq!(hex(&trace.trace_id().to_bytes()), TRACE);
    assert_eq!(spans[0].parent.map(|parent| hex(&parent.to_bytes())).as_deref(), Some(PARENT));
    assert!(trace.task.is_some() && deliveries(&trace).len() == 1);
}

#[test]
fn tracing_changes_no_choice_of_the_hub() {
    let run = |settings: Settings| {
        let mut w = World::with(settings);
        for name in ["p1", "p2", "p3"] {
            w.join(name, provider(name, "echo"));
        }
        w.join("c", caller("c"));
        let policy = Some(agent_reach_protocol::Policy::Random);
        for id in 1..=20 {
            w.say("c", &Call { policy, ..sampled(id) });
        }
        w.all_heard()
    };
    assert_eq!(run(Settings { spans: None, ..tracing(0.0) }), run(tracing(1.0)));
}
