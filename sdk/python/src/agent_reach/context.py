"""What a handler sees of the call that it serves."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .errors import CallCancelled, EmitError
from .frames import Header, private_of
from .payload import EncodeError, Payload, encode_body
from .waits import Waiter, Waits, in_loop, in_thread, run_blocking

if TYPE_CHECKING:
    from .client import Agent
    from .sync import SyncAgent

#: What the header of a CHUNK may take of a message, at most.
CHUNK_HEADER_BYTES = 512


class Line(Protocol):
    """What a handler tells the connection. From any thread."""

    @property
    def max_message(self) -> int:
        """Largest message that the hub takes, in bytes."""

    def emit(self, run: int, payload: Payload) -> None:
        """A chunk."""

    def would_take(self, run: int, seconds: float) -> None:
        """How long it expects to take."""


class RunState:
    """What the connection and the context of one run share."""

    __slots__ = ("_credit", "_lock", "_stop", "_waiters", "cancelled", "deadline", "header", "line", "run")

    def __init__(self, run: int, header: Header, credit: int, line: Line) -> None:
        self.run = run
        self.header = header
        self.line = line
        #: On `time.monotonic`'s clock.
        self.deadline: float = time.monotonic() + header["deadline_ms"] / 1000
        self.cancelled = False
        self._lock = threading.Lock()
        self._credit = credit
        self._waiters: list[Waiter] = []
        #: Stops the handler, where it can be stopped.
        self._stop: Callable[[], object] | None = None

    @property
    def wants_stream(self) -> bool:
        """Whether the caller takes the result in chunks."""
        return bool(self.header["stream"]) and "task_id" not in self.header

    def grant(self, n: int) -> None:
        """So many chunks more may be emitted."""
        with self._lock:
            self._credit += n
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.wake()

    def cancel(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self.cancelled = True
            waiters, self._waiters = self._waiters, []
            stop = self._stop
        for waiter in waiters:
            waiter.wake()
        if stop is not None:
            stop()

    def stops_with(self, stop: Callable[[], object]) -> bool:
        """How it is stopped from now on. ``False``: it is cancelled already."""
        with self._lock:
            self._stop = stop
            return not self.cancelled

    def _wait(self, waiter: Waiter) -> bool:
        with self._lock:
            if self.cancelled or self._credit > 0:
                return False
            self._waiters.append(waiter)
            return True

    def take(self) -> bool:
        """Takes one chunk's credit, if there is any.

        Raises:
            CallCancelled: nobody waits any more.
        """
        with self._lock:
            if self.cancelled:
                raise CallCancelled("the call is cancelled")
            if self._credit <= 0:
                return False
            self._credit -= 1
            return True

    async def emit(self, chunk: Any, waits: Waits) -> None:
        """See `Context.emit`."""
        if not self.wants_stream:
            return self.progress(chunk)
        payload = self._payload(chunk)
        while not self.take():
            waiter = waits()
            if self._wait(waiter):
                await waiter
        self.line.emit(self.run, payload)
        return None

    def progress(self, value: Any) -> None:
        """See `Context.progress`."""
        if self.cancelled:
            raise CallCancelled("the call is cancelled")
        if not self.header["stream"] or "task_id" not in self.header:
            return
        payload = self._payload(value)
        if self.take():
            self.line.emit(self.run, payload)

    def _payload(self, chunk: Any) -> Payload:
        try:
            payload = encode_body(chunk)
        except EncodeError as error:
            raise EmitError(f"the chunk cannot be sent: {error}") from error
        limit = self.line.max_message
        if len(payload.body) + CHUNK_HEADER_BYTES > limit:
            raise EmitError(f"the chunk has {len(payload.body)} bytes, the hub takes messages of {limit}")
        return payload

    async def wait_cancelled(self, waits: Waits) -> None:
        """See `Context.wait_cancelled`."""
        while not self.cancelled:
            waiter = waits()
            with self._lock:
                if self.cancelled:
                    return
                self._waiters.append(waiter)
            await waiter


class _Base:
    """What both kinds of handlers see."""

    __slots__ = ("_state",)

    def __init__(self, state: RunState) -> None:
        self._state = state

    @property
    def caller(self) -> str:
        """Who asks: the caller's ``agent_id``."""
        return str(self._state.header["caller"])

    @property
    def capability(self) -> str:
        """The capability as this agent registered it."""
        return str(self._state.header["capability"])

    @property
    def request_id(self) -> str:
        """One business intent: the same for every try of one call."""
        return str(self._state.header["request_id"])

    @property
    def call_id(self) -> str:
        """Hub-wide id of the call, for logs and traces."""
        return str(self._state.header["call_id"])

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return int(self._state.header["attempt"])

    @property
    def remaining(self) -> float:
        """Seconds until the caller gives up, as far as was known when the call came; not below 0."""
        return max(self._state.deadline - time.monotonic(), 0.0)

    @property
    def deadline(self) -> float:
        """When the caller gives up, on the clock of `time.monotonic`."""
        return self._state.deadline

    @property
    def preferred_timeout(self) -> float | None:
        """The processing time that the caller would like, in seconds; see `would_take`."""
        ms = self._state.header.get("preferred_timeout_ms")
        return None if ms is None else ms / 1000

    @property
    def mode(self) -> str:
        """What the caller waits for: ``call``, ``task`` or ``notify``."""
        return str(self._state.header["mode"])

    @property
    def priority(self) -> str:
        """The caller's urgency: ``low``, ``normal`` or ``high``."""
        return str(self._state.header["priority"])

    @property
    def labels(self) -> Mapping[str, str]:
        """The caller's preferred labels."""
        return dict(self._state.header.get("labels", {}))

    @property
    def traceparent(self) -> str | None:
        """W3C Trace Context of the caller."""
        return self._state.header.get("traceparent")

    @property
    def tracestate(self) -> str | None:
        """W3C Trace Context of the caller."""
        return self._state.header.get("tracestate")

    @property
    def private(self) -> Mapping[str, Any]:
        """The caller's private keys, which begin with ``x-``."""
        return private_of(self._state.header)

    @property
    def task_id(self) -> str | None:
        """Of a task."""
        return self._state.header.get("task_id")

    @property
    def wants_stream(self) -> bool:
        """Whether the caller takes the result in chunks. Not so of a task: its whole result is what is returned."""
        return self._state.wants_stream

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        return self._state.cancelled

    def would_take(self, seconds: float) -> None:
        """Says how long this will take, from now.

        A caller that would like it sooner is told so, and decides whether to wait. A handler that says nothing is
        expected to take as long as those of its capability usually do.
        """
        self._state.line.would_take(self._state.run, seconds)

    def progress(self, value: Any) -> None:
        """Says how far a task is, in whatever form those who watch it understand; up to 64 KiB are shown.

        To the hub it is a sign of life: a task that goes without one for twice its processing time counts as orphaned.
        It never holds up the work: while the hub is slow, what is said is left out. Does nothing in what is no task.

        Raises:
            CallCancelled: the task was cancelled.
            EmitError: it cannot be sent.
        """
        self._state.progress(value)


class Context(_Base):
    """What an ``async`` handler knows of the call it serves.

    When the call is cancelled the handler's task is, as by `asyncio.Task.cancel`.
    """

    __slots__ = ("_agent",)

    def __init__(self, state: RunState, agent: "Agent") -> None:
        super().__init__(state)
        self._agent = agent

    @property
    def agent(self) -> "Agent":
        """The agent that this handler belongs to, for calls of its own."""
        return self._agent

    async def emit(self, chunk: Any) -> None:
        """Sends one piece of a streamed result; waits until the caller takes more.

        Does nothing when the caller takes no chunks; in a task it is `progress`.

        Raises:
            CallCancelled: nobody waits any more.
            EmitError: the chunk is too large, or cannot be written.
        """
        await self._state.emit(chunk, in_loop)

    async def wait_cancelled(self) -> None:
        """Returns when nobody waits any more."""
        await self._state.wait_cancelled(in_loop)


class SyncContext(_Base):
    """What a handler that runs in a thread knows of the call it serves. It has to look at ``cancelled`` itself."""

    __slots__ = ("_agent",)

    def __init__(self, state: RunState, agent: "SyncAgent") -> None:
        super().__init__(state)
        self._agent = agent

    @property
    def agent(self) -> "SyncAgent":
        """The agent that this handler belongs to, for calls of its own."""
        return self._agent

    def emit(self, chunk: Any) -> None:
        """As `Context.emit`; blocks until the caller takes more."""
        run_blocking(self._state.emit(chunk, in_thread))

    def wait_cancelled(self) -> None:
        """Blocks until nobody waits any more."""
        run_blocking(self._state.wait_cancelled(in_thread))
