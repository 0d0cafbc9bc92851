//! A CALL comes from a caller: may it, is it known already, who gets it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use agent_reach_protocol::{
    Call as Asking, CallMode, ErrorCode, Kind, Policy, Priority, Summary, limits, names,
};
use bytes::Bytes;

use super::again::Tiers;
use super::asking::{each_named_answers, goes_on, is_fan_out, nobody, wanted};
use super::demand::Demand;
use super::give::{Carried, Copies};
use super::legs::Legs;
use super::{CALL_BYTES, Call, Failure, LEG_BYTES, Listener, Refusal, Stage};
use crate::authz;
use crate::effects::{CallRecord, DedupeOutcome, Fact};
use crate::fingerprint::Fingerprint;
use crate::hub::{Complaint, Hub, Turn};
use crate::idempotency::{Ends, Known};
use crate::registry::Asked;
use crate::routing::{Choice, Exclusion, NoRoute, Note, Routed, Wanted, exclusion, mismatch, route};
use crate::schema::{Body, Expected};
use crate::time::Now;
use crate::trace_id::TraceId;
use crate::traces::{Log, Step};

impl Hub {
    pub(crate) fn on_call(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        message: &Bytes,
        body: Option<&[u8]>,
    ) {
        if self.is_open(key, asking.id) {
            let Some(id) = self.registry.agents.get(key).and_then(|agent| agent.session) else { return };
            let complaint = Complaint {
                kind: Kind::Call.number(),
                id: Some(asking.id),
                code: ErrorCode::InvalidRequest,
                message: "a call with this id is still open",
                field: Some("id"),
            };
            return self.complain(turn, id, &complaint);
        }
        if let Err(refusal) = self.ask(turn, key, asking, message, body, false) {
            self.refuse_asking(turn, key, asking, &refusal);
        }
    }

    /// The store does not know the request id of a CALL that waited for it.
    pub(crate) fn on_new_call(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        message: &Bytes,
        body: Option<&[u8]>,
    ) {
        if let Err(refusal) = self.ask(turn, key, asking, message, body, true) {
            self.refuse_asking(turn, key, asking, &refusal);
        }
    }

    fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        message: &Bytes,
        body: Option<&[u8]>,
        store_asked: bool,
    ) -> Result<(), Refusal> {
        let (asked, resolved) = self.names_of(asking)?;
        self.authorize(key, &asked, &resolved)?;
        let is_task = asking.mode == Some(CallMode::Task);
        let callback = self.check_delivery(asking)?;
        if names::is_reserved(&resolved) {
            return self.ask_hub(turn, key, asking, &resolved, body);
        }
        let fingerprint = Fingerprint::of(&asked, body);
        let fingerprint = if is_task { fingerprint.of_task() } else { fingerprint };
        if asking.request_id.is_some()
            && self.is_known(turn, key, asking, (fingerprint, store_asked), message)?
        {
            return Ok(());
        }
        let message_bytes = message.len();
        match is_task {
            true => self.make_room_for_task(key, asking, message_bytes)?,
            false => self.make_room(key, message_bytes)?,
        }
        let (version, expected) = read_terms(asking)?;
        let checked = Body::new(body, asking.content_type);
        let wanted = Wanted {
            version: version.as_ref(),
            body: &checked,
            expected: expected.as_ref(),
            ..wanted(turn.now, key, asking, &resolved, &checked)
        };
        let caller = self.asker(key);
        let (chosen, note) = match route(&mut self.registry, &wanted, &mut self.rng) {
            // Whether anybody is there for it is asked when it is stored.
            Routed::To(_, note) if is_task => {
                let call = self.open_call(turn, caller, asking, &asked, message_bytes, fingerprint, note);
                self.store_task(turn, call, asking, (message, body), fingerprint, callback);
                return Ok(());
            }
            Routed::Nobody(why, note)
                if is_task && !matches!(why, NoRoute::Mismatch | NoRoute::Forbidden) =>
            {
                let call = self.open_call(turn, caller, asking, &asked, message_bytes, fingerprint, note);
                self.store_task(turn, call, asking, (message, body), fingerprint, callback);
                return Ok(());
            }
            Routed::To(chosen, note) => (chosen, note),
            Routed::Nobody(why, note) if goes_on(asking, why) => {
                let call = self.open_call(turn, caller, asking, &asked, message_bytes, fingerprint, note);
                self.keep_asked(call, asking, body);
                if let Err(failure) = self.wait(turn, call, why, None) {
                    self.settle(turn, call, failure);
                }
                return Ok(());
            }
            // Several agents by name: each that cannot has its own RESULT.
            Routed::Nobody(why, note) if why != NoRoute::NeverOffered && each_named_answers(asking) => {
                (smallvec::SmallVec::new(), note)
            }
            Routed::Nobody(why, note) => {
                return Err(Refusal { failure: self.why_nobody(why, &wanted), note: Some(note) });
            }
        };
        let copies = chosen.len().saturating_mul(message_bytes);
        if chosen.len() > 1 && self.outbound_bytes + copies > self.settings.open_bytes {
            return Err(Failure::overloaded("the copies for all targets together fill their bound").into());
        }
        let call = self.open_call(turn, caller, asking, &asked, message_bytes, fingerprint, note);
        self.give_all(turn, call, asking, body, &wanted, &chosen);
        Ok(())
    }

    /// The name asked for, folded, and the name that policy makes of it.
    fn names_of<'a>(&self, asking: &Asking<'a>) -> Result<(Cow<'a, str>, Cow<'a, str>), Refusal> {
        let asked = names::fold(asking.capability);
        names::check(&asked).map_err(|e| {
            Refusal::invalid("capability", &format!("capability {:?} {e}", asking.capability))
        })?;
        let resolved = match self.policy.aliases.contains_key(&*asked) {
            true => Cow::Owned(self.policy.resolve(&asked).to_owned()),
            false => asked.clone(),
        };
        Ok((asked, resolved))
    }

    /// Rights are checked on the name asked for and on the name it resolves to.
    fn authorize(&self, key: usize, asked: &str, resolved: &str) -> Result<(), Refusal> {
        let Some(agent) = self.registry.agents.get(key) else {
            return Err(Refusal::new(ErrorCode::Internal, "the caller is not registered"));
        };
        for name in [asked, resolved] {
            if !authz::covers(&agent.grant.call, name) {
                let message = format!("{} is not granted to call {name}", agent.id);
                return Err(Refusal::new(ErrorCode::Unauthorized, message));
            }
            if agent.declared.as_deref().is_some_and(|declared| !authz::covers(declared, name)) {
                let message =
                    format!("{} did not declare in HELLO calls that it means to call {name}", agent.id);
                return Err(Refusal::new(ErrorCode::Unauthorized, message));
            }
        }
        Ok(())
    }

    /// Answers a request id that is known. `true`: this CALL is dealt with.
    fn is_known(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        (fingerprint, store_asked): (Fingerprint, bool),
        message: &Bytes,
    ) -> Result<bool, Refusal> {
        let Some(request_id) = asking.request_id else { return Ok(false) };
        let Some(agent) = self.registry.agents.get(key) else { return Ok(false) };
        match self.memory.look_up(turn.now, &agent.identity, request_id, fingerprint) {
            Known::No => Ok(false),
            Known::Conflict => {
                turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Conflict));
                Err(Self::conflict(request_id))
            }
            Known::Coming => {
                let message = format!("the end of request_id {request_id:?} is being written");
                Err(Failure::overloaded(&message).into())
            }
            // Once is enough: it may be unsure for hours.
            Known::Unsure if store_asked => Ok(false),
            Known::Elsewhere | Known::Unsure => {
                self.look_elsewhere(turn, key, asking, message)?;
                Ok(true)
            }
            Known::Task(task) => {
                turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Replayed));
                self.replay_task(turn, key, asking, task)?;
                Ok(true)
            }
            Known::Open(call) if self.calls.get(call).is_some_and(|call| call.task.is_some()) => {
                turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Joined));
                self.join_task(turn, key, asking, call);
                Ok(true)
            }
            Known::Open(call) => {
                self.within_in_flight(key)?;
                if self.calls.get(call).is_some_and(|call| call.listeners.len() >= LISTENERS_MAX) {
                    let message =
                        format!("request_id {request_id:?} is waited for {LISTENERS_MAX} times already");
                    return Err(Failure::overloaded(&message).into());
                }
                turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Joined));
                self.join(turn, key, asking, call);
                Ok(true)
            }
            Known::Ended(ends) => {
                turn.fx.facts.push(Fact::Dedupe(DedupeOutcome::Replayed));
                self.replay(turn, key, asking.id, &ends, true);
                Ok(true)
            }
        }
    }

    /// A request id that stands for another intent.
    pub(crate) fn conflict(request_id: &str) -> Refusal {
        let message = format!("request_id {request_id:?} was used for another capability, body or mode");
        Refusal::new(ErrorCode::IdempotencyConflict, message)
    }

    /// Bounds of one connection and of all open calls together.
    pub(crate) fn make_room(&self, key: usize, bytes: usize) -> Result<(), Refusal> {
        if self.draining.is_some() {
            return Err(Refusal::new(ErrorCode::ShuttingDown, "the hub is draining"));
        }
        self.within_in_flight(key)?;
        let own = self.registry.agents.get(key).map_or(0, |agent| agent.open_bytes);
        if own + bytes + CALL_BYTES > self.settings.open_bytes_each {
            return Err(Failure::overloaded("the open calls of this agent fill its share").into());
        }
        if self.open_bytes + bytes + CALL_BYTES + LEG_BYTES > self.settings.open_bytes {
            return Err(Failure::overloaded("the open calls of all agents together fill their bound").into());
        }
        Ok(())
    }

    /// Bound of the calls, joined ones and watches that are open on one connection.
    pub(crate) fn within_in_flight(&self, key: usize) -> Result<(), Refusal> {
        let open = self.registry.agents.get(key).map_or(0, |agent| {
            // What it left behind on an earlier connection counts until it is settled. Tasks are bounded elsewhere.
            (agent.asked.len() + agent.detached.len()).saturating_sub(agent.tasks as usize)
        });
        if open < self.settings.max_in_flight {
            return Ok(());
        }
        let message = format!("{open} calls are open on this connection, which is the limit");
        Err(Failure::overloaded(&message).into())
    }

    /// Who asks, as an agent that is here.
    fn asker(&self, key: usize) -> Asker {
        match self.registry.agents.get(key) {
            Some(agent) => Asker {
                key,
                serial: agent.serial,
                agent: Arc::clone(&agent.id),
                identity: Arc::clone(&agent.identity),
            },
            None => Asker { key, serial: 0, agent: "".into(), identity: "".into() },
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one CALL, read once, that make one Call")]
    pub(crate) fn open_call(
        &mut self,
        turn: &mut Turn<'_>,
        asker: Asker,
        asking: &Asking<'_>,
        asked: &str,
        message_bytes: usize,
        fingerprint: Fingerprint,
        note: Note,
    ) -> usize {
        let Asker { key, serial, agent, identity } = asker;
        let (number, made) = match asking.request_id {
            Some(_) => (self.number(), String::new()),
            None => self.make_request_id(&identity),
        };
        let is_task = asking.mode == Some(CallMode::Task);
        let request_id: Arc<str> = asking.request_id.unwrap_or(&made).into();
        let capability = self.registry.names.intern(asked);
        let (trace, span) = (self.trace_of(asking), self.sample(asking));
        let entry = self.calls.vacant_entry();
        let index = entry.key();
        // Nobody can have written down an id before the hub made it: it is kept as SDKs keep their own.
        let keep_default_ms =
            if asking.request_id.is_some() { limits::KEEP_MS_DEFAULT } else { limits::KEEP_MS_MADE };
        let budget_at = turn.now.plus_ms(budget_ms(asking, self.settings.budget_ms));
        // A task waits for who can take it for as long as it may.
        let wait_until = turn.now.plus_ms(asking.wait_ms.unwrap_or(0).min(limits::TIME_MS_MAX));
        entry.insert(Call {
            number,
            listeners: smallvec::smallvec![Listener { agent: key, id: asking.id }],
            detached_from: None,
            caller: agent,
            owner: (key, serial),
            entry: self.memory.open(identity, &request_id, fingerprint, index),
            request_id,
            trace,
            keep_ms: asking.keep_ms.unwrap_or(keep_default_ms).min(self.settings.dedupe_ttl_ms),
            capability,
            mode: asking.mode.unwrap_or(CallMode::Call),
            task: None,
            stream: asking.stream,
            stage: Stage::Given,
            demand: if is_fan_out(asking) { None } else { Demand::of(asking) },
            credit: asking.credit.unwrap_or(limits::CREDIT_DEFAULT),
            queue: is_task || asking.queue.unwrap_or(true),
            wait_until: if is_task { budget_at } else { wait_until },
            timer_at: Now::default(),
            tiers: Tiers::of(asking, self.settings.retries),
            fan_out: is_fan_out(asking),
            directed: asking.agents.is_some(),
            priority: asking.priority.unwrap_or(Priority::Normal),
            policy: asking.policy.unwrap_or(Policy::LeastLoaded),
            started: turn.now,
            accepted_at: None,
            budget_at,
            accept_timeout_ms: accept_timeout_ms(asking, self.settings.accept_timeout_ms),
            timeout_ms: asking.timeout_ms,
            message_bytes,
            given: Bytes::new(),
            is_final: false,
            legs: Legs::default(),
            open: 0,
            attempts: smallvec::SmallVec::new(),
            summary: Summary::default(),
            note,
            log: Log::new(turn.now, Some(note)),
            span,
            ends: Some(Ends::new()),
            ends_bytes: 0,
            cancelling: false,
        });
        if let Some(agent) = self.registry.agents.get_mut(key) {
            agent.asked.insert(asking.id, Asked::Call(index));
            agent.tasks += u32::from(is_task);
        }
        if !is_task {
            self.count_open(turn, index);
        }
        index
    }

    /// Counts a new call in what all have open, and tells of it.
    fn count_open(&mut self, turn: &mut Turn<'_>, index: usize) {
        let Some(call) = self.calls.get(index) else { return };
        self.open_bytes += call.cost();
        if let Some(agent) = self.registry.agents.get_mut(call.owner.0) {
            agent.open_bytes += call.cost();
        }
        self.announce_call(turn, index, "call.started");
    }

    /// Gives the call to everyone chosen, and lets the named ones that cannot take it fail.
    fn give_all(
        &mut self,
        turn: &mut Turn<'_>,
        call: usize,
        asking: &Asking<'_>,
        body: Option<&[u8]>,
        wanted: &Wanted<'_>,
        chosen: &[Choice],
    ) {
        let mut missing: BTreeSet<&str> = BTreeSet::new();
        if each_named_answers(asking) {
            missing.extend(asking.agents.iter().flatten());
            for choice in chosen {
                if let Some(agent) = self.registry.agents.get(choice.agent) {
                    missing.remove(&*agent.id);
                }
            }
        }
        if let Some(call) = self.calls.get_mut(call) {
            call.open = (chosen.len() + missing.len()) as u64;
            call.summary.targets = call.open;
        }
        let number = self.calls.get(call).map(|call| call.number);
        // Each target of a traced call is told a parent of its own, so that none has the same CALL as another.
        let traced = self.calls.get(call).is_some_and(|call| call.span.is_some());
        let mut copies = Copies::for_targets(if traced { 1 } else { chosen.len() });
        let carried = Carried::of(asking);
        for choice in chosen {
            self.give(turn, call, &carried, body, *choice, &mut copies);
        }
        for agent_id in missing {
            // The last part that ends takes the call with it, and its index may be another call's then.
            if self.calls.get(call).map(|call| call.number) != number {
                break;
            }
            let failure = self.why_not(agent_id, wanted);
            self.conclude(turn, call, Some(&agent_id.into()), None, &super::end::Ended::failed(failure));
        }
    }

    /// Why nobody gets the call.
    fn why_nobody(&self, why: NoRoute, wanted: &Wanted<'_>) -> Failure {
        match wanted.agents {
            _ if why == NoRoute::Mismatch => self.mismatched(wanted),
            Some([only]) if why == NoRoute::NoneAble => self.why_not(only, wanted),
            _ => nobody(why, wanted.name),
        }
    }

    /// Why a named agent does not get the call.
    fn why_not(&self, agent_id: &str, wanted: &Wanted<'_>) -> Failure {
        let name = wanted.name;
        let (code, what) = match exclusion(&self.registry, agent_id, wanted) {
            Exclusion::Away => (ErrorCode::NoInstance, "is not connected"),
            Exclusion::Suspect => (ErrorCode::NoInstance, "is silent"),
            Exclusion::Draining => (ErrorCode::NoInstance, "is draining"),
            Exclusion::Unhealthy => (ErrorCode::NoInstance, "reports that it is unhealthy"),
            Exclusion::Labels => (ErrorCode::NoInstance, "has not the labels required"),
            Exclusion::Version => (ErrorCode::NoInstance, "has not the version required"),
            Exclusion::NotOffered => (ErrorCode::NoInstance, "does not offer it"),
            Exclusion::Forbidden => {
                (ErrorCode::Unauthorized, "offers it under a name that the caller may not call")
            }
            Exclusion::Input | Exclusion::Output => {
                let only = [agent_id];
                return self.mismatched(&Wanted { agents: Some(&only), ..*wanted });
            }
            Exclusion::Tried => (ErrorCode::NoInstance, "was tried already"),
            Exclusion::Tripped => {
                (ErrorCode::CircuitOpen, "fails too many of its calls; its breaker is open")
            }
            Exclusion::RateLimited => (ErrorCode::RateLimited, "has reached its qps_limit"),
            Exclusion::Busy => {
                return Failure::overloaded(&format!("{name}: agent {agent_id} has no free slot"));
            }
        };
        Failure::new(code, format!("{name}: agent {agent_id} {what}"))
    }

    /// The call fits nobody; with where, by JSON pointer.
    fn mismatched(&self, wanted: &Wanted<'_>) -> Failure {
        let message = match wanted.agents {
            Some([only]) => format!("{}: the call does not fit the schemas of agent {only}", wanted.name),
            _ => format!("the call fits the schemas of no agent that offers {}", wanted.name),
        };
        let failure = Failure::new(ErrorCode::SchemaMismatch, message);
        match mismatch(&self.registry, wanted) {
            Some(details) => failure.with_details(details),
            None => failure,
        }
    }

    /// An open duplicate joins: answers go to the newest asker, and the end to everyone who still waits.
    fn join(&mut self, turn: &mut Turn<'_>, key: usize, asking: &Asking<'_>, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.log.step(turn.now, Step::Joined);
        call.listeners.push(Listener { agent: key, id: asking.id });
        let ends = call.ends.clone().unwrap_or_default();
        let accepted = call.accepted_at.is_some();
        if let Some(from) = call.detached_from.take()
            && let Some(agent) = self.registry.agents.get_mut(from)
        {
            agent.detached.retain(|other| *other != index);
        }
        if let Some(agent) = self.registry.agents.get_mut(key) {
            agent.asked.insert(asking.id, Asked::Call(index));
        }
        if accepted {
            self.tell_accepted_again(turn, index);
        }
        self.replay(turn, key, asking.id, &ends, false);
        let window = asking.credit.unwrap_or(limits::CREDIT_DEFAULT);
        if let Some(call) = self.calls.get_mut(index) {
            call.credit = window;
        }
        self.open_window(turn, index, window);
    }

    /// Sends stored ends under the asker's id.
    pub(crate) fn replay(&mut self, turn: &mut Turn<'_>, key: usize, id: u64, ends: &Ends, duplicate: bool) {
        for end in ends {
            self.send_end(turn, key, id, end, duplicate);
        }
    }

    /// Refuses a CALL that was read.
    pub(crate) fn refuse_asking(
        &mut self,
        turn: &mut Turn<'_>,
        key: usize,
        asking: &Asking<'_>,
        refusal: &Refusal,
    ) {
        let name = names::fold(asking.capability);
        let capability = self.registry.names.get(&name).map(|(own, _)| Arc::clone(own));
        let mode = asking.mode.unwrap_or(CallMode::Call);
        let record = self.send_refusal(turn, key, asking.id, asking.request_id, &name, refusal);
        let record = record.map(|record| CallRecord { trace: self.trace_of(asking), ..record });
        self.record_refusal(turn, capability, mode, refusal, record);
        self.trace_refusal(turn, asking, mode, refusal.failure.code);
    }

    /// The caller's own trace, if anybody wants to know.
    pub(crate) fn trace_of(&self, asking: &Asking<'_>) -> Option<TraceId> {
        asking.traceparent.filter(|_| self.settings.records).and_then(TraceId::of)
    }

    /// Refuses a CALL whose header could not be read.
    pub(crate) fn refuse_call(&mut self, turn: &mut Turn<'_>, key: usize, id: u64, refusal: &Refusal) {
        let record = self.send_refusal(turn, key, id, None, "", refusal);
        self.record_refusal(turn, None, CallMode::Call, refusal, record);
    }

    pub(crate) fn number(&mut self) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        number
    }

    /// The number of a call that named no request id, with one that is free.
    fn make_request_id(&mut self, identity: &str) -> (u64, String) {
        loop {
            let number = self.number();
            let made = self.made_request_id(number);
            // A caller can guess the next id and use it for an intent of its own: that one keeps it.
            if !self.memory.has(identity, &made) {
                return (number, made);
            }
        }
    }

    /// A request id for a call that named none.
    pub(crate) fn made_request_id(&self, number: u64) -> String {
        format!("{:08x}-r{number:x}", self.epoch())
    }
}

/// Phase one, in milliseconds.
pub(crate) fn accept_timeout_ms(asking: &Asking<'_>, default_ms: u64) -> u64 {
    asking.accept_timeout_ms.unwrap_or(default_ms).min(limits::TIME_MS_MAX)
}

/// The whole budget, in milliseconds; that of a task has another default.
pub(crate) fn budget_ms(asking: &Asking<'_>, default_ms: u64) -> u64 {
    let default_ms = if asking.mode == Some(CallMode::Task) { limits::TIME_MS_MAX } else { default_ms };
    asking.budget_ms.unwrap_or(default_ms).min(limits::TIME_MS_MAX)
}

/// What a call asks of versions and results.
fn read_terms(asking: &Asking<'_>) -> Result<(Option<semver::VersionReq>, Option<Expected>), Refusal> {
    let version = asking
        .version
        .map(semver::VersionReq::parse)
        .transpose()
        .map_err(|e| Refusal::invalid("version", &format!("version is not a semver requirement: {e}")))?;
    let expected = asking.expected_output.map(|schema| Expected::read(schema.0)).transpose();
    Ok((version, expected.map_err(|e| Refusal::invalid("expected_output", &e))?))
}

/// Who asks for a call.
#[derive(Debug)]
pub(crate) struct Asker {
    /// Its place among the agents and its serial; a place that nobody has while it is not there.
    pub(crate) key: usize,
    pub(crate) serial: u64,
    pub(crate) agent: Arc<str>,
    pub(crate) identity: Arc<str>,
}

/// Most ids that wait for one call.
pub(crate) const LISTENERS_MAX: usize = 16;
