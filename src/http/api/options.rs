//! What a call may say beside its body: parameters of the address that become keys of CALL.

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Takes {
    Text,
    /// A number from 0.
    Count,
    /// `true` or `false`.
    Flag,
    /// A number, or a word.
    CountOrText,
    /// JSON.
    Json,
    /// Text, once or more often.
    Texts,
    /// `key=value`, once or more often.
    Labels,
}

/// Each parameter, the key of CALL that it is, what it takes, and what it is for.
pub(in crate::http) const OPTIONS: &[(&str, &str, Takes, &str)] = &[
    ("agent", "agents", Takes::Texts, "Exactly these agents, by agent_id"),
    (
        "select",
        "select",
        Takes::CountOrText,
        "How many of the matching agents: one (default), all, or a number",
    ),
    (
        "policy",
        "policy",
        Takes::Text,
        "The choice among candidates: least_loaded (default), round_robin, random",
    ),
    ("label", "labels", Takes::Labels, "A label of preferred agents, as key=value"),
    ("require", "require", Takes::Labels, "A label that an agent must have, as key=value"),
    ("version", "version", Takes::Text, "A semver requirement on the capability"),
    (
        "mode",
        "mode",
        Takes::Text,
        "call (default), notify, or task, which is what Prefer: respond-async says",
    ),
    ("credit", "credit", Takes::Count, "Of a stream: how many chunks the provider may be ahead"),
    ("priority", "priority", Takes::Text, "low, normal (default) or high"),
    ("accept_timeout_ms", "accept_timeout_ms", Takes::Count, "Time for an agent to accept"),
    ("timeout_ms", "timeout_ms", Takes::Count, "Time for the work, which Request-Timeout says in seconds"),
    ("budget_ms", "budget_ms", Takes::Count, "Time for everything"),
    ("preferred_timeout_ms", "preferred_timeout_ms", Takes::Count, "Time that the caller would like"),
    ("retries", "retries", Takes::Count, "Further tries on the same agent"),
    ("allow_fallback", "allow_fallback", Takes::Flag, "Whether another agent may be tried then"),
    ("allow_cached_ms", "allow_cached_ms", Takes::Count, "How old a cached result may be"),
    ("queue", "queue", Takes::Flag, "Whether to wait in the hub while all are busy (default true)"),
    ("wait_ms", "wait_ms", Takes::Count, "How long to wait for an agent to come"),
    ("keep_ms", "keep_ms", Takes::Count, "How long the outcome of the Idempotency-Key is remembered"),
    ("affinity_key", "affinity_key", Takes::Text, "Calls with one key go to one agent while it has room"),
    (
        "expected_output",
        "expected_output",
        Takes::Json,
        "A JSON Schema that the agent's output has to satisfy",
    ),
    ("callback_url", "callback_url", Takes::Text, "Of a task: where its result is also delivered to"),
    ("reply_to", "reply_to", Takes::Text, "Of a task: whose inbox its result also goes to"),
];
