"""The caller's side: calls that this agent asked for, from the first CALL to their one end."""

from collections import deque
from heapq import heappop, heappush
from typing import Any

from ..codec import encode
from ..codes import Kind
from ..errors import CallError
from ..frames import Header
from .answers import acceptance, failure, reply
from .context import Context
from .open import Flow, Open
from .pace import CUTS_MAX, Pace
from .results import Results
from .types import CallSpec, Chunk, Ended, Part, Payload, RawReply, TaskEnd, Tell

#: Most calls that wait for a connection, or for a place under the hub's ``max_in_flight``.
WAITING_MAX = 1024
#: The hub owns the budget. When it stays silent so long past it, the call ends here.
GRACE = 5.0
#: After a reconnect providers may still be on their way back, to a hub that was just started above all. For so long a
#: call that was open before is asked again when nobody is there.
RETURN = 10.0


class Asked:
    """All open calls of this agent."""

    def __init__(self, prefix: str) -> None:
        # In the order they were made, which is also the order of sending them again.
        self._calls: dict[int, Open] = {}
        self._by_id: dict[int, int] = {}
        #: Tasks that the hub has stored.
        self.results = Results()
        self._waiting: deque[int] = deque()
        self._pace = Pace()
        # Moments with their calls. An entry whose call has another deadline by now, or is over, is passed over.
        self._deadlines: list[tuple[float, int]] = []
        self._again: list[tuple[float, int]] = []
        self._return_until = 0.0
        self._next_id = 0
        self._prefix = prefix
        self._made = 0

    @property
    def on_wire(self) -> int:
        """Calls that are on the present connection."""
        return len(self._by_id)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is open."""
        return not self._calls

    def open(self, cx: Context, key: int, spec: CallSpec) -> None:
        """A caller asks."""
        request_id = spec.request_id
        if request_id is None:
            self._made += 1
            request_id = f"{self._prefix}-{self._made:x}"
        call = Open(cx.now, spec, request_id)
        if len(self._waiting) >= WAITING_MAX:
            error = call.error("overloaded", f"{WAITING_MAX} calls wait for the connection already")
            cx.effects.append(Tell(key, Ended(error)))
            return
        self._calls[key] = call
        self._waiting.append(key)
        self.send_waiting(cx)
        if spec.budget is not None or call.id is None:
            # The deadline of what is on the wire without a budget of its own is the hub's affair.
            self._expect(key, call)

    def _expect(self, key: int, call: Open) -> None:
        heappush(self._deadlines, (call.deadline, key))
        if len(self._deadlines) > 64 + 2 * len(self._calls):
            # Ended calls leave their moments behind; they must not outgrow the open ones.
            live = [(own.deadline, number) for number, own in self._calls.items()]
            self._deadlines = sorted(live)

    def resume(self, cx: Context) -> None:
        """A session is open: every call that is not on this connection goes out, the oldest first."""
        self._return_until = cx.now + RETURN
        self._again.clear()
        self._waiting.clear()
        for key, call in self._calls.items():
            if call.id is None:
                call.again_at = None
                call.patient = True
                self._waiting.append(key)
        self.send_waiting(cx)

    def lost(self, now: float) -> None:
        """The connection is gone. What was on it waits for the next one."""
        self._by_id.clear()
        self._pace.go()
        self._again.clear()
        for key, call in self._calls.items():
            if call.id is None and call.again_at is None:
                continue
            call.id = call.again_at = None
            call.resent = True
            if call.spec.watch:
                call.flow = Flow(call.spec.window)
            self._wait_anew(now, key, call)

    def cut(self, cx: Context) -> None:
        """The hub ends the connection, since more came for this agent than it took."""
        self._pace.cut()
        for key in list(self._by_id.values()):
            call = self._calls[key]
            # A session that lived is no part of a row of short ones.
            call.cuts = call.cuts + 1 if cx.now < self._return_until else 1
            if call.cuts >= CUTS_MAX:
                self.fail(cx, key, "overloaded", f"more came at once than the hub holds, {CUTS_MAX} times in a row")

    def _wait_anew(self, now: float, key: int, call: Open) -> None:
        # Not on the wire any more: without a budget of its own a call has so long from now.
        if call.spec.budget is None:
            call.deadline = now + call.patience
        self._expect(key, call)

    def send_waiting(self, cx: Context) -> None:
        """Sends what may be on the wire."""
        if not cx.link.is_ready:
            return
        while self._waiting and self._pace.at is None and len(self._by_id) < cx.link.terms.max_in_flight:
            key = self._waiting.popleft()
            call = self._calls.get(key)
            if call is not None and call.id is None:
                self._send(cx, key, call)
        if not self._waiting:
            self._pace.caught_up()

    def _send(self, cx: Context, key: int, call: Open) -> None:
        if call.spec.budget is not None and cx.now >= call.deadline:
            return self.fail(cx, key, "budget_exhausted", "spent before it could be sent")
        self._next_id += 1
        try:
            message = call.encode(self._next_id, cx.now)
        except (ValueError, TypeError, OverflowError) as error:
            return self.fail(cx, key, "invalid_request", f"an option cannot be written: {error}")
        limit = cx.link.terms.max_message
        if len(message) > limit:
            text = f"the message has {len(message)} bytes, the hub takes {limit}"
            return self.fail(cx, key, "payload_too_large", text)
        call.id = self._next_id
        call.sent = True
        self._by_id[call.id] = key
        self._pace.sent(cx.now, call.cuts)
        cx.outbound.body(message, call.id)
        if call.withdrawn:
            # Behind its CALL, which the hub has to know first.
            cx.outbound.body(_cancel(call.id, wait=True))
        return None

    def fail(self, cx: Context, key: int, code: str, message: str, **more: Any) -> None:
        """Ends a call here."""
        call = self._remove(key)
        if call is not None:
            cx.effects.append(Tell(key, Ended(call.error(code, message, **more))))

    def fail_all(self, cx: Context, message: str) -> None:
        """The agent ends: so does every call."""
        for key in list(self._calls):
            self.fail(cx, key, "closed", message)
        for key in self.results.drain():
            # The hub has the task, and goes on with it.
            cx.effects.append(Tell(key, Ended(CallError.of("closed", message))))

    def _remove(self, key: int) -> Open | None:
        call = self._calls.pop(key, None)
        if call is not None:
            if call.id is not None:
                del self._by_id[call.id]
                self._pace.go()
            elif call.again_at is None and key in self._waiting:
                self._waiting.remove(key)
        return call

    def cancel(self, cx: Context, key: int) -> None:
        """Nobody waits any more. The call's end, which the hub will still send, is dropped when it comes."""
        call = self._remove(key)
        if call is None:
            # A task that was stored a moment ago goes on; its result goes to the inbox.
            self.results.forget(key)
            return
        if call.id is not None and not cx.outbound.withdraw(call.id):
            cx.outbound.control(_cancel(call.id))
        self.send_waiting(cx)

    def withdraw(self, cx: Context, key: int) -> None:
        """Nobody wants the result any more, but how it ends: what the provider answers to the cancelling."""
        call = self._calls.get(key)
        if call is None or call.withdrawn:
            return
        call.withdrawn = True
        if call.resent:
            # A provider may have it since before: it is asked for again, to learn its end.
            if call.id is not None:
                cx.outbound.body(_cancel(call.id, wait=True))
        elif call.id is not None and not cx.outbound.withdraw(call.id):
            cx.outbound.control(_cancel(call.id, wait=True))
        else:
            # It never left.
            call.sent = False
            self.fail(cx, key, "cancelled", "cancelled before anybody had it")
            self.send_waiting(cx)

    def forget(self, cx: Context, key: int) -> None:
        """A task goes on, its handle is gone."""
        if not self.results.forget(key):
            self.cancel(cx, key)

    def consumed(self, cx: Context, key: int, n: int, target: str | None) -> None:
        """A caller took so many chunks; in a fan-out of this target."""
        call = self._calls.get(key)
        if call is None:
            return
        if target is None:
            call.flow.granted += n
        if call.id is not None:
            _credit(cx, call.id, n, target)

    def on_accept(self, cx: Context, header: Header) -> None:
        """ACCEPT."""
        key = self._by_id.get(header["id"])
        if key is None:
            return
        call = self._calls[key]
        cx.effects.append(Tell(key, acceptance(header, call.request_id)))
        task_id = header.get("task_id")
        if task_id is not None and call.spec.task:
            # Stored: from here on it is the hub's affair. Its result comes by itself, on whatever connection; a second
            # CALL could begin a second task once the first one is forgotten.
            self._remove(key)
            self.results.wait(key, task_id)
            return self.send_waiting(cx)
        call.accepted = True
        call.call_id = header.get("call_id", call.call_id)
        call.target = header.get("target", call.target)
        return None

    def on_chunk(self, cx: Context, header: Header, body: bytes | None) -> None:
        """CHUNK."""
        key = self._by_id.get(header["id"])
        if key is None:
            return
        call = self._calls[key]
        call.accepted = True
        target = header.get("target") if call.spec.fan_out else None
        seq = header["seq"]
        ahead = call.flow.arrives(target, seq)
        if ahead < 0:
            # Sent again after a reconnect. Its credit goes back, or the rest would never come.
            return _credit(cx, header["id"], 1, target)
        if ahead > 0:
            text = f"chunk {seq} came where {seq - ahead} was due"
            if target is None:
                return self._break_off(cx, key, "interrupted", text)
            call.flow.end(target)
            part = Part(target, call.error("interrupted", text, target=target))
            cx.effects.append(Tell(key, part))
            return None
        payload = Payload(body or b"", header.get("content_type"))
        cx.effects.append(Tell(key, Chunk(seq, header.get("target"), payload)))
        return None

    def _break_off(self, cx: Context, key: int, code: str, message: str) -> None:
        """Ends a call here, and at the hub."""
        id = self._calls[key].id
        if id is not None and not cx.outbound.withdraw(id):
            cx.outbound.control(_cancel(id, reason=message[:256]))
        self.fail(cx, key, code, message)
        self.send_waiting(cx)

    def on_result(self, cx: Context, header: Header, body: bytes | None) -> None:
        """RESULT."""
        key = self._by_id.get(header.get("id", -1))
        if "task_id" in header:
            return self._on_task_result(cx, key, header, body)
        if key is None:
            return None
        call = self._calls[key]
        summary = "summary" in header
        result: RawReply | CallError
        if header["status"] == "completed" or summary:
            result = reply(header, body, call.request_id)
        else:
            result = call.failure(header)
        if header.get("more"):
            target = header.get("target", "")
            if call.flow.end(target):
                cx.effects.append(Tell(key, Part(target, result)))
            return None
        if isinstance(result, CallError) and self._holds_on(cx, key, call, result):
            return self.send_waiting(cx)
        self._remove(key)
        cx.effects.append(Tell(key, Ended(result)))
        if self._waiting:
            self.send_waiting(cx)
        return None

    def _on_task_result(self, cx: Context, key: int | None, header: Header, body: bytes | None) -> None:
        # By the id of its CALL when that was a repetition of an ended one, else by its own name.
        request_id = header.get("request_id", "")
        result: RawReply | CallError
        completed = header["status"] == "completed"
        result = reply(header, body, request_id) if completed else failure(header, request_id)
        if key is not None:
            self._remove(key)
        self.results.arrive(cx, key, TaskEnd(header["task_id"], result))
        self.send_waiting(cx)

    def _holds_on(self, cx: Context, key: int, call: Open, error: CallError) -> bool:
        """Whether a failed call stays open, since it failed only because of a reconnect.

        Such failures say that no provider was given it, so nothing runs twice by asking again.
        """
        if call.id is None or call.withdrawn or error.attempts:
            return False
        if not cx.link.is_ready and error.code == "shutting_down" and not call.accepted:
            # It crossed the hub's GOODBYE: the next connection carries it.
            del self._by_id[call.id]
            call.id = None
            self._wait_anew(cx.now, key, call)
            return True
        at = cx.now + call.wait_again
        in_budget = call.spec.budget is None or at < call.deadline
        nobody = error.code in ("no_instance", "no_capability")
        if not (cx.link.is_ready and nobody and call.patient and at < self._return_until and in_budget):
            return False
        call.asked_again += 1
        del self._by_id[call.id]
        call.id = None
        call.again_at = at
        heappush(self._again, (at, key))
        return True

    def on_fault(self, cx: Context, id: int, code: str, message: str) -> None:
        """The hub could not use our CALL, or sent an answer that cannot be read: that call ends, no other."""
        key = self._by_id.get(id)
        if key is not None:
            self._break_off(cx, key, code, message)

    def on_timeout(self, cx: Context) -> None:
        """Looks at the clock."""
        self._pace.passes(cx.now)
        while self._again and self._again[0][0] <= cx.now:
            key = heappop(self._again)[1]
            call = self._calls.get(key)
            if call is not None and call.again_at is not None:
                call.again_at = None
                self._waiting.append(key)
        self.send_waiting(cx)
        while self._deadlines and self._deadlines[0][0] <= cx.now:
            key = heappop(self._deadlines)[1]
            call = self._calls.get(key)
            if call is None or cx.now < call.deadline:
                continue
            if call.id is None:
                self._break_off(cx, key, "budget_exhausted", "not connected in time")
            elif call.spec.budget is not None:
                # Without one the hub's own default counts.
                if cx.now >= call.deadline + GRACE:
                    self._break_off(cx, key, "budget_exhausted", "the hub did not answer")
                else:
                    heappush(self._deadlines, (call.deadline + GRACE, key))

    @property
    def next_timeout(self) -> float | None:
        """When to look again."""
        heads = [heap[0][0] for heap in (self._deadlines, self._again) if heap]
        if self._pace.at is not None:
            heads.append(self._pace.at)
        return min(heads) if heads else None


def _cancel(id: int, wait: bool = False, reason: str | None = None) -> bytes:
    header: Header = {"id": id}
    if reason is not None:
        header["reason"] = reason
    if wait:
        header["wait"] = True
    return encode(Kind.CANCEL, header)


def _credit(cx: Context, id: int, n: int, target: str | None) -> None:
    header: Header = {"id": id, "n": n}
    if target is not None:
        header["target"] = target
    cx.outbound.control(encode(Kind.CREDIT, header))
