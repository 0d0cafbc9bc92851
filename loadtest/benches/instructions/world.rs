//! A hub with a caller and some providers, all registered.

use agent_reach_core::{ConnectionId, Effects, Hub, Input, Now, Outgoing, Peer, Policy, Settings};
use bytes::Bytes;

use crate::envelopes::hello;

/// Place of the caller; providers follow.
pub(crate) const CALLER: u32 = 0;

/// A hub and its connections, which are named by their places.
pub(crate) struct World {
    hub: Hub,
    effects: Effects,
    batch: Vec<Outgoing>,
    handled: u64,
}

impl World {
    /// With so many providers of one capability.
    pub(crate) fn new(providers: u32) -> Self {
        let hub = Hub::new(Settings::default(), Policy::open());
        let mut world = Self { hub, effects: Effects::default(), batch: Vec::new(), handled: 0 };
        for place in 0..=providers {
            let name = format!("agent-{place:06}");
            let identity = format!("spiffe://agent-reach/agent/{name}").into();
            let peer = Peer { identity, name: name.as_str().into() };
            world.input(Input::Connected { connection: connection(place), peer });
            assert_eq!(world.say(place, hello(&name, place != CALLER)), 1, "WELCOME");
        }
        world
    }

    /// A message comes, and what waits for others because of it leaves. Says how many messages that was.
    pub(crate) fn say(&mut self, place: u32, message: Bytes) -> usize {
        self.input(Input::Message { connection: connection(place), message, fault: None });
        self.batch.clear();
        for connection in &self.effects.wake {
            while self.hub.take_outbound(*connection, 64, usize::MAX, &mut self.batch).is_some() {}
        }
        self.batch.len()
    }

    fn input(&mut self, input: Input) {
        // A millisecond for each eight inputs: a hub under load.
        let now = Now::from_millis(1000 + self.handled / 8);
        self.handled += 1;
        self.effects.clear();
        self.hub.handle(now, input, &mut self.effects);
    }
}

const fn connection(place: u32) -> ConnectionId {
    ConnectionId { index: place, generation: 1 }
}
