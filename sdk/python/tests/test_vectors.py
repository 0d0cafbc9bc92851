"""The golden vectors of the protocol. Requirements CODEC-1, CODEC-2, CODEC-3."""

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from agent_reach import codec, frames
from agent_reach.codec import Malformed, UnknownKind, Untrusted, WrongDirection
from agent_reach.msgpack import ExtType, Pairs, _Reader, split

FOLDER = Path(__file__).parents[3] / "protocol" / "vectors"
Vector = dict[str, Any]


def vectors(folder: str) -> list[Vector]:
    found = [
        {**vector, "file": path.stem}
        for path in sorted((FOLDER / folder).glob("*.json"))
        for vector in json.loads(path.read_text())
    ]
    assert len(found) > 50, "the vectors are not where they were"
    return found


def message(vector: Vector) -> bytes:
    if "bytes_hex" in vector:
        return bytes.fromhex(vector["bytes_hex"])
    return b"".join(bytes.fromhex(part) * times for part, times in vector["bytes_parts"])


def decode(vector: Vector) -> codec.Envelope:
    read = codec.decode_to_agent if vector["direction"] == "to_agent" else codec.decode_to_hub
    return read(message(vector))


def unconverted(value: Any) -> Any:
    """What the JSON edge shows, as it was."""
    if isinstance(value, list):
        return [unconverted(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1:
            word, inner = next(iter(value.items()))
            if word == "$int":
                return int(inner)
            if word == "$bin":
                return base64.b64decode(inner)
            if word == "$ext":
                return ExtType(inner[0], base64.b64decode(inner[1]))
        return Pairs((key, unconverted(item)) for key, item in value.items())
    return value


def ids(found: list[Vector]) -> list[str]:
    return [f"{vector['file']}-{vector['id']}" for vector in found]


ACCEPT = vectors("accept")
REJECT = vectors("reject")
BY_ID = {vector["id"]: vector for vector in ACCEPT}


@pytest.mark.parametrize("vector", ACCEPT, ids=ids(ACCEPT))
def test_an_accepted_vector_reads_and_a_canonical_one_is_written_as_it_was(vector: Vector) -> None:
    envelope = decode(vector)
    if vector.get("canonical"):
        assert codec.encode(*envelope) == message(vector)
    if "reads_as" in vector:
        assert envelope == decode(BY_ID[vector["reads_as"]])


@pytest.mark.parametrize("vector", [v for v in ACCEPT if "value" in v and "$time" not in json.dumps(v["value"])])
def test_a_header_says_what_the_vector_says(vector: Vector) -> None:
    kind, header, _ = vector["value"]
    envelope = decode(vector)
    specs = frames.TO_AGENT if vector["direction"] == "to_agent" else frames.TO_HUB
    assert envelope.kind == kind
    assert envelope.header == frames.read(specs[kind], unconverted(header) if header else Pairs())


def cost(error: Exception) -> dict[str, Any]:
    if isinstance(error, Untrusted):
        return {"class": "untrusted", "goodbye": "protocol_error"}
    said: dict[str, Any]
    if isinstance(error, Malformed):
        said = {"class": "malformed", "code": "invalid_request", "kind": error.kind.value, "field": error.field}
    elif isinstance(error, UnknownKind):
        said = {"class": "unknown_kind", "code": "unknown_kind", "kind": error.kind}
    elif isinstance(error, WrongDirection):
        return {"class": "wrong_direction", "code": "invalid_request", "kind": error.kind.value}
    else:
        raise error
    return said if error.id is None else {**said, "id": error.id}


@pytest.mark.parametrize("vector", REJECT, ids=ids(REJECT))
def test_a_rejected_vector_costs_what_it_says(vector: Vector) -> None:
    with pytest.raises(ValueError) as caught:
        decode(vector)
    expected = {key: unconverted(value) for key, value in vector["error"].items()}
    assert cost(caught.value) == expected


def mutations() -> Iterator[bytes]:
    for vector in ACCEPT + REJECT:
        whole = message(vector)
        if len(whole) < 300:
            for cut in range(len(whole)):
                yield whole[:cut]
                yield whole[:cut] + b"\xff" + whole[cut + 1 :]


def test_no_message_does_worse_than_a_typed_error() -> None:
    for data in mutations():
        for read in (codec.decode_to_agent, codec.decode_to_hub):
            try:
                envelope = read(data)
            except (Untrusted, Malformed, UnknownKind, WrongDirection):
                continue
            assert read(codec.encode(*envelope)) == envelope


def test_both_readers_of_a_message_agree() -> None:
    def outcome(read: Callable[[], tuple[int, Pairs, Any]]) -> Any:
        try:
            kind, header, body = read()
        except Untrusted:
            return "untrusted"
        # What the two make of numbers that are not equal to themselves, and of extensions, is the library's affair.
        return kind, [key for key, _ in header], type(body) in (bytes, NoneType)

    for data in mutations():
        assert outcome(_Reader(data).envelope) == outcome(partial(split, data)), data.hex()
