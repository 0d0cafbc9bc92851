"""The agent: provides capabilities and calls those of others, over one connection that mends itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import limits, names
from .discover import AgentInfo, CapabilityInfo, Directory, listed
from .errors import CallError, CloseReason, ConnectError
from .inbox import Inbox
from .options import CallOptions, TaskOptions, invalid, spec_of
from .pending import FanOut, FanOutStream, PendingCall, Reply, ResultStream, reply_of, result_of
from .provide import Handler, offer_of
from .session.types import CallSpec, Load, Outcome, Payload
from .tasks import TaskHandle, TaskInfo, TaskResult
from .waits import Waits, in_loop

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .dedupe import DedupeStore
    from .sync import SyncAgent
    from .tls import Path
    from .transport import Transport

log = logging.getLogger("agent_reach")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

#: Threads for handlers that are no coroutines, unless it is said.
THREADS_DEFAULT = 32
_WINDOW_MAX = 1 << 20


class Agent:
    """One agent, for ``async`` programs; `sync` is the same for all others.

    Usable as ``async with``, or by `connect` and `close`. Handlers that are coroutines run in the event loop where it
    was connected, the others in threads. Nothing that the program does delays a heartbeat.

    ``hub``, ``ca``, ``cert`` and ``key`` are the variables ``AGENT_REACH_HUB``, ``_CA``, ``_CERT`` and ``_KEY`` of the
    environment where they are not given.

    Args:
        agent_id: its name; the certificate's, unless policy says otherwise.
        hub: address like ``wss://localhost:7443``.
        ca: PEM file of the hub's CA. Read anew at each connect, like the next two.
        cert: PEM file of this agent's certificate chain.
        key: PEM file of its private key.
        token: bearer token, for a hub's HTTP listener.
        service: name of the service, for people.
        version: version of the service, for people.
        labels: labels of the agent, for routing.
        calls: what it means to call, as names, ``prefix.*`` or ``*``. Default: all that policy grants.
        max_concurrency: most calls in the agent at once. Default 50.
        threads: most threads for handlers that are no coroutines. Default 32, at most ``max_concurrency``.
        connect_timeout: seconds for the first session. Default 30; later ones are tried for ever.
        drain_timeout: seconds that handlers get when the agent closes. Default 10.
        cancel_grace: seconds that cancelled handlers get. Default 5.
        reconnect_waits: ceiling of the first wait before dialling again and of every one, in seconds. Default 1 and 60.
        dedupe: what was served, for another life of the process: a path for a SQLite file, or a store of one's own.
        health: asked before heartbeats how the agent is, 0 to 100; below 60 it is out of routing. On a thread of its
            own, one at a time; may be a coroutine function. One that fails counts as 0.
        transport: how connections are opened, for tests.

    Raises:
        ConnectError: something of it cannot be used.
    """

    def __init__(
        self,
        agent_id: str,
        hub: str | None = None,
        *,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        token: str | None = None,
        service: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
        calls: Sequence[str] | None = None,
        max_concurrency: int = limits.MAX_CONCURRENCY_DEFAULT,
        threads: int | None = None,
        connect_timeout: float = 30.0,
        drain_timeout: float = 10.0,
        cancel_grace: float = 5.0,
        reconnect_waits: tuple[float, float] = (1.0, 60.0),
        dedupe: str | os.PathLike[str] | DedupeStore | None = None,
        health: Callable[[], Any] | None = None,
        transport: Transport | None = None,
    ) -> None:
        # What only a connection needs is loaded with the first agent: a program that imports this for its types, or
        # to look at its command line first, waits for half as long.
        from random import SystemRandom
        from secrets import token_hex

        from .core import Core
        from .session.backoff import Backoff

        self.agent_id = agent_id
        self.labels: Mapping[str, str] = dict(labels or {})
        self._drain_timeout = drain_timeout
        self._keys = count(1)
        self._handlers: dict[str, Handler] = {}
        if dedupe is not None and isinstance(dedupe, (str, os.PathLike)):
            from .dedupe import SqliteDedupe

            dedupe = SqliteDedupe(dedupe)
        self._core = Core(
            self,
            transport or _transport(hub, ca, cert, key, token),
            self._handlers,
            about={
                "service": service,
                "version": version,
                "labels": dict(self.labels),
                "calls": calls,
                "max_concurrency": max_concurrency,
            },
            instance=token_hex(16),
            threads=min(threads or THREADS_DEFAULT, max(max_concurrency, 1)),
            connect_timeout=connect_timeout,
            grace=cancel_grace,
            backoff=Backoff(*reconnect_waits),
            random=SystemRandom(),
            dedupe=dedupe,
            health=health,
        )
        self._line = self._core
        self._waits: Waits = in_loop
        self._sync: SyncAgent | None = None

    # Providing.

    def capability(
        self,
        name: str,
        *,
        version: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        qps_limit: float | None = None,
        idempotent: bool = False,
        labels: Mapping[str, str] | None = None,
        aliases: Sequence[str] = (),
        max_concurrency: int | None = None,
        by_name: bool = False,
    ) -> Callable[[F], F]:
        """Offers a function: ``@agent.capability("order.create")``. Works while connected, too.

        A parameter that is annotated with `Context` or `SyncContext`, or named ``ctx``, gets the context. One other
        parameter gets the body; several get the keys of the body. A generator's pieces are streamed; what a sync one
        returns is the result.

        Args:
            name: words of ``a-z``, ``0-9`` and ``-`` joined by dots, from broad to narrow. Folded as the hub does.
            version: semantic version, which callers can ask for.
            description: for people. Default: the function's documentation.
            input_schema: JSON Schema of the body of a call. Default: of the parameters' types.
            output_schema: JSON Schema of the body of a result. Default: of the annotated return type.
            timeout: processing time in seconds of calls that name none; with 20 % grace the most that any call gets.
            qps_limit: most calls a second.
            idempotent: running one intent twice is harmless: a call whose provider was lost is tried again.
            labels: labels of this capability.
            aliases: further names that it answers to.
            max_concurrency: most handlers of it at once; others wait in the agent.
            by_name: the body is an object with the parameters' names, also where there is one parameter only.

        Raises:
            ConnectError: a name is outside the grammar, or the function takes what no body can fill.
        """

        def offer(function: F) -> F:
            handler = Handler(function, by_name)
            own = offer_of(
                name,
                handler,
                version=version,
                description=description,
                input_schema=input_schema,
                output_schema=output_schema,
                timeout=timeout,
                qps_limit=qps_limit,
                idempotent=idempotent,
                labels=labels,
                aliases=aliases,
                max_concurrency=max_concurrency,
            )
            self._handlers[own.header["name"]] = handler
            self._core.add(own)
            return function

        return offer

    def provide_function(self, function: F, name: str | None = None, **options: Any) -> F:
        """Offers a function as it is: its parameters are the keys of the body, whatever their number.

        ``name`` is the function's own if it is not given; the options are those of `capability`.
        """
        return self.capability(name or function.__name__, by_name=True, **options)(function)

    def remove_capability(self, name: str) -> None:
        """Withdraws a capability; its open calls go on."""
        name = names.fold(name)
        self._handlers.pop(name, None)
        self._core.remove(name)

    def update_load(
        self,
        *,
        queued: int | None = None,
        cpu: float | None = None,
        memory: float | None = None,
        health: int | None = None,
        levels: Mapping[str, float] | None = None,
    ) -> None:
        """Reports load figures now and with each heartbeat; calls that run or wait here are counted by the SDK.

        Args:
            queued: calls that wait in the program besides.
            cpu: share of the processor, 0 to 1.
            memory: share of the memory, 0 to 1.
            health: 0 to 100; below 60 the agent is out of routing.
            levels: fill of single capabilities, 0 to 1.
        """
        self._core.set_load(Load(queued, cpu, memory, health, dict(levels or {})))

    def update_status(self, status: str) -> None:
        """Changes readiness, ``ready`` or ``degraded``, for this session and later ones."""
        if status not in ("ready", "degraded"):
            raise ValueError(f"status is ready or degraded, not {status!r}")
        self._core.set_status(status)

    # Life.

    @property
    def is_connected(self) -> bool:
        """Whether a session is open for new calls at this moment. If not, they wait for the next one."""
        return self._core.connected

    @property
    def sync(self) -> SyncAgent:
        """The same agent, for programs without an event loop."""
        if self._sync is None:
            from .sync import SyncAgent

            self._sync = SyncAgent(self)
        return self._sync

    async def connect(self) -> Agent:
        """Connects; returns when the hub has registered the agent.

        Raises:
            ConnectError: no session within ``connect_timeout``, or none to be had at all.
            CloseReason: the hub refuses this agent.
        """
        await self._core.connect(self._waits)
        return self

    async def close(self, within: float | None = None) -> CloseReason:
        """Drains and ends: takes no new calls, lets handlers end, says GOODBYE. Can be called again, with less time.

        ``within``: seconds that handlers get, after which they are dropped. Default: the agent's ``drain_timeout``.
        """
        self._core.close(self._drain_timeout if within is None else within)
        return await self.closed()

    async def closed(self) -> CloseReason:
        """Returns when the agent's life ends, with the reason: closed by this program, or thrown out by the hub."""
        reason: CloseReason = await self._core.stopped.wait(self._waits)
        return reason

    async def serve(self) -> CloseReason:
        """Serves until the agent ends, or until SIGTERM or SIGINT, which drain it; a second signal ends it at once.

        Connects first, if that was not done. Signals are the main thread's affair: elsewhere none are heard.
        """
        import asyncio
        import signal

        if not self._core.begun:
            await self.connect()
        loop = asyncio.get_running_loop()
        times = count()

        def on_signal() -> None:
            self._core.close(self._drain_timeout if next(times) == 0 else 0.0)

        heard = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, on_signal)
                heard.append(number)
            except (NotImplementedError, RuntimeError, ValueError):
                log.debug("signal %s is not heard here", number)
        try:
            return await self.closed()
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def run(self) -> CloseReason:
        """Connects and serves, with an event loop of its own: what a program that only provides puts at its end."""
        import asyncio

        return asyncio.run(self.serve())

    async def __aenter__(self) -> Agent:
        return await self.connect()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Who is being stopped has no time for a drain.
        stopped = kind is not None and not issubclass(kind, Exception)
        await self.close(0.0 if stopped else None)

    # Asking.

    @overload
    async def call(self, capability: str, body: Any = None, **options: Unpack[CallOptions]) -> Any: ...
    @overload
    async def call(
        self, capability: str, body: Any = None, *, result: type[T], **options: Unpack[CallOptions]
    ) -> T: ...
    async def call(self, capability: str, body: Any = None, *, result: Any = None, **options: Any) -> Any:
        """Calls one agent that has the capability, and waits for the result. Cancelling the waiting cancels the call.

        ``result`` is the type wanted: a dataclass, a Pydantic model, ``list[int]``, `Payload` for bytes as they are.

        Raises:
            CallError: the call's failure, with ``code``, ``retryable`` and ``accepted``.
        """
        inbox = self._open(self._spec(capability, body, options), False)
        return result_of(await inbox.end(), result)

    async def reply(
        self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[CallOptions]
    ) -> Reply:
        """As `call`, with how the result got here."""
        inbox = self._open(self._spec(capability, body, options), False)
        return reply_of(await inbox.end(), result)

    def start(
        self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[CallOptions]
    ) -> PendingCall:
        """Makes a call and returns at once; the handle shows phase one and phase two apart."""
        spec = self._spec(capability, body, options)
        return PendingCall(self, spec, self._open(spec, True), result)

    async def notify(self, capability: str, body: Any = None, **options: Unpack[CallOptions]) -> Reply:
        """Waits for phase one only: a provider has it, and nobody will say how it ends.

        Raises:
            CallError: no provider took it.
        """
        inbox = self._open(self._spec(capability, body, options, mode="notify"), False)
        return reply_of(await inbox.end(), None)

    def stream(
        self,
        capability: str,
        body: Any = None,
        *,
        chunk: Any = None,
        result: Any = None,
        window: int = limits.CREDIT_DEFAULT,
        **options: Unpack[CallOptions],
    ) -> ResultStream:
        """Takes the result in pieces, for ``async for``: of type ``chunk``, and an end of type ``result``.

        The provider is never more than ``window`` pieces ahead of what was taken. Default 16.
        """
        window = min(max(window, 1), _WINDOW_MAX)
        inbox = self._open(self._spec(capability, body, options, window=window), True)
        return ResultStream(inbox, window, chunk, result)

    async def call_all(
        self,
        capability: str,
        body: Any = None,
        *,
        result: Any = None,
        targets: int | None = None,
        **options: Unpack[CallOptions],
    ) -> FanOut:
        """Asks every agent that has the capability, or each of ``agents``, or at most ``targets`` different ones.

        Each answers, or fails, for itself.

        Raises:
            CallError: the call failed as a whole.
        """
        async with self.stream_all(capability, body, result=result, targets=targets, **options) as parts:
            return await parts.collect()

    def stream_all(
        self,
        capability: str,
        body: Any = None,
        *,
        result: Any = None,
        targets: int | None = None,
        chunks: bool = False,
        chunk: Any = None,
        window: int = limits.CREDIT_DEFAULT,
        **options: Unpack[CallOptions],
    ) -> FanOutStream:
        """As `call_all`, each answer as it comes, for ``async for``; with ``chunks`` in pieces of type ``chunk``."""
        own = min(max(window, 1), _WINDOW_MAX) if chunks else None
        select: Any = "all" if targets is None else max(targets, 1)
        spec = self._spec(capability, body, options, window=own, fan_out=True, select=select)
        return FanOutStream(self._open(spec, True), own, chunk, result)

    async def submit(
        self, capability: str, body: Any = None, *, result: Any = None, **options: Unpack[TaskOptions]
    ) -> TaskHandle:
        """Makes a task: stored by the hub, it survives restarts of the hub, of its provider and of this program.

        Returns when it is stored, before any provider has it: it waits for one for as long as its budget lasts.

        Raises:
            CallError: the hub did not store it.
        """
        window = limits.CREDIT_DEFAULT if options.pop("progress", True) else None
        inbox = self._open(self._spec(capability, body, options, window=window, mode="task"), True)
        return await TaskHandle.stored(self, inbox, result)

    def task(self, task_id: str, *, result: Any = None) -> TaskHandle:
        """A handle of a task whose id is known, as after a restart of this program."""
        return TaskHandle(self, task_id, result)

    async def tasks(
        self, *, state: str | None = None, capability: str | None = None, limit: int | None = None
    ) -> list[TaskInfo]:
        """Tasks of this agent's identity, the newest first, over all pages; at most ``limit``."""
        asked: dict[str, Any] = {}
        if state is not None:
            asked["state"] = state
        if capability is not None:
            asked["capability"] = names.fold(capability)
        found: list[TaskInfo] = []
        while limit is None or len(found) < limit:
            page = await self.call("hub.tasks.list", {**asked, "limit": min(100, (limit or 100) - len(found) or 1)})
            new = [TaskInfo.of(told) for told in page.get("tasks") or ()]
            found.extend(new)
            # A page that does not lead on must not be asked for for ever.
            if not page.get("more") or not new:
                break
            asked["before"] = new[-1].task_id
        return found if limit is None else found[:limit]

    async def next_result(self, *, result: Any = None) -> TaskResult | None:
        """The next result of a task that no handle of this program waits for; ``None`` when the agent is closed.

        Whoever lets go of handles should read these: what nobody takes is sent again every 30 s.
        """
        end = await self._core.mailbox.next(self._waits)
        if end is None:
            return None
        self._received(end.task_id)
        if isinstance(end.result, CallError):
            return TaskResult(end.task_id, None, end.result)
        try:
            return TaskResult(end.task_id, reply_of(end.result, result), None)
        except CallError as error:
            return TaskResult(end.task_id, None, error)

    # Looking.

    async def agents(self, **query: Any) -> list[AgentInfo]:
        """The agents that this one may see; ``query`` may name ``capability``, ``status`` and ``labels``."""
        return [AgentInfo.of(told) for told in await listed(self, "hub.agents.list", "agents", "agent_id", query)]

    async def capabilities(self) -> list[CapabilityInfo]:
        """The dictionary of capabilities, with schemas and who offers each."""
        told = await listed(self, "hub.capabilities.list", "capabilities", "name", {})
        return [CapabilityInfo.of(own) for own in told]

    async def directory(self) -> Directory:
        """Agents in memory, kept fresh while it is open: ``async with await agent.directory() as directory``."""
        return await Directory(self).start()

    # Inside.

    def _spec(
        self,
        capability: str,
        body: Any,
        options: Mapping[str, Any],
        *,
        window: int | None = None,
        fan_out: bool = False,
        **fixed: Any,
    ) -> CallSpec:
        spec = spec_of(capability, body, options, own_labels=self.labels, window=window, **fixed)
        if spec.fan_out and not fan_out:
            raise invalid("several agents answer one by one: use call_all")
        return spec

    def _open(self, spec: CallSpec, steps: bool) -> Inbox:
        inbox = Inbox(next(self._keys), self._core, self._waits, steps)
        self._core.open(inbox, spec)
        return inbox

    def _claim(self, task_id: str) -> Inbox:
        inbox = Inbox(next(self._keys), self._core, self._waits, False)
        inbox.keeps_running = True
        self._core.claim(inbox, task_id)
        return inbox

    def _withdraw(self, key: int) -> None:
        self._core.withdraw(key)

    def _received(self, task_id: str) -> None:
        self._core.received(task_id)

    def _finished(self, run: int, outcome: Outcome) -> None:
        self._core.finished(run, outcome)

    async def _another(self, spec: CallSpec, than: str) -> str | None:
        """The least loaded but this one that a call may go to."""
        query = {"capability": spec.capability, "status": "ready", "labels": dict(spec.header.get("require", {}))}
        # A list names who waits for it too, but an agent without slots takes nothing.
        able = [own for own in await self.agents(**query) if own.agent_id != than and own.max_concurrency > 0]
        best = min(able, key=lambda own: own.in_flight / own.max_concurrency, default=None)
        return None if best is None else best.agent_id


def _transport(hub: str | None, ca: Path | None, cert: Path | None, key: Path | None, token: str | None) -> Transport:
    from .tls import Tls
    from .transport import WebSocketTransport

    def given(value: Path | None, name: str) -> Path | None:
        return os.environ.get(f"AGENT_REACH_{name}") if value is None else value

    hub = hub or os.environ.get("AGENT_REACH_HUB")
    if hub is None:
        raise ConnectError("config", "no address of a hub: give one, or set AGENT_REACH_HUB")
    ca, cert, key = given(ca, "CA"), given(cert, "CERT"), given(key, "KEY")
    tls = None if ca is None else Tls(ca, cert, key)
    return WebSocketTransport(hub, tls, token)


__all__ = ["Agent", "Payload"]
