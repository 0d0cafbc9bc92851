//! A row of operations on the hub, written down in bytes: peers that connect, register, call, answer, talk
//! nonsense, read late or not at all, and leave. After each operation holds what can be seen from outside.

mod envelopes;
mod peer;
mod script;
mod store;

use std::collections::BTreeMap;

use agent_reach_core::{
    BreakerSettings, ConnectionId, Effects, Fact, Gauges, Hub, Input, Now, Outgoing, Peer, Policy, Rule,
    Settings, StoreNews, Tier,
};
use agent_reach_protocol::Kind;
use bytes::Bytes;

use envelopes::AGENTS;
use peer::Conn;
use script::Script;
use store::Store;

/// Places for connections.
const PLACES: usize = 5;
/// Most operations of one script.
const OPERATIONS_MAX: usize = 2000;
/// What a queue may hold beyond its bound: the last message that passed it, or GOODBYE and close.
const OUTBOUND_SLACK: usize = 2048;
/// Most that the memory of request ids holds for one open call.
const ENTRY_MOST: usize = 512;

pub(crate) fn run(data: &[u8]) {
    let mut world = World::new(Script::new(data));
    for _ in 0..OPERATIONS_MAX {
        if world.script.is_over() {
            break;
        }
        world.operation();
        world.check();
    }
    world.everybody_leaves();
}

struct World<'a> {
    script: Script<'a>,
    hub: Hub,
    now: Now,
    settings: Settings,
    places: [Option<Conn>; PLACES],
    generation: u32,
    /// The number of the rules in force.
    rules: u8,
    /// Calls that went to another agent after a failure.
    moved: u64,
    store: Store,
}

fn settings(script: &mut Script<'_>) -> Settings {
    let settings = Settings {
        seed: 7,
        handshake_timeout_ms: 1000,
        keepalive_ms: 1000,
        suspect_ms: 3000,
        gone_ms: 5000,
        resume_ms: script.pick(&[2000, 0]),
        max_message: script.pick(&[65_536, 1 << 20]),
        max_in_flight: script.pick(&[20, 2]),
        outbound_bytes: script.pick(&[1 << 20, 4096]),
        open_bytes: script.pick(&[1 << 20, 20_000]),
        open_bytes_each: script.pick(&[1 << 20, 10_000]),
        registrations_per_10s: script.pick(&[5, 1000]),
        accept_timeout_ms: 500,
        timeout_ms: 2000,
        budget_ms: 5000,
        dedupe_bytes: script.pick(&[1 << 20, 3000, 0]),
        traces: 20,
        names: 20,
        watch_bytes: script.pick(&[1 << 20, 2000]),
        retry_base_ms: 100,
        store: true,
        task_bytes: 50_000,
        return_ms: 3000,
        redeliver_ms: 1000,
        breaker: BreakerSettings { window_ms: 2000, min_success: 0.6, min_calls: 2, open_ms: 500 },
        ..Settings::default()
    };
    // Of the bytes that are there, so that what was found keeps its meaning.
    Settings { queue_len: settings.max_in_flight / 2, ..settings }
}

/// The rules by number: all, some, none.
fn policy(number: u8) -> Policy {
    let parsed = |patterns: &[&str]| patterns.iter().map(|text| text.parse().expect("a pattern")).collect();
    let rule = |provide: &[&str], call: &[&str]| Rule {
        identity: None,
        agent_ids: None,
        provide: parsed(provide),
        call: parsed(call),
    };
    let rules = match number % 3 {
        0 => vec![rule(&["*"], &["*", "hub.*"])],
        1 => vec![rule(&["a", "a.*"], &["a", "b", "hub.stats"])],
        _ => Vec::new(),
    };
    Policy {
        version: u64::from(number),
        rules,
        aliases: BTreeMap::from([("also-a".to_owned(), "a".to_owned())]),
        ..Policy::default()
    }
}

impl<'a> World<'a> {
    fn new(mut script: Script<'a>) -> Self {
        let settings = settings(&mut script);
        let hub = Hub::new(settings.clone(), policy(0));
        Self {
            script,
            hub,
            now: Now::from_millis(1),
            settings,
            places: [const { None }; PLACES],
            generation: 0,
            rules: 0,
            moved: 0,
            store: Store::default(),
        }
    }

    fn operation(&mut self) {
        let what = self.script.byte();
        if matches!(what, 0x7e | 0x8e | 0x9e | 0xae) {
            return self.at_the_store(what);
        }
        match what % 16 {
            0 | 1 => self.connect(),
            2..=10 => self.at_a_place(),
            11 | 12 => self.time_passes(),
            13 => {
                self.say_rules_again();
                self.rules = self.script.byte();
                self.input(Input::SetPolicy(policy(self.rules)));
            }
            14 if self.script.byte() > 250 => self.input(Input::Stop),
            15 if self.script.byte() > 230 => {
                let drain_ms = self.script.pick(&[0, 1000]);
                self.input(Input::Drain { drain_ms });
            }
            _ => self.everybody_reads(),
        }
    }

    fn connect(&mut self) {
        let index = usize::from(self.script.byte()) % PLACES;
        if self.places[index].is_some() {
            self.close(index);
        }
        self.generation += 1;
        let id = ConnectionId { index: u32::try_from(index).expect("small"), generation: self.generation };
        let name = self.script.pick(&AGENTS);
        let peer = Peer { identity: format!("spiffe://d/agent/{name}").into(), name: name.into() };
        self.places[index] = Some(Conn::new(id, name));
        self.input(Input::Connected { connection: id, peer });
        // Most say HELLO at once; a script that has to find it first would find little else.
        if self.script.byte() < 224 {
            self.message_from(index, |script, conn| envelopes::hello(script, conn.name));
        }
    }

    fn close(&mut self, index: usize) {
        let Some(conn) = self.places[index].take() else { return };
        self.input(Input::Closed { connection: conn.id });
        let mut batch = Vec::new();
        assert!(
            self.hub.take_outbound(conn.id, 1, 1, &mut batch).is_none(),
            "a closed connection has a queue"
        );
        assert!(self.hub.is_over(conn.id));
    }

    /// Something that one connection does, or what is done to it.
    fn at_a_place(&mut self) {
        let index = usize::from(self.script.byte()) % PLACES;
        let Some(connection) = self.places[index].as_ref().map(|conn| conn.id) else { return };
        match self.script.byte() % 32 {
            0..=7 => self.message_from(index, |script, _| envelopes::call(script)),
            8..=10 => self.message_from(index, |script, conn| {
                let id = conn.given(script);
                envelopes::accept(script, id)
            }),
            11..=13 => self.message_from(index, |script, conn| {
                let id = conn.given(script);
                envelopes::chunk(script, id)
            }),
            14..=17 => self.message_from(index, |script, conn| {
                let id = conn.given(script);
                envelopes::result(script, id)
            }),
            18 => self.message_from(index, |script, _| {
                let id = script.pick(&[1, 2, 3, 4, 5, 6, 7, 8]);
                envelopes::cancel(script, id)
            }),
            19 => self.message_from(index, |script, _| {
                let id = script.pick(&[1, 2, 3, 4, 5, 6, 7, 8]);
                envelopes::credit(script, id)
            }),
            20 | 21 => self.message_from(index, |script, _| envelopes::update(script)),
            22 => self.message_from(index, |_, _| envelopes::goodbye()),
            23 => self.message_from(index, |script, conn| envelopes::hello(script, conn.name)),
            24 => self.message_from(index, |_, _| envelopes::receipt()),
            25 => self.message_from(index, |script, _| Bytes::copy_from_slice(script.bytes())),
            26 => self.close(index),
            27 => self.input(Input::Alive { connection }),
            28 => self.trouble(index, connection),
            _ => {
                let frames = 1 + usize::from(self.script.byte()) % 4;
                self.read(index, frames, 10_000);
            }
        }
    }

    /// What the shell says of a connection when something is wrong with it.
    fn trouble(&mut self, index: usize, connection: ConnectionId) {
        let kind = self.script.byte() % 6;
        let last = self.places[index].as_ref().and_then(|conn| conn.last_read.clone());
        self.input(match (kind, last) {
            (0, _) => Input::Untrusted { connection, reason: "text".to_owned() },
            (1, _) => Input::TooLarge { connection },
            (2, _) => Input::CredentialsEnded { connection, revoked: self.generation.is_multiple_of(2) },
            (3, _) => Input::Unidentified { connection, reason: "nobody".to_owned() },
            (_, Some(message)) => Input::Undeliverable { connection, message, reason: "no JSON".to_owned() },
            (_, None) => Input::Alive { connection },
        });
    }

    fn message_from(&mut self, index: usize, make: impl FnOnce(&mut Script<'a>, &Conn) -> Bytes) {
        let Some(conn) = &mut self.places[index] else { return };
        let message = make(&mut self.script, conn);
        if message.len() > self.settings.max_message {
            return;
        }
        conn.sends(&message);
        let connection = conn.id;
        self.input(Input::Message { connection, message, fault: None });
    }

    fn time_passes(&mut self) {
        let next = self.hub.next_timeout().unwrap_or(self.now);
        self.now = match self.script.byte() % 8 {
            0 => self.now.max(next),
            1 => self.now.max(Now::from_micros(next.micros().saturating_sub(1))),
            2 => self.now.plus_ms(1),
            3 => self.now.plus_ms(400),
            4 => self.now.plus_ms(1500),
            5 => self.now.plus_ms(6000),
            6 => self.now.plus_ms(100_000_000),
            // Other input may come before the shell notices that time has passed.
            _ => {
                self.now = self.now.plus_ms(3000);
                return;
            }
        };
        self.tick();
    }

    fn tick(&mut self) {
        self.input(Input::Tick);
        if self.settings.resume_ms == 0 {
            // Who is cut off at the end of a tick may come back within no time: that is due at once, and once.
            self.input(Input::Tick);
        }
        let next = self.hub.next_timeout();
        assert!(
            next.is_none_or(|next| next > self.now),
            "still due after a tick: {next:?} at {:?}",
            self.now
        );
    }

    fn input(&mut self, input: Input) {
        let mut effects = Effects::default();
        self.hub.handle(self.now, input, &mut effects);
        for id in std::mem::take(&mut effects.wake) {
            let known = self.places.iter().flatten().any(|conn| conn.id == id);
            assert!(known, "{id:?} is woken and is not there");
            assert!(
                self.hub.take_outbound(id, 0, 0, &mut Vec::new()).is_some(),
                "{id:?} is woken for nothing"
            );
        }
        let moved = effects.facts.iter().filter(|fact| matches!(fact, Fact::Retry(Tier::OtherAgent)));
        self.moved += moved.count() as u64;
        self.store.hear(&mut effects);
    }

    fn everybody_reads(&mut self) {
        for index in 0..PLACES {
            self.read(index, 100, usize::MAX);
        }
    }

    fn read(&mut self, index: usize, frames: usize, bytes: usize) {
        let Some(conn) = &mut self.places[index] else { return };
        let before = self.hub.gauges().outbound_bytes;
        let mut batch = Vec::new();
        if self.hub.take_outbound(conn.id, frames, bytes, &mut batch).is_none() {
            return;
        }
        let taken: usize = batch.iter().map(cost).sum();
        assert_eq!(before - self.hub.gauges().outbound_bytes, taken, "the gauge and what was taken");
        conn.reads(&batch, self.settings.max_message);
    }

    fn check(&self) {
        let gauges = self.hub.gauges();
        self.check_waiting(&gauges);
        let Gauges { connections, outbound_bytes, open_bytes, remembered_bytes, calls, .. } = gauges;
        let open = self.places.iter().flatten().count();
        assert_eq!(connections, open);
        let largest = self.settings.max_message + OUTBOUND_SLACK;
        assert!(outbound_bytes <= open * (self.settings.outbound_bytes + largest), "{outbound_bytes} queued");
        assert!(open_bytes <= self.settings.open_bytes + largest, "{open_bytes} in open calls");
        // An open call has an entry that nothing drives out.
        let remembered_most = self.settings.dedupe_bytes + calls * ENTRY_MOST;
        assert!(remembered_bytes <= remembered_most, "{remembered_bytes} remembered");
        let most = AGENTS.len() * self.settings.max_in_flight + self.store.tasks;
        assert!(calls <= most, "{calls} calls");
    }

    fn check_waiting(&self, gauges: &Gauges) {
        let queued = self.hub.queued();
        let all: usize = queued.iter().map(|(_, len)| len).sum();
        assert_eq!(all, gauges.waiting, "{queued:?}");
        assert!(gauges.waiting <= gauges.calls, "{gauges:?}");
        // Tasks wait beside them.
        let longest = self.settings.queue_len + self.store.tasks;
        assert!(queued.iter().all(|(_, len)| *len <= longest), "{queued:?}");
        assert!(gauges.breakers_half_open <= gauges.in_flight, "a trial without a call: {gauges:?}");
        // One for each connection, leg, call without a leg, line and agent; the sweep and the drain.
        let most = 2 * gauges.calls + gauges.connections + gauges.in_flight + 2 * AGENTS.len() + 2;
        assert!(gauges.timers <= most, "{gauges:?}");
    }

    /// The same rules once more let no call go that waits: it could have gone before.
    fn say_rules_again(&mut self) {
        let before = (self.hub.counters().frames_out(Kind::Call), self.hub.gauges().waiting);
        let due = self.hub.next_timeout().is_some_and(|next| next <= self.now.plus_ms(3));
        let moved = self.moved;
        self.input(Input::SetPolicy(policy(self.rules)));
        let moved = self.moved - moved;
        let given = self.hub.counters().frames_out(Kind::Call) - before.0;
        assert!(due || given <= moved, "{given} of {} calls waited for who could take them", before.1);
    }

    /// When everybody has left and every window has passed, nothing is left of anybody.
    fn everybody_leaves(&mut self) {
        for index in 0..PLACES {
            self.close(index);
        }
        self.check();
        self.input(Input::Store(StoreNews::Writable(true)));
        self.input(Input::Store(StoreNews::Written { up_to: u64::MAX }));
        for _ in 0..10_000 {
            while !self.store.is_idle() {
                self.write_all();
                self.answer_all();
            }
            let Some(next) = self.hub.next_timeout() else { break };
            self.now = self.now.max(next);
            self.tick();
        }
        let left = self.hub.gauges();
        if self.hub.is_draining() && left.calls > 0 {
            // Tasks that wait are for the next hub.
            let tasks: usize = left.tasks.iter().sum();
            assert_eq!((left.calls, left.timers, left.in_flight), (tasks, 0, 0), "something is left");
            return;
        }
        assert_eq!(left, Gauges::default(), "something is left");
    }
}

/// What counts against the bound of a queue.
fn cost(outgoing: &Outgoing) -> usize {
    size_of::<Outgoing>() + outgoing.message().map_or(0, |message| message.len())
}
