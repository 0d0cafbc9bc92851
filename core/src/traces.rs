//! Every decision of a call with its time, in a bounded ring.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::effects::Outcome;
use crate::routing::Note;
use crate::time::Now;

/// Most steps one trace keeps. What is over is left out, but never the end.
const STEPS_MAX: usize = 256;

/// One thing that was decided, or happened.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Who could, and why the others could not.
    Routed(Note),
    /// CALL went to this agent.
    Given { target: Arc<str>, attempt: u32, load: (u32, u32) },
    /// Phase one, by an ACCEPT or by what stands for it.
    Accepted { target: Arc<str> },
    /// The first piece of a stream.
    FirstChunk { target: Arc<str> },
    /// One target's part ended.
    Answered { target: Arc<str>, outcome: Outcome },
    /// CANCEL went to this agent.
    CancelSent { target: Arc<str>, reason: &'static str },
    /// The target went away; it may come back.
    TargetAway { target: Arc<str> },
    /// The caller went away; it may come back.
    CallerAway,
    /// The same request id was asked for again.
    Joined,
    /// The caller cancelled.
    CancelAsked,
    /// The end.
    Ended(Outcome),
}

/// What became of one call.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) number: u64,
    pub(crate) request_id: Arc<str>,
    pub(crate) caller: Arc<str>,
    pub(crate) capability: Arc<str>,
    pub(crate) started: Now,
    pub(crate) steps: Vec<(Now, Step)>,
}

impl Trace {
    pub(crate) fn step(&mut self, now: Now, step: Step) {
        if self.steps.len() < STEPS_MAX || matches!(step, Step::Ended(_)) {
            self.steps.push((now, step));
        }
    }
}

/// Traces of the latest ended calls.
#[derive(Debug)]
pub(crate) struct Traces {
    ended: VecDeque<Trace>,
    bound: usize,
    /// What the trace that went last has left: room for the steps of the next.
    spare: Vec<(Now, Step)>,
}

/// Steps of a call that goes well, and most that a spare has room for.
const STEPS_USUAL: usize = 5;

impl Traces {
    pub(crate) fn new(bound: usize) -> Self {
        Self { ended: VecDeque::new(), bound, spare: Vec::new() }
    }

    pub(crate) fn push(&mut self, trace: Trace) {
        if self.bound == 0 {
            return;
        }
        if self.ended.len() >= self.bound
            && let Some(oldest) = self.ended.pop_front()
            && oldest.steps.capacity() == STEPS_USUAL
        {
            self.spare = oldest.steps;
            self.spare.clear();
        }
        self.ended.push_back(trace);
    }

    /// Room for the steps of one more call.
    pub(crate) fn steps(&mut self) -> Vec<(Now, Step)> {
        let mut steps = std::mem::take(&mut self.spare);
        steps.reserve_exact(STEPS_USUAL);
        steps
    }

    pub(crate) fn find(&self, number: u64) -> Option<&Trace> {
        self.ended.iter().rev().find(|trace| trace.number == number)
    }
}
