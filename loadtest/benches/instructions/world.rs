//! A hub with a caller and some providers, all registered.

use agent_reach_core::{ConnectionId, Effects, Hub, Input, Now, Outgoing, Peer, Policy, Settings};
use bytes::Bytes;

use crate::envelopes::{Offer, SLOTS, hello};

/// Place of the caller; providers follow.
pub(crate) const CALLER: u32 = 0;

/// How fast time passes: that of a hub under load.
const INPUTS_EACH_MS: u64 = 8;

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
        Self::with(Settings::default(), providers, Offer::Slots(SLOTS))
    }

    /// The same with these settings and offers.
    pub(crate) fn with(settings: Settings, providers: u32, offer: Offer<'_>) -> Self {
        let hub = Hub::new(settings, Policy::open());
        let mut world = Self { hub, effects: Effects::default(), batch: Vec::new(), handled: 0 };
        for place in 0..=providers {
            let name = format!("agent-{place:06}");
            let identity = format!("spiffe://agent-reach/agent/{name}").into();
            let peer = Peer { identity, name: name.as_str().into() };
            world.input(Input::Connected { connection: connection(place), peer });
            let offer = if place == CALLER { Offer::Nothing } else { offer };
            assert_eq!(world.say(place, hello(&name, offer)), 1, "WELCOME");
        }
        world
    }

    /// A message comes, and what waits for others because of it leaves. Says how many messages that was.
    pub(crate) fn say(&mut self, place: u32, message: Bytes) -> usize {
        self.input(Input::Message { connection: connection(place), message, fault: None });
        self.leave()
    }

    /// A few milliseconds have passed, and what was due by then leaves. Says how many messages that was.
    pub(crate) fn wait(&mut self) -> usize {
        self.handled += 2 * INPUTS_EACH_MS;
        self.input(Input::Tick);
        self.leave()
    }

    /// Whether what left last was for it.
    pub(crate) fn reached(&self, place: u32) -> bool {
        self.effects.wake.contains(&connection(place))
    }

    fn leave(&mut self) -> usize {
        self.batch.clear();
        for connection in &self.effects.wake {
            while self.hub.take_outbound(*connection, 64, usize::MAX, &mut self.batch).is_some() {}
        }
        self.batch.len()
    }

    fn input(&mut self, input: Input) {
        let now = Now::from_millis(1000 + self.handled / INPUTS_EACH_MS);
        self.handled += 1;
        self.effects.clear();
        self.hub.handle(now, input, &mut self.effects);
    }
}

const fn connection(place: u32) -> ConnectionId {
    ConnectionId { index: place, generation: 1 }
}
