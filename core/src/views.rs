//! What the hub shows of itself: the bodies of `hub.*`, separate from the state they are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach_protocol::codec::{Value, read_one};
use agent_reach_protocol::{AgentStatus, Capability, FieldValue};
use serde::{Deserialize, Serialize};

use crate::calls::{Call, LegState, Stage};
use crate::hub::Hub;
use crate::offer::Offer;
use crate::registry::{Agent, Reported};
use crate::routing::{Exclusion, Note};
use crate::store::TaskId;
use crate::tasks::TaskView;
use crate::text::CallId;
use crate::time::Now;
use crate::traces::{Log, Step, Trace};

/// Encodes a view as a MessagePack map. The views hold nothing that cannot be encoded.
pub(crate) fn pack<T: Serialize>(view: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(view).unwrap_or_default()
}

/// Labels as a map.
type Labels<'a> = BTreeMap<&'a str, &'a str>;

#[derive(Debug, Serialize)]
pub(crate) struct AgentView<'a> {
    agent_id: &'a str,
    identity: &'a str,
    instance: &'a str,
    status: &'static str,
    /// An operator drains it; left out where none does.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    drained: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sdk: Option<&'a str>,
    labels: Labels<'a>,
    capabilities: Vec<&'a str>,
    in_flight: u32,
    max_concurrency: u32,
    connected_ms: u64,
    load: LoadView<'a>,
    /// Slots taken: open calls, and cancelled ones that the agent has not answered.
    open_calls: u32,
    /// Moving average from CALL to RESULT, in microseconds.
    latency_us: u64,
    /// Only in `hub.agents.get`.
    #[serde(flatten)]
    details: Option<AgentDetails<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct LoadView<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<u8>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    levels: BTreeMap<&'a str, f64>,
}

#[derive(Debug, Serialize)]
struct AgentDetails<'a> {
    last_seen_ms: Option<u64>,
    completed: u64,
    failed: u64,
    calls: Vec<OpenLegView<'a>>,
    offers: Vec<OfferView<'a>>,
}

#[derive(Debug, Serialize)]
struct OpenLegView<'a> {
    capability: &'a str,
    caller: Option<&'a str>,
    call_id: Option<CallId>,
    state: &'static str,
    age_ms: u64,
    attempt: u32,
}

impl<'a> AgentView<'a> {
    /// What lists and events show.
    pub(crate) fn brief(now: Now, agent: &'a Agent) -> Self {
        let load = agent.load.as_deref();
        Self {
            agent_id: &agent.id,
            identity: &agent.identity,
            instance: &agent.instance,
            status: status_of(agent),
            drained: agent.drained,
            service: agent.about.service.as_deref(),
            version: agent.about.version.as_deref(),
            sdk: agent.about.sdk.as_deref(),
            labels: agent.about.labels.iter().map(|(key, value)| (&**key, &**value)).collect(),
            capabilities: agent.offers.iter().map(|offer| &*offer.name).collect(),
            in_flight: agent.in_flight,
            max_concurrency: agent.max_concurrency,
            connected_ms: now.ms_since(agent.registered_at),
            load: load_view(agent, load),
            open_calls: agent.in_flight,
            latency_us: agent.figures.latency_us,
            details: None,
        }
    }

    /// What `hub.agents.get` shows.
    pub(crate) fn full(hub: &'a Hub, now: Now, key: usize, agent: &'a Agent) -> Self {
        let last_seen =
            agent.session.and_then(|id| hub.session(id)).map(|session| now.ms_since(session.last_seen));
        let open = hub.legs.iter().filter(|(_, leg)| leg.agent == key).map(|(_, leg)| {
            let call = leg.call.and_then(|call| hub.calls.get(call));
            OpenLegView {
                capability: &leg.capability,
                caller: call.map(|call| &*call.caller),
                call_id: call.map(|call| hub.call_id(call.number)),
                state: match leg.state {
                    LegState::Booked(_) => "booked",
                    LegState::Given => "given",
                    LegState::Accepted => "accepted",
                    LegState::Stranded => "cancelled",
                },
                age_ms: now.ms_since(leg.given_at),
                attempt: leg.attempt,
            }
        });
        let details = AgentDetails {
            last_seen_ms: last_seen,
            completed: agent.figures.completed,
            failed: agent.figures.failed,
            calls: open.collect(),
            offers: agent.offers.iter().map(OfferView::of).collect(),
        };
        Self { details: Some(details), ..Self::brief(now, agent) }
    }
}

fn load_view<'a>(agent: &'a Agent, load: Option<&Reported>) -> LoadView<'a> {
    let Some(load) = load else { return LoadView::default() };
    LoadView {
        in_flight: load.in_flight,
        queued: load.queued,
        cpu: load.cpu,
        memory: load.memory,
        health: agent.health,
        levels: agent.levels.iter().map(|(name, level)| (&**name, *level)).collect(),
    }
}

/// The status as others see it: what the hub infers goes before what the agent says.
pub(crate) const fn status_of(agent: &Agent) -> &'static str {
    match (agent.session, agent.suspect, agent.drained, agent.status) {
        (None, ..) => "away",
        (_, true, ..) => "suspect",
        (_, _, true, _) | (.., AgentStatus::Draining) => "draining",
        (.., AgentStatus::Ready) => "ready",
        (.., AgentStatus::Degraded) => "degraded",
    }
}

/// One agent's offer of a capability.
#[derive(Debug, Serialize)]
pub(crate) struct OfferView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    idempotent: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aliases: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qps_limit: Option<f64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<rmpv::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<rmpv::Value>,
}

impl<'a> OfferView<'a> {
    pub(crate) fn of(offer: &'a Offer) -> Self {
        let mut view = Self {
            name: &offer.name,
            version: offer.version().map(ToString::to_string),
            timeout_ms: offer.timeout_ms(),
            idempotent: offer.idempotent,
            aliases: offer.aliases().iter().map(|alias| &**alias).collect(),
            description: None,
            qps_limit: None,
            labels: BTreeMap::new(),
            input_schema: None,
            output_schema: None,
        };
        let Some(about) = offer.about() else { return view };
        let Ok(value @ Value::Map(raw)) = read_one(about) else { return view };
        let Ok(about) = Capability::read(value, raw) else { return view };
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        view.description = about.description.map(str::to_owned);
        view.qps_limit = about.qps_limit;
        view.labels = about.labels.0.iter().map(own).collect();
        view.input_schema = about.input_schema.and_then(|raw| schema(raw.0));
        view.output_schema = about.output_schema.and_then(|raw| schema(raw.0));
        view
    }
}

/// A schema was read as part of a header, so its depth is bounded.
fn schema(mut bytes: &[u8]) -> Option<rmpv::Value> {
    rmpv::decode::read_value(&mut bytes).ok()
}

/// One name of the dictionary.
#[derive(Debug, Serialize)]
pub(crate) struct CapabilityView<'a> {
    pub(crate) name: &'a str,
    /// How many offer it; the list below ends where it would get too long.
    pub(crate) offered_by: usize,
    pub(crate) agents: Vec<ProviderView<'a>>,
    /// Names of the policy that stand for this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) policy_aliases: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
pub(crate) struct ProviderView<'a> {
    pub(crate) agent_id: &'a str,
    pub(crate) status: &'static str,
    #[serde(flatten)]
    pub(crate) offer: OfferView<'a>,
}

/// Most targets of one call that are shown: a call to thousands has to fit into one message as well.
const TARGETS_SHOWN: usize = 100;

/// One open call.
#[derive(Debug, Serialize)]
pub(crate) struct CallView<'a> {
    call_id: CallId,
    request_id: &'a str,
    caller: &'a str,
    capability: &'a str,
    mode: &'static str,
    state: &'static str,
    targets: Vec<&'a str>,
    age_ms: u64,
    budget_left_ms: u64,
    stream: bool,
}

impl<'a> CallView<'a> {
    pub(crate) fn of(hub: &'a Hub, now: Now, call: &'a Call) -> Self {
        let legs = call.legs.iter().filter_map(|index| hub.legs.get(index));
        let mut targets: Vec<&str> = legs.map(|leg| &*leg.target).take(TARGETS_SHOWN).collect();
        if targets.is_empty() {
            targets = call.attempts.iter().map(|tried| &*tried.target).take(TARGETS_SHOWN).collect();
        }
        Self {
            call_id: hub.call_id(call.number),
            request_id: &call.request_id,
            caller: &call.caller,
            capability: &call.capability,
            mode: call.mode.as_str(),
            state: match &call.stage {
                Stage::Waiting { .. } => "waiting",
                Stage::Backoff { .. } | Stage::Later => "retrying",
                Stage::Returning { .. } => "returning",
                Stage::Given if call.accepted_at.is_some() => "accepted",
                Stage::Given => "given",
            },
            targets,
            age_ms: now.ms_since(call.started),
            budget_left_ms: call.budget_at.ms_since(now),
            stream: call.stream,
        }
    }
}

/// The body of one CHUNK of `hub.events.watch`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Event<'a> {
    Snapshot {
        event: &'static str,
        agents: &'a [AgentView<'a>],
        calls: &'a [CallView<'a>],
        tasks: &'a [TaskView<'a>],
        more: bool,
    },
    Agent {
        event: &'static str,
        agent: AgentView<'a>,
    },
    Left {
        event: &'static str,
        agent_id: &'a str,
        reason: &'static str,
    },
    Task {
        event: &'static str,
        task: TaskView<'a>,
    },
    Call {
        event: &'static str,
        call: CallView<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<&'static str>,
    },
}

/// What an event is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About<'a> {
    /// `agents`, `calls` or `tasks`.
    pub(crate) subject: &'a str,
    /// The agent, or the caller.
    pub(crate) agent_id: &'a str,
    pub(crate) capability: Option<&'a str>,
    /// Whose task, and which.
    pub(crate) task: Option<(&'a str, TaskId)>,
    pub(crate) audience: Audience,
}

/// Who sees an event of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Whoever watches.
    All,
    /// Its own identity, watching its own tasks.
    Owner,
    /// Who watches everything.
    Others,
}

/// What a watch wants to see; everything when absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchFilter {
    /// `agents`, `calls`, `tasks`.
    subjects: Vec<String>,
    /// This agent, or calls of this caller.
    agent_id: Option<String>,
    /// Calls of this capability.
    capability: Option<String>,
    /// Tasks of this identity, and nothing else.
    #[serde(skip)]
    pub(crate) owner: Option<Arc<str>>,
    /// This task only.
    #[serde(skip)]
    pub(crate) task: Option<TaskId>,
}

impl WatchFilter {
    /// Of an identity's tasks, or of one of them.
    pub(crate) fn of_tasks(owner: Arc<str>, task: Option<TaskId>) -> Self {
        Self { owner: Some(owner), task, ..Self::default() }
    }

    /// Whether it wants to see an event about this.
    pub(crate) fn wants_event(&self, about: &About<'_>) -> bool {
        let of_task = |(owner, task)| self.wants_task(owner, task);
        let is_for = match about.audience {
            Audience::All => true,
            Audience::Owner => self.owner.is_some(),
            Audience::Others => self.owner.is_none(),
        };
        is_for
            && self.wants(about.subject)
            && self.matches(about.agent_id, about.capability)
            && about.task.is_none_or(of_task)
    }

    /// Whether it wants to see a task of this identity.
    pub(crate) fn wants_task(&self, owner: &str, task: TaskId) -> bool {
        self.owner.as_deref().is_none_or(|own| own == owner) && self.task.is_none_or(|own| own == task)
    }

    pub(crate) fn wants(&self, subject: &str) -> bool {
        if self.owner.is_some() {
            return subject == "tasks";
        }
        self.subjects.is_empty() || self.subjects.iter().any(|own| own == subject)
    }

    pub(crate) fn matches(&self, agent_id: &str, capability: Option<&str>) -> bool {
        self.agent_id.as_deref().is_none_or(|own| own == agent_id)
            && match (self.capability.as_deref(), capability) {
                (Some(own), Some(capability)) => own == capability,
                _ => true,
            }
    }
}

/// One trace.
#[derive(Debug, Serialize)]
pub(crate) struct TraceView<'a> {
    call_id: CallId,
    request_id: &'a str,
    caller: &'a str,
    capability: &'a str,
    ended: bool,
    steps: Vec<StepView<'a>>,
}

#[derive(Debug, Default, Serialize)]
struct StepView<'a> {
    /// Microseconds since the CALL.
    at_us: u64,
    step: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidates: Option<CandidatesView>,
}

#[derive(Debug, Serialize)]
struct CandidatesView {
    policy: &'static str,
    offering: u32,
    able: u32,
    excluded: BTreeMap<&'static str, u32>,
}

impl<'a> TraceView<'a> {
    /// Of a call that has ended.
    pub(crate) fn of_ended(hub: &Hub, trace: &'a Trace) -> Self {
        Self {
            call_id: hub.call_id(trace.number),
            request_id: &trace.request_id,
            caller: &trace.caller,
            capability: &trace.capability,
            ended: true,
            steps: steps(&trace.log, trace.started),
        }
    }

    /// Of a call that goes on.
    pub(crate) fn of_open(hub: &Hub, call: &'a Call) -> Self {
        Self {
            call_id: hub.call_id(call.number),
            request_id: &call.request_id,
            caller: &call.caller,
            capability: &call.capability,
            ended: false,
            steps: steps(&call.log, call.started),
        }
    }
}

fn steps(log: &Log, started: Now) -> Vec<StepView<'_>> {
    log.steps().map(|(at, step)| step_view(at.micros_since(started), step, log)).collect()
}

fn step_view<'a>(at_us: u64, step: Step<&'a str>, log: &Log) -> StepView<'a> {
    let view = StepView { at_us, ..StepView::default() };
    match step {
        Step::Routed { note } => {
            StepView { step: "routed", candidates: log.note(note).map(candidates), ..view }
        }
        Step::Waits { before } => {
            StepView { step: "waits", reason: Some(format!("{before} before it")), ..view }
        }
        Step::RetryIn { target, ms } => {
            StepView { step: "retry_in", target: Some(target), reason: Some(format!("{ms} ms")), ..view }
        }
        Step::FromCache { age_ms } => {
            StepView { step: "from_cache", reason: Some(format!("{age_ms} ms old")), ..view }
        }
        Step::Given { target, attempt, load: (taken, slots) } => StepView {
            step: "given",
            target: Some(target),
            attempt: Some(attempt),
            reason: Some(format!("{taken} of {slots} slots taken")),
            ..view
        },
        Step::Accepted { target } => StepView { step: "accepted", target: Some(target), ..view },
        Step::FirstChunk { target } => StepView { step: "first_chunk", target: Some(target), ..view },
        Step::Answered { target, outcome } => {
            StepView { step: "answered", target: Some(target), outcome: Some(outcome.as_str()), ..view }
        }
        Step::CancelSent { target, reason } => {
            StepView { step: "cancel_sent", target: Some(target), reason: Some(reason.to_owned()), ..view }
        }
        Step::TargetAway { target } => StepView { step: "target_away", target: Some(target), ..view },
        Step::CallerAway => StepView { step: "caller_away", ..view },
        Step::Joined => StepView { step: "joined", ..view },
        Step::CancelAsked => StepView { step: "cancel_asked", ..view },
        Step::Ended(outcome) => StepView { step: "ended", outcome: Some(outcome.as_str()), ..view },
    }
}

fn candidates(note: &Note) -> CandidatesView {
    let excluded = Exclusion::ALL.iter().zip(note.excluded).filter(|(_, count)| *count > 0);
    CandidatesView {
        policy: note.policy.as_str(),
        offering: note.offering,
        able: note.able,
        excluded: excluded.map(|(why, count)| (why.as_str(), count)).collect(),
    }
}
