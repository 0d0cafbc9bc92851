//! Headers with every key absent, to be filled by `..call(1, "echo")`.

use agent_reach_protocol::{
    Accept, Call, CallError, CallMode, CallResult, Cancel, Capability, Chunk, Credit, Goodbye, Hello, Labels,
    Load, Private, Receipt, ResultStatus, Update,
};

pub(crate) fn capability(name: &str) -> Capability<'_> {
    Capability {
        name,
        version: None,
        description: None,
        input_schema: None,
        output_schema: None,
        timeout_ms: None,
        qps_limit: None,
        idempotent: false,
        labels: Labels::default(),
        aliases: Vec::new(),
    }
}

/// A HELLO that offers nothing.
pub(crate) fn caller(agent_id: &str) -> Hello<'_> {
    Hello {
        v: 1,
        agent_id,
        instance: "life-1",
        service: None,
        version: None,
        sdk: None,
        features: Vec::new(),
        capabilities: Vec::new(),
        labels: Labels::default(),
        max_concurrency: None,
        calls: None,
        status: None,
        load: None,
    }
}

/// A HELLO that offers one capability.
pub(crate) fn provider<'a>(agent_id: &'a str, name: &'a str) -> Hello<'a> {
    Hello { capabilities: vec![capability(name)], ..caller(agent_id) }
}

pub(crate) fn load() -> Load<'static> {
    Load {
        in_flight: None,
        queued: None,
        cpu: None,
        memory: None,
        health: None,
        levels: agent_reach_protocol::Levels::default(),
    }
}

pub(crate) fn update() -> Update<'static> {
    Update { status: None, load: None, add: Vec::new(), remove: Vec::new() }
}

/// A CALL that asks for one try and does not wait: what is looked at comes at once.
pub(crate) fn call(id: u64, capability: &str) -> Call<'_> {
    Call {
        id,
        request_id: None,
        keep_ms: None,
        capability,
        version: None,
        agents: None,
        select: None,
        policy: None,
        labels: Labels::default(),
        require: Labels::default(),
        mode: None,
        stream: false,
        credit: None,
        accept_timeout_ms: None,
        timeout_ms: None,
        budget_ms: None,
        preferred_timeout_ms: None,
        priority: None,
        retries: Some(0),
        allow_fallback: false,
        allow_cached_ms: None,
        queue: Some(false),
        wait_ms: None,
        affinity_key: None,
        expected_output: None,
        traceparent: None,
        tracestate: None,
        callback_url: None,
        reply_to: None,
        content_type: None,
        private: Private::default(),
    }
}

/// A CALL that asks for a task.
pub(crate) fn task(id: u64, capability: &str) -> Call<'_> {
    Call { mode: Some(CallMode::Task), request_id: Some("r"), retries: None, ..call(id, capability) }
}

pub(crate) fn receipt(task_id: &str) -> Receipt<'_> {
    Receipt { task_id }
}

pub(crate) fn accept(id: u64) -> Accept<'static> {
    Accept {
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
    }
}

pub(crate) fn chunk(id: u64, seq: u64) -> Chunk<'static> {
    Chunk { id, seq, target: None, content_type: None, private: Private::default() }
}

pub(crate) fn credit(id: u64, n: u64) -> Credit<'static> {
    Credit { id, n, target: None }
}

pub(crate) fn cancel(id: u64) -> Cancel<'static> {
    Cancel { id, reason: None, wait: false }
}

pub(crate) fn completed(id: u64) -> CallResult<'static> {
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

pub(crate) fn failed(id: u64, code: &str, retryable: bool) -> CallResult<'_> {
    let error = CallError { code, message: "it went wrong", retryable, details: None };
    CallResult { status: ResultStatus::Failed, error: Some(error), ..completed(id) }
}

pub(crate) fn goodbye() -> Goodbye<'static> {
    Goodbye { code: "normal", reason: None, reconnect_after_ms: None }
}
