"""Waiting in an event loop that belongs to the program, woken from the connection's thread."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

log = logging.getLogger("agent_reach")


class LoopMail:
    """Functions for one event loop, handed over in batches: one wake-up for all that came meanwhile."""

    _of: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMail]"] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # The loop owns its mail, so a strong reference back would keep both for ever.
        self._call_soon = loop.call_soon_threadsafe
        self._is_closed = loop.is_closed
        self._items: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._scheduled = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> "LoopMail":
        """The mail of a loop."""
        mail: LoopMail | None = getattr(loop, "_agent_reach_mail", None) or cls._of.get(loop)
        if mail is None:
            mail = cls(loop)
            try:
                loop._agent_reach_mail = mail  # type: ignore[attr-defined]
            except AttributeError:  # A loop that takes no attributes, such as uvloop's.
                cls._of[loop] = mail
        return mail

    def post(self, function: Callable[..., object], *args: Any) -> bool:
        """Has the loop call this, in the order posted. From any thread. ``False``: the loop is closed."""
        if self._is_closed():
            self._items.clear()
            return False
        self._items.append((function, args))
        if not self._scheduled:
            self._scheduled = True
            try:
                self._call_soon(self._deliver)
            except RuntimeError:
                self._items.clear()
                return False
        return True

    def _deliver(self) -> None:
        # Before the items are taken: what comes after the last one is taken schedules anew.
        self._scheduled = False
        items = self._items
        # Only what is here now: the loop's other work gets its turn, however much comes meanwhile.
        for _ in range(len(items)):
            function, args = items.popleft()
            try:
                function(*args)
            except Exception:
                # It must not cost those behind it.
                log.exception("something for the program's event loop failed")
        if items and not self._scheduled:
            self._scheduled = True
            self._call_soon(self._deliver)


class LoopWaiter:
    """A waiter of the loop that runs where it is made."""

    __slots__ = ("_future", "_mail")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._mail = LoopMail.of(loop)
        self._future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        """Ends the waiting. From any thread."""
        self._mail.post(self._done)

    def _done(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()
