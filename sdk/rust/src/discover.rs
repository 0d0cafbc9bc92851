//! Who is there and what they can do, as the hub tells it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::client::Agent;
use crate::errors::CallError;
use crate::payload::Payload;
use crate::session::CallSpec;

/// One agent that the hub knows. What a hub does not tell is empty or `None`; what it tells besides is left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentInfo {
    /// Its id.
    pub agent_id: String,
    /// Who its certificate proves.
    pub identity: String,
    /// This life of its process.
    pub instance: String,
    /// `ready`, `degraded`, `draining`, `suspect`, or `away` while its return is waited for.
    pub status: String,
    /// Name of the service, for people.
    pub service: Option<String>,
    /// Version of the service, for people.
    pub version: Option<String>,
    /// Name and version of its SDK.
    pub sdk: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Names of what it offers.
    pub capabilities: Vec<String>,
    /// Calls that the hub counts as its own, cancelled ones that still run included.
    pub in_flight: u64,
    /// Most of them.
    pub max_concurrency: u64,
    /// How long it has been registered.
    #[serde(rename = "connected_ms", deserialize_with = "millis")]
    pub connected: Duration,
    /// What it reports of its load.
    pub load: AgentLoad,
}

/// What an agent reports of its load.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct AgentLoad {
    /// Calls that run.
    pub in_flight: Option<u64>,
    /// Calls that wait in the agent.
    pub queued: Option<u64>,
    /// Share of the processor, 0 to 1.
    pub cpu: Option<f64>,
    /// Share of the memory, 0 to 1.
    pub memory: Option<f64>,
    /// 0 to 100; below 60 the agent is out of routing.
    pub health: Option<u64>,
    /// Fill of single capabilities, 0 to 1.
    pub levels: BTreeMap<String, f64>,
}

/// One name of the dictionary, with everybody who offers it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CapabilityInfo {
    /// The name.
    pub name: String,
    /// Who offers it, each in its own version.
    pub agents: Vec<OfferInfo>,
    /// Names of the hub's policy that stand for this one.
    pub policy_aliases: Vec<String>,
}

/// One agent's offer of a capability.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OfferInfo {
    /// Who offers it.
    pub agent_id: String,
    /// How that agent stands; see [`AgentInfo::status`].
    pub status: String,
    /// The agent's own name of it, where the dictionary's is an alias.
    pub name: String,
    /// Semantic version.
    pub version: Option<String>,
    /// For people.
    pub description: Option<String>,
    /// Processing time of calls that name none.
    #[serde(rename = "timeout_ms", deserialize_with = "maybe_millis")]
    pub timeout: Option<Duration>,
    /// Most calls a second.
    pub qps_limit: Option<f64>,
    /// Whether running one intent twice is harmless.
    pub idempotent: bool,
    /// Labels of this capability.
    pub labels: BTreeMap<String, String>,
    /// Further names that it answers to.
    pub aliases: Vec<String>,
    /// JSON Schema of the body of a call, as MessagePack; read with [`Payload::decode`].
    #[serde(deserialize_with = "schema")]
    pub input_schema: Option<Payload>,
    /// JSON Schema of the body of a result.
    #[serde(deserialize_with = "schema")]
    pub output_schema: Option<Payload>,
}

fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

fn maybe_millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
}

fn schema<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Payload>, D::Error> {
    let value = Option::<rmpv::Value>::deserialize(from)?;
    let encoded = value.map(|value| rmp_serde::to_vec_named(&value)).transpose();
    Ok(encoded.map_err(serde::de::Error::custom)?.map(Payload::new))
}

/// One page of a list; a hub that has more says so.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(alias = "agents", alias = "capabilities")]
    items: Vec<T>,
    #[serde(default)]
    more: bool,
}

#[derive(Default, Serialize)]
struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

impl Agent {
    /// The agents that this one may see, as `hub.agents.list` tells, all pages of it.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn agents(&self) -> Result<Vec<AgentInfo>, CallError> {
        self.listed_agents(Filter::default()).await
    }

    async fn listed_agents(&self, filter: Filter) -> Result<Vec<AgentInfo>, CallError> {
        self.listed("hub.agents.list", filter, |agent: &AgentInfo| agent.agent_id.clone()).await
    }

    /// The least loaded agent but `not` that a call may go to.
    pub(crate) async fn another(&self, spec: &CallSpec, not: &str) -> Result<Option<String>, CallError> {
        let filter = Filter {
            capability: Some(spec.capability.clone()),
            status: Some("ready"),
            labels: spec.require.iter().cloned().collect(),
            after: None,
        };
        let able = self.listed_agents(filter).await?.into_iter().filter(|agent| agent.agent_id != not);
        // A list names who waits for it too, but an agent without slots takes nothing.
        let able = able.filter(|agent| agent.max_concurrency > 0);
        let fill = |agent: &AgentInfo| agent.in_flight as f64 / agent.max_concurrency as f64;
        Ok(able.min_by(|one, other| fill(one).total_cmp(&fill(other))).map(|agent| agent.agent_id))
    }

    /// The dictionary of capabilities, as `hub.capabilities.list` tells, all pages of it.
    ///
    /// # Errors
    /// The call's failure.
    pub async fn capabilities(&self) -> Result<Vec<CapabilityInfo>, CallError> {
        let name = |capability: &CapabilityInfo| capability.name.clone();
        self.listed("hub.capabilities.list", Filter::default(), name).await
    }

    async fn listed<T>(
        &self,
        capability: &str,
        mut filter: Filter,
        name: fn(&T) -> String,
    ) -> Result<Vec<T>, CallError>
    where
        T: for<'de> Deserialize<'de> + Send + 'static,
    {
        let mut all: Vec<T> = Vec::new();
        loop {
            let page: Page<T> = self.call(capability, &filter).await?;
            all.extend(page.items);
            let last = all.last().map(name);
            // A hub that says more and gives nothing new would keep us here for ever.
            if !page.more || last == filter.after || last.is_none() {
                return Ok(all);
            }
            filter.after = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_keeps_its_schema_as_it_was_and_what_is_unknown_is_left_out() {
        let schema = BTreeMap::from([("type", "string")]);
        let sent = rmp_serde::to_vec_named(&serde_offer(&schema)).unwrap();
        let read: OfferInfo = rmp_serde::from_slice(&sent).unwrap();
        assert_eq!((read.agent_id.as_str(), read.timeout), ("p", Some(Duration::from_millis(7))));
        let schema = read.input_schema.unwrap().decode::<BTreeMap<String, String>>().unwrap();
        assert_eq!(schema["type"], "string");
        assert_eq!(read.output_schema, None);
    }

    #[derive(Serialize)]
    struct Sent<'a> {
        agent_id: &'a str,
        timeout_ms: u64,
        input_schema: &'a BTreeMap<&'a str, &'a str>,
        something_new: bool,
    }

    fn serde_offer<'a>(input_schema: &'a BTreeMap<&'a str, &'a str>) -> Sent<'a> {
        Sent { agent_id: "p", timeout_ms: 7, input_schema, something_new: true }
    }
}
