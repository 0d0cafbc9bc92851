"""Connections that are lost, hubs that are killed, handlers that block: through a real hub."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from world import Hub, run, until

import agent_reach
from agent_reach import Accepted, CallError, CloseReason, ConnectError, Context, SyncContext

#: Silence counts after three seconds: a busy machine keeps a whole process waiting for one.
QUICK = {
    "LIVENESS__KEEPALIVE_MS": "200",
    "LIVENESS__SUSPECT_MS": "2000",
    "LIVENESS__GONE_MS": "3000",
    "LIVENESS__RESUME_MS": "300",
}


async def shown(caller: agent_reach.Agent, agent_id: str) -> agent_reach.AgentInfo | None:
    return next((own for own in await caller.agents() if own.agent_id == agent_id), None)


def test_two_hundred_blocking_handlers_cost_no_heartbeat_and_the_load_says_so() -> None:
    """LIVE-1, LIVE-2, LIVE-4."""

    async def test(hub: Hub) -> None:
        release = threading.Event()
        provider = hub.agent("provider", max_concurrency=200, threads=2)
        provider.capability("blocks")(release.wait)
        async with provider, hub.agent("caller") as caller:
            calls = [asyncio.create_task(caller.call("blocks", retries=0)) for _ in range(200)]

            async def lived() -> bool:
                own = await shown(caller, "provider")
                assert own is not None
                assert own.status == "ready"
                stuck = own.load.get("in_flight") == 2 and own.load.get("queued") == 198
                return stuck and own.raw["connected_ms"] > 6000

            await until("twice the silence that ends a session", lived)
            release.set()
            assert await asyncio.gather(*calls) == [True] * 200

    with Hub(config=QUICK) as hub:
        run(test(hub))


def test_a_program_whose_event_loop_is_blocked_misses_no_heartbeat() -> None:
    """LIVE-2, LIVE-4."""

    def program(hub: Hub, release: threading.Event, ready: threading.Event) -> None:
        async def main() -> None:
            provider = hub.agent("provider")

            @provider.capability("blocks")
            async def _() -> str:
                release.wait(30)
                return "late"

            async with provider:
                ready.set()
                await provider.closed()

        asyncio.run(main())

    with Hub(config=QUICK) as hub, hub.agent("caller").sync as caller:
        release, ready = threading.Event(), threading.Event()
        thread = threading.Thread(target=program, args=(hub, release, ready))
        thread.start()
        assert ready.wait(30)
        first, second = caller.start("blocks"), caller.start("blocks")
        first.accepted()
        while True:
            (own,) = [own for own in caller.agents() if own.agent_id == "provider"]
            assert own.status == "ready"
            if own.raw["connected_ms"] > 6000:
                break
        assert (own.load["in_flight"], own.load["queued"]) == (1, 1)
        release.set()
        assert (first.result(), second.result()) == ("late", "late")
        # A newer one takes its place: the older is told so for good, and its program ends.
        with hub.agent("provider").sync:
            thread.join(30)
            assert not thread.is_alive()


def test_calls_that_are_open_when_the_hub_is_killed_end_with_their_results(own_hub: Hub) -> None:
    """RESUME-1, RESUME-2, RESUME-5, ONCE-1, ONCE-3, CONN-3, K13, K14."""

    async def test() -> None:
        runs: list[int] = []
        go_on = asyncio.Event()
        provider = own_hub.agent("provider", max_concurrency=100)
        caller = own_hub.agent("caller")

        @provider.capability("work.slow")
        async def _(n: int) -> int:
            runs.append(n)
            await go_on.wait()
            return n * 2

        async with provider, caller:
            provider.capability("work.added")(lambda: "added")
            calls = [asyncio.create_task(caller.call("work.slow", n, budget=25)) for n in range(50)]

            async def all_run() -> bool:
                await caller.call("work.added")
                return len(runs) == 50

            await until("every handler", all_run)
            own_hub.kill()
            own_hub.start()
            # What was added while connected is there again, before anybody asks for it.
            assert await caller.call("work.added", wait_for_agent=20) == "added"
            go_on.set()
            assert await asyncio.gather(*calls) == [n * 2 for n in range(50)]
            assert sorted(runs) == list(range(50))

    run(test())


def test_a_stream_goes_on_over_a_hub_that_was_killed_or_says_that_it_does_not(own_hub: Hub) -> None:
    """STREAM-5, STREAM-2, ONCE-1."""

    async def test() -> None:
        provider, caller = own_hub.agent("provider"), own_hub.agent("caller")
        go_on = asyncio.Event()

        @provider.capability("count")
        async def _(ctx: Context) -> AsyncIterator[int]:
            for n in range(40):
                if n == 10:
                    await go_on.wait()
                yield n

        async with provider, caller:
            stream = caller.stream("count", window=4, budget=25)
            pieces = [await stream.__anext__() for _ in range(10)]
            own_hub.kill()
            own_hub.start()
            go_on.set()
            pieces += [piece async for piece in stream]
            assert pieces == list(range(40))

    run(test())


def test_a_task_outlives_the_hub_and_its_result_comes_home(own_hub: Hub) -> None:
    """TASK-1, TASK-2, RESUME-4."""

    async def test() -> None:
        runs: list[int] = []
        go_on = asyncio.Event()
        provider, caller = own_hub.agent("provider"), own_hub.agent("caller")

        @provider.capability("build", idempotent=True)
        async def _(ctx: Context, n: int) -> str:
            runs.append(n)
            assert ctx.mode == "task"
            ctx.progress(n)
            await go_on.wait()
            return f"built {n}"

        async with provider, caller:
            task = await caller.submit("build", 7)

            async def works() -> bool:
                return (await task.info()).state == "PROCESSING"

            await until("its handler", works)
            own_hub.kill()
            own_hub.start()
            go_on.set()
            assert await task.result() == "built 7"
            assert runs == [7]
            assert await task.result() == "built 7"
            assert await caller.task(task.id).result() == "built 7"

    run(test())


def test_a_hub_that_drains_is_come_back_to_and_no_call_is_lost(own_hub: Hub) -> None:
    """BACK-3, RESUME-3."""

    async def test() -> None:
        provider, caller = own_hub.agent("provider"), own_hub.agent("caller")
        go_on = asyncio.Event()

        @provider.capability("work")
        async def _(n: int) -> int:
            if n == 0:
                await go_on.wait()
            return n

        async with provider, caller:
            slow = caller.start("work", 0, budget=25)
            await slow.accepted()
            stopped = asyncio.get_running_loop().run_in_executor(None, own_hub.kill, signal.SIGTERM)

            async def leaving() -> bool:
                return not caller.is_connected

            await until("the goodbye", leaving)
            later = [asyncio.create_task(caller.call("work", n, wait_for_agent=20)) for n in range(1, 30)]
            go_on.set()
            assert await slow.result() == 0
            await stopped
            own_hub.start()
            assert await asyncio.gather(*later) == list(range(1, 30))

    run(test())


def test_who_is_replaced_or_refused_never_comes_back(own_hub: Hub) -> None:
    """BACK-4, K09, CONN-4."""

    async def test() -> None:
        older, newer = own_hub.agent("twin"), own_hub.agent("twin")
        await older.connect()
        waiting = asyncio.create_task(older.call("nobody.has-this", wait_for_agent=30))
        await newer.connect()
        reason = await older.closed()
        assert reason.code == "replaced"
        with pytest.raises(agent_reach.errors.AgentClosed):
            await waiting
        with pytest.raises(agent_reach.errors.AgentClosed) as closed:
            await older.call("anything")
        assert closed.value.accepted is Accepted.NO
        assert newer.is_connected
        await newer.close()
        with pytest.raises(CloseReason, match="unauthorized"):
            await agent_reach.Agent("somebody-else", **own_hub.issue("twin")).connect()
        nowhere = {**own_hub.issue("twin"), "hub": "wss://127.0.0.1:1"}
        with pytest.raises(ConnectError, match="Connect call failed"):
            await agent_reach.Agent("twin", connect_timeout=0.05, reconnect_waits=(0.01, 0.01), **nowhere).connect()
        stranger = {**own_hub.issue("twin"), "cert": None, "key": None}
        with pytest.raises(ConnectError, match="timeout"):
            await agent_reach.Agent("twin", connect_timeout=0.3, reconnect_waits=(0.01, 0.01), **stranger).connect()

    run(test())


def test_a_renewed_certificate_is_used_at_the_next_connection(own_hub: Hub) -> None:
    """CONN-2."""

    async def test() -> None:
        options = own_hub.issue("renewed")
        agent = own_hub.agent("renewed")
        async with agent, own_hub.agent("caller") as caller:
            agent.capability("renewed.say")(lambda: "here")
            assert await caller.call("renewed.say", wait_for_agent=20) == "here"
            other = own_hub.issue("other")
            for part in ("cert", "key"):
                os.replace(other[part], options[part])
            own_hub.kill()
            own_hub.start()
            # The file is another agent's now: the hub refuses what it reads anew.
            assert (await agent.closed()).code == "unauthorized"

    run(test())


def test_closing_waits_for_handlers_and_takes_nothing_new(shared_hub: Hub) -> None:
    """END-1."""

    async def test() -> None:
        provider, caller = shared_hub.agent("closing"), shared_hub.agent("closing-caller")
        go_on = asyncio.Event()

        @provider.capability("closing.work")
        async def _() -> str:
            await go_on.wait()
            return "ended"

        async with caller:
            await provider.connect()
            slow = caller.start("closing.work")
            await slow.accepted()
            closing = asyncio.create_task(provider.close())

            async def draining() -> bool:
                own = await shown(caller, "closing")
                return own is not None and own.status == "draining"

            await until("its draining", draining)
            with pytest.raises(CallError) as refused:
                await caller.call("closing.work", retries=0)
            assert refused.value.code == "no_instance"
            go_on.set()
            assert await slow.result() == "ended"
            assert (await closing).code == "closed"
            assert await shown(caller, "closing") is None

    run(test())


def test_closing_drops_what_does_not_end_in_time(shared_hub: Hub) -> None:
    """END-1."""

    async def test() -> None:
        provider, caller = shared_hub.agent("dropping"), shared_hub.agent("dropping-caller")
        stopped = asyncio.Event()

        @provider.capability("dropping.work")
        async def _() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with caller:
            await provider.connect()
            slow = caller.start("dropping.work", retries=0)
            await slow.accepted()
            await provider.close(within=0.01)
            with pytest.raises(agent_reach.errors.Cancelled):
                await slow.result()
            await stopped.wait()

    run(test())


def test_a_retry_joins_the_handler_that_runs(shared_hub: Hub) -> None:
    """ONCE-1, ONCE-2, K29, K31."""

    async def test() -> None:
        provider, caller, twin = (shared_hub.agent(name) for name in ("once", "once-caller", "once-twin"))
        runs = 0
        go_on = asyncio.Event()

        @provider.capability("once.work")
        async def _(body: Any) -> int:
            nonlocal runs
            runs += 1
            await go_on.wait()
            return runs

        async with provider, caller, twin:
            first = caller.start("once.work", 1, request_id="intent")
            await first.accepted()
            second = caller.start("once.work", 1, request_id="intent")
            await second.accepted()
            other = twin.start("once.work", 1, request_id="intent")
            await other.accepted()
            go_on.set()
            assert [await first.result(), await second.result()] == [2, 2]
            assert await other.result() == 2
            assert await caller.call("once.work", 1, request_id="intent") == 2

    run(test())


def test_the_health_hook_takes_an_agent_out_of_routing() -> None:
    """LIVE-5."""

    async def test(hub: Hub) -> None:
        health = 100
        provider = hub.agent("provider", health=lambda: health)
        provider.capability("work")(lambda: "done")
        async with provider, hub.agent("caller") as caller:
            assert await caller.call("work") == "done"
            health = 10

            async def ill() -> bool:
                own = await shown(caller, "provider")
                return own is not None and own.load.get("health") == 10

            await until("its health", ill)
            with pytest.raises(agent_reach.errors.NoInstance):
                await caller.call("work", retries=0)

    with Hub(config=QUICK) as hub:
        run(test(hub))


def test_a_thread_stuck_in_a_handler_does_not_hold_up_the_agents_end(shared_hub: Hub) -> None:
    """END-3."""
    release = threading.Event()
    provider = shared_hub.agent("stuck")
    entered = threading.Event()

    @provider.capability("stuck.work")
    def _(ctx: SyncContext) -> None:
        entered.set()
        release.wait(30)

    with shared_hub.agent("stuck-caller").sync as caller:
        provider.sync.connect()
        pending = caller.start("stuck.work", retries=0)
        assert entered.wait(30)
        assert provider.sync.close(within=0).code == "closed"
        with pytest.raises(CallError):
            pending.result()
    release.set()
