"""Durable tasks, from the side of who asked."""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import CallError
from .inbox import Inbox, raised
from .payload import Payload
from .pending import Reply, ResultStream, reply_of
from .session.answers import attempts
from .session.types import Acceptance, Attempt, Ended, RawReply

if TYPE_CHECKING:
    from .client import Agent

_OVER = ("SUCCEEDED", "FAILED")


class TaskInfo(NamedTuple):
    """One task that the hub has. What a hub does not tell is empty."""

    task_id: str
    #: ``QUEUED``, ``RECEIVED``, ``PROCESSING``, ``SUCCEEDED`` or ``FAILED``.
    state: str
    capability: str
    request_id: str
    #: Which agent submitted it: where its result goes.
    caller: str
    #: Tries so far.
    attempt: int
    #: Who has it, or had it last.
    target: str | None
    #: ``completed`` or an error code; of one that has ended.
    outcome: str | None
    #: Every try in order, and the result's body; only where one task is asked for.
    attempts: tuple[Attempt, ...]
    result: Any
    #: All that the hub told.
    raw: Mapping[str, Any]

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.state in _OVER

    @staticmethod
    def of(told: Mapping[str, Any]) -> "TaskInfo":
        """A task as the hub shows it."""
        get = told.get
        return TaskInfo(
            str(get("task_id", "")),
            str(get("state", "")),
            str(get("capability", "")),
            str(get("request_id", "")),
            str(get("caller", "")),
            int(get("attempt") or 0),
            get("target"),
            get("outcome"),
            attempts(dict(told)),
            get("result"),
            told,
        )


class TaskEvent(NamedTuple):
    """One thing that happened to a task: where it stands, or what its handler said of its progress."""

    #: ``snapshot``, or the hub's name of the event, such as ``task.progress``.
    event: str
    #: Where it stands.
    info: TaskInfo | None
    #: What its handler said.
    progress: Any


class TaskResult(NamedTuple):
    """The end of a task that no handle of this program waited for."""

    task_id: str
    #: How it ended, unless it failed.
    reply: Reply | None
    #: Its failure.
    error: CallError | None


class TaskWatch(AsyncIterator[TaskEvent]):
    """Watches one task, for ``async for``: where it stands now, each change, and its end, after which nothing comes.

    After a lost connection it begins anew with the state as it is then.
    """

    def __init__(self, task_id: str, stream: ResultStream) -> None:
        self._task_id = task_id
        self._stream = stream
        self._waiting: deque[TaskEvent] = deque()
        self._over = False

    def __aiter__(self) -> "TaskWatch":
        return self

    async def __anext__(self) -> TaskEvent:
        while not self._waiting:
            if self._over:
                raise StopAsyncIteration
            try:
                told = await self._stream.__anext__()
            except StopAsyncIteration:
                text = "the hub ended the watch before the task had ended"
                raise CallError.of("interrupted", text) from None
            self._take(told)
        event = self._waiting.popleft()
        if event.info is not None and event.info.is_over:
            self._over = True
            self._waiting.clear()
            await self._stream.aclose()
        return event

    def _take(self, told: Mapping[str, Any]) -> None:
        name = str(told.get("event", ""))
        shown = [*(told.get("tasks") or ()), *([told["task"]] if told.get("task") else ())]
        own = [info for info in map(TaskInfo.of, shown) if info.task_id == self._task_id]
        self._waiting.extend(TaskEvent(name, info, None) for info in own)
        if name == "task.progress" and told.get("task_id", self._task_id) == self._task_id:
            self._waiting.append(TaskEvent(name, None, told.get("progress")))

    async def aclose(self) -> None:
        """Ends the watch."""
        await self._stream.aclose()

    async def __aenter__(self) -> "TaskWatch":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class TaskHandle:
    """A task that the hub has stored. It goes on without the handle: letting go of that changes nothing.

    The result comes over lost connections and restarts of the hub, and after a restart of this program to
    `Agent.task` with the same id.
    """

    def __init__(self, agent: "Agent", task_id: str, wanted: Any, inbox: Inbox | None = None) -> None:
        self._agent = agent
        #: The task's id. Whoever keeps it can get the result in another life of the program.
        self.id = task_id
        self._wanted = wanted
        self._inbox = inbox
        # A task that this program did not submit may have ended already.
        self._unasked = inbox is None
        self._end: RawReply | CallError | None = None

    @staticmethod
    async def stored(agent: "Agent", inbox: Inbox, wanted: Any) -> "TaskHandle":
        """Waits until the task is stored. A repetition of an ended one has its end at once."""
        try:
            while True:
                event = await inbox.next()
                if type(event) is Acceptance and event.task_id is not None:
                    inbox.keeps_running = True
                    return TaskHandle(agent, event.task_id, wanted, inbox)
                if type(event) is Ended:
                    result = event.result
                    if not isinstance(result, CallError):
                        handle = TaskHandle(agent, str(result.header.get("task_id", "")), wanted, inbox)
                        handle._end = result
                        return handle
                    raise result
        except BaseException:
            if not inbox.keeps_running:
                inbox.drop()
            raise

    async def result(self) -> Any:
        """Waits for the task's result. It can be waited for again, and asked for again when it is there.

        Raises:
            CallError: the task's failure; ``invalid_request`` when the identity of this agent has no such task;
                ``closed`` when the agent is closed, which does not end the task.
        """
        return (await self.reply()).body

    async def reply(self) -> Reply:
        """The same, with how it got there."""
        while self._end is None:
            if self._inbox is None:
                # Before the hub is asked, lest the result come between the two.
                self._inbox = self._agent._claim(self.id)
            if self._unasked:
                self._end = await self._look()
                self._unasked = False
                continue
            event = await self._inbox.next()
            if type(event) is Ended:
                self._end = event.result
        return reply_of(raised(self._end), self._wanted)

    async def _look(self) -> RawReply | CallError | None:
        """Asks the hub how the task ended. ``None``: it has not, and its end comes to this agent by itself."""
        try:
            info = await self.info()
        except CallError as error:
            if error.code == "payload_too_large":
                # Its result has no room beside all else that this shows of it; it has in a message of its own.
                return None
            raise
        if not info.is_over:
            if info.caller == self._agent.agent_id:
                return None
            # Another agent of the same identity submitted it: the result goes there.
            async with await self.watch() as watch:
                async for _ in watch:
                    pass
            info = await self.info()
        self._agent._received(self.id)
        return _end_of(info)

    async def info(self) -> TaskInfo:
        """Where the task stands now, with its tries and its end."""
        return TaskInfo.of(await self._agent.call("hub.tasks.get", {"task_id": self.id}))

    async def cancel(self) -> bool:
        """Cancels the task in the hub and at its provider. ``True``: that ended it. ``False``: it had ended before."""
        answer = await self._agent.call("hub.tasks.cancel", {"task_id": self.id})
        return bool(answer.get("cancelled"))

    async def watch(self) -> TaskWatch:
        """Watches the task until it ends. The hub lets an agent have 16 watches at a time."""
        return TaskWatch(self.id, self._agent.stream("hub.tasks.watch", {"task_id": self.id}))

    def __del__(self) -> None:
        if self._inbox is not None:
            self._inbox.keeps_running = True
            self._inbox.drop()


def _end_of(info: TaskInfo) -> RawReply | CallError:
    """The end of a task as ``hub.tasks.get`` shows it."""
    from .payload import encode_body

    raw = info.raw
    if info.state == "SUCCEEDED":
        kind = raw.get("content_type")
        # What has a content type is shown as its bytes.
        shown = info.result
        payload = Payload(shown, kind) if kind is not None and isinstance(shown, bytes) else encode_body(shown)
        return RawReply(payload, dict(raw), info.request_id)
    told = raw.get("error") or {}
    return CallError.of(
        str(told.get("code") or info.outcome or "internal"),
        str(told.get("message", "")),
        retryable=told.get("retryable") is True,
        details=told.get("details"),
        request_id=info.request_id,
        target=info.target,
        attempts=info.attempts,
    )
