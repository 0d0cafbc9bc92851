"""The interface for programs without an event loop, through a real hub."""

import threading
from collections.abc import Iterator

import pytest
from world import Hub

import agent_reach
from agent_reach import CallError, Context


def test_everything_works_from_threads(shared_hub: Hub) -> None:
    """CALL-1, CALL-10, CALL-11, STREAM-1, TASK-1, TASK-7, DISC-1."""
    provider = shared_hub.agent("threads")

    @provider.capability("threads.echo")
    def _(body: object) -> object:
        return body

    @provider.capability("threads.count")
    def _(n: int) -> Iterator[int]:
        yield from range(n)

    @provider.capability("threads.async")
    async def _(ctx: Context, text: str) -> str:
        return str(await ctx.agent.call("threads.echo", text))

    with provider.sync, agent_reach.connect("threads-caller", **shared_hub.issue("threads-caller")) as caller:
        assert caller.is_connected
        assert caller.call("threads.echo", [1, "two"]) == [1, "two"]
        assert caller.call("threads.async", "through a handler", result=str) == "through a handler"
        assert caller.reply("threads.echo").target == "threads"
        assert caller.notify("threads.echo").target == "threads"
        assert caller.call_all("threads.echo", 1).summary.completed == 1
        with caller.stream_all("threads.count", 2, chunks=True) as pieces:
            assert [own.body for own in pieces if isinstance(own, agent_reach.Piece)] == [0, 1]
        with caller.stream("threads.count", 30) as stream:
            assert list(stream) == list(range(30))
            assert stream.end().target == "threads"
        task = caller.submit("threads.echo", "task")
        with task.watch() as watch:
            assert [own.info.state for own in watch if own.info][-1] == "SUCCEEDED"
        assert task.result() == "task"
        assert caller.task(task.id).reply().body == "task"
        assert [own.task_id for own in caller.tasks()] == [task.id]
        assert "threads" in {own.agent_id for own in caller.agents()}
        assert "threads.echo" in {own.name for own in caller.capabilities()}
        results: list[object] = []
        workers = [
            threading.Thread(target=lambda n=n: results.append(caller.call("threads.echo", n))) for n in range(40)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(30)
        assert sorted(results, key=str) == sorted(range(40), key=str)
        with pytest.raises(CallError, match="no_capability"):
            caller.call("nobody.has-this")
    assert caller.closed().code == "closed"
