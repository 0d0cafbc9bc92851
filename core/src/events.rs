//! `hub.events.watch`: the state now, then every change, to whoever watches.
//!
//! A watch is a stream with credit like any other. What it has no credit for waits, in order, up to a bound in
//! bytes; past it the watch ends with an error, so that a gap is never silent.

use std::collections::VecDeque;
use std::sync::Arc;

use agent_reach_protocol::{Accept, CallResult, Chunk, ErrorCode, Kind, Private, ResultStatus, encode};

use serde::Serialize;

use bytes::Bytes;

use crate::calls::{Call, Failure};
use crate::effects::{Fact, Outcome};
use crate::hub::{Hub, Turn};
use crate::registry::Asked;
use crate::session::Lane;
use crate::tasks::TaskView;
use crate::text::CallId;
use crate::time::Now;
use crate::trace_id::TraceId;
use crate::views::{About, AgentView, Audience, CallView, Event, WatchFilter, pack};

pub(crate) const fn about<'a>(subject: &'a str, agent_id: &'a str, capability: Option<&'a str>) -> About<'a> {
    About { subject, agent_id, capability, task: None, audience: Audience::All }
}

/// One open watch.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) agent: usize,
    pub(crate) id: u64,
    pub(crate) call_id: CallId,
    pub(crate) request_id: String,
    /// As asked for, and in which trace; where it is started, when.
    pub(crate) capability: Arc<str>,
    pub(crate) trace: Option<TraceId>,
    started: Now,
    filter: WatchFilter,
    credit: u64,
    seq: u64,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// Its credit did not keep up: it ends at the end of the turn that found out.
    behind: bool,
}

impl Watch {
    pub(crate) fn new(
        agent: usize,
        id: u64,
        credit: u64,
        filter: WatchFilter,
        ids: (CallId, String),
    ) -> Self {
        let (call_id, request_id) = ids;
        Self {
            agent,
            id,
            call_id,
            request_id,
            capability: Arc::default(),
            trace: None,
            started: Now::default(),
            filter,
            credit,
            seq: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            behind: false,
        }
    }
}

/// Most watches of one agent.
pub(crate) const WATCHES_MAX: usize = 16;
/// How many times `watch_bytes` may wait for all watches together.
const WATCHES_OF_FULL_SIZE: usize = 4;
/// Agents, or calls, in one event of the snapshot.
const SNAPSHOT_PART: usize = 100;

/// Room that a part of the snapshot leaves in its message for what is around it, in bytes.
const SNAPSHOT_ROOM: usize = 1024;

/// Cuts a list into parts that each fit into one message.
fn in_parts<T: Serialize>(mut list: &[T], bound: usize) -> Vec<&[T]> {
    let mut parts = Vec::new();
    while !list.is_empty() {
        let mut bytes = 0;
        let fitting = list.iter().take(SNAPSHOT_PART).take_while(|item| {
            bytes += pack(item).len();
            bytes <= bound
        });
        // One that is too large alone goes alone.
        let (part, rest) = list.split_at(fitting.count().max(1).min(list.len()));
        parts.push(part);
        list = rest;
    }
    parts
}

impl Hub {
    /// Opens a watch: ACCEPT, the state now, and from then on every change. `ended`: a task that is over already.
    pub(crate) fn start_watch(&mut self, turn: &mut Turn<'_>, mut watch: Watch, ended: Option<TaskView<'_>>) {
        watch.started = turn.now;
        let (key, id) = (watch.agent, watch.id);
        let accept = Accept {
            request_id: Some(&watch.request_id),
            call_id: Some(&watch.call_id),
            target: Some("hub"),
            attempt: Some(1),
            ..Accept::of(id)
        };
        let accept = encode(&accept, None);
        let filter = watch.filter.clone();
        let index = self.watches.insert(watch);
        if let Some(agent) = self.registry.agents.get_mut(key) {
            agent.asked.insert(id, Asked::Watch(index));
        }
        self.send_to_agent(turn, key, Kind::Accept, Lane::Control, accept);
        for part in self.snapshot(turn, &filter, ended) {
            self.feed(turn, index, part);
        }
        self.end_watches_behind(turn);
    }

    fn snapshot(&self, turn: &Turn<'_>, filter: &WatchFilter, ended: Option<TaskView<'_>>) -> Vec<Bytes> {
        let agents: Vec<AgentView<'_>> = match filter.wants("agents") {
            true => {
                self.registry.by_id_after("").map(|(_, agent)| AgentView::brief(turn.now, agent)).collect()
            }
            false => Vec::new(),
        };
        let calls: Vec<CallView<'_>> = match filter.wants("calls") {
            true => self.calls.iter().map(|(_, call)| CallView::of(self, turn.now, call)).collect(),
            false => Vec::new(),
        };
        let mut tasks: Vec<TaskView<'_>> = match filter.wants("tasks") {
            true => self.tasks_for(turn, filter),
            false => Vec::new(),
        };
        tasks.extend(ended);
        let bound = self.settings.max_message.saturating_sub(SNAPSHOT_ROOM);
        let event = "snapshot";
        let mut parts = Vec::new();
        for agents in in_parts(&agents, bound) {
            parts.push(pack(&Event::Snapshot { event, agents, calls: &[], tasks: &[], more: true }).into());
        }
        for calls in in_parts(&calls, bound) {
            parts.push(pack(&Event::Snapshot { event, agents: &[], calls, tasks: &[], more: true }).into());
        }
        for tasks in in_parts(&tasks, bound) {
            parts.push(pack(&Event::Snapshot { event, agents: &[], calls: &[], tasks, more: true }).into());
        }
        let last = Event::Snapshot { event, agents: &[], calls: &[], tasks: &[], more: false };
        parts.push(pack(&last).into());
        parts
    }

    /// Sends an event to a watch, or keeps it until there is credit.
    fn feed(&mut self, turn: &mut Turn<'_>, index: usize, event: Bytes) {
        let bound = self.settings.watch_bytes;
        let Some(watch) = self.watches.get_mut(index) else { return };
        if watch.credit > 0 && watch.waiting.is_empty() {
            return self.send_event(turn, index, &event);
        }
        watch.behind |= watch.waiting_bytes + event.len() > bound
            || self.watch_waiting + event.len() > bound.saturating_mul(WATCHES_OF_FULL_SIZE);
        if !watch.behind {
            watch.waiting_bytes += event.len();
            self.watch_waiting += event.len();
            watch.waiting.push_back(event);
        }
    }

    /// Sends an event, for one of the watch's credit.
    fn send_event(&mut self, turn: &mut Turn<'_>, index: usize, event: &[u8]) {
        let Some(watch) = self.watches.get_mut(index) else { return };
        watch.credit = watch.credit.saturating_sub(1);
        let chunk = Chunk {
            id: watch.id,
            seq: watch.seq,
            target: None,
            content_type: None,
            private: Private::default(),
        };
        watch.seq += 1;
        let key = watch.agent;
        let message = encode(&chunk, Some(event));
        // An agent may describe itself at greater length than one message holds.
        watch.behind |= message.len() > self.settings.max_message;
        if !watch.behind {
            self.send_to_agent(turn, key, Kind::Chunk, Lane::Data, message);
        }
    }

    pub(crate) fn on_watch_credit(&mut self, turn: &mut Turn<'_>, index: usize, n: u64) {
        let Some(watch) = self.watches.get_mut(index) else { return };
        watch.credit = watch.credit.saturating_add(n);
        while let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.credit > 0) {
            let Some(event) = watch.waiting.pop_front() else { break };
            watch.waiting_bytes = watch.waiting_bytes.saturating_sub(event.len());
            self.watch_waiting = self.watch_waiting.saturating_sub(event.len());
            self.send_event(turn, index, &event);
        }
    }

    /// Ends the watches that did not keep up. Their caller sees an end, not a gap.
    fn end_watches_behind(&mut self, turn: &mut Turn<'_>) {
        let behind: Vec<usize> =
            self.watches.iter().filter(|(_, watch)| watch.behind).map(|(index, _)| index).collect();
        for index in behind {
            self.end_watch(turn, index, Failure::overloaded("the watch did not keep up with the events"));
        }
    }

    /// Ends a watch with a reason.
    pub(crate) fn end_watch(&mut self, turn: &mut Turn<'_>, index: usize, failure: Failure) {
        let Some(watch) = self.drop_watch(turn, index, Outcome::Failed(failure.code)) else { return };
        if let Some(agent) = self.registry.agents.get_mut(watch.agent) {
            agent.asked.remove(&watch.id);
        }
        let result = CallResult {
            id: Some(watch.id),
            request_id: Some(&watch.request_id),
            call_id: Some(&watch.call_id),
            error: Some(failure.entry()),
            ..CallResult::of(ResultStatus::Failed)
        };
        let message = encode(&result, None);
        self.send_to_agent(turn, watch.agent, Kind::Result, Lane::Data, message);
    }

    /// Ends an agent's watches because the hub drains.
    pub(crate) fn end_watches(&mut self, turn: &mut Turn<'_>, key: usize) {
        let own: Vec<usize> =
            self.watches.iter().filter(|(_, watch)| watch.agent == key).map(|(index, _)| index).collect();
        for index in own {
            self.end_watch(turn, index, Failure::new(ErrorCode::ShuttingDown, "the hub is draining"));
        }
    }

    /// Forgets a watch that ends in this way.
    pub(crate) fn drop_watch(
        &mut self,
        turn: &mut Turn<'_>,
        index: usize,
        outcome: Outcome,
    ) -> Option<Watch> {
        let watch = self.watches.try_remove(index)?;
        self.watch_waiting = self.watch_waiting.saturating_sub(watch.waiting_bytes);
        let Watch { agent, started, trace, .. } = watch;
        let ids = (watch.call_id, &*watch.request_id);
        let record = self.record_by_hub(turn.now, agent, ids, &watch.capability, started, trace);
        turn.fx.facts.push(Fact::WatchEnded { outcome, total_us: turn.now.micros_since(started), record });
        Some(watch)
    }

    /// Whether any watch wants to know.
    pub(crate) fn is_watched(&self, about: &About<'_>) -> bool {
        self.watches.iter().any(|(_, watch)| watch.filter.wants_event(about))
    }

    /// Tells every watch that wants to know.
    pub(crate) fn announce(&mut self, turn: &mut Turn<'_>, about: &About<'_>, packed: Vec<u8>) {
        let packed = Bytes::from(packed);
        let wanting = self.watches.iter().filter(|(_, watch)| watch.filter.wants_event(about));
        let wanting: Vec<usize> = wanting.map(|(index, _)| index).collect();
        for index in wanting {
            self.feed(turn, index, packed.clone());
        }
        self.end_watches_behind(turn);
    }

    pub(crate) fn announce_agent(&mut self, turn: &mut Turn<'_>, key: usize, event: &'static str) {
        if self.watches.is_empty() {
            return;
        }
        let Some(agent) = self.registry.agents.get(key) else { return };
        let id = Arc::clone(&agent.id);
        let packed = pack(&Event::Agent { event, agent: AgentView::brief(turn.now, agent) });
        self.announce(turn, &about("agents", &id, None), packed);
    }

    pub(crate) fn announce_left(&mut self, turn: &mut Turn<'_>, key: usize, reason: &'static str) {
        if self.watches.is_empty() {
            return;
        }
        let Some(agent) = self.registry.agents.get(key) else { return };
        let id = Arc::clone(&agent.id);
        let packed = pack(&Event::Left { event: "agent.disconnected", agent_id: &id, reason });
        self.announce(turn, &about("agents", &id, None), packed);
    }

    pub(crate) fn announce_call(&mut self, turn: &mut Turn<'_>, index: usize, event: &'static str) {
        if self.watches.is_empty() {
            return;
        }
        let Some(call) = self.calls.get(index) else { return };
        let (caller, capability) = (Arc::clone(&call.caller), Arc::clone(&call.capability));
        let packed = pack(&Event::Call { event, call: CallView::of(self, turn.now, call), outcome: None });
        self.announce(turn, &about("calls", &caller, Some(&capability)), packed);
    }

    pub(crate) fn announce_ended(&mut self, turn: &mut Turn<'_>, call: &Call, outcome: Outcome) {
        if self.watches.is_empty() {
            return;
        }
        let view = CallView::of(self, turn.now, call);
        let packed = pack(&Event::Call { event: "call.ended", call: view, outcome: Some(outcome.as_str()) });
        self.announce(turn, &about("calls", &call.caller, Some(&call.capability)), packed);
    }
}
