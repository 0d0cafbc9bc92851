"""Bodies: one MessagePack value, or bytes of another kind as they are."""

from enum import Enum
from typing import Any

from msgpack import Packer, Timestamp, unpackb

from .session.types import Payload

NIL = b"\xc0"


class EncodeError(ValueError):
    """A value that MessagePack cannot say."""


def encode_body(value: Any) -> Payload:
    """The body that a value is. `Payload` goes out as it is, ``None`` as nil.

    Beyond MessagePack's own types: dataclasses and Pydantic models as maps, enums as their value, sets as lists, and
    times with a zone as timestamps. Integers are those from -2^63 to 2^64-1.

    Raises:
        EncodeError: why it cannot be said.
    """
    if type(value) is Payload:
        return value
    try:
        # The packer's usual buffer is 256 KiB, which costs more than a small body's packing.
        return Payload(Packer(default=_plain, datetime=True, buf_size=1024).pack(value))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise EncodeError(str(error)) from error


def decode_body(payload: Payload) -> Any:
    """The value that a body is; bytes of another kind than MessagePack come as `Payload`.

    Raises:
        ValueError: it is not one MessagePack value.
    """
    kind = payload.content_type
    if kind is not None and "msgpack" not in kind:
        return payload
    body = payload.body
    if not body:
        return None
    try:
        return unpackb(body, strict_map_key=False)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        # A TypeError: a map key that Python cannot have as one.
        raise ValueError(f"the body is not MessagePack that Python can hold: {type(error).__name__}: {error}") from None


def _plain(value: Any) -> Any:
    """A value of MessagePack's own types for one of another; the packer looks into what comes."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return list(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump()
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None and not isinstance(value, type):
        return {name: getattr(value, name) for name in fields}
    raise TypeError(f"{type(value).__name__} cannot be sent: {value!r:.100}")


__all__ = ["EncodeError", "Payload", "Timestamp", "decode_body", "encode_body"]
