"""The session: every decision of the SDK, with time and chance passed in. No socket, no clock, no task.

Each method takes what happened and leaves what is to be done in `Session.effects`, in order; what is to be written
waits in `Session.pop`; `Session.next_timeout` says when to call `Session.timeout`.
"""

import logging
from collections.abc import Sequence
from random import Random
from typing import Any

from ..codec import Malformed, UnknownKind, Untrusted, WrongDirection, decode_to_agent, encode
from ..codes import GOODBYES, Kind, goodbye_of
from ..errors import CloseReason, ConnectError
from ..frames import Header
from .asked import Asked
from .backoff import Backoff
from .context import Context
from .link import Link, Phase, Terms, verdict
from .registration import Registration
from .run import refusal
from .running import Running
from .types import (
    Abort,
    CallSpec,
    Close,
    Dial,
    Effect,
    Failure,
    Leaving,
    Load,
    Offer,
    Outcome,
    Past,
    Payload,
    Ping,
    Ready,
    Stopped,
)

log = logging.getLogger("agent_reach")

_NORMAL = GOODBYES["normal"][0]


class Session:
    """The state of one agent's life; begins with `start`.

    ``grace`` is how many seconds a cancelled handler may take to end by itself, ``past`` what the dedupe store has, if
    there is one.
    """

    def __init__(
        self,
        registration: Registration,
        *,
        random: Random,
        grace: float = 5.0,
        backoff: Backoff | None = None,
        past: Sequence[Past] | None = None,
    ) -> None:
        self.registration = registration
        self._random = random
        self._link = Link(backoff or Backoff())
        self._cx = Context(self._link)
        self._asked = Asked(f"{random.getrandbits(64):016x}")
        self._running = Running(registration.max_concurrency, grace, past)
        #: The agent closes: at the latest then.
        self._drain: float | None = None
        #: Handlers that were told to run and have not begun: the program is stuck, or has no thread left. Set by
        #: whoever runs them.
        self.unbegun = 0

    # What is to be done.

    @property
    def effects(self) -> list[Effect]:
        """What is to be done, in order; whoever takes it clears it."""
        return self._cx.effects

    def pop(self) -> bytes | None:
        """The next message for the socket."""
        return self._cx.outbound.pop()

    @property
    def has_outgoing(self) -> bool:
        """Whether anything waits for the socket."""
        return bool(self._cx.outbound)

    @property
    def has_room(self) -> bool:
        """Whether callers and handlers may hand in more work."""
        return self._cx.outbound.has_room

    @property
    def may_read(self) -> bool:
        """Whether the socket may be read."""
        return self._cx.outbound.may_read

    @property
    def phase(self) -> Phase:
        """Where the connection stands."""
        return self._link.phase

    @property
    def terms(self) -> Terms:
        """What WELCOME said."""
        return self._link.terms

    @property
    def next_timeout(self) -> float | None:
        """When `timeout` is due."""
        if self._link.phase is Phase.STOPPED:
            return None
        # Once the goodbye is said, the bound of the drain is behind us.
        drain = None if self._link.phase is Phase.CLOSING else self._drain
        moments = (self._link.next_timeout, self._asked.next_timeout, self._running.next_timeout, drain)
        return min((at for at in moments if at is not None), default=None)

    # What happens to the connection.

    def start(self, now: float) -> None:
        """Begin: the first dial."""
        self._dial(self._at(now))

    def opened(self, now: float) -> None:
        """The socket is open and upgraded."""
        cx = self._at(now)
        if self._link.phase is not Phase.DIALING:
            cx.effects.append(Abort(ConnectError("closed", "nobody wants this socket any more")))
            return
        self._link.opened(now)
        cx.outbound.control(self.registration.hello(*self._work))

    def dial_failed(self, now: float, error: ConnectError) -> None:
        """Dialling failed."""
        cx = self._at(now)
        if self._link.phase is not Phase.DIALING:
            return
        if error.final:
            return self._stop(cx, CloseReason("connect", str(error)))
        log.info("dial failed: %s", error)
        self._link.lost(now, self._random)
        return self._settle(cx)

    def message(self, now: float, message: bytes) -> None:
        """One binary WebSocket message came."""
        cx = self._at(now)
        # Frames that were read in one go with the one that ended the session mean nothing any more.
        if not self._link.is_open and self._link.phase is not Phase.CLOSING:
            return
        self._link.hear(now)
        try:
            kind, header, body = decode_to_agent(message)
        except Untrusted as error:
            self._untrusted(cx, str(error))
        except Malformed as error:
            self._malformed(cx, error)
        except (UnknownKind, WrongDirection) as error:
            log.debug("envelope passed over: %s", error)
        else:
            self._envelope(cx, kind, header, body)
        self._settle(cx)

    def text(self, now: float) -> None:
        """A text message came, which this subprotocol does not have."""
        cx = self._at(now)
        self._untrusted(cx, "a text message on the MessagePack subprotocol")

    def alive(self, now: float) -> None:
        """A ping or a pong came."""
        self._link.hear(now)

    def wrote(self, now: float) -> None:
        """Something was handed to the socket."""
        self._link.wrote = now

    def lost(self, now: float, close_code: int | None = None, reason: str = "") -> None:
        """The socket is gone; with the close code, if one came."""
        cx = self._at(now)
        self._lost(cx, close_code, reason)
        self._settle(cx)

    def timeout(self, now: float) -> None:
        """The time of `next_timeout` has come."""
        cx = self._at(now)
        link = self._link
        if now >= link.at:
            if link.phase is Phase.WAITING:
                self._dial(cx)
            elif link.phase is Phase.GREETING:
                self._break(cx, "no WELCOME in time")
            elif link.phase in (Phase.LEAVING, Phase.PARTING):
                self._break(cx, "left after goodbye")
            elif link.phase is Phase.CLOSING:
                cx.effects.append(Abort(ConnectError("closed", "closed")))
                return self._stop(cx, CloseReason("closed", "closed by this program"))
        if link.is_dead(now):
            self._break(cx, "the hub is silent")
        elif link.must_ping(now):
            cx.effects.append(Ping())
        if link.must_speak(now):
            # Counts as written now, lest a socket that takes nothing makes one more with every wake-up.
            link.wrote = now
            self._update(cx)
        self._asked.on_timeout(cx)
        self._running.on_timeout(cx)
        return self._settle(cx)

    # What the program wants.

    def close(self, now: float, within: float) -> None:
        """Drain and end, at the latest after this time."""
        cx = self._at(now)
        if self._link.phase is Phase.STOPPED:
            return
        if self._drain is not None:
            self._drain = min(self._drain, now + within)
        else:
            self._drain = now + within
            self.registration.status = "draining"
            self._update(cx, status="draining")
        self._settle(cx)

    def set_load(self, now: float, load: Load) -> None:
        """New load figures, said now and with each heartbeat."""
        self.registration.load = load
        self._update(self._at(now))

    def set_status(self, now: float, status: str) -> None:
        """New readiness, for this session and later ones."""
        if self._drain is None:
            self.registration.status = status
            self._update(self._at(now), status=status)

    def add(self, now: float, offer: Offer) -> None:
        """One capability more, or another in its place."""
        self.registration.offers[offer.header["name"]] = offer
        self._update(self._at(now), add=[offer.header])

    def remove(self, now: float, name: str) -> None:
        """One capability less; its open calls go on."""
        if self.registration.offers.pop(name, None) is not None:
            self._update(self._at(now), remove=[name])

    def open(self, now: float, key: int, spec: CallSpec) -> None:
        """A caller asks; ``key`` is any number of the caller's that is not in use."""
        cx = self._at(now)
        self._asked.open(cx, key, spec)
        if self._link.phase is Phase.STOPPED:
            self._asked.fail(cx, key, "closed", "the agent is closed")
        self._settle(cx)

    def cancel(self, now: float, key: int) -> None:
        """A caller no longer wants it."""
        cx = self._at(now)
        self._asked.cancel(cx, key)
        self._settle(cx)

    def withdraw(self, now: float, key: int) -> None:
        """A caller no longer wants it, and waits for what becomes of it."""
        self._asked.withdraw(self._at(now), key)

    def forget(self, now: float, key: int) -> None:
        """A caller lets go of a task, which goes on."""
        self._asked.forget(self._at(now), key)

    def claim(self, now: float, key: int, task_id: str) -> None:
        """A handle waits for the result of the task of this id."""
        cx = self._at(now)
        self._asked.results.claim(cx, key, task_id)
        if self._link.phase is Phase.STOPPED:
            self._asked.fail_all(cx, "the agent is closed")

    def consumed(self, now: float, key: int, n: int, target: str | None = None) -> None:
        """A caller took so many chunks; in a fan-out of this target."""
        self._asked.consumed(self._at(now), key, n, target)

    def received(self, now: float, task_id: str) -> None:
        """A task's result is in the program's hands."""
        self._asked.results.taken(self._at(now), task_id)

    def emit(self, now: float, run: int, payload: Payload) -> None:
        """A handler sends a chunk."""
        self._running.on_emit(self._at(now), run, payload)

    def would_take(self, now: float, run: int, time: float) -> None:
        """A handler says how long it expects to take, in seconds."""
        self._running.on_would_take(self._at(now), run, time)

    def finished(self, now: float, run: int, outcome: Outcome) -> None:
        """A handler ended."""
        cx = self._at(now)
        self._running.on_finished(cx, run, outcome)
        self._settle(cx)

    def noted(self, now: float, run: int) -> None:
        """What a run waits for is in the dedupe store."""
        cx = self._at(now)
        self._running.on_noted(cx, run)
        self._settle(cx)

    # Inside.

    def _at(self, now: float) -> Context:
        self._cx.now = now
        return self._cx

    @property
    def _work(self) -> tuple[int, int]:
        """Handlers that run, and calls that wait."""
        waiting = min(self._running.queued + self.unbegun, self._running.handlers)
        return self._running.handlers - waiting, waiting

    def _update(self, cx: Context, **change: Any) -> None:
        if self._link.can_answer:
            cx.outbound.control(self.registration.update(*self._work, **change))

    def _dial(self, cx: Context) -> None:
        self._link.phase = Phase.DIALING
        cx.effects.append(Dial())

    def _envelope(self, cx: Context, kind: Kind, header: Header, body: bytes | None) -> None:
        link = self._link
        if kind is Kind.GOODBYE:
            self._goodbye(cx, header)
        elif link.phase is Phase.GREETING:
            if kind is Kind.WELCOME:
                self._welcome(cx, header)
            elif kind is Kind.ERROR:
                self._fault(cx, header)
            else:
                self._untrusted(cx, "an envelope before WELCOME")
        elif not link.can_answer:
            pass
        elif kind is Kind.RESULT:
            self._asked.on_result(cx, header, body)
        elif kind is Kind.CALL:
            self._running.on_call(cx, self.registration.offers.get(header["capability"]), header, body)
        elif kind is Kind.CHUNK:
            self._asked.on_chunk(cx, header, body)
        elif kind is Kind.ACCEPT:
            self._asked.on_accept(cx, header)
        elif kind is Kind.CREDIT:
            self._running.on_credit(cx, header["id"], header["n"])
        elif kind is Kind.CANCEL:
            self._running.on_cancel(cx, header["id"])
        elif kind is Kind.ERROR:
            self._fault(cx, header)

    def _welcome(self, cx: Context, header: Header) -> None:
        link = self._link
        link.terms = Terms(header)
        link.phase, link.at = Phase.READY, cx.now
        for warning in header["warnings"]:
            log.warning("the hub warns: %s", warning)
        log.info("session %s at %s", header["session"], header["hub"])
        cx.effects.append(Ready(link.terms.max_message, link.terms.keepalive))
        self._asked.resume(cx)

    def _fault(self, cx: Context, header: Header) -> None:
        """ERROR: one of our envelopes could not be used. Costs at most the call that it belonged to."""
        log.warning("the hub could not use an envelope of kind %s: %s", header["ref_kind"], header["message"])
        if "id" in header and header["ref_kind"] in (Kind.CALL, Kind.CREDIT, Kind.CANCEL):
            self._asked.on_fault(cx, header["id"], header["code"], header["message"])

    def _malformed(self, cx: Context, error: Malformed) -> None:
        """An envelope of the hub whose header cannot be read: fails the one thing that it is about."""
        log.warning("envelope cannot be read: %s", error)
        kind, id = error.kind, error.id
        if kind is Kind.WELCOME:
            self._untrusted(cx, str(error))
        elif kind is Kind.GOODBYE:
            self._break(cx, "a GOODBYE that cannot be read")
        elif id is None:
            pass
        elif kind is Kind.CALL:
            cx.outbound.body(refusal(id, Failure("invalid_request", str(error))))
        elif kind in (Kind.ACCEPT, Kind.CHUNK, Kind.RESULT):
            self._asked.on_fault(cx, id, "interrupted" if kind is Kind.CHUNK else "decode", str(error))

    def _untrusted(self, cx: Context, reason: str) -> None:
        """The other end does not speak the protocol: leave, and try again later."""
        log.warning("the hub broke the protocol: %s", reason)
        self._break(cx, reason)

    def _break(self, cx: Context, reason: str) -> None:
        """Lets the socket go without waiting for the other end."""
        cx.effects.append(Abort(ConnectError("io", reason)))
        self._lost(cx, None, reason)

    def _lost(self, cx: Context, close_code: int | None, reason: str) -> None:
        link = self._link
        if link.phase in (Phase.DIALING, Phase.WAITING, Phase.STOPPED):
            return
        cx.outbound.clear()
        if link.phase is Phase.CLOSING:
            return self._stop(cx, CloseReason("closed", "closed by this program"))
        said = link.unknown_goodbye
        if said is None and close_code is not None and 4500 <= close_code <= 4999:
            said = goodbye_of(close_code), reason
        if said is not None and (end := verdict(*said, close_code)) is not None:
            return self._stop(cx, end)
        log.info("connection lost: %s %s", close_code, reason)
        link.lost(cx.now, self._random)
        self._asked.lost(cx.now)
        return self._running.lost(cx)

    def _goodbye(self, cx: Context, header: Header) -> None:
        link = self._link
        code, reason = header["code"], header.get("reason", "")
        log.info("the hub says goodbye: %s %s", code, reason)
        if link.phase is Phase.CLOSING:
            return
        known = GOODBYES.get(code)
        if known is not None and not known[1]:
            cx.effects.append(Abort(ConnectError("closed", f"{code}: {reason}")))
            self._stop(cx, CloseReason(code, reason))
            return
        after = header.get("reconnect_after_ms")
        link.leave(cx.now, None if after is None or known is None else after / 1000, self._random)
        cx.effects.append(Leaving())
        if code == "slow_consumer":
            self._asked.cut(cx)
        if known is None:
            link.unknown_goodbye = code, reason

    def _settle(self, cx: Context) -> None:
        """Ends what has nothing left to wait for: a connection that the hub leaves, and a drained agent."""
        link = self._link
        if (
            link.phase is Phase.LEAVING
            and link.unknown_goodbye is None
            and not (self._asked.on_wire or self._running.on_wire or cx.outbound)
        ):
            # Closed in order, since the last answers may still be on their way out.
            link.part(cx.now)
            cx.effects.append(Close(_NORMAL))
        if self._drain is None or link.phase in (Phase.CLOSING, Phase.STOPPED):
            return
        if self._running.is_busy and cx.now < self._drain:
            return
        self._running.abort_all(cx)
        self._asked.fail_all(cx, "the agent is closed")
        if not link.is_open:
            self._stop(cx, CloseReason("closed", "closed by this program"))
            return
        cx.outbound.body(encode(Kind.GOODBYE, {"code": "normal"}))
        link.close(cx.now)
        cx.effects.append(Close(_NORMAL))

    def _stop(self, cx: Context, reason: CloseReason) -> None:
        self._link.phase = Phase.STOPPED
        self._drain = None
        cx.outbound.clear()
        self._running.abort_all(cx)
        self._asked.fail_all(cx, str(reason))
        cx.effects.append(Stopped(reason))
