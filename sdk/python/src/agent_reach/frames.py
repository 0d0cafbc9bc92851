"""Headers: which keys each has, of which type and length, and how they are read.

A header is a plain ``dict`` whose keys are in the order of the tables in ``docs/protocol.md``; what is absent says its
default. ``read`` makes such a dict of what came over the wire, or says which key is wrong.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, NamedTuple

from . import limits
from .codes import Kind
from .msgpack import Pairs, encoded_length, is_text, plain

Header = dict[str, Any]


class FieldError(ValueError):
    """One key of a header is wrong. ``field`` is its path, with dots between levels."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class Field(NamedTuple):
    """How the value of one key is read."""

    read: Callable[[Any], Any]
    #: It has to be there.
    required: bool = False
    #: What an absent one reads as, and what is written where there is nothing to say; ``None``: nothing is.
    always: Any = None
    #: A value that says the same as none: not kept.
    empty: Any = None


class Spec(NamedTuple):
    """All keys of one header."""

    fields: dict[str, Field]
    required: tuple[str, ...]
    always: tuple[tuple[str, Any], ...]
    #: Keys that begin with ``x-`` are kept.
    private: bool = False


def _wrong(what: str) -> FieldError:
    return FieldError("", f"must be {what}")


def _uint(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    raise _wrong("an unsigned integer")


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _wrong("a boolean")


def _number(value: Any) -> float:
    if type(value) is float and isfinite(value):
        return value
    if type(value) is int and 0 <= value < 1 << 32:
        return float(value)
    raise _wrong("a finite number")


def _share(value: Any) -> float:
    number = _number(value)
    if 0.0 <= number <= 1.0:
        return number
    raise _wrong("between 0 and 1")


def _health(value: Any) -> int:
    if _uint(value) <= 100:
        return int(value)
    raise _wrong("between 0 and 100")


def _text(least: int = 0, most: int | None = None) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if type(value) is not str:
            raise _wrong("a string")
        if most is not None:
            length = len(value) if value.isascii() else len(value.encode())
            if not least <= length <= most:
                raise FieldError("", f"has length {length}; {least} to {most} are allowed")
        return value

    return read


def _word(*words: str) -> Callable[[Any], str]:
    known = frozenset(words)

    def read(value: Any) -> str:
        if type(value) is str and value in known:
            return value
        raise _wrong("one of " + ", ".join(words))

    return read


def _select(value: Any) -> str | int:
    if value in ("one", "all") and type(value) is str:
        return value
    if type(value) is int and value >= 1:
        return value
    raise _wrong('"one", "all" or an integer from 1')


def _any(value: Any) -> Any:
    if not is_text(value):
        raise FieldError("", "holds a string that is not UTF-8")
    value = plain(value)
    if encoded_length(value) > limits.SCHEMA_BYTES_MAX:
        raise FieldError("", f"has more than {limits.SCHEMA_BYTES_MAX} bytes")
    return value


def _list(item: Callable[[Any], Any], most: int = limits.LIST_MAX, least: int = 0) -> Callable[[Any], list[Any]]:
    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _wrong("an array")
        if not least <= len(value) <= most:
            raise FieldError("", f"has {len(value)} items; {least} to {most} are allowed")
        return [item(own) for own in value]

    return read


def _labels(value: Any) -> dict[str, str]:
    if type(value) is not Pairs:
        raise _wrong("a map of strings")
    if len(value) > limits.LABELS_MAX:
        raise FieldError("", f"has more than {limits.LABELS_MAX} labels")
    for key, text in value:
        if type(text) is not str:
            raise FieldError(key, "must be a string")
        if not key or max(len(key.encode()), len(text.encode())) > limits.WORD_BYTES_MAX:
            raise FieldError("", f"has a key or value over {limits.WORD_BYTES_MAX} bytes or empty")
    return dict(value)


def _levels(value: Any) -> dict[str, float]:
    if type(value) is not Pairs:
        raise _wrong("a map of numbers")
    levels = {}
    for key, level in value:
        if len(key.encode()) > limits.ID_BYTES_MAX:
            raise FieldError("", f"has a key over {limits.ID_BYTES_MAX} bytes")
        try:
            levels[key] = _share(level)
        except FieldError as error:
            raise FieldError(key, str(error)) from None
    return levels


def _nested(spec: Spec) -> Callable[[Any], Header]:
    def inner(value: Any) -> Header:
        if type(value) is not Pairs:
            raise _wrong("a map")
        return read(spec, value)

    return inner


def _spec(private: bool = False, **fields: Field) -> Spec:
    required = tuple(key for key, field in fields.items() if field.required)
    always = tuple((key, field.always) for key, field in fields.items() if field.always is not None)
    return Spec(fields, required, always, private)


def read(spec: Spec, pairs: Pairs) -> Header:
    """The header that these entries are. Unknown keys are left out, and what says only its default.

    Raises:
        FieldError: names the first key that is wrong, in the order of the wire; missing ones after all others.
    """
    header: Header = {}
    fields = spec.fields
    private: list[tuple[str, Any]] | None = None
    for key, value in pairs:
        field = fields.get(key)
        if field is None:
            if spec.private and key[:2] == "x-":
                private = private or []
                private.append((key, value))
            continue
        if value is None and not field.required:
            continue
        try:
            said = field.read(value)
        except FieldError as error:
            raise FieldError(f"{key}.{error.field}" if error.field else key, str(error).strip()) from None
        if said != field.empty or field.empty is None:
            header[key] = said
    for key in spec.required:
        if key not in header:
            raise FieldError(key, "is missing")
    for key, default in spec.always:
        if key not in header:
            header[key] = list(default) if type(default) is list else default
    if private is not None:
        _read_private(header, private)
    return header


def _read_private(header: Header, private: list[tuple[str, Any]]) -> None:
    size = 0
    for key, value in private:
        if not is_text(value):
            raise FieldError(key, "holds a string that is not UTF-8")
        header[key] = plain(value)
        size += len(key.encode()) + encoded_length(header[key])
    if len(private) > limits.PRIVATE_KEYS_MAX or size > limits.PRIVATE_BYTES_MAX:
        raise FieldError(
            "x-", f"keys are more than {limits.PRIVATE_KEYS_MAX} or over {limits.PRIVATE_BYTES_MAX} bytes together"
        )


def private_of(header: Header) -> dict[str, Any]:
    """The keys of a header that begin with ``x-``."""
    return {key: value for key, value in header.items() if key[:2] == "x-"}


_ID = _text(1, limits.ID_BYTES_MAX)
_WORD = _text(0, limits.WORD_BYTES_MAX)
_WORD1 = _text(1, limits.WORD_BYTES_MAX)
_TEXT = _text(0, limits.TEXT_BYTES_MAX)
_STR = _text()

_FLAG = Field(_flag, empty=False)
_UINT = Field(_uint)
_NAME = Field(_ID)
_LABELS = Field(_labels, empty={})

CAPABILITY = _spec(
    name=Field(_STR, required=True),
    version=Field(_WORD1),
    description=Field(_TEXT),
    input_schema=Field(_any),
    output_schema=Field(_any),
    timeout_ms=_UINT,
    qps_limit=Field(_number),
    idempotent=_FLAG,
    labels=_LABELS,
    aliases=Field(_list(_STR, limits.ALIASES_MAX), empty=[]),
)

LOAD = _spec(
    in_flight=_UINT,
    queued=_UINT,
    cpu=Field(_share),
    memory=Field(_share),
    health=Field(_health),
    levels=Field(_levels, empty={}),
)

HELLO = _spec(
    v=Field(_uint, required=True),
    agent_id=Field(_ID, required=True),
    instance=Field(_ID, required=True),
    service=Field(_WORD),
    version=Field(_WORD),
    sdk=Field(_WORD),
    features=Field(_list(_WORD1), always=[]),
    capabilities=Field(_list(_nested(CAPABILITY), limits.CAPABILITIES_MAX), always=[]),
    labels=_LABELS,
    max_concurrency=_UINT,
    calls=Field(_list(_STR)),
    status=Field(_word("ready", "degraded", "draining")),
    load=Field(_nested(LOAD)),
)

_GRANTED = _spec(provide=Field(_list(_STR), always=[]), call=Field(_list(_STR), always=[]))

WELCOME = _spec(
    session=Field(_STR, required=True),
    hub=Field(_STR, required=True),
    features=Field(_list(_WORD1), always=[]),
    keepalive_ms=Field(_uint, required=True),
    suspect_ms=Field(_uint, required=True),
    gone_ms=Field(_uint, required=True),
    max_message=Field(_uint, required=True),
    max_in_flight=Field(_uint, required=True),
    granted=Field(_nested(_GRANTED), required=True),
    warnings=Field(_list(_STR), always=[]),
    replaced=_FLAG,
)

UPDATE = _spec(
    status=Field(_word("ready", "degraded", "draining")),
    load=Field(_nested(LOAD)),
    add=Field(_list(_nested(CAPABILITY), limits.CAPABILITIES_MAX), empty=[]),
    remove=Field(_list(_STR, limits.CAPABILITIES_MAX), empty=[]),
)

GOODBYE = _spec(code=Field(_WORD1, required=True), reason=Field(_TEXT), reconnect_after_ms=_UINT)

ERROR = _spec(
    ref_kind=Field(_uint, required=True),
    id=_UINT,
    code=Field(_WORD1, required=True),
    message=Field(_TEXT, required=True),
    details=Field(_any),
)

_MODE = _word("call", "task", "notify")
_PRIORITY = _word("low", "normal", "high")

#: CALL, caller to hub.
CALL = _spec(
    True,
    id=Field(_uint, required=True),
    request_id=_NAME,
    keep_ms=_UINT,
    capability=Field(_ID, required=True),
    version=Field(_WORD1),
    agents=Field(_list(_ID, limits.LIST_MAX, 1)),
    select=Field(_select),
    policy=Field(_word("least_loaded", "round_robin", "random")),
    labels=_LABELS,
    require=_LABELS,
    mode=Field(_MODE),
    stream=_FLAG,
    credit=_UINT,
    accept_timeout_ms=_UINT,
    timeout_ms=_UINT,
    budget_ms=_UINT,
    preferred_timeout_ms=_UINT,
    priority=Field(_PRIORITY),
    retries=_UINT,
    allow_fallback=_FLAG,
    allow_cached_ms=_UINT,
    queue=Field(_flag),
    wait_ms=_UINT,
    affinity_key=_NAME,
    expected_output=Field(_any),
    traceparent=Field(_TEXT),
    tracestate=Field(_TEXT),
    callback_url=Field(_TEXT),
    reply_to=Field(_TEXT),
    content_type=Field(_WORD),
)

#: CALL, hub to provider.
DISPATCH = _spec(
    True,
    id=Field(_uint, required=True),
    request_id=Field(_ID, required=True),
    call_id=Field(_ID, required=True),
    capability=Field(_ID, required=True),
    caller=Field(_ID, required=True),
    attempt=Field(_uint, required=True),
    deadline_ms=Field(_uint, required=True),
    preferred_timeout_ms=_UINT,
    stream=Field(_flag, always=False),
    credit=_UINT,
    mode=Field(_MODE, required=True),
    priority=Field(_PRIORITY, required=True),
    labels=_LABELS,
    traceparent=Field(_TEXT),
    tracestate=Field(_TEXT),
    content_type=Field(_WORD),
    task_id=_NAME,
)

ACCEPT = _spec(
    True,
    id=Field(_uint, required=True),
    queue_depth=_UINT,
    would_timeout=_FLAG,
    wait_ms=_UINT,
    request_id=_NAME,
    call_id=_NAME,
    target=_NAME,
    attempt=_UINT,
    task_id=_NAME,
)

CHUNK = _spec(
    True,
    id=Field(_uint, required=True),
    seq=Field(_uint, required=True),
    target=_NAME,
    content_type=Field(_WORD),
)

CREDIT = _spec(id=Field(_uint, required=True), n=Field(_uint, required=True), target=_NAME)

_ATTEMPT = _spec(
    target=Field(_ID, required=True),
    outcome=Field(_WORD1, required=True),
    ms=Field(_uint, required=True),
    reason=Field(_TEXT, required=True),
)

_FAILURE = _spec(
    code=Field(_WORD, required=True),
    message=Field(_TEXT, required=True),
    retryable=Field(_flag, always=False),
    details=Field(_any),
)

_SUMMARY = _spec(targets=Field(_uint, always=0), completed=Field(_uint, always=0), failed=Field(_uint, always=0))

RESULT = _spec(
    True,
    id=_UINT,
    status=Field(_word("completed", "failed", "no_instance"), required=True),
    request_id=_NAME,
    call_id=_NAME,
    target=_NAME,
    task_id=_NAME,
    execution_ms=_UINT,
    attempts=Field(_list(_nested(_ATTEMPT)), empty=[]),
    route=Field(_TEXT),
    cached=_FLAG,
    duplicate=_FLAG,
    error=Field(_nested(_FAILURE)),
    more=_FLAG,
    summary=Field(_nested(_SUMMARY)),
    content_type=Field(_WORD),
)

CANCEL = _spec(id=Field(_uint, required=True), reason=Field(_TEXT), wait=_FLAG)

RECEIPT = _spec(task_id=Field(_ID, required=True))

#: What an agent sends.
TO_HUB: dict[int, Spec] = {
    Kind.HELLO: HELLO,
    Kind.UPDATE: UPDATE,
    Kind.GOODBYE: GOODBYE,
    Kind.CALL: CALL,
    Kind.ACCEPT: ACCEPT,
    Kind.CHUNK: CHUNK,
    Kind.CREDIT: CREDIT,
    Kind.RESULT: RESULT,
    Kind.CANCEL: CANCEL,
    Kind.RECEIPT: RECEIPT,
}

#: What a hub sends.
TO_AGENT: dict[int, Spec] = {
    Kind.WELCOME: WELCOME,
    Kind.GOODBYE: GOODBYE,
    Kind.ERROR: ERROR,
    Kind.CALL: DISPATCH,
    Kind.ACCEPT: ACCEPT,
    Kind.CHUNK: CHUNK,
    Kind.CREDIT: CREDIT,
    Kind.RESULT: RESULT,
    Kind.CANCEL: CANCEL,
}
