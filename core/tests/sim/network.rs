//! What carries envelopes, and what becomes of whole processes: links, losses, restarts, stopped clocks.

use agent_reach_core::{ConnectionId, Hub, Input, Outgoing, Peer};
use agent_reach_protocol::{Capability, Hello, Labels, encode};
use bytes::Bytes;

use super::model::{Conn, Event, On, Out, Parcel, RESUME_MS};
use super::setting::{Rules, TWO_TIMEOUT_MS};
use super::{Sim, settled};
use crate::world::{caller, capability, shown};

impl Sim {
    pub(super) fn read_later(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get(&id) else { return };
        if let Some(thaw) = conn.is_frozen(self.now) {
            return self.at(thaw, Event::Read(id));
        }
        let most = if conn.slow && !self.quiet { self.dice.pick(&[50, 1000, 6000]) } else { 3 };
        self.later(0, most, Event::Read(id));
    }

    /// Sends an envelope as a peer: at once, or with its link's delay, in order.
    pub(super) fn send(
        &mut self,
        id: ConnectionId,
        message: Bytes,
        on: On,
        text: impl FnOnce(&Self) -> String,
    ) {
        let now = self.now;
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.closed || conn.ended || conn.is_silent(now) {
            return;
        }
        let text = if self.log.is_some() { text(self) } else { String::new() };
        let (lag, last) = (conn.lag_ms, conn.link.back().map(|parcel| parcel.at));
        if lag == 0 && last.is_none() {
            return self.deliver(id, Parcel { at: now, text, message, on });
        }
        let at = now.plus_ms(self.dice.from(0, lag)).max(last.unwrap_or(now));
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.link.push_back(Parcel { at, text, message, on });
        }
        self.at(at, Event::Arrive(id));
    }

    /// What is on its way and due reaches the hub.
    pub(super) fn arrive(&mut self, id: ConnectionId) {
        let now = self.now;
        while let Some(conn) = self.conns.get_mut(&id) {
            if conn.link.front().is_none_or(|parcel| parcel.at > now) {
                break;
            }
            let Some(parcel) = conn.link.pop_front() else { break };
            self.deliver(id, parcel);
        }
    }

    fn deliver(&mut self, id: ConnectionId, parcel: Parcel) {
        let text = format!("{} -> {}", self.name_of(id), parcel.text);
        let heard = self.conns.get(&id).is_some_and(|conn| !conn.left);
        let (late, open) = (self.hub.counters().late, self.hub.gauges().calls);
        let evicted = self.met.get("evicted").copied();
        if let On::Hello = parcel.on {
            self.say_hello(id);
        }
        if parcel.message.len() > self.settings.max_message {
            return self.input(Input::TooLarge { connection: id }, || format!("{text}: too large"));
        }
        let message = parcel.message;
        let again = matches!(parcel.on, On::Ask { again: true, .. }).then(|| message.clone());
        if let On::Ask { call, .. } = parcel.on
            && heard
        {
            self.ask_arrives(id, call);
        }
        if let On::Receipt(task) = parcel.on {
            self.receipt_arrives(id, task);
        }
        let questions = self.questions;
        self.input(Input::Message { connection: id, message, fault: None }, || text);
        let taken = heard && self.hub.counters().late == late;
        match parcel.on {
            On::Nothing => {}
            On::Hello => {
                // The older connections of the agent are left by now; this one is not.
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.left = false;
                }
            }
            On::Ask { call, .. } => {
                if self.questions > questions {
                    self.ask_waits_for_the_store(id, call);
                }
                if let Some(message) = again.filter(|_| self.hub.gauges().calls > open) {
                    self.ask_is_repeated(id, message);
                }
            }
            On::Answer(given) => {
                // What has no room in the memory may be the first to leave it.
                let kept = self.met.get("evicted").copied() == evicted;
                self.provider_was_heard(id, On::Answer(given), taken, kept);
            }
            on @ (On::Accept { .. } | On::Failed(_) | On::Piece { .. }) => {
                self.provider_was_heard(id, on, taken, false);
            }
            On::Receipt(_) => {}
            On::Routable { status, health } => self.routable(id, status, health),
            On::Offer { name, add } => self.offers(id, name, add),
        }
    }

    /// The hub has what a provider says of a CALL, and took it, unless that came late.
    fn provider_was_heard(&mut self, id: ConnectionId, on: On, taken: bool, kept: bool) {
        let now = self.now;
        match on {
            _ if !taken => {}
            On::Accept { call, attempt, task } => {
                self.accepted_by_hub(call, attempt);
                self.task_answered(id, task, attempt, false);
            }
            On::Failed(given) => {
                self.answered_to_hub(given.call);
                self.task_answered(id, given.task, given.attempt, true);
            }
            On::Piece { number, call, attempt, task } => {
                if let Some(intent) = self.intent_mut(number) {
                    intent.progress = Some(now);
                }
                self.piece_taken(call, attempt);
                self.task_answered(id, task, attempt, false);
            }
            On::Answer(given) => {
                self.answered_to_hub(given.call);
                self.task_answered(id, given.task, given.attempt, true);
                self.done.insert(given.number, now);
                if kept {
                    self.completed(&given);
                }
            }
            On::Nothing
            | On::Hello
            | On::Ask { .. }
            | On::Receipt(_)
            | On::Routable { .. }
            | On::Offer { .. } => {}
        }
    }

    fn say_hello(&mut self, id: ConnectionId) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let player = &mut self.players[conn.agent];
        player.greeted = conn.life;
        conn.offered = player.offers.iter().map(|name| (*name, (true, now))).collect();
        conn.registered = now;
        conn.out = Out::default();
        conn.buckets = 1;
    }

    pub(super) fn connect(&mut self, agent: usize) {
        if self.stopped {
            return self.later(100, 2000, Event::Connect(agent));
        }
        let id = self.connected(agent);
        let player = &mut self.players[agent];
        if let Some(older) = player.conn.replace(id)
            && let Some(older) = self.conns.get(&older)
        {
            player.unfinished.extend(older.asked.values().filter_map(|asked| asked.intent));
        }
        match self.dice.from(0, 99) {
            // HELLO never comes.
            0..=2 if !self.quiet => return,
            3 if !self.quiet => {
                let input = Input::Unidentified { connection: id, reason: "two names".to_owned() };
                return self.input(input, || "it has two names".to_owned());
            }
            _ => {}
        }
        let hello = self.hello(agent);
        self.send(id, hello, On::Hello, |_| "HELLO".to_owned());
        if self.dice.percent(2) {
            self.later(0, 50, Event::Nonsense(id));
        }
    }

    fn hello(&self, agent: usize) -> Bytes {
        let player = &self.players[agent];
        let life = format!("life-{}", player.life);
        let hello = Hello {
            instance: &life,
            capabilities: player.offers.iter().map(|name| self.offer(agent, name)).collect(),
            max_concurrency: Some(player.slots),
            labels: Labels(vec![("zone", player.zone)]),
            calls: player.declares.clone(),
            ..caller(&player.name)
        };
        encode(&hello, None)
    }

    pub(super) fn offer(&self, agent: usize, name: &'static str) -> Capability<'static> {
        Capability {
            idempotent: name == "x.three",
            timeout_ms: (name == "x.two").then_some(TWO_TIMEOUT_MS),
            version: (name == "x.one").then(|| version_of(self.players[agent].zone)),
            aliases: if name == "x.three" { vec!["third"] } else { Vec::new() },
            qps_limit: self.players[agent].qps.filter(|_| name == "x.two"),
            ..capability(name)
        }
    }

    /// Opens a WebSocket in a place that is free, with a generation of its own.
    fn connected(&mut self, agent: usize) -> ConnectionId {
        let id = match self.places.pop() {
            Some(used) => ConnectionId { generation: used.generation + 1, ..used },
            None => ConnectionId { index: u32::try_from(self.conns.len()).unwrap(), generation: 1 },
        };
        let odd = if self.quiet { 0 } else { 12 };
        let slow = self.dice.percent(odd);
        let mut window = |lengths: &[u64]| {
            self.dice.percent(odd).then(|| {
                let from = self.now.plus_ms(self.dice.from(0, 4000));
                (from, from.plus_ms(self.dice.pick(lengths)))
            })
        };
        let silence = window(&[1000, 4000, 4500, 60_000]);
        let frozen = window(&[300, 2000, 9000, 60_000]);
        let lag_ms = if self.quiet { 0 } else { self.dice.pick(&[0, 0, 0, 3, 60, 900]) };
        let conn = Conn {
            id,
            agent,
            life: self.players[agent].life,
            closed: false,
            ended: false,
            welcomed: false,
            left: false,
            pending: false,
            queued_since: self.now,
            taken_since: self.now,
            unheard: false,
            slow,
            silence,
            frozen,
            lag_ms,
            link: Default::default(),
            asked: Default::default(),
            given: Default::default(),
            last_given: 0,
            next_id: 1,
            calls_read: Default::default(),
            complaints_due: 0,
            offered: Default::default(),
            out: Out::default(),
            registered: self.now,
            buckets: 0,
            taken: 0,
        };
        self.conns.insert(id, conn);
        let name = self.players[agent].name.as_str();
        let peer = Peer { identity: format!("spiffe://d/agent/{name}").into(), name: name.into() };
        let text = self.name_of(id);
        self.input(Input::Connected { connection: id, peer }, || format!("{text} connects"));
        id
    }

    /// The socket is gone, with whatever was on its way.
    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.closed = true;
        let text = self.name_of(id);
        self.input(Input::Closed { connection: id }, || format!("{text} is closed"));
        let mut batch = Vec::new();
        assert!(
            self.hub.take_outbound(id, 10, usize::MAX, &mut batch).is_none(),
            "no_frame_to_a_closed_session: {:?}",
            batch.iter().map(shown).collect::<Vec<_>>()
        );
        self.forget(id);
    }

    fn forget(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.remove(&id) else { return };
        self.places.push(id);
        let player = &mut self.players[conn.agent];
        if player.conn == Some(id) {
            player.conn = None;
            player.unfinished.extend(conn.asked.values().filter_map(|asked| asked.intent));
        }
    }

    /// The agent's network or process goes, and comes back as it was or as another life.
    pub(super) fn lose(&mut self, agent: usize) {
        self.later(1000, 15_000, Event::Lose(agent));
        let Some(id) = self.players[agent].conn.filter(|_| !self.quiet) else { return };
        let takeover = self.dice.percent(25);
        if !takeover {
            self.close(id);
        }
        if self.dice.percent(40) {
            self.players[agent].life += 1;
        }
        let most = self.dice.pick(&[100, 1000, 6000]);
        let storm = if self.dice.percent(10) { 7 } else { 1 };
        for _ in 0..storm {
            self.later(0, most, Event::Connect(agent));
        }
        // The half-open socket of the older connection ends some time later.
        if takeover {
            self.later(0, 8000, Event::Close(id));
        }
    }

    pub(super) fn change_rules(&mut self) {
        self.later(1000, 6000, Event::Policy);
        if !self.quiet {
            let rules = self.dice.pick(&Rules::ALL);
            self.set_rules(rules);
        }
    }

    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.rules.push((self.now, rules));
        self.say_rules(rules);
        *self.met.entry("policy").or_default() += 1;
    }

    /// The process was suspended, or its machine: nothing came in time, not even the tick.
    pub(super) fn jump(&mut self) {
        let ms = self.dice.pick(&[900, 8000, 240_000]);
        if !self.quiet {
            self.now = self.now.plus_ms(ms);
            self.end = self.end.plus_ms(ms);
            self.note(|| format!("the clock is {ms} ms further"));
            *self.met.entry("jump").or_default() += 1;
            // The end of a drain comes late too, and the windows behind it.
            self.everybody_has_gone_after(3000);
        }
    }

    fn everybody_has_gone_after(&mut self, ms: u64) {
        self.gone_by = self.now.plus_ms(ms + RESUME_MS + 5);
        self.at(self.gone_by, Event::Drained);
    }

    pub(super) fn drain(&mut self) {
        if self.quiet || self.stopped {
            return;
        }
        let drain_ms = self.dice.pick(&[0, 1000, 3000]);
        self.drained = Some(self.now);
        self.input(Input::Drain { drain_ms }, || format!("the hub drains for {drain_ms} ms"));
        self.everybody_has_gone_after(drain_ms);
        if self.dice.percent(50) {
            self.later(0, 8000, Event::Restart);
        }
    }

    pub(super) fn stop(&mut self) {
        if self.quiet || self.stopped {
            return;
        }
        self.stopped = true;
        self.input(Input::Stop, || "the hub stops".to_owned());
        self.tasks_are_left();
        settled::nothing_runs_after_a_stop(self);
        self.later(0, 1000, Event::Restart);
    }

    /// The hub's process ends, stopped or not, and another begins with nothing in its memory.
    pub(super) fn restart(&mut self) {
        if self.quiet {
            return;
        }
        *self.met.entry("restart").or_default() += 1;
        self.note(|| "the hub starts anew".to_owned());
        let open: Vec<ConnectionId> = self.conns.keys().copied().collect();
        for id in open {
            self.forget(id);
        }
        let in_order = (self.drained.is_some() || self.stopped) && self.dice.percent(50);
        self.store_loses(in_order);
        self.settings.seed = self.settings.seed.wrapping_add(0x9e37_79b9);
        let (_, rules) = self.rules.last().copied().unwrap_or((self.now, Rules::First));
        (self.drained, self.stopped, self.ends) = (None, false, 0);
        self.epoch += 1;
        self.tasks_are_restored();
        let mut hub = Hub::new(self.settings.clone(), rules.policy());
        let effects = self.restore(&mut hub);
        self.hub = hub;
        for fact in &effects.facts {
            self.meet(fact);
        }
        self.store_hears(effects);
        if self.settings.store && self.dice.percent(40) {
            self.later(300, 6000, Event::Restart);
        }
        self.ran.clear();
        self.done.clear();
        self.runs.clear();
        for agent in 0..self.players.len() {
            let player = &mut self.players[agent];
            player.registered.clear();
            player.drained = None;
            // What was open is forgotten, and asked for anew; an end that the store has is replayed.
            let stored = self.settings.store;
            for intent in player.intents.iter_mut().filter(|intent| intent.task.is_none()) {
                intent.abandoned =
                    stored && (intent.abandoned || intent.window.is_some_and(|end| end <= self.now));
                (intent.window, intent.cancelled) = (None, stored && intent.cancelled);
                (intent.times_asked, intent.granted, intent.first) = (0, 0, None);
            }
            self.later(0, 2000, Event::Connect(agent));
        }
    }

    /// The connection's peer hears the end of it.
    pub(super) fn hears_close(&mut self, id: ConnectionId) {
        self.later(0, 1500, Event::Close(id));
        let Some(agent) = self.conns.get(&id).map(|conn| conn.agent) else { return };
        if self.players[agent].conn == Some(id) {
            self.later(100, 4000, Event::Connect(agent));
        }
    }

    pub(super) fn show(&mut self, id: ConnectionId, outgoing: &Outgoing) {
        if self.log.is_some() {
            let line: String = shown(outgoing).chars().take(140).collect();
            let text = format!("{} <- {line}", self.name_of(id));
            self.note(|| text);
        }
    }
}

/// What an agent of a zone offers `x.one` as.
pub(super) fn version_of(zone: &str) -> &'static str {
    if zone == "east" { "1.2.0" } else { "2.0.0" }
}
