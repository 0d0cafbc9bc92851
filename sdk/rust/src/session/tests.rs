//! The session in virtual time, against a hub made of envelopes.

mod asking;
mod connection;
mod deciding;
mod keeping;
mod providing;
mod returning;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{
    Accept, CallResult, Cancel, Chunk, Dispatch, Goodbye, Granted, Labels, Private, ResultStatus, ToHub,
    Welcome, decode_to_hub, encode,
};
use bytes::Bytes;

use super::*;
use crate::payload::Payload;
use crate::provide::Capability;

/// One agent in the hands of a test.
struct World {
    session: Session,
    now: Now,
    max_message: u64,
    max_in_flight: u64,
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl World {
    fn seeded(seed: u64) -> Self {
        let registration = Registration {
            agent_id: "a".to_owned(),
            instance: "i".to_owned(),
            max_concurrency: 2,
            capabilities: [("x".to_owned(), Capability::new("x"))].into(),
            ..Registration::default()
        };
        let session = Session::new(registration, seconds(5), Backoff::default(), seed, None);
        Self { session, now: Now::default(), max_message: 10_000, max_in_flight: 10 }
    }

    fn new() -> Self {
        Self::seeded(7)
    }

    /// In session, with the greeting over.
    fn ready() -> Self {
        let mut world = Self::new();
        assert_eq!(world.give(Input::Start), [Effect::Dial]);
        world.greet();
        world
    }

    fn greet(&mut self) {
        assert_eq!(self.give(Input::Opened), []);
        assert!(matches!(self.sent().as_slice(), [(1, _)]));
        assert_eq!(self.welcome(), [Effect::Ready(usize::try_from(self.max_message).unwrap())]);
    }

    fn welcome(&mut self) -> Vec<Effect> {
        let message = encode(
            &Welcome {
                session: "s",
                hub: "h",
                features: vec![],
                keepalive_ms: 5000,
                suspect_ms: 15_000,
                gone_ms: 30_000,
                max_message: self.max_message,
                max_in_flight: self.max_in_flight,
                granted: Granted { provide: vec![], call: vec![] },
                warnings: vec![],
                replaced: false,
            },
            None,
        );
        self.give(Input::Message(message))
    }

    fn give(&mut self, input: impl Into<Input>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.session.handle(self.now, input.into(), &mut effects);
        effects
    }

    fn hub<'a, H: agent_reach_protocol::Header<'a>>(
        &mut self,
        header: &H,
        body: Option<&[u8]>,
    ) -> Vec<Effect> {
        let message = encode(header, body);
        self.give(Input::Message(message))
    }

    /// Lets time pass, stopping at each timeout; heartbeats and effects are collected.
    fn pass(&mut self, time: Duration) -> Vec<Effect> {
        let end = self.now.after(time);
        let mut effects = Vec::new();
        while let Some(at) = self.session.next_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            effects.extend(self.give(Input::Timeout));
        }
        self.now = end;
        effects
    }

    /// Kinds and bytes of all that was to be written.
    fn sent(&mut self) -> Vec<(u64, Bytes)> {
        let mut sent = Vec::new();
        while let Some(message) = self.session.pop() {
            let kind = decode_to_hub(&message, None).unwrap().0.kind().number();
            sent.push((kind, message));
        }
        if !sent.is_empty() {
            self.give(Input::Wrote);
        }
        sent
    }

    fn one(&mut self) -> Bytes {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0).1
    }

    fn lose(&mut self) -> Vec<Effect> {
        self.give(Input::Lost(None, "gone".to_owned()))
    }

    /// Waits out the reconnect delay and greets again.
    fn come_back(&mut self) {
        loop {
            self.now = self.session.next_timeout().unwrap();
            if self.give(Input::Timeout).contains(&Effect::Dial) {
                break;
            }
        }
        self.give(Input::Opened);
        self.sent();
        self.welcome();
    }

    fn goodbye(&mut self, code: &str, after: Option<u64>) -> Vec<Effect> {
        self.hub(&Goodbye { code, reason: Some("because"), reconnect_after_ms: after }, None)
    }

    fn open(&mut self, key: CallKey, spec: CallSpec) -> Vec<Effect> {
        self.give(Work::Open(key, Arc::new(spec)))
    }
}

fn spec() -> CallSpec {
    CallSpec { capability: "y".to_owned(), payload: Payload::new(&b"in"[..]), ..CallSpec::default() }
}

fn result(id: u64) -> CallResult<'static> {
    CallResult {
        id: Some(id),
        status: ResultStatus::Completed,
        request_id: None,
        call_id: Some("c"),
        target: Some("p"),
        task_id: None,
        execution_ms: None,
        attempts: vec![],
        route: None,
        cached: false,
        duplicate: false,
        error: None,
        more: false,
        summary: None,
        content_type: None,
        private: Private::default(),
    }
}

fn accept(id: u64) -> Accept<'static> {
    Accept {
        id,
        queue_depth: None,
        would_timeout: false,
        wait_ms: None,
        request_id: None,
        call_id: Some("c"),
        target: Some("p"),
        attempt: Some(1),
        task_id: None,
        private: Private::default(),
    }
}

fn chunk(id: u64, seq: u64) -> Chunk<'static> {
    Chunk { id, seq, target: None, content_type: None, private: Private::default() }
}

fn dispatch(id: u64, request_id: &'static str, stream: Option<u64>) -> Dispatch<'static> {
    Dispatch {
        id,
        request_id,
        call_id: "c",
        capability: "x",
        caller: "them",
        attempt: 1,
        deadline_ms: 60_000,
        preferred_timeout_ms: None,
        stream: stream.is_some(),
        credit: stream,
        mode: agent_reach_protocol::CallMode::Call,
        priority: agent_reach_protocol::Priority::Normal,
        labels: Labels::default(),
        traceparent: None,
        tracestate: None,
        content_type: None,
        task_id: None,
        private: Private::default(),
    }
}

/// Reads an envelope of one kind.
macro_rules! read {
    ($message:expr, $kind:ident) => {
        match decode_to_hub($message, None).unwrap() {
            (ToHub::$kind(header), body) => (header, body),
            other => panic!("{other:?}"),
        }
    };
}
use read;
