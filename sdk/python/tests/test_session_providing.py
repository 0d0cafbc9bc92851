"""The session as a provider. No socket, no clock."""

from typing import Any

import pytest
from sessions import World

from agent_reach.codes import Kind
from agent_reach.session.types import (
    AbortRun,
    CancelRun,
    Failure,
    Grant,
    Note,
    Offer,
    Past,
    Payload,
    Run,
    WriteNote,
)

DONE = Payload(b"\x2a")


def started(world: World) -> list[int]:
    return [own.call.run for own in world.effects() if isinstance(own, Run)]


def result(world: World) -> dict[str, Any]:
    (own,) = [own for own in world.sent() if own.kind is Kind.RESULT]
    return own.header


def test_a_quick_result_stands_for_accept_and_a_slow_handler_is_accepted() -> None:
    """PROV-5."""
    world = World.ready()
    world.call(1)
    world.session.finished(world.now, 1, DONE)
    (quick,) = world.sent()
    assert (quick.kind, quick.body) == (Kind.RESULT, DONE.body)
    world.call(2, "s")
    world.later(0.004)
    assert world.sent() == []
    world.later(0.001)
    assert [own.header for own in world.sent()] == [{"id": 2}]
    world.later(1)
    assert world.sent() == []


def test_what_is_over_the_bound_or_unknown_is_refused() -> None:
    """PROV-4, PROV-7, PROV-14."""
    world = World.ready(max_concurrency=1)
    world.call(1)
    world.call(2, "s")
    assert result(world)["error"]["code"] == "overloaded"
    world.call(3, "t", capability="nothing")
    assert result(world)["error"]["code"] == "unsupported"
    world.say(Kind.CALL, {"id": 4, "capability": "work"})
    assert result(world) | {"error": None} == {"id": 4, "status": "failed", "error": None}


def test_calls_beyond_a_capabilitys_own_bound_wait_in_order_and_say_so() -> None:
    """PROV-4, PROV-12."""
    world = World.ready()
    world.session.add(world.now, Offer({"name": "work"}, 1))
    world.sent()
    for id in (1, 2, 3):
        world.call(id, str(id), preferred_timeout_ms=3000)
    assert started(world) == [1]
    world.later(0.005)
    assert [own.header.get("queue_depth") for own in world.sent()] == [None, 0, 1]
    world.later(2)
    world.session.finished(world.now, 1, DONE)
    assert started(world) == [2]
    world.sent()
    # Two seconds is what it took; whoever comes now has one before it and one that runs.
    world.call(4, "4", preferred_timeout_ms=3000)
    world.later(0.005)
    (accept,) = world.sent()
    assert (accept.header["would_timeout"], round(accept.header["wait_ms"] / 1000)) == (True, 6)
    world.say(Kind.CANCEL, {"id": 3})
    assert result(world)["error"]["code"] == "cancelled"
    world.session.finished(world.now, 2, DONE)
    assert started(world) == [4]


def test_a_handler_that_says_its_time_warns_who_would_like_it_sooner() -> None:
    """PROV-12."""
    world = World.ready()
    world.call(1, preferred_timeout_ms=1000)
    world.session.would_take(world.now, 1, 0.5)
    assert world.sent() == []
    world.session.would_take(world.now, 1, 9.0)
    assert world.sent()[0].header == {"id": 1, "would_timeout": True, "wait_ms": 9000}


def test_chunks_leave_within_the_credit_and_the_end_after_them() -> None:
    """PROV-10, STREAM-1."""
    world = World.ready()
    world.call(1, stream=True, credit=2)
    assert world.effect(Run).call.credit == 2
    for n in range(3):
        world.session.emit(world.now, 1, Payload(bytes([n])))
    world.session.finished(world.now, 1, DONE)
    sent = world.sent()
    assert [(own.kind.name, own.header.get("seq")) for own in sent] == [("CHUNK", 0), ("CHUNK", 1)]
    world.say(Kind.CREDIT, {"id": 1, "n": 1})
    assert world.kinds() == ["CHUNK", "RESULT"]
    other = World.ready()
    other.call(1, stream=True, credit=1)
    other.effects()
    other.say(Kind.CREDIT, {"id": 1, "n": 5})
    assert other.effects() == [Grant(1, 5)]


def test_a_result_that_is_too_large_says_so() -> None:
    """PROV-8."""
    world = World.ready()
    world.call(1)
    world.session.finished(world.now, 1, Payload(b"x" * 2000))
    error = result(world)["error"]
    assert error["code"] == "handler_error"
    assert "hub takes 1000" in error["message"]
    world.call(2, "s")
    world.session.finished(world.now, 2, Failure("handler_error", "m", details="x" * 2000))
    assert "details" not in result(world)["error"]


def test_cancel_tells_the_handler_and_does_without_it_after_the_grace() -> None:
    """PROV-9."""
    world = World.ready(grace=5.0)
    world.call(1)
    world.effects()
    world.say(Kind.CANCEL, {"id": 1})
    assert world.effects() == [CancelRun(1)]
    world.later(4.9)
    assert "RESULT" not in world.kinds()
    world.later(0.2)
    assert AbortRun(1) in world.effects()
    assert result(world)["error"]["code"] == "cancelled"
    world.session.finished(world.now, 1, DONE)
    assert world.sent() == []


def test_whatever_a_cancelled_handler_fails_with_is_cancelled() -> None:
    """PROV-9, ONCE-2."""
    world = World.ready()
    world.call(1)
    world.say(Kind.CANCEL, {"id": 1})
    world.session.finished(world.now, 1, Failure("handler_error", "torn down"))
    assert result(world)["error"]["code"] == "cancelled"
    world.effects()
    world.call(2)
    assert started(world) == [2]


def test_a_handler_that_completes_in_spite_of_cancel_is_answered_so() -> None:
    """PROV-9."""
    world = World.ready()
    world.call(1)
    world.say(Kind.CANCEL, {"id": 1})
    world.session.finished(world.now, 1, DONE)
    assert result(world)["status"] == "completed"


def test_a_repeated_call_joins_the_handler_and_its_answers_go_to_the_newest() -> None:
    """ONCE-1."""
    world = World.ready()
    world.call(1, stream=True, credit=3)
    assert started(world) == [1]
    for n in range(2):
        world.session.emit(world.now, 1, Payload(bytes([n])))
    world.sent()
    world.session.lost(world.now)
    world.connect()
    world.effects()
    world.call(7, stream=True, credit=3, attempt=2)
    assert started(world) == []
    sent = world.sent()
    assert [(own.kind.name, own.header["id"], own.header.get("seq")) for own in sent] == [
        ("ACCEPT", 7, None),
        ("CHUNK", 7, 0),
        ("CHUNK", 7, 1),
    ]
    world.session.finished(world.now, 1, DONE)
    assert result(world)["id"] == 7


def test_an_end_is_told_again_for_ten_minutes_without_a_second_run() -> None:
    """ONCE-2."""
    world = World.ready()
    world.call(1, stream=True, credit=9)
    world.session.emit(world.now, 1, Payload(b"\x01"))
    world.session.finished(world.now, 1, DONE)
    world.sent()
    world.effects()
    world.call(2, stream=True, credit=9)
    assert world.kinds() == ["CHUNK", "RESULT"]
    assert started(world) == []
    others: list[dict[str, Any]] = [{"caller": "her"}, {"capability": "other"}, {"request_id": "s"}]
    for different in others:
        world.call(3, **{"request_id": "r", **different})
        assert len(started(world)) == 1
    for _ in range(601):
        world.session.alive(world.now)
        world.later(1)
    world.sent()
    world.effects()
    world.call(9, stream=True, credit=9)
    assert len(started(world)) == 1


@pytest.mark.parametrize(
    ("outcome", "again"),
    [
        (DONE, False),
        (Failure("handler_error", "m"), False),
        (Failure("handler_error", "m", True), True),
        (Failure("cancelled", "m"), True),
    ],
)
def test_only_what_another_try_may_mend_runs_again(outcome: Any, again: bool) -> None:
    """ONCE-2."""
    world = World.ready()
    world.call(1)
    world.session.finished(world.now, 1, outcome)
    world.effects()
    world.call(2)
    assert bool(started(world)) is again


def test_handlers_go_on_without_a_connection_until_their_deadline_and_half_a_minute() -> None:
    """ONCE-3."""
    world = World.ready()
    world.call(1, "short", deadline_ms=1000)
    world.call(2, "long", deadline_ms=90_000)
    world.effects()
    world.session.lost(world.now)
    world.later(29.9)
    assert not [own for own in world.effects() if isinstance(own, CancelRun)]
    world.later(0.2)
    assert [own.run for own in world.effects() if isinstance(own, CancelRun)] == [1]
    world.later(60)
    assert [own.run for own in world.effects() if isinstance(own, CancelRun)] == [2]


def test_an_end_while_the_hub_is_away_is_told_when_it_asks() -> None:
    """ONCE-2, ONCE-3."""
    world = World.ready()
    world.call(1)
    world.session.lost(world.now)
    world.session.finished(world.now, 1, DONE)
    world.connect()
    world.effects()
    world.call(5, attempt=2)
    assert result(world)["id"] == 5
    assert started(world) == []


def test_a_call_that_comes_while_its_handler_is_cancelled_runs_after_it() -> None:
    """ONCE-4."""
    world = World.ready()
    world.call(1)
    world.say(Kind.CANCEL, {"id": 1})
    world.effects()
    world.sent()
    world.call(2)
    assert result(world)["id"] == 1
    assert started(world) == []
    world.session.finished(world.now, 1, Failure("cancelled", "m"))
    assert started(world) == [2]
    world.session.finished(world.now, 2, DONE)
    assert result(world)["id"] == 2


def test_a_stream_whose_beginning_is_gone_cannot_be_told_again() -> None:
    """ONCE-5."""
    world = World()
    world.session.start(world.now)
    world.connect(max_message=1 << 20)
    world.call(1, stream=True, credit=100)
    for _ in range(3):
        world.session.emit(world.now, 1, Payload(b"x" * 600_000))
    world.effects()
    world.session.lost(world.now)
    world.connect(max_message=1 << 20)
    world.call(2, stream=True, credit=100)
    assert AbortRun(1) in world.effects()
    assert "no longer kept" in result(world)["error"]["message"]


def notes(world: World) -> list[Note]:
    return [own.note for own in world.effects() if isinstance(own, WriteNote)]


def test_with_a_dedupe_store_a_run_is_noted_before_it_begins_and_a_task_before_it_is_told() -> None:
    """ONCE-6."""
    world = World.ready(past=[])
    world.call(1, mode="task", task_id="t")
    (begun,) = notes(world)
    assert (begun.word, begun.run, begun.task) == ("begun", 1, True)
    world.session.noted(world.now, 1)
    assert started(world) == [1]
    world.session.finished(world.now, 1, DONE)
    (ended,) = notes(world)
    assert (ended.word, ended.outcome) == ("ended", DONE)
    assert "RESULT" not in world.kinds()
    world.session.noted(world.now, 1)
    assert world.kinds() == ["RESULT"]


def test_another_life_answers_from_the_store_and_not_for_another_body() -> None:
    """ONCE-6."""
    first = World.ready(past=[])
    first.call(1)
    (begun,) = notes(first)
    ended = [Past(begun.intent, begun.fingerprint, DONE, 0.5, 10.0)]
    world = World.ready(past=ended)
    world.call(1)
    assert result(world)["status"] == "completed"
    world.call(2, body=b"\x02")
    assert notes(world)[0].word == "begun"
    unknown = Failure("handler_error", "restarted", details={"code": "interrupted"})
    world = World.ready(past=[Past(begun.intent, begun.fingerprint, unknown, 0.0, 0.0)])
    world.call(1)
    assert result(world)["error"]["details"] == {"code": "interrupted"}
    world = World.ready(past=[])
    world.session.add(world.now, Offer({"name": "work", "idempotent": True}))
    world.call(1)
    assert notes(world) == []


def test_control_overtakes_bodies_and_the_bounds_of_what_waits_hold() -> None:
    """BOUND-1, BOUND-2."""
    world = World()
    world.session.start(world.now)
    world.connect(max_message=1 << 20)
    world.call(1)
    world.call(2, "s")
    world.session.finished(world.now, 1, Payload(b"x" * 300_000))
    assert not world.session.has_room
    assert world.session.may_read
    world.later(0.005)
    assert world.kinds() == ["ACCEPT", "RESULT"]
    assert world.session.has_room
    for n in range(3, 20):
        world.call(n, str(n))
        world.session.finished(world.now, n, Payload(b"x" * 300_000))
    assert not world.session.may_read


def test_the_progress_of_a_task_starts_over_when_it_is_given_again() -> None:
    """PROV-11, ONCE-1."""
    world = World.ready()
    world.call(1, stream=True, credit=2, mode="task", task_id="t")
    world.later(0.005)
    assert world.sent()[0].header == {"id": 1, "queue_depth": 0}
    world.session.emit(world.now, 1, Payload(b"\x01"))
    assert world.kinds() == ["CHUNK"]
    world.session.finished(world.now, 1, DONE)
    world.sent()
    world.call(2, stream=True, credit=2, mode="task", task_id="t")
    assert world.kinds() == ["RESULT"]
