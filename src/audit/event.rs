//! What the audit is told: as little as possible is copied or turned into text on the thread that tells it.

use std::sync::Arc;

use agent_reach_core::{CallRecord, Fact, Outcome};
use agent_reach_protocol::CallMode;

/// What had the configuration read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// A file has changed.
    File,
    /// A call of `hub.config.reload`: an act, which has a line of its own.
    Call,
}

impl Trigger {
    /// The word in the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Call => "call",
        }
    }
}

/// A change of what the hub works by that took place, or was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// What had it done.
    pub trigger: Trigger,
    /// Keys of the configuration whose files were other ones than before.
    pub changed: Vec<&'static str>,
    /// The version of the policy that counts from now on.
    pub policy_version: u64,
    /// Why nothing has changed.
    pub problem: Option<String>,
}

/// One line of the audit, before it is one.
#[derive(Debug)]
pub(super) enum Event {
    Started { policy_version: u64 },
    Call { record: Arc<CallRecord>, mode: CallMode, outcome: Outcome, ms: u64 },
    Refused { identity: Arc<str>, agent: Box<str>, reason: &'static str },
    Certificate { identity: Box<str>, reason: &'static str },
    Registered { agent: Arc<str>, identity: Arc<str>, replaced: bool },
    Left { agent: Arc<str>, identity: Arc<str>, reason: &'static str },
    Act { capability: &'static str, agent: Arc<str>, identity: Arc<str>, subject: Arc<str> },
    Reload(Box<Reload>),
    Stopped,
}

impl Event {
    /// What the audit says of a fact.
    pub(super) fn of(fact: &Fact) -> Option<Self> {
        Some(match fact {
            Fact::CallEnded { record: Some(record), mode, outcome, total_us, .. } => {
                let ms = match record.task {
                    // It may be older than this life of the hub.
                    Some(_) => record.ended_ms.saturating_sub(record.started_ms),
                    None => total_us / 1000,
                };
                Self::Call { record: Arc::clone(record), mode: *mode, outcome: *outcome, ms }
            }
            Fact::WatchEnded { record: Some(record), outcome, total_us } => Self::Call {
                record: Arc::clone(record),
                mode: CallMode::Call,
                outcome: *outcome,
                ms: total_us / 1000,
            },
            Fact::Registered { agent, identity, replaced } => Self::Registered {
                agent: Arc::clone(agent),
                identity: Arc::clone(identity),
                replaced: *replaced,
            },
            Fact::Refused { identity, agent, reason } => {
                Self::Refused { identity: Arc::clone(identity), agent: agent.as_str().into(), reason }
            }
            Fact::Left { agent, identity, reason } => {
                Self::Left { agent: Arc::clone(agent), identity: Arc::clone(identity), reason }
            }
            Fact::Act { capability, agent, identity, subject } => Self::Act {
                capability,
                agent: Arc::clone(agent),
                identity: Arc::clone(identity),
                subject: Arc::clone(subject),
            },
            Fact::CallEnded { record: None, .. }
            | Fact::WatchEnded { record: None, .. }
            | Fact::Liveness { .. }
            | Fact::SlowConsumer { .. }
            | Fact::CallTraced(_)
            | Fact::TaskEnded { .. }
            | Fact::Dedupe(_)
            | Fact::Retry(_) => return None,
        })
    }

    /// About how much memory it takes. Bytes.
    pub(super) fn size(&self) -> u64 {
        let texts = match self {
            Self::Started { .. } | Self::Stopped => 0,
            Self::Call { record, .. } => {
                let texts = [&record.call_id, &record.request_id, &record.caller, &record.capability];
                let texts = texts.into_iter().chain(&record.target).map(|text| text.len()).sum::<usize>();
                let targets = record.targets.iter().map(|target| target.len() + size_of::<Arc<str>>());
                size_of::<CallRecord>() + texts + targets.sum::<usize>()
            }
            Self::Refused { identity, agent, .. } => identity.len() + agent.len(),
            Self::Certificate { identity, .. } => identity.len(),
            Self::Registered { agent, identity, .. } | Self::Left { agent, identity, .. } => {
                agent.len() + identity.len()
            }
            Self::Act { agent, identity, subject, .. } => agent.len() + identity.len() + subject.len(),
            Self::Reload(reload) => size_of::<Reload>() + reload.problem.as_ref().map_or(0, String::len),
        };
        (size_of::<Self>() + texts) as u64
    }
}
