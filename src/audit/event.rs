//! What the audit is told. Nothing is copied: who tells it makes the line.

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
pub(super) enum Event<'a> {
    Started { policy_version: u64 },
    Call { record: &'a CallRecord, mode: CallMode, outcome: Outcome, ms: u64 },
    Refused { identity: &'a str, agent: &'a str, reason: &'static str },
    Certificate { identity: &'a str, reason: &'static str },
    Registered { agent: &'a str, identity: &'a str, replaced: bool },
    Left { agent: &'a str, identity: &'a str, reason: &'static str },
    Act { capability: &'static str, agent: &'a str, identity: &'a str, subject: &'a str },
    Reload(&'a Reload),
    Stopped { dropped: u64 },
}

impl<'a> Event<'a> {
    /// What the audit says of a fact.
    pub(super) fn of(fact: &'a Fact) -> Option<Self> {
        Some(match fact {
            Fact::CallEnded { record: Some(record), mode, outcome, total_us, .. } => {
                let ms = match record.task {
                    // It may be older than this life of the hub.
                    Some(_) => record.ended_ms.saturating_sub(record.started_ms),
                    None => total_us / 1000,
                };
                Self::Call { record, mode: *mode, outcome: *outcome, ms }
            }
            Fact::WatchEnded { record: Some(record), outcome, total_us } => {
                Self::Call { record, mode: CallMode::Call, outcome: *outcome, ms: total_us / 1000 }
            }
            Fact::Registered { agent, identity, replaced } => {
                Self::Registered { agent, identity, replaced: *replaced }
            }
            Fact::Refused { identity, agent, reason } => Self::Refused { identity, agent, reason },
            Fact::Left { agent, identity, reason } => Self::Left { agent, identity, reason },
            Fact::Act { capability, agent, identity, subject } => {
                Self::Act { capability, agent, identity, subject }
            }
            Fact::CallEnded { record: None, .. }
            | Fact::WatchEnded { record: None, .. }
            | Fact::Liveness { .. }
            | Fact::SlowConsumer { .. }
            | Fact::CallTraced(_)
            | Fact::TaskEnded { .. }
            | Fact::Dedupe(_)
            | Fact::Evicted { .. }
            | Fact::Retry(_) => return None,
        })
    }
}
