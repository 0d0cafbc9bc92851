//! What happens to calls when a connection ends, when its agent comes back, and when it does not.

use std::sync::Arc;

use agent_reach_protocol::{ErrorCode, Kind, Private, ResultStatus, ToAgent, decode_to_agent, encode};
use bytes::Bytes;

use super::end::Ended;
use super::give::{Carried, Copies};
use super::{Failure, LegState, Tried};
use crate::effects::Outcome;
use crate::hub::{Hub, Turn};
use crate::input::ConnectionId;
use crate::registry::Asked;
use crate::session::{Lane, Phase};
use crate::traces::Step;

impl Hub {
    /// Takes an agent's calls off the connection that ended.
    ///
    /// What it was given waits for it; its cancelled work is lost with the connection and frees its slots.
    /// What it asked for waits for it to ask again; its watches end.
    pub(crate) fn detach(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        let asked = std::mem::take(&mut agent.asked);
        agent.tasks = 0;
        let given = std::mem::take(&mut agent.given);
        for index in given.into_legs() {
            let Some(leg) = self.legs.get(index) else { continue };
            match leg.call {
                Some(call) => {
                    if let Some(call) = self.calls.get_mut(call) {
                        call.log.step(turn.now, Step::TargetAway { target: &leg.target });
                    }
                    if let Some(agent) = self.registry.agents.get_mut(key) {
                        agent.orphaned.push(index);
                    }
                }
                None => self.free_leg(turn, index),
            }
        }
        self.stop_deliveries(key);
        for asked in asked.into_values() {
            match asked {
                Asked::Watch(watch) => {
                    drop(self.drop_watch(turn, watch, Outcome::Failed(ErrorCode::Cancelled)));
                }
                Asked::Question(number) => self.forget_question(number),
                Asked::Call(index) => self.detach_caller(turn, key, index),
            }
        }
    }

    fn detach_caller(&mut self, turn: &mut Turn<'_>, key: usize, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.listeners.retain(|listener| listener.agent != key);
        // A task goes on without anybody.
        if call.task.is_none() && call.listeners.is_empty() && call.detached_from.is_none() {
            call.detached_from = Some(key);
            call.log.step(turn.now, Step::CallerAway);
            if let Some(agent) = self.registry.agents.get_mut(key) {
                agent.detached.push(index);
            }
        }
    }

    /// A provider came back as the same instance: it is given its unfinished calls again.
    pub(crate) fn give_again(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        for index in std::mem::take(&mut agent.orphaned) {
            let Some(leg) = self.legs.get_mut(index) else { continue };
            if matches!(leg.state, LegState::Booked(_)) {
                // It leaves when the store knows of it.
                if let Some(agent) = self.registry.agents.get_mut(key) {
                    agent.orphaned.push(index);
                }
                continue;
            }
            let Some(call) = leg.call.and_then(|call| self.calls.get_mut(call)) else { continue };
            // The try that its connection took with it is one of the call's attempts.
            call.attempts.push(Tried {
                target: Arc::clone(&leg.target),
                outcome: Outcome::Failed(ErrorCode::AgentLost),
                ms: turn.now.ms_since(leg.given_at),
                reason: "its connection was lost".into(),
            });
            leg.attempt += 1;
            leg.given_at = turn.now;
            let (given, cancelling) = (call.given.clone(), call.cancelling);
            // The hub wrote it, so it reads.
            if let Ok((ToAgent::Call(before), body)) = decode_to_agent(&given) {
                let carried = Carried::again(&before);
                self.dispatch(turn, index, &carried, body.as_deref(), &mut Copies::default());
                self.held_again(turn, index);
            }
            if cancelling {
                // CANCEL came while it was away, or was lost with its connection.
                self.send_cancel(turn, index, "the caller cancelled");
            }
        }
    }

    /// A provider is lost with what it was given.
    pub(crate) fn settle_given(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        for index in std::mem::take(&mut agent.orphaned) {
            let Some(leg) = self.legs.get(index) else { continue };
            // Not accepted: it certainly did not run to its end; idempotent: another run does no harm.
            let retryable = leg.idempotent || leg.accepted_at.is_none();
            let message = match retryable {
                true => format!("agent {} was lost", leg.target),
                false => format!("agent {} was lost after it accepted; the outcome is unknown", leg.target),
            };
            let failure = Failure { retryable, ..Failure::new(ErrorCode::AgentLost, message) };
            self.end_leg(turn, index, &Ended::failed(failure));
        }
    }

    /// A caller did not ask again in time: its calls are cancelled.
    pub(crate) fn settle_asked(&mut self, turn: &mut Turn<'_>, key: usize) {
        let Some(agent) = self.registry.agents.get_mut(key) else { return };
        for index in std::mem::take(&mut agent.detached) {
            if let Some(call) = self.calls.get_mut(index) {
                call.detached_from = None;
            }
            self.cancel_call(turn, index, "the caller went away");
        }
    }

    /// Fails the leg that an unusable answer was meant for.
    pub(crate) fn fail_leg_of(&mut self, turn: &mut Turn<'_>, key: usize, id: u64, message: &str) {
        let index = self.registry.agents.get(key).and_then(|agent| agent.given.get(id));
        if let Some(index) = index {
            self.fail_leg(turn, index, Failure::new(ErrorCode::HandlerError, message));
        }
    }

    /// A message of ours could not be turned into the peer's encoding: the body is not what it says it is.
    pub(crate) fn on_undeliverable(
        &mut self,
        turn: &mut Turn<'_>,
        id: ConnectionId,
        message: &Bytes,
        reason: &str,
    ) {
        let Some(Phase::Open(key)) = self.session(id).map(|session| session.phase) else { return };
        match decode_to_agent(message) {
            Ok((ToAgent::Call(dispatch), _)) => {
                let index = self.registry.agents.get(key).and_then(|agent| agent.given.get(dispatch.id));
                if let Some(index) = index {
                    let message = format!("the body cannot be turned into JSON for the agent: {reason}");
                    let failure = Failure::new(ErrorCode::InvalidRequest, message)
                        .with_details(crate::hub::text_map(&[("field", "body")]));
                    self.end_leg(turn, index, &Ended::failed(failure));
                }
            }
            Ok((ToAgent::Chunk(chunk), _)) => {
                let Some(Asked::Call(call)) = self.asked(key, chunk.id) else { return };
                let legs = self.calls.get(call).map(|call| call.legs.to_row()).unwrap_or_default();
                for index in legs {
                    let meant = self
                        .legs
                        .get(index)
                        .is_some_and(|leg| chunk.target.is_none_or(|own| own == &*leg.target));
                    if meant {
                        let message = format!("a chunk cannot be turned into JSON for the caller: {reason}");
                        self.fail_leg(turn, index, Failure::new(ErrorCode::HandlerError, message));
                    }
                }
            }
            Ok((ToAgent::Result(result), Some(_))) => {
                if result.more && result.id.is_none_or(|id| !self.is_open(key, id)) {
                    // The end of the fan-out has left behind it, so this part would come late.
                    return;
                }
                // The call has ended by this RESULT already: it is said without what stands in its way.
                if let Some(end) = without_body(message, reason) {
                    self.send_to_agent(turn, key, Kind::Result, Lane::Data, end);
                }
            }
            _ => {}
        }
    }

    /// Offers that the rules no longer grant leave the index.
    pub(crate) fn withdraw_ungranted(&mut self) {
        let mut kept = Vec::new();
        for (key, agent) in &self.registry.agents {
            let granted =
                |offer: &&crate::offer::Offer| offer.names().all(|name| agent.grant.may_offer(name));
            if !agent.offers.iter().all(|offer| granted(&offer)) {
                kept.push((key, agent.offers.iter().filter(granted).cloned().collect()));
            }
        }
        for (key, offers) in kept {
            self.registry.set_offers(key, offers);
        }
    }
}

/// The RESULT that a caller gets whose encoding cannot carry the body: failed, and why. `None` when the message
/// is no RESULT.
///
/// The shell puts it in the place of the RESULT where it writes that, so that nothing comes out of order.
pub fn without_body(message: &Bytes, reason: &str) -> Option<Bytes> {
    let Ok((ToAgent::Result(mut result), _)) = decode_to_agent(message) else { return None };
    let text = format!("the result cannot be turned into JSON for the caller: {reason}");
    let failure = Failure::new(ErrorCode::HandlerError, text);
    result.status = ResultStatus::Failed;
    result.error = Some(failure.entry());
    result.content_type = None;
    result.private = Private::default();
    Some(encode(&result, None))
}
