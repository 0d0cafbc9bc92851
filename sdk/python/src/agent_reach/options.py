"""How a call is described."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from . import limits, names
from .codes import Accepted
from .errors import CallError
from .frames import Header
from .msgpack import encoded_length
from .payload import EncodeError, encode_body
from .session.types import CallSpec


class CallOptions(TypedDict, total=False):
    """Options of a call; what is not given has the hub's default. Times are seconds.

    - ``timeout``: processing time, from acceptance; each chunk starts it anew. The capability's own, else 30.
    - ``accept_timeout``: time for phase one. 3.
    - ``budget``: time for everything: waiting for a connection, queueing, every try. 60, for a task 24 h.
    - ``preferred_timeout``: a provider that expects to miss it says so.
    - ``priority``: ``low``, ``normal``, ``high``. Normal.
    - ``retries``: further tries on the same agent for retryable faults. 2.
    - ``allow_fallback``: whether one other agent may be tried after that. No.
    - ``allow_cached``: then the last good result of the same capability and body, if it is not older. None.
    - ``queue``: wait in the hub while all candidates are busy. True.
    - ``wait_for_agent``: how long to wait for an agent with the capability to come. 0.
    - ``labels``, ``require``: agents preferred, agents allowed.
    - ``inherit_labels``: agents with the caller's own labels preferred. No.
    - ``agents``: exactly these.
    - ``policy``: ``least_loaded``, ``round_robin``, ``random``. Least loaded.
    - ``version``: semver requirement on the capability.
    - ``request_id``: the business intent, 1 to 128 bytes: calls with one id are one call. Made by the SDK.
    - ``keep``: how long its outcome is remembered. 24 h, for ids made by the SDK 10 min.
    - ``affinity_key``: calls with one key go to one agent while it has room.
    - ``expected_output``: JSON Schema of what is to be read: agents that do not promise it are passed over.
    - ``traceparent``, ``tracestate``: W3C Trace Context, carried through.
    - ``private``: keys that begin with ``x-``, for the handler.
    """

    timeout: float
    accept_timeout: float
    budget: float
    preferred_timeout: float
    priority: Literal["low", "normal", "high"]
    retries: int
    allow_fallback: bool
    allow_cached: float
    queue: bool
    wait_for_agent: float
    labels: Mapping[str, str]
    require: Mapping[str, str]
    inherit_labels: bool
    agents: Sequence[str]
    policy: Literal["least_loaded", "round_robin", "random"]
    version: str
    request_id: str
    keep: float
    affinity_key: str
    expected_output: Mapping[str, Any]
    traceparent: str
    tracestate: str
    private: Mapping[str, Any]


class TaskOptions(CallOptions, total=False):
    """Options of a task besides those of a call.

    - ``callback_url``: an HTTPS address that its result is posted to as well.
    - ``reply_to``: whose inbox its result goes to as well, as ``agent:AGENT_ID``.
    - ``progress``: whether its handler is asked to say how far it is. True.
    """

    callback_url: str
    reply_to: str
    progress: bool


#: Option -> key of the header, for times.
_TIMES = {
    "timeout": "timeout_ms",
    "accept_timeout": "accept_timeout_ms",
    "preferred_timeout": "preferred_timeout_ms",
    "allow_cached": "allow_cached_ms",
    "wait_for_agent": "wait_ms",
    "keep": "keep_ms",
}
#: Options whose key has their name.
_SAME = frozenset(
    {
        *("priority", "retries", "allow_fallback", "queue", "policy", "version", "affinity_key", "expected_output"),
        *("traceparent", "tracestate", "callback_url", "reply_to"),
    }
)
_MAPS = frozenset({"labels", "require"})


def invalid(message: str) -> CallError:
    """A call that cannot be made as it is described."""
    return CallError.of("invalid_request", message, accepted=Accepted.NO)


def spec_of(
    capability: str,
    body: Any,
    options: Mapping[str, Any],
    *,
    own_labels: Mapping[str, str],
    window: int | None = None,
    **fixed: Any,
) -> CallSpec:
    """The call that these options describe. ``fixed`` are keys of the header that the kind of the call decides.

    Raises:
        CallError: ``invalid_request``, when it cannot be made at all.
        TypeError: there is no such option.
    """
    try:
        payload = encode_body(body)
    except EncodeError as error:
        raise invalid(f"the input cannot be sent: {error}") from error
    header: Header = dict(fixed)
    request_id = budget = None
    if payload.content_type is not None:
        header["content_type"] = payload.content_type
    for name, value in options.items():
        if value is None:
            continue
        key = _TIMES.get(name)
        if key is not None:
            header[key] = max(int(value * 1000), 0)
        elif name in _SAME:
            header[name] = value
        elif name in _MAPS:
            header[name] = {**header.get(name, {}), **value}
        elif name == "request_id":
            request_id = _checked_id(value)
        elif name == "budget":
            budget = max(float(value), 0.0)
        elif name == "agents":
            if isinstance(value, str):
                raise invalid("agents is a list of ids")
            header["agents"] = list(value)
        elif name == "private":
            header.update(_checked_private(value))
        elif name == "inherit_labels":
            if value:
                header["labels"] = {**own_labels, **header.get("labels", {})}
        else:
            raise TypeError(f"there is no option {name!r} of a call")
    if "_" in capability or not capability.islower():
        capability = names.fold(capability)
    return CallSpec(capability, header, payload.body, request_id, budget, window)


def _checked_id(value: Any) -> str:
    if isinstance(value, str) and 1 <= len(value.encode(errors="replace")) <= limits.ID_BYTES_MAX:
        return value
    raise invalid(f"request_id must have 1 to {limits.ID_BYTES_MAX} bytes")


def _checked_private(private: Mapping[str, Any]) -> Header:
    try:
        size = sum(len(key.encode()) + encoded_length(value) for key, value in private.items())
    except (ValueError, TypeError, OverflowError) as error:
        raise invalid(f"a private key cannot be sent: {error}") from error
    named = all(key.startswith("x-") for key in private)
    if not named or len(private) > limits.PRIVATE_KEYS_MAX or size > limits.PRIVATE_BYTES_MAX:
        raise invalid(
            f"private keys begin with x-; at most {limits.PRIVATE_KEYS_MAX} "
            f"and {limits.PRIVATE_BYTES_MAX} bytes together"
        )
    return dict(private)
