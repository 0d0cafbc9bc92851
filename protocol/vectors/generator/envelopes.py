"""Vectors of the envelope itself: its form, widths, strictness, and bounds that belong to no single key."""

from typing import Any

from headers import HELLO, least
from msgpack import Bytes, Ext, Long, Pairs, encode, flat, joined, one
from vector import ABSENT, Body, Envelope, Files, body, malformed, untrusted

SEVEN = {"id": 7}
RESULT = {"id": 7, "status": "completed"}


def make(files: Files) -> None:
    widths(files)
    forms(files)
    bodies(files)
    limits(files)
    shapes(files)
    header_keys(files)
    lengths(files)
    nesting(files)
    kinds(files)
    texts(files)


def cancel(id: Any) -> Envelope:
    return Envelope(15, {"id": id})


def widths(files: Files) -> None:
    for name, encoded in {
        "uint8": "cc07",
        "uint16": "cd0007",
        "uint32": "ce00000007",
        "uint64": "cf0000000000000007",
        "int8": "d007",
        "int16": "d10007",
        "int32": "d200000007",
        "int64": "d30000000000000007",
    }.items():
        wide = Bytes(bytes.fromhex(encoded), 7)
        note = f"an integer counts by its value, here 7 as {name}"
        files.accept("encoding", f"id-{name}", "to_hub", cancel(wide), note, reads_as="cancel-least-to-hub")
        kind = Bytes(bytes.fromhex(encoded[:-2] + "0f"), 15)
        note = f"a kind counts by its value, here 15 as {name}"
        files.accept("encoding", f"kind-{name}", "to_hub", Envelope(kind, SEVEN), note, reads_as="cancel-least-to-hub")
    for id in (0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**63, 2**64 - 1):
        files.accept("encoding", f"id-{id}", "to_hub", cancel(id), "an id in its shortest form")


def forms(files: Files) -> None:
    same = {"reads_as": "cancel-reason-to-hub"}
    files.accept("encoding", "cancel-reason-to-hub", "to_hub", Envelope(15, {"id": 7, "reason": "x"}), "to compare with")

    def form(id: str, header: bytes, note: str, head: str = "93") -> None:
        parts = one(bytes.fromhex(head) + b"\x0f" + header + (b"" if head == "92" else b"\xc0"))
        whole = Envelope(15, {"id": 7, "reason": "x"})
        vector = {"id": id, "direction": "to_hub", "bytes_hex": joined(parts).hex(), "value": whole.shown()}
        files.add("accept/encoding.json", vector | same | {"note": note})

    plain = bytes.fromhex("82a2696407a6726561736f6ea178")
    form("envelope-array16", plain, "the array as array16", "dc0003")
    form("envelope-array32", plain, "the array as array32", "dd00000003")
    form("envelope-of-two", plain, "no third element means nil", "92")
    form("header-map16", b"\xde\x00\x02" + plain[1:], "the header as map16")
    form("header-map32", b"\xdf\x00\x00\x00\x02" + plain[1:], "the header as map32")
    form("key-str8", bytes.fromhex("82d902696407a6726561736f6ea178"), "a key as str8")
    form("key-str16", bytes.fromhex("82da0002696407a6726561736f6ea178"), "a key as str16")
    form("value-str32", bytes.fromhex("82a26964 07a6726561736f6edb0000000178"), "a value as str32")
    form("keys-in-another-order", bytes.fromhex("82a6726561736f6ea178a2696407"), "the order of keys says nothing")

    unknown = {"id": 7, "later": {"a": [1, 1.5, b"\x01", Ext(5, b"\x02")]}, "reason": "x", "0": None, "y-a": 1}
    files.accept("encoding", "unknown-keys", "to_hub", Envelope(15, unknown), "unknown keys are ignored", **same)
    private = {"id": 7, "reason": "x", "x-a": 1}
    note = "kinds that are not forwarded ignore private keys too"
    files.accept("encoding", "private-key-of-cancel", "to_hub", Envelope(15, private), note, **same)
    false = Envelope(15, {"id": 7, "wait": False})
    note = "false is what an absent flag means"
    files.accept("encoding", "flag-false", "to_hub", false, note, reads_as="cancel-least-to-hub")
    empty = Envelope(3, {"add": [], "remove": []})
    files.accept("encoding", "empty-lists", "to_hub", empty, "as if absent", reads_as="update-least")
    half = {"load": {"cpu": 0.5}}
    files.accept("encoding", "share", "to_hub", Envelope(3, half), "to compare with")
    single = {"load": {"cpu": Bytes(b"\xca\x3f\x00\x00\x00", 0.5)}}
    files.accept("encoding", "share-float32", "to_hub", Envelope(3, single), "a float of 32 bits", reads_as="share")
    files.accept("encoding", "share-one", "to_hub", Envelope(3, {"load": {"cpu": 1.0}}), "to compare with")
    whole = {"load": {"cpu": 1}}
    note = "a whole number where a fraction may stand"
    files.accept("encoding", "share-integer", "to_hub", Envelope(3, whole), note, reads_as="share-one")


def bodies(files: Files) -> None:
    values: dict[str, Any] = {
        "nil-inside": None,
        "integer": 5,
        "wide-integer": 2**64 - 1,
        "negative": -(2**63),
        "float": 1.5,
        "text": "héllo",
        "binary": b"\x00\xff",
        "timestamp32": Ext(-1, bytes.fromhex("5f5e1000"), {"$time": "2020-09-13T12:26:40Z"}),
        "ext": Ext(7, b"\x01\x02\x03"),
        "map": {"a": [1, {"b": None}]},
    }
    for name, value in values.items():
        note = "a body is the bytes of one MessagePack value"
        files.accept("body", f"body-{name}", "to_hub", Envelope(14, RESULT, body(value)), note)
    files.accept("body", "body-json", "to_hub", Envelope(14, RESULT | {"content_type": "application/json"}, Body(b'{"a": 1}', {"a": 1})), "JSON text, said by content_type")
    files.accept("body", "body-other", "to_hub", Envelope(14, RESULT | {"content_type": "image/png"}, Body(b"\x89PNG", {"$bin": "iVBORw=="})), "bytes of another type")
    for name, encoded in {"no-bytes": b"", "no-msgpack": b"\xc1", "half": b"\x92\x01", "two-values": b"\x01\x02"}.items():
        note = "the hub never looks into a body; only the JSON edge does"
        files.accept("body", f"body-{name}", "to_hub", Envelope(14, RESULT, Body(encoded, None)), note, value=False)
    for width, head in {"bin16": "c50001", "bin32": "c600000001"}.items():
        wide = Envelope(14, RESULT, Bytes(bytes.fromhex(head) + b"\x05", 5))
        files.accept("body", f"body-{width}", "to_hub", wide, f"the body as {width}", reads_as="body-integer")
    files.accept("body", "body-long", "to_hub", Envelope(14, RESULT, Long(70000, binary=True)), "a body that needs bin32")

    deep = Bytes([(b"\x91", 9999), (b"\xc0", 1)])
    wrong: dict[str, Any] = {
        "map": {"a": 1},
        "map-with-integer-keys": Pairs([(1, 2)]),
        "map-with-repeated-keys": Pairs([("a", 1), ("a", 2)]),
        "array": [1, 2],
        "text": "text",
        "integer": 5,
        "float": 1.5,
        "true": True,
        "ext": Ext(1, b"\x00"),
        "nested-10000": deep,
    }
    for name, value in wrong.items():
        note = "a body that is neither bin nor nil fails its envelope, and only that"
        for direction in ("to_hub", "to_agent"):
            id = f"body-{name}-{direction}".replace("_", "-")
            files.reject("body", id, direction, Envelope(14, RESULT, value), malformed(14, "body", 7), note)
    for name, encoded in {"truncated": b"\xc4\x05ab", "reserved": b"\xc1", "array-truncated": b"\x92\x01", "reserved-inside": b"\x91\xc1"}.items():
        files.reject("body", f"body-{name}", "to_hub", Envelope(14, RESULT, Bytes(encoded)), untrusted(), "no MessagePack")


def limits(files: Files) -> None:
    def labelled(name: str, labels: dict[str, Any], ok: bool, note: str, field: str = "labels") -> None:
        hello = Envelope(1, least(HELLO) | {"labels": labels})
        if ok:
            files.accept("limits", name, "to_hub", hello, note)
        else:
            files.reject("limits", name, "to_hub", hello, malformed(1, field), note)

    labelled("labels-64", {f"k{n}": "v" for n in range(64)}, True, "64 labels")
    labelled("labels-65", {f"k{n}": "v" for n in range(65)}, False, "65 labels")
    labelled("label-key-256", {"a" * 256: "v"}, True, "a key of 256 bytes")
    labelled("label-key-257", {"a" * 257: "v"}, False, "a key of 257 bytes")
    labelled("label-key-empty", {"": "v"}, False, "an empty key")
    labelled("label-value-256", {"k": "a" * 256}, True, "a value of 256 bytes")
    labelled("label-value-257", {"k": "a" * 257}, False, "a value of 257 bytes")
    labelled("label-value-empty", {"k": ""}, True, "an empty value")
    labelled("label-value-integer", {"k": 1}, False, "a value that is no text", "labels.k")
    labelled("label-value-nil", {"k": None}, False, "a value that is no text", "labels.k")
    text = "é" * 64
    hello = least(HELLO) | {"agent_id": text}
    files.accept("limits", "bytes-not-characters", "to_hub", Envelope(1, hello), "64 characters of 2 bytes are 128 bytes")
    hello = least(HELLO) | {"agent_id": text + "a"}
    files.reject("limits", "bytes-not-characters-129", "to_hub", Envelope(1, hello), malformed(1, "agent_id"), "129 bytes")
    for level, ok in ((0, True), (1.0, True), (1.001, False), (-0.1, False), ("0.5", False)):
        update = Envelope(3, {"load": {"levels": {"order.create": level}}})
        name = f"level-{level}".replace(".", "-") + ("-text" if isinstance(level, str) else "")
        if ok:
            files.accept("limits", name, "to_hub", update, "the fill of a capability is 0 to 1", canonical=level == 1.0)
        else:
            files.reject("limits", name, "to_hub", update, malformed(3, "load.levels.order.create"), "not 0 to 1")

    chunk = {"id": 7, "seq": 0}
    many = {f"x-{n}": n for n in range(32)}
    files.accept("limits", "private-keys-32", "to_hub", Envelope(12, chunk | many), "32 private keys")
    error = malformed(12, "x-", 7)
    files.reject("limits", "private-keys-33", "to_hub", Envelope(12, chunk | many | {"x-32": 0}), error, "33 private keys")
    # Three bytes of key and three of head.
    for size, ok in ((16384, True), (16385, False)):
        private = Envelope(12, chunk | {"x-a": Long(size - 6, binary=True)})
        note = f"private keys and values of {size} bytes together"
        if ok:
            files.accept("limits", f"private-bytes-{size}", "to_hub", private, note)
        else:
            files.reject("limits", f"private-bytes-{size}", "to_hub", private, error, note)

    keys = {f"k{n}": 0 for n in range(1023)}
    same = {"reads_as": "cancel-least-to-hub"}
    files.accept("limits", "header-keys-1024", "to_hub", Envelope(15, SEVEN | keys), "1024 keys, 1023 of them unknown", **same)
    over = Envelope(15, SEVEN | keys | {"k1023": 0})
    files.reject("limits", "header-keys-1025", "to_hub", over, untrusted(), "1025 keys")
    inner = {f"k{n}": 0 for n in range(1024)}
    files.accept("limits", "inner-keys-1024", "to_hub", Envelope(15, SEVEN | {"later": inner}), "a map inside with 1024 keys", **same)
    over = Envelope(15, SEVEN | {"later": inner | {"k1024": 0}})
    files.reject("limits", "inner-keys-1025", "to_hub", over, untrusted(), "a map inside with 1025 keys")


def shapes(files: Files) -> None:
    header = joined(encode(SEVEN))
    for name, encoded in {
        "nothing": b"",
        "reserved-byte": b"\xc1",
        "nil": b"\xc0",
        "integer": b"\x0f",
        "text": b"\xa2hi",
        "map": b"\x81\xa2id\x07",
        "bin": b"\xc4\x01\x00",
        "json-text": b'[15,{"id":7}]',
        "array-of-0": b"\x90",
        "array-of-1": b"\x91\x0f",
        "array-of-4": b"\x94\x0f" + header + b"\xc0\xc0",
        "array-head-alone": b"\x93",
        "kind-alone": b"\x93\x0f",
        "header-cut": b"\x93\x0f" + header[:-1],
        "body-missing": b"\x93\x0f" + header,
        "trailing-byte": b"\x93\x0f" + header + b"\xc0\x00",
        "trailing-envelope": (b"\x93\x0f" + header + b"\xc0") * 2,
        "trailing-after-two": b"\x92\x0f" + header + b"\xc0",
    }.items():
        for direction in ("to_hub", "to_agent"):
            id = f"{name}-{direction}".replace("_", "-")
            files.reject("envelope", id, direction, one(encoded), untrusted(), "not an envelope")
    for name, kind in {"negative": -1, "float": 15.0, "text": "15", "nil": None, "true": True, "bin": b"\x0f", "array": [15]}.items():
        files.reject("envelope", f"kind-{name}", "to_hub", Envelope(kind, SEVEN), untrusted(), "a kind is an unsigned integer")
    for name, header_ in {"nil": None, "array": ["id", 7], "text": "id", "integer": 7, "bin": b"\x80", "ext": Ext(1, b"\x80")}.items():
        files.reject("envelope", f"header-{name}", "to_hub", Envelope(15, header_), untrusted(), "a header is a map")


def header_keys(files: Files) -> None:
    many = [(f"k{n}", n) for n in range(40)]
    cases: dict[str, tuple[list[tuple[Any, Any]], str]] = {
        "repeated": ([("id", 7), ("id", 7)], "a repeated key"),
        "repeated-unknown": ([("id", 7), ("a", 1), ("a", 2)], "a repeated key, even if unknown"),
        "repeated-empty": ([("id", 7), ("", 1), ("", 2)], "a repeated key, even if empty"),
        "repeated-among-many": ([("id", 7), *many, ("k3", 0)], "a repeated key far from the first"),
        "repeated-nested": ([("id", 7), ("reason", Pairs([("a", 1), ("a", 2)]))], "a repeated key in a map inside"),
        "repeated-in-list": ([("id", 7), ("later", [[Pairs([("a", 1), ("a", 2)])]])], "likewise in lists"),
        "repeated-private": ([("id", 7), ("x-a", Pairs([("a", 1), ("a", 2)]))], "likewise in a private key"),
        "integer": ([("id", 7), (1, 2)], "a key that is no string"),
        "nil": ([("id", 7), (None, 2)], "a key that is no string"),
        "bin": ([("id", 7), (b"a", 2)], "bytes are no string"),
        "array": ([("id", 7), (["a"], 2)], "a key that is no string"),
        "float": ([(1.5, 2), ("id", 7)], "a key that is no string"),
        "integer-nested": ([("id", 7), ("later", Pairs([(1, 2)]))], "a key that is no string, in a map inside"),
        "integer-private": ([("id", 7), ("x-a", [Pairs([(1, 2)])])], "likewise in a private key"),
        "not-utf-8": ([("id", 7), (Bytes(b"\xa1\xff"), 2)], "a key that is no text"),
    }
    for name, (pairs, note) in cases.items():
        files.reject("envelope", f"key-{name}", "to_hub", Envelope(15, Pairs(pairs)), untrusted(), note)
    files.reject("envelope", "key-repeated-to-agent", "to_agent", Envelope(15, Pairs([("id", 7), ("id", 8)])), untrusted(), "a repeated key")


def lengths(files: Files) -> None:
    note = "a length that promises what never comes: nothing may be allocated for it"
    for name, encoded in {
        "top-array32": "ddffffffff",
        "header-map16": "930fdeffff",
        "header-map32": "930fdfffffffff",
        "key-str32": "930f81dbffffffff6964",
        "value-str32": "930f82a26964 07a6726561736f6edbffffffff78",
        "value-bin32": "930f82a26964 07a6726561736f6ec6ffffffff78",
        "value-ext32": "930f82a26964 07a6726561736f6ec9ffffffff0178",
        "value-array32": "930f82a26964 07a6726561736f6eddffffffffc0",
        "value-map32": "930f82a26964 07a6726561736f6edfffffffffc0",
        "value-str8": "930f82a26964 07a6726561736f6ed9ff78",
        "body-bin32": "930f81a2696407c6ffffffff00",
        "body-bin16": "930f81a2696407c5ffff00",
        "body-array32": "930f81a2696407ddffffffff00",
        "body-map32": "930f81a2696407dfffffffff00",
    }.items():
        files.reject("envelope", f"bomb-{name}", "to_hub", one(bytes.fromhex(encoded)), untrusted(), note)
    bombs = Bytes([(b"\xdd\xff\xff\xff\xff", 31)])
    files.reject("envelope", "bomb-nested-array32", "to_hub", Envelope(15, SEVEN | {"later": bombs}), untrusted(), note)


def nesting(files: Files) -> None:
    def nested(levels: int) -> Envelope:
        return Envelope(15, SEVEN | {"later": Bytes([(b"\x91", levels), (b"\xc0", 1)])})

    maps = Bytes([(b"\x81\xa1a", 31), (b"\xc0", 1)])
    same = {"reads_as": "cancel-least-to-hub", "value": False}
    files.accept("limits", "header-depth-32", "to_hub", nested(31), "the header is level 1, so 31 lists fit in it", **same)
    files.accept("limits", "header-depth-32-maps", "to_hub", Envelope(15, SEVEN | {"later": maps}), "likewise maps", **same)
    files.reject("limits", "header-depth-33", "to_hub", nested(32), untrusted(), "one level more")
    over = Bytes([(b"\x81\xa1a", 32), (b"\xc0", 1)])
    files.reject("limits", "header-depth-33-maps", "to_hub", Envelope(15, SEVEN | {"later": over}), untrusted(), "one level more")
    private = Bytes([(b"\x91", 32), (b"\xc0", 1)])
    files.reject("limits", "private-depth-33", "to_hub", Envelope(12, {"id": 7, "seq": 0, "x-a": private}), untrusted(), "likewise in a private key")
    files.reject("limits", "header-depth-10000", "to_hub", nested(9999), untrusted(), "10,000 levels")
    deep = flat([one(b"\x93\x0f"), [(b"\x81\xa1a", 10000)], one(b"\xc0\xc0")])
    files.reject("limits", "header-depth-10000-maps", "to_hub", deep, untrusted(), "10,000 levels of maps")
    files.reject("limits", "arrays-10000", "to_hub", [(b"\x91", 10000)], untrusted(), "10,000 arrays and nothing in them")
    files.reject("limits", "arrays-of-three-10000", "to_hub", [(b"\x93", 10000)], untrusted(), "10,000 arrays as kinds")


def kinds(files: Files) -> None:
    for kind in (0, 6, 9, 17, 127, 2**32, 2**64 - 1):
        error = {"class": "unknown_kind", "code": "unknown_kind", "kind": kind if kind < 2**53 else {"$int": str(kind)}}
        for direction in ("to_hub", "to_agent"):
            id = f"kind-{kind}-{direction}".replace("_", "-")
            files.reject("kinds", id, direction, Envelope(kind, {}), error, "a kind that version 1 does not have")
        note = "its id goes into the answer"
        files.reject("kinds", f"kind-{kind}-with-id", "to_hub", Envelope(kind, SEVEN), error | {"id": 7}, note)
        note = "an id that is none does not"
        files.reject("kinds", f"kind-{kind}-with-text-id", "to_hub", Envelope(kind, {"id": "7"}), error, note)
    for direction, wrong in (("to_hub", (2, 5)), ("to_agent", (1, 3, 16))):
        for kind in wrong:
            error = {"class": "wrong_direction", "code": "invalid_request", "kind": kind}
            id = f"wrong-way-{kind}-{direction}".replace("_", "-")
            files.reject("kinds", id, direction, Envelope(kind, {}), error, "only the other side sends this kind")


def texts(files: Files) -> None:
    bad = Bytes(b"\xa2\xc3\x28")
    note = "a string that is not UTF-8"
    files.accept("encoding", "not-utf-8-unknown", "to_hub", Envelope(15, SEVEN | {"later": bad}), f"{note}, in a key that nobody reads", reads_as="cancel-least-to-hub", value=False)
    files.reject("text", "not-utf-8", "to_hub", Envelope(15, SEVEN | {"reason": bad}), malformed(15, "reason", 7), note)
    files.reject("text", "half-surrogate", "to_hub", Envelope(15, SEVEN | {"reason": Bytes(b"\xa3\xed\xa0\x80")}), malformed(15, "reason", 7), note)
    for name, value in {"plain": bad, "in-list": [1, [bad]], "in-map": {"a": bad}}.items():
        header = {"id": 7, "seq": 0, "x-a": value}
        why = f"{note}: it would fail whoever gets it from the hub"
        files.reject("text", f"private-not-utf-8-{name}", "to_hub", Envelope(12, header), malformed(12, "x-a", 7), why)
    failed = {"id": 7, "status": "failed", "error": {"code": "handler_error", "message": "m", "details": {"a": bad}}}
    files.reject("text", "details-not-utf-8", "to_hub", Envelope(14, failed), malformed(14, "error.details", 7), note)
    schema = {"id": 7, "capability": "order.create", "expected_output": {"a": [bad]}}
    files.reject("text", "schema-not-utf-8", "to_hub", Envelope(10, schema), malformed(10, "expected_output", 7), note)
