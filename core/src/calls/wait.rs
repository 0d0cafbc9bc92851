//! Calls that wait for who can take them.

use std::sync::Arc;

use agent_reach_protocol::{ErrorCode, ToAgent, decode_to_agent};

use super::asking::nobody;
use super::give::{Carried, Copies};
use super::{Call, Failure, Stage};
use crate::authz::covers;
use crate::hub::{Hub, Turn};
use crate::registry::rights_of;
use crate::routing::{
    Choice, NoRoute, Note, Routed, all_who_can_take, can_take, chance_of, misfits, next_chance, route,
};
use crate::time::{Now, Timer};
use crate::traces::Step;
use crate::waiting::{First, Full};

impl Hub {
    /// Routes a call again. `agent`: to that one only; `fallback`: to none that was tried.
    pub(crate) fn route_again(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        agent: Option<&Arc<str>>,
        fallback: bool,
    ) -> Result<Choice, NoRoute> {
        let Some(call) = self.calls.get(call_index) else { return Err(NoRoute::NoneAble) };
        let stored = self.stored(call, agent, fallback);
        let routed = stored.with_wanted(turn.now, |wanted| route(&mut self.registry, wanted, &mut self.rng));
        let (answer, note) = match routed {
            Routed::To(chosen, note) => (chosen.first().copied().ok_or(NoRoute::NoneAble), note),
            Routed::Nobody(why, note) => (Err(why), note),
        };
        if let Some(call) = self.calls.get_mut(call_index) {
            call.note = note;
            call.log.routed(turn.now, note);
        }
        answer
    }

    /// Gives a call that has no leg to one that was chosen.
    pub(crate) fn give_stored(&mut self, turn: &mut Turn<'_>, call_index: usize, choice: Choice) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.stage = Stage::Given;
        call.open = 1;
        call.summary.targets = 1;
        let given = call.given.clone();
        self.clear_call_timer(call_index);
        // The hub wrote it, so it reads.
        if let Ok((ToAgent::Call(before), body)) = decode_to_agent(&given) {
            let carried = Carried::again(&before);
            self.give(turn, call_index, &carried, body.as_deref(), choice, &mut Copies::default());
        }
    }

    /// Lets a call wait that nobody can take now, or says why it cannot wait.
    ///
    /// It waits for a slot for as long as its budget lasts, and for somebody to come at all for `wait_ms`.
    pub(crate) fn wait(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        why: NoRoute,
        agent: Option<&Arc<str>>,
    ) -> Result<(), Failure> {
        let Some(call) = self.calls.get(call_index) else { return Ok(()) };
        let stored = self.stored(call, agent, false);
        let beside = call.task.is_some();
        // A task outlasts a breaker.
        let for_a_slot =
            matches!(why, NoRoute::Busy | NoRoute::RateLimited) || (beside && why == NoRoute::Tripped);
        let for_anybody = matches!(why, NoRoute::NoneAble | NoRoute::NeverOffered);
        let until = if for_a_slot && call.queue {
            call.budget_at
        } else if for_anybody && call.wait_until > turn.now {
            call.wait_until
        } else {
            return Err(nobody(why, &stored.name));
        };
        let until = until.min(call.budget_at);
        let rights = match self.registry.agents.get(stored.caller) {
            Some(caller) => caller.rights(),
            None => stored.grant.as_deref().and_then(|grant| rights_of(&grant.call, None)),
        };
        let misfits = stored.with_wanted(turn.now, |wanted| misfits(&self.registry, wanted));
        let line = stored.demand.line(&stored.name, rights, &misfits);
        let place = match self.waiting.join(line, call.priority, call_index, beside) {
            Ok(place) => place,
            Err(_) if beside => {
                self.try_later(turn, call_index);
                return Ok(());
            }
            Err(full) => return Err(no_room(&stored.name, full)),
        };
        let before = u32::try_from(self.waiting.before(place)).unwrap_or(u32::MAX);
        if let Some(call) = self.calls.get_mut(call_index) {
            call.stage = Stage::Waiting { place, agent: agent.cloned() };
            call.log.step(turn.now, Step::Waits { before });
        }
        self.set_call_timer(call_index, until);
        if for_a_slot {
            self.watch_the_clock(turn.now, place.line, &stored.name);
        }
        Ok(())
    }

    /// Arranges for a look at a line when time alone lets one of its calls go: a `qps_limit` or a breaker.
    fn watch_the_clock(&mut self, now: Now, line: usize, name: &str) {
        if let Some(at) = next_chance(&self.registry, name, now) {
            self.look_at_line(line, at);
        }
    }

    /// The same for the lines of one agent that has room, and could take more of them but for its `qps_limit` or its
    /// breaker.
    fn watch_the_clock_of(&mut self, now: Now, key: usize) {
        let Some(agent) = self.registry.agents.get(key) else { return };
        let mut moments: Vec<(usize, Now)> = Vec::new();
        for offer in &agent.offers {
            let Some(at) = chance_of(offer, now) else { continue };
            let lines = offer.names().flat_map(|name| self.waiting.lines_of(name));
            moments.extend(lines.map(|line| (line, at)));
        }
        for (line, at) in moments {
            self.look_at_line(line, at);
        }
    }

    /// Arranges for a look at a line, if none comes sooner.
    fn look_at_line(&mut self, line: usize, at: Now) {
        let before = self.waiting.set_timer(line, Some(at));
        if before.is_some_and(|before| before <= at) {
            self.waiting.set_timer(line, before);
            return;
        }
        if let Some(before) = before {
            self.timers.clear(before, Timer::Line(line));
        }
        self.timers.set(at, Timer::Line(line));
    }

    /// Time may have made room for a line: whoever can take its calls serves all of its own, in their turn.
    pub(crate) fn on_line_timer(&mut self, turn: &mut Turn<'_>, line: usize) {
        self.waiting.set_timer(line, None);
        let Some(first) = self.waiting.first_of_line(line) else { return };
        let Some(call) = self.calls.get(first.call) else { return };
        let stored = self.stored(call, call.narrowed(), false);
        let able = stored.with_wanted(turn.now, |wanted| all_who_can_take(&self.registry, wanted));
        for key in able {
            self.may_take_more(key);
        }
        self.watch_the_clock(turn.now, line, &stored.name);
    }

    /// Takes a call out of its line.
    pub(crate) fn stop_waiting(&mut self, call_index: usize) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        if let Stage::Waiting { place, .. } = std::mem::replace(&mut call.stage, Stage::Given)
            && let Some(timer_at) = self.waiting.leave(place)
        {
            self.timers.clear(timer_at, Timer::Line(place.line));
        }
    }

    /// An agent may be able to take more than before.
    pub(crate) fn may_take_more(&mut self, key: usize) {
        if !self.waiting.is_empty() {
            self.freed.insert(key);
        }
    }

    /// An agent takes less than before, or is gone: who waits for one like it may wait in vain.
    pub(crate) fn may_take_less(&mut self, key: usize) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(agent) = self.registry.agents.get(key) else { return };
        let names: Vec<Arc<str>> =
            agent.offers.iter().flat_map(|offer| offer.names()).map(Arc::clone).collect();
        self.doubtful.extend(names.into_iter().filter(|name| !self.waiting.lines_of(name).is_empty()));
    }

    /// Gives waiting calls to whom this turn has made able, and ends those that wait in vain.
    pub(crate) fn serve_waiting(&mut self, turn: &mut Turn<'_>) {
        loop {
            if let Some(key) = self.freed.pop_first() {
                self.serve(turn, key);
            } else if let Some(name) = self.doubtful.pop() {
                self.give_up(turn, &name);
            } else {
                return;
            }
        }
    }

    /// Gives waiting calls to an agent while it has room, the oldest of all its capabilities first.
    fn serve(&mut self, turn: &mut Turn<'_>, key: usize) {
        while !self.waiting.is_empty() {
            let Some(agent) = self.registry.agents.get(key) else { return };
            if agent.session.is_none() || agent.in_flight >= agent.max_concurrency {
                return;
            }
            let names = agent.offers.iter().flat_map(|offer| offer.names());
            let next = names.filter_map(|name| Some((name, self.first_for(turn.now, name, key)?)));
            let Some((name, first)) = next.min_by_key(|(_, first)| first.place.number()) else {
                return self.watch_the_clock_of(turn.now, key);
            };
            let name = Arc::clone(name);
            self.let_go(turn, &name, first);
        }
    }

    /// The call of a capability whose turn it is, among those that an agent can take.
    fn first_for(&self, now: Now, name: &Arc<str>, key: usize) -> Option<First> {
        self.waiting.first(name, |first| {
            let Some(call) = self.calls.get(first.call) else { return false };
            let stored = self.stored(call, call.narrowed(), false);
            stored.with_wanted(now, |wanted| can_take(&self.registry, key, wanted))
        })
    }

    /// A waiting call's turn has come.
    fn let_go(&mut self, turn: &mut Turn<'_>, name: &Arc<str>, first: First) {
        self.waiting.took_turn(name);
        let agent = self.calls.get(first.call).and_then(Call::narrowed).cloned();
        self.stop_waiting(first.call);
        if let Err(failure) = self.still_allowed(first.call) {
            return self.settle(turn, first.call, failure);
        }
        match self.route_again(turn, first.call, agent.as_ref(), false) {
            Ok(choice) => self.give_stored(turn, first.call, choice),
            Err(why) => self.give_up_on(turn, first.call, nobody(why, name)),
        }
    }

    /// Rights are checked again when a call that waited is sent.
    pub(crate) fn still_allowed(&self, call_index: usize) -> Result<(), Failure> {
        let Some(call) = self.calls.get(call_index) else { return Ok(()) };
        let resolved = self.policy.resolve(&call.capability);
        let mut names = [&*call.capability, resolved].into_iter();
        let denied = match self.owner_of(call).and_then(|owner| self.registry.agents.get(owner)) {
            Some(agent) => names.find(|name| !agent.may_call(name)),
            // The caller of a task may be anywhere: what it may do is looked up.
            None if call.task.is_some() => {
                let grant = self.grant_of(call);
                names.find(|name| !grant.as_ref().is_some_and(|grant| covers(&grant.call, name)))
            }
            None => None,
        };
        match denied {
            None => Ok(()),
            Some(name) => {
                let message = format!("{} is no longer granted to call {name}", call.caller);
                Err(Failure::new(ErrorCode::Unauthorized, message))
            }
        }
    }

    /// Ends the calls of a capability for which nobody is left whom they could wait for.
    fn give_up(&mut self, turn: &mut Turn<'_>, name: &Arc<str>) {
        for line in self.waiting.lines_of(name) {
            let Some(first) = self.waiting.first_of_line(line) else { continue };
            let Some(call) = self.calls.get(first.call) else { continue };
            let stored = self.stored(call, call.narrowed(), false);
            let routed =
                stored.with_wanted(turn.now, |wanted| route(&mut self.registry, wanted, &mut self.rng));
            let Routed::Nobody(why, note) = routed else { continue };
            if note.has_hope() {
                continue;
            }
            for call in self.waiting.calls_of(line) {
                self.lost_hope(turn, call, why, note);
            }
        }
    }

    /// Nobody is left who could take a waiting call: it may still wait for somebody to come.
    fn lost_hope(&mut self, turn: &mut Turn<'_>, call_index: usize, why: NoRoute, note: Note) {
        let name = match self.calls.get(call_index) {
            Some(call) => self.resolved(&call.capability),
            None => return,
        };
        let Some(call) = self.calls.get_mut(call_index) else { return };
        if call.wait_until > turn.now {
            let until = call.wait_until.min(call.budget_at);
            return self.set_call_timer(call_index, until);
        }
        call.note = note;
        self.stop_waiting(call_index);
        self.give_up_on(turn, call_index, nobody(why, &name));
    }

    /// New rules, of the hub or of one agent, by its key and serial: who waits may be for others now, or for nobody.
    pub(crate) fn requeue(&mut self, turn: &mut Turn<'_>, owner: Option<(usize, u64)>) {
        for call_index in self.waiting.all() {
            let Some(call) = self.calls.get(call_index) else { continue };
            if owner.is_some_and(|owner| owner != call.owner) {
                continue;
            }
            let agent = call.narrowed().cloned();
            self.stop_waiting(call_index);
            if let Err(failure) = self.still_allowed(call_index) {
                self.settle(turn, call_index, failure);
                continue;
            }
            self.try_now_or_wait(turn, call_index, agent.as_ref());
        }
    }

    /// Routes a call that has no leg, and lets it wait where nobody can take it.
    pub(crate) fn try_now_or_wait(
        &mut self,
        turn: &mut Turn<'_>,
        call_index: usize,
        agent: Option<&Arc<str>>,
    ) {
        if self.tasks_rest() && self.rest_task(call_index) {
            return;
        }
        let outcome = match self.route_again(turn, call_index, agent, false) {
            Ok(choice) => return self.give_stored(turn, call_index, choice),
            Err(why) => self.wait(turn, call_index, why, agent),
        };
        if let Err(failure) = outcome {
            self.give_up_on(turn, call_index, failure);
        }
    }

    /// Sets the one timer of a call that has no leg.
    pub(crate) fn set_call_timer(&mut self, call_index: usize, at: Now) {
        self.clear_call_timer(call_index);
        if let Some(call) = self.calls.get_mut(call_index) {
            call.timer_at = at;
            self.timers.set(at, Timer::Call(call_index));
        }
    }

    pub(crate) fn clear_call_timer(&mut self, call_index: usize) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        let before = std::mem::take(&mut call.timer_at);
        if before != Now::default() {
            self.timers.clear(before, Timer::Call(call_index));
        }
    }

    /// A call without a leg has waited for as long as it may, or its next try is due.
    pub(crate) fn on_call_timer(&mut self, turn: &mut Turn<'_>, call_index: usize) {
        let Some(call) = self.calls.get_mut(call_index) else { return };
        call.timer_at = Now::default();
        if turn.now >= call.budget_at {
            self.stop_waiting(call_index);
            let failure = Failure::new(ErrorCode::BudgetExhausted, "the total budget of the call is spent");
            return self.settle(turn, call_index, failure);
        }
        let stage = call.stage.clone();
        if self.tasks_rest() && !matches!(stage, Stage::Returning { .. }) && self.rest_task(call_index) {
            return;
        }
        match stage {
            Stage::Given => {}
            Stage::Backoff { agent } => self.retry(turn, call_index, &agent),
            Stage::Later => self.try_now_or_wait(turn, call_index, None),
            Stage::Returning { holder } => self.holder_is_lost(turn, call_index, &holder),
            Stage::Waiting { agent, .. } => {
                // Nobody came in `wait_ms`. Somebody may be there who is only busy.
                self.stop_waiting(call_index);
                self.try_now_or_wait(turn, call_index, agent.as_ref());
            }
        }
    }
}

/// Why a line takes no more.
fn no_room(name: &str, full: Full) -> Failure {
    match full {
        Full::Calls(bound) => Failure::overloaded(&format!("{bound} calls of {name} wait already")),
        Full::Lines(bound) => Failure::overloaded(&format!(
            "calls of {name} with {bound} different demands on their agents wait already"
        )),
    }
}
