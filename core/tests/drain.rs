//! A hub that stops.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, Settings};
use agent_reach_protocol::{Call, Hello};
use world::*;

fn drained(w: &mut World) -> Vec<String> {
    w.input(Input::Drain { drain_ms: 5000 });
    heard(w)
}

/// What everybody hears, without the moment to come back: that is each one's own.
fn heard(w: &mut World) -> Vec<String> {
    let cut = |line: String| line.split(" after=").next().unwrap_or_default().to_owned();
    w.all_heard().into_iter().map(cut).collect()
}

#[test]
fn idle_agents_go_at_once_and_busy_ones_when_their_last_call_has_ended() {
    let mut w = World::pair("echo");
    w.join("idle", caller("idle"));
    w.say("c", &call(1, "echo"));
    w.say("c", &call(2, "echo"));
    w.all_heard();
    assert_eq!(
        drained(&mut w),
        ["c: GOODBYE draining", "idle: GOODBYE draining", "idle: CLOSE 4000 draining", "p: GOODBYE draining"]
    );
    assert!(w.hub.is_draining());
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
    w.say("p", &completed(2));
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 2 completed of=p", "c: CLOSE 4000 draining", "p: CLOSE 4000 draining"]
    );
}

#[test]
fn nothing_new_begins_while_the_hub_drains() {
    let mut w = World::pair("echo");
    w.say("c", &Call { request_id: Some("r"), ..call(1, "echo") });
    drained(&mut w);
    w.say("c", &call(2, "echo"));
    w.say("c", &Call { request_id: Some("r"), ..call(3, "echo") });
    w.open("new");
    w.say("new", &caller("new"));
    assert_eq!(
        heard(&mut w),
        ["c: RESULT 2 shutting_down retryable", "new: GOODBYE draining", "new: CLOSE 4000 draining"]
    );
    w.say("p", &completed(1));
    w.heard("p");
    assert_eq!(
        w.all_heard(),
        ["c: RESULT 3 completed of=p", "c: RESULT 1 completed of=p", "c: CLOSE 4000 draining"]
    );
}

#[test]
fn what_is_not_done_when_the_drain_ends_is_let_go() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    drained(&mut w);
    w.advance(4999);
    assert_eq!(w.all_heard(), Vec::<String>::new());
    w.advance(1);
    assert_eq!(w.all_heard(), ["c: CLOSE 4000 draining", "p: CLOSE 4000 draining"]);
    for name in ["c", "p"] {
        w.lose(name);
    }
    w.advance(60_000);
    let gauges = w.hub.gauges();
    assert_eq!((gauges.calls, gauges.in_flight, gauges.agents_away, gauges.connections), (0, 0, 0, 0));
}

#[test]
fn watches_end_with_the_drain() {
    let mut w = World::pair("echo");
    w.say("c", &Call { stream: true, ..call(1, "hub.events.watch") });
    w.all_heard();
    let mut lines = drained(&mut w);
    lines.retain(|line| !line.contains("CHUNK"));
    assert_eq!(
        lines,
        [
            "c: GOODBYE draining",
            "c: RESULT 1 shutting_down retryable",
            "c: CLOSE 4000 draining",
            "p: GOODBYE draining",
            "p: CLOSE 4000 draining"
        ]
    );
}

#[test]
fn a_call_that_waits_is_open_too_and_has_its_turn_while_the_hub_drains() {
    let mut w = World::new();
    w.join("p", Hello { max_concurrency: Some(1), ..provider("p", "echo") });
    w.join("c", caller("c"));
    w.say("c", &Call { queue: None, ..call(1, "echo") });
    w.say("c", &Call { queue: None, ..call(2, "echo") });
    w.all_heard();
    drained(&mut w);
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p", "p: CALL 2 echo by=c try=1"]);
    w.say("p", &completed(2));
    let end = ["c: RESULT 2 completed of=p", "c: CLOSE 4000 draining", "p: CLOSE 4000 draining"];
    assert_eq!(w.all_heard(), end);
}

#[test]
fn who_reads_nothing_is_closed_as_well_though_its_queue_passes_its_bound_in_the_moment_of_the_drains_end() {
    let mut w = World::with(Settings { outbound_bytes: 1000, ..Settings::default() });
    w.join("p", Hello { max_concurrency: Some(100), ..provider("p", "echo") });
    w.join("c", caller("c"));
    for id in 1..=20 {
        w.say("c", &Call { timeout_ms: Some(1000), ..call(id, "echo") });
        w.heard("p");
        w.say("p", &accept(id));
        w.heard("c");
    }
    w.input(Input::Drain { drain_ms: 1000 });
    // All of its calls end in the moment in which the hub closes it.
    w.advance(1000);
    let heard = w.heard("c");
    assert!(heard.len() < 22, "not all of it has room: {heard:?}");
    assert_eq!(heard.last().map(String::as_str), Some("CLOSE 4000 draining"));
}
