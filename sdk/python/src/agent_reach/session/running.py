"""The provider's side: handlers that run, each intent once, whatever the connection does."""

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from heapq import heappop, heappush

from .. import limits
from ..codec import encode
from ..codes import Kind
from ..frames import Header
from .context import Context
from .memory import KEEP_ON_DISK, Memory, Served
from .room import Outlook, Rooms
from .run import Chunks, Run, refusal
from .types import (
    AbortRun,
    CancelRun,
    Failure,
    Grant,
    Invocation,
    Note,
    Offer,
    Outcome,
    Past,
    Payload,
    WriteNote,
)
from .types import Run as StartRun

#: A handler whose hub does not come back gets at least so long after the connection was lost.
ORPHAN = 30.0
_CANCELLED = Failure("cancelled", "cancelled")
#: Of a call that an earlier life of the process ended, whose result is not kept since it is no task's.
_NOT_KEPT = Failure(
    "handler_error",
    "an earlier life of the agent's process did this, and its result is not kept",
    details={"code": "interrupted", "message": "an earlier life of the agent's process did this"},
)


def is_final(outcome: Outcome) -> bool:
    """Whether a repeated CALL is answered with this, and not run again: a retryable failure frees the intent."""
    return isinstance(outcome, Payload) or not (outcome.retryable or outcome.code == "cancelled")


class Running:
    """All handlers of this agent."""

    def __init__(self, most: int, grace: float, past: Sequence[Past] | None = None) -> None:
        self._runs: dict[int, Run] = {}
        self._by_id: dict[int, int] = {}
        self._by_intent: dict[str, int] = {}
        self._rooms = Rooms()
        self._memory = Memory()
        #: Ends that the dedupe store has; ``None``: there is no such store.
        self._on_disk = None if past is None else Memory(KEEP_ON_DISK, past)
        #: Ends that are being written into it.
        self._saving = 0
        #: ACCEPTs that are held back; all for the same time, so in order.
        self._holds: deque[tuple[float, int]] = deque()
        # Moments with their runs. An entry whose run has another moment by now, or is over, is passed over.
        self._aborts: list[tuple[float, int]] = []
        self._orphans: list[tuple[float, int]] = []
        self._next_run = 0
        #: Handlers that exist, and calls that wait for theirs.
        self.handlers = 0
        self._most = most
        self._grace = grace

    @property
    def is_busy(self) -> bool:
        """Whether anything is to be waited for before the agent ends: handlers, and ends that are being written."""
        return self.handlers > 0 or self._saving > 0

    @property
    def queued(self) -> int:
        """Calls that wait for another of their capability to end."""
        return self._rooms.waiting

    @property
    def on_wire(self) -> int:
        """Calls that are on the present connection."""
        return len(self._by_id)

    def on_call(self, cx: Context, offer: Offer | None, header: Header, body: bytes | None) -> None:
        """CALL: joins the handler that runs for this intent, tells its end again, or starts one."""
        # The hub remembers ids per caller, so two callers may use one id; and a hub that forgot must not get another
        # capability's result.
        intent = f"{header['caller']}\0{header['capability']}\0{header['request_id']}"
        key = self._by_intent.get(intent)
        if key is not None:
            return self._join(cx, key, header, body)
        fingerprint = self._fingerprint(body)
        served = self._recall(intent, fingerprint)
        if served is not None:
            return self._tell_again(cx, intent, header, served)
        if offer is None:
            return _refuse(cx, header, Failure("unsupported", f"no handler for {header['capability']}"))
        if self.handlers >= self._most:
            return _refuse(cx, header, Failure("overloaded", f"{self.handlers} handlers run already", True))
        run = Run(cx.now, intent, header)
        run.fingerprint = fingerprint
        run.most = offer.max_concurrency
        key = self._new_key()
        run.waiting = _invocation(key, header, body)
        return self._start(cx, key, run, self._on_disk is not None and not offer.idempotent)

    def _fingerprint(self, body: bytes | None) -> bytes:
        return b"" if self._on_disk is None else blake2b(body or b"", digest_size=16).digest()

    def _recall(self, intent: str, fingerprint: bytes) -> Served | None:
        served = self._memory.find(intent)
        if served is None and self._on_disk is not None:
            served = self._on_disk.find(intent)
            if served is not None and served.fingerprint != fingerprint:
                # Another body is another intent: the hub has forgotten the first one, or it would refuse this.
                return None
        return served

    def _new_key(self) -> int:
        self._next_run += 1
        return self._next_run

    def _start(self, cx: Context, key: int, run: Run, note: bool) -> None:
        """Begins a run: as soon as it is noted, if it is to be."""
        assert run.id is not None, "a run begins with a CALL"
        self._by_intent[run.intent] = key
        self._by_id[run.id] = key
        self._runs[key] = run
        self._holds.append((cx.now + limits.ACCEPT_HOLD, key))
        self.handlers += 1
        if note:
            run.noted = True
            begun = Note(key, run.intent, run.fingerprint, "begun", task=run.task)
            cx.effects.append(WriteNote(begun))
        else:
            self._enter(cx, key, run)

    def _enter(self, cx: Context, key: int, run: Run) -> None:
        """Starts a run's handler, or puts it behind those of its capability."""
        run.room = True
        if self._rooms.enter(run.capability, run.most, key):
            self._begin(cx, run)

    def _begin(self, cx: Context, run: Run) -> None:
        call = run.waiting
        if call is None:
            return
        run.waiting = None
        run.started = cx.now
        # With the credit that came meanwhile.
        run.permitted = run.credit
        cx.effects.append(StartRun(call if call.credit == run.credit else call._replace(credit=run.credit)))
        if run.task and run.accepted:
            # The hub shows a task that waits in its provider apart from one that is worked on.
            _accept(cx, run, Outlook(None, run.expected))

    def _leave(self, cx: Context, run: Run, execution: float | None) -> None:
        """A handler is gone: its place goes to the next that waits for it."""
        self.handlers -= 1
        if not run.room:
            return
        self._rooms.leave(run.capability, execution)
        while (key := self._rooms.next(run.capability)) is not None:
            if key in self._runs:
                self._begin(cx, self._runs[key])

    def _outlook(self, key: int, run: Run) -> Outlook:
        outlook = self._rooms.outlook(run.capability, key) if run.room else Outlook()
        return outlook if run.expected is None else outlook._replace(time=run.expected)

    def _join(self, cx: Context, key: int, header: Header, body: bytes | None) -> None:
        """The same intent again: after a reconnect, or by a retry. Its answers go to the newest CALL."""
        run = self._runs[key]
        if run.id is not None:
            self._by_id.pop(run.id, None)
            if run.abort_at is not None:
                # The hub keeps the cancelled call's slot until its end is told.
                cx.outbound.body(run.failed(_CANCELLED))
        run.id = header["id"]
        self._by_id[header["id"]] = key
        run.take(cx.now, header)
        if run.abort_at is not None:
            # The old run is on its way out. The intent runs again when it is gone, never beside it.
            run.again = _invocation(0, header, body)
            return None
        if run.task and run.chunks.first > 0:
            # What it said is no part of its result: what it says from now on is counted from 0.
            run.permitted = max(run.permitted - run.chunks.produced, 0)
            run.chunks = Chunks()
        if run.stream and run.chunks.first > 0:
            text = "the stream cannot be resumed: its beginning is no longer kept"
            ran = run.outcome is None
            run.outcome = Failure("handler_error", text)
            run.sent = run.chunks.produced
            if ran:
                cx.effects.append(AbortRun(key))
                self._leave(cx, run, None)
            return self._pump(cx, key, run)
        _accept(cx, run, self._outlook(key, run))
        _permit(cx, key, run)
        return self._pump(cx, key, run)

    def _tell_again(self, cx: Context, intent: str, header: Header, served: Served) -> None:
        run = Run(cx.now, intent, header)
        run.execution = served.execution
        run.remembered = True
        run.stream = run.stream and not run.task
        if served.chunks is None and run.stream:
            text = "the stream cannot be resumed: it is no longer kept"
            return _refuse(cx, header, Failure("handler_error", text))
        for chunk in served.chunks or ():
            run.chunks.push(chunk)
        run.outcome = served.outcome
        key = self._new_key()
        self._by_intent[intent] = key
        self._by_id[header["id"]] = key
        self._runs[key] = run
        return self._pump(cx, key, run)

    def on_emit(self, cx: Context, key: int, payload: Payload) -> None:
        """A handler sends a chunk."""
        run = self._runs.get(key)
        if run is None or run.outcome is not None:
            return
        run.chunks.push(payload)
        run.chunks.shrink(run.sent)
        self._pump(cx, key, run)

    def on_would_take(self, cx: Context, key: int, time: float) -> None:
        """A handler says how long it expects to take, in seconds."""
        run = self._runs.get(key)
        if run is not None:
            run.expected = time
            if run.preferred is not None and time > run.preferred:
                _accept(cx, run, Outlook(None, time))

    def on_credit(self, cx: Context, id: int, n: int) -> None:
        """CREDIT."""
        key = self._by_id.get(id)
        if key is not None:
            run = self._runs[key]
            run.credit += n
            _permit(cx, key, run)
            self._pump(cx, key, run)

    def on_cancel(self, cx: Context, id: int) -> None:
        """CANCEL: the handler is told, and stopped when it takes no notice."""
        key = self._by_id.get(id)
        if key is not None:
            self._cancel(cx, key, self._runs[key])

    def _cancel(self, cx: Context, key: int, run: Run) -> None:
        if run.outcome is not None:
            # Nobody listens to the chunks any more; the end frees the slot that the hub keeps for us.
            run.stream = False
            self._pump(cx, key, run)
        elif run.abort_at is not None:
            run.again = None
        elif run.waiting is not None:
            run.waiting = None
            run.outcome = _CANCELLED
            self.handlers -= 1
            if run.room:
                self._rooms.give_up(run.capability, key)
            self._pump(cx, key, run)
        else:
            run.abort_at = cx.now + self._grace
            heappush(self._aborts, (run.abort_at, key))
            cx.effects.append(CancelRun(key))

    def on_finished(self, cx: Context, key: int, outcome: Outcome) -> None:
        """A handler ended."""
        run = self._runs.get(key)
        if run is None or run.outcome is not None:
            return
        run.execution = max(cx.now - run.started, 0.0)
        completed = isinstance(outcome, Payload)
        if run.abort_at is not None:
            run.abort_at = None
            if not completed:
                outcome = _CANCELLED
        run.outcome = outcome
        self._leave(cx, run, run.execution if completed else None)
        if run.task and self._on_disk is not None and is_final(outcome):
            # The end of a task is written before the hub is told, so that no life of the process can have told it and
            # forgotten it.
            ended = Note(key, run.intent, run.fingerprint, "ended", outcome, run.execution, task=True)
            cx.effects.append(WriteNote(ended))
            run.saving = True
            self._saving += 1
        self._pump(cx, key, run)
        if self._holds:
            self._settle_holds(cx)

    def on_noted(self, cx: Context, key: int) -> None:
        """What a run waits for is written."""
        run = self._runs.get(key)
        if run is None:
            return
        if run.saving:
            run.saving = False
            self._saving -= 1
            self._pump(cx, key, run)
        elif not run.room:
            self._enter(cx, key, run)

    def _pump(self, cx: Context, key: int, run: Run) -> None:
        """Sends what may be sent: chunks within the credit, then the end."""
        if run.saving:
            return
        if run.again is not None:
            if run.outcome is not None:
                self._close(cx, key, run)
            return
        if run.id is not None and cx.link.can_answer:
            if run.stream:
                while (chunk := run.next_chunk()) is not None:
                    cx.outbound.body(chunk)
                run.chunks.shrink(run.sent)
            if run.outcome is not None and (not run.stream or run.sent >= run.chunks.produced):
                cx.outbound.body(run.result(cx.link.terms.max_message))
                self._close(cx, key, run)
        elif run.outcome is not None and run.id is None:
            # The hub is away: memory answers when it asks again.
            self._close(cx, key, run)

    def _close(self, cx: Context, key: int, run: Run) -> None:
        """Forgets a run that is over, keeping its end where a repeated CALL may want it."""
        del self._runs[key]
        del self._by_intent[run.intent]
        if run.id is not None:
            self._by_id.pop(run.id, None)
        if run.outcome is not None:
            self._remember(cx, run, run.outcome)
            if run.again is not None:
                self._start_again(cx, run, run.again)

    def _remember(self, cx: Context, run: Run, outcome: Outcome) -> None:
        if not is_final(outcome):
            if run.noted:
                cx.effects.append(WriteNote(Note(None, run.intent, run.fingerprint, "free")))
            return
        if run.remembered:
            return
        if run.noted and not run.task:
            ended = Note(None, run.intent, run.fingerprint, "ended", _NOT_KEPT, run.execution)
            cx.effects.append(WriteNote(ended))
        chunks: tuple[Payload, ...] | None = ()
        if not run.task:
            chunks = tuple(run.chunks.kept) if run.chunks.first == 0 else None
        served = Served(outcome, chunks, run.execution, run.fingerprint)
        memory = self._on_disk if run.task and self._on_disk is not None else self._memory
        memory.keep(cx.now, run.intent, served)

    def _start_again(self, cx: Context, old: Run, again: Invocation) -> None:
        """A CALL that came while its intent was being cancelled.

        If the old run completed after all, its end answers; else the intent runs now.
        """
        if old.id is None:
            return
        fingerprint = self._fingerprint(again.payload.body)
        served = self._recall(old.intent, fingerprint)
        if served is not None:
            return self._tell_again(cx, old.intent, again.header, served)
        run = Run(cx.now, old.intent, again.header)
        run.fingerprint, run.most = fingerprint, old.most
        key = self._new_key()
        run.waiting = again._replace(run=key)
        return self._start(cx, key, run, old.noted)

    def lost(self, cx: Context) -> None:
        """The connection is gone; handlers go on, for the hub to ask again."""
        self._by_id.clear()
        self._holds.clear()
        for key, run in list(self._runs.items()):
            run.id = run.again = None
            if run.saving:
                continue  # It is over when it is written.
            if run.outcome is not None:
                self._close(cx, key, run)
            else:
                run.deadline = max(run.deadline, cx.now + ORPHAN)
                heappush(self._orphans, (run.deadline, key))

    def on_timeout(self, cx: Context) -> None:
        """Looks at the clock."""
        self._memory.expire(cx.now)
        if self._on_disk is not None:
            self._on_disk.expire(cx.now)
        self._settle_holds(cx)
        while self._aborts and self._aborts[0][0] <= cx.now:
            at, key = heappop(self._aborts)
            run = self._runs.get(key)
            if run is not None and run.abort_at == at:
                cx.effects.append(AbortRun(key))
                self.on_finished(cx, key, _CANCELLED)
        while self._orphans and self._orphans[0][0] <= cx.now:
            key = heappop(self._orphans)[1]
            run = self._runs.get(key)
            if run is not None and run.id is None and run.deadline <= cx.now:
                self._cancel(cx, key, run)

    def _settle_holds(self, cx: Context) -> None:
        """Says ACCEPT where no answer came in time. What is answered already needs none."""
        while self._holds:
            at, key = self._holds[0]
            run = self._runs.get(key)
            waits = run is not None and not run.accepted and run.outcome is None and run.id is not None
            if waits and at > cx.now:
                return
            self._holds.popleft()
            if waits and run is not None:
                _accept(cx, run, self._outlook(key, run))

    def abort_all(self, cx: Context) -> None:
        """The agent ends, with what still runs."""
        for key, run in self._runs.items():
            if run.outcome is None:
                cx.effects.append(AbortRun(key))
                if run.id is not None and cx.link.can_answer:
                    cx.outbound.body(run.failed(Failure("cancelled", "the agent closes")))
        self._runs.clear()
        self._by_id.clear()
        self._by_intent.clear()
        self._rooms = Rooms()
        self._holds.clear()
        self._aborts.clear()
        self._orphans.clear()
        self.handlers = self._saving = 0

    @property
    def next_timeout(self) -> float | None:
        """When to look again."""
        moments = [heap[0][0] for heap in (self._holds, self._aborts, self._orphans) if heap]
        for memory in (self._memory, self._on_disk):
            if memory is not None and (at := memory.next_timeout) is not None:
                moments.append(at)
        return min(moments) if moments else None


def _permit(cx: Context, key: int, run: Run) -> None:
    """Lets a handler emit what its credit has become. One that still waits gets it when it starts."""
    if run.waiting is None and run.credit > run.permitted:
        cx.effects.append(Grant(key, run.credit - run.permitted))
        run.permitted = run.credit


def _accept(cx: Context, run: Run, outlook: Outlook) -> None:
    """ACCEPT. It says when the caller's wish will be missed."""
    if run.id is None or not cx.link.can_answer:
        return
    run.accepted = True
    header: Header = {"id": run.id}
    depth = outlook.before
    if run.task:
        # Of a task 0 says that its handler has begun, and nothing that it has not.
        depth = (0 if run.waiting is None else None) if depth is None else depth or None
    if depth is not None:
        header["queue_depth"] = depth
    if outlook.time is not None and run.preferred is not None and outlook.time > run.preferred:
        header["would_timeout"] = True
        header["wait_ms"] = int(outlook.time * 1000)
    cx.outbound.control(encode(Kind.ACCEPT, header))


def _refuse(cx: Context, header: Header, failure: Failure) -> None:
    ids = {"request_id": header["request_id"], "call_id": header["call_id"]}
    cx.outbound.body(refusal(header["id"], failure, **ids))


def _invocation(key: int, header: Header, body: bytes | None) -> Invocation:
    payload = Payload(body or b"", header.get("content_type"))
    return Invocation(key, header, payload, header.get("credit", limits.CREDIT_DEFAULT))
