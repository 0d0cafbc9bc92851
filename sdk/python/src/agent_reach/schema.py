"""Python types to JSON Schema, and received values to Python types.

Knows the builtin types, ``Literal``, unions, enums, dataclasses, ``TypedDict`` and Pydantic models. What has no JSON
form (bytes, times) is anything in a schema, and is still checked when it is read.
"""

import enum
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Union, get_args, get_origin

from msgpack import Timestamp

Schema = dict[str, Any]

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    list: {"type": "array"},
    tuple: {"type": "array"},
    set: {"type": "array"},
    dict: {"type": "object"},
}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LISTS = (list, set, frozenset, Sequence, Iterable)
_MAPS = (dict, Mapping)


class Mismatch(ValueError):
    """A value is not of the type wanted. ``path`` is a JSON pointer."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or '/'}: {message}")
        self.path = path


def schema_of(kind: Any) -> Schema:
    """JSON Schema of a type; ``{}`` where nothing is known of it. Types that hold themselves are open inside."""
    definitions: Schema = {}
    schema = _schema(kind, (), definitions)
    if definitions:
        schema["$defs"] = definitions
    return schema


def _schema(kind: Any, inside: tuple[Any, ...], defs: Schema) -> Schema:
    if kind in inside:
        return {}
    inside = (*inside, kind)
    try:
        if kind in _SCALARS:
            return dict(_SCALARS[kind])
    except TypeError:
        return {}
    origin, args = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return _schema(args[0], inside[:-1], defs)
    if origin is Union or origin is types.UnionType:
        return {"anyOf": [_schema(own, inside, defs) for own in args]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in _LISTS:
        return {"type": "array", "items": _schema(args[0], inside, defs)}
    if origin is tuple:
        if len(args) == 2 and args[1] is ...:
            return {"type": "array", "items": _schema(args[0], inside, defs)}
        return {"type": "array", "minItems": len(args), "maxItems": len(args)}
    if origin in _MAPS:
        return {"type": "object", "additionalProperties": _schema(args[1], inside, defs)}
    if not isinstance(kind, type):
        return {}
    if hasattr(kind, "model_json_schema"):
        schema: Schema = dict(kind.model_json_schema())
        # References count from the root of the whole schema, wherever in it this stands.
        defs.update(schema.pop("$defs", {}))
        return schema
    if issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    fields = _fields(kind)
    if fields is None:
        return {}
    names, required = fields
    properties = {name: _schema(own, inside, defs) for name, own in names.items()}
    schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = sorted(required)
    return schema


def _fields(kind: type) -> tuple[dict[str, Any], set[str]] | None:
    """Fields with their types, and those that have to be there, of a dataclass or a ``TypedDict``."""
    dataclass_fields = getattr(kind, "__dataclass_fields__", None)
    if dataclass_fields is not None:
        from dataclasses import MISSING

        hints = hints_of(kind)
        names = {name: hints.get(name, Any) for name, field in dataclass_fields.items() if field.init}
        required = {
            name
            for name, field in dataclass_fields.items()
            if field.init and field.default is MISSING and field.default_factory is MISSING
        }
        return names, required
    if typing.is_typeddict(kind):
        return hints_of(kind), set(getattr(kind, "__required_keys__", ()))
    return None


def hints_of(of: Any) -> dict[str, Any]:
    """Type hints by name; empty where they name what cannot be found."""
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError, AttributeError):
        return {}


def convert(kind: Any, value: Any, path: str = "") -> Any:
    """The value as the type wanted. Integers count as floats; nothing else is bent.

    Raises:
        Mismatch: it is of another type.
    """
    if kind is Any or kind is object:
        return value
    origin, args = get_origin(kind), get_args(kind)
    if origin is typing.Annotated and not hasattr(args[0], "model_validate"):
        return convert(args[0], value, path)
    if origin is Union or origin is types.UnionType:
        return _convert_union(args, value, path)
    if origin is typing.Literal:
        for own in args:
            if own == value and type(own) is type(value):
                return value
        raise Mismatch(path, f"must be one of {args}")
    if kind is None:
        kind = type(None)
    plain = origin or kind
    if not isinstance(plain, type):
        return value
    convert_with = _CONVERTERS.get(plain)
    if convert_with is not None:
        return convert_with(args, value, path)
    validate = getattr(plain, "model_validate", None)
    if validate is not None:
        try:
            return validate(value)
        except ValueError as error:
            raise Mismatch(path, str(error)) from error
    if issubclass(plain, enum.Enum):
        try:
            return plain(value)
        except ValueError as error:
            raise Mismatch(path, str(error)) from None
    fields = _fields(plain)
    if fields is not None:
        return _convert_object(plain, *fields, value, path)
    if isinstance(value, plain):
        return value
    raise Mismatch(path, f"must be {plain.__name__}, not {type(value).__name__}")


def _convert_union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    problem: Mismatch | None = None
    for own in kinds:
        try:
            return convert(own, value, path)
        except Mismatch as error:
            problem = error
    raise problem or Mismatch(path, "fits nothing")


def _convert_object(kind: type, names: dict[str, Any], required: set[str], value: Any, path: str) -> Any:
    if not typing.is_typeddict(kind) and isinstance(value, kind):
        return value
    if not isinstance(value, dict):
        raise Mismatch(path, f"must be an object, not {type(value).__name__}")
    missing = sorted(required - value.keys())
    if missing:
        raise Mismatch(f"{path}/{missing[0]}", "is missing")
    # Unknown keys are passed over: a newer caller may say more.
    read = {name: convert(own, value[name], f"{path}/{name}") for name, own in names.items() if name in value}
    return kind(**read)


def _exactly(kind: type) -> Callable[[tuple[Any, ...], Any, str], Any]:
    def check(_: tuple[Any, ...], value: Any, path: str) -> Any:
        if type(value) is kind:
            return value
        raise Mismatch(path, f"must be {kind.__name__}, not {type(value).__name__}")

    return check


def _float(_: tuple[Any, ...], value: Any, path: str) -> float:
    if type(value) in (int, float):
        return float(value)
    raise Mismatch(path, f"must be a number, not {type(value).__name__}")


def _many(make: Callable[[list[Any]], Any]) -> Callable[[tuple[Any, ...], Any, str], Any]:
    def read(args: tuple[Any, ...], value: Any, path: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise Mismatch(path, f"must be a list, not {type(value).__name__}")
        item = args[0] if args else Any
        return make([convert(item, own, f"{path}/{place}") for place, own in enumerate(value)])

    return read


def _tuple(args: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise Mismatch(path, f"must be a list, not {type(value).__name__}")
    if not args or (len(args) == 2 and args[1] is ...):
        args = (args[0] if args else Any,) * len(value)
    if len(args) != len(value):
        raise Mismatch(path, f"must have {len(args)} items, not {len(value)}")
    return tuple(convert(own, item, f"{path}/{n}") for n, (own, item) in enumerate(zip(args, value, strict=True)))


def _dict(args: tuple[Any, ...], value: Any, path: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Mismatch(path, f"must be an object, not {type(value).__name__}")
    of_key, of_value = args or (Any, Any)
    return {convert(of_key, key, path): convert(of_value, own, f"{path}/{key}") for key, own in value.items()}


def _datetime(_: tuple[Any, ...], value: Any, path: str) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, Timestamp):
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanoseconds // 1000)
    raise Mismatch(path, f"must be a time, not {type(value).__name__}")


_CONVERTERS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    **{kind: _exactly(kind) for kind in (str, int, bool, bytes, type(None))},
    float: _float,
    list: _many(list),
    Sequence: _many(list),
    Iterable: _many(list),
    set: _many(set),
    frozenset: _many(frozenset),
    tuple: _tuple,
    dict: _dict,
    Mapping: _dict,
    datetime: _datetime,
}
