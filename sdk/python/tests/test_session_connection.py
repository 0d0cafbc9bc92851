"""The session's connection: greeting, liveness, coming back, ending. No socket, no clock."""

import pytest
from sessions import WELCOME, World

from agent_reach.codec import encode
from agent_reach.codes import Kind
from agent_reach.errors import CallError, ConnectError
from agent_reach.session.link import Phase
from agent_reach.session.types import (
    Abort,
    Close,
    Dial,
    Ended,
    Leaving,
    Load,
    Offer,
    Payload,
    Ping,
    Ready,
    Stopped,
    Tell,
)


def test_hello_comes_first_and_says_what_there_is_then() -> None:
    """CONN-3, BACK-6."""
    world = World(labels={"zone": "a"}, calls=["x.*"], service="s", version="1")
    world.session.start(world.now)
    assert world.effects() == [Dial()]
    world.session.add(world.now, Offer({"name": "added"}))
    world.session.set_status(world.now, "degraded")
    assert world.sent() == []
    world.session.opened(world.now)
    (hello,) = world.sent()
    assert hello.kind is Kind.HELLO
    assert [own["name"] for own in hello.header["capabilities"]] == ["work", "other", "added"]
    assert (hello.header["status"], hello.header["labels"], hello.header["instance"]) == (
        "degraded",
        {"zone": "a"},
        "life",
    )
    world.say(Kind.WELCOME, WELCOME)
    assert world.effects() == [Ready(1000, 5.0)]


def test_only_welcome_may_come_before_welcome() -> None:
    """CONN-3, CONN-7."""
    for kind, header in ((Kind.ACCEPT, {"id": 1}), (Kind.WELCOME, {"session": 7})):
        world = World()
        world.session.start(world.now)
        world.effects()
        world.session.opened(world.now)
        world.say(kind, header)
        assert isinstance(world.effects()[0], Abort)
        assert world.session.phase is Phase.WAITING


def test_a_hub_that_does_not_greet_is_left_after_ten_seconds() -> None:
    """CONN-3."""
    world = World()
    world.session.start(world.now)
    world.session.opened(world.now)
    world.later(9.9)
    assert world.session.phase is Phase.GREETING
    world.later(0.2)
    assert world.session.phase is not Phase.GREETING


def test_what_the_hub_warns_of_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """CONN-8."""
    world = World()
    world.session.start(world.now)
    world.connect(warnings=["`Text_Upper` is read as `text-upper`"])
    assert "is read as `text-upper`" in caplog.text


def test_zero_in_welcome_makes_no_busy_loop() -> None:
    """CONN-5."""
    world = World()
    world.session.start(world.now)
    world.connect(keepalive_ms=0, suspect_ms=0, gone_ms=0, max_in_flight=0)
    assert world.session.terms.keepalive == 0.01
    world.ask()
    assert world.kinds() == ["CALL"]


def test_two_thirds_of_the_keepalive_are_never_passed_in_silence() -> None:
    """LIVE-1, LIVE-4, LIVE-6."""
    world = World.ready()
    world.session.unbegun = 1
    world.call(1)
    world.call(2, "s")
    world.effects()
    world.later(0.005)
    assert world.kinds() == ["ACCEPT", "ACCEPT"]
    began = world.now
    world.session.alive(world.now)
    world.at(began + 5.0 * 2 / 3 - 0.01)
    assert world.sent() == []
    world.later(0.02)
    (update,) = world.sent()
    assert update.header == {"load": {"in_flight": 1, "queued": 1}}


def test_a_socket_that_takes_nothing_gets_one_heartbeat_for_each_interval() -> None:
    """LIVE-1, BOUND-1."""
    world = World.ready()
    for _ in range(3):
        world.session.alive(world.now)
        world.later(5.0 * 2 / 3 + 0.001)
    assert world.kinds() == ["UPDATE"] * 3


def test_a_silent_hub_is_asked_once_and_then_given_up() -> None:
    """LIVE-3."""
    world = World.ready()
    world.later(14.9)
    assert Ping() not in world.effects()
    world.later(0.2)
    assert world.effects().count(Ping()) == 1
    world.later(7.3)
    assert world.effects() == []
    world.later(0.2)
    effects = world.effects()
    assert isinstance(effects[0], Abort)
    assert world.session.phase in (Phase.WAITING, Phase.DIALING)
    alive = World.ready()
    alive.later(15.1)
    alive.effects()
    alive.session.alive(alive.now)
    alive.later(14.0)
    assert alive.effects() == []


def waits(seed: int, rounds: int, lives: float = 0.0) -> list[float]:
    world = World(seed=seed)
    world.session.start(world.now)
    found = []
    for _ in range(rounds):
        world.connect()
        for _ in range(int(lives)):
            world.session.alive(world.now)
            world.later(1.0)
            world.sent()
        world.effects()
        world.session.lost(world.now)
        due = world.session.next_timeout
        assert due is not None
        found.append(due - world.now)
        world.at(due)
    return found


def test_every_wait_is_jittered_and_its_ceiling_doubles_to_a_minute() -> None:
    """BACK-1, K10."""
    many = [waits(seed, 9) for seed in range(200)]
    for n in range(9):
        ceiling = min(2.0**n, 60.0)
        own = sorted(wait[n] for wait in many)
        assert 0 <= own[0] < ceiling * 0.1
        assert ceiling * 0.9 < own[-1] <= ceiling


def test_only_a_session_that_lived_makes_the_waits_short_again() -> None:
    """BACK-2, K11."""
    assert max(max(waits(seed, 8, lives=14.0)[5:]) for seed in range(50)) > 8
    assert max(max(waits(seed, 8, lives=16.0)) for seed in range(50)) <= 1.0


def test_a_goodbye_with_a_window_replaces_the_wait() -> None:
    """BACK-3."""
    found = []
    for seed in range(100):
        world = World.ready(seed=seed)
        world.say(Kind.GOODBYE, {"code": "draining", "reconnect_after_ms": 20_000})
        assert world.effects() == [Leaving(), Close(1000)]
        world.session.lost(world.now, 4000)
        due = world.session.next_timeout
        assert due is not None
        found.append(due - world.now)
    assert min(found) < 2
    assert 18 < max(found) <= 20


def test_what_is_open_may_end_on_a_connection_that_the_hub_leaves() -> None:
    """BACK-3, RESUME-3."""
    world = World.ready()
    first = world.ask()
    world.call(9)
    world.sent()
    world.say(Kind.GOODBYE, {"code": "draining", "reconnect_after_ms": 0})
    later = world.ask()
    assert world.sent() == []
    world.say(Kind.RESULT, {"id": 1, "status": "completed"}, b"\x07")
    assert any(isinstance(own, Tell) and own.key == first for own in world.effects())
    world.session.finished(world.now, 1, Payload(b"\x01"))
    assert Close(1000) not in world.effects()
    assert world.kinds() == ["RESULT"]
    world.later(0.001)
    world.session.alive(world.now)
    world.session.cancel(world.now, later)
    assert Close(1000) in world.effects()


@pytest.mark.parametrize("code", ["normal", "replaced", "protocol_error", "message_too_large", "unauthorized"])
def test_a_final_goodbye_ends_the_agent(code: str) -> None:
    """BACK-4."""
    world = World.ready()
    key = world.ask()
    world.say(Kind.GOODBYE, {"code": code, "reason": "because"})
    abort, told, stopped = world.effects()
    assert isinstance(abort, Abort)
    assert isinstance(told, Tell)
    assert told.key == key
    assert isinstance(stopped, Stopped)
    assert (stopped.reason.code, str(stopped.reason)) == (code, f"{code}: because")
    assert world.session.next_timeout is None
    world.ask()
    told = world.effect(Tell)
    assert isinstance(told.event, Ended)
    assert isinstance(told.event.result, CallError)
    assert (told.event.result.code, told.event.result.accepted) == ("closed", "no")


@pytest.mark.parametrize(
    ("code", "word"), [(4500, "replaced"), (4999, "4999"), (1006, None), (1000, None), (4400, None), (None, None)]
)
def test_a_close_code_decides_where_no_goodbye_came(code: int | None, word: str | None) -> None:
    """BACK-4, BACK-5."""
    world = World.ready()
    world.session.lost(world.now, code, "why")
    if word is None:
        assert world.session.phase is Phase.WAITING
    else:
        assert world.effect(Stopped).reason.code == word


@pytest.mark.parametrize(("close", "back"), [(4321, True), (4567, False), (None, True)])
def test_an_unknown_goodbye_goes_by_its_close_code(close: int | None, back: bool) -> None:
    """BACK-4."""
    world = World.ready()
    world.say(Kind.GOODBYE, {"code": "news"})
    assert world.effects() == [Leaving()]
    world.session.lost(world.now, close)
    assert (world.session.phase is Phase.WAITING) is back


def test_refusals_that_stay_end_the_agent_and_others_do_not() -> None:
    """CONN-6."""
    final = [ConnectError("http", "", status) for status in (400, 401, 403, 404)] + [ConnectError("config", "")]
    again = [ConnectError("http", "", status) for status in (408, 425, 429, 500, 503)]
    again += [ConnectError("tls", ""), ConnectError("io", "")]
    for error in final + again:
        world = World()
        world.session.start(world.now)
        world.session.dial_failed(world.now, error)
        assert (world.session.phase is Phase.STOPPED) is (error in final), error


def test_what_cannot_be_trusted_costs_the_connection_and_what_is_unknown_nothing() -> None:
    """CONN-7, CODEC-3."""
    for message in (b"\xc1", b"\x91" * 10_000, encode(Kind.CANCEL, {"id": 1})[:-1]):
        world = World.ready()
        world.session.message(world.now, message)
        assert world.session.phase is Phase.WAITING
    world = World.ready()
    world.session.text(world.now)
    assert world.session.phase is Phase.WAITING
    world = World.ready()
    world.session.message(world.now, b"\x93\x63\x80\xc0")
    world.say(Kind.HELLO, {"v": 1})
    world.say(Kind.CANCEL, {"id": "none"})
    assert world.session.phase is Phase.READY


def test_closing_says_goodbye_and_does_not_wait_for_ever() -> None:
    """END-1."""
    world = World.ready()
    world.call(1)
    key = world.ask()
    world.sent()
    world.effects()
    world.session.close(world.now, 10)
    (update,) = world.sent()
    assert update.header["status"] == "draining"
    world.later(9.9)
    assert "GOODBYE" not in world.kinds()
    world.later(0.2)
    sent = world.sent()
    assert [own.kind.name for own in sent] == ["RESULT", "GOODBYE"]
    assert sent[0].header["error"]["code"] == "cancelled"
    effects = world.effects()
    assert [own.key for own in effects if isinstance(own, Tell)] == [key]
    assert effects[-1] == Close(1000)
    world.later(2.1)
    assert world.effect(Stopped).reason.code == "closed"


def test_closing_while_there_is_no_connection_ends_at_once() -> None:
    """END-1."""
    world = World()
    world.session.start(world.now)
    world.effects()
    world.session.close(world.now, 10)
    assert world.effect(Stopped).reason.code == "closed"


def test_load_and_status_are_said_at_once_and_kept() -> None:
    """LIVE-5."""
    world = World.ready()
    world.session.set_load(world.now, Load(queued=3, cpu=0.5, health=70, levels={"work": 0.1}))
    (update,) = world.sent()
    said = {"in_flight": 0, "queued": 3, "cpu": 0.5, "health": 70, "levels": {"work": 0.1}}
    assert update.header["load"] == said
    world.session.set_status(world.now, "degraded")
    assert world.sent()[0].header["status"] == "degraded"
    world.session.remove(world.now, "work")
    assert world.sent()[0].header["remove"] == ["work"]
    world.session.lost(world.now)
    hello = world.connect()[0]
    assert (hello.header["status"], hello.header["load"]) == ("degraded", said)
    assert [own["name"] for own in hello.header["capabilities"]] == ["other"]
