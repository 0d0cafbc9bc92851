"""Who is there and what they can do, as the hub tells it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import CallError
from .waits import Latch, in_loop

if TYPE_CHECKING:
    import asyncio

    from .client import Agent

log = logging.getLogger("agent_reach")

Told = Mapping[str, Any]


class AgentInfo(NamedTuple):
    """One agent that the hub knows. What a hub does not tell is empty."""

    agent_id: str
    #: Who its certificate proves.
    identity: str
    #: This life of its process.
    instance: str
    #: ``ready``, ``degraded``, ``draining``, ``suspect``, or ``away`` while its return is waited for.
    status: str
    #: Name and version of the service, and of its SDK, for people.
    service: str | None
    version: str | None
    sdk: str | None
    labels: Mapping[str, str]
    #: Names of what it offers.
    capabilities: tuple[str, ...]
    #: Calls that the hub counts as its own, and most of them.
    in_flight: int
    max_concurrency: int
    #: What it reports of its load.
    load: Mapping[str, Any]
    #: All that the hub told.
    raw: Mapping[str, Any]

    @staticmethod
    def of(told: Told) -> AgentInfo:
        """An agent as the hub shows it."""
        get = told.get
        return AgentInfo(
            str(get("agent_id", "")),
            str(get("identity", "")),
            str(get("instance", "")),
            str(get("status", "")),
            get("service"),
            get("version"),
            get("sdk"),
            dict(get("labels") or {}),
            tuple(get("capabilities") or ()),
            int(get("in_flight") or 0),
            int(get("max_concurrency") or 0),
            dict(get("load") or {}),
            told,
        )


class OfferInfo(NamedTuple):
    """One agent's offer of a capability."""

    agent_id: str
    #: How that agent stands; see `AgentInfo.status`.
    status: str
    version: str | None
    description: str | None
    #: JSON Schema of the body of a call, and of a result.
    input_schema: Any
    output_schema: Any
    idempotent: bool
    labels: Mapping[str, str]
    aliases: tuple[str, ...]
    #: All that the hub told.
    raw: Mapping[str, Any]

    @staticmethod
    def of(told: Told) -> OfferInfo:
        """An offer as the hub shows it."""
        get = told.get
        return OfferInfo(
            str(get("agent_id", "")),
            str(get("status", "")),
            get("version"),
            get("description"),
            get("input_schema"),
            get("output_schema"),
            bool(get("idempotent")),
            dict(get("labels") or {}),
            tuple(get("aliases") or ()),
            told,
        )


class CapabilityInfo(NamedTuple):
    """One name of the dictionary, with everybody who offers it."""

    name: str
    agents: tuple[OfferInfo, ...]

    @staticmethod
    def of(told: Told) -> CapabilityInfo:
        """A name as the hub shows it."""
        return CapabilityInfo(str(told.get("name", "")), tuple(map(OfferInfo.of, told.get("agents") or ())))


async def listed(agent: Agent, capability: str, key: str, name: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    """All pages of a list of the hub's."""
    items: list[dict[str, Any]] = []
    while True:
        page = await agent.call(capability, query)
        new = page.get(key) or []
        items.extend(new)
        # A hub that says more and gives nothing new would keep us here for ever.
        if not page.get("more") or not new or new[-1].get(name) == query.get("after"):
            return items
        query = {**query, "after": new[-1].get(name)}


class Directory:
    """Agents in memory, kept fresh by ``hub.events.watch``: the state now, then each change.

    After a reconnect, or an end of the watch, it begins anew, and what it has meanwhile is the last that was known. It
    belongs to the event loop where it was made.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._agents: dict[str, AgentInfo] = {}
        self._snapshot: dict[str, AgentInfo] = {}
        self._first = Latch()
        self._task: asyncio.Task[None] | None = None
        #: Whether what is here is what the hub has, as far as can be told.
        self.fresh = False

    @property
    def agents(self) -> Mapping[str, AgentInfo]:
        """Every agent by its id."""
        return self._agents

    def offering(self, capability: str) -> list[AgentInfo]:
        """Agents that are ready and offer this, the least loaded first."""
        able = [own for own in self._agents.values() if own.status == "ready" and capability in own.capabilities]
        return sorted(able, key=lambda own: own.in_flight / max(own.max_concurrency, 1))

    @property
    def capabilities(self) -> Mapping[str, list[str]]:
        """Who offers each capability, by its name."""
        found: dict[str, list[str]] = {}
        for agent_id, own in self._agents.items():
            for name in own.capabilities:
                found.setdefault(name, []).append(agent_id)
        return found

    async def start(self) -> Directory:
        """Begins to watch; returns when the first state is here.

        Raises:
            CallError: the agent may not watch.
        """
        import asyncio

        self._task = asyncio.get_running_loop().create_task(self._run())
        problem = await self._first.wait(in_loop)
        if problem is not None:
            raise problem
        return self

    async def aclose(self) -> None:
        """Ends the watch."""
        import asyncio

        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def __aenter__(self) -> Directory:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self) -> None:
        import asyncio

        wait = 0.5
        while True:
            try:
                async with self._agent.stream("hub.events.watch", {"subjects": ["agents"]}, window=64) as events:
                    async for told in events:
                        self.take(told)
                        wait = 0.5
                log.info("the hub ended the watch of agents")
            except CallError as error:
                if not self._first.is_set and not error.retryable:
                    self._first.set(error)
                    return
                log.info("the watch of agents ended: %s", error)
                if error.code == "closed":
                    return
            finally:
                self.fresh = False
            await asyncio.sleep(wait)
            wait = min(wait * 2, 30.0)

    def take(self, told: Any) -> None:
        """One event of the watch."""
        if not isinstance(told, dict):
            return
        event = told.get("event")
        if event == "snapshot":
            for own in map(AgentInfo.of, told.get("agents") or ()):
                self._snapshot[own.agent_id] = own
            if not told.get("more"):
                self._agents, self._snapshot = self._snapshot, {}
                self.fresh = True
                self._first.set(None)
        elif event == "agent.disconnected":
            self._agents.pop(str(told.get("agent_id")), None)
        elif isinstance(told.get("agent"), dict):
            own = AgentInfo.of(told["agent"])
            self._agents[own.agent_id] = own
