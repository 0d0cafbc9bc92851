//! A world for the core: a clock that moves when a test says so, and named connections that speak the real
//! wire bytes. What the hub answers is read back from the bytes as one line of text for each envelope.
#![allow(dead_code, reason = "every test file uses its own part of the world")]

mod disk;
mod frames;
mod shown;

use std::collections::BTreeMap;

use agent_reach_core::{
    ConnectionId, Effects, Fact, Hub, Input, Now, Outgoing, Peer, Policy, Settings, TOKEN_PREFIX,
};
use agent_reach_protocol::{Header, encode};
use bytes::Bytes;

#[allow(unused_imports, reason = "every test file uses its own part of the world")]
pub(crate) use disk::Disk;
pub(crate) use frames::*;
#[allow(unused_imports, reason = "every test file uses its own part of the world")]
pub(crate) use shown::{bodies, shown};

/// The hub, the time, and who is connected.
pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) now: Now,
    pub(crate) facts: Vec<Fact>,
    /// What the hub has said to its store.
    pub(crate) disk: Disk,
    /// Reloads that the hub has asked for.
    pub(crate) reloads: Vec<u64>,
    connections: BTreeMap<String, ConnectionId>,
    next_index: u32,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self::under(settings, Policy::open())
    }

    pub(crate) fn under(settings: Settings, policy: Policy) -> Self {
        Self {
            hub: Hub::new(settings, policy),
            now: Now::from_millis(1000),
            facts: Vec::new(),
            disk: Disk::default(),
            reloads: Vec::new(),
            connections: BTreeMap::new(),
            next_index: 0,
        }
    }

    /// Hands one cause to the hub, and checks what always has to hold.
    pub(crate) fn input(&mut self, input: Input) {
        let mut effects = Effects::default();
        self.hub.handle(self.now, input, &mut effects);
        self.facts.extend(effects.facts);
        self.disk.hear(effects.changes, effects.asks);
        self.reloads.extend(effects.reloads);
    }

    /// Opens a WebSocket. `name` is `agent`, or `agent#2` for a further connection of the same agent; `token:agent#2`
    /// comes with a token and no certificate.
    pub(crate) fn open(&mut self, name: &str) {
        let (connection, peer) = self.name(name);
        self.input(Input::Connected { connection, peer });
    }

    /// Somebody of this name only calls.
    pub(crate) fn open_guest(&mut self, name: &str) {
        let (connection, peer) = self.name(name);
        self.input(Input::Guest { connection, peer });
    }

    fn name(&mut self, name: &str) -> (ConnectionId, Peer) {
        let connection = ConnectionId { index: self.next_index, generation: 1 };
        self.next_index += 1;
        self.connections.insert(name.to_owned(), connection);
        let agent = name.split('#').next().unwrap();
        let peer = match agent.strip_prefix(TOKEN_PREFIX) {
            Some(own) => Peer { identity: agent.into(), name: own.into() },
            None => Peer { identity: format!("spiffe://d/agent/{agent}").into(), name: agent.into() },
        };
        (connection, peer)
    }

    /// Opens a WebSocket, says HELLO and forgets the WELCOME.
    pub(crate) fn join(&mut self, name: &str, hello: agent_reach_protocol::Hello<'_>) {
        self.open(name);
        self.say(name, &hello);
        let answer = self.heard(name);
        assert!(answer[0].starts_with("WELCOME"), "{answer:?}");
        assert_eq!(answer.len(), 1, "{answer:?}");
    }

    /// Opens a WebSocket and says HELLO, to which the hub answers exactly this.
    pub(crate) fn join_and_hear(
        &mut self,
        name: &str,
        hello: agent_reach_protocol::Hello<'_>,
        answer: &[&str],
    ) {
        self.open(name);
        self.say(name, &hello);
        assert_eq!(self.heard(name), answer);
    }

    /// A provider of `capability` and a caller, both registered: the smallest world.
    pub(crate) fn pair(capability: &'static str) -> Self {
        let mut world = Self::new();
        world.join("p", provider("p", capability));
        world.join("c", caller("c"));
        world
    }

    pub(crate) fn connection(&self, name: &str) -> ConnectionId {
        self.connections[name]
    }

    pub(crate) fn say<'a, H: Header<'a>>(&mut self, name: &str, header: &H) {
        self.say_bytes(name, encode(header, None));
    }

    pub(crate) fn say_with<'a, H: Header<'a>>(&mut self, name: &str, header: &H, body: &str) {
        self.say_bytes(name, encode(header, Some(body.as_bytes())));
    }

    pub(crate) fn say_bytes(&mut self, name: &str, message: Bytes) {
        let connection = self.connection(name);
        self.input(Input::Message { connection, message, fault: None });
    }

    /// The socket is gone.
    pub(crate) fn lose(&mut self, name: &str) {
        let connection = self.connection(name);
        self.input(Input::Closed { connection });
    }

    /// Everything that waits for a connection, as it would leave.
    pub(crate) fn take(&mut self, name: &str) -> Vec<Outgoing> {
        let mut batch = Vec::new();
        let connection = self.connection(name);
        while self.hub.take_outbound(connection, 1000, usize::MAX, &mut batch).is_some() {}
        batch
    }

    /// Everything that waits for a connection, one line for each.
    pub(crate) fn heard(&mut self, name: &str) -> Vec<String> {
        self.take(name).iter().map(shown).collect()
    }

    /// Everything that waits for anybody, by name of the connection.
    pub(crate) fn all_heard(&mut self) -> Vec<String> {
        let names: Vec<String> = self.connections.keys().cloned().collect();
        let mut all = Vec::new();
        for name in names {
            all.extend(self.heard(&name).into_iter().map(|line| format!("{name}: {line}")));
        }
        all
    }

    /// Lets time pass; every timer fires at its own moment.
    pub(crate) fn advance(&mut self, ms: u64) {
        let end = self.now.plus_ms(ms);
        while let Some(due) = self.hub.next_timeout().filter(|due| *due <= end) {
            assert!(due >= self.now, "a timer of the past: {due:?} at {:?}", self.now);
            self.now = due;
            self.input(Input::Tick);
            let next = self.hub.next_timeout();
            assert!(next.is_none_or(|next| next > due), "a timer that fired is still due: {next:?}");
        }
        self.now = end;
    }

    /// Lets time pass in which everybody who is connected sends a ping at least every two seconds.
    pub(crate) fn advance_alive(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(2000);
            self.advance(step);
            left -= step;
            let connections: Vec<ConnectionId> = self.connections.values().copied().collect();
            for connection in connections {
                self.input(Input::Alive { connection });
            }
        }
    }

    /// The last WELCOME-to-end story of facts, taken.
    pub(crate) fn take_facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }
}
