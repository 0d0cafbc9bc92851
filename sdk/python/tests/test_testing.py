"""The hub in memory. Requirement TEST-1, and through it what needs no real hub."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from world import PATIENCE, run, until

import agent_reach
from agent_reach import CallError, Context, HandlerError
from agent_reach.codes import Kind
from agent_reach.testing import FakeHub


def test_agents_of_a_hub_in_memory_call_each_other() -> None:
    hub = FakeHub()
    provider = hub.agent("shouter")
    provider.capability("text.upper")(lambda text: text.upper())

    @provider.capability("text.letters")
    def _(text: str) -> Iterator[str]:
        yield from text

    with provider.sync, hub.agent("caller").sync as caller:
        assert caller.call("text.upper", "hello") == "HELLO"
        assert list(caller.stream("text.letters", "a" * 100, window=3)) == ["a"] * 100
        assert caller.notify("text.upper", "x").target == "shouter"
        assert {own.agent_id for own in caller.agents()} == {"caller", "shouter"}
        assert [own.name for own in caller.capabilities()] == ["text.letters", "text.upper"]
        with pytest.raises(CallError, match="no_capability"):
            caller.call("text.lower", "x")
    assert hub.connected == []


def test_the_connections_thread_ends_with_the_last_agent() -> None:
    """END-3."""
    hub = FakeHub()
    with hub.agent("one").sync, hub.agent("two").sync:
        (thread,) = [own for own in threading.enumerate() if own.name == "agent-reach"]
        assert thread.daemon
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_agent_ends_with_the_event_loop_of_its_program() -> None:
    """PROV-1, END-3."""
    hub = FakeHub()
    provider = hub.agent("provider")

    @provider.capability("work")
    async def _() -> None: ...

    asyncio.run(provider.connect())
    with hub.agent("caller").sync as caller:
        with pytest.raises(CallError) as caught:
            caller.call("work", retries=0)
        assert caught.value.retryable
        assert provider.sync.closed().code == "closed"


def test_a_result_that_is_on_its_way_to_a_handle_that_is_dropped_is_not_lost() -> None:
    """TASK-3, TASK-4."""
    hub = FakeHub()
    provider = hub.agent("provider")
    entered, go_on = threading.Event(), threading.Event()

    @provider.capability("build")
    def _() -> str:
        entered.set()
        go_on.wait(PATIENCE)
        return "built"

    with provider.sync, hub.agent("caller").sync as caller:
        task = caller.submit("build")
        assert entered.wait(PATIENCE)
        inbox = task._handle._inbox
        assert inbox is not None
        # As if the other thread told the end between these two words of letting go.
        inbox.dropped = inbox._ended = True
        go_on.set()
        ended = caller.next_result()
        assert ended is not None
        assert (ended.task_id, ended.reply and ended.reply.body) == (task.id, "built")


def test_the_retries_of_a_call_are_the_hubs_alone() -> None:
    """CALL-4, K32."""
    hub = FakeHub()
    provider = hub.agent("provider")
    runs = 0

    @provider.capability("work")
    def _() -> None:
        nonlocal runs
        runs += 1
        raise HandlerError("busy", retryable=True)

    with provider.sync, hub.agent("caller").sync as caller:
        with pytest.raises(CallError) as caught:
            caller.call("work", retries=2)
        assert runs == 3
        assert len(caught.value.attempts) == 3
    assert sum(kind is Kind.CALL for _, kind, _, _ in hub.received) == 1


def test_a_lost_connection_costs_neither_side_its_calls() -> None:
    """RESUME-1, ONCE-1, K30."""

    async def test() -> None:
        hub = FakeHub()
        provider, caller = hub.agent("provider"), hub.agent("caller")
        go_on = asyncio.Event()
        runs = 0

        @provider.capability("work")
        async def _() -> int:
            nonlocal runs
            runs += 1
            await go_on.wait()
            return runs

        @provider.capability("count")
        async def _() -> AsyncIterator[int]:
            for n in range(50):
                yield n

        async with provider, caller:
            pending = caller.start("work")
            await pending.accepted()
            for name in ("caller", "provider") * 3:
                hub.drop(name)

                async def back(name: str = name) -> bool:
                    return name in hub.connected

                await until(f"the return of {name}", back)
            go_on.set()
            assert await pending.result() == 1
            ids = {
                header["request_id"] for who, kind, header, _ in hub.received if who == "caller" and kind == Kind.CALL
            }
            assert len(ids) == 1
            pieces = []
            async for piece in caller.stream("count", window=4):
                pieces.append(piece)
                if piece in (10, 20):
                    hub.drop("provider")
            assert pieces == list(range(50))

    run(test())


def test_goodbye_words_decide_who_comes_back() -> None:
    """BACK-3, BACK-4."""

    async def test() -> None:
        hub = FakeHub()
        async with hub.agent("stays") as agent:
            hub.goodbye("stays", "draining", after_ms=1)

            async def back() -> bool:
                return "stays" in hub.connected

            await until("its return", back)
            hub.goodbye("stays", "credentials_revoked", "by the operator")
            reason = await agent.closed()
            assert (reason.code, str(reason)) == ("credentials_revoked", "credentials_revoked: by the operator")

    run(test())


def test_a_task_reaches_whoever_comes_later() -> None:
    """TASK-1, TASK-2, PROV-11."""

    async def test() -> None:
        hub = FakeHub()
        provider = hub.agent("provider")

        @provider.capability("build")
        async def _(ctx: Context, what: str) -> str:
            ctx.progress(1)
            return f"built {what}"

        async with hub.agent("caller") as caller:
            task = await caller.submit("build", "it")
            assert (await task.info()).state == "QUEUED"
            async with provider:
                assert await task.result() == "built it"
            assert (await caller.task(task.id).reply()).body == "built it"

    run(test())


def test_a_fan_out_in_memory_counts_its_parts() -> None:
    """CALL-11."""

    async def test() -> None:
        hub = FakeHub()
        agents = [hub.agent(f"a{n}") for n in range(3)]
        for agent in agents:
            agent.capability("vote")(lambda ctx: ctx.agent.agent.agent_id)
        async with agents[0], agents[1], agents[2], hub.agent("caller") as caller:
            answer = await caller.call_all("vote")
            assert {part.body for part in answer.parts} == {"a0", "a1", "a2"}
            assert answer.summary == agent_reach.Summary(3, 3, 0)

    run(test())


def test_the_inbox_of_one_caller_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """BOUND-1."""

    async def test() -> None:
        hub = FakeHub()
        provider = hub.agent("provider")

        @provider.capability("flood")
        async def _() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 1000

        monkeypatch.setattr("agent_reach.inbox.BYTES_MAX", 20_000)
        async with provider, hub.agent("caller") as caller:
            stream = caller.stream("flood", window=100)

            async def full() -> bool:
                await caller.agents()
                return any(kind is Kind.CANCEL for _, kind, _, _ in hub.received)

            await until("its end", full)
            with pytest.raises(CallError, match="overloaded"):
                async for _ in stream:
                    pass

    run(test())


def test_letting_go_before_a_session_sends_nothing() -> None:
    """CALL-8, CALL-7."""

    async def test() -> None:
        hub = FakeHub()
        async with hub.agent("caller") as caller:
            hub.reachable(False)
            hub.drop("caller")

            async def away() -> bool:
                return not caller.is_connected

            await until("the loss", away)
            calls: list[Any] = [asyncio.create_task(caller.call("x", n)) for n in range(3)]
            await asyncio.sleep(0)
            calls.pop().cancel()
            with pytest.raises(agent_reach.errors.BudgetExhausted) as spent:
                await caller.call("y", budget=0.01)
            assert spent.value.accepted is agent_reach.Accepted.NO
            hub.reachable(True)
            for call in calls:
                with pytest.raises(CallError, match="no_capability"):
                    await call
            bodies = [body for _, kind, _, body in hub.received if kind is Kind.CALL]
            assert bodies == [b"\x00", b"\x01"] or len(bodies) > 2

    run(test())
