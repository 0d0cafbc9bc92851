"""The providing half of a pair: what ``docs/sdk-behaviour.md`` asks of it under "Pairs".

AGENT_REACH_HUB=... python conformance/provider.py NAME
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import agent_reach


def offer(agent: agent_reach.Agent) -> None:
    """Offers everything a caller may ask for."""
    cancelled: set[str] = set()
    runs: dict[str, int] = {}

    @agent.capability("pair.echo", idempotent=True)
    async def _(body: Any) -> Any:
        return body

    @agent.capability("pair.count")
    async def _(ctx: agent_reach.Context, n: int) -> int:
        for piece in range(n):
            await ctx.emit(piece)
        return n

    @agent.capability("pair.fail")
    async def _(code: str, message: str, retryable: bool) -> None:
        raise agent_reach.HandlerError(code, message, retryable=retryable)

    @agent.capability("pair.wait", by_name=True)
    async def _(ctx: agent_reach.Context, key: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.add(key)

    @agent.capability("pair.cancelled", by_name=True)
    async def _(key: str) -> bool:
        return key in cancelled

    @agent.capability("pair.slow")
    async def _(ctx: agent_reach.Context, key: str, ms: int) -> int:
        runs[key] = runs.get(key, 0) + 1
        ctx.progress(runs[key])
        await asyncio.sleep(ms / 1000)
        return runs[key]

    @agent.capability("pair.large")
    async def _(size: int) -> bytes:
        return b"x" * size

    @agent.capability("pair.endless", by_name=True)
    async def _(key: str) -> AsyncIterator[int]:
        n = 0
        try:
            while True:
                yield n
                n += 1
        finally:
            cancelled.add(key)


async def main(name: str) -> None:
    """Offers it under this name until it is told to stop."""
    agent = agent_reach.Agent(name, reconnect_waits=(0.05, 0.2))
    offer(agent)
    async with agent:
        print("ready", flush=True)
        await agent.serve()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
