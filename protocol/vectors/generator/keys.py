"""Vectors of single keys, from the table of headers."""

from typing import Any

from headers import HEADERS, MISSING, PRIVATE, Key, least, sample
from vector import Envelope, Files, body, malformed


def make(files: Files) -> None:
    for name, (kind, directions, keys) in HEADERS.items():
        for direction in directions:
            suffix = "" if len(directions) == 1 else f"-{direction}".replace("_", "-")
            only = Envelope(kind, least(keys))
            note = "only the keys that must be there or are always written"
            files.accept(name, f"{name}-least{suffix}", direction, only, note)
            full = Envelope(kind, sample(keys), body({"text": "hi", "n": [1, None, True]}))
            files.accept(name, f"{name}-full{suffix}", direction, full, "every key, and a body")
        Walk(files, name, kind, directions[0], least(keys)).all(keys)
        if name in PRIVATE:
            private = least(keys) | {"x-tenant": "a", "x-trace": {"a": [1, b"\x00"]}, "x-": None}
            note = "private keys are carried through"
            files.accept(name, f"{name}-private", directions[0], Envelope(kind, private), note)


class Walk:
    """The keys of one header, down into the maps inside it."""

    def __init__(self, files: Files, name: str, kind: int, direction: str, least: dict[str, Any]) -> None:
        self.files, self.name, self.kind, self.direction, self.least = files, name, kind, direction, least
        two_ways = len(HEADERS[name][1]) > 1
        self.suffix = f"-{direction}".replace("_", "-") if two_ways else ""

    def all(self, keys: list[Key], path: tuple[Key, ...] = ()) -> None:
        for key in keys:
            self.key(key, path)
            if key.inside:
                self.all(key.inside, (*path, key))

    def key(self, key: Key, path: tuple[Key, ...]) -> None:
        where = ".".join([*(step.name for step in path), key.name])
        id = f"{self.name}-{where.replace('.', '-').replace('_', '-')}"
        if not key.required:
            envelope = self.with_key(key, path, key.sample)
            self.files.accept(self.name, id, self.direction, envelope, f"{where} alone")
            note = f"{where} is nil, which reads as absent"
            envelope = self.with_key(key, path, None)
            same = {"reads_as": f"{self.name}-least{self.suffix}"} if not path else {"canonical": False}
            self.files.accept(self.name, f"{id}-nil", self.direction, envelope, note, **same)
            if key.default is not MISSING:
                note = f"{where} is absent: it is always written, and reads as its default without"
                envelope = self.with_key(key, path, MISSING)
                self.files.accept(self.name, f"{id}-absent", self.direction, envelope, note, **same)
        for bound, value in (("most", key.most), ("least", key.least)):
            if value is None or (isinstance(value, str) and value == "" and bound == "most"):
                continue
            envelope = self.with_key(key, path, value)
            note = f"{where} at its {'upper' if bound == 'most' else 'lower'} bound"
            self.files.accept(self.name, f"{id}-{bound}", self.direction, envelope, note)
        for what, value in key.wrong.items():
            self.reject(f"{id}-{what}", self.with_key(key, path, value), where, f"{where}: {what}", key, path)
        if key.required:
            self.reject(f"{id}-nil", self.with_key(key, path, None), where, f"{where} is nil", key, path)
            self.reject(f"{id}-missing", self.with_key(key, path, MISSING), where, f"{where} is missing", key, path)

    def reject(self, id: str, envelope: Envelope, where: str, note: str, key: Key, path: tuple[Key, ...]) -> None:
        number = envelope.header.get("id") if isinstance(envelope.header, dict) else None
        number = number if isinstance(number, int) and number >= 0 else None
        self.files.reject(self.name, id, self.direction, envelope, malformed(self.kind, where, number), note)

    def with_key(self, key: Key, path: tuple[Key, ...], value: Any) -> Envelope:
        """The least header, with one key more (or other, or less), in canonical order."""
        keys = HEADERS[self.name][2]
        if not path:
            return Envelope(self.kind, placed(keys, self.least, key, value))
        inner = value
        child = key
        for step in reversed(path):
            map_ = placed(step.inside, least(step.inside), child, inner)
            inner = [map_] if isinstance(step.sample, list) else map_
            child = step
        return Envelope(self.kind, placed(keys, self.least, child, inner))


def placed(keys: list[Key], map_: dict[str, Any], key: Key, value: Any) -> dict[str, Any]:
    merged = dict(map_)
    if value is MISSING:
        merged.pop(key.name, None)
    else:
        merged[key.name] = value
    order = [key.name for key in keys]
    return dict(sorted(merged.items(), key=lambda item: order.index(item[0])))
