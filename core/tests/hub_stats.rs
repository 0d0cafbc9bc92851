//! `hub.stats`: what people who look after a hub would otherwise have to guess.
#![cfg(test)]

mod world;

use agent_reach_core::{Input, Settings};
use agent_reach_protocol::Call;
use rmpv::Value;
use world::*;

fn stats(w: &mut World, id: u64) -> Value {
    w.all_heard();
    w.say("c", &call(id, "hub.stats"));
    let batch = w.take("c");
    rmpv::decode::read_value(&mut &*bodies(&batch)[0]).unwrap()
}

#[test]
fn the_times_of_each_phase_are_told_for_about_the_last_minute() {
    let mut w = World::pair("echo");
    let empty = stats(&mut w, 1);
    assert_eq!(empty["latency"]["total"], Value::Map(vec![("calls".into(), 0.into())]));
    for id in 2..=11 {
        w.say("c", &call(id, "echo"));
        w.advance(20);
        w.say("p", &accept(id - 1));
        w.advance(if id == 11 { 3000 } else { 100 });
        w.say("p", &completed(id - 1));
    }
    let told = stats(&mut w, 20)["latency"].clone();
    let ms = |phase: &str, quantile: &str| told[phase][quantile].as_u64().unwrap() / 1000;
    for (phase, quantile, exact) in [
        ("accept", "p50_us", 20),
        ("accept", "p99_us", 20),
        ("process", "p50_us", 100),
        ("process", "p99_us", 3000),
        ("total", "p50_us", 120),
        ("total", "p90_us", 120),
        ("total", "p99_us", 3020),
    ] {
        let told = ms(phase, quantile);
        assert!((exact..=exact * 5 / 4).contains(&told), "{phase} {quantile}: {told}");
    }
    assert_eq!(told["total"]["calls"].as_u64(), Some(10));
    w.advance_alive(told["window_ms"].as_u64().unwrap());
    assert_eq!(stats(&mut w, 21)["latency"]["total"]["calls"].as_u64(), Some(0));
}

#[test]
fn a_task_s_waiting_is_no_call_s_time() {
    let mut w = World::with_store(Settings::default());
    w.join("c", caller("c"));
    w.say("c", &task(1, "echo"));
    w.write();
    w.advance_alive(50_000);
    w.join("p", provider("p", "echo"));
    w.write();
    w.say("p", &completed(1));
    w.write();
    assert_eq!(stats(&mut w, 2)["latency"]["total"]["calls"].as_u64(), Some(0));
}

#[test]
fn failed_calls_are_told_by_code_and_come_to_all_that_failed() {
    let mut w = World::pair("echo");
    for (id, name) in [(1, "made-up"), (2, "made-up"), (3, "echo")] {
        w.say("c", &call(id, name));
    }
    w.say("p", &failed(1, "handler_error", false));
    let told = stats(&mut w, 4);
    let codes = told["failed_by_code"].as_map().unwrap();
    let codes: Vec<_> = codes.iter().map(|(code, n)| (code.as_str().unwrap(), n.as_u64().unwrap())).collect();
    assert_eq!(codes, [("handler_error", 1), ("no_capability", 2)]);
    assert_eq!(told["calls_failed"].as_u64(), Some(3));
}

#[test]
fn lines_are_told_the_longest_first_and_no_more_than_fifty_of_them() {
    let mut w = World::new();
    w.join("c", caller("c"));
    let mut id = 0;
    for (name, count) in (0..60).map(|n| (format!("n{n:02}"), 1)).chain([("long".to_owned(), 3)]) {
        for _ in 0..count {
            id += 1;
            w.say("c", &Call { wait_ms: Some(60_000), ..call(id, &name) });
        }
    }
    let told = stats(&mut w, 1000);
    let lines = told["waiting_by_capability"].as_array().unwrap();
    let line = |at: usize| (lines[at]["capability"].as_str().unwrap(), lines[at]["calls"].as_u64().unwrap());
    assert_eq!((told["waiting"].as_u64(), lines.len()), (Some(63), 50));
    assert_eq!([line(0), line(1), line(49)], [("long", 3), ("n00", 1), ("n48", 1)]);
}

#[test]
fn a_breaker_that_is_not_closed_is_named_and_one_that_closes_is_no_more() {
    let mut w = World::pair("echo");
    let state = |w: &mut World, id| {
        let told = stats(w, id);
        let one = told["breakers"].as_array().unwrap().first().cloned();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        one.map(|one| ["agent_id", "capability", "state"].map(|key| text(&one, key)).join(" "))
    };
    for id in 1..=20 {
        w.say("c", &call(id, "echo"));
        w.say("p", &failed(id, "handler_error", true));
    }
    assert_eq!(state(&mut w, 100).as_deref(), Some("p echo open"));
    w.advance_alive(10_000);
    w.say("c", &call(30, "echo"));
    assert_eq!(state(&mut w, 101).as_deref(), Some("p echo half_open"));
    w.say("p", &completed(21));
    let closed = state(&mut w, 102);
    assert_eq!(closed, None);
}

#[test]
fn the_memory_of_the_process_is_what_the_shell_told_last() {
    let mut w = World::pair("echo");
    assert_eq!(stats(&mut w, 1)["resident_bytes"], Value::Nil);
    w.input(Input::Resident { bytes: 5 });
    w.input(Input::Resident { bytes: 7 });
    assert_eq!(stats(&mut w, 2)["resident_bytes"].as_u64(), Some(7));
}
