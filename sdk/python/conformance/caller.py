"""The asking half of a pair: what ``docs/sdk-behaviour.md`` asks of it under "Pairs". Exits with 1 where it is not so.

    AGENT_REACH_HUB=... python conformance/caller.py NAME PROVIDER

It says ``restart`` when the hub is to be killed and started again, and goes on by itself when it is back.
"""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from msgpack import ExtType, Timestamp

import agent_reach
from agent_reach import CallError, Payload

VALUES: list[Any] = [
    *(None, True, False, 0, -1, 127, 128, -(2**31), 2**53 + 1, 86699530287996692, 2**63 - 1, 2**64 - 1, -(2**63)),
    *(0.5, -0.0, 1e300, math.nan, math.inf, -math.inf),
    *("", "\0é😀\u2028", "x" * 70_000, b"", b"\x00\xff\x80", b"x" * 70_000),
    *([], [0, 255, b"\x80", "\x80"], {}, {"": [{}], "é": {"n": b"\x00"}}, {1: "by a number", "1": "by a text"}),
    *(Timestamp(1, 999), ExtType(5, b"\x01")),
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
            # What is written, which tells -0.0 from 0.0, True from 1 and bytes from text, however deep.
            assert repr(back) == repr(value), (value, back)
        raw = Payload(b"\xc1\x00", "image/png")
        assert await self.agent.call("pair.echo", raw, result=Payload, **self.to) == Payload(b"\xc1\x00", "image/png")

    async def streams(self) -> None:
        """PAIR-2."""
        stream = self.agent.stream("pair.count", 500, window=7, **self.to)
        assert [piece async for piece in stream] == list(range(500))
        assert (await stream.end()).body == 500
        key = {"key": f"endless-{self.agent.agent_id}"}
        async with self.agent.stream("pair.endless", key, window=4, **self.to) as endless:
            assert [await endless.__anext__() for _ in range(50)] == list(range(50))
        await self.cancelled(key)

    async def failures(self) -> None:
        """PAIR-3."""
        for code, retryable in (("no-tea", False), ("later", True)):
            said = {"code": code, "message": "é", "retryable": retryable}
            error = await failure(self.agent.call("pair.fail", said, retries=0, **self.to))
            told = error.cause or error
            assert (told.code, told.retryable) == ("handler_error", retryable)
            assert told.details == {"code": code, "message": "é"}
            assert error.accepted == "yes"
        nobody = await failure(self.agent.call("pair.none", agents=self.to["agents"]))
        assert (nobody.code, nobody.accepted) == ("no_capability", "no")
        absent = self.agent.call("pair.echo", agents=["nobody-is-called-so"], wait_for_agent=20, budget=0.3)
        error = await failure(absent)
        assert (error.code, error.accepted) == ("budget_exhausted", "unknown")

    async def cancels(self) -> None:
        """PAIR-4."""
        key = {"key": self.agent.agent_id}
        pending = self.agent.start("pair.wait", key, **self.to)
        await pending.accepted()
        pending.drop()
        await self.cancelled(key)

    async def cancelled(self, key: dict[str, str]) -> None:
        """Waits until the handler of this key was cancelled."""
        while not await self.agent.call("pair.cancelled", key, **self.to):
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

    async def repeats(self) -> None:
        """PAIR-7."""
        key = f"once-{self.agent.agent_id}"
        body, to = {"key": key, "ms": 200}, {**self.to, "request_id": key}
        first = self.agent.start("pair.slow", body, **to)
        await first.accepted()
        second = self.agent.start("pair.slow", body, **to)
        assert (await first.result(), await second.result()) == (1, 1)
        third = await self.agent.reply("pair.slow", body, **to)
        assert (third.body, third.duplicate) == (1, True)

    async def others(self) -> None:
        """PAIR-8."""
        body = {"key": f"notified-{self.agent.agent_id}", "ms": 0}
        await self.agent.notify("pair.slow", body, **self.to)
        assert await self.agent.call("pair.slow", body, **self.to) == 2
        said = await self.agent.call_all("pair.echo", "all", **self.to)
        assert [(part.target, part.body, part.error) for part in said.parts] == [(*self.to["agents"], "all", None)]
        assert (said.summary.targets, said.summary.completed) == (1, 1)
        failing = {"code": "no-tea", "message": "", "retryable": False}
        failed = await self.agent.call_all("pair.fail", failing, **self.to)
        assert [part.error and part.error.code for part in failed.parts] == ["handler_error"]
        assert (failed.summary.completed, failed.summary.failed) == (0, 1)

    async def large(self) -> None:
        """PAIR-9."""
        asked = [self.agent.call("pair.large", 900_000, **self.to) for _ in range(30)]
        assert [len(body) for body in await asyncio.gather(*asked)] == [900_000] * 30


async def failure(asked: Awaitable[Any]) -> CallError:
    """What a call fails with."""
    try:
        await asked
    except CallError as error:
        return error
    raise AssertionError("it did not fail")


async def main(name: str, provider: str) -> None:
    """Asks for one thing after the other."""
    async with agent_reach.connect(name, reconnect_waits=(0.05, 0.2)) as agent:
        pair = Pair(agent, provider)
        steps: list[Callable[[], Awaitable[None]]] = [
            *(pair.values, pair.streams, pair.failures, pair.cancels),
            *(pair.tasks, pair.restarts, pair.repeats, pair.others, pair.large),
        ]
        for step in steps:
            await step()
            print(str(step.__doc__).rstrip("."), "ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
