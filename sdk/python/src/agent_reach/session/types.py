"""What goes into the session and comes out of it. Times are seconds; moments are of one monotonic clock."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import CallError, CloseReason, ConnectError
from ..frames import Header


class Payload(NamedTuple):
    """A body as it is on the wire. ``content_type`` ``None``: one MessagePack value, or nothing."""

    body: bytes
    content_type: str | None = None


class CallSpec:
    """Everything that a CALL says but its id and what is left of its budget."""

    __slots__ = ("body", "budget", "capability", "fan_out", "header", "request_id", "task", "watch", "window")

    def __init__(
        self,
        capability: str,
        header: Header,
        body: bytes,
        request_id: str | None = None,
        budget: float | None = None,
        window: int | None = None,
    ) -> None:
        self.capability = capability
        #: All keys that do not change from one sending to the next.
        self.header = header
        self.body = body
        #: The program's own; ``None``: the session makes one.
        self.request_id = request_id
        #: Seconds for everything; ``None``: the hub's default.
        self.budget = budget
        #: First window of a stream, in chunks; ``None``: no stream.
        self.window = window
        self.task = header.get("mode") == "task"
        #: Asked again, it begins anew with the state as it is then.
        self.watch = capability.startswith("hub.") and capability.endswith(".watch")
        self.fan_out = len(header.get("agents", ())) > 1 or header.get("select", "one") != "one"


class Attempt(NamedTuple):
    """One try of a call."""

    #: Who was tried.
    target: str
    #: ``completed`` or an error code.
    outcome: str
    #: How long it took, in milliseconds.
    ms: int
    #: Why this agent, or why it failed.
    reason: str


class Acceptance(NamedTuple):
    """Phase one: a provider has the call. Says nothing about success."""

    request_id: str
    #: Hub-wide id, for ``hub.traces.get``.
    call_id: str | None = None
    #: Who accepted.
    target: str | None = None
    #: Which try, from 1.
    attempt: int | None = None
    #: Calls that wait in the provider before this one.
    queue_depth: int | None = None
    #: The provider expects to miss ``preferred_timeout``.
    would_timeout: bool = False
    #: Then: how long the caller would have to wait, in seconds from now.
    wait: float | None = None
    #: Of a task.
    task_id: str | None = None


class RawReply(NamedTuple):
    """How a call ended, its body still encoded."""

    payload: Payload
    header: Header
    request_id: str


class Chunk(NamedTuple):
    """One piece of a stream has come."""

    seq: int
    target: str | None
    payload: Payload


class Part(NamedTuple):
    """One target's end in a fan-out."""

    target: str
    result: RawReply | CallError


class Ended(NamedTuple):
    """The one end of a call."""

    result: RawReply | CallError
    #: Of a task whose result comes to this handle alone: if it was let go of meanwhile, the result is the inbox's.
    task_id: str | None = None


CallEvent = Acceptance | Chunk | Part | Ended


class TaskEnd(NamedTuple):
    """How a task ended, wherever that is told."""

    task_id: str
    result: RawReply | CallError


class Failure(NamedTuple):
    """A RESULT that is no result."""

    code: str
    message: str
    retryable: bool = False
    details: Any = None


Outcome = Payload | Failure


class Invocation(NamedTuple):
    """A CALL for a handler of this agent."""

    run: int
    header: Header
    payload: Payload
    #: Chunks that may be emitted at once.
    credit: int


class Load(NamedTuple):
    """What the program reports of its load. It weighs in routing; what the hub counts itself decides."""

    #: Calls that wait in the program, besides those that the SDK knows.
    queued: int | None = None
    #: Share of the processor, 0 to 1.
    cpu: float | None = None
    #: Share of the memory, 0 to 1.
    memory: float | None = None
    #: 0 to 100; below 60 the agent is out of routing.
    health: int | None = None
    #: Fill of single capabilities, 0 to 1.
    levels: Mapping[str, float] = {}


class Offer(NamedTuple):
    """One capability as it is registered."""

    #: Its map on the wire.
    header: Header
    #: Most handlers of it at once; ``None``: as many as the agent takes.
    max_concurrency: int | None = None

    @property
    def idempotent(self) -> bool:
        """Whether running one intent twice is harmless."""
        return bool(self.header.get("idempotent"))


class Note(NamedTuple):
    """A line for the dedupe store."""

    #: Who waits for it to be written; ``None``: nobody.
    run: int | None
    intent: str
    fingerprint: bytes
    #: ``begun``, ``ended`` or ``free``.
    word: str
    outcome: Outcome | None = None
    execution: float = 0.0
    #: Of a task: it must outlive a crash of the machine, and not only of the process.
    task: bool = False


class Past(NamedTuple):
    """What an earlier life of the process left in the dedupe store."""

    intent: str
    fingerprint: bytes
    outcome: Outcome
    execution: float
    #: How long ago it was written, in seconds.
    age: float


# What the session wants done.


class Dial(NamedTuple):
    """Open a socket."""


class Ping(NamedTuple):
    """Send a WebSocket ping."""


class Close(NamedTuple):
    """Write what is queued, close with this code, and let the socket go."""

    code: int


class Abort(NamedTuple):
    """Let the socket go at once: nobody is at the other end."""

    why: ConnectError


class Ready(NamedTuple):
    """Registered: HELLO was answered."""

    max_message: int
    #: Seconds between two heartbeats.
    keepalive: float


class Leaving(NamedTuple):
    """The hub goes: what is open may end, new calls wait for the next session."""


class Tell(NamedTuple):
    """Tell a caller."""

    key: int
    event: CallEvent


class Arrived(NamedTuple):
    """A task's result that no handle waits for: for the inbox."""

    end: TaskEnd


class Hand(NamedTuple):
    """Give this handle the result of its task from the inbox."""

    key: int
    task_id: str


class Run(NamedTuple):
    """Run a handler."""

    call: Invocation


class Grant(NamedTuple):
    """Let a handler emit so many chunks more."""

    run: int
    n: int


class CancelRun(NamedTuple):
    """Tell a handler that nobody wants its result."""

    run: int


class AbortRun(NamedTuple):
    """Stop a handler, by force where that can be had."""

    run: int


class WriteNote(NamedTuple):
    """Write this into the dedupe store."""

    note: Note


class Stopped(NamedTuple):
    """The end."""

    reason: CloseReason


Effect = (
    Dial
    | Ping
    | Close
    | Abort
    | Ready
    | Leaving
    | Tell
    | Arrived
    | Hand
    | Run
    | Grant
    | CancelRun
    | AbortRun
    | WriteNote
    | Stopped
)
