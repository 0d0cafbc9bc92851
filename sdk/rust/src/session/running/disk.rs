//! What goes into the dedupe file, and what waits for it.
//!
//! A capability that is not idempotent is noted before its handler runs: an earlier life of the process that was
//! killed in the middle leaves the note without an end, and its intent is not run again but answered as unknown. The
//! end of a task is written before the hub is told, so that no life of the process can have told it and forgotten it.

use std::sync::Arc;

use agent_reach_protocol::ErrorCode;
use xxhash_rust::xxh3::xxh3_64;

use super::Running;
use crate::errors::HandlerError;
use crate::session::Context;
use crate::session::memory::Served;
use crate::session::notes::{Note, Says};
use crate::session::types::{Effect, Failure, Outcome, RunKey};

/// Of an intent that an earlier life of the process began and did not end.
pub(crate) fn interrupted() -> Failure {
    let text = "the agent was restarted while it worked on this: whether it is done is unknown";
    HandlerError::new("interrupted", text).into()
}

/// Of a call that an earlier life of the process ended, whose result is not kept since it is no task's.
fn not_kept() -> Failure {
    let text = "an earlier life of the agent's process did this, and its result is not kept";
    HandlerError::new("interrupted", text).into()
}

/// Whether a repeated CALL is answered with this, and not run again.
pub(super) fn is_final(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Completed(_) => true,
        // A retryable failure frees the intent: its retry is meant to run.
        Outcome::Failed(failure) => !failure.retryable && failure.code != ErrorCode::Cancelled,
    }
}

impl Running {
    /// What tells one body from another, where that is looked at.
    pub(super) fn fingerprint(&self, body: &[u8]) -> u64 {
        if self.on_disk.is_some() { xxh3_64(body) } else { 0 }
    }

    /// How this intent ended, if that is known.
    pub(super) fn recall(&self, intent: &str, fingerprint: u64) -> Option<&Served> {
        let of_earlier_lives = || {
            let served = self.on_disk.as_ref()?.find(intent)?;
            // Another body is another intent: the hub has forgotten the first one, or it would refuse this.
            (served.fingerprint == fingerprint).then_some(served)
        };
        self.memory.find(intent).or_else(of_earlier_lives)
    }

    /// Has it written that a run begins.
    pub(super) fn note_begin(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.noted = true;
        cx.effects.push(Effect::Note(Box::new(Note {
            run: Some(key),
            intent: Arc::clone(&run.intent),
            fingerprint: run.fingerprint,
            says: Says::Begun,
            task: run.task,
        })));
    }

    /// Has the end of a task written; until it is there the hub is not told.
    pub(super) fn save(&mut self, cx: &mut Context<'_>, key: RunKey) {
        if self.on_disk.is_none() {
            return;
        }
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.task) else { return };
        let Some(outcome) = run.outcome.as_ref().filter(|outcome| is_final(outcome)) else { return };
        cx.effects.push(Effect::Note(Box::new(Note {
            run: Some(key),
            intent: Arc::clone(&run.intent),
            fingerprint: run.fingerprint,
            says: Says::Ended(outcome.clone(), run.execution),
            task: true,
        })));
        run.saving = true;
        self.saving += 1;
    }

    /// What a run waits for is written.
    pub(crate) fn on_noted(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        if std::mem::take(&mut run.saving) {
            self.saving -= 1;
            self.pump(cx, key);
        } else if run.room.is_none() {
            self.enter(cx, key);
        }
    }

    /// Keeps the end of a run where a repeated CALL may want it.
    pub(super) fn remember(&mut self, cx: &mut Context<'_>, run: &mut super::Run, outcome: Outcome) {
        let of_call = |run: &super::Run, says| {
            let (intent, fingerprint) = (Arc::clone(&run.intent), run.fingerprint);
            Effect::Note(Box::new(Note { run: None, intent, fingerprint, says, task: false }))
        };
        if !is_final(&outcome) {
            if run.noted {
                cx.effects.push(of_call(run, Says::Free));
            }
            return;
        }
        if run.remembered {
            return;
        }
        if run.noted && !run.task {
            let says = Says::Ended(Outcome::Failed(not_kept()), run.execution);
            cx.effects.push(of_call(run, says));
        }
        let chunks = match run.task {
            true => Some(Vec::new()),
            false => run.chunks.can_start_over().then(|| std::mem::take(&mut run.chunks.kept).into()),
        };
        let served = Served { outcome, chunks, execution: run.execution, fingerprint: run.fingerprint };
        let memory = self.on_disk.as_mut().filter(|_| run.task).unwrap_or(&mut self.memory);
        memory.keep(cx.now, Arc::clone(&run.intent), served);
    }
}
