//! Headers of a call: CALL on both hops, ACCEPT, CHUNK, CREDIT, RESULT, CANCEL, RECEIPT.

use super::field::{FieldError, FieldValue, Labels, Private, map_type, not_a_map, read_key, words};
use crate::codec::{Raw, Value, Writer};
use crate::limits::{ID_BYTES_MAX, LIST_MAX, SCHEMA_BYTES_MAX, TEXT_BYTES_MAX, WORD_BYTES_MAX};

words! {
    /// What the caller waits for.
    CallMode {
        /// The result.
        Call = "call",
        /// Durable storage; the result comes when it comes.
        Task = "task",
        /// Phase one only.
        Notify = "notify",
    }
}

words! {
    /// Final choice among candidates.
    Policy {
        /// The one with the most free room, by the hub's own count.
        LeastLoaded = "least_loaded",
        /// In turn.
        RoundRobin = "round_robin",
        /// By chance.
        Random = "random",
    }
}

words! {
    /// Urgency: queue order, and a factor on the processing timeout.
    Priority {
        /// Half the processing timeout.
        Low = "low",
        /// The processing timeout as it is.
        Normal = "normal",
        /// Twice the processing timeout.
        High = "high",
    }
}

words! {
    /// How a call, or one target's part of it, ended.
    ResultStatus {
        /// With a result.
        Completed = "completed",
        /// Without one; `error` says why.
        Failed = "failed",
        /// No agent could take it.
        NoInstance = "no_instance",
    }
}

/// How many of the matching agents a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// One; the call is not a fan-out.
    One,
    /// Every candidate.
    All,
    /// At most so many different ones.
    Count(u64),
}

impl FieldValue<'_> for Select {
    fn read(value: Value<'_>, _: Raw<'_>) -> Result<Self, FieldError> {
        if let Value::UInt(n @ 1..) = value {
            Ok(Self::Count(n))
        } else if value == Value::Str("one") {
            Ok(Self::One)
        } else if value == Value::Str("all") {
            Ok(Self::All)
        } else {
            Err(FieldError::new("", "must be \"one\", \"all\" or an integer from 1"))
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::One => out.str("one"),
            Self::All => out.str("all"),
            Self::Count(n) => out.uint(*n),
        }
    }
}

map_type! {
    /// CALL, caller -> hub: ask for work. Absent keys have the defaults of the table in `docs/protocol.md`.
    Call {
        /// Chosen by the caller, unique among its open calls on this connection.
        id: u64 = "id";
        /// One business intent; retries keep it.
        request_id: Option<&'a str> = "request_id", 1..=ID_BYTES_MAX;
        /// How long the outcome of this request_id is remembered, in milliseconds.
        keep_ms: Option<u64> = "keep_ms";
        /// What is asked for.
        capability: &'a str = "capability", 1..=ID_BYTES_MAX;
        /// Semver requirement on the capability.
        version: Option<&'a str> = "version", 1..=WORD_BYTES_MAX;
        /// Exactly these agents.
        agents: Option<Vec<&'a str>> = "agents", 1..=LIST_MAX, each 1..=ID_BYTES_MAX;
        /// How many of the matching agents.
        select: Option<Select> = "select";
        /// Final choice among candidates.
        policy: Option<Policy> = "policy";
        /// Preferred labels.
        labels: Labels<'a> = "labels";
        /// Labels a candidate must have.
        require: Labels<'a> = "require";
        /// What the caller waits for.
        mode: Option<CallMode> = "mode";
        /// The caller takes CHUNKs.
        stream: bool = "stream";
        /// First window of the stream, in chunks.
        credit: Option<u64> = "credit";
        /// Time for phase one, in milliseconds.
        accept_timeout_ms: Option<u64> = "accept_timeout_ms";
        /// Time for processing, from ACCEPT, in milliseconds.
        timeout_ms: Option<u64> = "timeout_ms";
        /// Time for everything, in milliseconds.
        budget_ms: Option<u64> = "budget_ms";
        /// What the caller would like, for negotiation, in milliseconds.
        preferred_timeout_ms: Option<u64> = "preferred_timeout_ms";
        /// Urgency.
        priority: Option<Priority> = "priority";
        /// Further tries on the same agent.
        retries: Option<u64> = "retries";
        /// Whether another agent may be tried then.
        allow_fallback: bool = "allow_fallback";
        /// How old a cached result may be, in milliseconds; 0: none.
        allow_cached_ms: Option<u64> = "allow_cached_ms";
        /// Whether to wait in the hub when all candidates are busy.
        queue: Option<bool> = "queue";
        /// How long to wait for a candidate to come, in milliseconds.
        wait_ms: Option<u64> = "wait_ms";
        /// Calls with one key go to one agent while it has room.
        affinity_key: Option<&'a str> = "affinity_key", 1..=ID_BYTES_MAX;
        /// JSON Schema that the candidate's output must satisfy.
        expected_output: Option<Raw<'a>> = "expected_output", 0..=SCHEMA_BYTES_MAX;
        /// W3C Trace Context.
        traceparent: Option<&'a str> = "traceparent", 0..=TEXT_BYTES_MAX;
        /// W3C Trace Context.
        tracestate: Option<&'a str> = "tracestate", 0..=TEXT_BYTES_MAX;
        /// Task mode: where the result also goes.
        callback_url: Option<&'a str> = "callback_url", 0..=TEXT_BYTES_MAX;
        /// Task mode: whose inbox the result also goes to.
        reply_to: Option<&'a str> = "reply_to", 0..=TEXT_BYTES_MAX;
        /// Of the body; absent: MessagePack.
        content_type: Option<&'a str> = "content_type", 0..=WORD_BYTES_MAX;
    } private private
}

map_type! {
    /// CALL, hub -> provider: do this work.
    Dispatch {
        /// Chosen by the hub.
        id: u64 = "id";
        /// One business intent: the provider never runs one twice.
        request_id: &'a str = "request_id", 1..=ID_BYTES_MAX;
        /// Hub-wide id of the call, for tracing.
        call_id: &'a str = "call_id", 1..=ID_BYTES_MAX;
        /// The provider's own name of the capability.
        capability: &'a str = "capability", 1..=ID_BYTES_MAX;
        /// Who asks.
        caller: &'a str = "caller", 1..=ID_BYTES_MAX;
        /// From 1.
        attempt: u64 = "attempt";
        /// What is left, in milliseconds.
        deadline_ms: u64 = "deadline_ms";
        /// What the caller would like, in milliseconds.
        preferred_timeout_ms: Option<u64> = "preferred_timeout_ms";
        /// Whether CHUNKs are taken.
        stream: bool = "stream" always;
        /// Window of the stream in chunks, counted from `seq` 0.
        credit: Option<u64> = "credit";
        /// What the caller waits for.
        mode: CallMode = "mode";
        /// Urgency.
        priority: Priority = "priority";
        /// The caller's preferred labels.
        labels: Labels<'a> = "labels";
        /// W3C Trace Context.
        traceparent: Option<&'a str> = "traceparent", 0..=TEXT_BYTES_MAX;
        /// W3C Trace Context.
        tracestate: Option<&'a str> = "tracestate", 0..=TEXT_BYTES_MAX;
        /// Of the body; absent: MessagePack.
        content_type: Option<&'a str> = "content_type", 0..=WORD_BYTES_MAX;
        /// Of a task.
        task_id: Option<&'a str> = "task_id", 1..=ID_BYTES_MAX;
    } private private
}

map_type! {
    /// ACCEPT: phase one, the provider has the call. Says nothing about success.
    Accept {
        /// Of the CALL it answers.
        id: u64 = "id";
        /// Calls that wait in the provider before this one.
        queue_depth: Option<u64> = "queue_depth";
        /// The provider expects to miss `preferred_timeout_ms`.
        would_timeout: bool = "would_timeout";
        /// Then: how long the caller would have to wait, in milliseconds.
        wait_ms: Option<u64> = "wait_ms";
        /// Hub -> caller.
        request_id: Option<&'a str> = "request_id", 1..=ID_BYTES_MAX;
        /// Hub -> caller.
        call_id: Option<&'a str> = "call_id", 1..=ID_BYTES_MAX;
        /// Hub -> caller: who accepted.
        target: Option<&'a str> = "target", 1..=ID_BYTES_MAX;
        /// Hub -> caller: which try.
        attempt: Option<u64> = "attempt";
        /// Hub -> caller, of a task.
        task_id: Option<&'a str> = "task_id", 1..=ID_BYTES_MAX;
    } private private
}

map_type! {
    /// CHUNK: one piece of a streamed result.
    Chunk {
        /// Of the CALL it answers.
        id: u64 = "id";
        /// From 0 without gaps.
        seq: u64 = "seq";
        /// Hub -> caller: whose piece.
        target: Option<&'a str> = "target", 1..=ID_BYTES_MAX;
        /// Of the body; absent: MessagePack.
        content_type: Option<&'a str> = "content_type", 0..=WORD_BYTES_MAX;
    } private private
}

map_type! {
    /// CREDIT: the receiver of a stream takes so many chunks more.
    Credit {
        /// Of the CALL that the sender of CREDIT sent.
        id: u64 = "id";
        /// How many more.
        n: u64 = "n";
        /// In a fan-out: only for this target's stream.
        target: Option<&'a str> = "target", 1..=ID_BYTES_MAX;
    }
}

map_type! {
    /// One try of a call.
    Attempt {
        /// Who was tried.
        target: &'a str = "target", 1..=ID_BYTES_MAX;
        /// `completed` or an error code.
        outcome: &'a str = "outcome", 1..=WORD_BYTES_MAX;
        /// How long it took, in milliseconds.
        ms: u64 = "ms";
        /// Why this agent, or why it failed.
        reason: &'a str = "reason", 0..=TEXT_BYTES_MAX;
    }
}

map_type! {
    /// Why a call failed.
    CallError {
        /// One of [`crate::ErrorCode`]; kept as a word, since a later peer may know more. Any text is read, even
        /// an empty one: a provider's odd code must not cost the caller its RESULT.
        code: &'a str = "code", 0..=WORD_BYTES_MAX;
        /// For people.
        message: &'a str = "message", 0..=TEXT_BYTES_MAX;
        /// Whether another try can help.
        retryable: bool = "retryable" always;
        /// For programs.
        details: Option<Raw<'a>> = "details", 0..=SCHEMA_BYTES_MAX;
    }
}

/// How a fan-out ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many agents it went to.
    pub targets: u64,
    /// How many completed.
    pub completed: u64,
    /// How many did not.
    pub failed: u64,
}

impl FieldValue<'_> for Summary {
    fn read(value: Value<'_>, _: Raw<'_>) -> Result<Self, FieldError> {
        let Some(entries) = value.entries() else { return Err(not_a_map(&value)) };
        let mut summary = Self::default();
        for (key, value, raw) in entries {
            let number = match key {
                "targets" => &mut summary.targets,
                "completed" => &mut summary.completed,
                "failed" => &mut summary.failed,
                _ => continue,
            };
            *number = read_key::<Option<u64>>(key, value, raw)?.unwrap_or_default();
        }
        Ok(summary)
    }

    fn write(&self, out: &mut Writer) {
        out.map(3);
        for (key, number) in
            [("targets", self.targets), ("completed", self.completed), ("failed", self.failed)]
        {
            out.str(key);
            out.uint(number);
        }
    }
}

map_type! {
    /// RESULT: phase two, the end of a call (or of one target's part, with `more`).
    CallResult {
        /// Of the CALL it answers; absent in a task's result.
        id: Option<u64> = "id";
        /// How it ended.
        status: ResultStatus = "status";
        /// The business intent.
        request_id: Option<&'a str> = "request_id", 1..=ID_BYTES_MAX;
        /// Hub-wide id of the call.
        call_id: Option<&'a str> = "call_id", 1..=ID_BYTES_MAX;
        /// Who did it.
        target: Option<&'a str> = "target", 1..=ID_BYTES_MAX;
        /// Of a task.
        task_id: Option<&'a str> = "task_id", 1..=ID_BYTES_MAX;
        /// How long the handler ran, in milliseconds.
        execution_ms: Option<u64> = "execution_ms";
        /// Every try in order, the good one too.
        attempts: Vec<Attempt<'a>> = "attempts";
        /// Why it went where it went, in one line.
        route: Option<&'a str> = "route", 0..=TEXT_BYTES_MAX;
        /// The result is an earlier call's.
        cached: bool = "cached";
        /// The request_id had ended before: this is its stored end.
        duplicate: bool = "duplicate";
        /// Why it failed.
        error: Option<CallError<'a>> = "error";
        /// Further RESULTs of this call follow.
        more: bool = "more";
        /// End of a fan-out.
        summary: Option<Summary> = "summary";
        /// Of the body; absent: MessagePack.
        content_type: Option<&'a str> = "content_type", 0..=WORD_BYTES_MAX;
    } private private
}

map_type! {
    /// CANCEL: the asker no longer wants it.
    Cancel {
        /// Of the CALL that the sender of CANCEL sent.
        id: u64 = "id";
        /// For people and logs.
        reason: Option<&'a str> = "reason", 0..=TEXT_BYTES_MAX;
        /// Whether the RESULT waits for the provider's answer.
        wait: bool = "wait";
    }
}

map_type! {
    /// RECEIPT: a task's result is safely in the caller's hands.
    Receipt {
        /// Of the task.
        task_id: &'a str = "task_id", 1..=ID_BYTES_MAX;
    }
}

impl Accept<'_> {
    /// An ACCEPT of one CALL that says nothing else; for struct update syntax.
    pub fn of(id: u64) -> Self {
        Self {
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
}

impl CallResult<'_> {
    /// A RESULT that says how it ended and nothing else; for struct update syntax.
    pub fn of(status: ResultStatus) -> Self {
        Self {
            id: None,
            status,
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
}
