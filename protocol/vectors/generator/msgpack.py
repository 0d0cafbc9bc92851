"""A small MessagePack writer, made apart from the Rust one so that the two check each other.

It always writes the shortest form. `Bytes` puts any other form in place of a value. What it returns is a list of
`(bytes, times)`, so that a vector of a mebibyte needs no mebibyte of text.
"""

import base64
import struct
from dataclasses import dataclass
from typing import Any

Parts = list[tuple[bytes, int]]

BARE_INTEGER_MAX = 1 << 53


@dataclass
class Bytes:
    """Encoded by hand: its bytes (or parts), and the value that the JSON edge shows for them."""

    encoded: bytes | Parts
    shown: Any = None


@dataclass
class Ext:
    """An extension value."""

    type: int
    data: bytes
    shown: Any = None


@dataclass
class Long:
    """`count` times the letter a, as text or as bytes."""

    count: int
    binary: bool = False


@dataclass
class Many:
    """`count` times the same item."""

    item: Any
    count: int


@dataclass
class Pairs:
    """A map whose keys may repeat or be no strings."""

    pairs: list[tuple[Any, Any]]


def encode(value: Any) -> Parts:
    match value:
        case None:
            return one(b"\xc0")
        case bool():
            return one(b"\xc3" if value else b"\xc2")
        case int():
            return one(integer(value))
        case float():
            return one(b"\xcb" + struct.pack(">d", value))
        case str():
            text = value.encode()
            return one(head(len(text), (0xA0, 31), (0xD9, 0xDA, 0xDB)) + text)
        case bytes():
            return one(head(len(value), None, (0xC4, 0xC5, 0xC6)) + value)
        case Long():
            marks = (None, (0xC4, 0xC5, 0xC6)) if value.binary else ((0xA0, 31), (0xD9, 0xDA, 0xDB))
            return [(head(value.count, *marks), 1), (b"a", value.count)]
        case list():
            return [*one(array_head(len(value))), *flat(map(encode, value))]
        case Many():
            item = joined(encode(value.item))
            return [(array_head(value.count), 1), (item, value.count)]
        case dict():
            return encode(Pairs(list(value.items())))
        case Pairs():
            pairs = flat(encode(key) + encode(item) for key, item in value.pairs)
            return [*one(map_head(len(value.pairs))), *pairs]
        case Ext():
            return one(ext_head(len(value.data)) + struct.pack(">b", value.type) + value.data)
        case Bytes(encoded=bytes() as encoded):
            return one(encoded)
        case Bytes(encoded=parts):
            return parts
    raise TypeError(value)


def integer(value: int) -> bytes:
    if value >= 0:
        for limit, mark, form in ((0xFF, b"\xcc", ">B"), (0xFFFF, b"\xcd", ">H"), (0xFFFFFFFF, b"\xce", ">I")):
            if value < 0x80:
                return bytes([value])
            if value <= limit:
                return mark + struct.pack(form, value)
        return b"\xcf" + struct.pack(">Q", value)
    for limit, mark, form in ((-0x80, b"\xd0", ">b"), (-0x8000, b"\xd1", ">h"), (-0x80000000, b"\xd2", ">i")):
        if value >= -0x20:
            return struct.pack(">b", value)
        if value >= limit:
            return mark + struct.pack(form, value)
    return b"\xd3" + struct.pack(">q", value)


def head(length: int, fixed: tuple[int, int] | None, marks: tuple[int, int, int]) -> bytes:
    if fixed and length <= fixed[1]:
        return bytes([fixed[0] | length])
    if length <= 0xFF:
        return bytes([marks[0], length])
    if length <= 0xFFFF:
        return bytes([marks[1]]) + struct.pack(">H", length)
    return bytes([marks[2]]) + struct.pack(">I", length)


def container_head(length: int, fixed: int, mark16: int) -> bytes:
    if length <= 15:
        return bytes([fixed | length])
    if length <= 0xFFFF:
        return bytes([mark16]) + struct.pack(">H", length)
    return bytes([mark16 + 1]) + struct.pack(">I", length)


def array_head(length: int) -> bytes:
    return container_head(length, 0x90, 0xDC)


def map_head(length: int) -> bytes:
    return container_head(length, 0x80, 0xDE)


def ext_head(length: int) -> bytes:
    fixed = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
    return bytes([fixed[length]]) if length in fixed else head(length, None, (0xC7, 0xC8, 0xC9))


def one(encoded: bytes) -> Parts:
    return [(encoded, 1)]


def flat(many: Any) -> Parts:
    return [part for parts in many for part in parts]


def joined(parts: Parts) -> bytes:
    return b"".join(encoded * times for encoded, times in parts)


def shown(value: Any) -> Any:
    """The value as the JSON edge shows it."""
    match value:
        case bool() | None | str() | float():
            return value
        case int():
            return {"$int": str(value)} if abs(value) > BARE_INTEGER_MAX else value
        case bytes():
            return {"$bin": base64.b64encode(value).decode()}
        case list():
            return [shown(item) for item in value]
        case dict():
            return {key: shown(item) for key, item in value.items()}
        case Ext():
            if value.shown is not None:
                return value.shown
            return {"$ext": [value.type, base64.b64encode(value.data).decode()]}
        case Bytes():
            return value.shown
        case Long():
            return shown(b"a" * value.count) if value.binary else "a" * value.count
        case Many():
            return [shown(value.item)] * value.count
    raise TypeError(value)
