"""Why a call, a connection or a handler failed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .codes import FROM_PROVIDER, RETRYABLE, Accepted

if TYPE_CHECKING:
    from .session.types import Attempt


class AgentReachError(Exception):
    """Everything that this package raises."""


class CallError(AgentReachError):
    """A call failed. Each code has a class of its own below; one that this version does not know has this."""

    #: The code that a class stands for.
    CODE = "internal"

    def __init__(
        self,
        message: str,
        code: str | None = None,
        *,
        retryable: bool | None = None,
        accepted: Accepted = Accepted.UNKNOWN,
        details: Any = None,
        request_id: str = "",
        call_id: str | None = None,
        target: str | None = None,
        attempts: Sequence["Attempt"] = (),
        cause: "CallError | None" = None,
    ) -> None:
        super().__init__(message)
        #: A word of the protocol's table, or ``interrupted``, ``decode`` or ``closed`` of the SDK's own.
        self.code = self.CODE if code is None else code
        #: For people.
        self.message = message
        #: Whether the same call, with the same ``request_id``, can end otherwise.
        self.retryable = RETRYABLE.get(self.code, False) if retryable is None else retryable
        #: Whether a provider had it: ``yes``, ``no`` or ``unknown``.
        self.accepted = accepted
        #: For programs; of a ``handler_error`` usually ``{code, message}``.
        self.details = details
        #: The business intent: the program's own, or made by the SDK.
        self.request_id = request_id
        #: Hub-wide id for ``hub.traces.get``, if the hub had given one.
        self.call_id = call_id
        #: Who failed, if it had gone anywhere.
        self.target = target
        #: Every try in order.
        self.attempts = tuple(attempts)
        #: Of ``degraded``: the failure that was left when every further try was used up.
        self.cause = cause

    @staticmethod
    def of(code: str, message: str, **more: Any) -> "CallError":
        """The error of a code, of its own class where it has one."""
        return _BY_CODE.get(code, CallError)(message, code, **more)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.code, dict(self.__dict__))


def _rebuild(kind: type[CallError], message: str, code: str, state: dict[str, Any]) -> CallError:
    error = kind(message, code)
    error.__dict__.update(state)
    return error


class NoInstance(CallError):
    """The capability is known, and nobody can take the call now."""

    CODE = "no_instance"


class NoCapability(CallError):
    """Nobody has ever offered it."""

    CODE = "no_capability"


class Unauthorized(CallError):
    """Policy, or the caller's own declaration, forbids it."""

    CODE = "unauthorized"


class InvalidRequest(CallError):
    """An option or the body is wrong; ``details["field"]`` names it where the hub says so."""

    CODE = "invalid_request"


class SchemaMismatch(CallError):
    """The body, or ``expected_output``, fits no candidate."""

    CODE = "schema_mismatch"


class PayloadTooLarge(CallError):
    """Larger than the hub takes."""

    CODE = "payload_too_large"


class Overloaded(CallError):
    """A queue or an in-flight limit is full."""

    CODE = "overloaded"


class RateLimited(CallError):
    """A rate limit is reached and the call would not wait."""

    CODE = "rate_limited"


class AcceptTimeout(CallError):
    """Phase one was missed."""

    CODE = "accept_timeout"


class ProcessingTimeout(CallError):
    """The processing time was missed: code ``timeout``."""

    CODE = "timeout"


class BudgetExhausted(CallError):
    """The time for everything is spent."""

    CODE = "budget_exhausted"


class AgentLost(CallError):
    """The provider went away; the outcome may be unknown."""

    CODE = "agent_lost"


class CircuitOpen(CallError):
    """The breakers of all candidates are open."""

    CODE = "circuit_open"


class HandlerFailed(CallError):
    """The provider's own failure: code ``handler_error``, its words in ``details``."""

    CODE = "handler_error"


class Unsupported(CallError):
    """The agent has no handler for it."""

    CODE = "unsupported"


class Cancelled(CallError):
    """The call was cancelled."""

    CODE = "cancelled"


class Degraded(CallError):
    """Further tries were made and used up; ``cause`` is the failure itself."""

    CODE = "degraded"


class IdempotencyConflict(CallError):
    """The ``request_id`` belongs to another capability or body."""

    CODE = "idempotency_conflict"


class ShuttingDown(CallError):
    """The hub drains."""

    CODE = "shutting_down"


class Orphaned(CallError):
    """A task ran past twice its processing time without a sign of life."""

    CODE = "orphaned"


class Internal(CallError):
    """A fault of the hub."""

    CODE = "internal"


class Interrupted(CallError):
    """A stream ended without its end, or with a gap: what came is not the whole."""

    CODE = "interrupted"


class DecodeFailed(CallError):
    """The result came, and is not of the type wanted: code ``decode``."""

    CODE = "decode"


class AgentClosed(CallError):
    """This agent has ended, or was refused for good: code ``closed``."""

    CODE = "closed"


_BY_CODE: dict[str, type[CallError]] = {kind.CODE: kind for kind in CallError.__subclasses__()}


class ConnectError(AgentReachError):
    """No session could be had.

    ``kind`` is ``config``, ``tls``, ``http``, ``io``, ``timeout`` or ``closed``.
    """

    def __init__(self, kind: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        #: Of ``http``: the status that the upgrade was answered with.
        self.status = status

    @property
    def final(self) -> bool:
        """Whether dialling again cannot help until somebody changes something.

        TLS failures are not final: the certificate may be renewed on disk.
        """
        if self.kind == "http":
            return self.status is not None and 400 <= self.status < 500 and self.status not in (408, 425, 429)
        return self.kind in ("config", "closed")

    def __str__(self) -> str:
        return f"{self.kind}: {self.args[0]}"


class CloseReason(AgentReachError):
    """Why an agent's life ended.

    ``code`` is ``closed`` (by this program), the word of a final GOODBYE such as ``replaced``, or ``connect``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"


class HandlerError(AgentReachError):
    """What a handler raises when it cannot complete a call.

    Callers see it as ``handler_error`` with ``code`` and ``message`` in ``details``, but for the codes
    ``unsupported``, ``invalid_request``, ``schema_mismatch``, ``overloaded``, ``rate_limited`` and ``cancelled``, which
    pass as they are. Any other exception becomes code ``error`` with its text.
    """

    def __init__(self, code: str, message: str = "", *, retryable: bool | None = None, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        if retryable is None:
            retryable = code in FROM_PROVIDER and RETRYABLE[code]
        #: The same call can succeed later, perhaps elsewhere. It will run again: such a failure is not remembered.
        self.retryable = retryable
        #: More for programs, in the place of ``{code, message}``.
        self.details = details


class EmitError(AgentReachError):
    """A chunk did not leave: it is too large, or cannot be written."""


class CallCancelled(EmitError):
    """Nobody waits for the call's result any more. A handler may let it pass: the call is answered ``cancelled``."""


__all__ = [
    "AcceptTimeout",
    "AgentClosed",
    "AgentLost",
    "AgentReachError",
    "BudgetExhausted",
    "CallCancelled",
    "CallError",
    "Cancelled",
    "CircuitOpen",
    "CloseReason",
    "ConnectError",
    "DecodeFailed",
    "Degraded",
    "EmitError",
    "HandlerError",
    "HandlerFailed",
    "IdempotencyConflict",
    "Internal",
    "Interrupted",
    "InvalidRequest",
    "NoCapability",
    "NoInstance",
    "Orphaned",
    "Overloaded",
    "PayloadTooLarge",
    "ProcessingTimeout",
    "RateLimited",
    "SchemaMismatch",
    "ShuttingDown",
    "Unauthorized",
    "Unsupported",
]
