//! A seeded world around the hub: agents that call each other, come and go, read slowly and talk nonsense.

mod dice;
mod invariants;
mod model;
mod peers;
mod reading;

use std::collections::{BTreeMap, VecDeque};

use agent_reach_core::{ConnectionId, Effects, Fact, Hub, Input, Now, Peer, Policy, Rule, Settings};
use bytes::Bytes;

use self::dice::Dice;
use self::model::{Conn, Event, Player, RESUME_MS};
use crate::world::shown;

/// Longest budget of a simulated call, in milliseconds.
pub(crate) const BUDGET_MAX_MS: u64 = 8000;

/// How long the world lives before everybody leaves, in milliseconds.
const LIFE_MS: u64 = 25_000;

/// One run.
pub(crate) struct Sim {
    seed: u64,
    pub(crate) dice: Dice,
    pub(crate) hub: Hub,
    pub(crate) now: Now,
    pub(crate) outbound_bytes: usize,
    pub(crate) players: Vec<Player>,
    pub(crate) conns: BTreeMap<ConnectionId, Conn>,
    events: BTreeMap<(Now, u64), Event>,
    numbers: u64,
    places: Vec<ConnectionId>,
    log: VecDeque<String>,
    log_steps: usize,
    /// What came about, and how often: a world that meets nothing proves nothing.
    met: BTreeMap<String, u64>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let steps: Vec<String> = self.log.drain(..).collect();
            eprintln!("the last steps:\n{}\nSIM_SEED={}", steps.join("\n"), self.seed);
        }
    }
}

fn policy() -> Policy {
    let rule = |identity: Option<&str>, provide: &[&str], call: &[&str]| Rule {
        identity: identity.map(|name| format!("spiffe://d/agent/{name}")),
        agent_ids: None,
        provide: provide.iter().map(|p| p.parse().unwrap()).collect(),
        call: call.iter().map(|p| p.parse().unwrap()).collect(),
    };
    let rules = vec![
        rule(Some("agent-1"), &["x.one", "x.two", "x.three"], &["*"]),
        rule(Some("agent-2"), &["*"], &["x.one", "x.three", "x.secret", "hub.*"]),
        rule(None, &["*"], &["*"]),
    ];
    Policy { version: 1, rules, aliases: BTreeMap::from([("also.one".to_owned(), "x.one".to_owned())]) }
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let outbound_bytes = dice.pick(&[4096, 16_384, 1 << 20]);
        let settings = Settings {
            seed,
            handshake_timeout_ms: 1000,
            keepalive_ms: 1000,
            suspect_ms: 3000,
            gone_ms: dice.pick(&[5000, 12_000]),
            resume_ms: RESUME_MS,
            accept_timeout_ms: 500,
            timeout_ms: 2000,
            budget_ms: 5000,
            max_in_flight: 20,
            outbound_bytes,
            open_bytes: dice.pick(&[20_000, 1 << 20]),
            watch_bytes: dice.pick(&[2000, 1 << 20]),
            traces: 50,
            ..Settings::default()
        };
        let mut sim = Self {
            seed,
            hub: Hub::new(settings, policy()),
            now: Now::from_millis(1),
            outbound_bytes,
            players: Vec::new(),
            conns: BTreeMap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            places: Vec::new(),
            log: VecDeque::new(),
            log_steps: std::env::var("SIM_STEPS").map_or(50, |steps| steps.parse().unwrap_or(50)),
            met: BTreeMap::new(),
            dice,
        };
        let players = sim.dice.from(2, 7);
        for number in 0..players {
            sim.add_player(number);
        }
        sim.later(500, 2000, Event::Audit);
        if sim.dice.percent(50) {
            sim.later(LIFE_MS - 8000, LIFE_MS - 6000, Event::Drain);
        }
        sim
    }

    fn add_player(&mut self, number: u64) {
        let mut offers: Vec<&'static str> = Vec::new();
        for name in invariants::CAPABILITIES {
            if self.dice.percent(60) {
                offers.push(name);
            }
        }
        let at = self.players.len();
        self.players.push(Player {
            name: format!("agent-{number}"),
            life: 1,
            conn: None,
            slots: self.dice.from(1, 4),
            offers,
            intents: Vec::new(),
            unfinished: Vec::new(),
            completed: BTreeMap::new(),
        });
        self.later(0, 500, Event::Connect(at));
        self.later(2000, 15_000, Event::Lose(at));
    }

    /// Runs from the first connection to the last trace of anybody. Returns what came about, and how often.
    pub(crate) fn run(mut self) -> BTreeMap<String, u64> {
        let end = self.now.plus_ms(LIFE_MS);
        while self.step(end) {}
        self.everybody_leaves();
        *self.met.entry("late".to_owned()).or_default() += self.hub.counters().late;
        std::mem::take(&mut self.met)
    }

    fn meet(&mut self, fact: &Fact) {
        let what = match fact {
            Fact::Registered { replaced: true, .. } => "replaced",
            Fact::Registered { .. } => "registered",
            Fact::Refused { reason, .. } | Fact::Left { reason, .. } => *reason,
            Fact::Liveness { to, .. } => to.as_str(),
            Fact::SlowConsumer { .. } => "slow_consumer",
            Fact::CallEnded { outcome, .. } => outcome.as_str(),
            Fact::Dedupe(outcome) => outcome.as_str(),
        };
        *self.met.entry(what.to_owned()).or_default() += 1;
        if let Fact::Left { agent, reason } = fact {
            self.came_or_went(agent, *reason == "gone");
        } else if let Fact::Registered { agent, .. } = fact {
            self.came_or_went(agent, false);
        }
    }

    /// The windows of what an agent has open begin again; or it is settled at once.
    fn came_or_went(&mut self, agent: &str, settled: bool) {
        let now = self.now;
        let Some(at) = self.players.iter().position(|player| player.name == agent) else { return };
        let open = self.conns.values().filter(|conn| conn.agent == at).flat_map(|conn| conn.asked.values());
        let open: Vec<usize> =
            open.filter_map(|a| a.intent).chain(self.players[at].unfinished.iter().copied()).collect();
        for conn in self.conns.values_mut().filter(|conn| conn.agent == at) {
            conn.left = true;
        }
        for intent in open {
            let intent = &mut self.players[at].intents[intent];
            intent.open_window(now);
            intent.abandoned |= settled;
        }
    }

    /// The next thing that happens, be it of the world or of the hub's own timers.
    fn step(&mut self, end: Now) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let timer = self.hub.next_timeout();
        let Some(at) = [event, timer].into_iter().flatten().min() else { return false };
        if at > end {
            return false;
        }
        self.now = self.now.max(at);
        if timer.is_some_and(|timer| timer <= self.now) {
            self.input("tick".to_owned(), Input::Tick);
            invariants::no_timer_of_the_past(self.now, self.hub.next_timeout());
        } else if let Some((_, event)) = self.events.pop_first() {
            self.happen(event);
        }
        self.check();
        true
    }

    fn everybody_leaves(&mut self) {
        self.events.clear();
        let open: Vec<ConnectionId> = self.conns.keys().copied().collect();
        for id in open {
            self.close(id);
            self.check();
        }
        for _ in 0..10_000 {
            let Some(next) = self.hub.next_timeout() else { break };
            self.now = self.now.max(next);
            self.input("tick".to_owned(), Input::Tick);
            invariants::no_timer_of_the_past(self.now, self.hub.next_timeout());
        }
        invariants::nothing_is_left(&self.hub.gauges());
    }

    fn check(&mut self) {
        invariants::every_call_ends_in_its_budget(self);
        invariants::queue_bytes_stay_within_their_bound(self);
        invariants::nothing_waits_unannounced(self);
    }

    /// Notes something for whoever reads a failing seed.
    pub(crate) fn note(&mut self, text: String) {
        if self.log.len() >= self.log_steps {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:>9} us  {text}", self.now.micros()));
    }

    /// Schedules an event after a delay in milliseconds.
    pub(crate) fn later(&mut self, least_ms: u64, most_ms: u64, event: Event) {
        let micros = self.dice.from(least_ms * 1000, most_ms * 1000);
        self.numbers += 1;
        self.events.insert((Now::from_micros(self.now.micros() + micros), self.numbers), event);
    }

    /// Hands a cause to the hub and wakes who it names.
    pub(crate) fn input(&mut self, text: String, input: Input) {
        self.note(text);
        let mut effects = Effects::default();
        self.hub.handle(self.now, input, &mut effects);
        for fact in &effects.facts {
            self.meet(fact);
        }
        for id in effects.wake {
            let waits = self.hub.take_outbound(id, 0, 0, &mut Vec::new()).is_some();
            assert!(waits, "effects.wake names {id:?}, which has nothing queued");
            let Some(conn) = self.conns.get_mut(&id) else { panic!("{id:?} is woken after its end") };
            if !conn.pending {
                conn.pending = true;
                self.read_later(id);
            }
        }
    }

    pub(crate) fn read_later(&mut self, id: ConnectionId) {
        let slow = self.conns.get(&id).is_some_and(|conn| conn.slow);
        let most = if slow { self.dice.pick(&[50, 1000, 6000]) } else { 3 };
        self.later(0, most, Event::Read(id));
    }

    /// Sends an envelope as a peer.
    pub(crate) fn send(&mut self, id: ConnectionId, text: &str, message: Bytes) {
        let now = self.now;
        if self.conns.get(&id).is_none_or(|conn| conn.closed || conn.ended || conn.is_silent(now)) {
            return;
        }
        let text = format!("{} -> {text}", self.name_of(id));
        self.input(text, Input::Message { connection: id, message, fault: None });
    }

    pub(crate) fn name_of(&self, id: ConnectionId) -> String {
        let name = self.conns.get(&id).map_or("?", |conn| self.players[conn.agent].name.as_str());
        format!("{name}@{}.{}", id.index, id.generation)
    }

    /// Opens a WebSocket in a place that is free, with a generation of its own.
    pub(crate) fn connected(&mut self, agent: usize) -> ConnectionId {
        let id = match self.places.pop() {
            Some(used) => ConnectionId { generation: used.generation + 1, ..used },
            None => ConnectionId { index: u32::try_from(self.conns.len()).unwrap(), generation: 1 },
        };
        let slow = self.dice.percent(15);
        let silence = self.dice.percent(15).then(|| {
            let from = self.now.plus_ms(self.dice.from(1000, 4000));
            (from, from.plus_ms(self.dice.pick(&[1000, 4000, 4500, 60_000])))
        });
        let player = &self.players[agent];
        let conn = Conn {
            id,
            agent,
            life: player.life,
            closed: false,
            ended: false,
            welcomed: false,
            left: false,
            pending: false,
            slow,
            silence,
            asked: BTreeMap::new(),
            given: BTreeMap::new(),
            last_given: 0,
            next_id: 1,
            calls_read: std::collections::BTreeSet::new(),
            complaints_due: 0,
        };
        self.conns.insert(id, conn);
        let peer = Peer {
            identity: format!("spiffe://d/agent/{}", self.players[agent].name).into(),
            name: self.players[agent].name.as_str().into(),
        };
        let text = format!("{} connects", self.name_of(id));
        self.input(text, Input::Connected { connection: id, peer });
        id
    }

    /// The socket is gone.
    pub(crate) fn close(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.closed = true;
        let text = format!("{} is closed", self.name_of(id));
        self.input(text, Input::Closed { connection: id });
        let Some(conn) = self.conns.remove(&id) else { return };
        let mut batch = Vec::new();
        assert!(
            self.hub.take_outbound(id, 10, usize::MAX, &mut batch).is_none(),
            "no_frame_to_a_closed_session: {:?}",
            batch.iter().map(shown).collect::<Vec<_>>()
        );
        self.places.push(id);
        let player = &mut self.players[conn.agent];
        if player.conn == Some(id) {
            player.conn = None;
            player.unfinished.extend(conn.asked.values().filter_map(|asked| asked.intent));
        }
    }
}
