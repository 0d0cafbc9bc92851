"""MessagePack of envelopes: quickly by the C library, and slowly, byte by byte, what that objects to.

The slow reader exists to say exactly what is wrong: the library knows no difference between bytes that cannot be
trusted and one text that is not UTF-8. It allocates nothing for a length that was only promised.
"""

import struct
from typing import Any, NoReturn

from msgpack import ExtType, Timestamp, packb, unpackb

from . import limits


class Pairs(list[tuple[Any, Any]]):
    """A map as it came: its entries in their order, repeated ones too."""

    __slots__ = ()


class NotText(bytes):
    """A string that is not UTF-8."""

    __slots__ = ()


class Untrusted(ValueError):
    """No envelope: the connection cannot be trusted any further."""


def is_text(value: Any) -> bool:
    """Whether every string inside is UTF-8."""
    if type(value) is NotText:
        return False
    if type(value) is list:
        return all(map(is_text, value))
    if type(value) is Pairs:
        return all(is_text(own) for _, own in value)
    return True


def plain(value: Any) -> Any:
    """The value with dicts for its maps."""
    if type(value) is list:
        return [plain(own) for own in value]
    if type(value) is Pairs:
        return {key: plain(own) for key, own in value}
    return value


def encoded_length(value: Any) -> int:
    """How many bytes the value has in its shortest form."""
    return len(packb(value))


def split(message: bytes) -> tuple[int, Pairs, Any]:
    """Kind, header and body of a message; whether the body is of a type that it may have is not looked at.

    Raises:
        Untrusted: it is no envelope.
    """
    try:
        parts = unpackb(message, object_pairs_hook=Pairs)
    except (ValueError, TypeError, RecursionError, OverflowError):
        # A body of any depth, and text that is not UTF-8, fail only what they belong to.
        return _Reader(message).envelope()
    if type(parts) is not list or not 2 <= len(parts) <= 3:
        raise Untrusted("an envelope is an array of two or three: [kind, header, body]")
    kind, header = parts[0], parts[1]
    if type(kind) is not int or kind < 0:
        raise Untrusted("the kind of an envelope is an unsigned integer")
    if type(header) is not Pairs:
        raise Untrusted("the header of an envelope is a map")
    _check_map(header, limits.HEADER_DEPTH_MAX)
    return kind, header, parts[2] if len(parts) == 3 else None


def _check_map(pairs: Pairs, depth: int) -> None:
    if depth == 0:
        raise Untrusted(f"the header is nested deeper than {limits.HEADER_DEPTH_MAX}")
    if len(pairs) > limits.HEADER_KEYS_MAX:
        raise Untrusted(f"a map of the header has more than {limits.HEADER_KEYS_MAX} keys")
    seen = set()
    for key, value in pairs:
        if type(key) is not str:
            raise Untrusted("a map key of the header is no string")
        seen.add(key)
        if type(value) is Pairs:
            _check_map(value, depth - 1)
        elif type(value) is list:
            _check_list(value, depth - 1)
    if len(seen) != len(pairs):
        raise Untrusted("a map of the header has a repeated key")


def _check_list(items: list[Any], depth: int) -> None:
    if depth == 0:
        raise Untrusted(f"the header is nested deeper than {limits.HEADER_DEPTH_MAX}")
    for value in items:
        if type(value) is Pairs:
            _check_map(value, depth - 1)
        elif type(value) is list:
            _check_list(value, depth - 1)


def _truncated() -> NoReturn:
    raise Untrusted("the message ends inside a value")


#: First byte -> format of a number.
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
#: First byte -> what it begins, and in how many bytes its length stands.
_LONG = {
    0xC4: ("bin", 1),
    0xC5: ("bin", 2),
    0xC6: ("bin", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("array", 2),
    0xDD: ("array", 4),
    0xDE: ("map", 2),
    0xDF: ("map", 4),
}


class _Reader:
    """A position in a message."""

    def __init__(self, message: bytes) -> None:
        self._bytes = message
        self._at = 0

    def envelope(self) -> tuple[int, Pairs, Any]:
        what, parts = self._head()
        if what != "array" or not 2 <= parts <= 3:
            raise Untrusted("an envelope is an array of two or three: [kind, header, body]")
        what, kind = self._head()
        if what != "value" or type(kind) is not int or kind < 0:
            raise Untrusted("the kind of an envelope is an unsigned integer")
        what, keys = self._head()
        if what != "map":
            raise Untrusted("the header of an envelope is a map")
        header = self._map(keys, limits.HEADER_DEPTH_MAX)
        body = self._body() if parts == 3 else None
        if self._at != len(self._bytes):
            raise Untrusted("bytes follow the envelope")
        return kind, header, body

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._bytes):
            _truncated()
        taken = self._bytes[self._at : end]
        self._at = end
        return taken

    def _head(self) -> tuple[str, Any]:
        """What begins here: a whole ``value`` with it, else its kind with the length that it promises."""
        first = self._take(1)[0]
        if first <= 0x7F:
            return "value", first
        if first <= 0x8F:
            return "map", first & 0x0F
        if first <= 0x9F:
            return "array", first & 0x0F
        if first <= 0xBF:
            return "str", first & 0x1F
        if first >= 0xE0:
            return "value", first - 0x100
        if first == 0xC1:
            raise Untrusted("byte 0xc1 is not MessagePack")
        if first in _NUMBERS:
            form = _NUMBERS[first]
            return "value", struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if first in _LONG:
            what, width = _LONG[first]
            return what, int.from_bytes(self._take(width), "big")
        if 0xD4 <= first <= 0xD8:
            return "ext", 1 << (first - 0xD4)
        return "value", {0xC0: None, 0xC2: False, 0xC3: True}[first]

    def _scalar(self, what: str, length: Any) -> Any:
        if what == "value":
            return length
        if what == "ext":
            code = self._take(1)[0]
            return ExtType(code if code < 128 else 0, self._take(length))
        data = self._take(length)
        if what == "bin":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            return NotText(data)

    def _value(self, depth: int) -> Any:
        what, length = self._head()
        if what == "map":
            return self._map(length, depth)
        if what != "array":
            return self._scalar(what, length)
        if depth == 0:
            raise Untrusted(f"the header is nested deeper than {limits.HEADER_DEPTH_MAX}")
        items = []
        for _ in range(length):
            items.append(self._value(depth - 1))
        return items

    def _map(self, keys: int, depth: int) -> Pairs:
        if depth == 0:
            raise Untrusted(f"the header is nested deeper than {limits.HEADER_DEPTH_MAX}")
        if keys > limits.HEADER_KEYS_MAX:
            raise Untrusted(f"a map of the header has more than {limits.HEADER_KEYS_MAX} keys")
        pairs = Pairs()
        for _ in range(keys):
            what, length = self._head()
            key = self._scalar(what, length) if what == "str" else None
            if type(key) is not str:
                raise Untrusted("a map key of the header is no string")
            pairs.append((key, self._value(depth - 1)))
        if len({key for key, _ in pairs}) != len(pairs):
            raise Untrusted("a map of the header has a repeated key")
        return pairs

    def _body(self) -> Any:
        """The third element: bytes, nil, or something that it may not be, which is passed over without recursion."""
        what, length = self._head()
        if what in ("bin", "value") and (what == "bin" or length is None):
            return self._scalar(what, length)
        left = self._inside(what, length)
        while left > 0:
            left += self._inside(*self._head()) - 1
        return NotText(b"")

    def _inside(self, what: str, length: Any) -> int:
        if what == "array":
            return int(length)
        if what == "map":
            return 2 * int(length)
        self._scalar(what, length)
        return 0


__all__ = ["ExtType", "NotText", "Pairs", "Timestamp", "Untrusted", "encoded_length", "is_text", "plain", "split"]
