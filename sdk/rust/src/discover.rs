//! Who is there and what they can do, as the hub tells it.

use serde::Deserialize;

use crate::client::Agent;
use crate::errors::CallError;

/// One agent that the hub knows. What a hub does not tell is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentInfo {
    /// Its id.
    pub agent_id: String,
    /// `ready`, `degraded`, `draining`, `suspect`.
    pub status: Option<String>,
    /// Name of the service, for people.
    pub service: Option<String>,
    /// Version of the service, for people.
    pub version: Option<String>,
    /// What it offers.
    pub capabilities: Vec<CapabilityRef>,
}

/// A capability in a list of the hub: its name, or more of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum CapabilityRef {
    /// The name alone.
    Name(String),
    /// The name with more.
    Info(CapabilityInfo),
}

impl CapabilityRef {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::Info(info) => &info.name,
        }
    }
}

/// One capability that somebody offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CapabilityInfo {
    /// Its name.
    pub name: String,
    /// Semantic version.
    pub version: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Who offers it.
    pub agents: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Agents {
    agents: Vec<AgentInfo>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    capabilities: Vec<CapabilityInfo>,
}

#[derive(serde::Serialize)]
struct NoFilter {}

impl Agent {
    /// The agents that this one may see, as `hub.agents.list` tells.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn agents(&self) -> Result<Vec<AgentInfo>, CallError> {
        self.call::<Agents>("hub.agents.list", NoFilter {}).await.map(|list| list.agents)
    }

    /// The dictionary of capabilities, as `hub.capabilities.list` tells.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn capabilities(&self) -> Result<Vec<CapabilityInfo>, CallError> {
        self.call::<Capabilities>("hub.capabilities.list", NoFilter {}).await.map(|list| list.capabilities)
    }
}
