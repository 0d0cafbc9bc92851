//! What peers do: connect, ask, work, cancel, vanish, and send what makes no sense.

use agent_reach_core::{ConnectionId, Input};
use agent_reach_protocol::{
    AgentStatus, Call, CallMode, Cancel, Capability, Hello, Load, Policy, Priority, Select, Update, encode,
};
use bytes::Bytes;

use super::model::{Asked, Event, Given, Intent};
use super::{BUDGET_MAX_MS, Sim};
use crate::world::{
    accept, call, caller, cancel, capability, chunk, completed, credit, failed, goodbye, load, update,
};

/// Names that callers ask for: capabilities, an alias of the policy, one of an agent, and another spelling.
const ASKED: [&str; 8] = ["x.one", "x.one", "x.two", "x.three", "x.secret", "also.one", "third", "X.One"];

impl Sim {
    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::Connect(agent) => self.connect(agent),
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
            Event::Drain => self.input("the hub drains".to_owned(), Input::Drain { drain_ms: 3000 }),
        }
    }

    fn usable(&self, id: ConnectionId) -> bool {
        let heard = |conn: &super::model::Conn| conn.welcomed && !conn.ended && !conn.is_silent(self.now);
        self.conns.get(&id).is_some_and(heard)
    }

    /// Whether the peer can be heard now; in its silence the event is put off.
    fn later_when_heard(&mut self, id: ConnectionId, event: Event) -> bool {
        let usable = self.usable(id);
        if !usable && self.conns.get(&id).is_some_and(|conn| conn.welcomed && !conn.ended) {
            self.later(500, 1000, event);
        }
        usable
    }

    fn connect(&mut self, agent: usize) {
        let id = self.connected(agent);
        let player = &mut self.players[agent];
        if let Some(older) = player.conn.replace(id)
            && let Some(older) = self.conns.get(&older)
        {
            player.unfinished.extend(older.asked.values().filter_map(|asked| asked.intent));
        }
        if self.dice.percent(3) {
            // HELLO never comes.
            return;
        }
        let (name, life) = (self.players[agent].name.clone(), format!("life-{}", self.players[agent].life));
        let offer = |name: &&'static str| Capability {
            idempotent: *name == "x.three",
            timeout_ms: (*name == "x.two").then_some(1500),
            aliases: if *name == "x.three" { vec!["third"] } else { Vec::new() },
            ..capability(name)
        };
        let hello = Hello {
            instance: &life,
            capabilities: self.players[agent].offers.iter().map(offer).collect(),
            max_concurrency: Some(self.players[agent].slots),
            ..caller(&name)
        };
        let hello = encode(&hello, None);
        self.send(id, "HELLO", hello);
        if let Some(conn) = self.conns.get_mut(&id) {
            // The older connections are left by now; this one is not.
            conn.left = false;
        }
        if self.dice.percent(2) {
            self.later(0, 50, Event::Nonsense(id));
        }
    }

    /// The session is open: what was unfinished is asked for again, mostly, and a life begins.
    pub(crate) fn welcomed(&mut self, id: ConnectionId) {
        let agent = self.conns[&id].agent;
        let unfinished = std::mem::take(&mut self.players[agent].unfinished);
        for intent in unfinished {
            let known = self.players[agent].intents[intent].request_id.is_some();
            if known && self.usable(id) && self.dice.percent(70) {
                self.ask_intent(id, intent);
            }
        }
        self.later(0, 300, Event::Ask(id));
        self.later(500, 1000, Event::Keepalive(id));
        self.later(1000, 9000, Event::Nonsense(id));
        self.later(500, 5000, Event::Update(id));
    }

    fn keepalive(&mut self, id: ConnectionId) {
        if self.later_when_heard(id, Event::Keepalive(id)) {
            let text = format!("{} pings", self.name_of(id));
            self.input(text, Input::Alive { connection: id });
            self.later(500, 1000, Event::Keepalive(id));
        }
    }

    fn update(&mut self, id: ConnectionId) {
        if !self.later_when_heard(id, Event::Update(id)) {
            return;
        }
        let status = self.dice.pick(&[
            AgentStatus::Ready,
            AgentStatus::Ready,
            AgentStatus::Ready,
            AgentStatus::Degraded,
            AgentStatus::Draining,
        ]);
        let health = self.dice.from(40, 100);
        let said =
            Update { status: Some(status), load: Some(Load { health: Some(health), ..load() }), ..update() };
        self.send(id, &format!("UPDATE {} health={health}", status.as_str()), encode(&said, None));
        self.later(500, 5000, Event::Update(id));
    }

    fn new_intent(&mut self, agent: usize) -> usize {
        let number = self.players[agent].intents.len();
        let others: Vec<String> = self.players.iter().map(|player| player.name.clone()).collect();
        let agents = match self.dice.from(0, 9) {
            0 => vec![self.dice.pick(&others)],
            1 => vec![self.dice.pick(&others), self.dice.pick(&others), "nobody".to_owned()],
            _ => Vec::new(),
        };
        let notify = self.dice.percent(12);
        let intent = Intent {
            request_id: self.dice.percent(70).then(|| format!("intent-{number}")),
            capability: self.dice.pick(&ASKED),
            body: usize::try_from(self.dice.pick(&[0, 10, 400, 1500])).unwrap(),
            stream: self.dice.percent(40),
            credit: self.dice.from(0, 6),
            all: self.dice.percent(if notify { 50 } else { 10 }),
            agents,
            notify,
            budget_ms: self.dice.pick(&[0, 700, 3000, 5000, BUDGET_MAX_MS]),
            timeout_ms: self.dice.pick(&[0, 300, 1500, 4000]),
            keep_ms: self.dice.pick(&[0, 1000, 20_000]),
            times_asked: 0,
            cancelled: false,
            window: None,
            abandoned: false,
        };
        self.players[agent].intents.push(intent);
        number
    }

    fn ask(&mut self, id: ConnectionId) {
        if !self.later_when_heard(id, Event::Ask(id)) {
            return;
        }
        let pause_ms = self.dice.pick(&[100, 700]);
        self.later(0, pause_ms, Event::Ask(id));
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

    fn ask_intent(&mut self, id: ConnectionId, number: usize) {
        let agent = self.conns[&id].agent;
        let mut intent = self.players[agent].intents[number].clone();
        let shared = intent.request_id.is_some() && intent.times_asked > 0;
        self.players[agent].intents[number].times_asked += 1;
        if !self.conns[&id].left {
            let now = self.now;
            self.players[agent].intents[number].close_window(now);
        }
        if shared {
            for conn in self.conns.values_mut().filter(|conn| conn.agent == agent) {
                for asked in conn.asked.values_mut().filter(|asked| asked.intent == Some(number)) {
                    asked.shared = true;
                }
            }
        }
        if shared && self.dice.percent(5) {
            // The same id for something else.
            intent.body += 1;
        }
        let due = self.now.plus_ms(if shared { BUDGET_MAX_MS } else { intent.budget_ms });
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let asked = Asked { intent: Some(number), due: Some(due), shared, next_seq: Default::default() };
        conn.asked.insert(call_id, asked);
        let message = self.call_message(call_id, &intent);
        let open = self.hub.gauges().calls;
        let text = format!("CALL {call_id} {} {:?}", intent.capability, intent.request_id);
        self.send(id, &text, message.clone());
        if self.hub.gauges().calls > open && self.dice.percent(5) && self.usable(id) {
            // Still open, certainly: the same id again is refused by ERROR and touches nothing.
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.complaints_due += 1;
            }
            self.send(id, &format!("CALL {call_id} again"), message);
        }
        if self.dice.percent(if intent.notify { 40 } else { 15 }) {
            self.later(0, 2000, Event::Cancel(id, call_id));
        }
    }

    fn call_message(&mut self, id: u64, intent: &Intent) -> Bytes {
        let body = vec![b'x'; intent.body];
        let policy = self.dice.pick(&[Policy::LeastLoaded, Policy::RoundRobin, Policy::Random]);
        let priority = self.dice.pick(&[Priority::Low, Priority::Normal, Priority::High]);
        let asking = Call {
            request_id: intent.request_id.as_deref(),
            keep_ms: Some(intent.keep_ms),
            agents: (!intent.agents.is_empty()).then(|| intent.agents.iter().map(String::as_str).collect()),
            select: intent.all.then_some(Select::All),
            policy: Some(policy),
            priority: Some(priority),
            mode: intent.notify.then_some(CallMode::Notify),
            stream: intent.stream,
            credit: Some(intent.credit),
            timeout_ms: Some(intent.timeout_ms),
            budget_ms: Some(intent.budget_ms),
            ..call(id, intent.capability)
        };
        encode(&asking, (!body.is_empty()).then_some(body.as_slice()))
    }

    fn ask_hub(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let watch = self.dice.percent(40);
        let name = match watch {
            true => "hub.events.watch",
            false => {
                self.dice.pick(&["hub.stats", "hub.agents.list", "hub.calls.list", "hub.capabilities.list"])
            }
        };
        let due = (!watch).then_some(self.now);
        let asked = Asked { intent: None, due, shared: false, next_seq: Default::default() };
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.asked.insert(call_id, asked);
        }
        let asking = Call { stream: watch, credit: Some(5), ..call(call_id, name) };
        self.send(id, &format!("CALL {call_id} {name}"), encode(&asking, None));
        if watch {
            self.later(0, 8000, Event::Cancel(id, call_id));
        }
    }

    fn cancel(&mut self, id: ConnectionId, call: u64) {
        if !self.usable(id) {
            return;
        }
        let wait = self.dice.percent(40);
        let conn = &self.conns[&id];
        if let Some(intent) = conn.asked.get(&call).and_then(|asked| asked.intent) {
            self.players[conn.agent].intents[intent].cancelled = true;
        }
        self.send(id, &format!("CANCEL {call} wait={wait}"), encode(&Cancel { wait, ..cancel(call) }, None));
    }

    /// A provider takes one more step with a call it was given.
    fn work(&mut self, id: ConnectionId, call: u64) {
        if !self.later_when_heard(id, Event::Work(id, call)) {
            return;
        }
        let Some(mut given) = self.conns[&id].given.get(&call).cloned() else { return };
        if given.cancelled && self.dice.percent(70) {
            return self.answer(id, call, &given);
        }
        match self.dice.from(0, 99) {
            // It hangs.
            0..=2 => return,
            3..=80 if !given.accepted => {
                given.accepted = true;
                self.send(id, &format!("ACCEPT {call}"), encode(&accept(call), None));
            }
            _ if given.stream && given.pieces > 0 => {
                let wrong = self.dice.percent(1);
                if given.credit == 0 && !wrong {
                    // CREDIT wakes it again.
                    return;
                }
                let gap = u64::from(self.dice.percent(1));
                let said = chunk(call, given.seq + gap);
                given.accepted = true;
                given.pieces -= 1;
                given.seq += 1;
                given.credit = given.credit.saturating_sub(1);
                let body = vec![b'c'; usize::try_from(self.dice.pick(&[0, 50, 900])).unwrap()];
                self.send(id, &format!("CHUNK {call} #{}", said.seq), encode(&said, Some(&body)));
            }
            _ => return self.answer(id, call, &given),
        }
        if let Some(conn) = self.conns.get_mut(&id)
            && let Some(own) = conn.given.get_mut(&call)
        {
            given.cancelled |= own.cancelled;
            *own = given;
        }
        let most = self.dice.pick(&[10, 300, 1500]);
        self.later(0, most, Event::Work(id, call));
    }

    fn answer(&mut self, id: ConnectionId, call: u64, given: &Given) {
        let (text, message, good) = match self.dice.from(0, 9) {
            0 => ("overloaded", encode(&failed(call, "overloaded", true), None), false),
            1 => ("handler_error", encode(&failed(call, "my-own", false), None), false),
            _ if given.cancelled => ("cancelled", encode(&failed(call, "cancelled", false), None), false),
            _ => ("completed", encode(&completed(call), Some(b"done")), true),
        };
        let late = self.hub.counters().late;
        // It leaves the provider's hands first: the hub gives the slot to the next in the same step.
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.given.remove(&call);
        }
        self.send(id, &format!("RESULT {call} {text}"), message.clone());
        let heard = self.conns.get(&id).is_some_and(|conn| !conn.left);
        let counted = heard && self.hub.counters().late == late;
        if good && counted {
            self.completed(id, given);
        }
        if self.dice.percent(5) {
            self.send(id, &format!("RESULT {call} {text} once more"), message);
        }
    }

    /// The hub took this result as the end: from now on it remembers it, if the intent says so.
    fn completed(&mut self, id: ConnectionId, given: &Given) {
        let intents =
            self.players.iter().find(|player| player.name == given.caller).map(|player| &player.intents);
        let intent =
            intents.and_then(|all| all.iter().find(|i| i.request_id.as_ref() == Some(&given.request_id)));
        let Some(keep_ms) = intent.filter(|intent| !intent.all && intent.agents.len() < 2).map(|i| i.keep_ms)
        else {
            return;
        };
        let conn = &self.conns[&id];
        let key = (conn.life, given.caller.clone(), given.request_id.clone());
        let until = self.now.plus_ms(keep_ms);
        let agent = conn.agent;
        self.players[agent].completed.insert(key, until);
    }

    /// Envelopes that are late, malformed, or for nobody.
    fn nonsense(&mut self, id: ConnectionId) {
        if self.conns.get(&id).is_none_or(|conn| conn.closed || conn.ended) {
            return;
        }
        let number = self.dice.from(1, 30) + 1_000_000;
        let (text, message): (&str, Bytes) = match self.dice.from(0, 12) {
            0 => ("a chunk for nobody", encode(&chunk(number, 0), Some(b"x"))),
            1 => ("a result for nobody", encode(&completed(number), None)),
            2 => ("credit for nobody", encode(&credit(number, 5), None)),
            3 => ("a cancel for nobody", encode(&cancel(number), None)),
            4 => ("an accept for nobody", encode(&accept(number), None)),
            // [12, {"id": "text"}, nil], [99, {}, nil], [2, {}, nil], [14, {"id": 1000000}, nil]
            5 => ("a malformed chunk", Bytes::from_static(b"\x93\x0c\x81\xa2id\xa4text\xc0")),
            6 => ("an unknown kind", Bytes::from_static(b"\x93\x63\x80\xc0")),
            7 => ("a kind of the hub", Bytes::from_static(b"\x93\x02\x80\xc0")),
            8 => ("a malformed result", Bytes::from_static(b"\x93\x0e\x81\xa2id\xce\x00\x0f\x42\x40\xc0")),
            9 => ("bytes that are no envelope", Bytes::from_static(b"\xff\xff")),
            10 => ("a goodbye", encode(&goodbye(), None)),
            11 => ("a second hello", encode(&caller("agent-0"), None)),
            _ => return self.malformed_answer(id),
        };
        self.send(id, text, message);
        self.later(1000, 9000, Event::Nonsense(id));
    }

    /// A RESULT without a status, for a call that runs.
    fn malformed_answer(&mut self, id: ConnectionId) {
        let running = self.conns[&id].given.iter().find(|(_, given)| !given.cancelled).map(|(call, _)| *call);
        let Some(call) = running.and_then(|call| u8::try_from(call).ok()).filter(|call| *call < 128) else {
            return;
        };
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.given.remove(&u64::from(call));
        }
        let message = Bytes::from(vec![0x93, 0x0e, 0x81, 0xa2, b'i', b'd', call, 0xc0]);
        self.send(id, &format!("RESULT {call} without a status"), message);
    }

    /// The agent's network or process goes, and comes back as it was or as another life.
    fn lose(&mut self, agent: usize) {
        self.later(2000, 15_000, Event::Lose(agent));
        let Some(id) = self.players[agent].conn else { return };
        let gone = self.dice.from(0, 3);
        let takeover = gone == 0;
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
}
