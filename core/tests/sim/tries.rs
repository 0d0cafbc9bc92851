//! What becomes of each call at its providers: how often it is tried, where, and after what.

use std::collections::BTreeMap;

use agent_reach_core::{ConnectionId, Now};
use agent_reach_protocol::{CallResult, names};

use super::Sim;
use super::callers::PER_AGENT;
use super::model::{Given, Intent};

/// What a CALL is, as far as its provider can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    First,
    /// Certainly a further try of the hub's.
    Again,
    /// Given again to a life that came back; or perhaps a further try, where the one before was lost unread.
    Resumed,
}

/// One call of the hub, by what its providers know.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// By the number of the attempt: the connection that it was read from, and the agent.
    given: BTreeMap<u64, (ConnectionId, usize)>,
    /// The first attempt of whose stream the hub has a piece.
    streamed: Option<u64>,
    /// The first attempt that the hub knows to be accepted, while it knows of no end.
    unknown: Option<u64>,
}

impl Sim {
    /// The hub took an ACCEPT.
    pub(super) fn accepted_by_hub(&mut self, call: u64, attempt: u64) {
        self.runs.entry(call).or_default().unknown.get_or_insert(attempt);
    }

    /// The hub took a RESULT.
    pub(super) fn answered_to_hub(&mut self, call: u64) {
        self.runs.entry(call).or_default().unknown = None;
    }

    /// The hub took a CHUNK.
    pub(super) fn piece_taken(&mut self, call: u64, attempt: u64) {
        let run = self.runs.entry(call).or_default();
        run.streamed.get_or_insert(attempt);
        run.unknown.get_or_insert(attempt);
    }

    /// A provider reads a CALL: which try of it this is, and whether it may be made.
    pub(super) fn tried(&mut self, id: ConnectionId, given: &Given) -> Try {
        let Some(conn) = self.conns.get(&id) else { return Try::First };
        let agent = conn.agent;
        if let Some(task) = given.task {
            return self.task_tried(task, given.attempt, conn.life, agent);
        }
        let came_back = self.players[agent].lived.get(&conn.life).is_some_and(|times| *times > 1);
        let run = self.runs.entry(given.call).or_default();
        let here_before = run.given.values().any(|(other, _)| *other == id);
        let kind = match given.attempt {
            0 | 1 => Try::First,
            _ if here_before || !came_back => Try::Again,
            _ => Try::Resumed,
        };
        let twice = run.given.insert(given.attempt, (id, agent)).is_some();
        let one_target = self.intent(given.number).filter(|intent| !intent.is_fan_out());
        if let Some(intent) = one_target {
            let run = &self.runs[&given.call];
            assert!(!twice, "{TRIES}: an attempt is made twice: {given:?} {run:?}");
            no_call_is_tried_more_often_than_it_may(self, run, intent, given);
            a_call_runs_in_one_place(self, id, given);
            if kind == Try::Again {
                *self.met.entry("again").or_default() += 1;
                let run = &self.runs[&given.call];
                nothing_runs_again_that_may_have_run(run, given);
            }
        }
        kind
    }
}

/// A call is tried once, so often again as its caller said, and once elsewhere when that is allowed; beside what
/// agents that came back are given again.
fn no_call_is_tried_more_often_than_it_may(sim: &Sim, run: &Run, intent: &Intent, given: &Given) {
    let came_since = sim.registrations - intent.first.map_or(0, |(_, before)| before);
    let most = intent.terms.tries() + came_since;
    assert!(given.attempt <= most, "{TRIES}: attempt {} of {most}: {given:?} of {intent:?}", given.attempt);
    // Not every one was read.
    let mut agents: Vec<usize> = run.given.values().map(|(_, agent)| *agent).collect();
    agents.dedup();
    let allowed = 1 + usize::from(intent.terms.fallback && intent.agents.is_empty());
    assert!(agents.len() <= allowed, "{TRIES}: it went round {agents:?}: {given:?} of {intent:?}");
}

const TRIES: &str = "no_call_is_tried_more_often_than_it_may";

/// Nothing is tried again of which the caller has a piece, nor what may have run to an end that nobody knows, unless
/// that does no harm.
fn nothing_runs_again_that_may_have_run(run: &Run, given: &Given) {
    // It may be read late.
    let before = |first: Option<u64>| first.is_some_and(|first| first < given.attempt);
    assert!(!before(run.streamed), "nothing_runs_again_after_a_piece_of_it: {given:?} {run:?}");
    let harmless = given.capability == "x.three";
    assert!(
        !before(run.unknown) || harmless,
        "nothing_runs_again_whose_outcome_is_unknown: {given:?} {run:?}"
    );
}

/// While one provider works on a call no other is given it.
fn a_call_runs_in_one_place(sim: &Sim, id: ConnectionId, given: &Given) {
    let others =
        sim.conns.values().filter(|conn| conn.id == id || !(conn.left || conn.pending || conn.unheard));
    let other = others
        .flat_map(|conn| conn.given.values())
        .find(|other| other.call == given.call && other.attempt < given.attempt && !other.cancelled);
    assert!(other.is_none(), "a_call_runs_in_one_place: {given:?} while {other:?}");
}

/// `attempts` holds no more tries than the caller allowed, beside those that a connection took with it, and goes
/// elsewhere once at the most.
pub(super) fn attempts_stay_within_their_bound(intent: &Intent, result: &CallResult<'_>) {
    let name = "attempts_stay_within_their_bound";
    if intent.is_fan_out() || result.duplicate {
        return;
    }
    let tries = result.attempts.iter().filter(|tried| tried.reason != "its connection was lost").count();
    let most = intent.terms.tries();
    assert!(tries as u64 <= most, "{name}: {tries} of {most}: {result:?} of {intent:?}");
    let moves = result.attempts.windows(2).filter(|pair| pair[0].target != pair[1].target).count();
    let allowed = usize::from(intent.terms.fallback && intent.agents.is_empty());
    assert!(moves <= allowed, "{name}: {moves} agents further: {result:?} of {intent:?}");
    let first = result.attempts.first().map(|tried| tried.target);
    let at_first = result.attempts.iter().filter(|tried| Some(tried.target) == first);
    let at_first = at_first.filter(|tried| tried.reason != "its connection was lost").count() as u64;
    assert!(
        at_first <= 1 + intent.terms.retries,
        "{name}: {at_first} on one agent: {result:?} of {intent:?}"
    );
    let code = result.error.as_ref().map(|error| error.code);
    assert!(code != Some("degraded") || !tiers_are_off(intent), "{name}: {result:?} of {intent:?}");
}

fn tiers_are_off(intent: &Intent) -> bool {
    intent.terms.tries() == 1 && intent.terms.cached_ms == 0
}

/// An older result that stands in is of the same caller, capability and body, and no older than the caller said. Of
/// when it was given only `since` is known, and that it is over.
pub(super) fn a_cached_answer_is_as_young_as_asked(
    sim: &Sim,
    since: Now,
    intent: &Intent,
    size: usize,
    body: Option<&[u8]>,
) {
    let name = "a_cached_answer_is_as_young_as_asked";
    let body = String::from_utf8_lossy(body.unwrap_or_default());
    let mut words = body.split_whitespace();
    let (done, number, of) = (words.next(), words.next(), words.next());
    let number: u64 = number.and_then(|word| word.parse().ok()).unwrap_or_default();
    let Some(first) = sim.intent(number).filter(|_| done == Some("done")) else {
        panic!("{name}: {body:?} for {intent:?}");
    };
    let same_caller = (number - 1) / PER_AGENT == (intent.number - 1) / PER_AGENT;
    let same = names::fold(first.capability) == names::fold(intent.capability);
    let same_body = of.and_then(|word| word.parse().ok()) == Some(size);
    assert!(same_caller && same && same_body, "{name}: {body:?} of {first:?} for {intent:?}");
    let done = sim.done.get(&number).copied();
    let young = done.is_some_and(|done| done.plus_ms(intent.terms.cached_ms + 1) >= since);
    assert!(young, "{name}: done at {done:?}, given since {since:?}: {intent:?}");
}
