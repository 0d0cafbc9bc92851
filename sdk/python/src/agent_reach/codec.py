"""Whole messages: an envelope is a MessagePack array ``[kind, header, body]``."""

from typing import NamedTuple

from msgpack import Packer

from . import frames
from .codes import Kind
from .frames import FieldError, Header
from .msgpack import Pairs, Untrusted, split


class Malformed(ValueError):
    """An envelope with a wrong header or body: it fails, and the connection stays."""

    def __init__(self, kind: Kind, id: int | None, field: str, message: str) -> None:
        super().__init__(f"{kind.name}: {message}")
        self.kind, self.id, self.field = kind, id, field


class UnknownKind(ValueError):
    """A kind that this version does not have: it fails, and the connection stays."""

    def __init__(self, kind: int, id: int | None) -> None:
        super().__init__(f"kind {kind} is not known")
        self.kind, self.id = kind, id


class WrongDirection(ValueError):
    """A kind that only the other side sends."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"{kind.name} is not sent in this direction")
        self.kind = kind


class Envelope(NamedTuple):
    """One message, read."""

    kind: Kind
    header: Header
    body: bytes | None


#: What a packer reserves at first, in bytes.
_BUFFER = 2048
_KINDS = {int(kind): kind for kind in Kind}


def encode(kind: Kind, header: Header, body: bytes | None = None) -> bytes:
    """A whole message. The keys of the header are written in the order they have.

    Raises:
        ValueError, TypeError, OverflowError: the header holds what MessagePack cannot say.
    """
    # A packer of its own for each message: one that is shared belongs to one thread. The library's usual buffer is
    # 256 KiB, which costs more than the packing.
    packed: bytes = Packer(buf_size=_BUFFER).pack((int(kind), header, body))
    return packed


def decode_to_agent(message: bytes) -> Envelope:
    """Reads a message that the hub sent.

    Raises:
        Untrusted, Malformed, UnknownKind, WrongDirection: what each costs is said with it.
    """
    return _decode(message, frames.TO_AGENT)


def decode_to_hub(message: bytes) -> Envelope:
    """Reads a message that an agent sent; see `decode_to_agent`."""
    return _decode(message, frames.TO_HUB)


def _decode(message: bytes, specs: dict[int, frames.Spec]) -> Envelope:
    number, pairs, body = split(message)
    spec = specs.get(number)
    kind = _KINDS.get(number)
    if kind is None:
        raise UnknownKind(number, _id_of(pairs))
    if body is not None and type(body) is not bytes:
        raise Malformed(kind, _id_of(pairs), "body", "body must be bytes or nil")
    if spec is None:
        raise WrongDirection(kind)
    try:
        return Envelope(kind, frames.read(spec, pairs), body)
    except FieldError as error:
        raise Malformed(kind, _id_of(pairs), error.field, str(error)) from None


def _id_of(pairs: Pairs) -> int | None:
    for key, value in pairs:
        if key == "id" and type(value) is int and value >= 0:
            return value
    return None


__all__ = [
    "Envelope",
    "FieldError",
    "Malformed",
    "UnknownKind",
    "Untrusted",
    "WrongDirection",
    "decode_to_agent",
    "decode_to_hub",
    "encode",
]
