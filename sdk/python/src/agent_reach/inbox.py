"""What a caller has not yet taken of its call."""

from collections import deque
from copy import copy
from typing import Protocol

from .errors import CallError
from .session.types import CallEvent, Chunk, Ended, RawReply, TaskEnd
from .waits import Waiter, Waits

#: Most bytes that wait for one caller. A hub that keeps to the credit stays far below it.
BYTES_MAX = 64 * 1024 * 1024


class Caller(Protocol):
    """What the connection takes from callers, without making them wait. From any thread."""

    def cancel(self, key: int) -> None:
        """Nobody wants the call any more."""

    def forget(self, key: int) -> None:
        """Nobody waits for the task any more, and it goes on."""

    def consumed(self, key: int, n: int, target: str | None) -> None:
        """So many chunks were taken."""


class Inbox:
    """Events of one call, from the connection's thread to whoever waits.

    Only one waits at a time. ``steps``: acceptances, chunks and parts are wanted as well as the end.
    """

    __slots__ = (
        "_bytes",
        "_caller",
        "_ended",
        "_events",
        "_waiter",
        "_waits",
        "dropped",
        "keeps_running",
        "key",
        "steps",
    )

    def __init__(self, key: int, caller: Caller, waits: Waits, steps: bool) -> None:
        self.key = key
        self.steps = steps
        #: A task: letting go of this leaves it alone.
        self.keeps_running = False
        #: Nobody will take anything from here.
        self.dropped = False
        self._caller = caller
        self._waits = waits
        self._events: deque[CallEvent] = deque()
        self._bytes = 0
        self._ended = False
        self._waiter: Waiter | None = None

    def push(self, event: CallEvent) -> bool:
        """Hands an event over. ``False`` when the caller let more wait than is allowed: its call is over then."""
        if self._ended:
            return True
        fits = True
        if type(event) is Ended:
            self._ended = True
        elif not self.steps:
            return True
        elif type(event) is Chunk:
            self._bytes += len(event.payload.body) + 128
            if self._bytes > BYTES_MAX:
                fits = False
                self._ended = True
                event = Ended(CallError.of("overloaded", "more waits to be read than is allowed"))
        self._events.append(event)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.wake()
        return fits

    async def next(self) -> CallEvent:
        """The next event. After the end it is the end again. A caller that is cancelled here loses nothing."""
        events = self._events
        while not events:
            waiter = self._waits()
            self._waiter = waiter
            # The other thread looks for a waiter after it has put the event: one of the two sees the other.
            if events:
                break
            await waiter
        event = events[0]
        if type(event) is not Ended:
            events.popleft()
            if type(event) is Chunk:
                self._bytes -= len(event.payload.body) + 128
        return event

    async def end(self) -> RawReply:
        """Passes over everything but the end. Whoever is stopped here lets go of the call.

        Raises:
            CallError: the call's failure.
        """
        try:
            while type(event := await self.next()) is not Ended:
                pass
        except BaseException:
            self.drop()
            raise
        return raised(event.result)

    def grant(self, n: int, target: str | None) -> None:
        """The caller took so many chunks."""
        self._caller.consumed(self.key, n, target)

    def drop(self) -> None:
        """The caller lets go: the call is cancelled, a stored task is not."""
        self.dropped = True
        if not self._ended:
            self._ended = True
            (self._caller.forget if self.keeps_running else self._caller.cancel)(self.key)


class Mailbox:
    """Results of tasks that no handle waited for, until the program takes them. Its bounds are the session's."""

    def __init__(self) -> None:
        self._ends: deque[TaskEnd] = deque()
        self._waiters: deque[Waiter] = deque()
        self._closed = False

    def put(self, end: TaskEnd) -> None:
        """One more."""
        self._ends.append(end)
        self._wake()

    def take(self, task_id: str) -> TaskEnd | None:
        """Takes the one of a task, if it is still here."""
        for end in list(self._ends):
            if end.task_id == task_id:
                self._ends.remove(end)
                return end
        return None

    def close(self) -> None:
        """No more will come."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            self._waiters.popleft().wake()

    async def next(self, waits: Waits) -> TaskEnd | None:
        """The oldest; ``None`` when it is closed and empty."""
        while True:
            try:
                return self._ends.popleft()
            except IndexError:
                pass
            if self._closed:
                return None
            waiter = waits()
            self._waiters.append(waiter)
            if not self._ends and not self._closed:
                await waiter


def raised(result: RawReply | CallError) -> RawReply:
    """The reply, or raises the failure."""
    if isinstance(result, CallError):
        # Several may wait for one task, and each gets an error of its own: the tracebacks would grow into each other.
        raise copy(result)
    return result
