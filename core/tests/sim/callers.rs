//! What callers do: ask, ask again, cancel, watch.

use agent_reach_core::{ConnectionId, Input, Now};
use agent_reach_protocol::codec::{Raw, Writer};
use agent_reach_protocol::{
    Call, CallMode, Cancel, Labels, Policy, Priority, Private, Select as Selected, encode,
};
use bytes::Bytes;

use super::Sim;
use super::asking::Question;
use super::model::{Asked, Conn, Event, Intent, On, Select, Terms};
use super::setting::{ASKED, BUDGET_MAX_MS};
use super::settled::PROBE_MS;
use crate::world::{call, cancel};

/// Numbers of intents: so many for each agent.
pub(crate) const PER_AGENT: u64 = 1 << 20;

/// Key that carries the number of the intent.
pub(crate) const NUMBER: &str = "x-number";

/// The number as it travels.
pub(crate) fn number_raw(number: u64) -> Vec<u8> {
    let mut out = Writer::default();
    out.uint(number);
    out.into_bytes()
}

impl Sim {
    pub(super) fn usable(&self, id: ConnectionId) -> bool {
        let heard = |conn: &Conn| conn.welcomed && !conn.ended && !conn.is_silent(self.now);
        self.conns.get(&id).is_some_and(heard)
    }

    /// Whether the peer can be heard now; in its silence the event is put off.
    pub(super) fn later_when_heard(&mut self, id: ConnectionId, event: Event) -> bool {
        let usable = self.usable(id);
        if !usable && self.conns.get(&id).is_some_and(|conn| conn.welcomed && !conn.ended) {
            self.later(500, 1000, event);
        }
        usable
    }

    /// The session is open: what was unfinished is asked for again, mostly, and a life begins.
    pub(super) fn welcomed(&mut self, id: ConnectionId) {
        let agent = self.conns[&id].agent;
        let unfinished = std::mem::take(&mut self.players[agent].unfinished);
        for intent in unfinished {
            let known = self.players[agent].intents[intent].request_id.is_some();
            if known && !self.quiet && self.usable(id) && self.dice.percent(70) {
                self.ask_intent(id, intent);
            }
        }
        self.later(0, 300, Event::Ask(id));
        self.later(500, 1000, Event::Keepalive(id));
        self.later(1000, 9000, Event::Nonsense(id));
        self.later(300, 4000, Event::Update(id));
    }

    pub(super) fn keepalive(&mut self, id: ConnectionId) {
        if self.later_when_heard(id, Event::Keepalive(id)) {
            let text = self.name_of(id);
            self.input(Input::Alive { connection: id }, || format!("{text} pings"));
            self.later(500, 1000, Event::Keepalive(id));
        }
    }

    fn new_intent(&mut self, agent: usize) -> usize {
        let place = self.players[agent].intents.len();
        let others = self.players.len() as u64 - 1;
        let other = |sim: &mut Self| format!("agent-{}", sim.dice.from(0, others));
        let agents = match self.dice.from(0, 9) {
            0 => vec![other(self)],
            1 => vec![other(self), other(self), "nobody".to_owned()],
            _ => Vec::new(),
        };
        let notify = self.dice.percent(12);
        let select = match self.dice.from(0, 99) {
            0..=9 => Select::All,
            10..=40 if notify => Select::All,
            41..=46 => Select::Count(self.dice.from(1, 3)),
            _ => Select::One,
        };
        let intent = Intent {
            number: agent as u64 * PER_AGENT + place as u64 + 1,
            request_id: self.dice.percent(70).then(|| format!("intent-{place}")),
            capability: if self.alike { "x.one" } else { self.dice.pick(&ASKED) },
            body: if self.alike { 10 } else { self.dice.pick(&[0, 10, 400, 1500]) },
            stream: self.dice.percent(40),
            credit: self.dice.from(0, 6),
            select,
            agents,
            zone: self.dice.percent(8).then_some("east"),
            notify,
            task: None,
            budget_ms: self.dice.pick(&[0, 700, 3000, 5000, BUDGET_MAX_MS]),
            timeout_ms: self.dice.pick(&[0, 300, 1500, 4000]),
            accept_ms: self.dice.pick(&[0, 200, 500, 500]),
            keep_ms: self.dice.pick(&[0, 1000, 20_000]),
            terms: self.new_terms(),
            first: None,
            times_asked: 0,
            granted: 0,
            progress: None,
            cancelled: false,
            window: None,
            abandoned: false,
        };
        let intent = if self.settings.store && self.dice.percent(40) { self.as_task(intent) } else { intent };
        self.players[agent].intents.push(intent);
        place
    }

    /// The same as a task: for one agent.
    fn as_task(&mut self, intent: Intent) -> Intent {
        let others = self.players.len() as u64 - 1;
        let inbox = self.dice.percent(20).then(|| format!("agent-{}", self.dice.from(0, others)));
        Intent {
            task: Some(inbox),
            request_id: self.dice.percent(80).then(|| format!("task-{}", intent.number)),
            select: Select::One,
            agents: intent.agents.into_iter().take(1).collect(),
            notify: false,
            budget_ms: self.dice.pick(&[700, 3000, BUDGET_MAX_MS, BUDGET_MAX_MS]),
            ..intent
        }
    }

    /// What it asks of its agents, and what may be done about trouble; one in four takes what comes at once.
    fn new_terms(&mut self) -> Terms {
        let simple = self.dice.percent(25);
        let cached = if self.alike { 70 } else { 25 };
        let mut own = |share| !simple && self.dice.percent(share);
        let (retries, fallback, cached, queue, waits) = (own(60), own(40), own(cached), own(75), own(30));
        let (affinity, version, prefer) = (own(15), own(8), own(10));
        Terms {
            retries: if retries { self.dice.from(1, 3) } else { 0 },
            fallback,
            cached_ms: if cached { self.dice.pick(&[300, 3000, 60_000]) } else { 0 },
            queue,
            wait_ms: if waits { self.dice.pick(&[100, 1000, 10_000]) } else { 0 },
            priority: self.dice.pick(&[Priority::Low, Priority::Normal, Priority::High]),
            policy: self.dice.pick(&[Policy::LeastLoaded, Policy::RoundRobin, Policy::Random]),
            affinity: affinity.then(|| self.dice.pick(&["k1", "k2", "k3"])),
            version: version.then(|| self.dice.pick(&["^1", "^2"])),
            prefer: Labels(if prefer { vec![("zone", "west")] } else { Vec::new() }),
        }
    }

    pub(super) fn ask(&mut self, id: ConnectionId) {
        if self.quiet || !self.later_when_heard(id, Event::Ask(id)) {
            return;
        }
        let pause_ms = self.dice.pick(&[100, 700]);
        self.later(0, pause_ms, Event::Ask(id));
        if self.settings.store && self.dice.percent(15) {
            return self.ask_of_tasks(id);
        }
        if self.dice.percent(4) {
            return self.ask_hub(id);
        }
        let agent = self.conns[&id].agent;
        let known = self.players[agent].intents.len();
        let again = known > 0 && self.dice.percent(15);
        let intent = if again {
            usize::try_from(self.dice.from(known.saturating_sub(8) as u64, known as u64 - 1)).unwrap()
        } else {
            self.new_intent(agent)
        };
        self.ask_intent(id, intent);
    }

    fn ask_intent(&mut self, id: ConnectionId, place: usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let agent = conn.agent;
        let call_id = conn.next_id;
        conn.next_id += 1;
        let own = &mut self.players[agent].intents[place];
        let shared = own.request_id.is_some() && own.times_asked > 0;
        own.times_asked += 1;
        own.granted += own.credit;
        let mut intent = own.clone();
        conn.asked.insert(call_id, Asked::new(Some(place), intent.credit, shared));
        if shared {
            for conn in self.conns.values_mut().filter(|conn| conn.agent == agent) {
                for asked in conn.asked.values_mut().filter(|asked| asked.intent == Some(place)) {
                    asked.shared = true;
                }
            }
            if self.dice.percent(5) {
                // The same id for something else.
                intent.body += 1;
            }
        }
        if let Some(asked) = self.conns.get_mut(&id).and_then(|conn| conn.asked.get_mut(&call_id)) {
            asked.body = intent.body;
        }
        let message = Self::call_message(call_id, &intent);
        let again = self.dice.percent(4);
        self.send(id, message, On::Ask { call: call_id, again }, |_| {
            format!("CALL {call_id} {} {:?} #{}", intent.capability, intent.request_id, intent.number)
        });
        if self.dice.percent(if intent.notify { 40 } else { 15 }) {
            let most = self.dice.pick(&[0, 60, 2000]);
            self.later(0, most, Event::Cancel(id, call_id));
        }
    }

    /// A CALL is with the hub: from now on its deadlines count.
    pub(super) fn ask_arrives(&mut self, id: ConnectionId, call_id: u64) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(asked) = conn.asked.get_mut(&call_id) else { return };
        let Some(place) = asked.intent else {
            asked.arrived = Some(now);
            let within = match asked.question {
                // Its end has to be written.
                Some(Question::Cancel(_)) => self.settings.budget_ms,
                _ if asked.probe => PROBE_MS,
                _ => 0,
            };
            asked.due = asked.due.map(|_| now.plus_ms(within));
            return;
        };
        let intent = &mut self.players[conn.agent].intents[place];
        // The same id for something else does not join what waits for its caller.
        if asked.body == intent.body || intent.window.is_some_and(|end| now >= end) {
            intent.close_window(now);
        }
        intent.first.get_or_insert((now, self.registrations));
        asked.arrived = Some(now);
        if intent.task.is_some() {
            // It ends when the store says so.
            return;
        }
        asked.due = Some(now.plus_ms(if asked.shared { BUDGET_MAX_MS } else { intent.budget_ms }));
        if !asked.shared && !intent.is_fan_out() && !intent.notify && intent.terms.are_plain() {
            asked.phase_due = Some(now.plus_ms(intent.accept_ms));
        }
    }

    /// The hub asks the store before it goes on with a CALL.
    pub(super) fn ask_waits_for_the_store(&mut self, id: ConnectionId, call_id: u64) {
        let default_ms = self.settings.accept_timeout_ms;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(asked) = conn.asked.get_mut(&call_id) else { return };
        // It waits no longer than for any other to accept; then the call itself begins.
        let intent = asked.intent.map(|place| &self.players[conn.agent].intents[place]);
        let later = intent.map_or(default_ms, |intent| intent.accept_ms + BUDGET_MAX_MS);
        asked.due = asked.due.map(|due| due.plus_ms(later));
        asked.phase_due = None;
        *self.met.entry("asked_store").or_default() += 1;
    }

    /// The same bytes follow a CALL that is certainly open: they are refused by ERROR and touch nothing.
    pub(super) fn ask_is_repeated(&mut self, id: ConnectionId, message: Bytes) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.left) else { return };
        conn.complaints_due += 1;
        self.input(Input::Message { connection: id, message, fault: None }, || "the CALL again".to_owned());
    }

    fn call_message(id: u64, intent: &Intent) -> Bytes {
        let body = vec![b'x'; intent.body];
        let number = number_raw(intent.number);
        let inbox = intent.task.clone().flatten().map(|agent| format!("agent:{agent}"));
        let terms = &intent.terms;
        let asking = Call {
            request_id: intent.request_id.as_deref(),
            keep_ms: Some(intent.keep_ms),
            agents: (!intent.agents.is_empty()).then(|| intent.agents.iter().map(String::as_str).collect()),
            select: match intent.select {
                Select::One => None,
                Select::Count(n) => Some(Selected::Count(n)),
                Select::All => Some(Selected::All),
            },
            policy: Some(terms.policy),
            priority: Some(terms.priority),
            retries: Some(terms.retries),
            allow_fallback: terms.fallback,
            allow_cached_ms: (terms.cached_ms > 0).then_some(terms.cached_ms),
            queue: Some(terms.queue),
            wait_ms: (terms.wait_ms > 0).then_some(terms.wait_ms),
            affinity_key: terms.affinity,
            version: terms.version,
            labels: terms.prefer.clone(),
            mode: match intent.task {
                Some(_) => Some(CallMode::Task),
                None => intent.notify.then_some(CallMode::Notify),
            },
            reply_to: inbox.as_deref(),
            require: Labels(intent.zone.map(|zone| ("zone", zone)).into_iter().collect()),
            stream: intent.stream,
            credit: Some(intent.credit),
            accept_timeout_ms: Some(intent.accept_ms),
            timeout_ms: Some(intent.timeout_ms),
            budget_ms: Some(intent.budget_ms),
            private: Private(vec![(NUMBER, Raw(&number))]),
            ..call(id, intent.capability)
        };
        encode(&asking, (!body.is_empty()).then_some(body.as_slice()))
    }

    fn ask_hub(&mut self, id: ConnectionId) {
        let watch = self.dice.percent(40);
        let name = match watch {
            true => "hub.events.watch",
            false => self.dice.pick(&[
                "hub.stats",
                "hub.agents.list",
                "hub.calls.list",
                "hub.capabilities.list",
                "hub.agents.disconnect",
                "hub.agents.drain",
            ]),
        };
        let whom = format!("agent-{}", self.dice.from(0, 7));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let credit = 5;
        let mut asked = Asked::new(None, credit, false);
        // Only says that it has a due time, which counts from its arrival.
        asked.due = (!watch).then_some(Now::from_micros(u64::MAX));
        conn.asked.insert(call_id, asked);
        let asking = Call { stream: watch, credit: Some(credit), ..call(call_id, name) };
        let mut body = Writer::default();
        body.map(2);
        body.str("agent_id");
        body.str(&whom);
        body.str("draining");
        body.bool(self.dice.percent(60));
        let body = body.into_bytes();
        let message = encode(&asking, name.starts_with("hub.agents.d").then_some(&body));
        self.send(id, message, On::Ask { call: call_id, again: false }, |_| {
            format!("CALL {call_id} {name} {whom}")
        });
        if watch {
            self.later(0, 8000, Event::Cancel(id, call_id));
        }
    }

    pub(super) fn cancel(&mut self, id: ConnectionId, call: u64) {
        if !self.usable(id) {
            return;
        }
        let wait = self.dice.percent(40);
        let conn = &self.conns[&id];
        if let Some(intent) = conn.asked.get(&call).and_then(|asked| asked.intent) {
            self.players[conn.agent].intents[intent].cancelled = true;
        }
        let message = encode(&Cancel { wait, ..cancel(call) }, None);
        self.send(id, message.clone(), On::Nothing, |_| format!("CANCEL {call} wait={wait}"));
        if self.dice.percent(5) {
            self.send(id, message, On::Nothing, |_| format!("CANCEL {call} once more"));
        }
    }
}
