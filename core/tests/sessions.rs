//! HELLO, WELCOME, strictness, rights, and the ends of sessions.
#![cfg(test)]

mod world;

use std::sync::Arc;

use agent_reach_core::{Fact, Input, Policy, Rule, Settings};
use agent_reach_protocol::{Capability, Hello, Update};
use bytes::Bytes;
use world::*;

fn refused(hello: &Hello<'_>) -> Vec<String> {
    let mut w = World::new();
    w.open("a");
    w.say("a", hello);
    let heard = w.heard("a");
    w.lose("a");
    assert_eq!((w.hub.gauges().connections, w.hub.gauges().outbound_bytes), (0, 0));
    heard
}

#[test]
fn a_hello_that_cannot_be_used_ends_the_connection() {
    for (hello, code, close) in [
        (Hello { v: 2, ..caller("a") }, "version_unsupported", 4505),
        (caller("b"), "unauthorized", 4503),
        (caller("a b"), "protocol_error", 4501),
        (Hello { calls: Some(vec!["not*a*pattern"]), ..caller("a") }, "protocol_error", 4501),
    ] {
        assert_eq!(refused(&hello), [format!("GOODBYE {code}"), format!("CLOSE {close} {code}")]);
    }
}

#[test]
fn what_cannot_be_trusted_ends_the_connection_and_what_is_wrong_in_a_header_does_not() {
    for (bytes, heard) in [
        (&b"\xff\xff"[..], &["GOODBYE protocol_error", "CLOSE 4501 protocol_error"][..]),
        (b"\x93\x0a\x80\xc0\xc0", &["GOODBYE protocol_error", "CLOSE 4501 protocol_error"]),
        (b"\x93\x01\x80\xc0", &["GOODBYE protocol_error", "CLOSE 4501 protocol_error"]),
        (b"\x93\x63\x80\xc0", &["ERROR unknown_kind kind=99"]),
        (b"\x93\x02\x80\xc0", &["ERROR invalid_request kind=2"]),
        (b"\x93\x0f\x80\xc0", &["ERROR invalid_request kind=15"]),
    ] {
        let mut w = World::new();
        w.join("a", caller("a"));
        w.say_bytes("a", Bytes::from_static(bytes));
        assert_eq!(w.heard("a"), heard, "{bytes:02x?}");
    }
}

#[test]
fn nothing_comes_before_hello() {
    let mut w = World::new();
    w.open("a");
    w.say("a", &call(1, "echo"));
    assert_eq!(w.heard("a"), ["GOODBYE protocol_error", "CLOSE 4501 protocol_error"]);
    w.say("a", &caller("a"));
    assert_eq!(w.heard("a"), Vec::<String>::new());
}

#[test]
fn names_are_folded_or_left_out_with_a_warning_and_the_others_register() {
    let mut w = World::new();
    w.open("a");
    let offer = |name| capability(name);
    let capabilities = vec![offer("Say_Hello"), offer("hub.mine"), offer("bad name"), offer("echo")];
    w.say("a", &Hello { capabilities, ..caller("a") });
    let heard = w.heard("a");
    assert_eq!(heard.len(), 1);
    for part in ["Say_Hello", "say-hello", "hub.mine", "bad name"] {
        assert!(heard[0].contains(part), "{part}: {heard:?}");
    }
    w.join("c", caller("c"));
    w.say("c", &call(1, "say-hello"));
    w.say("c", &call(2, "echo"));
    assert_eq!(w.heard("a"), ["CALL 1 say-hello by=c try=1", "CALL 2 echo by=c try=1"]);
}

fn ruled(provide: &str, call: &str) -> Policy {
    let rule = Rule {
        identity: None,
        agent_ids: None,
        provide: vec![provide.parse().unwrap()],
        call: vec![call.parse().unwrap()],
    };
    Policy { version: 1, rules: vec![rule], ..Policy::default() }
}

#[test]
fn only_what_is_granted_is_offered_and_only_what_is_granted_and_declared_is_called() {
    let mut w = World::under(Settings::default(), ruled("text.*", "text.*"));
    w.open("p");
    w.say("p", &Hello { capabilities: vec![capability("text.a"), capability("other")], ..caller("p") });
    assert_eq!(w.heard("p"), ["WELCOME [\"capability other left out: not granted\"]"]);
    w.join("c", Hello { calls: Some(vec!["text.b", "other"]), ..caller("c") });
    w.join("d", caller("d"));
    w.say("c", &call(1, "text.a"));
    w.say("c", &call(2, "other"));
    w.say("d", &call(1, "text.a"));
    w.say("p", &Update { add: vec![capability("other.too")], ..update() });
    assert_eq!(
        w.all_heard(),
        [
            "c: RESULT 1 unauthorized",
            "c: RESULT 2 unauthorized",
            "p: CALL 1 text.a by=d try=1",
            "p: ERROR unauthorized kind=3"
        ]
    );
}

/// Everything is granted, and these names are the dictionary.
fn closed(names: &[&str]) -> Policy {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Policy { dictionary: Some(Arc::new(names)), ..ruled("*", "*") }
}

#[test]
fn what_is_not_in_a_closed_dictionary_is_left_out_with_the_nearest_names() {
    let mut w = World::under(Settings::default(), closed(&["text.upper", "text.lower", "order.create"]));
    w.open("p");
    let alias = Capability { aliases: vec!["order.make"], ..capability("order.create") };
    let wrong = vec![capability("text_uper"), capability("text.lower"), alias, capability("else")];
    w.say("p", &Hello { capabilities: wrong, ..caller("p") });
    let heard = w.heard("p");
    for part in [
        "capability text-uper left out: not in the dictionary; nearest: text.upper",
        "capability order.create left out: its alias order.make is not in the dictionary\"",
        "capability else left out: not in the dictionary\"",
    ] {
        assert!(heard[0].contains(part), "{part}: {heard:?}");
    }
    w.join("c", caller("c"));
    for (id, name) in [(1, "text.lower"), (2, "text-uper"), (3, "order.create")] {
        w.say("c", &call(id, name));
    }
    assert_eq!(w.heard("p"), ["CALL 1 text.lower by=c try=1"]);
    assert_eq!(w.heard("c"), ["RESULT 2 no_capability", "RESULT 3 no_capability"]);
    w.say("p", &Update { add: vec![capability("text.uppe")], ..update() });
    assert_eq!(w.heard("p"), ["ERROR unauthorized kind=3"]);
}

#[test]
fn a_new_dictionary_counts_at_once() {
    let mut w = World::under(Settings::default(), ruled("*", "*"));
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.input(Input::SetPolicy(closed(&["other"])));
    w.say("c", &call(1, "echo"));
    assert_eq!(w.heard("c"), ["RESULT 1 no_instance retryable"]);
}

#[test]
fn new_rules_count_at_once_and_running_calls_go_on() {
    let mut w = World::under(Settings::default(), ruled("*", "*"));
    w.join("p", provider("p", "echo"));
    w.join("c", caller("c"));
    w.say("c", &call(1, "echo"));
    w.heard("p");
    w.input(Input::SetPolicy(ruled("other", "*")));
    w.say("c", &call(2, "echo"));
    w.say("p", &completed(1));
    assert_eq!(w.all_heard(), ["c: RESULT 2 no_instance retryable", "c: RESULT 1 completed of=p"]);
    w.input(Input::SetPolicy(Policy::default()));
    assert_eq!(
        w.all_heard(),
        [
            "c: GOODBYE unauthorized",
            "c: CLOSE 4503 unauthorized",
            "p: GOODBYE unauthorized",
            "p: CLOSE 4503 unauthorized"
        ]
    );
}

#[test]
fn a_certificate_that_is_no_longer_good_ends_the_session() {
    for (revoked, code, close) in [(false, "credentials_expired", 4004), (true, "credentials_revoked", 4504)]
    {
        let mut w = World::new();
        w.join("a", caller("a"));
        w.input(Input::CredentialsEnded { connection: w.connection("a"), revoked });
        assert_eq!(w.heard("a"), [format!("GOODBYE {code}"), format!("CLOSE {close} {code}")]);
    }
}

#[test]
fn a_message_over_the_limit_ends_the_session_with_1009() {
    let mut w = World::new();
    w.join("a", caller("a"));
    w.input(Input::TooLarge { connection: w.connection("a") });
    assert_eq!(w.heard("a"), ["GOODBYE message_too_large", "CLOSE 1009 message_too_large"]);
}

#[test]
fn an_agents_goodbye_lets_what_is_queued_leave_first() {
    let mut w = World::pair("echo");
    w.say("c", &call(1, "echo"));
    w.say("p", &completed(1));
    w.say("c", &goodbye());
    assert_eq!(w.heard("c"), ["RESULT 1 completed of=p", "CLOSE 1000 normal"]);
    assert!(w.take_facts().iter().any(|fact| matches!(fact, Fact::Left { reason: "normal", .. })));
    assert_eq!(w.hub.gauges().agents_away, 0);
}

#[test]
fn an_offer_can_be_changed_while_connected() {
    let mut w = World::pair("echo");
    let slow = Capability { version: Some("not semver"), ..capability("echo") };
    w.say("p", &Update { add: vec![slow], remove: vec!["never"], ..update() });
    assert_eq!(w.heard("p"), ["ERROR invalid_request kind=3", "ERROR invalid_request kind=3"]);
    w.say("c", &call(1, "echo"));
    assert_eq!(w.heard("p"), ["CALL 1 echo by=c try=1"]);
}
