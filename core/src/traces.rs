//! Every decision of a call with its time, in a bounded ring.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::effects::Outcome;
use crate::routing::Note;
use crate::text::ShortText;
use crate::time::Now;

/// Most steps one trace keeps. What is over is left out, but never the end.
const STEPS_MAX: usize = 256;

/// One thing that was decided, or happened; `T` is the target it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    /// Who could, and why the others could not: the note of this place.
    Routed { note: u16 },
    /// It waits, with so many before it.
    Waits { before: u32 },
    /// The next try on this agent comes in so many milliseconds.
    RetryIn { target: T, ms: u64 },
    /// An older result of this age, in milliseconds, was given.
    FromCache { age_ms: u64 },
    /// CALL went to this agent.
    Given { target: T, attempt: u32, load: (u32, u32) },
    /// Phase one, by an ACCEPT or by what stands for it.
    Accepted { target: T },
    /// The first piece of a stream.
    FirstChunk { target: T },
    /// One target's part ended.
    Answered { target: T, outcome: Outcome },
    /// CANCEL went to this agent.
    CancelSent { target: T, reason: &'static str },
    /// The target went away; it may come back.
    TargetAway { target: T },
    /// The caller went away; it may come back.
    CallerAway,
    /// The same request id was asked for again.
    Joined,
    /// The caller cancelled.
    CancelAsked,
    /// The end.
    Ended(Outcome),
}

impl<T> Step<T> {
    /// The same step about what `map` makes of its target.
    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Step<U> {
        match self {
            Self::Routed { note } => Step::Routed { note },
            Self::Waits { before } => Step::Waits { before },
            Self::RetryIn { target, ms } => Step::RetryIn { target: map(target), ms },
            Self::FromCache { age_ms } => Step::FromCache { age_ms },
            Self::Given { target, attempt, load } => Step::Given { target: map(target), attempt, load },
            Self::Accepted { target } => Step::Accepted { target: map(target) },
            Self::FirstChunk { target } => Step::FirstChunk { target: map(target) },
            Self::Answered { target, outcome } => Step::Answered { target: map(target), outcome },
            Self::CancelSent { target, reason } => Step::CancelSent { target: map(target), reason },
            Self::TargetAway { target } => Step::TargetAway { target: map(target) },
            Self::CallerAway => Step::CallerAway,
            Self::Joined => Step::Joined,
            Self::CancelAsked => Step::CancelAsked,
            Self::Ended(outcome) => Step::Ended(outcome),
        }
    }
}

/// A target's place among those of a log.
type TargetIndex = u16;

/// Steps of a call that goes well.
const STEPS_USUAL: usize = 5;

/// The steps of one call.
///
/// A usual one has them in itself, and lies beside the call while that is open. The ring takes it as it is: what went there
/// thousands of calls ago is in no cache, and is written over from one end to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// How each choice came about.
    notes: SmallVec<[Note; 1]>,
    /// All that steps are about, each once.
    targets: SmallVec<[Arc<str>; 1]>,
    steps: SmallVec<[(Now, Step<TargetIndex>); STEPS_USUAL]>,
}

impl Log {
    /// One that begins with how the first choice came about.
    pub(crate) fn new(now: Now, note: Option<Note>) -> Self {
        let mut log = Self::default();
        if let Some(note) = note {
            log.routed(now, note);
        }
        log
    }

    /// Adds a step, unless there are too many already. Gives its place.
    pub(crate) fn step(&mut self, now: Now, step: Step<&Arc<str>>) -> Option<usize> {
        if self.steps.len() >= STEPS_MAX && !matches!(step, Step::Ended(_)) {
            return None;
        }
        let targets = &mut self.targets;
        let step = step.map(|target| {
            let known = targets.iter().position(|own| Arc::ptr_eq(own, target) || **own == **target);
            let index = known.unwrap_or_else(|| {
                targets.push(Arc::clone(target));
                targets.len() - 1
            });
            // Not more than there are steps.
            TargetIndex::try_from(index).unwrap_or(TargetIndex::MAX)
        });
        self.steps.push((now, step));
        Some(self.steps.len() - 1)
    }

    /// Adds how a choice came about.
    pub(crate) fn routed(&mut self, now: Now, note: Note) {
        if self.notes.len() < STEPS_MAX {
            let place = u16::try_from(self.notes.len()).unwrap_or(u16::MAX);
            self.notes.push(note);
            self.step(now, Step::Routed { note: place });
        }
    }

    /// All that steps are about, each once: at most as many as there are steps.
    pub(crate) fn targets(&self) -> &[Arc<str>] {
        &self.targets
    }

    /// How the choice of a step came about.
    pub(crate) fn note(&self, place: u16) -> Option<&Note> {
        self.notes.get(usize::from(place))
    }

    /// About what it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let names: usize = self.targets.iter().map(|target| target.len() + size_of::<Arc<str>>()).sum();
        names
            + self.notes.len() * size_of::<Note>()
            + self.steps.len() * size_of::<(Now, Step<TargetIndex>)>()
    }

    /// The steps with their times.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Now, Step<&str>)> {
        let name = |index: TargetIndex| self.targets.get(usize::from(index)).map_or("", |target| &**target);
        self.steps.iter().map(move |(at, step)| (*at, step.map(name)))
    }
}

/// What became of one call.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) number: u64,
    /// Of its own: the last owner of a shared one would have to look for its count, which is in no cache any more.
    pub(crate) request_id: ShortText,
    pub(crate) caller: Arc<str>,
    pub(crate) capability: Arc<str>,
    pub(crate) started: Now,
    pub(crate) log: Log,
}

/// Traces of the latest ended calls.
#[derive(Debug)]
pub(crate) struct Traces {
    /// A ring, once it is full: the next goes to the place of the oldest.
    ended: Vec<Trace>,
    next: usize,
    bound: usize,
}

impl Traces {
    pub(crate) const fn new(bound: usize) -> Self {
        Self { ended: Vec::new(), next: 0, bound }
    }

    pub(crate) fn push(&mut self, trace: Trace) {
        if self.bound == 0 {
            return;
        }
        match self.ended.get_mut(self.next) {
            // Where it lies: to take it out first would move all of it.
            Some(oldest) => *oldest = trace,
            None => self.ended.push(trace),
        }
        self.next += 1;
        if self.next >= self.bound {
            self.next = 0;
        }
    }

    /// The one that was pushed last.
    pub(crate) fn latest(&self) -> Option<&Trace> {
        self.ended.get(self.next.checked_sub(1).unwrap_or(self.bound.saturating_sub(1)))
    }

    pub(crate) fn find(&self, number: u64) -> Option<&Trace> {
        self.ended.iter().find(|trace| trace.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(number: u64) -> Trace {
        Trace {
            number,
            request_id: "r".into(),
            caller: "c".into(),
            capability: "echo".into(),
            started: Now::default(),
            log: Log::default(),
        }
    }

    #[test]
    fn the_ring_has_the_latest_as_many_as_its_bound_and_knows_the_last() {
        let mut traces = Traces::new(3);
        assert!(traces.latest().is_none());
        for number in 1..=8 {
            traces.push(trace(number));
            assert_eq!(traces.latest().map(|trace| trace.number), Some(number));
            let found: Vec<u64> = (0..=9).filter(|number| traces.find(*number).is_some()).collect();
            assert_eq!(found, (1.max(number.saturating_sub(2))..=number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_ring_of_none_keeps_none() {
        let mut traces = Traces::new(0);
        traces.push(trace(1));
        assert!(traces.latest().is_none() && traces.find(1).is_none());
    }
}
