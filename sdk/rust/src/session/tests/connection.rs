use super::*;
use crate::errors::CloseReason;

#[test]
fn hello_names_the_same_instance_and_every_capability_after_each_reconnect() {
    let mut world = World::ready();
    world.give(Input::Add(Capability::new("late")));
    let update = world.one();
    assert_eq!(read!(&update, Update).0.add.iter().map(|c| c.name).collect::<Vec<_>>(), ["late"]);
    for _ in 0..5 {
        world.lose();
        let effects = world.pass(seconds(61));
        assert_eq!(effects, [Effect::Dial]);
        world.give(Input::Opened);
        let hello = world.one();
        let hello = read!(&hello, Hello).0;
        assert_eq!((hello.instance, hello.max_concurrency), ("i", Some(2)));
        assert_eq!(hello.capabilities.iter().map(|c| c.name).collect::<Vec<_>>(), ["late", "x"]);
        world.welcome();
    }
}

#[test]
fn an_idle_agent_speaks_within_two_thirds_of_the_keepalive() {
    let mut world = World::ready();
    for _ in 0..5 {
        assert_eq!(world.pass(ms(3333)), []);
        assert_eq!(world.sent(), []);
        world.pass(ms(1));
        let update = world.one();
        assert_eq!(read!(&update, Update).0.load.unwrap().in_flight, Some(0));
        world.give(Input::Alive);
    }
}

#[test]
fn a_silent_hub_is_pinged_and_then_let_go_without_a_polite_close() {
    let mut world = World::ready();
    assert_eq!(world.pass(ms(14_999)), []);
    assert_eq!(world.pass(ms(1)), [Effect::Ping]);
    assert_eq!(world.pass(ms(7_499)), []);
    // Before the hub gives up, at 30 s: what is open then can be carried on.
    assert_eq!(world.pass(ms(1)).first(), Some(&Effect::Abort));
    assert!(world.pass(seconds(61)).contains(&Effect::Dial));
}

#[test]
fn any_frame_proves_that_the_hub_lives() {
    let mut world = World::ready();
    for _ in 0..20 {
        assert_eq!(world.pass(ms(14_000)), []);
        world.sent();
        world.give(Input::Alive);
    }
}

#[test]
fn a_hub_that_welcomes_and_throws_out_is_not_dialled_every_second() {
    let mut world = World::ready();
    let mut dials = 0;
    let end = seconds(600);
    while world.now.0 < end {
        world.lose();
        let at = world.session.next_timeout().unwrap();
        world.now = at;
        assert_eq!(world.give(Input::Timeout), [Effect::Dial]);
        dials += 1;
        world.greet();
    }
    assert!(dials < 40, "{dials} dials in ten minutes");
}

#[test]
fn the_wait_is_short_again_after_a_session_that_lived() {
    let mut world = World::ready();
    for _ in 0..8 {
        world.lose();
        world.now = world.session.next_timeout().unwrap();
        world.give(Input::Timeout);
        world.greet();
    }
    for _ in 0..8 {
        world.give(Input::Alive);
        world.pass(seconds(10));
        world.sent();
    }
    world.lose();
    assert!(world.session.next_timeout().unwrap().since(world.now) <= seconds(1));
}

#[test]
fn a_goodbye_that_lets_come_back_is_honoured_within_its_window() {
    let mut waits = Vec::new();
    for seed in 0..50 {
        let mut world = World::seeded(seed);
        world.give(Input::Start);
        world.greet();
        assert_eq!(world.goodbye("draining", Some(20_000)), [Effect::Leaving, Effect::Close(1000)]);
        world.lose();
        waits.push(world.session.next_timeout().unwrap().since(world.now));
    }
    assert!(waits.iter().all(|wait| *wait <= seconds(20)));
    assert!(waits.iter().any(|wait| *wait < seconds(5)) && waits.iter().any(|wait| *wait > seconds(15)));
}

#[test]
fn open_calls_may_end_on_a_connection_that_the_hub_leaves_and_new_ones_wait() {
    let mut world = World::ready();
    world.open(1, spec());
    world.sent();
    assert_eq!(world.goodbye("draining", Some(0)), [Effect::Leaving]);
    world.open(2, spec());
    assert_eq!(world.sent(), []);
    let effects = world.hub(&result(1), None);
    assert!(matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Ended(Ok(_))), Effect::Close(1000)]));
    world.lose();
    world.come_back();
    assert!(matches!(world.sent().as_slice(), [(10, _)]));
}

#[test]
fn final_goodbyes_end_the_agent_and_its_calls_with_the_reason() {
    for code in ["replaced", "unauthorized", "credentials_revoked", "version_unsupported", "protocol_error"] {
        let mut world = World::ready();
        world.open(1, spec());
        let effects = world.goodbye(code, None);
        let [Effect::Abort, Effect::Tell(1, CallEvent::Ended(Err(error))), Effect::Stopped(reason)] =
            effects.as_slice()
        else {
            panic!("{effects:?}");
        };
        assert_eq!(error.code, Code::Closed);
        assert!(error.message.contains(code), "{}", error.message);
        let expected = CloseReason::Goodbye { code: code.to_owned(), reason: "because".to_owned() };
        assert_eq!(*reason, expected);
        assert_eq!(world.session.next_timeout(), None);
        let late = world.open(2, spec());
        assert!(matches!(late.as_slice(), [Effect::Tell(2, CallEvent::Ended(Err(_)))]));
    }
}

#[test]
fn an_unknown_goodbye_means_what_its_close_code_says() {
    let mut world = World::ready();
    world.goodbye("moved-on", None);
    let effects = world.give(Input::Lost(Some(4777), String::new()));
    assert!(matches!(effects.as_slice(), [Effect::Stopped(_)]), "{effects:?}");
    let mut world = World::ready();
    world.goodbye("moved-on", None);
    world.give(Input::Lost(Some(4077), String::new()));
    assert!(world.pass(seconds(61)).contains(&Effect::Dial));
}

#[test]
fn a_close_code_alone_is_honoured_too() {
    let mut world = World::ready();
    let effects = world.give(Input::Lost(Some(4500), String::new()));
    let expected = CloseReason::Goodbye { code: "replaced".to_owned(), reason: String::new() };
    assert_eq!(effects, [Effect::Stopped(expected)]);
}

#[test]
fn no_welcome_in_time_is_a_lost_connection() {
    let mut world = World::new();
    world.give(Input::Start);
    world.give(Input::Opened);
    assert_eq!(world.pass(seconds(10)).first(), Some(&Effect::Abort));
}

#[test]
fn final_dial_failures_stop_and_others_do_not() {
    let mut world = World::new();
    world.give(Input::Start);
    assert_eq!(world.give(Input::DialFailed(ConnectError::Tls("expired".to_owned()))), []);
    assert_eq!(world.pass(seconds(1)), [Effect::Dial]);
    let error = ConnectError::Http { status: 403, reason: String::new() };
    assert_eq!(world.give(Input::DialFailed(error.clone())), [Effect::Stopped(CloseReason::Connect(error))]);
}

#[test]
fn closing_waits_for_handlers_then_says_goodbye() {
    let mut world = World::ready();
    world.hub(&dispatch(1, "r", None), None);
    assert_eq!(world.give(Input::Close(seconds(10))), []);
    let update = world.one();
    assert_eq!(read!(&update, Update).0.status, Some(agent_reach_protocol::AgentStatus::Draining));
    let effects = world.give(Work::Finished(1, Outcome::Completed(Payload::default())));
    assert_eq!(effects, [Effect::Close(1000)]);
    let sent = world.sent();
    assert_eq!(sent.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [14, 4]);
    assert_eq!(world.give(Input::Lost(Some(1000), String::new())), [Effect::Stopped(CloseReason::Closed)]);
}

#[test]
fn closing_drops_handlers_that_outlast_the_bound() {
    let mut world = World::ready();
    world.hub(&dispatch(1, "r", None), None);
    world.give(Input::Close(seconds(10)));
    assert_eq!(world.pass(seconds(10)), [Effect::AbortRun(1), Effect::Close(1000)]);
    assert_eq!(world.pass(seconds(2)), [Effect::Abort, Effect::Stopped(CloseReason::Closed)]);
}

#[test]
fn bytes_that_are_no_envelope_end_the_connection_and_a_bad_header_does_not() {
    let mut world = World::ready();
    world.open(1, spec());
    world.open(2, spec());
    world.sent();
    // RESULT whose status is a number.
    let bad = Bytes::from_static(b"\x93\x0e\x82\xa2id\x01\xa6status\x05\xc0");
    let effects = world.give(Input::Message(bad));
    assert!(matches!(effects.as_slice(), [Effect::Tell(1, CallEvent::Ended(Err(_)))]), "{effects:?}");
    let effects = world.hub(&result(2), None);
    assert!(matches!(effects.as_slice(), [Effect::Tell(2, CallEvent::Ended(Ok(_)))]), "{effects:?}");
    assert_eq!(world.give(Input::Message(Bytes::from_static(b"\xc1"))), [Effect::Abort]);
}

#[test]
fn what_was_read_together_with_the_end_of_a_session_is_not_taken() {
    let mut world = World::ready();
    assert_eq!(world.give(Input::Message(Bytes::from_static(b"\xc1"))), [Effect::Abort]);
    assert_eq!(world.goodbye("replaced", None), []);
    assert_eq!(world.hub(&dispatch(1, "r", None), None), []);
    assert!(world.pass(seconds(61)).contains(&Effect::Dial));
}

#[test]
fn numbers_of_a_hub_gone_mad_do_no_harm() {
    let mut world = World::ready();
    world.hub(&Dispatch { deadline_ms: u64::MAX, ..dispatch(1, "r", Some(u64::MAX)) }, None);
    world.hub(&agent_reach_protocol::Credit { id: 1, n: u64::MAX, target: None }, None);
    world.goodbye("draining", Some(u64::MAX));
    world.lose();
    assert!(world.pass(seconds(3700)).contains(&Effect::Dial));
}
