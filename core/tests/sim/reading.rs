//! A peer reads what the hub sent it, and holds every envelope against what it knows.

use agent_reach_core::{ConnectionId, Input, Outgoing};
use agent_reach_protocol::codec::{Value, read_one};
use agent_reach_protocol::{Accept, CallMode, CallResult, Chunk, Dispatch, ToAgent, decode_to_agent, encode};
use bytes::Bytes;

use super::Sim;
use super::callers::NUMBER;
use super::invariants::{self, PIECE};
use super::model::{Event, Given, On};
use super::tries::{self, Try};
use crate::world::credit;

impl Sim {
    /// Reads a part of what waits, or all of it.
    pub(super) fn read(&mut self, id: ConnectionId) {
        let Some(conn) = self.conns.get(&id) else { return };
        if let Some(thaw) = conn.is_frozen(self.now) {
            return self.at(thaw, Event::Read(id));
        }
        let frames = if self.dice.percent(30) { 1 } else { 1000 };
        let bytes = if self.dice.percent(20) { 300 } else { usize::MAX };
        let mut batch = Vec::new();
        let more = self.take_batch(id, frames, bytes, &mut batch);
        if more {
            self.read_later(id);
        }
        self.hear(id, batch, !more);
    }

    /// Everybody who can reads everything at one moment; if that is all, nothing may be left in the gauge.
    pub(super) fn audit(&mut self) {
        self.later(500, 3000, Event::Audit);
        let all: Vec<ConnectionId> = self.conns.keys().copied().collect();
        let mut taken = Vec::new();
        let mut frozen = false;
        for id in all {
            if self.conns[&id].is_frozen(self.now).is_some() {
                frozen = true;
                continue;
            }
            let mut batch = Vec::new();
            while self.take_batch(id, 1000, usize::MAX, &mut batch) {}
            taken.push((id, batch));
        }
        if !frozen {
            invariants::empty_queues_have_no_bytes(&self.hub.gauges());
        }
        let watched = self.to_be_watched();
        for (id, batch) in taken {
            self.hear(id, batch, true);
            self.watches_agree(id, &watched);
        }
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
        let taken = self.hub.take_outbound(id, frames, bytes, batch).is_some();
        let after = self.hub.gauges().outbound_bytes;
        invariants::queue_bytes_equal_the_gauge(before, after, &batch[from..]);
        invariants::no_message_is_over_the_limit(self.settings.max_message, &batch[from..]);
        if let Some(conn) = self.conns.get_mut(&id) {
            invariants::no_frame_to_a_closed_session(conn, &batch[from..]);
            conn.ended |= batch.iter().any(|outgoing| matches!(outgoing, Outgoing::Close { .. }));
            conn.unheard = true;
            conn.taken_since = conn.queued_since;
        }
        let more = taken && self.hub.take_outbound(id, 0, 0, &mut Vec::new()).is_some();
        if let Some(conn) = self.conns.get_mut(&id).filter(|_| !more) {
            // Whatever comes from now on has to be announced.
            conn.pending = false;
        }
        more
    }

    fn hear(&mut self, id: ConnectionId, batch: Vec<Outgoing>, all: bool) {
        let mut bodies = false;
        for outgoing in batch {
            self.show(id, &outgoing);
            match outgoing {
                Outgoing::Message(_) | Outgoing::Shared(_) => {
                    let Some(message) = outgoing.message() else { continue };
                    self.mark(&message);
                    self.hear_message(id, &message, &mut bodies);
                }
                Outgoing::Ping => {
                    if let Some(conn) = self.conns.get_mut(&id) {
                        invariants::control_goes_before_data(conn, &mut bodies, None);
                    }
                    self.later(0, 5, Event::Keepalive(id));
                }
                Outgoing::Close { .. } => self.hears_close(id),
            }
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.unheard = false;
            if all {
                conn.calls_read.clear();
            }
        }
    }

    fn hear_message(&mut self, id: ConnectionId, message: &Bytes, bodies: &mut bool) {
        let (envelope, body) = decode_to_agent(message).expect("readable");
        if let Some(conn) = self.conns.get_mut(&id) {
            invariants::control_goes_before_data(conn, bodies, Some(&envelope));
        }
        if body.is_some() && !self.quiet && self.dice.percent(1) && self.undeliverable(id, &envelope) {
            *self.met.entry("undeliverable").or_default() += 1;
            let text = self.name_of(id);
            let (message, reason) = (message.clone(), "no such text".to_owned());
            let input = Input::Undeliverable { connection: id, message, reason };
            return self.input(input, || format!("{text} could not be told"));
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
                    assert!(conn.complaints_due > 0, "only_a_reused_id_is_complained_of: {error:?}");
                    conn.complaints_due -= 1;
                }
            }
            ToAgent::Call(call) => self.given(id, &call, body.as_deref().unwrap_or_default()),
            ToAgent::Accept(accept) => self.accepted(id, &accept),
            ToAgent::Chunk(chunk) => self.piece_came(id, &chunk, body.as_deref().unwrap_or_default()),
            ToAgent::Credit(credit) => {
                let Some(given) = conn.given.get_mut(&credit.id) else { return };
                given.credit += credit.n;
                given.granted += credit.n;
                let given = given.clone();
                self.later(0, 300, Event::Work(id, credit.id));
                if let Some(intent) = self.intent(given.number).filter(|intent| intent.task.is_none()) {
                    invariants::no_more_credit_than_was_given(intent, &given);
                }
            }
            ToAgent::Result(result) => self.ended(id, &result, body.as_deref()),
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
            ToAgent::Result(result) if result.task_id.is_some() => false,
            ToAgent::Result(result) => {
                let asked = result.id.and_then(|id| conn.asked.get_mut(&id));
                // A part that would come behind the end is left out.
                asked
                    .filter(|asked| asked.intent.is_some() && !result.duplicate)
                    .map(|a| a.shared = true)
                    .is_some()
            }
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

    fn given(&mut self, id: ConnectionId, call: &Dispatch<'_>, body: &[u8]) {
        let number = call.private.0.iter().find(|(key, _)| *key == NUMBER).map(|(_, raw)| read_one(raw.0));
        let number = if let Some(Ok(Value::UInt(number))) = number { number } else { 0 };
        let credit = call.credit.unwrap_or_default();
        let (_, in_order) = call.call_id.rsplit_once('-').expect("an epoch and a number");
        let given = Given {
            call: u64::from_str_radix(in_order, 16).expect("a number"),
            caller: call.caller.to_owned(),
            request_id: call.request_id.to_owned(),
            capability: call.capability.to_owned(),
            number,
            attempt: call.attempt,
            body: body.len(),
            stream: call.stream,
            credit,
            granted: credit,
            seq: 0,
            pieces: if call.stream { self.dice.from(0, 12) } else { 0 },
            accepted: false,
            cancelled: false,
            notify: call.mode == CallMode::Notify,
            task: call.task_id.map(|task| task.parse().expect("a task_id")),
        };
        assert!(given.task.is_some() == (call.mode == CallMode::Task), "a task has its name: {call:?}");
        let kind = self.tried(id, &given);
        let booked = self.task_given(id, &given);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let since = booked.unwrap_or(conn.taken_since);
        if kind != Try::Resumed
            && given.capability == "x.two"
            && booked.is_none_or(|at| at >= conn.registered)
        {
            conn.taken += 1;
        }
        let conn = &self.conns[&id];
        let target = &self.players[conn.agent];
        invariants::only_authorised_targets(self, conn, &given, kind, since);
        invariants::nothing_new_to_who_is_out_of_routing(self, conn, &given, kind, since);
        invariants::no_request_id_runs_twice(self, id, &given, kind);
        invariants::quotas_hold(self.now, target, conn);
        if let Some(intent) = self.intent(number) {
            invariants::a_call_keeps_what_its_caller_said(intent, target, &given, call, body.len());
            if given.task.is_none() {
                invariants::no_more_credit_than_was_given(intent, &given);
            }
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        assert!(call.id > conn.last_given, "ids_of_the_hub_only_grow: {}", call.id);
        conn.last_given = call.id;
        conn.given.insert(call.id, given);
        invariants::slots_never_exceed_max_concurrency(target, conn);
        let most = self.dice.pick(&[5, 200, 700]);
        self.later(0, most, Event::Work(id, call.id));
    }

    fn accepted(&mut self, id: ConnectionId, accept: &Accept<'_>) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        invariants::every_call_ends_exactly_once(conn, accept.id);
        let Some(asked) = conn.asked.get_mut(&accept.id) else { return };
        asked.told.get_or_insert(now);
        if accept.task_id.is_some() {
            return self.task_accepted(id, accept);
        }
        invariants::accept_comes_first(asked, accept);
        if let Some(intent) = asked.intent {
            let intent = &self.players[conn.agent].intents[intent];
            let same = intent.request_id.as_deref().is_none_or(|own| accept.request_id == Some(own));
            assert!(same, "an_answer_is_of_its_own_call: {accept:?} of {intent:?}");
            // Priority may double it.
            let processing = now.plus_ms(2 * intent.timeout_ms);
            asked.phase_due = asked.phase_due.map(|_| processing);
        }
        if self.dice.percent(3) {
            self.later(0, 3, Event::Cancel(id, accept.id));
        }
    }

    fn piece_came(&mut self, id: ConnectionId, chunk: &Chunk<'_>, body: &[u8]) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        invariants::every_call_ends_exactly_once(conn, chunk.id);
        let Some(asked) = conn.asked.get_mut(&chunk.id) else { return };
        invariants::chunks_are_gapless_and_within_credit(asked, chunk.target.unwrap_or_default(), chunk.seq);
        let intent = asked.intent;
        if asked.question.is_some() {
            self.watched(id, chunk.id, body);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(asked) = conn.asked.get_mut(&chunk.id) else { return };
        if let Some(intent) = intent {
            let intent = &self.players[conn.agent].intents[intent];
            let said = format!("{PIECE}{} {}", intent.number, chunk.seq);
            invariants::an_answer_is_of_its_own_call(&said, body);
            let processing = now.plus_ms(2 * intent.timeout_ms);
            asked.phase_due = asked.phase_due.map(|_| processing);
        }
        let n = self.dice.from(1, 3);
        if self.dice.percent(60) && self.usable(id) {
            let Some(conn) = self.conns.get_mut(&id) else { return };
            if let Some(asked) = conn.asked.get_mut(&chunk.id) {
                asked.granted += n;
            }
            if let Some(intent) = intent {
                self.players[conn.agent].intents[intent].granted += n;
            }
            let message = encode(&credit(chunk.id, n), None);
            self.send(id, message, On::Nothing, |_| format!("CREDIT {} {n}", chunk.id));
        }
        if self.dice.percent(2) {
            self.later(0, 3, Event::Cancel(id, chunk.id));
        }
    }

    fn ended(&mut self, id: ConnectionId, result: &CallResult<'_>, body: Option<&[u8]>) {
        if result.task_id.is_some() {
            return self.task_ended(id, result, body);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let call = result.id.expect("an id");
        invariants::every_call_ends_exactly_once(conn, call);
        let Some(asked) = conn.asked.get_mut(&call) else { return };
        let code = result.error.as_ref().map_or("completed", |error| error.code);
        if code == "payload_too_large" {
            *self.met.entry("payload_too_large").or_default() += 1;
        }
        assert!(
            // Its connection may have been on its way out.
            !asked.probe || matches!(code, "completed" | "agent_lost"),
            "every_slot_can_be_taken_when_all_are_free: {result:?} for {asked:?}"
        );
        if let Some(intent) = asked.intent {
            let intent = &self.players[conn.agent].intents[intent];
            invariants::parts_add_up_to_the_summary(asked, intent, result);
            tries::attempts_stay_within_their_bound(intent, result);
            // What is said again may be the end that an earlier hub came to.
            let before = result.duplicate && self.epoch > 0;
            if !before {
                invariants::no_deadline_comes_early(self.now, asked, intent, code);
            }
            if code == "cancelled" && !before {
                invariants::only_the_asker_cancels(self.now, intent);
            }
            if result.cached && !result.duplicate && !asked.shared {
                let (since, intent, size) = (conn.taken_since, intent.clone(), asked.body);
                tries::a_cached_answer_is_as_young_as_asked(self, since, &intent, size, body);
            } else if let Some(body) = body.filter(|_| !result.cached) {
                let said = format!("done {} {}", intent.number, asked.body);
                invariants::an_answer_is_of_its_own_call(&said, body);
            }
        }
        let question =
            self.conns.get(&id).and_then(|conn| conn.asked.get(&call)).filter(|a| a.question.is_some());
        if let Some(asked) = question.cloned() {
            self.question_answered(id, &asked, result, body);
        }
        if !result.more
            && let Some(conn) = self.conns.get_mut(&id)
        {
            conn.asked.remove(&call);
        }
    }
}
