"""What the agent says of itself: HELLO, and UPDATE when it changes."""

from collections.abc import Sequence
from typing import Any

from .. import limits
from ..codec import encode
from ..codes import Kind
from ..frames import Header
from ..version import VERSION
from .types import Load, Offer

SDK = f"python/{VERSION}"


class Registration:
    """Everything that a new session must know before the agent counts as ready, whatever was changed meanwhile."""

    def __init__(
        self,
        agent_id: str,
        instance: str,
        *,
        offers: dict[str, Offer] | None = None,
        service: str | None = None,
        version: str | None = None,
        labels: dict[str, str] | None = None,
        max_concurrency: int = limits.MAX_CONCURRENCY_DEFAULT,
        calls: Sequence[str] | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.instance = instance
        self.offers = {} if offers is None else offers
        self.max_concurrency = max_concurrency
        self.status: str | None = None
        self.load = Load()
        self._about: Header = {"service": service, "version": version, "labels": labels or None}
        self._calls = None if calls is None else list(calls)

    def header(self, running: int, waiting: int) -> Header:
        """HELLO's header."""
        return _said(
            {
                "v": limits.VERSION,
                "agent_id": self.agent_id,
                "instance": self.instance,
                "service": self._about["service"],
                "version": self._about["version"],
                "sdk": SDK,
                "features": [],
                "capabilities": [offer.header for offer in self.offers.values()],
                "labels": self._about["labels"],
                "max_concurrency": self.max_concurrency,
                "calls": self._calls,
                "status": self.status,
                "load": self._load(running, waiting),
            }
        )

    def hello(self, running: int, waiting: int) -> bytes:
        """HELLO as a message."""
        return encode(Kind.HELLO, self.header(running, waiting))

    def update(self, running: int, waiting: int, **change: Any) -> bytes:
        """A heartbeat, with what changed: ``status``, ``add`` or ``remove``."""
        return encode(Kind.UPDATE, _said({"load": self._load(running, waiting), **change}))

    def _load(self, running: int, waiting: int) -> Header:
        load = self.load
        queued = waiting + (load.queued or 0)
        return _said(
            {
                "in_flight": running,
                "queued": queued if queued or load.queued is not None else None,
                "cpu": load.cpu,
                "memory": load.memory,
                "health": load.health,
                "levels": dict(load.levels) or None,
            }
        )


def _said(header: Header) -> Header:
    return {key: value for key, value in header.items() if value is not None}
