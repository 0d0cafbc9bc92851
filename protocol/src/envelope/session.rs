//! Headers of the session: HELLO, WELCOME, UPDATE, GOODBYE, ERROR.

use super::field::{FieldError, Labels, Levels, map_type, words};
use crate::codec::Raw;
use crate::limits::{
    ALIASES_MAX, CAPABILITIES_MAX, ID_BYTES_MAX, LIST_MAX, SCHEMA_BYTES_MAX, TEXT_BYTES_MAX, WORD_BYTES_MAX,
};

words! {
    /// What an agent says of its readiness.
    AgentStatus {
        /// Takes calls.
        Ready = "ready",
        /// Some capabilities are withdrawn; the remaining ones stay routable.
        Degraded = "degraded",
        /// Takes no new calls; its open ones finish.
        Draining = "draining",
    }
}

map_type! {
    /// One thing an agent can do.
    Capability {
        /// Name, as the agent wrote it: see [`crate::names::CapabilityName::fold`].
        name: &'a str = "name";
        /// Semantic version.
        version: Option<&'a str> = "version", 1..=WORD_BYTES_MAX;
        /// For people.
        description: Option<&'a str> = "description", 0..=TEXT_BYTES_MAX;
        /// JSON Schema of the body of a call.
        input_schema: Option<Raw<'a>> = "input_schema", 0..=SCHEMA_BYTES_MAX;
        /// JSON Schema of the body of a result.
        output_schema: Option<Raw<'a>> = "output_schema", 0..=SCHEMA_BYTES_MAX;
        /// Processing time of calls that name none, in milliseconds; with 20 % grace the most any call gets.
        timeout_ms: Option<u64> = "timeout_ms";
        /// Most calls a second.
        qps_limit: Option<f64> = "qps_limit";
        /// Whether running one intent twice is harmless.
        idempotent: bool = "idempotent";
        /// Labels of this capability.
        labels: Labels<'a> = "labels";
        /// Further names it answers to.
        aliases: Vec<&'a str> = "aliases", 0..=ALIASES_MAX;
    }
}

map_type! {
    /// What an agent reports of its load. It weighs in routing; the hub's own count decides.
    Load {
        /// Calls that run now.
        in_flight: Option<u64> = "in_flight";
        /// Calls that wait in the agent.
        queued: Option<u64> = "queued";
        /// Share of the processor, 0 to 1.
        cpu: Option<f64> = "cpu";
        /// Share of the memory, 0 to 1.
        memory: Option<f64> = "memory";
        /// 0 to 100; below 60 the agent is out of routing.
        health: Option<u64> = "health";
        /// Fill of single capabilities, 0 to 1.
        levels: Levels<'a> = "levels";
    } check check_load
}

/// The ranges that say what a load is: outside of them a number has another unit, and must not weigh.
fn check_load(load: &Load<'_>) -> Result<(), FieldError> {
    for (key, share) in [("cpu", load.cpu), ("memory", load.memory)] {
        if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(FieldError::new(key, "must be between 0 and 1"));
        }
    }
    if load.health.is_some_and(|health| health > 100) {
        return Err(FieldError::new("health", "must be between 0 and 100"));
    }
    Ok(())
}

map_type! {
    /// HELLO: the first envelope of a connection; registers the agent.
    Hello {
        /// Protocol version.
        v: u64 = "v";
        /// The agent's logical identity.
        agent_id: &'a str = "agent_id", 1..=ID_BYTES_MAX;
        /// Random id of this life of the process.
        instance: &'a str = "instance", 1..=ID_BYTES_MAX;
        /// Name of the service, for people.
        service: Option<&'a str> = "service", 0..=WORD_BYTES_MAX;
        /// Version of the service, for people.
        version: Option<&'a str> = "version", 0..=WORD_BYTES_MAX;
        /// Name and version of the SDK, for people.
        sdk: Option<&'a str> = "sdk", 0..=WORD_BYTES_MAX;
        /// Extensions of version 1 that the agent knows.
        features: Vec<&'a str> = "features" always, 0..=LIST_MAX, each 1..=WORD_BYTES_MAX;
        /// What it can do.
        capabilities: Vec<Capability<'a>> = "capabilities" always, 0..=CAPABILITIES_MAX;
        /// Labels of the agent.
        labels: Labels<'a> = "labels";
        /// Slots; default [`crate::limits::MAX_CONCURRENCY_DEFAULT`].
        max_concurrency: Option<u64> = "max_concurrency";
        /// Patterns of what it means to call; absent: all that policy grants.
        calls: Option<Vec<&'a str>> = "calls", 0..=LIST_MAX;
        /// Readiness; absent: ready.
        status: Option<AgentStatus> = "status";
        /// First load report.
        load: Option<Load<'a>> = "load";
    }
}

map_type! {
    /// What policy and declaration leave to an agent, as patterns.
    Granted {
        /// May offer.
        provide: Vec<&'a str> = "provide" always;
        /// May call.
        call: Vec<&'a str> = "call" always;
    }
}

map_type! {
    /// WELCOME: the session is open.
    Welcome {
        /// Id of the session, for logs.
        session: &'a str = "session";
        /// Name and version of the hub.
        hub: &'a str = "hub";
        /// Extensions of version 1 that the hub knows.
        features: Vec<&'a str> = "features" always, 0..=LIST_MAX, each 1..=WORD_BYTES_MAX;
        /// Longest silence an agent allows itself, in milliseconds.
        keepalive_ms: u64 = "keepalive_ms";
        /// Silence after which the hub routes nothing new to the agent, in milliseconds.
        suspect_ms: u64 = "suspect_ms";
        /// Silence after which the agent is removed, in milliseconds.
        gone_ms: u64 = "gone_ms";
        /// Largest WebSocket message, in bytes.
        max_message: u64 = "max_message";
        /// Most open calls of this connection.
        max_in_flight: u64 = "max_in_flight";
        /// What the agent may offer and call.
        granted: Granted<'a> = "granted";
        /// What was changed or left out of HELLO.
        warnings: Vec<&'a str> = "warnings" always;
        /// Whether an older connection of the same agent was replaced.
        replaced: bool = "replaced";
    }
}

map_type! {
    /// UPDATE: heartbeat with load; changes status or capabilities.
    Update {
        /// New readiness.
        status: Option<AgentStatus> = "status";
        /// Load now.
        load: Option<Load<'a>> = "load";
        /// Capabilities to add or replace.
        add: Vec<Capability<'a>> = "add", 0..=CAPABILITIES_MAX;
        /// Capabilities to withdraw, by name.
        remove: Vec<&'a str> = "remove", 0..=CAPABILITIES_MAX;
    }
}

map_type! {
    /// GOODBYE: an orderly end.
    Goodbye {
        /// One of [`crate::GoodbyeCode`]; kept as a word, since a later peer may know more.
        code: &'a str = "code", 1..=WORD_BYTES_MAX;
        /// For people.
        reason: Option<&'a str> = "reason", 0..=TEXT_BYTES_MAX;
        /// The window over which to spread the return, in milliseconds.
        reconnect_after_ms: Option<u64> = "reconnect_after_ms";
    }
}

map_type! {
    /// ERROR: an envelope could not be used; the connection stays.
    ErrorReply {
        /// Kind of the envelope.
        ref_kind: u64 = "ref_kind";
        /// Its id, if it had a usable one.
        id: Option<u64> = "id";
        /// One of [`crate::ErrorCode`].
        code: &'a str = "code", 1..=WORD_BYTES_MAX;
        /// For people.
        message: &'a str = "message", 0..=TEXT_BYTES_MAX;
        /// For programs: `{field}`.
        details: Option<Raw<'a>> = "details", 0..=SCHEMA_BYTES_MAX;
    }
}
