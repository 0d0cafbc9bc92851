"""What stands between the program's threads and the connection's: who waits for what, and where it is put."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from . import limits
from .codes import Accepted
from .dedupe import DedupeStore, Writer
from .driver import Driver
from .errors import CallError, CloseReason, ConnectError
from .inbox import Inbox, Mailbox
from .io import IoThread
from .loops import LoopMail
from .provide import Handler
from .runner import Runner
from .session.backoff import Backoff
from .session.machine import Session
from .session.registration import Registration
from .session.types import (
    CallEvent,
    CallSpec,
    Ended,
    Invocation,
    Load,
    Note,
    Offer,
    Outcome,
    Past,
    Payload,
    Ready,
    TaskEnd,
)
from .transport import Transport
from .waits import Latch, Waits, in_loop

if TYPE_CHECKING:
    from .client import Agent

log = logging.getLogger("agent_reach")


class Core:
    """One agent's life. Its methods may be called from any thread, but for those that the driver calls."""

    def __init__(
        self,
        agent: Agent,
        transport: Transport,
        handlers: dict[str, Handler],
        *,
        about: dict[str, Any],
        instance: str,
        threads: int,
        connect_timeout: float,
        grace: float,
        backoff: Backoff,
        random: Random,
        dedupe: DedupeStore | None,
        health: Callable[[], Any] | None,
    ) -> None:
        self._agent = agent
        self._transport = transport
        self._about = about
        self._instance = instance
        self._connect_timeout = connect_timeout
        self._grace = grace
        self._backoff = backoff
        self._random = random
        self._dedupe = dedupe
        self._health = health
        self._health_timer: asyncio.TimerHandle | None = None
        self._offers: dict[str, Offer] = {}
        self._load = Load()
        self._status: str | None = None
        self._runner = Runner(agent, handlers, threads)
        self._inboxes: dict[int, Inbox] = {}
        self._driver: Driver | None = None
        self._writer: Writer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_error: ConnectError | None = None
        self._lock = threading.Lock()
        self.mailbox = Mailbox()
        #: Set with `None` at the first session, with an error when there will be none.
        self.opened = Latch()
        #: Set with the reason when the agent's life ends.
        self.stopped = Latch()
        self.begun = False
        self.connected = False
        self.max_message = limits.MESSAGE_BYTES_DEFAULT

    # Life.

    async def connect(self, waits: Waits) -> None:
        """Begins, and waits for the first session."""
        with self._lock:
            if self.begun:
                raise ConnectError("config", "an agent connects once: make another one")
            self.begun = True
        past: list[Past] | None = None
        if self._dedupe is not None:
            self._instance, found = self._dedupe.open(self._agent.agent_id, self._instance)
            past = list(found)
        if waits is in_loop:
            self._runner.mail = LoopMail.of(asyncio.get_running_loop())
        registration = Registration(self._agent.agent_id, self._instance, offers=dict(self._offers), **self._about)
        registration.load, registration.status = self._load, self._status
        session = Session(registration, random=self._random, grace=self._grace, backoff=self._backoff, past=past)
        io = IoThread.acquire()
        driver = Driver(io, session, self._transport, self)
        if self._dedupe is not None:
            self._writer = Writer(self._dedupe, partial(driver.post, session.noted), self._not_written)
        self._driver = driver
        io.loop.call_soon_threadsafe(self._begin_timer, io.loop)
        driver.start()
        try:
            problem = await self.opened.wait(waits)
        except BaseException:
            self.close(0.0)
            raise
        if problem is not None:
            raise problem

    def _begin_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._connect_timeout, self._too_late)

    def _too_late(self) -> None:
        last = self._last_error or "the hub did not answer"
        self.opened.set(ConnectError("timeout", f"no session in time; last failure: {last}"))
        self.close(0.0)

    def close(self, within: float) -> None:
        """Drains and ends."""
        with self._lock:
            if self._driver is not None:
                self._driver.post(self._driver.session.close, within)
                return
            self.begun = True
        self.on_stopped(CloseReason("closed", "closed by this program"))

    def end_with_program(self) -> None:
        """Ends, since the program's event loop has; behind what its last handlers said."""
        self._post("close", 0.0, work=True)

    def _not_written(self, error: Exception) -> None:
        log.error("the dedupe store cannot be written: %s", error)

    # What the program wants.

    def open(self, inbox: Inbox, spec: CallSpec) -> None:
        """Hands a call to the connection."""
        driver = self._driver
        if driver is None or self.stopped.is_set:
            reason = self.stopped.value or "the agent is not connected"
            raise CallError.of("closed", str(reason), accepted=Accepted.NO)
        if driver.is_full:
            raise CallError.of("overloaded", "too many calls wait for the connection", accepted=Accepted.NO)
        self._inboxes[inbox.key] = inbox
        driver.post(driver.session.open, inbox.key, spec, work=True)
        if self.stopped.is_set:
            self._end_inbox(inbox.key)

    def claim(self, inbox: Inbox, task_id: str) -> None:
        """Has the result of a task come to an inbox."""
        self._inboxes[inbox.key] = inbox
        self._post("claim", inbox.key, task_id)
        if self._driver is None or self.stopped.is_set:
            self._end_inbox(inbox.key)

    def _end_inbox(self, key: int) -> None:
        # Whoever comes while the agent ends is told so here, if the connection's thread did not.
        inbox = self._inboxes.pop(key, None)
        if inbox is not None:
            inbox.push(Ended(CallError.of("closed", str(self.stopped.value or "the agent is not connected"))))

    def _post(self, method: str, *args: Any, work: bool = False) -> None:
        driver = self._driver
        if driver is not None:
            driver.post(getattr(driver.session, method), *args, work=work)

    def cancel(self, key: int) -> None:
        """Nobody wants the call any more."""
        self._inboxes.pop(key, None)
        # In line with the call itself: a word that overtakes it would find nothing to cancel.
        self._post("cancel", key, work=True)

    def forget(self, key: int) -> None:
        """Nobody waits for the task any more, and it goes on."""
        self._inboxes.pop(key, None)
        self._post("forget", key, work=True)

    def withdraw(self, key: int) -> None:
        """Nobody wants the call any more, and its end is waited for."""
        self._post("withdraw", key, work=True)

    def consumed(self, key: int, n: int, target: str | None) -> None:
        """So many chunks were taken."""
        self._post("consumed", key, n, target)

    def received(self, task_id: str) -> None:
        """A task's result is in the program's hands."""
        self._post("received", task_id)

    def add(self, offer: Offer) -> None:
        """One capability more."""
        if len(self._offers) >= limits.CAPABILITIES_MAX and offer.header["name"] not in self._offers:
            raise ConnectError("config", f"an agent has at most {limits.CAPABILITIES_MAX} capabilities")
        self._offers[offer.header["name"]] = offer
        self._post("add", offer)

    def remove(self, name: str) -> None:
        """One capability less."""
        self._offers.pop(name, None)
        self._post("remove", name)

    def set_load(self, load: Load) -> None:
        """New load figures."""
        self._load = load
        self._post("set_load", load)

    def set_status(self, status: str) -> None:
        """New readiness."""
        self._status = status
        self._post("set_status", status)

    def emit(self, run: int, payload: Payload) -> None:
        """A handler sends a chunk."""
        self._post("emit", run, payload, work=True)

    def would_take(self, run: int, seconds: float) -> None:
        """A handler says how long it takes."""
        self._post("would_take", run, seconds)

    def finished(self, run: int, outcome: Outcome) -> None:
        """A handler ended; behind its chunks."""
        self._post("finished", run, outcome, work=True)

    # What the driver wants, on the connection's thread.

    @property
    def unbegun(self) -> int:
        """Handlers that have not begun."""
        return self._runner.unbegun

    def _health_due(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        # One at a time: the next is asked when this one has answered.
        ask = threading.Thread(target=self._ask_health, args=(loop, every), name="agent-reach-health", daemon=True)
        ask.start()

    def _ask_health(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        try:
            health = self._health() if self._health is not None else 100
            if inspect.isawaitable(health):
                health = asyncio.run(_awaited(health))
            health = min(max(int(health), 0), 100)
        except Exception:
            log.exception("the health hook failed")
            health = 0
        if health != self._load.health:
            self.set_load(self._load._replace(health=health))
        with contextlib.suppress(RuntimeError):  # The connection's thread has ended, and the agent with it.
            loop.call_soon_threadsafe(self._health_in, loop, every)

    def _health_in(self, loop: asyncio.AbstractEventLoop, every: float) -> None:
        if not self.stopped.is_set:
            self._health_timer = loop.call_later(every, self._health_due, loop, every)

    def on_ready(self, ready: Ready) -> None:
        """A session is open."""
        self.max_message = ready.max_message
        self.connected = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._health is not None and self._health_timer is None:
            self._health_in(asyncio.get_running_loop(), ready.keepalive / 2)
        self.opened.set(None)

    def on_away(self, error: ConnectError | None) -> None:
        """There is no session for new calls now."""
        self.connected = False
        if error is not None:
            self._last_error = error

    def on_stopped(self, reason: CloseReason) -> None:
        """The end."""
        self.connected = False
        for timer in (self._timer, self._health_timer):
            if timer is not None:
                timer.cancel()
        self._runner.close()
        if self._writer is not None:
            # Whoever is told of the end may open the store again; what is left to write is a few lines.
            self._writer.close()
            threading.Thread(target=self._end_after_writing, args=(reason,), daemon=True).start()
        else:
            if self._dedupe is not None:
                self._dedupe.close()
            self._tell_end(reason)

    def _end_after_writing(self, reason: CloseReason) -> None:
        if self._writer is not None:
            self._writer.join()
        self._tell_end(reason)

    def _tell_end(self, reason: CloseReason) -> None:
        error: Exception = reason
        if reason.code == "connect":
            error = self._last_error or reason
        self.opened.set(error)
        self.stopped.set(reason)
        self.mailbox.close()
        for key in list(self._inboxes):
            self._end_inbox(key)

    def tell(self, key: int, event: CallEvent) -> bool:
        """Tells a caller."""
        if type(event) is Ended:
            inbox = self._inboxes.pop(key, None)
            if inbox is not None and not inbox.dropped:
                return inbox.push(event)
            if event.task_id is not None:
                # The handle was let go of while this was on its way, and the hub will not send it again.
                self.mailbox.put(TaskEnd(event.task_id, event.result))
            return True
        inbox = self._inboxes.get(key)
        if inbox is None or inbox.push(event):
            return True
        self._inboxes.pop(key, None)
        return False

    def arrived(self, end: TaskEnd) -> None:
        """A task's result for the inbox."""
        self.mailbox.put(end)

    def hand(self, key: int, task_id: str) -> TaskEnd | None:
        """Takes the result of a task from the inbox, for a handle."""
        end = self.mailbox.take(task_id)
        if end is not None:
            self.tell(key, Ended(end.result))
        return end

    def run(self, call: Invocation) -> None:
        """Runs a handler."""
        self._runner.run(call)

    def grant(self, run: int, n: int) -> None:
        """Lets a handler emit more."""
        self._runner.grant(run, n)

    def cancel_run(self, run: int) -> None:
        """Tells a handler to stop."""
        self._runner.cancel(run)

    def abort_run(self, run: int) -> None:
        """Stops a handler by force."""
        self._runner.abort(run)

    def note(self, note: Note) -> None:
        """Writes into the dedupe store."""
        if self._writer is not None:
            self._writer.write(note)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
