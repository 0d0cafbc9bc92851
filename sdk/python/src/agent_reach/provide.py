"""The provider's side: what is offered, and how a function becomes a handler."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args, get_origin

from . import frames, limits, names
from .context import Context, SyncContext
from .errors import ConnectError, HandlerError
from .frames import Header
from .msgpack import Pairs
from .payload import EncodeError, Payload, decode_body, encode_body
from .schema import Mismatch, Schema, convert, hints_of, schema_of
from .session.types import Failure, Offer, Outcome

_CONTEXT_NAMES = ("ctx", "context")


class Handler:
    """A function as a handler: which parameters it takes, and what it gives.

    A parameter that is annotated with `Context` or `SyncContext`, or named ``ctx`` or ``context``, gets the context. If
    one other is left it gets the whole body; if several are left, or with ``by_name``, the body is an object with their
    names.

    Raises:
        ConnectError: the function takes parameters that no body can fill.
    """

    __slots__ = (
        "_context",
        "_names",
        "_positional",
        "_required",
        "_whole",
        "function",
        "input_schema",
        "is_async",
        "output_schema",
    )

    def __init__(self, function: Callable[..., Any], by_name: bool = False) -> None:
        self.function = function
        #: It runs in an event loop; else in a thread.
        self.is_async = _is_async(function)
        hints = hints_of(function if inspect.isroutine(function) else type(function).__call__)
        self._context: str | None = None
        taken: dict[str, Any] = {}
        self._required: set[str] = set()
        self._positional = 0
        try:
            parameters = inspect.signature(function).parameters
        except ValueError as error:
            raise ConnectError("config", f"{function!r} does not say what it takes: {error}") from error
        for name, parameter in parameters.items():
            kind = hints.get(name, Any)
            if kind in (Context, SyncContext) or (name in _CONTEXT_NAMES and kind is Any):
                self._context = name
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue  # Nothing is ever passed for these.
            else:
                self._positional += parameter.kind is parameter.POSITIONAL_ONLY
                taken[name] = kind
                if parameter.default is parameter.empty:
                    self._required.add(name)
        if self._positional > 1:
            raise ConnectError("config", f"{function!r} has several parameters without a name: no body can fill them")
        self._names = taken
        self._whole = next(iter(taken)) if len(taken) == 1 and not by_name else None
        self.input_schema: Schema | None = self._input_schema()
        self.output_schema: Schema | None = schema_of(_result_kind(hints.get("return", Any))) or None

    def _input_schema(self) -> Schema | None:
        if self._whole is not None:
            return schema_of(self._names[self._whole]) or None
        if not self._names:
            return None
        properties = {own: schema_of(kind) for own, kind in self._names.items()}
        definitions = {name: own for inner in properties.values() for name, own in inner.pop("$defs", {}).items()}
        schema: Schema = {"type": "object", "properties": properties}
        if definitions:
            schema["$defs"] = definitions
        if self._required:
            schema["required"] = sorted(self._required)
        return schema

    def start(self, context: Context | SyncContext, payload: Payload) -> Any:
        """Calls the function with what the body says: a result, a coroutine or a generator.

        Raises:
            HandlerError: the body is not what it takes.
        """
        arguments: dict[str, Any] = {} if self._context is None else {self._context: context}
        if self._names:
            try:
                self._fill(arguments, payload)
            except ValueError as error:
                raise HandlerError("invalid_request", f"the body is not what this takes: {error}") from error
        if self._positional:
            first = next(iter(self._names))
            return self.function(arguments.pop(first), **arguments)
        return self.function(**arguments)

    def _fill(self, arguments: dict[str, Any], payload: Payload) -> None:
        if self._whole is not None:
            kind = self._names[self._whole]
            arguments[self._whole] = payload if kind is Payload else convert(kind, decode_body(payload))
            return
        body = decode_body(payload)
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise Mismatch("", f"must be an object, not {type(body).__name__}")
        missing = sorted(self._required - body.keys())
        if missing:
            raise Mismatch(f"/{missing[0]}", "is missing")
        for name, kind in self._names.items():
            if name in body:
                arguments[name] = convert(kind, body[name], f"/{name}")


def _is_async(function: Any) -> bool:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    if not inspect.isroutine(function):
        function = getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _result_kind(kind: Any) -> Any:
    """What comes at the end, of a function annotated so: of a generator what it returns."""
    name = getattr(get_origin(kind), "__name__", "")
    args = get_args(kind)
    if name == "Generator" and len(args) == 3:
        return args[2]
    if name in ("Iterator", "Iterable", "AsyncIterator", "AsyncIterable", "AsyncGenerator", "Generator"):
        return Any
    return kind


def offer_of(
    name: str,
    handler: Handler | None = None,
    *,
    version: str | None = None,
    description: str | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    qps_limit: float | None = None,
    idempotent: bool = False,
    labels: Mapping[str, str] | None = None,
    aliases: Sequence[str] = (),
    max_concurrency: int | None = None,
) -> Offer:
    """A capability as it is registered; what is not given is taken from the handler.

    Raises:
        ConnectError: a name or another value is outside the protocol's bounds.
    """
    folded = [names.fold(own) for own in (name, *aliases)]
    for own in folded:
        problem = names.problem_of(own)
        if problem is not None:
            raise ConnectError("config", f"capability name {own!r} {problem}")
    if handler is not None:
        if description is None:
            said = inspect.getdoc(handler.function) if inspect.isroutine(handler.function) else None
            # Somebody else's function may say more than the protocol takes.
            description = said and said.encode()[: limits.TEXT_BYTES_MAX].decode(errors="ignore")
        input_schema = handler.input_schema if input_schema is None else input_schema
        output_schema = handler.output_schema if output_schema is None else output_schema
    values: dict[str, Any] = {
        "name": folded[0],
        "version": version,
        "description": description,
        "input_schema": input_schema,
        "output_schema": output_schema,
        "timeout_ms": None if timeout is None else int(timeout * 1000),
        "qps_limit": None if qps_limit is None else float(qps_limit),
        "idempotent": idempotent,
        "labels": Pairs((labels or {}).items()),
        "aliases": folded[1:],
    }
    try:
        # A HELLO that the hub cannot use would end the agent: better to say here what is wrong.
        header: Header = frames.read(frames.CAPABILITY, Pairs(values.items()))
    except (ValueError, TypeError, OverflowError) as error:
        raise ConnectError("config", f"capability {name!r}: {error}") from error
    return Offer(header, None if max_concurrency is None else max(max_concurrency, 1))


def completed(value: Any) -> Outcome:
    """How a handler ended that gave this."""
    try:
        return encode_body(value)
    except EncodeError as error:
        return failed(HandlerError("encode", f"the result cannot be sent: {error}"))


def failed(error: BaseException) -> Failure:
    """How a handler ended that raised this."""
    from .codes import FROM_PROVIDER

    if not isinstance(error, HandlerError):
        error = HandlerError("error", f"{type(error).__name__}: {error}")
    wire = error.code if error.code in FROM_PROVIDER else "handler_error"
    details = error.details
    if details is None and wire == "handler_error":
        details = {"code": error.code, "message": error.message}
    try:
        return Failure(wire, error.message, error.retryable, decode_body(encode_body(details)))
    except ValueError:
        return Failure(wire, error.message, error.retryable)
