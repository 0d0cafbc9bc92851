//! The tree of spans that the steps of a call make.

use agent_reach_protocol::{CallMode, ErrorCode};

use super::{CallTrace, Hop, SPANS_PER_STEP, Span, SpanEvent};
use crate::effects::Outcome;
use crate::routing::{Exclusion, Note};
use crate::time::Now;
use crate::traces::Step;

/// Most agents that a choice names.
const CHOSEN_SHOWN: usize = 16;

/// A delivery that has not ended, at this point of the log.
struct Open<'a> {
    target: &'a str,
    /// Which step of the call it is.
    step: usize,
    /// Its place among the spans.
    span: usize,
    since: Now,
    accepted: Option<Now>,
    /// When its connection was lost.
    away: Option<Now>,
}

struct Builder<'a> {
    trace: &'a CallTrace,
    spans: Vec<Span<'a>>,
    open: Vec<Open<'a>>,
    /// The wait, and the choice, that what comes next belongs to.
    queue: Option<usize>,
    route: Option<usize>,
    last_answer: Option<Now>,
}

pub(super) fn spans(trace: &CallTrace) -> Vec<Span<'_>> {
    let receive = Span {
        id: trace.context.span_id,
        parent: trace.context.parent,
        hop: Hop::Receive,
        start: trace.started,
        end: trace.ended,
        outcome: Some(trace.outcome),
        events: Vec::new(),
    };
    let mut builder = Builder {
        trace,
        spans: vec![receive],
        open: Vec::new(),
        queue: None,
        route: None,
        last_answer: None,
    };
    for (place, (at, step)) in trace.log.steps().enumerate() {
        builder.step(place, at, step);
    }
    builder.spans
}

impl<'a> Builder<'a> {
    fn step(&mut self, place: usize, at: Now, step: Step<&'a str>) {
        match step {
            Step::Routed { note } => {
                self.leave_queue(at);
                let hop = self.trace.log.note(note).map(|note| route(note, self.trace.directed));
                self.route = hop.map(|hop| self.add(place, 0, hop, at));
            }
            Step::Waits { before } => {
                self.leave_queue(at);
                self.queue = Some(self.add(place, 0, Hop::Queue { before }, at));
            }
            Step::Given { target, attempt, load } => self.given(place, at, target, attempt, load),
            Step::Accepted { target } => {
                let open = self.open.iter_mut().find(|open| open.target == target && open.accepted.is_none());
                if let Some(open) = open {
                    open.accepted = Some(at);
                    let (step, since, parent) = (open.step, open.since, open.span);
                    self.add_below(parent, (step, 1), Hop::Accept, (since, at), None);
                }
            }
            Step::Answered { target, outcome } => {
                self.last_answer = Some(at);
                self.close(target, at, outcome);
            }
            Step::Ended(outcome) => self.ended(place, at, outcome),
            Step::FirstChunk { target } => self.event(at, "first_chunk", Some(target), None),
            Step::CancelSent { target, reason } => {
                self.event(at, "cancel_sent", Some(target), Some(reason.to_owned()));
            }
            Step::TargetAway { target } => {
                self.event(at, "target_away", Some(target), None);
                if let Some(open) = self.open.iter_mut().find(|open| open.target == target) {
                    open.away = Some(at);
                }
            }
            Step::RetryIn { target, ms } => {
                self.event(at, "retry_in", Some(target), Some(format!("{ms} ms")));
            }
            Step::FromCache { age_ms } => {
                self.event(at, "from_cache", None, Some(format!("{age_ms} ms old")))
            }
            Step::CallerAway => self.event(at, "caller_away", None, None),
            Step::Joined => self.event(at, "joined", None, None),
            Step::CancelAsked => self.event(at, "cancel_asked", None, None),
        }
    }

    fn given(&mut self, place: usize, at: Now, target: &'a str, attempt: u32, load: (u32, u32)) {
        self.leave_queue(at);
        // It came back, and is given again what its lost connection took with it.
        let away = self.open.iter().find(|open| open.target == target).and_then(|open| open.away);
        self.close(target, away.unwrap_or(at), Outcome::Failed(ErrorCode::AgentLost));
        if let Some(Span { hop: Hop::Route { chosen, .. }, .. }) =
            self.route.and_then(|route| self.spans.get_mut(route))
            && chosen.len() < CHOSEN_SHOWN
            && !chosen.contains(&target)
        {
            chosen.push(target);
        }
        let span = self.add(place, 0, Hop::Deliver { target, attempt, load }, at);
        self.open.push(Open { target, step: place, span, since: at, accepted: None, away: None });
    }

    /// One target's part is over.
    fn close(&mut self, target: &str, at: Now, outcome: Outcome) {
        let Some(place) = self.open.iter().position(|open| open.target == target) else { return };
        let Open { step, span, since, accepted, .. } = self.open.remove(place);
        if let Some(deliver) = self.spans.get_mut(span) {
            deliver.end = at;
            deliver.outcome = Some(outcome);
        }
        match accepted {
            // The work of a notify goes on, and nobody hears of its end.
            Some(_) if self.trace.mode == CallMode::Notify => {}
            Some(accepted) => {
                self.add_below(span, (step, 2), Hop::Process, (accepted, at), Some(outcome));
            }
            None => self.add_below(span, (step, 1), Hop::Accept, (since, at), Some(outcome)),
        }
    }

    fn ended(&mut self, place: usize, at: Now, outcome: Outcome) {
        self.leave_queue(at);
        while let Some(target) = self.open.first().map(|open| open.target) {
            self.close(target, at, outcome);
        }
        let start = self.last_answer.unwrap_or(at);
        let result = self.add(place, 0, Hop::Result, start);
        if let Some(result) = self.spans.get_mut(result) {
            result.end = at;
        }
    }

    fn leave_queue(&mut self, at: Now) {
        if let Some(queue) = self.queue.take().and_then(|queue| self.spans.get_mut(queue)) {
            queue.end = at;
        }
    }

    /// Adds a span of no length below the whole call. Gives its place.
    fn add(&mut self, step: usize, slot: usize, hop: Hop<'a>, at: Now) -> usize {
        self.add_below(0, (step, slot), hop, (at, at), None);
        self.spans.len() - 1
    }

    fn add_below(
        &mut self,
        parent: usize,
        (step, slot): (usize, usize),
        hop: Hop<'a>,
        (start, end): (Now, Now),
        outcome: Option<Outcome>,
    ) {
        let id = self.trace.context.span_id.below(step * SPANS_PER_STEP + slot);
        let parent = self.spans.get(parent).map(|parent| parent.id);
        self.spans.push(Span { id, parent, hop, start, end, outcome, events: Vec::new() });
    }

    /// Notes what happened, with the delivery it is about if that is open.
    fn event(&mut self, at: Now, name: &'static str, target: Option<&'a str>, reason: Option<String>) {
        let open = self.open.iter().find(|open| Some(open.target) == target);
        let span = open.map_or(0, |open| open.span);
        if let Some(span) = self.spans.get_mut(span) {
            span.events.push(SpanEvent { at, name, target, reason });
        }
    }
}

fn route<'a>(note: &Note, directed: bool) -> Hop<'a> {
    let excluded = Exclusion::ALL.iter().zip(note.excluded).filter(|(_, count)| *count > 0);
    Hop::Route {
        policy: note.policy.as_str(),
        offering: note.offering,
        able: note.able,
        excluded: excluded.map(|(why, count)| (why.as_str(), count)).collect(),
        chosen: Vec::new(),
        reason: note.line(directed, None),
    }
}
