//! The provider's side: handlers that run, each intent once, whatever the connection does.

mod calls;
pub(super) mod disk;
mod ends;
mod room;
mod run;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use agent_reach_protocol::{
    Dispatch, ErrorCode,
    limits::{ACCEPT_HOLD_MS, CREDIT_DEFAULT},
};
use bytes::Bytes;

use calls::{accept, as_it_came, invocation, refuse};
pub(crate) use ends::refusal;
use room::{Outlook, Rooms};
use run::Run;

use super::Context;
use super::memory::{Memory, Served};
use super::time::Now;
use super::types::{Effect, Failure, Invocation, Outcome, RunKey};
use crate::payload::Payload;
use crate::provide::Capability;

/// A handler whose hub does not come back gets at least so long after the connection was lost.
const ORPHAN: Duration = Duration::from_secs(30);

/// All handlers of this agent.
#[derive(Debug)]
pub(crate) struct Running {
    runs: BTreeMap<RunKey, Run>,
    by_id: HashMap<u64, RunKey>,
    by_intent: HashMap<Arc<str>, RunKey>,
    rooms: Rooms,
    memory: Memory,
    /// Ends that the dedupe file has; `None`: there is no such file.
    on_disk: Option<Memory>,
    /// Ends that are being written into it.
    saving: usize,
    /// ACCEPTs that are held back; all for the same time, so in order.
    holds: VecDeque<(Now, RunKey)>,
    aborts: BTreeSet<(Now, RunKey)>,
    orphans: BTreeSet<(Now, RunKey)>,
    next_run: RunKey,
    /// Handlers whose futures exist, and calls that wait for theirs.
    handlers: usize,
    max: usize,
    grace: Duration,
}

impl Running {
    pub(crate) fn new(max: usize, grace: Duration, on_disk: Option<Memory>) -> Self {
        Self {
            runs: BTreeMap::new(),
            by_id: HashMap::new(),
            by_intent: HashMap::new(),
            rooms: Rooms::default(),
            memory: Memory::of_this_life(),
            on_disk,
            saving: 0,
            holds: VecDeque::new(),
            aborts: BTreeSet::new(),
            orphans: BTreeSet::new(),
            next_run: 0,
            handlers: 0,
            max,
            grace,
        }
    }

    /// Handlers, those that wait for another of their capability to end included.
    pub(crate) const fn in_flight(&self) -> usize {
        self.handlers
    }

    /// Whether anything is to be waited for before the agent ends: handlers, and ends that are being written.
    pub(crate) const fn is_busy(&self) -> bool {
        self.handlers > 0 || self.saving > 0
    }

    /// Those that wait.
    pub(crate) const fn queued(&self) -> usize {
        self.rooms.waiting()
    }

    /// Calls that are on the present connection.
    pub(crate) fn on_wire(&self) -> usize {
        self.by_id.len()
    }

    /// CALL: joins the handler that runs for this intent, tells its end again, or starts one.
    pub(crate) fn on_call(
        &mut self,
        cx: &mut Context<'_>,
        offered: Option<&Capability>,
        header: &Dispatch<'_>,
        body: Option<Bytes>,
    ) {
        // The hub remembers ids per caller, so two callers may use one id; and a hub that forgot must not
        // get another capability's result.
        let intent = format!("{}\0{}\0{}", header.caller, header.capability, header.request_id);
        if let Some(key) = self.by_intent.get(intent.as_str()).copied() {
            return self.join(cx, key, header, body);
        }
        let intent: Arc<str> = intent.into();
        let fingerprint = self.fingerprint(body.as_deref().unwrap_or_default());
        if let Some(served) = self.recall(&intent, fingerprint) {
            let served = served.clone();
            return self.tell_again(cx, intent, header, served);
        }
        let Some(offered) = offered else {
            let text = format!("no handler for {}", header.capability);
            return refuse(cx, header, &Failure::new(ErrorCode::Unsupported, text));
        };
        if self.handlers >= self.max {
            let text = format!("{} handlers run already", self.handlers);
            return refuse(cx, header, &Failure::new(ErrorCode::Overloaded, text));
        }
        let key = self.new_key();
        let mut run = Run::new(cx.now, intent, header);
        run.fingerprint = fingerprint;
        run.most = offered.max_concurrency;
        run.waiting = Some(Box::new(invocation(key, header, body)));
        self.start(cx, key, header.id, run, self.on_disk.is_some() && !offered.idempotent);
    }

    /// Begins a run: as soon as it is noted, if it is to be.
    fn start(&mut self, cx: &mut Context<'_>, key: RunKey, id: u64, run: Run, note: bool) {
        self.by_intent.insert(Arc::clone(&run.intent), key);
        self.by_id.insert(id, key);
        self.runs.insert(key, run);
        self.holds.push_back((cx.now.after(Duration::from_millis(ACCEPT_HOLD_MS)), key));
        self.handlers += 1;
        match note {
            true => self.note_begin(cx, key),
            false => self.enter(cx, key),
        }
    }

    /// Starts a run's handler, or puts it behind those of its capability.
    fn enter(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        let Some(call) = &run.waiting else { return };
        let (room, starts) = self.rooms.enter(&call.capability, run.most, key);
        run.room = Some(room);
        if starts {
            begin(cx, run);
        }
    }

    /// A handler is gone: its place goes to the next that waits for it.
    fn leave(&mut self, cx: &mut Context<'_>, key: RunKey, execution: Option<Duration>) {
        self.handlers -= 1;
        let Some(room) = self.runs.get(&key).and_then(|run| run.room.clone()) else { return };
        self.rooms.leave(&room, execution);
        while let Some(next) = self.rooms.next(&room) {
            if let Some(run) = self.runs.get_mut(&next) {
                begin(cx, run);
            }
        }
    }

    /// What ACCEPT can say of a run.
    fn outlook(rooms: &Rooms, key: RunKey, run: &Run) -> Outlook {
        let outlook = run.room.as_ref().map(|room| rooms.outlook(room, key)).unwrap_or_default();
        Outlook { time: run.expected.or(outlook.time), ..outlook }
    }

    fn new_key(&mut self) -> RunKey {
        self.next_run += 1;
        self.next_run
    }

    /// The same intent again: after a reconnect, or by a retry. Its answers go to the newest CALL.
    fn join(&mut self, cx: &mut Context<'_>, key: RunKey, header: &Dispatch<'_>, body: Option<Bytes>) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        self.orphans.remove(&(run.deadline, key));
        if let Some(old) = run.id.replace(header.id) {
            self.by_id.remove(&old);
            if run.abort_at.is_some() {
                // The hub keeps the cancelled call's slot until its end is told.
                let failure = Failure::new(ErrorCode::Cancelled, "cancelled");
                cx.outbound.body(run.failed(old, &failure));
            }
        }
        self.by_id.insert(header.id, key);
        run.accepted = false;
        run.sent = 0;
        run.stream = header.stream;
        run.credit = header.credit.unwrap_or(CREDIT_DEFAULT);
        run.deadline = cx.now.after(Duration::from_millis(header.deadline_ms));
        if run.abort_at.is_some() {
            // The old run is on its way out. The intent runs again when it is gone, never beside it.
            run.again = Some(Box::new(invocation(0, header, body)));
            return;
        }
        if run.task && !run.chunks.can_start_over() {
            // What it said is no part of its result: what it says from now on is counted from 0.
            run.permitted = run.permitted.saturating_sub(run.chunks.produced());
            run.chunks.start_over();
        }
        if run.stream && !run.chunks.can_start_over() {
            let text = "the stream cannot be resumed: its beginning is no longer kept";
            let ran = run.outcome.is_none();
            run.outcome = Some(Outcome::Failed(Failure::new(ErrorCode::HandlerError, text)));
            run.sent = run.chunks.produced();
            if ran {
                cx.effects.push(Effect::AbortRun(key));
                self.leave(cx, key, None);
            }
            return self.pump(cx, key);
        }
        run.preferred = header.preferred_timeout_ms.map(Duration::from_millis);
        let outlook = Self::outlook(&self.rooms, key, run);
        accept(cx, run, outlook);
        permit(cx, key, run);
        self.pump(cx, key);
    }

    fn tell_again(&mut self, cx: &mut Context<'_>, intent: Arc<str>, header: &Dispatch<'_>, served: Served) {
        let key = self.new_key();
        let mut run = Run::new(cx.now, Arc::clone(&intent), header);
        run.execution = served.execution;
        run.remembered = true;
        run.stream &= !run.task;
        match served.chunks {
            Some(chunks) => chunks.into_iter().for_each(|chunk| run.chunks.push(chunk)),
            None if run.stream => {
                let text = "the stream cannot be resumed: it is no longer kept";
                let failure = Failure::new(ErrorCode::HandlerError, text);
                return refuse(cx, header, &failure);
            }
            None => {}
        }
        run.outcome = Some(served.outcome);
        self.by_intent.insert(intent, key);
        self.by_id.insert(header.id, key);
        self.runs.insert(key, run);
        self.pump(cx, key);
    }

    pub(crate) fn on_emit(&mut self, cx: &mut Context<'_>, key: RunKey, payload: Payload) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.outcome.is_none()) else { return };
        run.chunks.push(payload);
        run.chunks.shrink(run.sent);
        self.pump(cx, key);
    }

    pub(crate) fn on_would_take(&mut self, cx: &mut Context<'_>, key: RunKey, time: Duration) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.expected = Some(time);
        if run.preferred.is_some_and(|preferred| time > preferred) {
            accept(cx, run, Outlook { before: None, time: Some(time) });
        }
    }

    pub(crate) fn on_credit(&mut self, cx: &mut Context<'_>, id: u64, n: u64) {
        let Some(key) = self.by_id.get(&id).copied() else { return };
        let Some(run) = self.runs.get_mut(&key) else { return };
        run.credit = run.credit.saturating_add(n);
        permit(cx, key, run);
        self.pump(cx, key);
    }

    /// CANCEL, or an end that nobody waits for: the handler is told, and dropped when it takes no notice.
    pub(crate) fn on_cancel(&mut self, cx: &mut Context<'_>, id: u64) {
        if let Some(key) = self.by_id.get(&id).copied() {
            self.cancel(cx, key);
        }
    }

    fn cancel(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(run) = self.runs.get_mut(&key) else { return };
        if run.outcome.is_some() {
            // Nobody listens to the chunks any more; the end frees the slot that the hub keeps for us.
            run.stream = false;
            self.pump(cx, key);
        } else if run.abort_at.is_some() {
            run.again = None;
        } else if run.waiting.take().is_some() {
            run.outcome = Some(Outcome::Failed(Failure::new(ErrorCode::Cancelled, "cancelled")));
            self.handlers -= 1;
            if let Some(room) = &run.room {
                self.rooms.give_up(room, key);
            }
            self.pump(cx, key);
        } else {
            let at = cx.now.after(self.grace);
            run.abort_at = Some(at);
            self.aborts.insert((at, key));
            cx.effects.push(Effect::CancelRun(key));
        }
    }

    pub(crate) fn on_finished(&mut self, cx: &mut Context<'_>, key: RunKey, outcome: Outcome) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| run.outcome.is_none()) else { return };
        run.execution = cx.now.since(run.started);
        let completed = matches!(outcome, Outcome::Completed(_)).then_some(run.execution);
        let cancelled = run.abort_at.take();
        if let Some(at) = cancelled {
            self.aborts.remove(&(at, key));
        }
        run.outcome = Some(match outcome {
            Outcome::Failed(_) if cancelled.is_some() => {
                Outcome::Failed(Failure::new(ErrorCode::Cancelled, "cancelled"))
            }
            outcome @ (Outcome::Completed(_) | Outcome::Failed(_)) => outcome,
        });
        self.leave(cx, key, completed);
        self.save(cx, key);
        self.pump(cx, key);
        self.settle_holds(cx);
    }

    /// Sends what may be sent: chunks within the credit, then the end.
    fn pump(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(run) = self.runs.get_mut(&key).filter(|run| !run.saving) else { return };
        if run.again.is_some() {
            if run.outcome.is_some() {
                self.close(cx, key);
            }
            return;
        }
        if let Some(id) = run.id.filter(|_| cx.open) {
            while let Some(chunk) = run.next_chunk(id) {
                cx.outbound.body(chunk);
            }
            run.chunks.shrink(run.sent);
            if run.outcome.is_some() && (!run.stream || run.sent >= run.chunks.produced()) {
                cx.outbound.body(run.result(id, cx.max_message));
                return self.close(cx, key);
            }
        }
        if run.outcome.is_some() && run.id.is_none() {
            // The hub is away: memory answers when it asks again.
            self.close(cx, key);
        }
    }

    /// Forgets a run that is over, keeping its end where a repeated CALL may want it.
    fn close(&mut self, cx: &mut Context<'_>, key: RunKey) {
        let Some(mut run) = self.runs.remove(&key) else { return };
        self.by_intent.remove(&run.intent);
        if let Some(id) = run.id {
            self.by_id.remove(&id);
        }
        self.orphans.remove(&(run.deadline, key));
        let Some(outcome) = run.outcome.take() else { return };
        self.remember(cx, &mut run, outcome);
        if let Some(again) = run.again.take() {
            self.start_again(cx, &run, *again);
        }
    }

    /// A CALL that came while its intent was being cancelled. If the old run completed after all, its end
    /// answers; else the intent runs now.
    fn start_again(&mut self, cx: &mut Context<'_>, old: &Run, mut again: Invocation) {
        let Some(id) = old.id else { return };
        let intent = Arc::clone(&old.intent);
        let fingerprint = self.fingerprint(&again.payload.body);
        if let Some(served) = self.recall(&intent, fingerprint) {
            let served = served.clone();
            return self.tell_again(cx, intent, &as_it_came(&again, id), served);
        }
        let key = self.new_key();
        again.run = key;
        let mut run = Run::new(cx.now, intent, &as_it_came(&again, id));
        run.fingerprint = fingerprint;
        run.most = self.rooms.most(&again.capability);
        run.waiting = Some(Box::new(again));
        self.start(cx, key, id, run, old.noted);
    }

    /// The connection is gone; handlers go on, for the hub to ask again.
    pub(crate) fn lost(&mut self, cx: &mut Context<'_>) {
        self.by_id.clear();
        self.holds.clear();
        let mut over = Vec::new();
        for (key, run) in &mut self.runs {
            run.id = None;
            run.again = None;
            if run.saving {
                // It is over when it is written.
            } else if run.outcome.is_some() {
                over.push(*key);
            } else {
                run.deadline = run.deadline.max(cx.now.after(ORPHAN));
                self.orphans.insert((run.deadline, *key));
            }
        }
        for key in over {
            self.close(cx, key);
        }
    }

    pub(crate) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        self.memory.expire(cx.now);
        if let Some(on_disk) = &mut self.on_disk {
            on_disk.expire(cx.now);
        }
        self.settle_holds(cx);
        while let Some((at, key)) = self.aborts.first().copied().filter(|(at, _)| *at <= cx.now) {
            self.aborts.remove(&(at, key));
            cx.effects.push(Effect::AbortRun(key));
            let failure = Failure::new(ErrorCode::Cancelled, "cancelled");
            self.on_finished(cx, key, Outcome::Failed(failure));
        }
        while let Some((at, key)) = self.orphans.first().copied().filter(|(at, _)| *at <= cx.now) {
            self.orphans.remove(&(at, key));
            if self.runs.get(&key).is_some_and(|run| run.id.is_none() && run.deadline <= cx.now) {
                self.cancel(cx, key);
            }
        }
    }

    /// Sends the ACCEPTs that are due, and forgets those that something else stood for.
    fn settle_holds(&mut self, cx: &mut Context<'_>) {
        while let Some((at, key)) = self.holds.front().copied() {
            match self.runs.get_mut(&key).filter(|run| !run.accepted && run.outcome.is_none()) {
                Some(_) if at > cx.now => return,
                Some(run) => {
                    let outlook = Self::outlook(&self.rooms, key, run);
                    accept(cx, run, outlook);
                }
                None => {}
            }
            self.holds.pop_front();
        }
    }

    /// The agent ends: no handler outlives it.
    pub(crate) fn abort_all(&mut self, cx: &mut Context<'_>) {
        self.aborts.clear();
        self.saving = 0;
        while let Some((key, run)) = self.runs.pop_first() {
            if run.outcome.is_none() {
                self.handlers -= 1;
                cx.effects.push(Effect::AbortRun(key));
                if let Some(id) = run.id.filter(|_| cx.open) {
                    let failure = Failure::new(ErrorCode::Cancelled, "the agent closes");
                    cx.outbound.body(run.failed(id, &failure));
                }
            }
        }
        self.by_id.clear();
        self.by_intent.clear();
        self.rooms = Rooms::default();
        self.holds.clear();
        self.orphans.clear();
    }

    pub(crate) fn next_timeout(&self) -> Option<Now> {
        [
            self.holds.front().map(|(at, _)| *at),
            self.aborts.first().map(|(at, _)| *at),
            self.orphans.first().map(|(at, _)| *at),
            self.memory.next_timeout(),
            self.on_disk.as_ref().and_then(Memory::next_timeout),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

/// A run's handler starts.
fn begin(cx: &mut Context<'_>, run: &mut Run) {
    let Some(mut call) = run.waiting.take() else { return };
    run.started = cx.now;
    // With the credit that came meanwhile.
    call.credit = run.credit;
    run.permitted = run.credit;
    cx.effects.push(Effect::Run(call));
    if run.task && run.accepted {
        // The hub shows a task that waits in its provider apart from one that is worked on.
        accept(cx, run, Outlook { before: None, time: run.expected });
    }
}

/// Lets a handler emit what its credit has become. One that still waits gets it when it starts.
fn permit(cx: &mut Context<'_>, key: RunKey, run: &mut Run) {
    if run.waiting.is_none() && run.credit > run.permitted {
        cx.effects.push(Effect::Grant(key, run.credit - run.permitted));
        run.permitted = run.credit;
    }
}
