//! What providers do: say what they offer, and work on what they are given, well or badly.

use agent_reach_core::ConnectionId;
use agent_reach_protocol::{AgentStatus, Load, Update, encode};

use super::Sim;
use super::invariants::PIECE;
use super::model::{Event, Given, On};
use crate::world::{accept, chunk, completed, failed, load, update};

impl Sim {
    pub(super) fn update(&mut self, id: ConnectionId) {
        if self.quiet || !self.later_when_heard(id, Event::Update(id)) {
            return;
        }
        self.later(300, 4000, Event::Update(id));
        let agent = self.conns[&id].agent;
        let offers = self.players[agent].offers.clone();
        if !offers.is_empty() && self.dice.percent(40) {
            let name = self.dice.pick(&offers);
            let add = self.dice.percent(60);
            let said = match add {
                true => Update { add: vec![self.offer(agent, name)], ..update() },
                false => Update { remove: vec![name], ..update() },
            };
            let message = encode(&said, None);
            return self.send(id, message, On::Offer { name, add }, |_| format!("UPDATE {name} {add}"));
        }
        let status = self.dice.pick(&[
            AgentStatus::Ready,
            AgentStatus::Ready,
            AgentStatus::Ready,
            AgentStatus::Degraded,
            AgentStatus::Draining,
        ]);
        let health = self.dice.from(40, 100);
        self.say_status(id, status, health);
    }

    pub(super) fn say_status(&mut self, id: ConnectionId, status: AgentStatus, health: u64) {
        let said =
            Update { status: Some(status), load: Some(Load { health: Some(health), ..load() }), ..update() };
        let on = On::Routable { status: status != AgentStatus::Draining, health: health >= 60 };
        self.send(id, encode(&said, None), on, |_| format!("UPDATE {} health={health}", status.as_str()));
    }

    /// The hub knows of it from now on.
    pub(super) fn routable(&mut self, id: ConnectionId, status: bool, health: bool) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.out.status = (!status).then(|| conn.out.status.unwrap_or(now));
        conn.out.health = (!health).then(|| conn.out.health.unwrap_or(now));
    }

    /// An operator takes an agent out of work, or gives it back, whatever it says itself.
    pub(super) fn was_drained(&mut self, subject: &str) {
        let (name, drains) = match subject.strip_suffix(" back to work") {
            Some(name) => (name, false),
            None => (subject, true),
        };
        let Some(player) = self.players.iter_mut().find(|player| player.name == name) else { return };
        player.drained = drains.then_some((player.here, self.now));
    }

    /// See [`Sim::routable`]; what policy does not grant is left out, whatever the agent says.
    pub(super) fn offers(&mut self, id: ConnectionId, name: &'static str, add: bool) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let was = conn.offered.insert(name, (add, now));
        if let Some((false, since)) = was.filter(|_| !add) {
            conn.offered.insert(name, (false, since));
        }
        conn.buckets += u64::from(add && name == "x.two");
    }

    /// A provider takes one more step with a call it was given.
    pub(super) fn work(&mut self, id: ConnectionId, call: u64) {
        if !self.later_when_heard(id, Event::Work(id, call)) {
            return;
        }
        let Some(mut given) = self.conns[&id].given.get(&call).cloned() else { return };
        if self.quiet || given.cancelled && self.dice.percent(70) {
            return self.answer(id, call, given);
        }
        match self.dice.from(0, 99) {
            // It hangs.
            0..=2 => return,
            3..=80 if !given.accepted => {
                given.accepted = true;
                for _ in 0..self.dice.pick(&[1, 1, 1, 1, 1, 2]) {
                    self.send(
                        id,
                        encode(&accept(call), None),
                        On::Accept { call: given.call, attempt: given.attempt, task: given.task },
                        |_| format!("ACCEPT {call}"),
                    );
                }
            }
            _ if given.stream && given.pieces > 0 => {
                let wrong = self.dice.percent(2);
                if given.credit == 0 && !wrong {
                    // CREDIT wakes it again.
                    return;
                }
                self.piece(id, call, &mut given);
            }
            _ => return self.answer(id, call, given),
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

    fn piece(&mut self, id: ConnectionId, call: u64, given: &mut Given) {
        let gap = u64::from(self.dice.percent(1));
        let said = chunk(call, given.seq + gap);
        given.accepted = true;
        given.pieces -= 1;
        given.seq += 1;
        given.credit = given.credit.saturating_sub(1);
        let mut body = format!("{PIECE}{} {}", given.number, said.seq).into_bytes();
        let size = usize::try_from(self.dice.pick(&[0, 50, 900])).unwrap();
        body.resize(body.len().max(self.at_the_limit().unwrap_or(size)), b' ');
        let message = encode(&said, Some(&body));
        let on =
            On::Piece { number: given.number, call: given.call, attempt: given.attempt, task: given.task };
        self.send(id, message.clone(), on, |_| format!("CHUNK {call} #{}", said.seq));
        if self.dice.percent(1) {
            // Twice the same piece is one too many, but for a provider that begins again.
            self.send(id, message, On::Nothing, |_| format!("CHUNK {call} #{} once more", said.seq));
        }
    }

    /// Now and then a body that the hub's own keys push over the message limit.
    fn at_the_limit(&mut self) -> Option<usize> {
        let most = self.settings.max_message;
        (most < 10_000 && !self.quiet && self.dice.percent(5)).then(|| most - 40)
    }

    pub(super) fn answer(&mut self, id: ConnectionId, call: u64, given: Given) {
        let mut body = format!("done {} {}", given.number, given.body).into_bytes();
        body.resize(body.len().max(self.at_the_limit().unwrap_or(0)), b' ');
        let fails = self.conns.get(&id).map_or(0, |conn| self.players[conn.agent].fails);
        let (text, message, good) = match self.dice.from(0, 9) {
            _ if !self.quiet && self.dice.percent(fails) => {
                ("it may pass", encode(&failed(call, "my-own", true), None), false)
            }
            0 if !self.quiet => ("overloaded", encode(&failed(call, "overloaded", true), None), false),
            1 if !self.quiet => ("handler_error", encode(&failed(call, "my-own", false), None), false),
            _ if given.cancelled => ("cancelled", encode(&failed(call, "cancelled", false), None), false),
            _ => ("completed", encode(&completed(call), Some(&body)), true),
        };
        // It leaves the provider's hands first: the hub gives the slot to the next in the same step.
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.given.remove(&call);
        }
        let on = if good { On::Answer(Box::new(given)) } else { On::Failed(Box::new(given)) };
        self.send(id, message.clone(), on, |_| format!("RESULT {call} {text}"));
        if self.dice.percent(5) {
            self.send(id, message, On::Nothing, |_| format!("RESULT {call} {text} once more"));
        }
    }

    /// The hub took this result as the end: from now on it remembers it, if the intent says so.
    pub(super) fn completed(&mut self, given: &Given) {
        let Some(intent) = self.intent(given.number) else { return };
        if intent.is_fan_out() || intent.keep_ms == 0 || intent.task.is_some() {
            return;
        }
        let until = self.now.plus_ms(intent.keep_ms);
        self.ran.insert((given.caller.clone(), given.request_id.clone()), (self.now, until));
    }
}
