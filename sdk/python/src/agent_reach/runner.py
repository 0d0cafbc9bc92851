"""Runs handlers: ``async`` ones in the program's event loop, the others in threads, none on the connection's thread."""

import asyncio
import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from .context import Context, RunState, SyncContext
from .errors import CallCancelled
from .loops import LoopMail
from .pool import Pool
from .provide import Handler, completed, failed
from .session.types import Failure, Invocation, Outcome
from .waits import in_thread, run_blocking

if TYPE_CHECKING:
    from .client import Agent

log = logging.getLogger("agent_reach")

_CANCELLED = Failure("cancelled", "cancelled")
_GONE = Failure("handler_error", "the program's event loop has ended", True)


class Runner:
    """All handlers of one agent that run. Methods without other note are called on the connection's thread."""

    def __init__(self, agent: "Agent", handlers: dict[str, Handler], threads: int) -> None:
        self._agent = agent
        self.handlers = handlers
        self._states: dict[int, RunState] = {}
        self._unbegun: set[int] = set()
        self._pool = Pool(threads, f"{agent.agent_id}-handler")
        #: Where ``async`` handlers run; set before the first call can come.
        self.mail: LoopMail | None = None
        self._own_loop: asyncio.AbstractEventLoop | None = None
        # The loop itself holds its tasks weakly only.
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def unbegun(self) -> int:
        """Handlers that were told to run and have not begun: the program is stuck, or has no thread left."""
        return len(self._unbegun)

    def run(self, call: Invocation) -> None:
        """Has a handler run."""
        handler = self.handlers.get(call.header["capability"])
        if handler is None:
            self._finish(call.run, Failure("unsupported", "the capability was just removed"))
            return
        state = RunState(call.run, call.header, call.credit, self._agent._line)
        self._states[call.run] = state
        self._unbegun.add(call.run)
        if not handler.is_async:
            self._pool.submit(partial(self._in_thread, handler, state, call))
        elif not self._mail().post(self._in_loop, handler, state, call):
            # An agent whose program is gone must not be given calls.
            self._end(call.run, _GONE)
            self._agent._core.end_with_program()

    def grant(self, run: int, n: int) -> None:
        """Lets a handler emit more."""
        state = self._states.get(run)
        if state is not None:
            state.grant(n)

    def cancel(self, run: int) -> None:
        """Tells a handler to stop."""
        state = self._states.get(run)
        if state is not None:
            state.cancel()

    def abort(self, run: int) -> None:
        """Stops a handler as far as that can be had; nobody hears of its end."""
        state = self._states.pop(run, None)
        if state is not None:
            state.cancel()

    def close(self) -> None:
        """The agent has ended."""
        for run in list(self._states):
            self.abort(run)
        self._pool.close()
        if self._own_loop is not None:
            self._own_loop.call_soon_threadsafe(self._own_loop.stop)

    def _mail(self) -> LoopMail:
        if self.mail is None:
            # The blocking interface brings no loop of its own.
            loop = self._own_loop = asyncio.new_event_loop()
            self.mail = LoopMail.of(loop)
            threading.Thread(target=_run_loop, args=(loop,), name="agent-reach-handlers", daemon=True).start()
        return self.mail

    # In the program's threads.

    def _finish(self, run: int, outcome: Outcome) -> None:
        self._agent._finished(run, outcome)

    def _end(self, run: int, outcome: Outcome) -> None:
        self._unbegun.discard(run)
        if self._states.pop(run, None) is not None:
            self._finish(run, outcome)

    def _in_thread(self, handler: Handler, state: RunState, call: Invocation) -> None:
        self._unbegun.discard(call.run)
        if state.cancelled:
            self._end(call.run, _CANCELLED)
            return
        outcome: Outcome
        try:
            result = handler.start(SyncContext(state, self._agent.sync), call.payload)
            if hasattr(result, "send") and hasattr(result, "throw"):
                result = _drain(state, result)
            outcome = completed(result)
        except BaseException as error:
            outcome = _failure(error, state)
        self._end(call.run, outcome)

    def _in_loop(self, handler: Handler, state: RunState, call: Invocation) -> None:
        if state.cancelled:
            self._end(call.run, _CANCELLED)
            return
        task = asyncio.get_running_loop().create_task(self._serve(handler, state, call))
        self._tasks.add(task)

        def done(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            # One that was cancelled before its first step has said nothing itself.
            self._end(call.run, _CANCELLED)

        task.add_done_callback(done)
        mail = self.mail
        assert mail is not None, "handlers run where their mail is delivered"
        if not state.stops_with(partial(mail.post, task.cancel)):
            task.cancel()

    async def _serve(self, handler: Handler, state: RunState, call: Invocation) -> None:
        outcome: Outcome = _CANCELLED
        try:
            self._unbegun.discard(call.run)
            context = Context(state, self._agent)
            result = handler.start(context, call.payload)
            if hasattr(result, "__aiter__"):
                try:
                    async for chunk in result:
                        await context.emit(chunk)
                finally:
                    await result.aclose()
                result = None
            else:
                result = await result
            outcome = completed(result)
        except asyncio.CancelledError:
            # By CANCEL, or with the program's loop: nobody waits, or nobody will ever know.
            outcome = _CANCELLED if state.cancelled else _GONE
            if not state.cancelled:
                raise
        except BaseException as error:
            outcome = _failure(error, state)
        finally:
            self._end(call.run, outcome)


def _failure(error: BaseException, state: RunState) -> Failure:
    if isinstance(error, CallCancelled) and state.cancelled:
        return _CANCELLED
    log.debug("a handler of %s failed", state.header["capability"], exc_info=error)
    return failed(error)


def _drain(state: RunState, generator: Any) -> Any:
    """Emits what a generator yields; what it returns is the result."""
    try:
        while True:
            run_blocking(state.emit(next(generator), in_thread))
    except StopIteration as end:
        return end.value
    finally:
        generator.close()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        loop.close()
