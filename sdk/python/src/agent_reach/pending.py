"""Waiting: the handles of calls that were made."""

import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .codes import Accepted
from .errors import CallError
from .inbox import Inbox, raised
from .payload import Payload, decode_body
from .schema import convert
from .session.answers import attempts
from .session.types import Acceptance, Attempt, CallSpec, Chunk, Ended, Part, RawReply

if TYPE_CHECKING:
    from .client import Agent


class Reply(NamedTuple):
    """How a call ended, and how it got there."""

    #: The result.
    body: Any
    #: Who did it.
    target: str | None
    #: Hub-wide id, for ``hub.traces.get``.
    call_id: str | None
    #: The business intent.
    request_id: str
    #: Every try in order, the good one too.
    attempts: tuple[Attempt, ...]
    #: Why it went where it went, in one line.
    route: str | None
    #: How long the handler ran, in seconds.
    execution: float | None
    #: The result is an earlier call's with the same body.
    cached: bool
    #: The ``request_id`` had ended before: this is its stored end.
    duplicate: bool
    #: Of a task.
    task_id: str | None


def body_of(payload: Payload, wanted: Any, **more: Any) -> Any:
    """A body as the type wanted.

    Raises:
        CallError: ``decode``, when it is of another one.
    """
    if wanted is Payload:
        return payload
    try:
        value = decode_body(payload)
        return value if wanted is None else convert(wanted, value)
    except ValueError as error:
        text = f"the result is not of the type wanted: {error}"
        raise CallError.of("decode", text, accepted=Accepted.YES, **more) from error


def result_of(raw: RawReply, wanted: Any) -> Any:
    """The result alone."""
    header = raw.header
    return body_of(
        raw.payload,
        wanted,
        request_id=raw.request_id,
        call_id=header.get("call_id"),
        target=header.get("target"),
    )


def reply_of(raw: RawReply, wanted: Any) -> Reply:
    """The result with all that is known of it."""
    header = raw.header
    get = header.get
    execution = get("execution_ms")
    return Reply(
        result_of(raw, wanted),
        get("target"),
        get("call_id"),
        raw.request_id,
        attempts(header),
        get("route"),
        None if execution is None else execution / 1000,
        get("cached", False),
        get("duplicate", False),
        get("task_id"),
    )


class PendingCall:
    """A call that was made. Between its two phases the caller can still decide; `cancel` and `drop` let go of it."""

    def __init__(self, agent: "Agent", spec: CallSpec, inbox: Inbox, wanted: Any) -> None:
        self._agent = agent
        self._spec = spec
        self._inbox = inbox
        self._wanted = wanted
        self._made = time.monotonic()
        self._acceptance: Acceptance | None = None
        self._end: Ended | None = None

    async def _advance(self) -> None:
        event = await self._inbox.next()
        if type(event) is Acceptance:
            self._acceptance = event
        elif type(event) is Ended:
            self._end = event

    async def accepted(self) -> Acceptance | None:
        """Waits for phase one: a provider has the call. ``None`` when the result came first, which stands for it.

        Raises:
            CallError: the call's failure, when it failed before.
        """
        while self._acceptance is None and self._end is None:
            await self._advance()
        if self._acceptance is None and self._end is not None:
            raised(self._end.result)
        return self._acceptance

    async def would_timeout(self) -> Acceptance | None:
        """Waits until a provider says that it will miss ``preferred_timeout``. ``None``: the call ended before."""
        while self._end is None:
            if self._acceptance is not None and self._acceptance.would_timeout:
                return self._acceptance
            await self._advance()
        return None

    async def reply(self) -> Reply:
        """Waits for the result and how it got there. Whoever is stopped here lets go of the call.

        Raises:
            CallError: the call's failure.
        """
        return reply_of(await self._ended(), self._wanted)

    async def result(self) -> Any:
        """Waits for the result alone; see `reply`."""
        return result_of(await self._ended(), self._wanted)

    async def _ended(self) -> RawReply:
        return raised(self._end.result) if self._end is not None else await self._inbox.end()

    async def cancel(self) -> Reply:
        """Cancels the call and waits for what becomes of it: its handler may just have completed it.

        Raises:
            CallError: ``cancelled`` when it was, else the call's failure.
        """
        if self._end is None:
            self._agent._withdraw(self._inbox.key)
        return await self.reply()

    def drop(self) -> None:
        """Cancels the call without waiting for what becomes of it."""
        self._inbox.drop()

    async def elsewhere(self) -> bool:
        """Takes the call from the agent that accepted it and asks the least loaded other one that can do it.

        The first handler is cancelled and its end waited for, and only when that end is ``cancelled`` the other agent
        is asked, under a new ``request_id``: the two never run at once, and one that completed is not run again.
        ``True`` when that was done: from here on this handle is about the new call. Needs the right to call
        ``hub.agents.list``.

        Raises:
            CallError: of ``hub.agents.list``; the first call goes on.
        """
        acceptance = await self.accepted()
        if acceptance is None or acceptance.target is None or self._end is not None or "agents" in self._spec.header:
            return False
        other = await self._agent._another(self._spec, acceptance.target)
        if other is None:
            return False
        self._agent._withdraw(self._inbox.key)
        while self._end is None:
            await self._advance()
        result = self._end.result
        if not isinstance(result, CallError) or result.code != "cancelled":
            return False
        old = self._spec
        budget = None if old.budget is None else max(old.budget - (time.monotonic() - self._made), 0.0)
        self._spec = CallSpec(old.capability, {**old.header, "agents": [other]}, old.body, None, budget, old.window)
        self._inbox = self._agent._open(self._spec, steps=True)
        self._acceptance = self._end = None
        return True


class Piece(NamedTuple):
    """One piece of a streamed result in a fan-out."""

    #: Its number, from 0 without gaps for each target.
    seq: int
    #: Whose piece.
    target: str | None
    #: The piece.
    body: Any


class Taken:
    """Chunks taken for which the provider has not got new credit yet: it goes on half a window at a time."""

    def __init__(self, window: int) -> None:
        self._half = (window + 1) // 2
        self._taken = 0

    def one(self, inbox: Inbox, target: str | None = None) -> None:
        """One more."""
        self._taken += 1
        if self._taken >= self._half:
            inbox.grant(self._taken, target)
            self._taken = 0


class ResultStream(AsyncIterator[Any]):
    """A result in pieces, for ``async for``. A stream is whole only when its end came.

    One that broke off raises ``interrupted`` or the call's failure, never just nothing. Use ``async with``, or take all
    of it: leaving it early by `aclose` cancels the call.
    """

    def __init__(self, inbox: Inbox, window: int, chunk: Any, wanted: Any) -> None:
        self._inbox = inbox
        self._taken = Taken(window)
        self._chunk = chunk
        self._wanted = wanted
        self._end: Ended | None = None
        #: Phase one, once it was seen.
        self.acceptance: Acceptance | None = None

    def __aiter__(self) -> "ResultStream":
        return self

    async def __anext__(self) -> Any:
        while self._end is None:
            event = await self._inbox.next()
            if type(event) is Chunk:
                self._taken.one(self._inbox)
                return body_of(event.payload, self._chunk, target=event.target)
            if type(event) is Acceptance:
                self.acceptance = event
            elif type(event) is Ended:
                self._end = event
                raised(event.result)
        raise StopAsyncIteration

    async def end(self) -> Reply:
        """The final result; passes over pieces that were not taken.

        Raises:
            CallError: the call's failure.
        """
        while self._end is None:
            try:
                async for _ in self:
                    pass
            except CallError:
                if self._end is None:
                    continue  # A piece of another type, which nobody wants here.
                raise
        return reply_of(raised(self._end.result), self._wanted)

    async def aclose(self) -> None:
        """Lets go: a call that has not ended is cancelled."""
        self._inbox.drop()

    async def __aenter__(self) -> "ResultStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._inbox.drop()


class FanOutPart(NamedTuple):
    """One agent's part of a fan-out."""

    #: Who answered.
    target: str
    #: How its part ended, unless it failed.
    reply: Reply | None
    #: Its failure, which is its own.
    error: CallError | None

    @property
    def body(self) -> Any:
        """The result.

        Raises:
            CallError: the part's failure.
        """
        if self.error is not None:
            raise self.error
        return None if self.reply is None else self.reply.body


class Summary(NamedTuple):
    """The hub's count of a fan-out."""

    targets: int
    completed: int
    failed: int


class FanOut(NamedTuple):
    """All answers of a fan-out."""

    #: Each target's part, in the order they came.
    parts: tuple[FanOutPart, ...]
    summary: Summary


class FanOutStream(AsyncIterator[FanOutPart | Piece]):
    """The answers of a fan-out as they come, one `FanOutPart` for each target, for ``async for``.

    With ``chunks`` each target's `Piece` objects come too; each target has a window of its own, so one that is ahead
    holds up no other. Leaving it early by `aclose` cancels the call.
    """

    def __init__(self, inbox: Inbox, window: int | None, chunk: Any, wanted: Any) -> None:
        self._inbox = inbox
        self._window = window or 1
        self._chunk = chunk
        self._wanted = wanted
        self._taken: dict[str, Taken] = {}
        self._end: Ended | None = None

    def __aiter__(self) -> "FanOutStream":
        return self

    async def __anext__(self) -> FanOutPart | Piece:
        while self._end is None:
            event = await self._inbox.next()
            if type(event) is Part:
                self._taken.pop(event.target, None)
                return _part(event, self._wanted)
            if type(event) is Chunk:
                name = event.target or ""
                if name not in self._taken:
                    self._taken[name] = Taken(self._window)
                self._taken[name].one(self._inbox, event.target)
                body = body_of(event.payload, self._chunk, target=event.target)
                return Piece(event.seq, event.target, body)
            if type(event) is Ended:
                self._end = event
                raised(event.result)
        raise StopAsyncIteration

    async def summary(self) -> Summary:
        """The hub's count; passes over parts that were not taken.

        Raises:
            CallError: the call's failure, when it failed as a whole.
        """
        while self._end is None:
            async for _ in self:
                pass
        return summary_of(raised(self._end.result).header)

    async def collect(self) -> FanOut:
        """Takes all parts; see `summary`."""
        parts = tuple([part async for part in self if isinstance(part, FanOutPart)])
        return FanOut(parts, await self.summary())

    async def aclose(self) -> None:
        """Lets go: a call that has not ended is cancelled."""
        self._inbox.drop()

    async def __aenter__(self) -> "FanOutStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._inbox.drop()


def _part(event: Part, wanted: Any) -> FanOutPart:
    if isinstance(event.result, CallError):
        return FanOutPart(event.target, None, event.result)
    try:
        return FanOutPart(event.target, reply_of(event.result, wanted), None)
    except CallError as error:
        return FanOutPart(event.target, None, error)


def summary_of(header: Mapping[str, Any]) -> Summary:
    """What a RESULT says at the end of a fan-out."""
    told = header.get("summary") or {}
    return Summary(told.get("targets", 0), told.get("completed", 0), told.get("failed", 0))
