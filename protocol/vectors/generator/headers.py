"""The headers of version 1: each key in the order of the canonical form, whether it must be there, its type and a
sample. From this table come the vectors of single keys: present, missing, of a wrong type, at and over its bound.
"""

from dataclasses import dataclass, field
from typing import Any

from msgpack import Long, Many

MISSING = object()
ID, WORD, TEXT, SCHEMA, LIST = 128, 256, 4096, 65536, 1024


@dataclass
class Key:
    """One key of a header."""

    name: str
    sample: Any
    required: bool = False
    wrong: dict[str, Any] = field(default_factory=dict)
    """Values that are refused, by what is wrong with them."""
    most: Any = None
    """A value exactly at the bound."""
    least: Any = None
    """Likewise at the lower bound, where there is one."""
    inside: "list[Key] | None" = None
    """The keys of a map, or of the maps of a list."""
    default: Any = MISSING
    """Of a key that may be absent and is written even so: the value that absence means."""


def uint(name: str, sample: int = 5, required: bool = False) -> Key:
    wrong = {"float": float(sample), "string": str(sample), "negative": -1}
    return Key(name, sample, required, wrong, most=2**64 - 1, least=0)


def text(name: str, sample: str, least: int = 0, most: int | None = None, required: bool = False) -> Key:
    key = Key(name, sample, required, {"integer": 5, "bytes": b"text"})
    if most:
        key.most = Long(most)
        key.wrong["too-long"] = Long(most + 1)
        key.least = "a" * least
    if least:
        key.wrong["empty"] = ""
    return key


def flag(name: str) -> Key:
    return Key(name, True, False, {"integer": 1, "string": "true"})


def always(key: Key, default: Any) -> Key:
    """The canonical form has this key even where it says only its default."""
    key.default = default
    return key


def share(name: str) -> Key:
    wrong = {"string": "0.5", "over": 1.5, "negative": -0.5, "nan": float("nan"), "infinite": float("inf")}
    return Key(name, 0.5, False, wrong, most=1.0, least=0.0)


def word(name: str, words: list[str], required: bool = False) -> Key:
    return Key(name, words[-1], required, {"unknown": "sideways", "integer": 1, "upper-case": words[-1].upper()})


def labels(name: str) -> Key:
    return Key(name, {"region": "eu", "tier": "gold"}, False, {"array": ["eu"], "string": "eu"})


def raw(name: str) -> Key:
    # Three bytes of head make the whole exactly as long as the bound.
    sample = {"type": "object", "required": ["a"]}
    over = {"too-large": Long(SCHEMA - 2, binary=True)}
    return Key(name, sample, False, over, most=Long(SCHEMA - 3, binary=True))


def texts(name: str, sample: list[str], most: int = LIST, least: int = 0, item: int | None = None, required=False) -> Key:
    wrong = {"map": {"a": "b"}, "string": "a", "item-integer": [1], "too-many": Many("a", most + 1)}
    if least:
        wrong["none"] = []
    if item:
        wrong |= {"item-too-long": [Long(item + 1)], "item-empty": ["a", ""]}
    return Key(name, sample, required, wrong, most=Many("a", most))


def maps(name: str, inside: list[Key], most: int = LIST) -> Key:
    least = {key.name: "a" if isinstance(key.sample, str) else key.sample for key in inside if key.required}
    wrong = {"map": least, "item-string": ["a"], "too-many": Many(least, most + 1)}
    return Key(name, [sample(inside)], False, wrong, most=Many(least, most), inside=inside)


def one_map(name: str, inside: list[Key], required: bool = False) -> Key:
    return Key(name, sample(inside), required, {"array": [], "string": "a"}, inside=inside)


def sample(keys: list[Key]) -> dict[str, Any]:
    return {key.name: key.sample for key in keys}


def least(keys: list[Key]) -> dict[str, Any]:
    """The shortest canonical form: the keys that must be there, and those that are always written."""
    values = {key.name: key.sample if key.required else key.default for key in keys}
    return {name: value for name, value in values.items() if value is not MISSING}


CAPABILITY = [
    text("name", "text-analysis.sentiment", required=True),
    text("version", "1.4.0", 1, WORD),
    text("description", "Says how a text feels.", 0, TEXT),
    raw("input_schema"),
    raw("output_schema"),
    uint("timeout_ms", 20000),
    Key("qps_limit", 2.5, False, {"string": "2.5", "nan": float("nan"), "negative-integer": -1}),
    flag("idempotent"),
    labels("labels"),
    texts("aliases", ["sentiment"], most=16),
]
STATUS = ["ready", "degraded", "draining"]
LOAD = [
    uint("in_flight"),
    uint("queued"),
    share("cpu"),
    share("memory"),
    Key("health", 90, False, {"over": 101, "negative": -1, "float": 90.0}, most=100, least=0),
    Key("levels", {"text-analysis": 0.25}, False, {"array": [0.5], "string": "a"}),
]
HELLO = [
    uint("v", 1, True),
    text("agent_id", "writer", 1, ID, True),
    text("instance", "01JZ7Q4T5N", 1, ID, True),
    text("service", "writer-service", 0, WORD),
    text("version", "2.0.1", 0, WORD),
    text("sdk", "agent-reach-python/0.1", 0, WORD),
    always(texts("features", ["f1"], item=WORD), []),
    always(maps("capabilities", CAPABILITY), []),
    labels("labels"),
    uint("max_concurrency", 8),
    texts("calls", ["text-analysis.*"]),
    word("status", STATUS),
    one_map("load", LOAD),
]
GRANTED = [always(texts("provide", ["text.*"]), []), always(texts("call", ["*"]), [])]
WELCOME = [
    text("session", "s-1", required=True),
    text("hub", "agent-reach/0.1.0", required=True),
    always(texts("features", ["f1"], item=WORD), []),
    uint("keepalive_ms", 5000, True),
    uint("suspect_ms", 15000, True),
    uint("gone_ms", 30000, True),
    uint("max_message", 1048576, True),
    uint("max_in_flight", 1024, True),
    one_map("granted", GRANTED, True),
    always(texts("warnings", ["Bad_Name was folded to bad-name"]), []),
    flag("replaced"),
]
UPDATE = [
    word("status", STATUS),
    one_map("load", LOAD),
    maps("add", CAPABILITY),
    texts("remove", ["text-analysis.sentiment"]),
]
GOODBYE = [text("code", "normal", 1, WORD, True), text("reason", "done", 0, TEXT), uint("reconnect_after_ms", 30000)]
ERROR = [
    uint("ref_kind", 10, True),
    uint("id", 7),
    text("code", "invalid_request", 1, WORD, True),
    text("message", "timeout_ms must be an unsigned integer", 0, TEXT, True),
    raw("details"),
]
CALL = [
    uint("id", 7, True),
    text("request_id", "order-17", 1, ID),
    uint("keep_ms", 600000),
    text("capability", "order.create", 1, ID, True),
    text("version", ">=1.2", 1, WORD),
    texts("agents", ["writer", "reader"], least=1, item=ID),
    Key("select", "all", False, {"zero": 0, "unknown": "some", "float": 2.0, "negative": -1}, most=2**64 - 1, least=1),
    word("policy", ["least_loaded", "round_robin", "random"]),
    labels("labels"),
    labels("require"),
    word("mode", ["call", "task", "notify"]),
    flag("stream"),
    uint("credit", 32),
    uint("accept_timeout_ms", 3000),
    uint("timeout_ms", 30000),
    uint("budget_ms", 60000),
    uint("preferred_timeout_ms", 5000),
    word("priority", ["low", "normal", "high"]),
    uint("retries", 2),
    flag("allow_fallback"),
    uint("allow_cached_ms", 60000),
    Key("queue", False, False, {"integer": 0}),
    uint("wait_ms", 1000),
    text("affinity_key", "customer-4", 1, ID),
    raw("expected_output"),
    text("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 0, TEXT),
    text("tracestate", "vendor=1", 0, TEXT),
    text("callback_url", "https://example.com/hook", 0, TEXT),
    text("reply_to", "agent:writer", 0, TEXT),
    text("content_type", "application/msgpack", 0, WORD),
]
DISPATCH = [
    uint("id", 41, True),
    text("request_id", "order-17", 1, ID, True),
    text("call_id", "c-9", 1, ID, True),
    text("capability", "order.create", 1, ID, True),
    text("caller", "shop", 1, ID, True),
    uint("attempt", 1, True),
    uint("deadline_ms", 30000, True),
    uint("preferred_timeout_ms", 5000),
    always(flag("stream"), False),
    uint("credit", 16),
    word("mode", ["call", "task", "notify"], True),
    word("priority", ["low", "normal", "high"], True),
    labels("labels"),
    text("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", 0, TEXT),
    text("tracestate", "vendor=1", 0, TEXT),
    text("content_type", "application/msgpack", 0, WORD),
    text("task_id", "t-3", 1, ID),
]
ACCEPT = [
    uint("id", 7, True),
    uint("queue_depth", 3),
    flag("would_timeout"),
    uint("wait_ms", 9000),
    text("request_id", "order-17", 1, ID),
    text("call_id", "c-9", 1, ID),
    text("target", "writer", 1, ID),
    uint("attempt", 1),
    text("task_id", "t-3", 1, ID),
]
CHUNK = [
    uint("id", 7, True),
    uint("seq", 0, True),
    text("target", "writer", 1, ID),
    text("content_type", "application/msgpack", 0, WORD),
]
CREDIT = [uint("id", 7, True), uint("n", 8, True), text("target", "writer", 1, ID)]
ATTEMPT = [
    text("target", "writer", 1, ID, True),
    text("outcome", "completed", 1, WORD, True),
    uint("ms", 12, True),
    text("reason", "least loaded of 3", 0, TEXT, True),
]
CALL_ERROR = [
    text("code", "handler_error", 0, WORD, True),
    text("message", "no such order", 0, TEXT, True),
    always(flag("retryable"), False),
    raw("details"),
]
SUMMARY = [always(uint("targets", 3), 0), always(uint("completed", 2), 0), always(uint("failed", 1), 0)]
RESULT = [
    uint("id", 7),
    word("status", ["completed", "no_instance", "failed"], True),
    text("request_id", "order-17", 1, ID),
    text("call_id", "c-9", 1, ID),
    text("target", "writer", 1, ID),
    text("task_id", "t-3", 1, ID),
    uint("execution_ms", 12),
    maps("attempts", ATTEMPT),
    text("route", "least loaded of 3", 0, TEXT),
    flag("cached"),
    flag("duplicate"),
    one_map("error", CALL_ERROR),
    flag("more"),
    one_map("summary", SUMMARY),
    text("content_type", "application/msgpack", 0, WORD),
]
CANCEL = [uint("id", 7, True), text("reason", "changed my mind", 0, TEXT), flag("wait")]
RECEIPT = [text("task_id", "t-3", 1, ID, True)]

BOTH = ("to_hub", "to_agent")
HEADERS = {
    "hello": (1, ("to_hub",), HELLO),
    "welcome": (2, ("to_agent",), WELCOME),
    "update": (3, ("to_hub",), UPDATE),
    "goodbye": (4, BOTH, GOODBYE),
    "error": (5, ("to_agent",), ERROR),
    "call": (10, ("to_hub",), CALL),
    "dispatch": (10, ("to_agent",), DISPATCH),
    "accept": (11, BOTH, ACCEPT),
    "chunk": (12, BOTH, CHUNK),
    "credit": (13, BOTH, CREDIT),
    "result": (14, BOTH, RESULT),
    "cancel": (15, BOTH, CANCEL),
    "receipt": (16, ("to_hub",), RECEIPT),
}
"""Kind number, directions and keys of each header. CALL has two: what a caller sends, and what a provider gets."""

PRIVATE = {"call", "dispatch", "accept", "chunk", "result"}
"""Headers that carry x- keys through."""
