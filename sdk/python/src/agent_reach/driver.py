"""Carries inputs to the session and its effects out, on the connection's thread.

Each wake-up takes all that is there (words of callers, frames, ends of handlers), then writes what came of it in one
go. Handlers run elsewhere, so nothing that they do can hold up a heartbeat.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .errors import CloseReason, ConnectError
from .io import IoThread
from .session.machine import Session
from .session.types import (
    Abort,
    AbortRun,
    Arrived,
    CallEvent,
    CancelRun,
    Close,
    Dial,
    Effect,
    Grant,
    Hand,
    Invocation,
    Leaving,
    Note,
    Ping,
    Ready,
    Run,
    Stopped,
    TaskEnd,
    Tell,
    WriteNote,
)
from .transport import Transport, Wire

log = logging.getLogger("agent_reach")

#: Messages handed to the socket before it is asked again whether it takes more, in bytes.
WRITE_BYTES = 256 * 1024
#: Calls that wait for the connection's thread to take them, at most.
WORDS_MAX = 8192

Word = tuple[Callable[..., None], tuple[Any, ...]]


class Host(Protocol):
    """Who runs handlers and tells callers. All but `unbegun` is called on the connection's thread."""

    @property
    def unbegun(self) -> int:
        """Handlers that were told to run and have not begun."""

    def on_ready(self, ready: Ready) -> None:
        """A session is open."""

    def on_away(self, error: ConnectError | None) -> None:
        """There is no session for new calls now."""

    def on_stopped(self, reason: CloseReason) -> None:
        """The end; nothing follows."""

    def tell(self, key: int, event: CallEvent) -> bool:
        """Tells a caller; ``False``: it let too much wait."""

    def arrived(self, end: TaskEnd) -> None:
        """A task's result for the inbox."""

    def hand(self, key: int, task_id: str) -> TaskEnd | None:
        """Takes the result of a task from the inbox, for a handle."""

    def run(self, call: Invocation) -> None:
        """Runs a handler."""

    def grant(self, run: int, n: int) -> None:
        """Lets a handler emit more."""

    def cancel_run(self, run: int) -> None:
        """Tells a handler to stop."""

    def abort_run(self, run: int) -> None:
        """Stops a handler by force."""

    def note(self, note: Note) -> None:
        """Writes into the dedupe store."""


class Driver:
    """One agent's connection. `start` and `post` may be called from any thread."""

    def __init__(self, io: IoThread, session: Session, transport: Transport, host: Host) -> None:
        self._io = io
        self._loop = io.loop
        self.session = session
        self._transport = transport
        self._host = host
        self._wire: Wire | None = None
        self._dialing: asyncio.Task[None] | None = None
        self._closing: int | None = None
        self._control: deque[Word] = deque()
        self._work: deque[Word] = deque()
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._do: dict[type[Any], Callable[[Any], None]] = {
            Tell: self._tell,
            Run: lambda effect: host.run(effect.call),
            Grant: lambda effect: host.grant(effect.run, effect.n),
            CancelRun: lambda effect: host.cancel_run(effect.run),
            AbortRun: lambda effect: host.abort_run(effect.run),
            WriteNote: lambda effect: host.note(effect.note),
            Arrived: lambda effect: host.arrived(effect.end),
            Hand: self._hand,
            Dial: self._dial,
            Ping: self._ping,
            Close: self._close,
            Abort: self._abort,
            Ready: host.on_ready,
            Leaving: lambda _: host.on_away(None),
            Stopped: self._stop,
        }

    # From any thread.

    def start(self) -> None:
        """Begins to dial."""
        self._loop.call_soon_threadsafe(self._begin)

    def post(self, method: Callable[..., None], *args: Any, work: bool = False) -> None:
        """Has a method of the session called with the time and these.

        ``work``: it waits while the socket is behind. What only takes away, or keeps things going, never waits.
        """
        (self._work if work else self._control).append((method, args))
        self._wake()

    @property
    def is_full(self) -> bool:
        """Whether too many calls wait for this thread already."""
        return len(self._work) >= WORDS_MAX

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._take_words)
            except RuntimeError:
                # The thread is gone, and with it the agent: every call was told so.
                self._stopped = True

    # On the connection's thread.

    def _begin(self) -> None:
        self.session.start(self._loop.time())
        self._after()

    def _take_words(self) -> None:
        # Before the words are taken: what comes after the last one is taken schedules anew.
        self._scheduled = False
        now = self._loop.time()
        control, work, session = self._control, self._work, self.session
        while control:
            method, args = control.popleft()
            method(now, *args)
        while work and session.has_room:
            method, args = work.popleft()
            method(now, *args)
        self._after()

    def _after(self) -> None:
        """Carries out what the session wants, and writes."""
        session = self.session
        while session.effects:
            effects = list(session.effects)
            session.effects.clear()
            for effect in effects:
                self._carry_out(effect)
        if self._stopped:
            return
        self._write()
        at = session.next_timeout
        if at is not None and (self._timer is None or at < self._timer.when()):
            # Often earlier than needed: a heartbeat put off by traffic is not worth a new timer for each frame.
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._tick)

    def _carry_out(self, effect: Effect) -> None:
        self._do[type(effect)](effect)

    def _write(self) -> None:
        session, wire = self.session, self._wire
        if wire is None:
            return
        wrote = False
        while session.has_outgoing and wire.writable:
            batch: list[bytes] = []
            size = 0
            while size < WRITE_BYTES and (message := session.pop()) is not None:
                batch.append(message)
                size += len(message)
            wire.send(batch)
            wrote = True
        if wrote:
            session.wrote(self._loop.time())
        wire.read(session.may_read)
        if self._closing is not None and not session.has_outgoing:
            code, self._closing = self._closing, None
            wire.close(code)
        if self._work and session.has_room and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._take_words)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        at = self.session.next_timeout
        if at is not None and at <= now:
            self.session.unbegun = self._host.unbegun
            self.session.timeout(now)
        self._after()

    # Frames.

    def on_messages(self, messages: list[bytes]) -> None:
        """Binary messages came, in one go."""
        now = self._loop.time()
        take = self.session.message
        for message in messages:
            take(now, message)
        self._after()

    def on_text(self) -> None:
        """A text message came."""
        self.session.text(self._loop.time())
        self._after()

    def on_alive(self) -> None:
        """A ping or a pong came."""
        self.session.alive(self._loop.time())

    def on_writable(self) -> None:
        """More can be written."""
        self._after()

    def on_lost(self, code: int | None, reason: str) -> None:
        """The connection is gone."""
        self._wire = None
        self._closing = None
        self.session.lost(self._loop.time(), code, reason)
        self._host.on_away(ConnectError("io", reason or f"closed with {code}"))
        self._after()

    # Effects.

    def _dial(self, _: Dial) -> None:
        self._dialing = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            wire = await self._transport.open(self)
        except ConnectError as error:
            self._host.on_away(error)
            self.session.dial_failed(self._loop.time(), error)
        except Exception as error:
            log.exception("dialling failed in a way that was not foreseen")
            failed = ConnectError("io", f"{type(error).__name__}: {error}")
            self._host.on_away(failed)
            self.session.dial_failed(self._loop.time(), failed)
        else:
            if self._stopped:
                wire.abort()
                return
            self._wire = wire
            self.session.unbegun = self._host.unbegun
            self.session.opened(self._loop.time())
        self._dialing = None
        self._after()

    def _ping(self, _: Ping) -> None:
        if self._wire is not None:
            self._wire.ping()

    def _abort(self, effect: Abort) -> None:
        if self._wire is not None:
            self._wire.abort()
            self._wire = None
        self._closing = None
        self._host.on_away(effect.why)

    def _close(self, effect: Close) -> None:
        self._closing = effect.code

    def _tell(self, effect: Tell) -> None:
        if not self._host.tell(effect.key, effect.event):
            self.session.cancel(self._loop.time(), effect.key)

    def _hand(self, effect: Hand) -> None:
        end = self._host.hand(effect.key, effect.task_id)
        if end is not None:
            now = self._loop.time()
            self.session.forget(now, effect.key)
            self.session.received(now, end.task_id)

    def _stop(self, effect: Stopped) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._wire is not None:
            self._wire.abort()
            self._wire = None
        if self._dialing is not None:
            self._dialing.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._host.on_stopped(effect.reason)
        # Whoever was late is told so as well.
        self._loop.call_soon(self._last)

    def _last(self) -> None:
        self._take_words()
        self._io.release()
