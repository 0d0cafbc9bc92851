//! Tasks as the hub shows them to their owner.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};

use crate::client::Agent;
use crate::errors::{Attempt, CallError};
use crate::payload::{IntoPayload, Payload};
use crate::tasks::TaskHandle;

/// Tasks of one page of `hub.tasks.list`.
const PAGE: usize = 100;

/// Where a task stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum TaskState {
    /// Stored, and with nobody.
    Queued,
    /// A provider has it.
    Received,
    /// Its handler has begun.
    Processing,
    /// Its result is stored.
    Succeeded,
    /// The reason of its failure is stored.
    Failed,
    /// A word that this version of the SDK does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl TaskState {
    /// The word of the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Received => "RECEIVED",
            Self::Processing => "PROCESSING",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Whether nothing more happens to it.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// One task that the hub has. What a hub does not tell is empty or `None`; what it tells besides is left out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its id.
    pub task_id: String,
    /// Where it stands.
    pub state: TaskState,
    /// What is asked for.
    pub capability: String,
    /// The business intent.
    pub request_id: String,
    /// Which agent submitted it: where its result goes.
    pub caller: String,
    /// Tries so far.
    pub attempt: u64,
    /// Who has it, or had it last.
    pub target: Option<String>,
    /// Since it was accepted.
    #[serde(rename = "age_ms", deserialize_with = "millis")]
    pub age: Duration,
    /// Since it moved last.
    #[serde(rename = "unchanged_ms", deserialize_with = "millis")]
    pub unchanged: Duration,
    /// What is left of its budget; of an open one.
    #[serde(rename = "budget_left_ms", deserialize_with = "some_millis")]
    pub budget_left: Option<Duration>,
    /// `completed` or an error code; of one that has ended.
    pub outcome: Option<String>,
    /// Why it failed. Only where one task is asked for, like all that follows.
    pub error: Option<TaskError>,
    /// Every try in order.
    #[serde(deserialize_with = "attempts")]
    pub attempts: Vec<Attempt>,
    /// How long its handler ran.
    #[serde(rename = "execution_ms", deserialize_with = "some_millis")]
    pub execution: Option<Duration>,
    /// Why it went where it went, in one line.
    pub route: Option<String>,
    /// The result's body.
    #[serde(deserialize_with = "body")]
    pub result: Option<Payload>,
    /// What kind of bytes the result is; absent: MessagePack.
    pub content_type: Option<String>,
}

/// Why a task failed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TaskError {
    /// A code of the protocol's table.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether another try can succeed.
    pub retryable: bool,
    /// For programs, as MessagePack.
    #[serde(deserialize_with = "body")]
    pub details: Option<Payload>,
}

fn millis<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

fn some_millis<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
}

fn body<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Payload>, D::Error> {
    let value = Option::<rmpv::Value>::deserialize(from)?;
    value.map(|value| value.into_payload().map_err(serde::de::Error::custom)).transpose()
}

fn attempts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Attempt>, D::Error> {
    #[derive(Deserialize)]
    struct Tried {
        target: String,
        outcome: String,
        ms: u64,
        #[serde(default)]
        reason: String,
    }
    let tried = Vec::<Tried>::deserialize(from)?.into_iter();
    Ok(tried.map(|Tried { target, outcome, ms, reason }| Attempt { target, outcome, ms, reason }).collect())
}

impl TaskInfo {
    /// The body as it was on the wire: what has a content type is shown as its bytes.
    pub(crate) fn payload(&self) -> Payload {
        let shown = self.result.clone().unwrap_or_default();
        let Some(kind) = &self.content_type else { return shown };
        let bytes = match rmp_serde::from_slice(&shown.body) {
            Ok(rmpv::Value::Binary(bytes)) => bytes.into(),
            Ok(_) | Err(_) => shown.body,
        };
        Payload { body: bytes, content_type: Some(kind.clone()) }
    }
}

/// Which tasks of its owner [`Agent::tasks`] lists, the newest first. All of them unless it is narrowed down.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    state: Option<TaskState>,
    capability: Option<String>,
    limit: Option<usize>,
}

impl TaskFilter {
    /// Only those in this state.
    #[must_use]
    pub const fn state(mut self, state: TaskState) -> Self {
        self.state = Some(state);
        self
    }

    /// Only those that ask for this capability.
    #[must_use]
    pub fn capability(mut self, name: impl AsRef<str>) -> Self {
        self.capability = Some(agent_reach_protocol::names::fold(name.as_ref()).into_owned());
        self
    }

    /// At most so many. Default: all, which the hub keeps for 24 h after their end.
    #[must_use]
    pub const fn limit(mut self, tasks: usize) -> Self {
        self.limit = Some(tasks);
        self
    }
}

#[derive(Serialize)]
struct Asked<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a str>,
    limit: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    tasks: Vec<TaskInfo>,
    more: bool,
}

impl Agent {
    /// A handle of a task whose id is known, as after a restart of this program. Its result is there if the task has
    /// ended, or comes when it ends; whether there is such a task shows when it is asked for.
    pub fn task<T>(&self, task_id: impl Into<String>) -> TaskHandle<T> {
        TaskHandle::known(self.clone(), task_id.into())
    }

    /// Tasks of this agent's identity, the newest first, over all pages.
    ///
    /// # Errors
    /// The failure of the call.
    pub async fn tasks(&self, filter: TaskFilter) -> Result<Vec<TaskInfo>, CallError> {
        let most = filter.limit.unwrap_or(usize::MAX);
        let mut all: Vec<TaskInfo> = Vec::new();
        while all.len() < most {
            let before = all.last().map(|task| task.task_id.as_str());
            let asked = Asked {
                state: filter.state.map(TaskState::as_str),
                capability: filter.capability.as_deref(),
                before,
                limit: PAGE.min(most - all.len()),
            };
            let page: Page = self.call("hub.tasks.list", &asked).await?;
            // A page that does not lead on must not be asked for for ever.
            let onward = page.more && !page.tasks.is_empty();
            all.extend(page.tasks);
            if !onward {
                break;
            }
        }
        all.truncate(most);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_reads_as_the_hub_shows_it_and_what_is_unknown_is_left_out() {
        let shown = rmpv::Value::Map(vec![
            ("task_id".into(), "t".into()),
            ("state".into(), "SUCCEEDED".into()),
            ("age_ms".into(), 7.into()),
            ("something_new".into(), true.into()),
            ("result".into(), rmpv::Value::Map(vec![("n".into(), 1.into())])),
        ]);
        let info: TaskInfo = shown.into_payload().unwrap().decode().unwrap();
        assert_eq!((info.state, info.age), (TaskState::Succeeded, Duration::from_millis(7)));
        assert_eq!(info.payload().body.as_ref(), b"\x81\xa1n\x01");
        let other: TaskInfo =
            rmpv::Value::Map(vec![("state".into(), "NEW".into())]).into_payload().unwrap().decode().unwrap();
        assert_eq!(other.state, TaskState::Unknown);
    }

    #[test]
    fn bytes_of_another_kind_come_back_as_they_were() {
        let shown = rmpv::Value::Map(vec![
            ("result".into(), rmpv::Value::Binary(b"{}".to_vec())),
            ("content_type".into(), "application/json".into()),
        ]);
        let info: TaskInfo = shown.into_payload().unwrap().decode().unwrap();
        assert_eq!(info.payload(), Payload::new(&b"{}"[..]).content_type("application/json"));
    }
}
