"""The hub in memory itself: who gets a call, and what comes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

from .. import limits
from ..client import Agent
from ..codec import decode_to_hub
from ..codes import GOODBYES, Kind
from ..frames import Header
from ..payload import Payload, decode_body, encode_body
from .parts import NOBODY, Call, Dial, Leg, Session, failed_end

#: Calls, tasks and envelopes that are known; the oldest go first.
REMEMBERED_MAX = 10_000
_PASSED = ("target", "execution_ms", "content_type")


class FakeHub:
    """One hub. Its methods may be called from any thread; agents of it live in this process.

    ``welcome`` replaces what WELCOME says, such as ``max_message`` or ``keepalive_ms``.
    """

    def __init__(self, **welcome: Any) -> None:
        self._welcome: Header = {
            "session": "fake",
            "hub": "fake",
            "features": [],
            "keepalive_ms": 5000,
            "suspect_ms": 15000,
            "gone_ms": 30000,
            "max_message": limits.MESSAGE_BYTES_DEFAULT,
            "max_in_flight": 1024,
            "granted": {"provide": ["*"], "call": ["*"]},
            "warnings": [],
            **welcome,
        }
        self._sessions: dict[str, Session] = {}
        self._calls: dict[tuple[str, str], Call] = {}
        self._tasks: dict[str, Call] = {}
        self._ever: set[str] = set()
        self._numbers = count(1)
        self._next_target = 0
        self._lock = threading.RLock()
        self._reachable = True
        #: Every envelope that came, as ``(agent_id, kind, header, body)``, the last 10,000.
        self.received: list[tuple[str, Kind, Header, bytes | None]] = []

    def agent(self, agent_id: str, **options: Any) -> Agent:
        """An agent of this hub, that comes back at once when it is dropped; ``options`` are those of `Agent`."""
        return Agent(agent_id, **{"transport": Dial(self), "reconnect_waits": (0.001, 0.01), **options})

    @property
    def connected(self) -> list[str]:
        """Agents that are registered."""
        with self._lock:
            return sorted(self._sessions)

    def drop(self, agent_id: str) -> None:
        """Breaks an agent's connection, as the network would."""
        with self._lock:
            session = self._sessions.pop(agent_id, None)
        if session is not None:
            session.lose(None, "dropped")

    def goodbye(self, agent_id: str, code: str = "draining", reason: str = "", after_ms: int | None = None) -> None:
        """Says GOODBYE to an agent, and closes with the code's own number."""
        header: Header = {"code": code, "reason": reason}
        if after_ms is not None:
            header["reconnect_after_ms"] = after_ms
        with self._lock:
            session = self._sessions.pop(agent_id, None)
        if session is not None:
            session.say(Kind.GOODBYE, header)
            session.lose(GOODBYES[code][0], reason)

    def reachable(self, reachable: bool) -> None:
        """Whether agents can connect."""
        self._reachable = reachable

    # What agents say.

    def _take(self, session: Session, message: bytes) -> None:
        kind, header, body = decode_to_hub(message)
        with self._lock:
            self.received.append((session.agent_id, kind, header, body))
            del self.received[:-REMEMBERED_MAX]
            if kind is Kind.HELLO:
                self._hello(session, header)
            elif kind is Kind.GOODBYE:
                self._leave(session)
                session.lose(1000, "")
            elif kind is Kind.UPDATE:
                self._update(session, header)
            elif kind is Kind.CALL:
                self._call(session, header, body)
            elif kind is Kind.RECEIPT:
                self._tasks.get(header["task_id"], NOBODY).owed = False
            elif kind in (Kind.ACCEPT, Kind.CHUNK, Kind.RESULT):
                leg = session.legs.get(header["id"])
                if leg is not None:
                    self._answer(session, leg, kind, header, body)
            elif kind in (Kind.CANCEL, Kind.CREDIT):
                call = session.asked.get(header["id"])
                if call is not None:
                    self._steer(call, kind, header)

    def _hello(self, session: Session, header: Header) -> None:
        session.agent_id = header["agent_id"]
        older = self._sessions.pop(session.agent_id, None)
        if older is not None:
            older.say(Kind.GOODBYE, {"code": "replaced"})
            older.lose(GOODBYES["replaced"][0], "")
        self._sessions[session.agent_id] = session
        session.offers = {own["name"]: own for own in header["capabilities"]}
        session.labels = header.get("labels", {})
        session.load = header.get("load", {})
        session.most = header.get("max_concurrency", limits.MAX_CONCURRENCY_DEFAULT)
        self._ever.update(session.offers)
        session.say(Kind.WELCOME, self._welcome)
        for call in list(self._calls.values()):
            # Who comes back gets its unfinished calls again.
            for leg in call.legs.values():
                if leg.target == session.agent_id and not leg.ended:
                    self._give(call, leg)
        for call in list(self._calls.values()) + list(self._tasks.values()):
            if call.waiting:
                self._route(call)
            if call.owed and call.caller == session.agent_id:
                session.say(Kind.RESULT, call.end, call.end_body)

    def _update(self, session: Session, header: Header) -> None:
        session.status = header.get("status", session.status)
        session.load = header.get("load", session.load)
        for own in header.get("add", ()):
            session.offers[own["name"]] = own
            self._ever.add(own["name"])
        for name in header.get("remove", ()):
            session.offers.pop(name, None)
        if "add" in header:
            for call in list(self._calls.values()):
                if call.waiting:
                    self._route(call)

    def _leave(self, session: Session) -> None:
        if self._sessions.get(session.agent_id) is session:
            del self._sessions[session.agent_id]

    # Calls.

    def _call(self, session: Session, header: Header, body: bytes | None) -> None:
        request_id = header.get("request_id") or f"fake-{next(self._numbers)}"
        if header["capability"].startswith("hub."):
            return self._own(session, header, request_id, body)
        key = session.agent_id, request_id
        call = self._calls.get(key)
        if call is not None:
            # An open duplicate joins the first: its answers go to the newest.
            call.asker, call.id = session, header["id"]
            session.asked[header["id"]] = call
            for leg in call.legs.values():
                leg.granted_again(header.get("credit", limits.CREDIT_DEFAULT))
            if call.end:
                session.say(Kind.RESULT, {**call.end, "id": header["id"], "duplicate": True}, call.end_body)
            return None
        call = Call(session, header, request_id, body, f"call-{next(self._numbers)}")
        self._calls[key] = call
        for known in (self._calls, self._tasks):
            if len(known) > REMEMBERED_MAX:
                known.pop(next(iter(known)))  # type: ignore[call-overload]
        session.asked[header["id"]] = call
        if call.mode == "task":
            call.task_id = f"task-{next(self._numbers)}"
            self._tasks[call.task_id] = call
            session.say(Kind.ACCEPT, {"id": call.id, "task_id": call.task_id, "request_id": request_id})
        return self._route(call)

    def _route(self, call: Call) -> None:
        name, wanted = call.header["capability"], call.header.get("agents")
        require = call.header.get("require", {})
        able = [
            own
            for own in self._sessions.values()
            if name in own.offers
            and own.status != "draining"
            and own.load.get("health", 100) >= 60
            and (wanted is None or own.agent_id in wanted)
            and all(own.labels.get(key) == value for key, value in require.items())
        ]
        liked = call.header.get("labels", {})
        able.sort(key=lambda own: (-sum(own.labels.get(k) == v for k, v in liked.items()), len(own.legs)))
        if not able:
            call.waiting = call.mode == "task" or call.header.get("wait_ms", 0) > 0
            if not call.waiting:
                code = "no_instance" if name in self._ever or wanted else "no_capability"
                self._end(call, failed_end(code, f"nobody offers {name}"), None)
            return
        call.waiting = False
        select = call.header.get("select", "one")
        call.fan_out = select != "one" or len(wanted or ()) > 1
        most = len(able) if select == "all" or (call.fan_out and select == "one") else 1 if select == "one" else select
        for own in able[:most]:
            leg = Leg(own.agent_id)
            call.legs[own.agent_id] = leg
            self._give(call, leg)

    def _give(self, call: Call, leg: Leg) -> None:
        session = self._sessions[leg.target]
        leg.id = next(self._numbers)
        leg.call = call
        leg.attempt += 1
        session.legs[leg.id] = leg
        told = call.header
        header: Header = {
            "id": leg.id,
            "request_id": call.request_id,
            "call_id": call.call_id,
            "capability": told["capability"],
            "caller": call.caller,
            "attempt": leg.attempt,
            "deadline_ms": told.get("budget_ms", 60_000),
            "stream": told.get("stream", False),
            "mode": call.mode,
            "priority": told.get("priority", "normal"),
        }
        for key in ("preferred_timeout_ms", "labels", "traceparent", "tracestate", "content_type"):
            if key in told:
                header[key] = told[key]
        header.update({key: value for key, value in told.items() if key[:2] == "x-"})
        if header["stream"]:
            # Counted from seq 0, also for a provider that starts over.
            leg.credit = leg.credit or told.get("credit", limits.CREDIT_DEFAULT)
            header["credit"] = leg.credit
        if call.task_id is not None:
            header["task_id"] = call.task_id
        session.say(Kind.CALL, header, call.body)

    def _answer(self, session: Session, leg: Leg, kind: Kind, header: Header, body: bytes | None) -> None:
        call = leg.call
        if kind is Kind.RESULT:
            del session.legs[header["id"]]
        if call is None or call.end or leg.id != header["id"]:
            return
        if kind is Kind.CHUNK:
            if call.mode == "task":
                session.say(Kind.CREDIT, {"id": leg.id, "n": 1})
            elif leg.forwards(header["seq"]):
                call.say(Kind.CHUNK, {**header, "target": leg.target}, body)
        elif kind is Kind.ACCEPT:
            if call.mode == "notify":
                self._end(call, {"status": "completed", "target": leg.target}, None)
            elif call.mode != "task":
                ids = {"request_id": call.request_id, "call_id": call.call_id, "attempt": leg.attempt}
                call.say(Kind.ACCEPT, {**header, **ids, "target": leg.target})
        else:
            self._result(call, leg, header, body)

    def _result(self, call: Call, leg: Leg, header: Header, body: bytes | None) -> None:
        outcome = "completed" if header["status"] == "completed" else header["error"]["code"]
        call.attempts.append({"target": leg.target, "outcome": outcome, "ms": 0, "reason": "fake"})
        error = header.get("error")
        tries = call.header.get("retries", 2)
        if error and error["retryable"] and leg.tries < tries and not call.fan_out and leg.target in self._sessions:
            leg.tries += 1
            self._give(call, leg)
            return
        end: Header = {"status": header["status"], "target": leg.target, "attempts": list(call.attempts)}
        end.update({key: header[key] for key in _PASSED if key in header})
        if error is not None:
            end["error"] = error
        if not call.fan_out:
            self._end(call, end, body)
            return
        leg.ended = True
        call.say(Kind.RESULT, {"id": call.id, **end, "more": True}, body)
        ended = [own for own in call.legs.values() if own.ended]
        if len(ended) == len(call.legs):
            done = sum(own["outcome"] == "completed" for own in call.attempts)
            summary = {"targets": len(ended), "completed": done, "failed": len(ended) - done}
            self._end(call, {"status": "completed", "summary": summary}, None)

    def _end(self, call: Call, end: Header, body: bytes | None) -> None:
        call.end = {"request_id": call.request_id, "call_id": call.call_id, **end}
        call.end_body = body
        call.waiting = False
        if call.task_id is not None:
            call.end["task_id"] = call.task_id
            call.owed = True
        error = call.end.get("error")
        if error and (error["retryable"] or error["code"] in ("no_instance", "no_capability")):
            # A failure that another try may mend frees the request_id.
            self._calls.pop((call.caller, call.request_id), None)
        asker = self._sessions.get(call.caller)
        if asker is None:
            return
        mine = asker is call.asker and call.id in asker.asked
        asker.asked.pop(call.id, None)
        asker.say(Kind.RESULT, {"id": call.id, **call.end} if mine else call.end, body)

    def _steer(self, call: Call, kind: Kind, header: Header) -> None:
        if kind is Kind.CREDIT:
            for leg in call.legs.values():
                if header.get("target") in (None, leg.target):
                    leg.credit += header["n"]
                    self._to_leg(leg, Kind.CREDIT, {"id": leg.id, "n": header["n"]})
            return
        for leg in call.legs.values():
            self._to_leg(leg, Kind.CANCEL, {"id": leg.id})
        if not header.get("wait") or not call.legs:
            self._end(call, failed_end("cancelled", "cancelled"), None)

    def _to_leg(self, leg: Leg, kind: Kind, header: Header) -> None:
        session = self._sessions.get(leg.target)
        if session is not None and leg.id in session.legs:
            session.say(kind, header)

    # The hub's own capabilities.

    def _own(self, session: Session, header: Header, request_id: str, body: bytes | None) -> None:
        query = decode_body(Payload(body or b"")) or {}
        answers: dict[str, Callable[[Any], Any]] = {
            "hub.agents.list": lambda _: {"agents": [own.shown() for own in self._sessions.values()]},
            "hub.capabilities.list": lambda _: {"capabilities": self._dictionary()},
            "hub.tasks.get": self._task,
            "hub.tasks.cancel": self._cancel_task,
        }
        answer = answers.get(header["capability"])
        said: Header = {"id": header["id"], "request_id": request_id, "call_id": f"call-{next(self._numbers)}"}
        told = None if answer is None else answer(query)
        if told is None:
            code = "no_capability" if answer is None else "invalid_request"
            session.say(Kind.RESULT, {**said, **failed_end(code, f"{header['capability']} {query}")})
        else:
            session.say(Kind.RESULT, {**said, "status": "completed", "target": "hub"}, encode_body(told).body)

    def _dictionary(self) -> list[Any]:
        found: dict[str, list[Any]] = {}
        for own in self._sessions.values():
            for name, offer in own.offers.items():
                found.setdefault(name, []).append({"agent_id": own.agent_id, "status": own.status, **offer})
        return [{"name": name, "agents": offers} for name, offers in sorted(found.items())]

    def _task(self, query: Any) -> Any:
        call = self._tasks.get(query.get("task_id"))
        if call is None:
            return None
        state = "QUEUED" if call.waiting else "PROCESSING"
        if call.end:
            state = "SUCCEEDED" if call.end["status"] == "completed" else "FAILED"
        shown = {
            "task_id": call.task_id,
            "state": state,
            "capability": call.header["capability"],
            "request_id": call.request_id,
            "caller": call.caller,
            "attempts": call.attempts,
            "error": call.end.get("error"),
        }
        if call.end_body is not None:
            shown["result"] = decode_body(Payload(call.end_body))
        return shown

    def _cancel_task(self, query: Any) -> Any:
        call = self._tasks.get(query.get("task_id"))
        if call is None:
            return None
        cancelled = not call.end
        if cancelled:
            self._steer(call, Kind.CANCEL, {"id": call.id})
        return {"task_id": call.task_id, "cancelled": cancelled}
