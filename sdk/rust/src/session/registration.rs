//! What the agent says of itself: HELLO, and UPDATE when it changes.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_reach_protocol::limits::VERSION;
use agent_reach_protocol::{self as wire, AgentStatus, Hello, Labels, Levels, Update, encode};
use bytes::Bytes;

use super::time::millis;
use super::types::{Load, Pairs, borrowed, raw};
use crate::provide::Capability;

const SDK: &str = concat!("rust/", env!("CARGO_PKG_VERSION"));

/// Everything that a new session must know before the agent counts as ready, whatever was changed since the
/// first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registration {
    pub(crate) agent_id: String,
    pub(crate) instance: String,
    pub(crate) service: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) capabilities: BTreeMap<String, Capability>,
    pub(crate) labels: Pairs,
    pub(crate) max_concurrency: u64,
    pub(crate) calls: Option<Vec<String>>,
    pub(crate) status: Option<AgentStatus>,
    pub(crate) load: Load,
}

impl Registration {
    pub(crate) fn hello(&self, work: Work) -> Bytes {
        let header = Hello {
            v: VERSION,
            agent_id: &self.agent_id,
            instance: &self.instance,
            service: self.service.as_deref(),
            version: self.version.as_deref(),
            sdk: Some(SDK),
            features: Vec::new(),
            capabilities: self.capabilities.values().map(capability).collect(),
            labels: borrowed(&self.labels),
            max_concurrency: Some(self.max_concurrency),
            calls: self.calls.as_ref().map(|calls| calls.iter().map(String::as_str).collect()),
            status: self.status,
            load: Some(self.load(work)),
        };
        encode(&header, None)
    }

    /// A heartbeat, with what changed.
    pub(crate) fn update(&self, work: Work, change: &Change) -> Bytes {
        let (add, remove) = match change {
            Change::Nothing | Change::Status => (Vec::new(), Vec::new()),
            Change::Added(name) => {
                (self.capabilities.get(name).map(capability).into_iter().collect(), Vec::new())
            }
            Change::Removed(name) => (Vec::new(), vec![name.as_str()]),
        };
        let status = if matches!(change, Change::Status) { self.status } else { None };
        encode(&Update { status, load: Some(self.load(work)), add, remove }, None)
    }

    fn load(&self, work: Work) -> wire::Load<'_> {
        let levels = self.load.levels.iter().map(|(name, level)| (name.as_str(), *level)).collect();
        wire::Load {
            in_flight: Some(work.running),
            queued: self.load.queued.or((work.waiting > 0).then_some(work.waiting)),
            cpu: self.load.cpu,
            memory: self.load.memory,
            health: self.load.health,
            levels: Levels(levels),
        }
    }
}

/// What the agent has to do now, in calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) running: u64,
    pub(crate) waiting: u64,
}

/// What an UPDATE is about besides load.
#[derive(Debug)]
pub(crate) enum Change {
    Nothing,
    Status,
    Added(String),
    Removed(String),
}

fn capability(own: &Capability) -> wire::Capability<'_> {
    wire::Capability {
        name: &own.name,
        version: own.version.as_deref(),
        description: own.description.as_deref(),
        input_schema: raw(own.input_schema.as_ref()),
        output_schema: raw(own.output_schema.as_ref()),
        timeout_ms: own.timeout.map(|t: Duration| millis(t)),
        qps_limit: own.qps_limit,
        idempotent: own.idempotent,
        labels: Labels(own.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()),
        aliases: own.aliases.iter().map(String::as_str).collect(),
    }
}
