"""Vectors of the JSON subprotocol: what a text becomes, what bytes are shown as, and what is refused."""

from typing import Any

from msgpack import Ext, Pairs, encode, joined
from vector import ABSENT, Body, Envelope, Files, malformed, untrusted

RESULT = {"id": 7, "status": "completed"}
HEAD = '[14,{"id":7,"status":"completed"},'


def make(files: Files) -> None:
    values(files)
    incoming(files)
    outgoing(files)
    content_types(files)
    headers(files)
    faults(files)
    no_envelopes(files)
    unshown(files)


def in_(files: Files, id: str, text: str, envelope: Envelope, note: str) -> None:
    vector = {"id": f"{id}-in", "direction": "to_hub", "text": text, "bytes_hex": joined(envelope.parts()).hex()}
    files.add("json/accept/incoming.json", vector | {"note": note})


def out(files: Files, id: str, envelope: Envelope, text: str, note: str) -> None:
    vector = {"id": f"{id}-out", "direction": "to_agent", "bytes_hex": joined(envelope.parts()).hex(), "text": text}
    files.add("json/accept/outgoing.json", vector | {"note": note})


def result(value: Any) -> Envelope:
    return Envelope(14, RESULT, Body(joined(encode(value)), None))


def values(files: Files) -> None:
    """What goes both ways unchanged."""
    for id, text, value in (
        ("true", "true", True),
        ("zero", "0", 0),
        ("integer-2-53", "9007199254740992", 2**53),
        ("integer-minus-2-53", "-9007199254740992", -(2**53)),
        ("int-beyond", '{"$int":"9007199254740993"}', 2**53 + 1),
        ("int-least", '{"$int":"-9223372036854775808"}', -(2**63)),
        ("int-most", '{"$int":"18446744073709551615"}', 2**64 - 1),
        ("float", "1.5", 1.5),
        ("float-whole", "1.0", 1.0),
        ("text", '"héllo \\" \\\\ \\n"', 'héllo " \\ \n'),
        ("empty-text", '""', ""),
        ("array", "[1,[],{}]", [1, [], {}]),
        ("map", '{"a":{"b":null}}', {"a": {"b": None}}),
        ("bin", '{"$bin":"AAH/"}', b"\x00\x01\xff"),
        ("bin-empty", '{"$bin":""}', b""),
        ("time-32", '{"$time":"2020-09-13T12:26:40Z"}', Ext(-1, bytes.fromhex("5f5e1000"))),
        ("time-64", '{"$time":"1970-01-01T00:00:01.5Z"}', Ext(-1, bytes.fromhex("7735940000000001"))),
        ("time-96", '{"$time":"1969-12-31T23:59:59Z"}', Ext(-1, bytes.fromhex("00000000ffffffffffffffff"))),
        ("time-first", '{"$time":"0001-01-01T00:00:00Z"}', Ext(-1, bytes.fromhex("00000000fffffff1886e0900"))),
        ("time-last", '{"$time":"9999-12-31T23:59:59.999999999Z"}', Ext(-1, bytes.fromhex("3b9ac9ff0000003afff4417f"))),
        ("ext", '{"$ext":[5,"AQ=="]}', Ext(5, b"\x01")),
        ("ext-negative", '{"$ext":[-128,""]}', Ext(-128, b"")),
        ("ext-time-of-3-bytes", '{"$ext":[-1,"AAAA"]}', Ext(-1, b"\x00\x00\x00")),
        ("conversion-inside", '{"a":[{"$bin":"AA=="}]}', {"a": [b"\x00"]}),
        ("more-keys", '{"$bin":"AA==","a":1}', {"$bin": "AA==", "a": 1}),
        ("other-dollar", '{"$date":1}', {"$date": 1}),
    ):
        note = "the same in both directions"
        in_(files, id, f"{HEAD}{text}]", result(value), note)
        out(files, id, result(value), f"{HEAD}{text}]", note)


def incoming(files: Files) -> None:
    for id, text, value, note in (
        ("bare-wide", "9007199254740993", 2**53 + 1, "a bare integer is taken exactly"),
        ("bare-most", "18446744073709551615", 2**64 - 1, "the largest"),
        ("bare-least", "-9223372036854775808", -(2**63), "the smallest"),
        ("int-small", '{"$int":"7"}', 7, "small ones may be said this way too"),
        ("minus-zero", "-0", 0, "an integer"),
        ("minus-zero-float", "-0.0", -0.0, "a float"),
        ("exponent", "1e2", 100.0, "a float, by its exponent"),
        ("escapes", '"\\u0041\\ud83d\\ude00\\/"', "A😀/", "escapes are their characters"),
        ("white-space", ' { "a" :\t[ 1 ,\n2 ] } ', {"a": [1, 2]}, "white space says nothing"),
        ("escaped-word", '{"\\u0024int":"7"}', 7, "a conversion however its word is spelled"),
        ("time-offset", '{"$time":"1970-01-01T01:00:01+01:00"}', Ext(-1, b"\0\0\0\x01"), "an offset becomes UTC"),
    ):
        in_(files, id, f"{HEAD}{text}]", result(value), note)
    header = {"id": 7, "status": "completed"}
    in_(files, "body-null", f"{HEAD}null]", Envelope(14, header), "null is nil")
    in_(files, "body-absent", '[14,{"id":7,"status":"completed"}]', Envelope(14, header), "absent is nil")


def outgoing(files: Files) -> None:
    for id, value, text, note in (
        ("nan", float("nan"), "null", "what is no number is null"),
        ("infinity", float("inf"), "null", "what is no number is null"),
        ("minus-infinity", float("-inf"), "null", "what is no number is null"),
        ("integer-key", Pairs([(1, "a")]), '{"1":"a"}', "a key that is no string is its JSON text"),
        ("nil-key", Pairs([(None, 1), (True, 2)]), '{"null":1,"true":2}', "a key that is no string is its JSON text"),
        ("bin-key", Pairs([(b"\x00", 1)]), '{"{\\"$bin\\":\\"AA==\\"}":1}', "a key that is no string is its JSON text"),
        ("time-of-no-year", Ext(-1, b"\xff" * 12), '{"$ext":[-1,"////////////////"]}', "a timestamp that RFC 3339 cannot say"),
        ("nil-inside", None, "null", "an encoded nil and no body look alike"),
    ):
        out(files, id, result(value), f"{HEAD}{text}]", note)
    out(files, "body-nil", Envelope(14, RESULT), f"{HEAD}null]", "nil is null")
    out(files, "body-absent", Envelope(14, RESULT, ABSENT), f"{HEAD}null]", "an absent body is null")


def content_types(files: Files) -> None:
    def typed(content_type: str, encoded: bytes) -> tuple[str, Envelope]:
        head = f'[14,{{"id":7,"status":"completed","content_type":"{content_type}"}},'
        return head, Envelope(14, RESULT | {"content_type": content_type}, Body(encoded, None))

    for id, content_type, encoded, text, note in (
        ("type-json", "application/json", b'{"a":1.50}', '{"a":1.50}', "JSON text stays as it is"),
        ("type-plus-json", "application/problem+json", b"[1]", "[1]", "JSON text stays as it is"),
        ("type-parameters", "Application/JSON; charset=utf-8", b"[1]", "[1]", "case and parameters do not matter"),
        ("type-json-dollar", "application/json", b'{"$int":"ten"}', '{"$int":"ten"}', "no conversions in JSON text"),
        ("type-msgpack", "application/msgpack", b"\x05", "5", "MessagePack is converted"),
        ("type-other", "image/png", b"\x89PNG", '{"$bin":"iVBORw=="}', "other bytes"),
        ("type-text", "text/plain", b"hi", '{"$bin":"aGk="}', "text is bytes too"),
    ):
        head, envelope = typed(content_type, encoded)
        in_(files, id, f"{head}{text}]", envelope, note)
        out(files, id, envelope, f"{head}{text}]", note)
    head, envelope = typed("application/json", b"{")
    out(files, "type-json-broken", envelope, head + '{"$bin":"ew=="}]', "bytes that are no JSON are shown as bytes")


def headers(files: Files) -> None:
    in_(files, "header-wide-id", '[15,{"id":18446744073709551615}]', Envelope(15, {"id": 2**64 - 1}), "an id is exact")
    in_(files, "header-int-id", '[15,{"id":{"$int":"7"}}]', Envelope(15, {"id": 7}), "conversions hold in headers too")
    in_(files, "header-bin", '[12,{"id":7,"seq":0,"x-a":{"$bin":"AA=="}}]', Envelope(12, {"id": 7, "seq": 0, "x-a": b"\x00"}), "likewise")
    in_(files, "header-word", '[15,{"id":7,"$int":1}]', Envelope(15, {"id": 7, "$int": 1}), "an unknown key like any other")
    out(files, "header-wide-id", Envelope(15, {"id": 2**64 - 1}), '[15,{"id":{"$int":"18446744073709551615"}},null]', "an id beyond 2^53")
    accept = {"id": 7, "request_id": "r", "x-a": b"\x00"}
    out(files, "header-bin", Envelope(11, accept), '[11,{"id":7,"request_id":"r","x-a":{"$bin":"AA=="}},null]', "bytes in a header")


def reject(files: Files, id: str, text: Any, error: dict[str, Any], note: str) -> None:
    said = {"text": text} if isinstance(text, str) else {"text_parts": text}
    files.add("json/reject/incoming.json", {"id": id, "direction": "to_hub"} | said | {"error": error, "note": note})


def faults(files: Files) -> None:
    error = malformed(14, "body", 7)
    for id, text in (
        ("int-text", '{"$int":"ten"}'),
        ("int-bare", '{"$int":7}'),
        ("int-plus", '{"$int":"+7"}'),
        ("int-zeros", '{"$int":"007"}'),
        ("int-fraction", '{"$int":"7.0"}'),
        ("int-over", '{"$int":"18446744073709551616"}'),
        ("int-under", '{"$int":"-9223372036854775809"}'),
        ("bin-text", '{"$bin":"?"}'),
        ("bin-unpadded", '{"$bin":"AA"}'),
        ("bin-url-alphabet", '{"$bin":"_-8="}'),
        ("bin-null", '{"$bin":null}'),
        ("time-date", '{"$time":"2020-09-13"}'),
        ("time-number", '{"$time":1600000000}'),
        ("time-year-0", '{"$time":"0000-12-31T23:59:59Z"}'),
        ("time-leap-second", '{"$time":"2016-12-31T23:59:60Z"}'),
        ("time-ten-digits", '{"$time":"2020-09-13T12:26:40.0000000001Z"}'),
        ("ext-type-128", '{"$ext":[128,""]}'),
        ("ext-type-float", '{"$ext":[1.0,""]}'),
        ("ext-of-one", '{"$ext":[1]}'),
        ("ext-bytes", '{"$ext":[1,"?"]}'),
        ("ext-map", '{"$ext":{"type":1}}'),
        ("bare-over", "18446744073709551616"),
        ("bare-under", "-9223372036854775809"),
        ("float-over", "1e400"),
        ("inside", '{"a":[{"$int":"ten"}]}'),
        ("half-surrogate", '"\\ud800"'),
        ("half-surrogate-key", '{"\\udc00":1}'),
        ("repeated-key", '{"a":1,"a":2}'),
        ("repeated-key-escaped", '[{"a":1,"\\u0061":2}]'),
    ):
        reject(files, f"body-{id}", f"{HEAD}{text}]", error, "a value of a body without a MessagePack form")
    deep = [[HEAD, 1], ["[", 129], ["]", 129], ["]", 1]]
    reject(files, "body-depth-129", deep, error, "a body nested deeper than 128")
    deep = [[HEAD, 1], ["[", 10000], ["]", 10000], ["]", 1]]
    reject(files, "body-depth-10000", deep, error, "10,000 levels")
    other = '[14,{"id":7,"status":"completed","content_type":"image/png"},'
    for id, text in (("text", '"iVBORw=="'), ("map", '{"$bin":"AA==","a":1}'), ("int", '{"$int":"1"}')):
        reject(files, f"type-other-{id}", f"{other}{text}]", error, "bytes of another type are {\"$bin\": base64} only")

    for id, text, field, number in (
        ("private", '[12,{"id":7,"seq":0,"x-a":{"$int":"ten"}}]', "x-a", 7),
        ("private-inside", '[12,{"id":7,"seq":0,"x-a":[{"$bin":1}]}]', "x-a", 7),
        ("unknown", '[12,{"id":7,"seq":0,"later":{"$ext":[]}}]', "later", 7),
        ("id-over", '[12,{"id":18446744073709551616,"seq":0}]', "id", None),
        ("id-float", '[12,{"id":7.0,"seq":0}]', "id", None),
        ("id-text", '[12,{"id":"7","seq":0}]', "id", None),
        ("id-word", '[12,{"id":{"$int":"seven"},"seq":0}]', "id", None),
    ):
        reject(files, f"header-{id}", text, malformed(12, field, number), "a header that is wrong, in an envelope that is one")


def no_envelopes(files: Files) -> None:
    for id, text, note in (
        ("nothing", "", "not JSON"),
        ("word", "hello", "not JSON"),
        ("object", '{"kind":15}', "not an array"),
        ("array-of-0", "[]", "not two or three"),
        ("array-of-1", "[15]", "not two or three"),
        ("array-of-4", '[15,{"id":7},null,null]', "not two or three"),
        ("trailing-comma", '[15,{"id":7},]', "not JSON"),
        ("trailing-text", '[15,{"id":7}] 1', "text behind the envelope"),
        ("cut", '[15,{"id":7}', "not JSON"),
        ("byte-order-mark", '\ufeff[15,{"id":7}]', "not JSON"),
        ("nan", '[15,{"id":NaN}]', "not JSON"),
        ("kind-float", '[15.0,{"id":7}]', "a kind is an unsigned integer"),
        ("kind-text", '["15",{"id":7}]', "a kind is an unsigned integer"),
        ("kind-negative", '[-15,{"id":7}]', "a kind is an unsigned integer"),
        ("kind-over", '[18446744073709551616,{"id":7}]', "a kind is an unsigned integer"),
        ("header-array", '[15,["id",7]]', "a header is a map"),
        ("header-null", "[15,null]", "a header is a map"),
        ("repeated-key", '[15,{"id":7,"id":7}]', "a repeated key"),
        ("repeated-key-escaped", '[15,{"id":7,"\\u0069d":7}]', "a repeated key, spelled in another way"),
        ("repeated-key-inside", '[15,{"id":7,"later":{"a":1,"a":2}}]', "a repeated key in a map inside"),
    ):
        reject(files, f"envelope-{id}", text, untrusted(), note)
    for levels in (32, 64, 10000):
        deep = [['[15,{"id":7,"later":', 1], ["[", levels], ["]", levels], ["}]", 1]]
        reject(files, f"header-depth-{levels + 1}", deep, untrusted(), "a header nested deeper than 32")
    deep = [["[", 10000], ["]", 10000]]
    reject(files, "kind-depth-10000", deep, untrusted(), "10,000 arrays")


def unshown(files: Files) -> None:
    error = {"class": "unconvertible"}
    for id, encoded, note in (
        ("no-bytes", b"", "no value at all"),
        ("cut", b"\x92\x01", "ends inside a value"),
        ("two-values", b"\x01\x02", "bytes behind the value"),
        ("reserved", b"\xc1", "no MessagePack"),
        ("not-utf-8", b"\xa2\xc3\x28", "a string that JSON cannot say"),
        ("depth-129", b"\x91" * 129 + b"\xc0", "nested deeper than 128"),
        ("keys-in-keys", b"\x81" * 4 + b"\x00" + b"\x00" * 4, "four keys that are no strings inside each other"),
    ):
        envelope = Envelope(14, RESULT, Body(encoded, None))
        vector = {"id": f"unshown-{id}", "direction": "to_agent", "bytes_hex": joined(envelope.parts()).hex()}
        files.add("json/reject/outgoing.json", vector | {"error": error, "note": note})
