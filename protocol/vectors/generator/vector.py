"""What one vector is, and the files they stand in."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgpack import Bytes, Parts, encode, flat, joined, one, shown

FOLDER = Path(__file__).resolve().parent.parent
SHORT = 1024
"""Longest message, in bytes, that is written out with its value."""

NIL = object()
ABSENT = object()


@dataclass
class Body:
    """A body: its MessagePack bytes, and what the JSON edge shows for them."""

    encoded: bytes
    shown: Any


def body(value: Any) -> Body:
    return Body(joined(encode(value)), shown(value))


@dataclass
class Envelope:
    """A message in parts."""

    kind: Any
    header: Any
    body: Any = NIL

    def parts(self) -> Parts:
        items = [encode(self.kind), encode(self.header)]
        if self.body is NIL:
            items.append(one(b"\xc0"))
        elif isinstance(self.body, Body):
            items.append(encode(self.body.encoded))
        elif self.body is not ABSENT:
            items.append(encode(self.body))
        return [(bytes([0x90 | len(items)]), 1), *flat(items)]

    def shown(self) -> Any:
        last = self.body.shown if isinstance(self.body, Body) else shown(self.body) if isinstance(self.body, Bytes) else None
        return [shown(self.kind), shown(self.header), last]


@dataclass
class Files:
    """All vectors by file, in the order in which they were made."""

    vectors: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, path: str, vector: dict[str, Any]) -> None:
        self.vectors.setdefault(path, []).append(vector)

    def accept(self, file: str, id: str, direction: str, envelope: Envelope, note: str, **marks: Any) -> None:
        """Without `reads_as` the bytes are the canonical form of what they say."""
        vector = {"id": id, "direction": direction} | bytes_of(envelope.parts())
        if "bytes_hex" in vector and marks.pop("value", True):
            vector["value"] = envelope.shown()
        marks.pop("value", None)
        if "reads_as" not in marks and marks.pop("canonical", True):
            vector["canonical"] = True
        marks.pop("canonical", None)
        self.add(f"accept/{file}.json", vector | marks | {"note": note})

    def reject(self, file: str, id: str, direction: str, message: Any, error: dict[str, Any], note: str) -> None:
        parts = message.parts() if isinstance(message, Envelope) else message
        self.add(f"reject/{file}.json", {"id": id, "direction": direction} | bytes_of(parts) | {"error": error, "note": note})

    def write(self, check: bool) -> list[str]:
        """Appends what is new. Returns what is wrong: a vector that was published is never edited."""
        problems = []
        for path, made in self.vectors.items():
            file = FOLDER / path
            old = json.loads(file.read_text()) if file.exists() else []
            known = {vector["id"]: vector for vector in old}
            for vector in made:
                published = known.get(vector["id"])
                if published is None:
                    old.append(vector)
                    known[vector["id"]] = vector
                    if check:
                        problems.append(f"{path}: {vector['id']} is not in the file")
                elif published != vector:
                    problems.append(f"{path}: {vector['id']} differs from what was published")
            if not check:
                file.parent.mkdir(parents=True, exist_ok=True)
                lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in old)
                file.write_text(f"[\n{lines}\n]\n")
        return problems


def bytes_of(parts: Parts) -> dict[str, Any]:
    if sum(len(encoded) * times for encoded, times in parts) <= SHORT:
        return {"bytes_hex": joined(parts).hex()}
    merged: list[list[Any]] = []
    for encoded, times in parts:
        if times == 1 and merged and merged[-1][1] == 1:
            merged[-1][0] += encoded
        elif encoded:
            merged.append([encoded, times])
    if len(merged) == 1 and merged[0][1] == 1:
        return {"bytes_hex": merged[0][0].hex()}
    return {"bytes_parts": [[encoded.hex(), times] for encoded, times in merged]}


def untrusted() -> dict[str, Any]:
    return {"class": "untrusted", "goodbye": "protocol_error"}


def malformed(kind: int, field: str, id: int | None = None) -> dict[str, Any]:
    error = {"class": "malformed", "code": "invalid_request", "kind": kind, "field": field}
    return error if id is None else error | {"id": id}
