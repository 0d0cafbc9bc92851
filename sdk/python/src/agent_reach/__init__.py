"""Agents that call each other over one connection to an Agent-Reach hub.

An agent that provides::

    agent = agent_reach.Agent("shouter")

    @agent.capability("text.upper", idempotent=True)
    def upper(text: str) -> str:
        return text.upper()

    agent.run()

A caller::

    async with agent_reach.connect("caller") as agent:
        print(await agent.call("text.upper", "hello"))
"""

from collections.abc import Generator
from typing import Any

from . import errors
from .client import Agent
from .codes import Accepted
from .context import Context, SyncContext
from .discover import AgentInfo, CapabilityInfo, Directory, OfferInfo
from .errors import CallCancelled, CallError, CloseReason, ConnectError, EmitError, HandlerError
from .options import CallOptions, TaskOptions
from .payload import Payload
from .pending import FanOut, FanOutPart, FanOutStream, PendingCall, Piece, Reply, ResultStream, Summary
from .session.types import Acceptance, Attempt
from .sync import SyncAgent
from .tasks import TaskEvent, TaskHandle, TaskInfo, TaskResult, TaskWatch
from .version import VERSION as __version__

__all__ = [
    "Acceptance",
    "Accepted",
    "Agent",
    "AgentInfo",
    "Attempt",
    "CallCancelled",
    "CallError",
    "CallOptions",
    "CapabilityInfo",
    "CloseReason",
    "ConnectError",
    "Connecting",
    "Context",
    "Directory",
    "EmitError",
    "FanOut",
    "FanOutPart",
    "FanOutStream",
    "HandlerError",
    "OfferInfo",
    "Payload",
    "PendingCall",
    "Piece",
    "Reply",
    "ResultStream",
    "Summary",
    "SyncAgent",
    "SyncContext",
    "TaskEvent",
    "TaskHandle",
    "TaskInfo",
    "TaskOptions",
    "TaskResult",
    "TaskWatch",
    "__version__",
    "connect",
    "errors",
]


class Connecting:
    """An agent that is about to connect: ``async with`` and ``await`` give an `Agent`, ``with`` a `SyncAgent`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def __aenter__(self) -> Agent:
        return await self._agent.connect()

    async def __aexit__(self, *error: Any) -> None:
        await self._agent.__aexit__(*error)

    def __enter__(self) -> SyncAgent:
        return self._agent.sync.connect()

    def __exit__(self, *error: Any) -> None:
        self._agent.sync.__exit__(*error)

    def __await__(self) -> Generator[Any, None, Agent]:
        return self._agent.connect().__await__()


def connect(agent_id: str, hub: str | None = None, **options: Any) -> Connecting:
    """Connects an agent that provides nothing, for now: ``async with connect("caller") as agent``.

    All arguments are those of `Agent`.
    """
    return Connecting(Agent(agent_id, hub, **options))
