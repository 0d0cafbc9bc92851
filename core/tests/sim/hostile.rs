//! What nobody should send: nonsense, what is late, what comes from a connection that is long gone.

use agent_reach_core::{ConnectionId, Effects, Input};
use agent_reach_protocol::{FieldError, encode};
use bytes::Bytes;

use super::model::{Event, On};
use super::{Sim, invariants};
use crate::world::{accept, call, caller, cancel, chunk, completed, credit, goodbye};

impl Sim {
    /// Envelopes that are late, malformed, or for nobody.
    pub(super) fn nonsense(&mut self, id: ConnectionId) {
        if self.quiet || self.conns.get(&id).is_none_or(|conn| conn.closed || conn.ended) {
            return;
        }
        self.later(1000, 9000, Event::Nonsense(id));
        let number = self.dice.from(1, 30) + 1_000_000;
        let (text, message): (&str, Bytes) = match self.dice.from(0, 19) {
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
            12 => ("too much", vec![0; self.settings.max_message + 1].into()),
            13 => return self.malformed_call(id),
            14 => return self.any_receipt(id),
            15 | 16 => return self.malformed_answer(id),
            _ => return self.ends_otherwise(id),
        };
        self.send(id, message, On::Nothing, |_| text.to_owned());
    }

    /// A CALL that cannot be used, with an id that can: it is answered like any other.
    fn malformed_call(&mut self, id: ConnectionId) {
        if !self.usable(id) {
            return;
        }
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.next_id < 120) else { return };
        let call_id = conn.next_id;
        conn.next_id += 1;
        let mut asked = super::model::Asked::new(None, 0, false);
        asked.due = Some(agent_reach_core::Now::from_micros(u64::MAX));
        conn.asked.insert(call_id, asked);
        let own = u8::try_from(call_id).unwrap();
        let on = On::Ask { call: call_id, again: false };
        if self.dice.percent(50) {
            let message = Bytes::from(vec![0x93, 0x0a, 0x81, 0xa2, b'i', b'd', own, 0xc0]);
            return self.send(id, message, on, |_| format!("CALL {call_id} without a capability"));
        }
        // What the JSON edge finds is told with the message.
        self.ask_arrives(id, call_id);
        let fault = Some(FieldError::new("body", "an integer that is none"));
        let message = encode(&call(call_id, "x.one"), None);
        let idle = self.conns.get(&id).is_some_and(|conn| conn.link.is_empty());
        if idle {
            self.input(Input::Message { connection: id, message, fault }, || {
                format!("CALL {call_id} at fault")
            });
        } else if let Some(conn) = self.conns.get_mut(&id) {
            conn.asked.remove(&call_id);
        }
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
        self.send(id, message, On::Nothing, |_| format!("RESULT {call} without a status"));
    }

    /// The shell ends it: a certificate that ran out or was revoked, a frame that is none.
    fn ends_otherwise(&mut self, id: ConnectionId) {
        let input = match self.dice.from(0, 3) {
            0 => Input::CredentialsEnded { connection: id, revoked: false },
            1 => Input::CredentialsEnded { connection: id, revoked: true },
            2 => Input::Untrusted { connection: id, reason: "no envelope".to_owned() },
            _ => Input::TooLarge { connection: id },
        };
        let (text, why) = (self.name_of(id), format!("{input:?}"));
        self.input(input, || format!("{text} ends by {why}"));
    }

    /// Something late of a connection whose place a newer one has, or nobody.
    pub(super) fn stale(&mut self) {
        self.later(300, 3000, Event::Stale);
        let newer: Vec<ConnectionId> = self.conns.keys().copied().filter(|id| id.generation > 1).collect();
        let connection = match newer.is_empty() {
            true => ConnectionId { index: 1000, generation: 1 },
            false => {
                let newer = self.dice.pick(&newer);
                ConnectionId { generation: newer.generation - 1, ..newer }
            }
        };
        let message = encode(&goodbye(), None);
        let input = match self.dice.from(0, 7) {
            0 => Input::Message { connection, message: encode(&completed(1), None), fault: None },
            1 => Input::Message { connection, message, fault: None },
            2 => Input::Alive { connection },
            3 => Input::Untrusted { connection, reason: "late".to_owned() },
            4 => Input::TooLarge { connection },
            5 => Input::CredentialsEnded { connection, revoked: true },
            6 => Input::Undeliverable { connection, message, reason: "late".to_owned() },
            _ => Input::Closed { connection },
        };
        self.note(|| format!("late: {input:?}"));
        let before = (self.hub.gauges(), self.hub.next_timeout());
        let mut effects = Effects::default();
        self.hub.handle(self.now, input, &mut effects);
        let after = (self.hub.gauges(), self.hub.next_timeout());
        invariants::a_newer_generation_is_untouched(&effects, before == after);
    }
}
