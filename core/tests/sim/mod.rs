//! A seeded world around the hub: agents that call each other, come and go, read slowly and talk nonsense.

mod asking;
mod callers;
mod dice;
mod disk;
mod hostile;
mod invariants;
mod model;
mod network;
mod providers;
mod reading;
pub(crate) mod runner;
mod setting;
mod settled;
mod store;
mod tasks;
mod tries;
mod waits;

use std::collections::{BTreeMap, VecDeque};

use agent_reach_core::{ConnectionId, Effects, Fact, Hub, Input, Liveness, Now, Settings};

use self::dice::Dice;
use self::disk::Store;
use self::model::{Conn, Event, Player};
use self::setting::Rules;
use self::tasks::Tasks;

/// One run.
pub(crate) struct Sim {
    seed: u64,
    dice: Dice,
    hub: Hub,
    now: Now,
    /// When the world ends.
    end: Now,
    settings: Settings,
    /// The rules in force, and since when; the latest last.
    rules: Vec<(Now, Rules)>,
    players: Vec<Player>,
    conns: BTreeMap<ConnectionId, Conn>,
    events: BTreeMap<(Now, u64), Event>,
    numbers: u64,
    places: Vec<ConnectionId>,
    /// `(caller, request_id)` that somebody completed, when, and until when the hub remembers it.
    ran: BTreeMap<(String, String), (Now, Now)>,
    /// Intents by number, and when somebody completed them last.
    done: BTreeMap<u64, Now>,
    /// What became of each call of the hub at its providers.
    runs: BTreeMap<u64, tries::Run>,
    /// What outlives the hub, and what is known of it.
    store: Store,
    tasks: Tasks,
    /// How many hubs there were before.
    epoch: u64,
    /// Questions that the hub has put to the store.
    questions: u64,
    /// Sessions that were opened.
    registrations: u64,
    /// Most slots of an agent.
    slots_most: u64,
    /// Callers ask for much the same, and take older results for it.
    alike: bool,
    /// The hub's tick may come behind other things that were due with it.
    tardy: bool,
    /// Nobody begins anything new, and everybody answers.
    quiet: bool,
    drained: Option<Now>,
    /// When everybody has to have gone who was there when the drain began.
    gone_by: Now,
    stopped: bool,
    /// Calls that ended, by the hub's own word.
    ends: u64,
    /// The last steps, for whoever reads a failing seed.
    log: Option<VecDeque<String>>,
    log_steps: usize,
    /// A hash over everything that happened.
    history: u64,
    /// What came about, and how often: a world that meets nothing proves nothing.
    met: BTreeMap<&'static str, u64>,
}

/// What is left of a run.
pub(crate) struct Story {
    /// What came about, and how often.
    pub(crate) met: BTreeMap<&'static str, u64>,
    /// A hash over everything that the hub said, and when.
    pub(crate) history: u64,
}

impl Drop for Sim {
    fn drop(&mut self) {
        if let Some(log) = self.log.as_ref().filter(|_| std::thread::panicking()) {
            let steps: Vec<&str> = log.iter().map(String::as_str).collect();
            eprintln!("the last steps of seed {}:\n{}", self.seed, steps.join("\n"));
        }
    }
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let settings = setting::settings(seed, &mut dice);
        let now = Now::from_millis(1);
        let life_ms = dice.pick(&[2000, 4000, 6000, 15_000]);
        let mut sim = Self {
            seed,
            hub: Hub::new(settings.clone(), Rules::First.policy()),
            now,
            end: now.plus_ms(life_ms),
            settings,
            rules: vec![(now, Rules::First)],
            players: Vec::new(),
            conns: BTreeMap::new(),
            events: BTreeMap::new(),
            numbers: 0,
            places: Vec::new(),
            ran: BTreeMap::new(),
            done: BTreeMap::new(),
            runs: BTreeMap::new(),
            store: Store::new(dice.pick(&[0, 5, 60, 400])),
            tasks: Tasks::default(),
            epoch: 0,
            questions: 0,
            registrations: 0,
            slots_most: dice.pick(&[1, 2, 4]),
            alike: dice.percent(20),
            tardy: dice.percent(30),
            quiet: false,
            drained: None,
            gone_by: now,
            stopped: false,
            ends: 0,
            log: None,
            log_steps: 0,
            history: 0xcbf2_9ce4_8422_2325,
            met: BTreeMap::new(),
            dice,
        };
        for number in 0..sim.dice.from(2, 7) {
            sim.add_player(number);
        }
        sim.plan(life_ms);
        sim
    }

    /// The same run, with its last steps told when it fails.
    pub(crate) fn told(seed: u64, steps: usize) -> Self {
        let mut sim = Self::new(seed);
        (sim.log, sim.log_steps) = (Some(VecDeque::new()), steps);
        sim
    }

    fn add_player(&mut self, number: u64) {
        let mut offers: Vec<&'static str> = Vec::new();
        for name in setting::CAPABILITIES {
            if self.dice.percent(60) {
                offers.push(name);
            }
        }
        let at = self.players.len();
        self.players.push(Player {
            name: format!("agent-{number}"),
            life: 1,
            conn: None,
            slots: self.dice.from(1, self.slots_most),
            zone: self.dice.pick(&["east", "west"]),
            offers,
            declares: self.dice.percent(15).then(|| self.dice.pick(&setting::DECLARED).to_vec()),
            qps: self.dice.percent(40).then_some(2.0),
            fails: self.dice.pick(&[3, 3, 3, 70]),
            intents: Vec::new(),
            unfinished: Vec::new(),
            registered: VecDeque::new(),
            greeted: 0,
            lived: BTreeMap::new(),
            here: 0,
            drained: None,
        });
        self.later(0, 500, Event::Connect(at));
        self.later(500, 10_000, Event::Lose(at));
    }

    /// What happens to the whole world, and when.
    fn plan(&mut self, life_ms: u64) {
        self.later(500, 2000, Event::Audit);
        self.later(500, 5000, Event::Stale);
        for (share, event) in [
            (25, Event::Drain),
            (if self.settings.store { 50 } else { 15 }, Event::Restart),
            (if self.settings.store { 50 } else { 0 }, Event::StoreSickens),
            (10, Event::Stop),
            (30, Event::Policy),
            (60, Event::Poke),
            (15, Event::Jump),
        ] {
            if self.dice.percent(share) {
                self.later(life_ms / 4, life_ms, event);
            }
        }
    }

    /// Runs from the first connection to the last trace of anybody.
    pub(crate) fn run(mut self) -> Story {
        while self.step() {}
        if self.drained.is_none() && !self.stopped && self.dice.percent(50) {
            self.becomes_quiet();
        }
        self.everybody_leaves();
        *self.met.entry("late").or_default() += self.hub.counters().late;
        Story { met: std::mem::take(&mut self.met), history: self.history }
    }

    /// The next thing that happens, be it of the world or of the hub's own timers.
    fn step(&mut self) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let timer = self.hub.next_timeout();
        let Some(at) = [event, timer].into_iter().flatten().min() else { return false };
        if at > self.end {
            return false;
        }
        self.now = self.now.max(at);
        let event_is_due = event.is_some_and(|event| event <= self.now);
        let overtakes = event_is_due && self.tardy && self.dice.percent(50);
        if !overtakes && timer.is_some_and(|timer| timer <= self.now) {
            self.tick();
        } else if event_is_due && let Some((_, event)) = self.events.pop_first() {
            self.happen(event);
        }
        invariants::after_every_step(self);
        true
    }

    fn tick(&mut self) {
        self.input(Input::Tick, || "tick".to_owned());
        invariants::no_timer_of_the_past(self.now, self.hub.next_timeout());
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Connect(agent) => self.connect(agent),
            Event::Arrive(id) => self.arrive(id),
            Event::Read(id) => self.read(id),
            Event::Close(id) => self.close(id),
            Event::Keepalive(id) => self.keepalive(id),
            Event::Ask(id) => self.ask(id),
            Event::Work(id, call) => self.work(id, call),
            Event::Cancel(id, call) => self.cancel(id, call),
            Event::Nonsense(id) => self.nonsense(id),
            Event::Update(id) => self.update(id),
            Event::Lose(agent) => self.lose(agent),
            Event::Audit => self.audit(),
            Event::Policy => self.change_rules(),
            Event::Poke => self.poke(),
            Event::Stale => self.stale(),
            Event::Jump => self.jump(),
            Event::Drain => self.drain(),
            Event::Drained => settled::nothing_is_left_after_a_drain(self),
            Event::Stop => self.stop(),
            Event::Restart => self.restart(),
            Event::StoreWrites => self.store_writes(),
            Event::StoreTells => self.store_tells(),
            Event::StoreReads(epoch, number) => self.store_reads(epoch, number),
            Event::StoreAnswers(epoch, number) => self.store_answers(epoch, number),
            Event::StoreSickens => self.store_sickens(),
            Event::StoreRecovers => self.store_recovers(),
            Event::Receipt(id, task) => self.confirm(id, task),
        }
    }

    fn everybody_leaves(&mut self) {
        self.events.clear();
        let open: Vec<ConnectionId> = self.conns.keys().copied().collect();
        for id in open {
            self.close(id);
            invariants::after_every_step(self);
        }
        self.settle_store();
        for _ in 0..10_000 {
            let Some(next) = self.hub.next_timeout() else { break };
            self.now = self.now.max(next);
            self.tick();
            self.settle_store();
        }
        settled::nothing_is_left(self);
    }

    fn meet(&mut self, fact: &Fact) {
        let what = match fact {
            Fact::Registered { replaced: true, .. } => "replaced",
            Fact::Registered { .. } => "registered",
            Fact::Refused { reason, .. } | Fact::Left { reason, .. } => *reason,
            Fact::Liveness { to, .. } => to.as_str(),
            Fact::SlowConsumer { .. } => "slow_consumer",
            Fact::CallEnded { outcome, .. } => outcome.as_str(),
            Fact::WatchEnded { .. } => "watch_ended",
            Fact::Act { .. } => "act",
            Fact::TaskEnded { .. } => "task_ended",
            Fact::Dedupe(outcome) => outcome.as_str(),
            Fact::Evicted { .. } => "evicted",
            Fact::Retry(tier) => tier.as_str(),
            Fact::CallTraced(_) => "traced",
        };
        *self.met.entry(what).or_default() += 1;
        self.mark(what.as_bytes());
        self.registrations += u64::from(matches!(fact, Fact::Registered { .. }));
        match fact {
            Fact::Left { agent, reason, .. } => self.went(agent, *reason == "gone" || *reason == "stopped"),
            Fact::Registered { agent, replaced, .. } => {
                if *replaced {
                    self.went(agent, false);
                }
                self.came(agent);
            }
            Fact::Liveness { agent, to } => self.was_heard(agent, *to),
            Fact::CallEnded { .. } => self.ends += 1,
            Fact::Act { capability: "hub.agents.drain", subject, .. } => self.was_drained(subject),
            Fact::CallTraced(trace) => settled::is_a_tree(trace),
            // What was forgotten early may run again.
            Fact::Evicted { .. } => self.ran.clear(),
            Fact::Refused { .. }
            | Fact::SlowConsumer { .. }
            | Fact::TaskEnded { .. }
            | Fact::WatchEnded { .. }
            | Fact::Act { .. }
            | Fact::Dedupe(_)
            | Fact::Retry(_) => {}
        }
    }

    /// The windows of what an agent has open begin; or it is settled at once.
    fn went(&mut self, agent: &str, settled: bool) {
        let now = self.now;
        let Some(at) = self.players.iter().position(|player| player.name == agent) else { return };
        for conn in self.conns.values_mut().filter(|conn| conn.agent == at && !conn.left) {
            conn.left = true;
            for intent in conn.asked.values().filter_map(|asked| asked.arrived.and(asked.intent)) {
                let intent = &mut self.players[at].intents[intent];
                intent.open_window(now);
                intent.abandoned |= settled;
            }
        }
    }

    fn came(&mut self, agent: &str) {
        let now = self.now;
        assert!(self.drained.is_none(), "nothing_new_after_a_drain_began: {agent} registered");
        let Some(player) = self.players.iter_mut().find(|player| player.name == agent) else { return };
        invariants::registrations_stay_within_their_share(now, player);
        *player.lived.entry(player.greeted).or_default() += 1;
        player.here = player.greeted;
        player.drained = player.drained.filter(|(life, _)| *life == player.here);
        // A provider that came back is given its calls again, with a phase one of their own.
        for asked in self.conns.values_mut().flat_map(|conn| conn.asked.values_mut()) {
            asked.phase_due = None;
        }
    }

    fn was_heard(&mut self, agent: &str, to: Liveness) {
        let now = self.now;
        let Some(at) = self.players.iter().position(|player| player.name == agent) else { return };
        for conn in self.conns.values_mut().filter(|conn| conn.agent == at && !conn.left) {
            conn.out.suspect = (to == Liveness::Suspect).then_some(now);
        }
    }

    /// Notes something for whoever reads a failing seed.
    fn note(&mut self, text: impl FnOnce() -> String) {
        let Some(log) = &mut self.log else { return };
        if log.len() >= self.log_steps {
            log.pop_front();
        }
        log.push_back(format!("{:>9} us  {}", self.now.micros(), text()));
    }

    /// Takes something into the history of the world.
    fn mark(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.history =
                (self.history ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    /// Schedules an event after a delay in milliseconds.
    fn later(&mut self, least_ms: u64, most_ms: u64, event: Event) {
        let micros = self.dice.from(least_ms * 1000, most_ms * 1000);
        self.at(Now::from_micros(self.now.micros() + micros), event);
    }

    fn at(&mut self, at: Now, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    /// Hands a cause to the hub and wakes who it names.
    fn input(&mut self, input: Input, text: impl FnOnce() -> String) {
        self.note(text);
        let mut effects = Effects::default();
        self.hub.handle(self.now, input, &mut effects);
        self.mark(&self.now.micros().to_le_bytes());
        for fact in &effects.facts {
            self.meet(fact);
        }
        for id in std::mem::take(&mut effects.wake) {
            let waits = self.hub.take_outbound(id, 0, 0, &mut Vec::new()).is_some();
            assert!(waits, "who_is_woken_has_something_to_read: {id:?}");
            let Some(conn) = self.conns.get_mut(&id) else { panic!("{id:?} is woken after its end") };
            if !conn.pending {
                conn.pending = true;
                conn.queued_since = self.now;
                self.read_later(id);
            }
        }
        self.questions += effects.asks.len() as u64;
        self.store_hears(effects);
    }

    /// A name for the log; empty while nobody keeps one.
    fn name_of(&self, id: ConnectionId) -> String {
        if self.log.is_none() {
            return String::new();
        }
        let name = self.conns.get(&id).map_or("?", |conn| self.players[conn.agent].name.as_str());
        format!("{name}@{}.{}", id.index, id.generation)
    }

    /// Rules of any moment since `since`, and of what happened before in that moment.
    fn rules_since(&self, since: Now) -> impl Iterator<Item = Rules> {
        let first = self.rules.iter().rposition(|(from, _)| *from < since).unwrap_or(0);
        self.rules[first..].iter().map(|(_, rules)| *rules)
    }
}
