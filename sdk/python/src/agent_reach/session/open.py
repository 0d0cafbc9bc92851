"""One call that this agent asked for: what it says, and what came of it so far."""

from typing import Any

from .. import limits
from ..codec import encode
from ..codes import Accepted, Kind
from ..errors import CallError
from ..frames import Header
from .answers import failure
from .types import CallSpec

#: A call without a budget of its own waits so long for a connection; a task may wait longer, as it may in the hub.
PATIENCE = 60.0
TASK_PATIENCE = 86_400.0
#: First and longest wait before a call whose provider may be on its way back is asked again; doubled each time.
AGAIN = 0.05
AGAIN_MOST = 1.0


class Flow:
    """What came of a call's pieces and parts."""

    __slots__ = ("by_target", "ended", "granted", "next_seq")

    def __init__(self, window: int | None) -> None:
        self.next_seq = 0
        #: Chunks allowed since seq 0.
        self.granted = window or 0
        #: In a fan-out: the number of each target's next chunk, and those whose end was told.
        self.by_target: dict[str, int] = {}
        self.ended: set[str] = set()

    def arrives(self, target: str | None, seq: int) -> int:
        """What a chunk is worth: 0 it is due, below it was told already, above so many before it are missing."""
        if target is None:
            ahead = seq - self.next_seq
            self.next_seq += ahead == 0
            return ahead
        if target in self.ended:
            return -1
        ahead = seq - self.by_target.get(target, 0)
        if ahead == 0:
            self.by_target[target] = seq + 1
        return ahead

    def end(self, target: str) -> bool:
        """One target's end. ``False`` when it was told before: a hub that is asked again says it again."""
        if target in self.ended:
            return False
        self.ended.add(target)
        return True


class Open:
    """One call, until its end."""

    __slots__ = (
        "accepted",
        "again_at",
        "asked_again",
        "call_id",
        "cuts",
        "deadline",
        "flow",
        "id",
        "patient",
        "request_id",
        "resent",
        "sent",
        "spec",
        "target",
        "withdrawn",
    )

    def __init__(self, now: float, spec: CallSpec, request_id: str) -> None:
        self.spec = spec
        self.request_id = request_id
        #: On the present connection.
        self.id: int | None = None
        #: It left at least once.
        self.sent = False
        #: It may have left on an earlier connection: another provider, or another life of the hub, may have had it.
        self.resent = False
        self.accepted = False
        #: Nobody wants its result any more; how it ends is still to be told.
        self.withdrawn = False
        #: It was open when the present session began: providers may still be on their way back.
        self.patient = False
        self.asked_again = 0
        #: How often in a row its connection was ended as a slow consumer's.
        self.cuts = 0
        #: When it goes out again, if it waits for providers to come back.
        self.again_at: float | None = None
        self.flow = Flow(spec.window)
        self.call_id: str | None = None
        self.target: str | None = None
        #: When it ends here, if it is not on the wire.
        self.deadline = now + (self.patience if spec.budget is None else spec.budget)

    @property
    def patience(self) -> float:
        """How long it waits for a connection, without a budget of its own."""
        return TASK_PATIENCE if self.spec.task else PATIENCE

    @property
    def wait_again(self) -> float:
        """How long to wait before the hub is asked again."""
        return min(AGAIN * (1 << min(self.asked_again, 5)), AGAIN_MOST)

    def error(self, code: str, message: str, **more: Any) -> CallError:
        """A failure that is decided here."""
        accepted = Accepted.YES if self.accepted else Accepted.UNKNOWN if self.sent else Accepted.NO
        said: dict[str, Any] = {"call_id": self.call_id, "target": self.target, "accepted": accepted, **more}
        return CallError.of(code, message, request_id=self.request_id, **said)

    def failure(self, header: Header) -> CallError:
        """What the hub's RESULT says of a failure."""
        error = failure(header, self.request_id, self.accepted)
        if self.resent and error.accepted is Accepted.NO:
            # Nobody has it now; whoever had it before the reconnect may have run it.
            error.accepted = Accepted.UNKNOWN
        return error

    def encode(self, id: int, now: float) -> bytes:
        """The CALL."""
        spec = self.spec
        header: Header = {"id": id, "request_id": self.request_id, "capability": spec.capability, **spec.header}
        if spec.request_id is None and "keep_ms" not in header:
            # Outcomes of ids that the SDK made need to outlive a reconnect only.
            header["keep_ms"] = limits.KEEP_MS_MADE
        if spec.budget is not None:
            header["budget_ms"] = max(int((self.deadline - now) * 1000), 1)
        if spec.window is not None:
            header["stream"] = True
            # What the caller has room for now. All of it in a fan-out, whose targets stand at different places; that
            # can be one window too much for each, never more.
            left = spec.window if spec.fan_out else self.flow.granted - self.flow.next_seq
            header["credit"] = max(left, 0)
        return encode(Kind.CALL, header, spec.body or None)
