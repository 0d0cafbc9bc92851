//! What comes after a try that failed: the same agent again, another, an older result, and then the failure.
//!
//! All of them share one budget of tries, that of the call: the first, `retries` more on the same agent, and one on
//! another. A caller that asks again under the same request id joins or is answered, and adds none.

use std::sync::Arc;

use agent_reach_protocol::codec::Writer;
use agent_reach_protocol::{Call as Asking, ErrorCode, ToAgent, decode_to_agent};

use super::end::{Ended, Try};
use super::{Call, Failure, Stage};
use crate::breaker::Verdict;
use crate::effects::{Fact, Tier};
use crate::hub::{Hub, Turn};
use crate::routing::NoRoute;
use crate::time::Now;
use crate::traces::Step;

/// Most further tries on one agent that a call may ask for.
const RETRIES_MAX: u64 = 100;

/// What a call may still do about a failure.
#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    /// Further tries on the same agent.
    pub(crate) retries: u64,
    /// Made already.
    pub(crate) retried: u32,
    /// Whether one on another agent is left.
    pub(crate) fallback: bool,
    /// The most that an older result may have aged, in milliseconds; 0: none will do.
    pub(crate) cached_ms: u64,
    /// Whether any of it was used, and the failure is `degraded` then.
    pub(crate) used: bool,
    /// How the last try failed.
    pub(crate) last: Option<Box<Failure>>,
}

impl Tiers {
    /// What a call asks for; `retries` where it says nothing.
    pub(crate) fn of(asking: &Asking<'_>, retries: u64) -> Self {
        Self {
            retries: asking.retries.unwrap_or(retries).min(RETRIES_MAX),
            retried: 0,
            fallback: asking.allow_fallback && asking.agents.is_none(),
            cached_ms: asking.allow_cached_ms.unwrap_or(0),
            used: false,
            last: None,
        }
    }
}

impl Call {
    /// The one agent that the call is for now, beside what it asked for.
    pub(crate) fn narrowed(&self) -> Option<&Arc<str>> {
        match &self.stage {
            Stage::Waiting { agent, .. } => agent.as_ref(),
            Stage::Backoff { agent } => Some(agent),
            Stage::Given | Stage::Later | Stage::Returning { .. } => None,
        }
    }
}

impl Hub {
    /// A try of a call for one target has failed. `true`: the call goes on.
    pub(crate) fn go_on(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        target: &Arc<str>,
        failure: &Failure,
        tried: &Try,
    ) -> bool {
        let Some(call) = self.calls.get_mut(call_index) else { return false };
        if call.cancelling || !failure.retryable || !tried.may_repeat(failure.code) {
            return false;
        }
        call.tiers.last = Some(Box::new(failure.clone()));
        if call.task.is_some() {
            let key = self.registry.find(target);
            let away = key.and_then(|key| self.registry.agents.get(key)).is_none_or(|a| a.session.is_none());
            if away || failure.code == ErrorCode::AgentLost {
                return self.queue_again(turn, call_index);
            }
        }
        self.back_off(turn, call_index, target) || self.fall_back(turn, call_index)
    }

    /// Waits for the next try on the same agent, if there is one.
    fn back_off(&mut self, turn: &mut Turn<'_>, call_index: usize, target: &Arc<str>) -> bool {
        let (base, jitter) = (self.settings.retry_base_ms, self.settings.retry_jitter_ms);
        let Some(call) = self.calls.get_mut(call_index) else { return false };
        if call.tiers.retries == 0 || self.registry.find(target).is_none() {
            return false;
        }
        let doubled = base.saturating_mul(1 << call.tiers.retried.min(20));
        let jitter = if jitter == 0 { 0 } else { self.rng.next() % jitter.saturating_add(1) };
        let ms = doubled.saturating_add(jitter);
        let at = turn.now.plus_ms(ms);
        if at >= call.budget_at {
            return false;
        }
        self.nobody_has(turn, call_index);
        let Some(call) = self.calls.get_mut(call_index) else { return false };
        call.tiers.retries -= 1;
        call.tiers.retried += 1;
        call.tiers.used = true;
        call.stage = Stage::Backoff { agent: Arc::clone(target) };
        call.log.step(turn.now, Step::RetryIn { target, ms });
        turn.fx.facts.push(Fact::Retry(Tier::SameAgent));
        self.set_call_timer(call_index, at);
        true
    }

    /// The next try on the same agent is due.
    pub(crate) fn retry(&mut self, turn: &mut Turn<'_>, call_index: usize, agent: &Arc<str>) {
        let waits = match self.route_again(turn, call_index, Some(agent), false) {
            Ok(choice) => return self.give_stored(turn, call_index, choice),
            // It has no room: as a call that is for it alone would.
            Err(why @ (NoRoute::Busy | NoRoute::RateLimited)) => {
                self.wait(turn, call_index, why, Some(agent)).is_ok()
            }
            Err(_) => false,
        };
        if waits {
            return;
        }
        self.give_up_on(turn, call_index, Failure::new(ErrorCode::NoInstance, "the agent takes no more"));
    }

    /// Nobody whom a call without a leg is for now takes it: what is left is another agent, and then the failure of
    /// its last try, or this one.
    pub(crate) fn give_up_on(&mut self, turn: &mut Turn<'_>, call_index: usize, failure: Failure) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.stage = Stage::Given;
        call.tiers.retries = 0;
        let is_task = call.task.is_some();
        match call.tiers.last.take() {
            // Whoever can take it may have it now: a task is not bound to the agent that it was given first.
            Some(_) if is_task => self.try_now_or_wait(turn, call_index, None),
            None => self.settle(turn, call_index, failure),
            Some(last) => {
                if !self.fall_back(turn, call_index) {
                    self.settle(turn, call_index, *last);
                }
            }
        }
    }

    /// Gives the call to another agent, if it allows that and there is one.
    fn fall_back(&mut self, turn: &mut Turn<'_>, call_index: usize) -> bool {
        let Some(call) = self.calls.get_mut(call_index) else { return false };
        if !std::mem::take(&mut call.tiers.fallback) {
            return false;
        }
        call.tiers.used = true;
        // Whatever comes of it is the last.
        call.tiers.retries = 0;
        let Ok(choice) = self.route_again(turn, call_index, None, true) else { return false };
        turn.fx.facts.push(Fact::Retry(Tier::OtherAgent));
        self.nobody_has(turn, call_index);
        self.give_stored(turn, call_index, choice);
        true
    }

    /// Ends a call that has no leg with a failure, or with an older result in its place.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>, call_index: usize, failure: Failure) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.stage = Stage::Given;
        let cached_ms = std::mem::take(&mut call.tiers.cached_ms);
        if failure.retryable && cached_ms > 0 {
            call.tiers.used = true;
            if self.end_with_cached(turn, call_index, cached_ms) {
                return;
            }
        }
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let failure = match call.tiers.used && failure.retryable {
            true => degraded(&failure),
            false => failure,
        };
        call.is_final |= !failure.retryable;
        let last = call.attempts.last().map(|tried| Arc::clone(&tried.target));
        self.finish(turn, call_index, last.as_ref(), None, &Ended::failed(failure));
    }

    /// Ends a call with the last good result of its capability and body, if it is young enough.
    fn end_with_cached(&mut self, turn: &mut Turn<'_>, call_index: usize, cached_ms: u64) -> bool {
        let Some(entry) = self.calls.get(call_index).map(|call| call.entry) else { return false };
        let Some((age_ms, end)) = self.memory.cached(turn.now, entry, cached_ms) else { return false };
        // The hub wrote it, so it reads.
        let Ok((ToAgent::Result(result), body)) = decode_to_agent(&end) else { return false };
        if let Some(call) = self.calls.get_mut(call_index) {
            call.log.step(turn.now, Step::FromCache { age_ms });
        }
        turn.fx.facts.push(Fact::Retry(Tier::Cached));
        let target: Option<Arc<str>> = result.target.map(Into::into);
        let ended = Ended {
            body: body.as_deref(),
            content_type: result.content_type,
            private: result.private.clone(),
            execution_ms: result.execution_ms,
            cached: true,
            ..Ended::done()
        };
        self.finish(turn, call_index, target.as_ref(), None, &ended);
        true
    }

    /// Whether a failure is the call's last word only after what else may be done about it.
    pub(crate) fn may_settle(&self, call_index: usize) -> bool {
        let call = self.calls.get(call_index);
        call.is_some_and(|call| !call.cancelling && (call.tiers.used || call.tiers.cached_ms > 0))
    }

    /// A trial that ends without saying anything of the agent.
    pub(crate) fn give_trial_back(&mut self, now: Now, index: usize) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        leg.trial = false;
        let Some(agent) = self.registry.agents.get_mut(leg.agent) else { return };
        if let Some(offer) = agent.offers.iter_mut().find(|offer| Arc::ptr_eq(&offer.name, &leg.capability)) {
            offer.end(now, &self.settings.breaker, true, Verdict::Neither);
        }
        let agent = leg.agent;
        self.may_take_more(agent);
    }

    /// Tells the breaker of an offer how a leg ended.
    pub(crate) fn tell_breaker(&mut self, turn: &Turn<'_>, index: usize, failure: Option<&Failure>) {
        let default_ms = self.settings.timeout_ms;
        let Some(leg) = self.legs.get_mut(index) else { return };
        let Some(agent) = self.registry.agents.get_mut(leg.agent) else { return };
        let Some(offer) = agent.offers.iter_mut().find(|offer| Arc::ptr_eq(&offer.name, &leg.capability))
        else {
            return;
        };
        // One that was not given its time is not to blame.
        let had_its_time = leg.timeout_ms >= offer.timeout_ms().unwrap_or(default_ms);
        let is_to_blame = |failure: &Failure| {
            matches!(failure.code, ErrorCode::AcceptTimeout | ErrorCode::AgentLost)
                || (failure.code == ErrorCode::HandlerError && failure.retryable)
                || (failure.code == ErrorCode::Timeout && had_its_time)
        };
        let verdict = match failure {
            None => Verdict::Success,
            Some(failure) if is_to_blame(failure) => Verdict::Failure,
            Some(_) => Verdict::Neither,
        };
        let trial = std::mem::take(&mut leg.trial);
        offer.end(turn.now, &self.settings.breaker, trial, verdict);
        let agent = leg.agent;
        if trial {
            self.may_take_more(agent);
        }
    }
}

impl Try {
    /// Whether the call may be given again after this: nobody can have got a part of its result, and a run whose end
    /// nobody knows does no harm when there is another.
    fn may_repeat(&self, code: ErrorCode) -> bool {
        // A provider that came back may be at work already, though it has not accepted what it was given again.
        let in_time = !matches!(code, ErrorCode::Timeout | ErrorCode::AcceptTimeout);
        let outcome_unknown = !in_time && self.accepted_at.is_some();
        !self.streamed && (self.idempotent || !outcome_unknown)
    }
}

/// What is left when every tier is used up.
fn degraded(cause: &Failure) -> Failure {
    let entry = cause.entry();
    let mut details = Writer::with_capacity(128);
    details.map(1);
    details.str("cause");
    details.map(3 + usize::from(entry.details.is_some()));
    details.str("code");
    details.str(entry.code);
    details.str("message");
    details.str(entry.message);
    details.str("retryable");
    details.bool(entry.retryable);
    if let Some(own) = entry.details {
        details.str("details");
        details.raw(own.0);
    }
    let message = format!("every tier was tried, and the last ended with {}: {}", entry.code, cause.message);
    Failure::new(ErrorCode::Degraded, message).with_details(details.into_bytes())
}
