//! What is said on a connection: Agent-Reach, or the bare words of the relay that it is compared with.

use agent_reach_protocol::limits::VERSION;
use agent_reach_protocol::{
    Call, CallResult, Capability, Dispatch, Hello, Load, ResultStatus, ToAgent, Update, decode_to_agent,
    encode,
};
use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::Framing;

/// How many capabilities each agent offers.
pub(crate) const CAPABILITIES: u32 = 3;
/// First number of a caller on the relay; smaller ones are agents.
pub(crate) const FIRST_CALLER: u32 = 100_000;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    /// The hub's.
    Hub,
    /// The relay's: `[to: u32][from: u32][id: u64]` and the body; a first message of four bytes says who comes.
    Relay,
}

/// How a caller treats `request_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum RequestIds {
    /// As the SDKs: an id of its own for each call, with keep_ms 600000.
    Sdk,
    /// None: the hub makes one.
    None,
}

/// Who is asked for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Number of the capability.
    pub(crate) capability: u32,
    /// Number of an agent that offers it.
    pub(crate) agent: u32,
    /// Whether it has to be this agent. On the relay it always is.
    pub(crate) directed: bool,
}

/// What an agent heard.
pub(crate) enum Heard {
    /// A call, and the whole message of its answer.
    Answer(Bytes),
    /// Something that wants no answer.
    Nothing,
}

impl Dialect {
    /// How its messages stand on the stream.
    pub(crate) const fn framing(self) -> Framing {
        match self {
            Self::Hub => Framing::WebSocket,
            Self::Relay => Framing::Length,
        }
    }

    /// The first message of an agent (or caller, with no group) of this number.
    pub(crate) fn hello(self, name: &str, number: u32, groups: Option<u32>) -> Bytes {
        if self == Self::Relay {
            return Bytes::copy_from_slice(&number.to_be_bytes());
        }
        let names: Vec<String> = groups.map_or_else(Vec::new, |groups| {
            let first = (number % groups) * CAPABILITIES;
            (first..first + CAPABILITIES).map(capability).collect()
        });
        let capabilities = names.iter().map(|name| offered(name)).collect();
        let hello = Hello {
            v: VERSION,
            agent_id: name,
            instance: name,
            service: None,
            version: None,
            sdk: None,
            features: Vec::new(),
            capabilities,
            labels: Default::default(),
            max_concurrency: Some(1024),
            calls: None,
            status: None,
            load: None,
        };
        encode(&hello, None)
    }

    /// Whether this is the answer to a hello.
    ///
    /// # Errors
    /// When it is another one.
    pub(crate) fn welcomed(self, message: &Bytes) -> Result<()> {
        if self == Self::Relay {
            return Ok(());
        }
        match decode_to_agent(message)? {
            (ToAgent::Welcome(welcome), _) if welcome.warnings.is_empty() => Ok(()),
            (other, _) => bail!("instead of a plain WELCOME: {other:?}"),
        }
    }

    /// What says that an agent lives.
    pub(crate) fn keepalive(self) -> Option<Bytes> {
        let load = Load {
            in_flight: Some(0),
            queued: Some(0),
            cpu: Some(0.25),
            memory: Some(0.5),
            health: None,
            levels: Default::default(),
        };
        let update = Update { status: None, load: Some(load), add: Vec::new(), remove: Vec::new() };
        (self == Self::Hub).then(|| encode(&update, None))
    }

    /// A call of the caller with this number.
    pub(crate) fn call(self, caller: u32, id: u64, ask: Ask, ids: RequestIds, body: &[u8]) -> Bytes {
        if self == Self::Relay {
            return relayed(ask.agent, caller, id, body);
        }
        let request_id = (ids == RequestIds::Sdk).then(|| format!("{caller:08x}-0000-4000-8000-{id:012x}"));
        let name = capability(ask.capability);
        let agent = ask.directed.then(|| agent(ask.agent));
        let mut call = empty_call(id, &name);
        call.request_id = request_id.as_deref();
        call.keep_ms = request_id.as_ref().map(|_| 600_000);
        call.agents = agent.as_deref().map(|agent| vec![agent]);
        encode(&call, Some(body))
    }

    /// Whose call has ended.
    ///
    /// # Errors
    /// When the message is no end of a call, or that of one that failed.
    pub(crate) fn ended(self, message: &Bytes) -> Result<u64> {
        if self == Self::Relay {
            let (_, _, id, _) = parts(message)?;
            return Ok(id);
        }
        match decode_to_agent(message)? {
            (ToAgent::Result(CallResult { id: Some(id), status: ResultStatus::Completed, .. }), Some(_)) => {
                Ok(id)
            }
            (other, _) => bail!("instead of a RESULT that completed: {other:?}"),
        }
    }

    /// What an agent does with a message: a call's body goes back as it came.
    ///
    /// # Errors
    /// When the hub wants it gone.
    pub(crate) fn heard(self, message: &Bytes) -> Result<Heard> {
        if self == Self::Relay {
            let (to, from, id, body) = parts(message)?;
            return Ok(Heard::Answer(relayed(from, to, id, body)));
        }
        match decode_to_agent(message)? {
            (ToAgent::Call(Dispatch { id, .. }), body) => {
                Ok(Heard::Answer(encode(&completed(id), Some(body.as_deref().unwrap_or_default()))))
            }
            (goodbye @ ToAgent::Goodbye(_), _) => bail!("sent away: {goodbye:?}"),
            (error @ ToAgent::Error(_), _) => bail!("refused: {error:?}"),
            _ => Ok(Heard::Nothing),
        }
    }
}

/// Name of the agent of this number.
pub(crate) fn agent(number: u32) -> String {
    format!("agent-{number:06}")
}

fn capability(number: u32) -> String {
    format!("load.work-{number:05}")
}

fn offered(name: &str) -> Capability<'_> {
    Capability {
        name,
        version: None,
        description: None,
        input_schema: None,
        output_schema: None,
        timeout_ms: None,
        qps_limit: None,
        idempotent: false,
        labels: Default::default(),
        aliases: Vec::new(),
    }
}

fn empty_call(id: u64, capability: &str) -> Call<'_> {
    Call {
        id,
        request_id: None,
        keep_ms: None,
        capability,
        version: None,
        agents: None,
        select: None,
        policy: None,
        labels: Default::default(),
        require: Default::default(),
        mode: None,
        stream: false,
        credit: None,
        accept_timeout_ms: None,
        timeout_ms: None,
        budget_ms: None,
        preferred_timeout_ms: None,
        priority: None,
        retries: None,
        allow_fallback: false,
        allow_cached_ms: None,
        queue: None,
        wait_ms: None,
        affinity_key: None,
        expected_output: None,
        traceparent: None,
        tracestate: None,
        callback_url: None,
        reply_to: None,
        content_type: None,
        private: Default::default(),
    }
}

/// The RESULT of a provider that was quick: it stands for its ACCEPT.
fn completed(id: u64) -> CallResult<'static> {
    CallResult {
        id: Some(id),
        status: ResultStatus::Completed,
        request_id: None,
        call_id: None,
        target: None,
        task_id: None,
        execution_ms: Some(0),
        attempts: Vec::new(),
        route: None,
        cached: false,
        duplicate: false,
        error: None,
        more: false,
        summary: None,
        content_type: None,
        private: Default::default(),
    }
}

fn relayed(to: u32, from: u32, id: u64, body: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend_from_slice(&to.to_be_bytes());
    message.extend_from_slice(&from.to_be_bytes());
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(body);
    message.into()
}

fn parts(message: &[u8]) -> Result<(u32, u32, u64, &[u8])> {
    let short = || anyhow!("a relayed message without its head");
    let (to, rest) = message.split_first_chunk().ok_or_else(short)?;
    let (from, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (id, body) = rest.split_first_chunk().ok_or_else(short)?;
    Ok((u32::from_be_bytes(*to), u32::from_be_bytes(*from), u64::from_be_bytes(*id), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: Ask = Ask { capability: 9, agent: 3, directed: true };

    #[test]
    fn an_agent_gives_a_relayed_body_back_to_who_sent_it() {
        let call = Dialect::Relay.call(FIRST_CALLER, 7, ASK, RequestIds::None, b"body");
        let Ok(Heard::Answer(answer)) = Dialect::Relay.heard(&call) else { panic!("no answer") };
        assert_eq!(parts(&answer).unwrap(), (FIRST_CALLER, 3, 7, &b"body"[..]));
        assert_eq!(Dialect::Relay.ended(&answer).unwrap(), 7);
    }

    #[test]
    fn a_call_can_be_read_by_a_hub() {
        let message = Dialect::Hub.call(FIRST_CALLER, 7, ASK, RequestIds::Sdk, b"body");
        let (read, body) = agent_reach_protocol::decode_to_hub(&message, None).unwrap();
        let agent_reach_protocol::ToHub::Call(call) = read else { panic!("no CALL") };
        assert_eq!(
            (call.id, call.agents, body.as_deref()),
            (7, Some(vec!["agent-000003"]), Some(&b"body"[..]))
        );
        assert_eq!((call.request_id.map(str::len), call.keep_ms), (Some(36), Some(600_000)));
    }
}
