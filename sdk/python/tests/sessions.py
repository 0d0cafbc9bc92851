"""A session and the hub at its other end, both in the test's hands; time is an argument."""

from random import Random
from typing import Any, TypeVar

from agent_reach.codec import Envelope, decode_to_hub, encode
from agent_reach.codes import Kind
from agent_reach.session.backoff import Backoff
from agent_reach.session.link import Phase
from agent_reach.session.machine import Session
from agent_reach.session.registration import Registration
from agent_reach.session.types import CallSpec, Effect, Offer, Past

E = TypeVar("E")

WELCOME: dict[str, Any] = {
    "session": "s",
    "hub": "h",
    "keepalive_ms": 5000,
    "suspect_ms": 15000,
    "gone_ms": 30000,
    "max_message": 1000,
    "max_in_flight": 4,
    "granted": {"provide": ["*"], "call": ["*"]},
}


class World:
    """One session."""

    def __init__(self, *, grace: float = 5.0, past: list[Past] | None = None, seed: int = 1, **about: Any) -> None:
        offers = {name: Offer({"name": name}) for name in ("work", "other")}
        registration = Registration("me", "life", offers=offers, **about)
        self.session = Session(registration, random=Random(seed), grace=grace, backoff=Backoff(), past=past)
        self.now = 100.0
        self.key = 0

    def connect(self, **welcome: Any) -> list[Envelope]:
        """To READY; what went out."""
        while self.session.phase is Phase.WAITING:
            due = self.session.next_timeout
            assert due is not None, "who waits to dial has a time for it"
            self.at(due)
        self.session.effects.clear()
        self.session.opened(self.now)
        self.say(Kind.WELCOME, {**WELCOME, **welcome})
        return self.sent()

    @staticmethod
    def ready(**about: Any) -> "World":
        """One in session, whose HELLO is taken."""
        world = World(**about)
        world.session.start(world.now)
        world.connect()
        world.effects()
        return world

    def say(self, kind: Kind, header: dict[str, Any], body: bytes | None = None) -> None:
        """The hub says something."""
        self.session.message(self.now, encode(kind, header, body))

    def call(self, id: int, request_id: str = "r", body: bytes = b"\x01", **more: Any) -> None:
        """The hub asks for work."""
        header = {
            "id": id,
            "request_id": request_id,
            "call_id": "c",
            "capability": "work",
            "caller": "you",
            "attempt": 1,
            "deadline_ms": 60_000,
            "stream": False,
            "mode": "call",
            "priority": "normal",
            **more,
        }
        self.say(Kind.CALL, header, body)

    def ask(self, capability: str = "x", body: bytes = b"\x01", **more: Any) -> int:
        """The program asks."""
        self.key += 1
        options = {key: more.pop(key) for key in ("request_id", "budget", "window") if key in more}
        self.session.open(self.now, self.key, CallSpec(capability, more, body, **options))
        return self.key

    def at(self, now: float) -> None:
        """Time passes, with all that is due on the way."""
        while (due := self.session.next_timeout) is not None and due <= now:
            self.now = max(due, self.now)
            before = self.session.next_timeout
            self.session.timeout(self.now)
            assert self.session.next_timeout != before or self.session.effects, "a timeout that changes nothing"
        self.now = max(now, self.now)

    def later(self, seconds: float) -> None:
        """So much time passes."""
        self.at(self.now + seconds)

    def sent(self) -> list[Envelope]:
        """What went out since the last look."""
        found = []
        while (message := self.session.pop()) is not None:
            found.append(decode_to_hub(message))
            self.session.wrote(self.now)
        return found

    def kinds(self) -> list[str]:
        """The same, by name."""
        return [own.kind.name for own in self.sent()]

    def effects(self) -> list[Effect]:
        """What is to be done since the last look."""
        found = list(self.session.effects)
        self.session.effects.clear()
        return found

    def effect(self, kind: type[E]) -> E:
        """The one of this kind."""
        found = [own for own in self.effects() if isinstance(own, kind)]
        assert len(found) == 1, found
        return found[0]
