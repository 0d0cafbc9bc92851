"""Echo calls through a real hub: caller and provider in this one process.

AGENT_REACH_BIN=../../target/release/agent-reach python bench/echo.py [CALLS] [IN_FLIGHT]
"""

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from world import Hub


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def run(hub: Hub, calls: int, in_flight: int, sync: bool) -> None:
    provider, caller = hub.agent("echo", max_concurrency=in_flight * 2), hub.agent("caller")
    if sync:
        provider.capability("echo")(lambda body: body)
    else:

        @provider.capability("echo")
        async def echo(body: object) -> object:
            return body

    async with provider, caller:

        async def worker(n: int) -> None:
            for _ in range(n):
                await caller.call("echo", "hello")

        await asyncio.gather(*(worker(20) for _ in range(in_flight)))
        began, own, hubs = time.perf_counter(), cpu(), cpu_of(hub.pid)
        await asyncio.gather(*(worker(calls // in_flight) for _ in range(in_flight)))
        seconds = time.perf_counter() - began
        done = calls // in_flight * in_flight
        kind = "sync" if sync else "async"
        print(
            f"{kind} handler, {in_flight} in flight: {done / seconds:,.0f} calls/s;"
            f" CPU for each call: {(cpu() - own) / done * 1e6:.0f} us here (caller and provider),"
            f" {(cpu_of(hub.pid) - hubs) / done * 1e6:.0f} us in the hub"
        )


if __name__ == "__main__":
    calls, in_flight = (int(own) for own in [*sys.argv[1:], "20000", "64"][:2])
    with Hub() as hub:
        for sync in (False, True):
            asyncio.run(run(hub, calls, in_flight, sync))
