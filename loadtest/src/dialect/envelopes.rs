//! The hub's dialect: envelopes as an SDK would write them, without an SDK's costs.

use agent_reach_protocol::limits::{KEEP_MS_MADE, VERSION};
use agent_reach_protocol::{
    Accept, Call, CallMode, CallResult, Capability, Chunk, Credit, Dispatch, Goodbye, Hello, Load, Policy,
    ResultStatus, Select, ToAgent, Update, decode_to_agent, encode,
};
use anyhow::{Result, bail};
use bytes::Bytes;

use super::{Ask, CAPABILITIES, CallKey, Heard, Outcome, RequestIds, Told, Want, agent};

/// Slots of an agent that has enough of them.
const PLENTY: u64 = 1024;

pub(super) fn hello(name: &str, number: u32, groups: Option<u32>) -> Bytes {
    hello_with_slots(name, number, groups, PLENTY)
}

/// The first message of an agent that takes so many calls at a time.
pub(crate) fn hello_with_slots(name: &str, number: u32, groups: Option<u32>, slots: u64) -> Bytes {
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
        max_concurrency: Some(slots),
        calls: None,
        status: None,
        load: None,
    };
    encode(&hello, None)
}

pub(super) fn welcomed(message: &Bytes) -> Result<()> {
    match decode_to_agent(message)? {
        (ToAgent::Welcome(welcome), _) if welcome.warnings.is_empty() => Ok(()),
        (other, _) => bail!("instead of a plain WELCOME: {other:?}"),
    }
}

pub(super) fn goodbye() -> Bytes {
    encode(&Goodbye { code: "normal", reason: None, reconnect_after_ms: None }, None)
}

pub(super) fn keepalive() -> Bytes {
    let load = Load {
        in_flight: Some(0),
        queued: Some(0),
        cpu: Some(0.25),
        memory: Some(0.5),
        health: None,
        levels: Default::default(),
    };
    encode(&Update { status: None, load: Some(load), add: Vec::new(), remove: Vec::new() }, None)
}

pub(super) fn call(caller: u32, id: u64, ask: Ask, ids: RequestIds, body: &[u8]) -> Bytes {
    let request_id = (ids != RequestIds::None).then(|| request_id(caller, id));
    let name = capability(ask.capability);
    let directed = ask.want == Want::Result { directed: true };
    let agent = directed.then(|| agent(ask.agent));
    let mut call = empty_call(id, &name);
    call.request_id = request_id.as_deref();
    call.keep_ms = match ids {
        RequestIds::Sdk => Some(KEEP_MS_MADE),
        RequestIds::Unkept => Some(0),
        RequestIds::Keyed | RequestIds::None => None,
    };
    call.agents = agent.as_deref().map(|agent| vec![agent]);
    match ask.want {
        Want::Result { .. } => {}
        Want::Notice => {
            call.select = Some(Select::All);
            call.mode = Some(CallMode::Notify);
        }
        Want::Chunks { credit } => {
            call.stream = true;
            call.credit = Some(credit);
        }
    }
    encode(&call, Some(body))
}

/// A plain call of the first capability, under this policy or the hub's default.
pub(crate) fn call_by(id: u64, policy: Option<Policy>, body: &[u8]) -> Bytes {
    let name = capability(0);
    encode(&Call { policy, ..empty_call(id, &name) }, Some(body))
}

pub(super) fn credit(id: u64, n: u64) -> Bytes {
    encode(&Credit { id, n, target: None }, None)
}

pub(super) fn heard(message: &Bytes) -> Result<Heard> {
    match decode_to_agent(message)? {
        (ToAgent::Call(Dispatch { id, stream, credit, .. }), body) => {
            let body = body.unwrap_or_default();
            Ok(if stream {
                Heard::Stream((0, id), body, credit.unwrap_or_default())
            } else {
                Heard::Call((0, id), body)
            })
        }
        (ToAgent::Credit(Credit { id, n, .. }), _) => Ok(Heard::Credit((0, id), n)),
        (ToAgent::Cancel(cancel), _) => Ok(Heard::Cancel((0, cancel.id))),
        (goodbye @ ToAgent::Goodbye(_), _) => bail!("sent away: {goodbye:?}"),
        (error @ ToAgent::Error(_), _) => bail!("refused: {error:?}"),
        _ => Ok(Heard::Nothing),
    }
}

/// The ACCEPT of a provider that needs time.
pub(crate) fn accept((_, id): CallKey) -> Bytes {
    let accept = Accept {
        id,
        queue_depth: None,
        would_timeout: false,
        wait_ms: None,
        request_id: None,
        call_id: None,
        target: None,
        attempt: None,
        task_id: None,
        private: Default::default(),
    };
    encode(&accept, None)
}

/// The RESULT of a provider that was quick: it stands for its ACCEPT.
pub(super) fn result((_, id): CallKey, body: &[u8]) -> Bytes {
    encode(&CallResult { id: Some(id), ..empty_result() }, Some(body))
}

pub(super) fn empty_result<'a>() -> CallResult<'a> {
    CallResult {
        id: None,
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

pub(super) fn chunk((_, id): CallKey, seq: u64, body: &[u8]) -> Bytes {
    let private = Default::default();
    encode(&Chunk { id, seq, target: None, content_type: None, private }, Some(body))
}

pub(super) fn told(message: &Bytes) -> Result<Told> {
    match decode_to_agent(message)? {
        (ToAgent::Chunk(Chunk { id, seq, .. }), body) => Ok(Told::Chunk(id, seq, body.unwrap_or_default())),
        (ToAgent::Accept(Accept { id, .. }), _) => Ok(Told::Accepted(id)),
        (ToAgent::Result(CallResult { id: Some(id), more: true, .. }), _) => Ok(Told::Part(id)),
        (ToAgent::Result(CallResult { id: Some(id), status, error, summary, .. }), body) => {
            let outcome = match (summary, error) {
                (Some(summary), _) if summary.failed == 0 => Outcome::Summary(summary.completed),
                (Some(summary), _) => Outcome::Failed(format!("{} parts", summary.failed)),
                (None, Some(error)) => Outcome::Failed(error.code.to_owned()),
                (None, None) if status == ResultStatus::Completed => {
                    Outcome::Completed(body.unwrap_or_default())
                }
                (None, None) => Outcome::Failed(format!("{status:?}")),
            };
            Ok(Told::Ended(id, outcome))
        }
        (goodbye @ ToAgent::Goodbye(_), _) => bail!("sent away: {goodbye:?}"),
        (error @ ToAgent::Error(_), _) => bail!("refused: {error:?}"),
        _ => Ok(Told::Nothing),
    }
}

/// A call of the hub itself.
pub(crate) fn stats_call(id: u64) -> Bytes {
    encode(&empty_call(id, "hub.stats"), None)
}

/// An id as an SDK makes it, as long as a UUID.
pub(crate) fn request_id(caller: u32, id: u64) -> String {
    format!("{caller:08x}-0000-4000-8000-{id:012x}")
}

pub(crate) fn capability(number: u32) -> String {
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

pub(super) fn empty_call(id: u64, capability: &str) -> Call<'_> {
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

#[cfg(test)]
mod tests {
    use agent_reach_protocol::{ToHub, decode_to_hub};

    use super::super::FIRST_CALLER;
    use super::*;

    fn read(want: Want, check: impl FnOnce(Call<'_>, Option<Bytes>)) {
        let ask = Ask { capability: 9, agent: 3, want };
        let message = call(FIRST_CALLER, 7, ask, RequestIds::Sdk, b"body");
        let (ToHub::Call(call), body) = decode_to_hub(&message, None).unwrap() else { panic!("no CALL") };
        check(call, body);
    }

    #[test]
    fn a_hub_reads_what_a_caller_wants() {
        read(Want::Result { directed: true }, |call, body| {
            assert_eq!(
                (call.id, call.agents, body.as_deref()),
                (7, Some(vec!["agent-000003"]), Some(&b"body"[..]))
            );
            assert_eq!((call.request_id.map(str::len), call.keep_ms), (Some(36), Some(600_000)));
        });
        read(Want::Notice, |call, _| {
            assert_eq!((call.select, call.mode), (Some(Select::All), Some(CallMode::Notify)));
        });
        read(Want::Chunks { credit: 5 }, |call, _| {
            assert_eq!((call.stream, call.credit, call.agents), (true, Some(5), None));
        });
    }
}
