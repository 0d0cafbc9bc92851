//! Envelopes as SDKs and the hub write them, with bodies of 1 KB.

use agent_reach_protocol::codec::Raw;
use agent_reach_protocol::json::value_to_msgpack;
use agent_reach_protocol::{
    Accept, Attempt, Call, CallError, CallMode, CallResult, Capability, Chunk, Dispatch, Hello, Labels, Load,
    Priority, Private, ResultStatus, Select, Update, encode,
};
use bytes::Bytes;

/// The capability of every provider.
pub(crate) const CAPABILITY: &str = "load.work-00000";
/// What calls, results and chunks carry.
pub(crate) const BODY: [u8; 1024] = [7; 1024];
/// What a notice carries.
pub(crate) const NOTICE: [u8; 256] = [7; 256];

/// Calls that a provider takes at a time, where they are not to wait.
pub(crate) const SLOTS: u64 = 65_536;

/// What an agent offers.
#[derive(Clone, Copy)]
pub(crate) enum Offer<'a> {
    /// Nothing: it calls.
    Nothing,
    /// The capability, with so many slots.
    Slots(u64),
    /// The same with an `input_schema`.
    Schema(&'a [u8]),
}

/// A schema of ten properties, as an SDK derives it from a type.
pub(crate) fn schema() -> Vec<u8> {
    let json = r#"{"type":"object","required":["task","id","priority","text","tags","limit"],"properties":{
        "task":{"type":"string","minLength":1,"maxLength":64},"id":{"type":"integer","minimum":0},
        "priority":{"enum":["low","normal","high"]},"text":{"type":"string","maxLength":4096},
        "tags":{"type":"array","items":{"type":"string"},"maxItems":16},"limit":{"type":"integer","minimum":1,"maximum":100},
        "ratio":{"type":"number","minimum":0,"maximum":1},"dry_run":{"type":"boolean"},
        "language":{"type":"string","pattern":"^[a-z]{2}$"},
        "options":{"type":"object","properties":{"depth":{"type":"integer"},"mode":{"type":"string"}}}}}"#;
    value_to_msgpack(json).unwrap_or_default()
}

/// A body of 1 KB that fits it, with all ten.
pub(crate) fn fitting() -> Vec<u8> {
    let head = r#"{"task":"summarise","id":4711,"priority":"normal","tags":["news","short","english"],"limit":10,
        "ratio":0.25,"dry_run":false,"language":"en","options":{"depth":3,"mode":"fast"},"text":""#;
    let all = value_to_msgpack(&format!("{head}{}\"}}", "x".repeat(BODY.len() - 155)));
    all.unwrap_or_default()
}

/// HELLO of a provider, or of a caller.
pub(crate) fn hello(name: &str, offer: Offer<'_>) -> Bytes {
    let (provides, slots, input_schema) = match offer {
        Offer::Nothing => (false, SLOTS, None),
        Offer::Slots(slots) => (true, slots, None),
        Offer::Schema(schema) => (true, SLOTS, Some(Raw(schema))),
    };
    let capability = Capability {
        name: CAPABILITY,
        version: None,
        description: None,
        input_schema,
        output_schema: None,
        timeout_ms: None,
        qps_limit: None,
        idempotent: false,
        labels: Labels::default(),
        aliases: Vec::new(),
    };
    let hello = Hello {
        v: 1,
        agent_id: name,
        instance: name,
        service: None,
        version: None,
        sdk: None,
        features: Vec::new(),
        capabilities: provides.then_some(capability).into_iter().collect(),
        labels: Labels::default(),
        max_concurrency: Some(slots),
        calls: None,
        status: None,
        load: None,
    };
    encode(&hello, None)
}

/// UPDATE with load: a keepalive.
pub(crate) fn update() -> Bytes {
    let load = Load {
        in_flight: Some(3),
        queued: Some(0),
        cpu: Some(0.25),
        memory: Some(0.5),
        health: None,
        levels: Default::default(),
    };
    encode(&Update { status: None, load: Some(load), add: Vec::new(), remove: Vec::new() }, None)
}

/// How a call differs from a plain one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Plain,
    Stream,
    Notice,
}

/// CALL with a `request_id` of its own, as the SDKs write it.
pub(crate) fn call(id: u64, asked: Asked) -> Bytes {
    call_with(id, asked, if asked == Asked::Notice { &NOTICE } else { &BODY })
}

/// The same with this body.
pub(crate) fn call_with(id: u64, asked: Asked, body: &[u8]) -> Bytes {
    let request_id = format!("0000000a-0000-4000-8000-{id:012x}");
    let call = Call {
        id,
        request_id: Some(&request_id),
        keep_ms: Some(600_000),
        capability: CAPABILITY,
        version: None,
        agents: None,
        select: (asked == Asked::Notice).then_some(Select::All),
        policy: None,
        labels: Labels::default(),
        require: Labels::default(),
        mode: (asked == Asked::Notice).then_some(CallMode::Notify),
        stream: asked == Asked::Stream,
        credit: (asked == Asked::Stream).then_some(10_000),
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
        private: Private::default(),
    };
    encode(&call, Some(body))
}

/// CALL, hub -> provider.
pub(crate) fn dispatch() -> Dispatch<'static> {
    Dispatch {
        id: 4711,
        request_id: "0000000a-0000-4000-8000-000000001267",
        call_id: "1f2e3d4c-000000001267",
        capability: CAPABILITY,
        caller: "caller-000001",
        attempt: 1,
        deadline_ms: 60_000,
        preferred_timeout_ms: None,
        stream: false,
        credit: None,
        mode: CallMode::Call,
        priority: Priority::Normal,
        labels: Labels::default(),
        traceparent: None,
        tracestate: None,
        content_type: None,
        task_id: None,
        private: Private::default(),
    }
}

/// RESULT of a provider.
pub(crate) fn result(id: u64) -> Bytes {
    encode(&CallResult { execution_ms: Some(0), ..plain_result(id) }, Some(&BODY))
}

/// RESULT of a provider that was told something: it stands for ACCEPT.
pub(crate) fn heard(id: u64) -> Bytes {
    encode(&plain_result(id), None)
}

/// RESULT of a provider that failed, where another try may help.
pub(crate) fn failed(id: u64) -> Bytes {
    let error =
        CallError { code: "internal", message: "the model is not loaded", retryable: true, details: None };
    encode(&CallResult { status: ResultStatus::Failed, error: Some(error), ..plain_result(id) }, None)
}

/// RESULT, hub -> caller.
pub(crate) fn told_result() -> CallResult<'static> {
    let attempt =
        Attempt { target: "agent-000003", outcome: "completed", ms: 1, reason: "least_loaded, 0 of 1024" };
    CallResult {
        request_id: Some("0000000a-0000-4000-8000-000000001267"),
        call_id: Some("1f2e3d4c-000000001267"),
        target: Some("agent-000003"),
        execution_ms: Some(0),
        attempts: vec![attempt],
        route: Some("least_loaded of 30: 0 of 1024 taken"),
        ..plain_result(4711)
    }
}

/// ACCEPT of a provider.
pub(crate) fn accept(id: u64) -> Bytes {
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
        private: Private::default(),
    };
    encode(&accept, None)
}

/// CHUNK of a provider.
pub(crate) fn chunk(id: u64, seq: u64) -> Bytes {
    let chunk = Chunk { id, seq, target: None, content_type: None, private: Private::default() };
    encode(&chunk, Some(&BODY))
}

fn plain_result(id: u64) -> CallResult<'static> {
    CallResult {
        id: Some(id),
        status: ResultStatus::Completed,
        request_id: None,
        call_id: None,
        target: None,
        task_id: None,
        execution_ms: None,
        attempts: Vec::new(),
        route: None,
        cached: false,
        duplicate: false,
        error: None,
        more: false,
        summary: None,
        content_type: None,
        private: Private::default(),
    }
}
