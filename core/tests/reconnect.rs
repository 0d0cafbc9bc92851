//! Connections of one agent after another: takeover, late ends, storms. Kinds of danger: reconnect.
#![cfg(test)]

mod world;

use agent_reach_core::Settings;
use agent_reach_protocol::Hello;
use world::*;

#[test]
fn what_a_lost_connection_had_queued_leaves_the_gauge_with_it() {
    let mut w = World::pair("echo");
    w.say_with("c", &call(1, "echo"), "a body that nobody will read");
    assert!(w.hub.gauges().outbound_bytes > 0);
    w.lose("p");
    assert_eq!(w.hub.gauges().outbound_bytes, 0);
}

#[test]
fn the_resume_window_counts_from_the_last_loss_and_not_from_an_earlier_one() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.lose("c");
    w.advance(1000);
    w.join("c#2", caller("c"));
    w.advance(1000);
    w.lose("c#2");
    w.all_heard();
    // 10 s after the first return, 9 s after the second loss.
    w.advance(9500);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().agents_away), (1, 1));
    w.advance(500);
    assert_eq!(w.all_heard(), ["p: CANCEL 1 the caller went away"]);
    assert_eq!((w.hub.gauges().calls, w.hub.gauges().agents_away), (0, 0));
}

#[test]
fn a_call_of_a_connection_that_gave_way_has_the_whole_resume_window() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.lose("c");
    w.advance(1000);
    w.join("c#2", caller("c"));
    w.say("c#2", &call(1, "echo"));
    w.say("p", &accept(2));
    w.advance(1000);
    w.join_and_hear("c#3", caller("c"), &["WELCOME replaced"]);
    w.all_heard();
    // 11 s after the loss of the first connection, 9 s after the second gave way.
    w.advance_alive(9000);
    assert_eq!(w.hub.gauges().calls, 2);
    w.advance_alive(1000);
    assert_eq!(w.hub.gauges().calls, 0);
}

#[test]
fn a_window_that_was_left_open_does_not_end_the_calls_of_another_agent() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &accept(1));
    w.lose("c");
    w.advance(1000);
    w.join("c#2", caller("c"));
    w.advance(1000);
    w.lose("c#2");
    w.advance_alive(3000);
    w.say_with("p", &completed(1), "the call ends, and with it the agent that was away");
    // Just after the first window would have ended, and just before the second.
    w.advance_alive(6500);
    w.join("d", caller("d"));
    w.say("d", &call(1, "echo"));
    w.say("p", &accept(2));
    w.lose("d");
    w.all_heard();
    w.advance_alive(9000);
    assert_eq!(w.hub.gauges().calls, 1, "d has 10 s of its own");
}

#[test]
fn the_newest_connection_wins_and_the_late_end_of_the_older_touches_nothing_of_it() {
    let mut w = World::pair("echo");
    w.open("p#2");
    w.say("p#2", &provider("p", "echo"));
    assert_eq!(w.all_heard(), ["p: GOODBYE replaced", "p: CLOSE 4500 replaced", "p#2: WELCOME replaced"]);
    w.say("c", &call(1, "echo"));
    w.lose("p");
    assert_eq!(w.all_heard(), ["p#2: CALL 1 echo by=c try=1"]);
    assert_eq!((w.hub.gauges().agents_ready, w.hub.gauges().agents_away), (2, 0));
    w.say("p#2", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 1 completed of=p"]);
}

#[test]
fn frames_of_a_replaced_connection_are_not_heard() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.join("p#2", Hello { instance: "life-2", ..provider("p", "echo") });
    w.all_heard();
    w.say("p", &completed(1));
    w.say("c", &call(2, "echo"));
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["p#2: CALL 1 echo by=c try=1"]);
}

#[test]
fn more_hellos_than_the_bound_in_ten_seconds_are_told_to_come_back_later() {
    let mut w = World::new();
    for n in 1..=5 {
        w.join(&format!("a#{n}"), caller("a"));
        w.lose(&format!("a#{n}"));
    }
    w.open("a#6");
    w.say("a#6", &caller("a"));
    assert_eq!(w.heard("a#6"), ["GOODBYE rate_limited after=10000", "CLOSE 4003 rate_limited"]);
    w.lose("a#6");
    w.join("b", caller("b"));
    w.lose("b");
    w.advance(10_000);
    w.join("a#7", caller("a"));
    w.lose("a#7");
    w.advance(30_000);
    assert_eq!(w.hub.gauges().timers, 0, "the storm's memory is swept");
}

#[test]
fn a_hello_of_who_may_not_be_the_agent_does_not_count_towards_its_storm() {
    let mut w = World::with(Settings { registrations_per_10s: 1, ..Settings::default() });
    for n in 1..=3 {
        let name = format!("mallory#{n}");
        w.open(&name);
        w.say(&name, &caller("a"));
        assert_eq!(w.heard(&name), ["GOODBYE unauthorized", "CLOSE 4503 unauthorized"]);
    }
    w.join("a", caller("a"));
}
