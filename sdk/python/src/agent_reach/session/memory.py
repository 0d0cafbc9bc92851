"""Ends of calls that handlers served, so that a repeated CALL is answered without a second run."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from .types import Outcome, Past, Payload

#: Most bytes kept, with the bodies.
BYTES_MAX = 64 * 1024 * 1024
#: How long an end is kept that only this life of the process remembers, in seconds.
KEEP = 600.0
#: How long one is kept that is in the dedupe store: as long as the hub keeps a task's.
KEEP_ON_DISK = 86_400.0
#: What an entry costs besides its bodies, roughly.
OVERHEAD = 256


class Served(NamedTuple):
    """One served call, as it can be answered again."""

    outcome: Outcome
    #: The chunks of its stream; ``None`` when they were too many to keep.
    chunks: tuple[Payload, ...] | None
    execution: float
    #: Of the body that it was served for, where that is looked at.
    fingerprint: bytes = b""

    @property
    def size(self) -> int:
        """What it takes in memory, roughly."""
        chunks = sum(len(own.body) + OVERHEAD // 4 for own in self.chunks or ())
        end = self.outcome.body if isinstance(self.outcome, Payload) else self.outcome.message
        return chunks + len(end) + OVERHEAD


class Memory:
    """The ends kept, oldest first out."""

    def __init__(self, keep: float = KEEP, past: Sequence[Past] = ()) -> None:
        self._keep = keep
        # Kept in the order of their time, which is that of coming: an intent kept anew moves to the end.
        self._by_intent: OrderedDict[str, tuple[float, Served]] = OrderedDict()
        self._bytes = 0
        for own in past:
            self._put(keep - own.age, own.intent, Served(own.outcome, (), own.execution, own.fingerprint))

    def keep(self, now: float, intent: str, served: Served) -> None:
        """Remembers an end."""
        self._put(now + self._keep, intent, served)

    def _put(self, until: float, intent: str, served: Served) -> None:
        old = self._by_intent.pop(intent, None)
        if old is not None:
            self._bytes -= old[1].size + len(intent)
        self._by_intent[intent] = until, served
        self._bytes += served.size + len(intent)
        while self._bytes > BYTES_MAX and self._by_intent:
            self._forget_oldest()

    def find(self, intent: str) -> Served | None:
        """How an intent ended."""
        found = self._by_intent.get(intent)
        return None if found is None else found[1]

    def expire(self, now: float) -> None:
        """Lets go of what is over age."""
        while self._by_intent and next(iter(self._by_intent.values()))[0] <= now:
            self._forget_oldest()

    @property
    def next_timeout(self) -> float | None:
        """When the oldest goes."""
        return next(iter(self._by_intent.values()))[0] if self._by_intent else None

    def _forget_oldest(self) -> None:
        intent, (_, served) = self._by_intent.popitem(last=False)
        self._bytes -= served.size + len(intent)
