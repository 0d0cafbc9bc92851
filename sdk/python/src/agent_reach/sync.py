"""The same agent for programs without an event loop: each method blocks the thread that calls it, and no other."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .client import Agent
from .discover import AgentInfo, CapabilityInfo
from .errors import CloseReason
from .options import CallOptions, TaskOptions
from .pending import FanOut, FanOutPart, FanOutStream, PendingCall, Piece, Reply, ResultStream
from .session.types import Acceptance
from .tasks import TaskEvent, TaskHandle, TaskInfo, TaskResult, TaskWatch
from .waits import in_thread, run_blocking

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class SyncAgent:
    """One agent, usable from any number of threads; see `Agent` for what each method does.

    Usable as ``with``, or by `connect` and `close`.
    """

    def __init__(self, agent: Agent) -> None:
        #: What is provided is said there: ``capability``, ``provide_function``, ``update_load`` and so on.
        self.agent = agent
        # The same agent, whose coroutines block instead of yielding.
        self._own = copy.copy(agent)
        self._own._waits = in_thread
        self._own._sync = self

    def connect(self) -> SyncAgent:
        """See `Agent.connect`. Handlers that are coroutines run in an event loop of the SDK's."""
        run_blocking(self._own.connect())
        return self

    def close(self, within: float | None = None) -> CloseReason:
        """See `Agent.close`."""
        return run_blocking(self._own.close(within))

    def closed(self) -> CloseReason:
        """See `Agent.closed`."""
        return run_blocking(self._own.closed())

    def __enter__(self) -> SyncAgent:
        return self.connect()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0.0 if kind is KeyboardInterrupt else None)

    @property
    def is_connected(self) -> bool:
        """See `Agent.is_connected`."""
        return self.agent.is_connected

    @overload
    def call(self, capability: str, body: Any = None, **options: Unpack[CallOptions]) -> Any: ...
    @overload
    def call(self, capability: str, body: Any = None, *, result: type[T], **options: Unpack[CallOptions]) -> T: ...
    def call(self, capability: str, body: Any = None, *, result: Any = None, **options: Any) -> Any:
        """See `Agent.call`. ``KeyboardInterrupt`` cancels the call."""
        return run_blocking(self._own.call(capability, body, result=result, **options))

    def reply(self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[CallOptions]) -> Reply:
        """See `Agent.reply`."""
        return run_blocking(self._own.reply(capability, body, result=result, **options))

    def start(
        self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[CallOptions]
    ) -> SyncPendingCall:
        """See `Agent.start`."""
        return SyncPendingCall(self._own.start(capability, body, result=result, **options))

    def notify(self, capability: str, body: Any = None, **options: Unpack[CallOptions]) -> Reply:
        """See `Agent.notify`."""
        return run_blocking(self._own.notify(capability, body, **options))

    def stream(
        self,
        capability: str,
        body: Any = None,
        *,
        chunk: Any = None,
        result: Any = None,
        window: int = 16,
        **options: Unpack[CallOptions],
    ) -> SyncResultStream:
        """See `Agent.stream`; for ``for``."""
        return SyncResultStream(
            self._own.stream(capability, body, chunk=chunk, result=result, window=window, **options)
        )

    def call_all(
        self,
        capability: str,
        body: Any = None,
        *,
        result: Any = None,
        targets: int | None = None,
        **options: Unpack[CallOptions],
    ) -> FanOut:
        """See `Agent.call_all`."""
        return run_blocking(self._own.call_all(capability, body, result=result, targets=targets, **options))

    def stream_all(
        self,
        capability: str,
        body: Any = None,
        *,
        result: Any = None,
        targets: int | None = None,
        chunks: bool = False,
        chunk: Any = None,
        window: int = 16,
        **options: Unpack[CallOptions],
    ) -> SyncFanOutStream:
        """See `Agent.stream_all`; for ``for``."""
        return SyncFanOutStream(
            self._own.stream_all(
                capability,
                body,
                result=result,
                targets=targets,
                chunks=chunks,
                chunk=chunk,
                window=window,
                **options,
            )
        )

    def submit(
        self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[TaskOptions]
    ) -> SyncTaskHandle:
        """See `Agent.submit`."""
        return SyncTaskHandle(run_blocking(self._own.submit(capability, body, result=result, **options)))

    def task(self, task_id: str, *, result: Any = None) -> SyncTaskHandle:
        """See `Agent.task`."""
        return SyncTaskHandle(self._own.task(task_id, result=result))

    def tasks(
        self, *, state: str | None = None, capability: str | None = None, limit: int | None = None
    ) -> list[TaskInfo]:
        """See `Agent.tasks`."""
        return run_blocking(self._own.tasks(state=state, capability=capability, limit=limit))

    def next_result(self, *, result: Any = None) -> TaskResult | None:
        """See `Agent.next_result`."""
        return run_blocking(self._own.next_result(result=result))

    def agents(self, **query: Any) -> list[AgentInfo]:
        """See `Agent.agents`."""
        return run_blocking(self._own.agents(**query))

    def capabilities(self) -> list[CapabilityInfo]:
        """See `Agent.capabilities`."""
        return run_blocking(self._own.capabilities())


class SyncPendingCall:
    """See `PendingCall`."""

    def __init__(self, pending: PendingCall) -> None:
        self._pending = pending

    def accepted(self) -> Acceptance | None:
        """See `PendingCall.accepted`."""
        return run_blocking(self._pending.accepted())

    def would_timeout(self) -> Acceptance | None:
        """See `PendingCall.would_timeout`."""
        return run_blocking(self._pending.would_timeout())

    def reply(self) -> Reply:
        """See `PendingCall.reply`."""
        return run_blocking(self._pending.reply())

    def result(self) -> Any:
        """See `PendingCall.result`."""
        return run_blocking(self._pending.result())

    def cancel(self) -> Reply:
        """See `PendingCall.cancel`."""
        return run_blocking(self._pending.cancel())

    def elsewhere(self) -> bool:
        """See `PendingCall.elsewhere`."""
        return run_blocking(self._pending.elsewhere())

    def drop(self) -> None:
        """See `PendingCall.drop`."""
        self._pending.drop()


class SyncResultStream(Iterator[Any]):
    """See `ResultStream`; for ``for``."""

    def __init__(self, stream: ResultStream) -> None:
        self._stream = stream

    def __iter__(self) -> SyncResultStream:
        return self

    def __next__(self) -> Any:
        return _next(self._stream)

    @property
    def acceptance(self) -> Acceptance | None:
        """Phase one, once it was seen."""
        return self._stream.acceptance

    def end(self) -> Reply:
        """See `ResultStream.end`."""
        return run_blocking(self._stream.end())

    def close(self) -> None:
        """See `ResultStream.aclose`."""
        run_blocking(self._stream.aclose())

    def __enter__(self) -> SyncResultStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncFanOutStream(Iterator[FanOutPart | Piece]):
    """See `FanOutStream`; for ``for``."""

    def __init__(self, stream: FanOutStream) -> None:
        self._stream = stream

    def __iter__(self) -> SyncFanOutStream:
        return self

    def __next__(self) -> FanOutPart | Piece:
        part: FanOutPart | Piece = _next(self._stream)
        return part

    def collect(self) -> FanOut:
        """See `FanOutStream.collect`."""
        return run_blocking(self._stream.collect())

    def close(self) -> None:
        """See `FanOutStream.aclose`."""
        run_blocking(self._stream.aclose())

    def __enter__(self) -> SyncFanOutStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncTaskWatch(Iterator[TaskEvent]):
    """See `TaskWatch`; for ``for``."""

    def __init__(self, watch: TaskWatch) -> None:
        self._watch = watch

    def __iter__(self) -> SyncTaskWatch:
        return self

    def __next__(self) -> TaskEvent:
        event: TaskEvent = _next(self._watch)
        return event

    def close(self) -> None:
        """See `TaskWatch.aclose`."""
        run_blocking(self._watch.aclose())

    def __enter__(self) -> SyncTaskWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncTaskHandle:
    """See `TaskHandle`."""

    def __init__(self, handle: TaskHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        """The task's id."""
        return self._handle.id

    def result(self) -> Any:
        """See `TaskHandle.result`."""
        return run_blocking(self._handle.result())

    def reply(self) -> Reply:
        """See `TaskHandle.reply`."""
        return run_blocking(self._handle.reply())

    def info(self) -> TaskInfo:
        """See `TaskHandle.info`."""
        return run_blocking(self._handle.info())

    def cancel(self) -> bool:
        """See `TaskHandle.cancel`."""
        return run_blocking(self._handle.cancel())

    def watch(self) -> SyncTaskWatch:
        """See `TaskHandle.watch`."""
        return SyncTaskWatch(run_blocking(self._handle.watch()))


_END: Any = object()


def _next(stream: Any) -> Any:
    value = run_blocking(_value(stream))
    if value is _END:
        raise StopIteration
    return value


async def _value(stream: Any) -> Any:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return _END
