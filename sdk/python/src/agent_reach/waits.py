"""Waiting, in an event loop or in a thread: the same coroutines serve both interfaces.

In a thread the awaitables block instead of yielding, so a coroutine that waits on nothing else runs to its end in one
go: see `run_blocking`.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


class Waiter(Protocol):
    """Something that one side awaits and the other wakes, once."""

    def wake(self) -> None:
        """Ends the waiting. From any thread."""

    def __await__(self) -> Generator[Any, None, None]:
        """Waits."""


class LoopMail:
    """Functions for one event loop, handed over in batches: one wake-up for all that came meanwhile."""

    _of: "WeakKeyDictionary[asyncio.AbstractEventLoop, LoopMail]" = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # The loop owns its mail, so a strong reference back would keep both for ever.
        self._call_soon = loop.call_soon_threadsafe
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
        while items:
            function, args = items.popleft()
            function(*args)


class _LoopWaiter:
    __slots__ = ("_future", "_mail")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._mail = LoopMail.of(loop)
        self._future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        self._mail.post(self._done)

    def _done(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def __await__(self) -> Generator[Any, None, None]:
        return self._future.__await__()


class _ThreadWaiter:
    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        if self._lock.locked():
            self._lock.release()

    def __await__(self) -> Generator[Any, None, None]:
        self._lock.acquire()
        return
        yield  # Makes this a generator, which never yields: it has blocked instead.


#: Makes the waiters of one interface.
Waits = Callable[[], Waiter]
in_loop: Waits = _LoopWaiter
in_thread: Waits = _ThreadWaiter


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits only by `in_thread`."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the blocking interface waited in an event loop")


class Latch:
    """A value that comes once, for everybody who waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._value: tuple[Any] | None = None

    @property
    def is_set(self) -> bool:
        """Whether it has come."""
        return self._value is not None

    @property
    def value(self) -> Any:
        """What came; ``None`` before."""
        return None if self._value is None else self._value[0]

    def set(self, value: Any) -> None:
        """Sets it, unless it is set. From any thread."""
        with self._lock:
            if self._value is not None:
                return
            self._value = (value,)
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake()

    async def wait(self, waits: Waits) -> Any:
        """Waits for it."""
        while self._value is None:
            waiter = waits()
            with self._lock:
                if self._value is None:
                    self._waiters.append(waiter)
                else:
                    break
            try:
                await waiter
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
        return self.value
