"""How many handlers of one capability run, what waits for one of them to end, and how long they usually take."""

from collections import deque
from typing import NamedTuple

from .. import limits


class Outlook(NamedTuple):
    """What can be said of a run's end while it is still to come."""

    #: Runs that wait before it, if it waits.
    before: int | None = None
    #: Expected until its end, in seconds.
    time: float | None = None


class _Room:
    __slots__ = ("most", "running", "usual", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.most: int | None = None
        self.waiting: deque[int] = deque()
        #: Of the runs that completed, the latest counting most.
        self.usual: float | None = None

    @property
    def is_full(self) -> bool:
        return self.most is not None and self.running >= self.most


class Rooms:
    """One room for each capability."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Room] = {}
        #: How many wait in all rooms.
        self.waiting = 0

    def enter(self, name: str, most: int | None, run: int) -> bool:
        """A call comes. ``True``: its handler may start; else it waits for `next`."""
        room = self._by_name.get(name)
        if room is None:
            if len(self._by_name) >= limits.CAPABILITIES_MAX:
                # A program that adds and removes ever new names: what is idle is only what they usually take.
                self._by_name = {own: r for own, r in self._by_name.items() if r.running or r.waiting}
            room = self._by_name[name] = _Room()
        room.most = most
        if room.is_full or room.waiting:
            room.waiting.append(run)
            self.waiting += 1
            return False
        room.running += 1
        return True

    def leave(self, name: str, execution: float | None) -> None:
        """A handler ended; ``execution`` if it completed."""
        room = self._by_name.get(name)
        if room is None:
            return
        room.running = max(room.running - 1, 0)
        if execution is not None:
            room.usual = execution if room.usual is None else (room.usual * 7 + execution) / 8

    def next(self, name: str) -> int | None:
        """The next that may start now."""
        room = self._by_name.get(name)
        if room is None or not room.waiting or room.is_full:
            return None
        room.running += 1
        self.waiting -= 1
        return room.waiting.popleft()

    def give_up(self, name: str, run: int) -> None:
        """One that waited no longer does."""
        room = self._by_name.get(name)
        if room is not None and run in room.waiting:
            room.waiting.remove(run)
            self.waiting -= 1

    def outlook(self, name: str, run: int) -> Outlook:
        """What may be said of a run that has not ended."""
        room = self._by_name.get(name)
        if room is None:
            return Outlook()
        if run not in room.waiting:
            return Outlook(None, room.usual)
        before = room.waiting.index(run)
        if room.usual is None:
            return Outlook(before)
        # Its own time, and that until one of those that run has ended for each that is before it.
        return Outlook(before, room.usual + room.usual * (before + 1) / (room.most or 1))
