"""One handler that runs, or the remembered end of one that is being told again."""

from collections import deque

from .. import limits
from ..codec import encode
from ..codes import Kind
from ..frames import Header
from .types import Failure, Invocation, Outcome, Payload

#: Chunks of one stream kept so that it can be sent again after a reconnect, in bytes.
CHUNK_BYTES_MAX = 1024 * 1024


class Chunks:
    """The chunks of one stream."""

    __slots__ = ("bytes", "first", "kept")

    def __init__(self) -> None:
        self.kept: deque[Payload] = deque()
        #: ``seq`` of the first that is kept.
        self.first = 0
        self.bytes = 0

    @property
    def produced(self) -> int:
        """How many there were."""
        return self.first + len(self.kept)

    def push(self, payload: Payload) -> None:
        """One more."""
        self.bytes += len(payload.body)
        self.kept.append(payload)

    def shrink(self, sent: int) -> None:
        """Lets go of sent chunks, once they are too many to be sent again. Unsent ones stay: credit bounds them."""
        while (self.bytes > CHUNK_BYTES_MAX or self.first > 0) and self.first < sent and self.kept:
            self.bytes -= len(self.kept.popleft().body)
            self.first += 1


class Run:
    """One intent that a handler serves."""

    __slots__ = (
        "abort_at",
        "accepted",
        "again",
        "call_id",
        "capability",
        "chunks",
        "credit",
        "deadline",
        "execution",
        "expected",
        "fingerprint",
        "id",
        "intent",
        "most",
        "noted",
        "outcome",
        "permitted",
        "preferred",
        "remembered",
        "request_id",
        "room",
        "saving",
        "sent",
        "started",
        "stream",
        "task",
        "waiting",
    )

    def __init__(self, now: float, intent: str, header: Header) -> None:
        self.intent = intent
        self.capability: str = header["capability"]
        self.request_id: str = header["request_id"]
        self.call_id: str = header["call_id"]
        #: The hub's id on the present connection.
        self.id: int | None = header["id"]
        #: It is in the room of its capability; not so of a remembered end.
        self.room = False
        #: Its handler has not started: others of its capability run, or it is not noted yet.
        self.waiting: Invocation | None = None
        self.most: int | None = None
        #: How long the handler says it takes, and what the caller would like, in seconds.
        self.expected: float | None = None
        self.preferred: float | None = None
        #: Of a task: its chunks say how far it is, and are no part of its result.
        self.task = "task_id" in header
        self.fingerprint = b""
        #: Its end is being written into the dedupe store, and is told when it is there.
        self.saving = False
        #: The dedupe store says that it has begun.
        self.noted = False
        self.chunks = Chunks()
        self.started = now
        self.execution = 0.0
        self.outcome: Outcome | None = None
        #: It is stopped by force then.
        self.abort_at: float | None = None
        #: CALL came again while this run was being cancelled.
        self.again: Invocation | None = None
        #: The end is in memory already.
        self.remembered = False
        self.permitted = 0
        self.take(now, header)

    def take(self, now: float, header: Header) -> None:
        """The newest CALL of this intent: what is said from now on goes to it, from the beginning."""
        #: ACCEPT, or what stands for it, was sent for it.
        self.accepted = False
        self.stream: bool = header["stream"]
        #: Chunks allowed since seq 0, and chunks sent.
        self.credit: int = header.get("credit", limits.CREDIT_DEFAULT)
        self.sent = 0
        self.deadline = now + header["deadline_ms"] / 1000
        preferred = header.get("preferred_timeout_ms")
        self.preferred = None if preferred is None else preferred / 1000

    def next_chunk(self) -> bytes | None:
        """The next piece that may be sent: one that is there, within the credit."""
        if not self.stream or self.sent >= self.credit or self.sent >= self.chunks.produced:
            return None
        payload = self.chunks.kept[self.sent - self.chunks.first]
        header: Header = {"id": self.id, "seq": self.sent}
        if payload.content_type is not None:
            header["content_type"] = payload.content_type
        self.sent += 1
        self.accepted = True
        return encode(Kind.CHUNK, header, payload.body)

    def result(self, max_message: int) -> bytes:
        """RESULT."""
        outcome = self.outcome
        if not isinstance(outcome, Payload):
            assert outcome is not None, "a run without an outcome has no result"
            message = self.failed(outcome)
            return message if len(message) <= max_message else self.failed(outcome._replace(details=None))
        header: Header = {
            "id": self.id,
            "status": "completed",
            "request_id": self.request_id,
            "call_id": self.call_id,
            "execution_ms": int(self.execution * 1000),
        }
        if outcome.content_type is not None:
            header["content_type"] = outcome.content_type
        message = encode(Kind.RESULT, header, outcome.body)
        if len(message) <= max_message:
            return message
        text = f"the result has {len(message)} bytes as a message, the hub takes {max_message}"
        return self.failed(Failure("handler_error", text))

    def failed(self, failure: Failure, id: int | None = None) -> bytes:
        """RESULT of a failure."""
        ids = {"request_id": self.request_id, "call_id": self.call_id}
        return refusal(self.id if id is None else id, failure, **ids, execution_ms=int(self.execution * 1000))


def refusal(id: int | None, failure: Failure, **more: str | int) -> bytes:
    """RESULT for a CALL that fails. Texts are cut to what the protocol takes."""
    error: Header = {
        "code": failure.code,
        "message": failure.message.encode(errors="replace")[: limits.TEXT_BYTES_MAX].decode(errors="ignore"),
        "retryable": failure.retryable,
    }
    if failure.details is not None:
        error["details"] = failure.details
    header: Header = {"id": id, "status": "failed", **more, "error": error}
    return encode(Kind.RESULT, header)
