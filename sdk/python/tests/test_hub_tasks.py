"""Tasks, discovery and the dedupe file, through a real hub."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from world import Hub, run, until

import agent_reach
from agent_reach import CallError, ConnectError, Context


def test_a_task_is_watched_listed_cancelled_and_found_again(shared_hub: Hub) -> None:
    """TASK-1, TASK-5, TASK-6, TASK-7, TASK-8, PROV-11."""

    async def test() -> None:
        provider, caller = shared_hub.agent("tasks"), shared_hub.agent("tasks-caller")
        go_on = asyncio.Event()

        @provider.capability("task.build")
        async def _(ctx: Context, what: str) -> str:
            assert not ctx.wants_stream
            ctx.progress({"done": 1})
            await go_on.wait()
            return f"built {what}"

        async with provider, caller:
            task = await caller.submit("task.build", "may", request_id="task-may")
            seen: list[Any] = []
            async with await task.watch() as watch:
                async for event in watch:
                    seen.append(event.info.state if event.info else event.progress)
                    if not go_on.is_set() and "PROCESSING" in seen:
                        go_on.set()
            assert seen[-1] == "SUCCEEDED"
            assert await task.result() == "built may"
            again = await caller.submit("task.build", "may", request_id="task-may")
            reply = await again.reply()
            assert (again.id, reply.body, reply.duplicate) == (task.id, "built may", True)
            go_on.clear()
            doomed = await caller.submit("task.build", "june")
            assert await doomed.cancel()
            assert not await doomed.cancel()
            with pytest.raises(agent_reach.errors.Cancelled):
                await doomed.result()
            assert [own.task_id for own in await caller.tasks(state="SUCCEEDED")] == [task.id]
            assert len(await caller.tasks(limit=1)) == 1
            with pytest.raises(CallError) as unknown:
                await caller.task("no-such-task").result()
            assert unknown.value.code == "invalid_request"

    run(test())


def test_a_result_that_no_handle_waits_for_comes_to_the_inbox_once(shared_hub: Hub) -> None:
    """TASK-2, TASK-3, TASK-4."""

    async def test() -> None:
        provider, caller = shared_hub.agent("inbox"), shared_hub.agent("inbox-caller")
        provider.capability("inbox.work")(lambda n: n + 1)
        async with caller:
            ids = {(await caller.submit("inbox.work", n)).id for n in range(3)}
            abandoned = asyncio.create_task(caller.submit("inbox.work", 3))
            ids.add((await abandoned).id)
            del abandoned
            async with provider:
                results = [await caller.next_result() for _ in range(4)]
            assert {own.task_id for own in results if own is not None} == ids
            assert sorted(own.reply.body for own in results if own is not None and own.reply) == [1, 2, 3, 4]

    run(test())


def test_a_directory_follows_who_comes_and_goes(own_hub: Hub) -> None:
    """DISC-1, DISC-2."""

    async def test() -> None:
        caller, provider = own_hub.agent("looking"), own_hub.agent("coming")
        provider.capability("come.here")(lambda: None)
        async with caller, await caller.directory() as directory:
            assert directory.fresh
            assert set(directory.agents) == {"looking"}

            async def there() -> bool:
                await caller.agents()
                return [own.agent_id for own in directory.offering("come.here")] == ["coming"]

            await provider.connect()
            await until("who came", there)
            assert directory.capabilities["come.here"] == ["coming"]
            own_hub.kill()
            own_hub.start()
            await until("who came back", there)
            await provider.close()

            async def gone() -> bool:
                await caller.agents()
                return "coming" not in directory.agents

            await until("who left", gone)

    run(test())


def test_another_life_of_the_process_does_not_run_an_intent_again(shared_hub: Hub, tmp_path: Path) -> None:
    """ONCE-6."""

    async def test() -> None:
        file = tmp_path / "dedupe.db"
        runs = 0

        def life() -> agent_reach.Agent:
            agent = shared_hub.agent("lives", dedupe=file)

            @agent.capability("lives.work")
            async def _(ctx: Context) -> int:
                nonlocal runs
                runs += 1
                return runs

            return agent

        async with shared_hub.agent("lives-caller") as caller:
            async with life():
                assert await caller.call("lives.work", request_id="a-call") == 1
                task = await caller.submit("lives.work", request_id="a-task")
                assert await task.result() == 2
            async with life():
                with pytest.raises(ConnectError, match="dedupe file"):
                    await shared_hub.agent("lives", dedupe=file).connect()
            with pytest.raises(ConnectError, match="is of agent"):
                await shared_hub.agent("lives-other", dedupe=file).connect()
            assert runs == 2

    run(test())
