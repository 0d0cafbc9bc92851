//! A peer reads what the hub sent it, and holds every envelope against what it knows.

use agent_reach_core::{ConnectionId, Input, Outgoing};
use agent_reach_protocol::{CallMode, CallResult, Dispatch, ToAgent, decode_to_agent};
use bytes::Bytes;

use super::model::{Event, Given};
use super::{Sim, invariants};
use crate::world::shown;

impl Sim {
    /// Reads a part of what waits, or all of it.
    pub(crate) fn read(&mut self, id: ConnectionId) {
        if !self.conns.contains_key(&id) {
            return;
        }
        let frames = if self.dice.percent(30) { 1 } else { 1000 };
        let bytes = if self.dice.percent(20) { 300 } else { usize::MAX };
        let more = self.take(id, frames, bytes);
        if let Some(conn) = self.conns.get_mut(&id) {
            if more {
                self.read_later(id);
            } else {
                conn.pending = false;
                conn.calls_read.clear();
            }
        }
    }

    /// Everybody reads everything at one moment: then nothing may be left in the gauge.
    pub(crate) fn audit(&mut self) {
        let all: Vec<ConnectionId> = self.conns.keys().copied().collect();
        let mut taken = Vec::new();
        for id in all {
            let mut batch = Vec::new();
            while self.take_batch(id, 1000, usize::MAX, &mut batch) {}
            taken.push((id, batch));
        }
        invariants::empty_queues_have_no_bytes(&self.hub.gauges());
        for (id, batch) in taken {
            self.hear(id, batch);
        }
        self.later(500, 3000, Event::Audit);
    }

    fn take(&mut self, id: ConnectionId, frames: usize, bytes: usize) -> bool {
        let mut batch = Vec::new();
        let more = self.take_batch(id, frames, bytes, &mut batch);
        self.hear(id, batch);
        more
    }

    fn take_batch(
        &mut self,
        id: ConnectionId,
        frames: usize,
        bytes: usize,
        batch: &mut Vec<Outgoing>,
    ) -> bool {
        let before = self.hub.gauges().outbound_bytes;
        let from = batch.len();
        let more = self.hub.take_outbound(id, frames, bytes, batch).is_some();
        let after = self.hub.gauges().outbound_bytes;
        invariants::queue_bytes_equal_the_gauge(before, after, &batch[from..]);
        if let Some(conn) = self.conns.get_mut(&id) {
            invariants::no_frame_to_a_closed_session(conn, &batch[from..]);
            invariants::control_goes_before_data(conn, &batch[from..]);
            conn.ended |= batch.iter().any(|outgoing| matches!(outgoing, Outgoing::Close { .. }));
        }
        more
    }

    fn hear(&mut self, id: ConnectionId, batch: Vec<Outgoing>) {
        for outgoing in batch {
            let line: String = shown(&outgoing).chars().take(110).collect();
            let text = format!("{} <- {line}", self.name_of(id));
            self.note(text);
            match outgoing {
                Outgoing::Message(message) => self.hear_message(id, &message),
                Outgoing::Ping => self.later(0, 5, Event::Keepalive(id)),
                Outgoing::Close { .. } => {
                    self.later(0, 1500, Event::Close(id));
                    let agent = self.conns.get(&id).map(|conn| conn.agent);
                    if let Some(agent) = agent
                        && self.players[agent].conn == Some(id)
                    {
                        self.later(100, 4000, Event::Connect(agent));
                    }
                }
            }
        }
    }

    fn hear_message(&mut self, id: ConnectionId, message: &Bytes) {
        let (envelope, body) = decode_to_agent(message).expect("readable");
        if body.is_some() && self.dice.percent(1) && self.undeliverable(id, &envelope) {
            let text = format!("{} could not be told", self.name_of(id));
            let (message, reason) = (message.clone(), "no such text".to_owned());
            return self.input(text, Input::Undeliverable { connection: id, message, reason });
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match envelope {
            ToAgent::Welcome(_) => {
                conn.welcomed = true;
                self.welcomed(id);
            }
            ToAgent::Goodbye(_) => {}
            ToAgent::Error(error) => {
                if error.ref_kind == 10 && error.id.is_some() {
                    assert!(conn.complaints_due > 0, "an ERROR for an id that was not reused");
                    conn.complaints_due -= 1;
                }
            }
            ToAgent::Call(call) => self.given(id, &call, body.map_or(0, |body| body.len())),
            ToAgent::Accept(accept) => invariants::every_call_ends_exactly_once(conn, accept.id),
            ToAgent::Chunk(chunk) => {
                invariants::every_call_ends_exactly_once(conn, chunk.id);
                let Some(asked) = conn.asked.get_mut(&chunk.id) else { return };
                invariants::chunks_gapless_per_asker(asked, chunk.target.unwrap_or_default(), chunk.seq);
                if self.dice.percent(70) {
                    let n = self.dice.from(1, 3);
                    let credit = crate::world::credit(chunk.id, n);
                    self.send(id, "CREDIT", agent_reach_protocol::encode(&credit, None));
                }
            }
            ToAgent::Credit(credit) => {
                if let Some(given) = conn.given.get_mut(&credit.id) {
                    given.credit += credit.n;
                    self.later(0, 300, Event::Work(id, credit.id));
                }
            }
            ToAgent::Result(result) => self.ended(id, &result),
            ToAgent::Cancel(cancel) => {
                if let Some(given) = conn.given.get_mut(&cancel.id) {
                    given.cancelled = true;
                    self.later(0, 3000, Event::Work(id, cancel.id));
                }
            }
        }
    }

    /// Whether an envelope can be lost at the edge where it becomes JSON: only bodies of other agents can.
    fn undeliverable(&mut self, id: ConnectionId, envelope: &ToAgent<'_>) -> bool {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.left) else { return false };
        match envelope {
            ToAgent::Call(call) => {
                conn.last_given = conn.last_given.max(call.id);
                true
            }
            ToAgent::Result(result) => !result.duplicate && result.target != Some("hub"),
            ToAgent::Chunk(chunk) => {
                let asked = conn.asked.get_mut(&chunk.id).filter(|asked| asked.intent.is_some());
                // The pieces behind it have left already.
                asked.map(|asked| asked.shared = true).is_some()
            }
            ToAgent::Welcome(_)
            | ToAgent::Goodbye(_)
            | ToAgent::Error(_)
            | ToAgent::Accept(_)
            | ToAgent::Credit(_)
            | ToAgent::Cancel(_) => false,
        }
    }

    fn given(&mut self, id: ConnectionId, call: &Dispatch<'_>, _body: usize) {
        let given = Given {
            caller: call.caller.to_owned(),
            request_id: call.request_id.to_owned(),
            capability: call.capability.to_owned(),
            stream: call.stream,
            credit: call.credit.unwrap_or_default(),
            seq: 0,
            pieces: if call.stream { self.dice.from(0, 12) } else { 0 },
            accepted: false,
            cancelled: false,
            notify: call.mode == CallMode::Notify,
        };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let target = &self.players[conn.agent];
        invariants::only_authorised_targets(target, &given);
        invariants::no_request_id_runs_twice(self.now, target, conn, &given, call.attempt);
        assert!(call.id > conn.last_given, "the hub's ids on a connection only grow");
        conn.last_given = call.id;
        conn.given.insert(call.id, given);
        invariants::slots_never_exceed_max_concurrency(target, conn);
        let most = self.dice.pick(&[5, 200, 700]);
        self.later(0, most, Event::Work(id, call.id));
    }

    fn ended(&mut self, id: ConnectionId, result: &CallResult<'_>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call = result.id.expect("an id");
        invariants::every_call_ends_exactly_once(conn, call);
        let intent = conn.asked.get(&call).and_then(|asked| asked.intent);
        if let Some(intent) = intent.filter(|_| result.error.as_ref().is_some_and(|e| e.code == "cancelled"))
        {
            invariants::only_the_asker_cancels(self.now, &self.players[conn.agent].intents[intent]);
        }
        if !result.more {
            conn.asked.remove(&call);
        }
    }
}
