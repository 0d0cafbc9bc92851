"""Types as schemas, values as types, functions as handlers."""

import enum
import functools
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict

import pytest
from msgpack import Timestamp, packb
from pydantic import BaseModel

from agent_reach import ConnectError, Context, HandlerError, Payload, SyncContext
from agent_reach.payload import EncodeError, decode_body, encode_body
from agent_reach.provide import Handler, completed, failed, offer_of
from agent_reach.schema import Mismatch, convert, schema_of
from agent_reach.session.types import Failure


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    n: int


class Model(BaseModel):
    inner: Inner
    name: str = "x"


@dataclass
class Tree:
    value: int
    children: "list[Tree]" = field(default_factory=list)
    model: Model | None = None


class Typed(TypedDict, total=False):
    a: int
    b: str


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, INTEGER),
        (float, {"type": "number"}),
        (None, {"type": "null"}),
        (bytes, {}),
        (datetime, {}),
        (Any, {}),
        (list[int], {"type": "array", "items": INTEGER}),
        (Sequence[int], {"type": "array", "items": INTEGER}),
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (Mapping[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [INTEGER, {"type": "string"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Annotated[int, "what"], INTEGER),
        (Colour, {"enum": ["red", "blue"]}),
        (Typed, {"type": "object", "properties": {"a": INTEGER, "b": {"type": "string"}}}),
    ],
)
def test_a_type_says_its_schema(kind: Any, schema: dict[str, Any]) -> None:
    """PROV-2."""
    assert schema_of(kind) == schema


def test_definitions_stand_at_the_root_wherever_they_are_used_and_a_tree_is_open_inside() -> None:
    """PROV-2."""
    schema = schema_of(Tree)
    assert schema["required"] == ["value"]
    assert schema["properties"]["children"] == {"type": "array", "items": {}}
    assert set(schema["$defs"]) == {"Inner"}
    assert schema["properties"]["model"]["anyOf"][0]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert "$defs" not in schema["properties"]["model"]["anyOf"][0]

    def two(first: Tree, second: int) -> None: ...

    assert set((Handler(two).input_schema or {})["$defs"]) == {"Inner"}


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (float, 1, 1.0),
        (int | None, None, None),
        (list[int], (1, 2), [1, 2]),
        (set[int], [1, 1], {1}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[int, float], {1: 2}, {1: 2.0}),
        (Colour, "red", Colour.RED),
        (Literal[1], 1, 1),
        (Typed, {"a": 1}, {"a": 1}),
        (datetime, Timestamp(0, 5000), datetime(1970, 1, 1, microsecond=5, tzinfo=timezone.utc)),
        (Model, {"inner": {"n": 1}}, Model(inner=Inner(n=1))),
        (
            Tree,
            {"value": 1, "children": [{"value": 2}], "model": {"inner": {"n": 3}}, "unknown": 1},
            Tree(1, [Tree(2)], Model(inner=Inner(n=3))),
        ),
        (Any, object, object),
        ("no type", 1, 1),
    ],
)
def test_a_value_is_read_as_its_type(kind: Any, value: Any, read: Any) -> None:
    """PROV-7."""
    got = convert(kind, value)
    assert (got, type(got)) == (read, type(read))


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (int, True, "/"),
        (int, 1.0, "/"),
        (str, b"", "/"),
        (bytes, "", "/"),
        (bool, 1, "/"),
        (float, "1", "/"),
        (list[int], [1, "2"], "/1"),
        (list[int], "12", "/"),
        (tuple[int, str], [1], "/"),
        (dict[str, int], {"a": "b"}, "/a"),
        (Literal[1], True, "/"),
        (Colour, "green", "/"),
        (Tree, {"value": 1, "children": [{}]}, "/children/0/value"),
        (Tree, [], "/"),
        (int | str, [], "/"),
        (Model, {"inner": {}}, "/"),
        (datetime, 1, "/"),
    ],
)
def test_a_value_of_another_type_says_where(kind: Any, value: Any, path: str) -> None:
    """PROV-7."""
    with pytest.raises(Mismatch) as caught:
        convert(kind, value)
    assert (caught.value.path or "/") == path


def test_values_of_the_programs_own_types_are_written() -> None:
    """CODEC-5."""
    value = {"tree": Tree(1, model=Model(inner=Inner(n=2))), "colour": Colour.RED, "set": {1}, "frozen": frozenset()}
    tree = {"value": 1, "children": [], "model": {"inner": {"n": 2}, "name": "x"}}
    assert decode_body(encode_body(value)) == {"tree": tree, "colour": "red", "set": [1], "frozen": []}
    for unsayable in (object(), 2**64, -(2**63) - 1, {"a": 1j}, datetime(2020, 1, 1), "\ud800"):
        with pytest.raises(EncodeError):
            encode_body(unsayable)
    nested: Any = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(EncodeError):
        encode_body(nested)


def test_what_cannot_be_held_is_a_typed_error_and_nothing_reads_as_nil() -> None:
    """CODEC-3, CODEC-4, CODEC-5."""
    assert decode_body(Payload(b"")) is None
    assert decode_body(Payload(b"\x01", "application/json")) == Payload(b"\x01", "application/json")
    assert decode_body(Payload(b"\x01", "application/x-msgpack")) == 1
    for body in (b"\xc1", b"\x91" * 10_000 + b"\xc0", b"\xdd\xff\xff\xff\xff", b"\x81\x91\x01\xc0", b"\x01\x02"):
        with pytest.raises(ValueError):
            decode_body(Payload(body))


def call(function: Any, body: Any, by_name: bool = False) -> Any:
    context: Any = "the context"
    return Handler(function, by_name).start(context, encode_body(body))


class Service:
    def method(self, a: int, b: int = 2) -> int:
        return a + b

    async def __call__(self, a: int) -> int:
        return a


def test_a_body_fills_the_parameters_of_any_function() -> None:
    """PROV-1, PROV-3, PROV-7."""
    assert call(lambda: 7, "ignored") == 7
    assert call(lambda body: body, [1]) == [1]
    assert call(lambda ctx, body: (ctx, body), 1) == ("the context", 1)
    assert call(lambda a, b=2: a + b, {"a": 1}) == 3
    assert call(lambda body: body, {"body": 1}, by_name=True) == 1
    assert call(Service().method, {"a": 1}) == 3
    assert call(functools.partial(Service().method, b=5), {"a": 1}) == 6
    assert call(str.upper, "x") == "X"
    assert call(lambda *args, **kwargs: (args, kwargs), 1) == ((), {})

    def annotated(what: SyncContext, n: float) -> Any:
        return what, n

    assert call(annotated, 1) == ("the context", 1.0)
    assert Handler(Service()).is_async
    for function, body in ((lambda a, b: 1, [1]), (lambda a, b: 1, {"a": 1}), (annotated, "text")):
        with pytest.raises(HandlerError, match="the body is not what this takes") as caught:
            call(function, body)
        assert caught.value.code == "invalid_request"
    with pytest.raises(ConnectError, match="several parameters"):
        Handler(divmod)


def test_what_a_function_returns_is_its_output_schema() -> None:
    """PROV-2."""

    def generator() -> Generator[int, None, str]:
        yield 1
        return ""

    def iterator() -> Iterator[int]:
        yield 1

    async def pieces() -> AsyncIterator[int]:
        yield 1

    async def value(ctx: Context) -> int:
        return 1

    schemas = [Handler(own).output_schema for own in (generator, iterator, pieces, value)]
    assert schemas == [{"type": "string"}, None, None, INTEGER]


def test_a_capability_is_folded_and_checked_where_it_is_given() -> None:
    """PROV-1."""
    assert offer_of("Text_Upper.X").header["name"] == "text-upper.x"
    full = offer_of("a", version="1.0", timeout=1.5, qps_limit=2, labels={"k": "v"}, aliases=["B_C"], max_concurrency=0)
    expected = {"name": "a", "version": "1.0", "timeout_ms": 1500, "qps_limit": 2.0, "labels": {"k": "v"}}
    assert full.header == {**expected, "aliases": ["b-c"]}
    assert full.max_concurrency == 1
    for name in ("", "a..b", ".", "hub", "hub.x", "a b", "é", "x" * 129):
        with pytest.raises(ConnectError, match="capability name"):
            offer_of(name)
    for wrong in ({"version": ""}, {"labels": {"k": "x" * 300}}, {"description": "x" * 5000}, {"aliases": ["x"] * 17}):
        with pytest.raises(ConnectError):
            offer_of("a", **wrong)
    schema = {"enum": ["x" * 70_000]}
    with pytest.raises(ConnectError, match="65536"):
        offer_of("a", input_schema=schema)


def test_the_documentation_of_a_function_is_cut_to_what_the_protocol_takes() -> None:
    def long() -> None: ...

    long.__doc__ = "é" * 5000
    assert offer_of("a", Handler(long)).header["description"] == "é" * 2048


def test_what_a_handler_raises_becomes_what_the_protocol_says() -> None:
    """PROV-6."""
    details = {"code": "error", "message": "ValueError: no"}
    assert failed(ValueError("no")) == Failure("handler_error", "ValueError: no", False, details)
    own = failed(HandlerError("busy", "later", retryable=True))
    assert own == Failure("handler_error", "later", True, {"code": "busy", "message": "later"})
    assert failed(HandlerError("overloaded")) == Failure("overloaded", "", True, None)
    assert failed(HandlerError("cancelled", "m")).code == "cancelled"
    assert failed(HandlerError("timeout", "m")).code == "handler_error"
    assert failed(HandlerError("x", details={"n": 1})).details == {"n": 1}
    assert failed(HandlerError("x", details=object())).details is None
    unsayable = completed(object())
    assert isinstance(unsayable, Failure)
    assert unsayable.details["code"] == "encode"
    assert completed(None) == Payload(packb(None))


class Pair(NamedTuple):
    a: int
    b: int


def test_a_named_tuple_goes_out_as_a_list() -> None:
    assert decode_body(encode_body(Pair(1, 2))) == [1, 2]
