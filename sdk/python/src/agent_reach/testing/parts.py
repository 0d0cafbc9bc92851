"""What a hub in memory knows: connections, calls, and each target's part of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..codec import encode
from ..codes import Kind
from ..errors import ConnectError
from ..frames import Header
from ..transport import Listener

if TYPE_CHECKING:
    from .hub import FakeHub


class Leg:
    """One target's part of a call."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.call: Call | None = None
        self.id = 0
        self.attempt = 0
        self.tries = 0
        self.credit = 0
        self.ended = False
        # Chunks that the caller has.
        self._forwarded = 0

    def forwards(self, seq: int) -> bool:
        """Whether the caller has not got this chunk yet; a provider that starts over sends the first ones again."""
        if seq < self._forwarded:
            return False
        self._forwarded = seq + 1
        return True

    def granted_again(self, credit: int) -> None:
        """The caller came again, with what it has room for now."""
        self.credit = self._forwarded + credit


class Call:
    """One call, and its end once that is there."""

    def __init__(
        self, asker: Session | None, header: Header, request_id: str, body: bytes | None, call_id: str
    ) -> None:
        self.asker = asker
        self.caller = asker.agent_id if asker is not None else ""
        self.header = header
        self.id: int = header.get("id", 0)
        self.request_id = request_id
        self.call_id = call_id
        self.body = body
        self.mode: str = header.get("mode", "call")
        self.legs: dict[str, Leg] = {}
        self.attempts: list[Header] = []
        self.fan_out = False
        self.waiting = False
        self.task_id: str | None = None
        self.owed = False
        self.end: Header = {}
        self.end_body: bytes | None = None

    def say(self, kind: Kind, header: Header, body: bytes | None = None) -> None:
        """Says something to who asked."""
        if self.asker is not None:
            self.asker.say(kind, {**header, "id": self.id}, body)


NOBODY = Call(None, {}, "", None, "")


def failed_end(code: str, message: str) -> Header:
    """The end of a call that failed in the hub."""
    retryable = code == "no_instance"
    status = "no_instance" if retryable else "failed"
    return {"status": status, "error": {"code": code, "message": message, "retryable": retryable}}


class Dial:
    """Connections to a hub in memory."""

    def __init__(self, hub: FakeHub) -> None:
        self._hub = hub

    async def open(self, listener: Listener) -> Session:
        """Opens a connection."""
        if not self._hub._reachable:
            raise ConnectError("io", "the fake hub is not reachable")
        return Session(self._hub, listener, asyncio.get_running_loop())


class Session:
    """One agent's connection, on both of its sides: as its wire, and as what the hub knows of it."""

    def __init__(self, hub: FakeHub, listener: Listener, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._listener: Listener | None = listener
        self._loop = loop
        self.agent_id = ""
        self.offers: dict[str, Header] = {}
        self.labels: dict[str, str] = {}
        self.load: Header = {}
        self.status = "ready"
        self.most = 0
        self.asked: dict[int, Call] = {}
        self.legs: dict[int, Leg] = {}

    def say(self, kind: Kind, header: Header, body: bytes | None = None) -> None:
        """Says something to the agent."""
        self._later(self._deliver, encode(kind, header, body))

    def _later(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The agent has ended, and the connection's thread with it: nobody is there to be told.
            self._listener = None

    def _deliver(self, message: bytes) -> None:
        if self._listener is not None:
            self._listener.on_messages([message])

    def lose(self, code: int | None, reason: str) -> None:
        """Ends the connection."""

        def lost() -> None:
            listener, self._listener = self._listener, None
            if listener is not None:
                listener.on_lost(code, reason)

        self._later(lost)

    def shown(self) -> Header:
        """As ``hub.agents.list`` shows it."""
        return {
            "agent_id": self.agent_id,
            "identity": self.agent_id,
            "instance": "fake",
            "status": self.status,
            "labels": self.labels,
            "capabilities": sorted(self.offers),
            "in_flight": len(self.legs),
            "max_concurrency": self.most,
            "load": self.load,
        }

    # The wire.

    @property
    def writable(self) -> bool:
        """Always: memory takes all."""
        return True

    def send(self, messages: list[bytes]) -> None:
        """The agent says something."""
        for message in messages:
            self._hub._take(self, message)

    def ping(self) -> None:
        """The agent pings, and is answered."""

        def pong() -> None:
            if self._listener is not None:
                self._listener.on_alive()

        self._loop.call_soon(pong)

    def read(self, wanted: bool) -> None:
        """Nothing here waits to be read."""

    def close(self, code: int) -> None:
        """The agent closes in order."""
        with self._hub._lock:
            self._hub._leave(self)
        self.lose(code, "")

    def abort(self) -> None:
        """The agent lets go."""
        self._listener = None
        with self._hub._lock:
            self._hub._leave(self)
