"""The session as a caller. No socket, no clock."""

from itertools import pairwise
from typing import Any

import pytest
from sessions import World

from agent_reach.codec import Envelope
from agent_reach.codes import Accepted, Kind
from agent_reach.errors import CallError
from agent_reach.session.types import (
    Acceptance,
    Arrived,
    Chunk,
    Ended,
    Hand,
    Part,
    Payload,
    RawReply,
    Tell,
)

DONE = {"status": "completed"}


def failed(code: str, **more: Any) -> dict[str, Any]:
    return {"status": "failed", "error": {"code": code, "message": "m", "retryable": False}, **more}


def tried(outcome: str) -> list[dict[str, Any]]:
    return [{"target": "p", "outcome": outcome, "ms": 1, "reason": ""}]


def end(world: World, key: int | None = None) -> RawReply | CallError:
    ends = [own for own in world.effects() if isinstance(own, Tell) and isinstance(own.event, Ended)]
    assert len(ends) == 1, ends
    assert key is None or ends[0].key == key
    assert isinstance(ends[0].event, Ended)
    return ends[0].event.result


def error(world: World) -> CallError:
    result = end(world)
    assert isinstance(result, CallError)
    return result


def test_ids_of_the_session_are_kept_ten_minutes_and_the_programs_own_as_the_hub_does() -> None:
    """CALL-2, CALL-3."""
    world = World.ready()
    world.ask()
    world.ask(request_id="mine")
    world.ask(request_id="mine", keep_ms=5)
    made, mine, kept = [own.header for own in world.sent()]
    assert made["keep_ms"] == 600_000
    assert made.keys() == {"id", "request_id", "capability", "keep_ms"}
    assert mine == {"id": 2, "request_id": "mine", "capability": "x"}
    assert kept["keep_ms"] == 5
    other = World.ready(seed=2)
    other.ask()
    assert other.sent()[0].header["request_id"] != made["request_id"]


def test_a_call_ends_once_and_what_comes_after_is_nothing() -> None:
    """CALL-1."""
    world = World.ready()
    key = world.ask()
    world.say(Kind.ACCEPT, {"id": 1, "target": "p", "call_id": "c", "would_timeout": True, "wait_ms": 7000})
    told = world.effect(Tell)
    assert isinstance(told.event, Acceptance)
    assert (told.event.target, told.event.wait) == ("p", 7.0)
    world.say(Kind.RESULT, {"id": 1, **DONE}, b"\x07")
    result = end(world, key)
    assert isinstance(result, RawReply)
    assert result.payload == Payload(b"\x07")
    for kind, header in ((Kind.RESULT, {"id": 1, **DONE}), (Kind.CHUNK, {"id": 1, "seq": 0}), (Kind.ACCEPT, {"id": 1})):
        world.say(kind, header)
    assert world.effects() == []


@pytest.mark.parametrize(
    ("result", "seen", "accepted"),
    [
        (failed("handler_error"), False, "yes"),
        (failed("timeout"), False, "yes"),
        (failed("overloaded"), False, "no"),
        (failed("no_capability"), False, "no"),
        ({"status": "no_instance"}, False, "no"),
        (failed("cancelled"), False, "unknown"),
        (failed("news"), False, "unknown"),
        (failed("overloaded"), True, "yes"),
        (
            failed("overloaded", attempts=[{"target": "p", "outcome": "agent_lost", "ms": 1, "reason": ""}]),
            False,
            "unknown",
        ),
        (failed("agent_lost", attempts=[{"target": "p", "outcome": "timeout", "ms": 1, "reason": ""}]), False, "yes"),
    ],
)
def test_a_failure_says_whether_a_provider_had_it(result: dict[str, Any], seen: bool, accepted: str) -> None:
    """ERR-1, ERR-2."""
    world = World.ready()
    world.ask()
    if seen:
        world.say(Kind.ACCEPT, {"id": 1})
        world.effects()
    world.say(Kind.RESULT, {"id": 1, **result})
    assert error(world).accepted == accepted


def test_degraded_says_its_cause() -> None:
    """ERR-1."""
    world = World.ready()
    world.ask()
    cause = {"code": "rate_limited", "message": "slow", "retryable": True, "details": [1]}
    world.say(
        Kind.RESULT, {"id": 1, "status": "failed", "error": {**cause, "code": "degraded", "details": {"cause": cause}}}
    )
    said = error(world)
    assert (said.code, said.accepted) == ("degraded", Accepted.NO)
    assert said.cause is not None
    assert (said.cause.code, said.cause.retryable, said.cause.details) == ("rate_limited", True, [1])


def test_so_many_calls_as_the_hub_takes_are_on_the_wire_and_a_thousand_wait() -> None:
    """CALL-6."""
    world = World.ready()
    for n in range(4 + 1024):
        world.ask(body=bytes([n % 100]))
    assert len(world.sent()) == 4
    assert world.effects() == []
    world.ask()
    assert (said := error(world)).code == "overloaded"
    assert said.accepted is Accepted.NO
    world.say(Kind.RESULT, {"id": 2, **DONE})
    (call,) = world.sent()
    assert (call.header["id"], call.body) == (5, b"\x04")


def test_a_message_over_the_limit_fails_its_call_and_no_other() -> None:
    """CALL-5."""
    world = World.ready()
    world.ask()
    world.ask(body=b"x" * 1000)
    assert (said := error(world)).code == "payload_too_large"
    assert said.accepted is Accepted.NO
    world.ask()
    assert world.kinds() == ["CALL", "CALL"]


def test_a_budget_counts_from_the_call_and_what_is_left_is_said() -> None:
    """CALL-7."""
    world = World()
    world.session.start(world.now)
    world.ask(budget=10)
    world.ask()
    world.effects()
    world.later(4)
    sent = world.connect()
    budgets = [own.header.get("budget_ms") for own in sent if own.kind is Kind.CALL]
    assert budgets == [6000, None]
    world.effects()
    world.later(6 + 4.9)
    assert not [own for own in world.effects() if isinstance(own, Tell)]
    world.later(0.2)
    said = error(world)
    assert (said.code, said.accepted) == ("budget_exhausted", Accepted.UNKNOWN)
    assert "CANCEL" in world.kinds()


def test_without_a_connection_a_call_waits_a_minute_and_a_task_a_day() -> None:
    """CALL-7."""
    world = World()
    world.session.start(world.now)
    world.effects()
    world.ask()
    task = world.ask(mode="task")
    world.later(59.9)
    assert world.effects() == []
    world.later(0.2)
    said = error(world)
    assert (said.code, said.accepted) == ("budget_exhausted", Accepted.NO)
    world.later(86_400)
    assert end(world, task)


def test_who_lets_go_before_the_call_left_sends_nothing_and_cancel_never_overtakes() -> None:
    """CALL-8, BOUND-2."""
    world = World.ready()
    first = world.ask()
    world.session.cancel(world.now, first)
    assert world.sent() == []
    second = world.ask()
    assert world.kinds() == ["CALL"]
    world.session.cancel(world.now, second)
    (cancel,) = world.sent()
    assert cancel.header == {"id": 2}
    world.say(Kind.RESULT, {"id": 2, **failed("cancelled")})
    assert world.effects() == []
    third = world.ask()
    world.sent()
    world.session.withdraw(world.now, third)
    assert world.sent()[0].header == {"id": 3, "wait": True}
    world.say(Kind.RESULT, {"id": 3, **DONE}, b"\x01")
    assert isinstance(end(world, third), RawReply)


def test_a_fault_ends_the_call_that_it_names() -> None:
    """CALL-9, ERR-3."""
    world = World.ready()
    keys = [world.ask() for _ in range(3)]
    world.sent()
    world.say(Kind.ERROR, {"ref_kind": 10, "id": 1, "code": "invalid_request", "message": "m"})
    world.say(Kind.RESULT, {"id": 2, "status": "what"})
    world.say(Kind.CHUNK, {"id": 3, "seq": -1})
    told = [own for own in world.effects() if isinstance(own, Tell)]
    codes = [
        own.event.result.code
        for own in told
        if isinstance(own.event, Ended) and isinstance(own.event.result, CallError)
    ]
    assert ([own.key for own in told], codes) == (keys, ["invalid_request", "decode", "interrupted"])
    world.say(Kind.ERROR, {"ref_kind": 3, "code": "invalid_request", "message": "m"})
    assert world.effects() == []


def chunks(world: World) -> list[int]:
    return [own.event.seq for own in world.effects() if isinstance(own, Tell) and isinstance(own.event, Chunk)]


def test_a_gap_ends_a_stream_and_a_repetition_gives_its_credit_back() -> None:
    """STREAM-1."""
    world = World.ready()
    world.ask(window=4)
    assert world.sent()[0].header["credit"] == 4
    for seq in (0, 1, 0):
        world.say(Kind.CHUNK, {"id": 1, "seq": seq}, b"\x01")
    assert chunks(world) == [0, 1]
    assert world.sent()[0].header == {"id": 1, "n": 1}
    world.say(Kind.CHUNK, {"id": 1, "seq": 3}, b"\x01")
    said = error(world)
    assert (said.code, said.accepted) == ("interrupted", Accepted.YES)
    assert world.kinds() == ["CANCEL"]


def test_a_stream_that_is_asked_again_grants_what_is_left_of_its_window() -> None:
    """STREAM-5, STREAM-3."""
    world = World.ready()
    key = world.ask(window=4)
    for seq in (0, 1, 2):
        world.say(Kind.CHUNK, {"id": 1, "seq": seq}, b"\x01")
    world.session.consumed(world.now, key, 2)
    world.session.lost(world.now)
    call = world.connect()[-1]
    assert (call.header["credit"], call.header["id"]) == (3, 2)
    world.effects()
    world.say(Kind.CHUNK, {"id": 2, "seq": 3}, b"\x01")
    assert chunks(world) == [3]
    watch = World.ready()
    watch.ask("hub.events.watch", window=4)
    watch.say(Kind.CHUNK, {"id": 1, "seq": 0}, b"\x01")
    watch.session.lost(watch.now)
    assert watch.connect()[-1].header["credit"] == 4
    watch.effects()
    watch.say(Kind.CHUNK, {"id": 2, "seq": 0}, b"\x01")
    assert chunks(watch) == [0]


def test_open_calls_go_out_again_the_oldest_first_under_their_ids() -> None:
    """RESUME-1, ERR-2, K30."""
    world = World.ready()
    for n in range(6):
        world.ask(body=bytes([n]))
    before = [own.header["request_id"] for own in world.sent()]
    for _ in range(3):
        world.session.lost(world.now)
        calls = [own for own in world.connect() if own.kind is Kind.CALL]
        assert [own.body for own in calls] == [b"\x00", b"\x01", b"\x02", b"\x03"]
        assert [own.header["request_id"] for own in calls] == before
        world.effects()
    world.say(Kind.RESULT, {"id": calls[0].header["id"], **failed("overloaded")})
    assert error(world).accepted is Accepted.UNKNOWN


def test_nobody_there_right_after_a_return_is_asked_again_for_ten_seconds() -> None:
    """RESUME-2."""
    world = World.ready()
    world.ask()
    world.sent()
    world.session.lost(world.now)
    id = world.connect()[-1].header["id"]
    world.effects()
    returned, asked = world.now, [world.now]
    while True:
        world.session.alive(world.now)
        world.say(Kind.RESULT, {"id": id, "status": "no_instance"})
        if world.effects():
            break
        for _ in range(100):
            due = world.session.next_timeout
            assert due is not None
            world.at(due)
            calls = [own for own in world.sent() if own.kind is Kind.CALL]
            if calls:
                break
        id = calls[0].header["id"]
        asked.append(world.now)
    gaps = [round(b - a, 3) for a, b in pairwise(asked)]
    assert gaps[:6] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert 8 < asked[-1] - returned <= 10
    fresh = World.ready()
    fresh.ask()
    fresh.say(Kind.RESULT, {"id": 1, "status": "no_instance"})
    assert error(fresh).code == "no_instance"
    tried = World.ready()
    tried.ask()
    tried.session.lost(tried.now)
    id = tried.connect()[-1].header["id"]
    tried.effects()
    attempts = [{"target": "p", "outcome": "agent_lost", "ms": 1, "reason": ""}]
    tried.say(Kind.RESULT, {"id": id, "status": "no_instance", "attempts": attempts})
    assert error(tried).code == "no_instance"


def test_shutting_down_that_crosses_a_goodbye_is_carried_over() -> None:
    """RESUME-3."""
    world = World.ready()
    world.ask()
    world.say(Kind.GOODBYE, {"code": "draining"})
    world.effects()
    world.say(Kind.RESULT, {"id": 1, **failed("shutting_down")})
    assert not [own for own in world.effects() if isinstance(own, Tell)]
    world.session.lost(world.now, 4000)
    assert world.connect()[-1].kind is Kind.CALL


def test_each_part_of_a_fan_out_is_told_once_with_its_own_end() -> None:
    """CALL-11."""
    world = World.ready()
    world.ask(select="all", window=4)
    for target in ("a", "b"):
        world.say(Kind.CHUNK, {"id": 1, "seq": 0, "target": target}, b"\x01")
    assert chunks(world) == [0, 0]
    world.say(Kind.CHUNK, {"id": 1, "seq": 2, "target": "b"}, b"\x01")
    part = world.effect(Tell).event
    assert isinstance(part, Part)
    assert isinstance(part.result, CallError)
    assert (part.target, part.result.code) == ("b", "interrupted")
    for target in ("a", "b", "a"):
        world.say(Kind.RESULT, {"id": 1, **DONE, "target": target, "more": True}, b"\x02")
    assert [own.event.target for own in world.effects() if isinstance(own, Tell) and isinstance(own.event, Part)] == [
        "a"
    ]
    world.say(Kind.RESULT, {"id": 1, "status": "failed", "summary": {"targets": 2, "completed": 1, "failed": 1}})
    result = end(world)
    assert isinstance(result, RawReply)
    assert result.header["summary"]["failed"] == 1


def stored(world: World, task_id: str = "t") -> int:
    key = world.ask(mode="task")
    id = world.sent()[-1].header["id"]
    world.say(Kind.ACCEPT, {"id": id, "task_id": task_id})
    world.effects()
    return key


def test_a_stored_task_is_not_sent_again_and_its_result_is_told_once() -> None:
    """TASK-2, RESUME-4."""
    world = World.ready()
    key = stored(world)
    world.session.lost(world.now)
    assert [own.kind for own in world.connect()] == [Kind.HELLO]
    world.effects()
    for n in range(3):
        world.say(Kind.RESULT, {**DONE, "task_id": "t", "request_id": "r"}, b"\x01")
        told = [own for own in world.effects() if isinstance(own, Tell)]
        assert [own.key for own in told] == ([key] if n == 0 else [])
        assert world.sent()[0].header == {"task_id": "t"}


def test_a_result_without_a_handle_waits_in_the_inbox_unconfirmed() -> None:
    """TASK-3, TASK-4, TASK-5."""
    world = World.ready()
    key = stored(world)
    world.session.forget(world.now, key)
    for _ in range(2):
        world.say(Kind.RESULT, {**DONE, "task_id": "t"}, b"\x01")
    assert world.effect(Arrived).end.task_id == "t"
    assert world.sent() == []
    world.session.claim(world.now, 77, "t")
    assert world.effects() == [Hand(77, "t")]
    world.session.received(world.now, "t")
    assert world.kinds() == ["RECEIPT"]
    full = World.ready()
    for n in range(300):
        full.say(Kind.RESULT, {**DONE, "task_id": f"t{n}"}, b"\x01")
    assert len(full.effects()) == 256


def test_a_task_whose_submitter_just_let_go_goes_to_the_inbox() -> None:
    """TASK-3, TASK-4."""
    world = World.ready()
    key = stored(world)
    world.session.cancel(world.now, key)
    world.say(Kind.RESULT, {**DONE, "task_id": "t"}, b"\x01")
    assert world.effect(Arrived)


def test_a_repetition_of_an_ended_task_has_its_end_at_once() -> None:
    """TASK-6."""
    world = World.ready()
    key = world.ask(mode="task")
    world.say(Kind.RESULT, {"id": 1, **DONE, "task_id": "t", "duplicate": True}, b"\x01")
    assert isinstance(end(world, key), RawReply)
    assert sorted(world.kinds()) == ["CALL", "RECEIPT"]


def test_thousands_of_ended_calls_leave_nothing_behind() -> None:
    """BOUND-1."""
    world = World.ready()
    for n in range(1, 3000):
        world.ask(budget=30)
        world.say(Kind.RESULT, {"id": n, **DONE})
        world.sent()
        world.effects()
    asked = world.session._asked
    assert asked.is_empty
    assert len(asked._deadlines) < 100
    assert not asked._by_id


def cut(world: World) -> list[Tell]:
    """The hub ends the connection as a slow consumer's, and the agent comes back; the ends of calls."""
    world.say(Kind.GOODBYE, {"code": "slow_consumer"})
    ends = [own for own in world.effects() if isinstance(own, Tell)]
    world.session.lost(world.now, 4002, "")
    return ends


def asked(sent: list[Envelope]) -> list[int]:
    """The ids of what was asked."""
    return [own.header["id"] for own in sent if own.kind is Kind.CALL]


def test_after_slow_consumer_calls_go_out_one_after_the_other() -> None:
    """BACK-7."""
    world = World.ready()
    for _ in range(4):
        world.ask()
    assert len(asked(world.sent())) == 4
    assert cut(world) == []
    (first,) = asked(world.connect())
    # The next one goes when one has ended ...
    world.say(Kind.RESULT, {"id": first, "status": "completed"})
    (second,) = asked(world.sent())
    # ... or when its pause is over.
    world.later(0.19)
    assert asked(world.sent()) == []
    world.later(0.02)
    assert asked(world.sent()) == [second + 1]
    world.later(0.21)
    assert asked(world.sent()) == [second + 2]
    # Everything is out: what is new has no pause.
    world.say(Kind.RESULT, {"id": second, "status": "completed"})
    world.ask()
    world.ask()
    assert len(asked(world.sent())) == 2


def test_a_call_whose_connection_ends_as_a_slow_consumers_five_times_in_a_row_fails() -> None:
    """BACK-7."""
    world = World.ready()
    key = world.ask()
    for _ in range(2):
        assert cut(world) == []
        assert len(asked(world.connect())) == 1
    world.later(20)
    for _ in range(4):
        assert cut(world) == []
        assert len(asked(world.connect())) == 1
    (told,) = cut(world)
    assert told.key == key
    assert isinstance(told.event, Ended)
    error = told.event.result
    assert isinstance(error, CallError)
    assert (error.code, error.accepted, error.retryable) == ("overloaded", "unknown", True)
    assert asked(world.connect()) == []
