//! The asker no longer wants it: CANCEL from a caller, and towards providers.

use std::sync::Arc;

use agent_reach_protocol::{Cancel, ErrorCode, Kind, encode};

use super::end::Ended;
use super::{Failure, LegState};
use crate::hub::{Hub, Turn};
use crate::registry::Asked;
use crate::session::Lane;
use crate::traces::Step;

impl Hub {
    pub(crate) fn on_cancel(&mut self, turn: &mut Turn<'_>, key: usize, cancel: &Cancel<'_>) {
        let call_index = match self.asked(key, cancel.id) {
            Some(Asked::Call(call)) => call,
            Some(Asked::Watch(watch)) => {
                return self.end_watch(turn, watch, Failure::new(ErrorCode::Cancelled, "cancelled"));
            }
            Some(Asked::Question(number)) => return self.cancel_question(turn, number),
            None => {
                // It crossed the RESULT.
                self.counters.late += 1;
                return;
            }
        };
        if let Some(call) = self.calls.get_mut(call_index) {
            call.log.step(turn.now, Step::CancelAsked);
        }
        if !cancel.wait {
            return self.cancel_call(turn, call_index, "the caller cancelled");
        }
        let Some(call) = self.calls.get_mut(call_index) else { return };
        if std::mem::replace(&mut call.cancelling, true) {
            return;
        }
        let legs = call.legs.to_row();
        if legs.is_empty() {
            // Nobody has it whose answer could be waited for.
            return self.cancel_call(turn, call_index, "the caller cancelled");
        }
        for index in legs {
            self.send_cancel(turn, index, "the caller cancelled");
        }
    }

    /// Ends a call now; its providers are told, and their slots stay taken until they answer.
    pub(crate) fn cancel_call(&mut self, turn: &mut Turn<'_>, call_index: usize, reason: &'static str) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let already_told = call.cancelling;
        call.summary.failed += call.open;
        call.open = 0;
        let legs = std::mem::take(&mut call.legs).to_row();
        let target = match (call.fan_out, legs.first().and_then(|index| self.legs.get(*index))) {
            (false, Some(leg)) => Some((Arc::clone(&leg.target), leg.tried(turn.now))),
            _ => None,
        };
        for index in legs {
            self.strand_leg(turn, index, reason, already_told);
        }
        let ended = Ended::failed(Failure::new(ErrorCode::Cancelled, reason));
        match target {
            Some((target, tried)) => self.conclude(turn, call_index, Some(&target), Some(tried), &ended),
            None => self.finish(turn, call_index, None, None, &ended),
        }
    }

    /// Cancels a leg at its provider. The slot stays taken until the provider's RESULT, its loss, or
    /// `timeout_ms` from now.
    pub(crate) fn strand_leg(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        reason: &'static str,
        already_told: bool,
    ) {
        if !already_told {
            self.send_cancel(turn, index, reason);
        }
        if self.legs.get(index).is_some_and(|leg| leg.trial) {
            self.give_trial_back(turn.now, index);
        }
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.call = None;
        if matches!(leg.state, LegState::Booked(_)) {
            // Nobody was given it.
            return self.free_leg(turn, index);
        }
        leg.state = LegState::Stranded;
        let deadline = turn.now.plus_ms(leg.timeout_ms);
        let away = self.registry.agents.get(leg.agent).is_none_or(|agent| agent.session.is_none());
        if away {
            // Lost with its connection: nobody will answer for it.
            return self.free_leg(turn, index);
        }
        self.set_leg_deadline(index, deadline);
    }

    pub(crate) fn send_cancel(&mut self, turn: &mut Turn<'_>, index: usize, reason: &'static str) {
        let Some(leg) = self.legs.get(index).filter(|leg| !matches!(leg.state, LegState::Booked(_))) else {
            return;
        };
        let message = encode(&Cancel { id: leg.id, reason: Some(reason), wait: false }, None);
        let (agent, mark) = (leg.agent, leg.mark);
        if let Some(call) = leg.call.and_then(|call| self.calls.get_mut(call)) {
            call.log.step(turn.now, Step::CancelSent { target: &leg.target, reason });
        }
        self.send_to_agent(turn, agent, Kind::Cancel, Lane::About(mark), message);
    }

    /// A leg fails while its provider still works on it.
    pub(crate) fn fail_leg(&mut self, turn: &mut Turn<'_>, index: usize, failure: Failure) {
        let Some(leg) = self.legs.get(index) else { return };
        let Some(call_index) = leg.call else { return };
        let (target, tried, agent) = (Arc::clone(&leg.target), leg.tried(turn.now), leg.agent);
        let latency_us = turn.now.micros_since(leg.given_at);
        let told = self.calls.get(call_index).is_some_and(|call| call.cancelling);
        if let Some(call) = self.calls.get_mut(call_index) {
            call.legs.remove(index);
        }
        let reason = failure.code.as_str();
        if let Some(agent) = self.registry.agents.get_mut(agent) {
            agent.figures.record(false, latency_us);
        }
        self.tell_breaker(turn, index, Some(&failure));
        self.strand_leg(turn, index, reason, told);
        self.conclude(turn, call_index, Some(&target), Some(tried), &Ended::failed(failure));
    }
}
