"""What the hub's answers say, in words of the program."""

from typing import Any

from ..codes import ACCEPTED_BY_CODE, Accepted
from ..errors import CallError
from ..frames import Header
from .types import Acceptance, Attempt, Payload, RawReply


def acceptance(header: Header, request_id: str) -> Acceptance:
    """What an ACCEPT says."""
    get = header.get
    wait = get("wait_ms")
    return Acceptance(
        request_id,
        get("call_id"),
        get("target"),
        get("attempt"),
        get("queue_depth"),
        get("would_timeout", False),
        None if wait is None else wait / 1000,
        get("task_id"),
    )


def reply(header: Header, body: bytes | None, request_id: str) -> RawReply:
    """What a RESULT says of a success."""
    return RawReply(Payload(body or b"", header.get("content_type")), header, request_id)


def attempts(header: Header) -> tuple[Attempt, ...]:
    """Every try that a RESULT, or a task, shows."""
    return tuple(
        Attempt(str(tried["target"]), str(tried["outcome"]), int(tried["ms"]), str(tried.get("reason", "")))
        for tried in header.get("attempts", ())
    )


def failure(header: Header, request_id: str, accepted: bool = False) -> CallError:
    """What a RESULT says of a failure. ``accepted``: a provider was seen to have it."""
    told = header.get("error")
    tried = attempts(header)
    more: dict[str, Any] = {
        "request_id": request_id,
        "call_id": header.get("call_id"),
        "target": header.get("target"),
        "attempts": tried,
    }
    if told is None:
        if header["status"] == "no_instance":
            code, message = "no_instance", "no agent can take it now"
        else:
            code, message = "internal", "the hub gave no reason"
        cause = None
    else:
        code, message = told["code"], told["message"]
        more["retryable"] = told["retryable"]
        more["details"] = told.get("details")
        cause = _cause(more["details"]) if code == "degraded" else None
    more["accepted"] = Accepted.YES if accepted else _accepted_by(code if cause is None else cause.code, tried)
    return CallError.of(code, message, cause=cause, **more)


def _cause(details: Any) -> CallError | None:
    cause = details.get("cause") if isinstance(details, dict) else None
    if not isinstance(cause, dict) or not isinstance(cause.get("code"), str):
        return None
    return CallError.of(
        cause["code"],
        str(cause.get("message", "")),
        retryable=cause.get("retryable") is True,
        details=cause.get("details"),
    )


def _accepted_by(code: str, tried: tuple[Attempt, ...]) -> Accepted:
    # One try that a provider had is enough; that none had it must be certain of all of them.
    said = {ACCEPTED_BY_CODE.get(word, Accepted.UNKNOWN) for word in (code, *(own.outcome for own in tried))}
    for answer in (Accepted.YES, Accepted.UNKNOWN):
        if answer in said:
            return answer
    return Accepted.NO
