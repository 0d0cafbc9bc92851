//! A call as it is kept while nobody has it.

use std::sync::Arc;

use agent_reach_protocol::{Labels, Policy, ToAgent, decode_to_agent};

use super::Call;
use super::demand::Demand;
use crate::authz::Grant;
use crate::hub::Hub;
use crate::offered::Names;
use crate::routing::Wanted;
use crate::schema::{Body, Expected};
use crate::time::Now;

/// A call that is to be routed again, apart from the hub: what it asks of who takes it.
pub(super) struct Stored {
    pub(super) caller: usize,
    pub(super) name: Arc<str>,
    pub(super) demand: Demand,
    version: Option<semver::VersionReq>,
    policy: Policy,
    given: bytes::Bytes,
    except: Vec<Arc<str>>,
    expected: Option<Expected>,
    /// What a caller may call that is not there.
    pub(super) grant: Option<Arc<Grant>>,
}

impl Stored {
    /// Works with what is wanted. Labels are read from the CALL that is kept.
    pub(super) fn with_wanted<T>(&self, now: Now, work: impl FnOnce(&Wanted<'_>) -> T) -> T {
        let given = decode_to_agent(&self.given);
        let none = Labels::default();
        let prefer = match &given {
            Ok((ToAgent::Call(given), _)) => &given.labels,
            _ => &none,
        };
        let (body, content_type) = match &given {
            Ok((ToAgent::Call(given), body)) => (body.as_deref(), given.content_type),
            _ => (None, None),
        };
        let agent: Option<[&str; 1]> = self.demand.agent.as_deref().map(|agent| [agent]);
        work(&Wanted {
            now,
            caller: self.caller,
            name: &self.name,
            agents: agent.as_ref().map(|agent| &agent[..]),
            count: 1,
            policy: self.policy,
            prefer,
            require: &self.demand.require(),
            version: self.version.as_ref(),
            affinity_key: self.demand.affinity_key.as_deref(),
            except: &self.except,
            body: &Body::new(body, content_type),
            expected: self.expected.as_ref(),
            grant: self.grant.as_deref(),
        })
    }
}

impl Hub {
    /// What a call asks, as it is kept; `agent` narrows it to one. `fallback`: none of those that were tried.
    pub(super) fn stored(&self, call: &Call, agent: Option<&Arc<str>>, fallback: bool) -> Stored {
        let mut demand = call.demand.as_deref().cloned().unwrap_or_default();
        if let Some(agent) = agent {
            demand.agent = Some(Arc::clone(agent));
        }
        let tried = call.attempts.iter().map(|tried| Arc::clone(&tried.target));
        let owner = self.owner_of(call);
        Stored {
            caller: owner.unwrap_or(usize::MAX),
            grant: if owner.is_none() { self.grant_of(call) } else { None },
            name: self.resolved(&call.capability),
            version: demand.version(),
            expected: demand.expected(),
            demand,
            policy: call.policy,
            given: call.given.clone(),
            except: if fallback { tried.collect() } else { Vec::new() },
        }
    }

    /// The agent that asked for a call, unless its place is another's by now.
    pub(super) fn owner_of(&self, call: &Call) -> Option<usize> {
        let (owner, serial) = call.owner;
        self.registry.agents.get(owner).filter(|agent| agent.serial == serial).map(|_| owner)
    }

    /// What the caller of a task may do, wherever it is.
    pub(super) fn grant_of(&self, call: &Call) -> Option<Arc<Grant>> {
        let identity = &call.task.as_ref()?.identity;
        // It was that agent when it called, so the name in its certificate is that or needs none.
        self.policy.grant(identity, &call.caller, &call.caller)
    }

    /// The shared copy of the name that policy makes of one.
    pub(super) fn resolved(&self, asked: &Arc<str>) -> Arc<str> {
        match self.policy.resolve(asked) {
            name if *name == **asked => Arc::clone(asked),
            name => Names::intern(&self.registry.names, name),
        }
    }
}
