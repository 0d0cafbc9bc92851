"""The asking half of a pair: what ``docs/sdk-behaviour.md`` asks of it under "Pairs". Exits with 1 where it is not so.

    AGENT_REACH_HUB=... python conformance/caller.py NAME PROVIDER

It says ``restart`` when the hub is to be killed and started again, and goes on by itself when it is back.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from msgpack import ExtType, Timestamp

import agent_reach
from agent_reach import CallError, Payload

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 127, 128, -(2**31), 2**53 + 1, 86699530287996692, 2**64 - 1, -(2**63)),
    *(0.5, -0.0, 1e300, "", "\0é😀\u2028", "x" * 70_000, b"", b"\x00\xff\x80", b"x" * 70_000),
    *([], [0, 255, 128], {}, {"": [{}], "é": {"n": b"\x00"}}, Timestamp(1, 999), ExtType(5, b"\x01")),
]


class Pair:
    """One caller and whom it asks."""

    def __init__(self, agent: agent_reach.Agent, provider: str) -> None:
        self.agent = agent
        self.to: Any = {"agents": [provider], "wait_for_agent": 20, "budget": 30}

    async def values(self) -> None:
        """PAIR-1."""
        for value in VALUES:
            back = await self.agent.call("pair.echo", value, **self.to)
            assert (back, type(back)) == (value, type(value)), (value, back)
        raw = Payload(b"\xc1\x00", "image/png")
        assert await self.agent.call("pair.echo", raw, result=Payload, **self.to) == Payload(b"\xc1\x00", "image/png")

    async def streams(self) -> None:
        """PAIR-2."""
        stream = self.agent.stream("pair.count", 500, window=7, **self.to)
        assert [piece async for piece in stream] == list(range(500))
        assert (await stream.end()).body == 500
        async with self.agent.stream("pair.endless", window=4, **self.to) as endless:
            assert [await endless.__anext__() for _ in range(50)] == list(range(50))

    async def failures(self) -> None:
        """PAIR-3."""
        for code, retryable in (("no-tea", False), ("later", True)):
            try:
                said = {"code": code, "message": "é", "retryable": retryable}
                await self.agent.call("pair.fail", said, retries=0, **self.to)
            except CallError as error:
                told = error.cause or error
                assert (told.code, told.retryable, told.details["code"]) == ("handler_error", retryable, code)
                assert error.accepted == "yes"
            else:
                raise AssertionError("it did not fail")
        try:
            await self.agent.call("pair.none", **self.to | {"wait_for_agent": 0})
        except CallError as error:
            assert (error.code, error.accepted) == ("no_capability", "no")

    async def cancels(self) -> None:
        """PAIR-4."""
        pending = self.agent.start("pair.wait", {"key": self.agent.agent_id}, **self.to)
        await pending.accepted()
        pending.drop()
        while not await self.agent.call("pair.cancelled", {"key": self.agent.agent_id}, **self.to):
            pass

    async def tasks(self) -> None:
        """PAIR-5."""
        own = {key: value for key, value in self.to.items() if key != "wait_for_agent"}
        task = await self.agent.submit("pair.slow", {"key": f"task-{self.agent.agent_id}", "ms": 10}, **own)
        assert await task.result() == 1
        assert (await task.info()).state == "SUCCEEDED"

    async def restarts(self) -> None:
        """PAIR-6."""
        body = {"key": f"call-{self.agent.agent_id}", "ms": 1500}
        pending = self.agent.start("pair.slow", body, **self.to)
        await pending.accepted()
        print("restart", flush=True)
        assert await pending.result() == 1
        assert await self.agent.call("pair.echo", "after", **self.to) == "after"


async def main(name: str, provider: str) -> None:
    """Asks for one thing after the other."""
    async with agent_reach.connect(name, reconnect_waits=(0.05, 0.2)) as agent:
        pair = Pair(agent, provider)
        steps: list[Callable[[], Awaitable[None]]] = [
            *(pair.values, pair.streams, pair.failures, pair.cancels, pair.tasks, pair.restarts)
        ]
        for step in steps:
            await step()
            print(step.__doc__, "ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
