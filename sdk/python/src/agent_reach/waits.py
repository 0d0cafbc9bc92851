"""Waiting, in an event loop or in a thread: the same coroutines serve both interfaces.

In a thread the awaitables block instead of yielding, so a coroutine that waits on nothing else runs to its end in one
go: see `run_blocking`.
"""

import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Waiter(Protocol):
    """Something that one side awaits and the other wakes, once."""

    def wake(self) -> None:
        """Ends the waiting. From any thread."""

    def __await__(self) -> Generator[Any, None, None]:
        """Waits."""


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
in_thread: Waits = _ThreadWaiter
_loop_waiter: Waits | None = None


def in_loop() -> Waiter:
    """A waiter for the event loop that runs. Event loops are loaded with the first one: see `loops`."""
    global _loop_waiter  # noqa: PLW0603
    if _loop_waiter is None:
        from .loops import LoopWaiter

        _loop_waiter = LoopWaiter
    return _loop_waiter()


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
