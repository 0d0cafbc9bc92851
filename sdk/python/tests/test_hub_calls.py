"""Calls and streams through a real hub."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest
from msgpack import ExtType, Timestamp
from pydantic import BaseModel
from world import Hub, run, until

import agent_reach
from agent_reach import Accepted, CallError, Context, HandlerError, Payload, SyncContext
from agent_reach.errors import IdempotencyConflict, NoCapability, NoInstance, PayloadTooLarge, ProcessingTimeout

VALUES: list[Any] = [
    None,
    0,
    -(2**63),
    2**64 - 1,
    2**53 + 1,
    86699530287996692,
    1.5,
    math.inf,
    True,
    "\0é😀",
    "",
    b"\x00\xff\x80",
    b"",
    [0, 255, 128],
    {1: "one", b"k": [None, {"x": -1}], "text": b"bytes"},
    Timestamp(1, 2),
    ExtType(7, b"x"),
]


def test_every_value_comes_back_as_it_was_from_async_and_sync_handlers(shared_hub: Hub) -> None:
    """CODEC-4, PROV-1."""

    async def test() -> None:
        provider, caller = shared_hub.agent("values"), shared_hub.agent("values-caller")

        @provider.capability("values.async")
        async def _(body: Any) -> Any:
            return body

        @provider.capability("values.sync")
        def _(body: Any) -> Any:
            return body

        async with provider, caller:
            for name in ("values.async", "values.sync"):
                for value in VALUES:
                    back = await caller.call(name, value)
                    assert (back, type(back)) == (value, type(value))
            assert await caller.call("Values_Sync".replace("_", "."), "folded") == "folded"
            now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
            assert await caller.call("values.sync", now, result=datetime) == now
            assert await caller.call("values.sync", Payload(b"\xc1", "image/png")) == Payload(b"\xc1", "image/png")

    run(test())


@pytest.mark.parametrize("value", [2**64, object(), {"a": {1: complex(1)}}, "\ud800"])
def test_what_cannot_be_said_fails_here_and_alone(shared_hub: Hub, value: Any) -> None:
    """CODEC-4, CALL-5."""

    async def test() -> None:
        async with shared_hub.agent("unsayable") as agent:
            with pytest.raises(CallError) as caught:
                await agent.call("nobody.has-this", value)
            assert (caught.value.code, caught.value.accepted) == ("invalid_request", Accepted.NO)

    run(test())


def test_a_message_over_the_limit_is_not_sent_and_the_others_go_on(shared_hub: Hub) -> None:
    """CALL-5, PROV-8."""

    async def test() -> None:
        provider, caller = shared_hub.agent("large"), shared_hub.agent("large-caller")
        provider.capability("large.echo")(lambda body: body)
        provider.capability("large.make")(lambda body: b"x" * body)
        async with provider, caller:
            small = asyncio.gather(*(caller.call("large.echo", n) for n in range(20)))
            with pytest.raises(PayloadTooLarge) as caught:
                await caller.call("large.echo", b"x" * 2_000_000)
            assert caught.value.accepted is Accepted.NO
            with pytest.raises(CallError, match="hub takes"):
                await caller.call("large.make", 2_000_000)
            assert await small == list(range(20))
            assert len(await caller.call("large.make", 1_000_000)) == 1_000_000

    run(test())


def test_a_failure_says_what_the_handler_said_and_who_had_it(shared_hub: Hub) -> None:
    """ERR-1, ERR-2, PROV-6, CALL-4."""
    runs = []

    async def test() -> None:
        provider, caller = shared_hub.agent("failing"), shared_hub.agent("failing-caller")

        @provider.capability("fail.plainly")
        def _(ctx: SyncContext) -> None:
            raise KeyError("what")

        @provider.capability("fail.retryable")
        async def _(ctx: Context) -> None:
            runs.append(ctx.attempt)
            raise HandlerError("busy", "come later", retryable=True)

        @provider.capability("fail.passing")
        def _() -> None:
            raise HandlerError("unsupported", "not this")

        async with provider, caller:
            with pytest.raises(agent_reach.errors.HandlerFailed) as caught:
                await caller.call("fail.plainly")
            error = caught.value
            assert error.details == {"code": "error", "message": "KeyError: 'what'"}
            assert (error.retryable, error.accepted, error.target) == (False, Accepted.YES, "failing")
            assert error.request_id
            assert error.call_id
            with pytest.raises(agent_reach.errors.Degraded) as degraded:
                await caller.call("fail.retryable", retries=1)
            cause = degraded.value.cause
            assert cause is not None
            assert (cause.code, cause.details["code"], cause.retryable) == ("handler_error", "busy", True)
            assert [own.outcome for own in degraded.value.attempts] == ["handler_error"] * 2
            assert runs == [1, 2]
            with pytest.raises(agent_reach.errors.Unsupported, match="not this"):
                await caller.call("fail.passing")
            with pytest.raises(NoCapability) as none:
                await caller.call("nobody.has-this")
            assert (none.value.retryable, none.value.accepted) == (False, Accepted.NO)
            with pytest.raises(NoInstance) as away:
                await caller.call("fail.plainly", agents=["failing-caller"])
            assert (away.value.retryable, away.value.accepted) == (True, Accepted.NO)

    run(test())


@dataclass
class Order:
    item: str
    amount: int = 1


class Bill(BaseModel):
    total: float
    orders: list[str]


def test_types_are_read_written_and_registered_as_schemas(shared_hub: Hub) -> None:
    """PROV-2, PROV-7, CODEC-5."""

    async def test() -> None:
        provider, caller = shared_hub.agent("typed"), shared_hub.agent("typed-caller")

        @provider.capability("order.bill")
        def bill(order: Order) -> Bill:
            return Bill(total=order.amount * 2, orders=[order.item])

        @provider.capability("order.unchecked", input_schema={})
        def unchecked(order: Order) -> int:
            return order.amount

        def add(a: int, b: int = 2) -> int:
            """Adds"""
            return a + b

        provider.provide_function(add, "math.add")
        async with provider, caller:
            assert await caller.call("order.bill", Order("tea", 3), result=Bill) == Bill(total=6, orders=["tea"])
            assert await caller.call("math.add", {"a": 1}) == 3
            with pytest.raises(CallError) as wrong:
                await caller.call("order.bill", {"item": 7})
            assert wrong.value.code == "schema_mismatch"
            with pytest.raises(CallError, match="/amount: must be int") as here:
                await caller.call("order.unchecked", {"item": "tea", "amount": "many"})
            assert here.value.code == "invalid_request"
            with pytest.raises(CallError) as decode:
                await caller.call("math.add", {"a": 1}, result=str)
            assert (decode.value.code, decode.value.accepted) == ("decode", Accepted.YES)
            known = {own.name: own.agents[0] for own in await caller.capabilities() if own.agents}
            assert known["math.add"].description == "Adds"
            assert known["math.add"].input_schema["required"] == ["a"]
            assert known["order.bill"].output_schema["properties"]["total"] == {"title": "Total", "type": "number"}

    run(test())


def test_a_body_that_is_no_messagepack_fails_its_call_alone(shared_hub: Hub) -> None:
    """CODEC-5, K55."""

    async def test() -> None:
        provider, caller = shared_hub.agent("broken"), shared_hub.agent("broken-caller")
        provider.capability("broken.echo")(lambda body: Payload(b"\xc1") if body == 7 else body)
        async with provider, caller:
            calls = [caller.call("broken.echo", n) for n in range(20)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            bad = results.pop(7)
            assert isinstance(bad, CallError)
            assert bad.code == "decode"
            assert results == [n for n in range(20) if n != 7]
            with pytest.raises(CallError, match="invalid_request"):
                await caller.call("broken.echo", Payload(b"\xc1"))
            assert await caller.call("broken.echo", "still there") == "still there"

    run(test())


def test_options_reach_the_hub_and_a_reply_says_how_it_got_here(shared_hub: Hub) -> None:
    """CALL-2, CALL-3, CALL-12."""

    async def test() -> None:
        one = shared_hub.agent("zone-a", labels={"zone": "a"})
        other = shared_hub.agent("zone-b", labels={"zone": "b"})
        seen: list[dict[str, Any]] = []
        for agent in (one, other):

            @agent.capability("zone.say", idempotent=True)
            async def _(ctx: Context, body: Any) -> str:
                seen.append({"private": ctx.private, "trace": ctx.traceparent, "priority": ctx.priority})
                assert 0 < ctx.remaining <= 30
                return ctx.agent.agent_id

        async with one, other, shared_hub.agent("zone-caller", labels={"zone": "b"}) as caller:
            assert await caller.call("zone.say", require={"zone": "a"}) == "zone-a"
            assert await caller.call("zone.say", labels={"zone": "b"}) == "zone-b"
            assert await caller.call("zone.say", inherit_labels=True) == "zone-b"
            options: Any = {
                "timeout": 5,
                "budget": 7.5,
                "accept_timeout": 2,
                "retries": 0,
                "allow_fallback": True,
                "allow_cached": 60,
                "queue": False,
                "wait_for_agent": 1,
                "priority": "high",
                "policy": "random",
                "affinity_key": "k",
                "request_id": "zone-17",
                "keep": 100,
                "traceparent": "00-1-2-01",
                "private": {"x-who": [1, b"2"]},
                "agents": ["zone-a"],
            }
            reply = await caller.reply("zone.say", **options)
            assert seen[-1] == {"private": {"x-who": [1, b"2"]}, "trace": "00-1-2-01", "priority": "high"}
            assert (reply.body, reply.target, reply.request_id) == ("zone-a", "zone-a", "zone-17")
            assert [own.outcome for own in reply.attempts] == ["completed"]
            assert not reply.duplicate
            assert reply.execution is not None
            again = await caller.reply("zone.say", **options)
            assert again.duplicate
            with pytest.raises(IdempotencyConflict):
                await caller.call("zone.say", "another body", request_id="zone-17")
            for wrong in ({"request_id": ""}, {"private": {"y": 1}}, {"agents": ["a", "b"]}, {"agents": "zone-a"}):
                with pytest.raises(CallError, match="invalid_request"):
                    await caller.call("zone.say", **wrong)
            with pytest.raises(TypeError, match="no option 'nonsense'"):
                await caller.call("zone.say", nonsense=1)  # type: ignore[call-overload]

    run(test())


def test_a_fan_out_gives_each_part_its_own_end(shared_hub: Hub) -> None:
    """CALL-11."""

    async def test() -> None:
        agents = [shared_hub.agent(f"fan-{n}") for n in range(3)]
        for agent in agents:

            @agent.capability("fan.out")
            async def _(ctx: Context) -> AsyncIterator[int]:
                if ctx.agent.agent_id == "fan-1":
                    raise HandlerError("no", "never")
                for piece in range(40):
                    yield piece

        async with agents[0], agents[1], agents[2], shared_hub.agent("fan-caller") as caller:
            answer = await caller.call_all("fan.out")
            assert answer.summary == (3, 2, 1)
            ends = {part.target: part.error and part.error.code for part in answer.parts}
            assert ends == {"fan-0": None, "fan-1": "handler_error", "fan-2": None}
            two = await caller.call_all("fan.out", targets=2)
            assert two.summary.targets == 2
            pieces: dict[str | None, list[int]] = {}
            async with caller.stream_all("fan.out", chunks=True, window=4) as parts:
                async for part in parts:
                    if isinstance(part, agent_reach.Piece):
                        pieces.setdefault(part.target, []).append(part.body)
            assert pieces == {"fan-0": list(range(40)), "fan-2": list(range(40))}

    run(test())


def test_phases_can_be_seen_apart_and_a_late_provider_says_so(shared_hub: Hub) -> None:
    """CALL-10, PROV-5, PROV-12."""

    async def test() -> None:
        provider, caller = shared_hub.agent("phases"), shared_hub.agent("phases-caller")
        go_on = asyncio.Event()

        @provider.capability("phases.slow")
        async def _(ctx: Context) -> str:
            ctx.would_take(90)
            await go_on.wait()
            return "done"

        provider.capability("phases.quick")(lambda: "quick")
        async with provider, caller:
            pending = caller.start("phases.slow", preferred_timeout=1)
            late = await pending.would_timeout()
            assert late is not None
            assert (late.target, late.wait) == ("phases", 90)
            assert not await pending.elsewhere()
            go_on.set()
            assert await pending.result() == "done"
            assert (await caller.notify("phases.quick")).target == "phases"
            quick = caller.start("phases.quick")
            assert (await quick.reply()).body == "quick"
            go_on.clear()
            doomed = caller.start("phases.slow")
            await doomed.accepted()
            with pytest.raises(agent_reach.errors.Cancelled):
                await doomed.cancel()

    run(test())


def test_a_call_moves_elsewhere_and_never_runs_at_two_agents(shared_hub: Hub) -> None:
    """CALL-10."""

    async def test() -> None:
        running: set[str] = set()
        agents = [shared_hub.agent(f"move-{n}") for n in range(2)]
        first: list[str] = []
        for agent in agents:

            @agent.capability("move.work")
            async def _(ctx: Context) -> str:
                name = ctx.agent.agent_id
                assert not running
                if first:
                    return name
                first.append(name)
                running.add(name)
                try:
                    await asyncio.Event().wait()
                finally:
                    running.discard(name)
                raise AssertionError

        async with agents[0], agents[1], shared_hub.agent("move-caller") as caller:
            pending = caller.start("move.work")
            await pending.accepted()
            assert await pending.elsewhere()
            assert {first[0], await pending.result()} == {"move-0", "move-1"}

    run(test())


def test_letting_go_of_a_call_stops_its_handler(shared_hub: Hub) -> None:
    """CALL-8, PROV-9."""

    async def test() -> None:
        provider, caller = shared_hub.agent("stopped"), shared_hub.agent("stopped-caller")
        began, stopped = asyncio.Event(), asyncio.Event()
        thread_began, thread_stopped = threading.Event(), threading.Event()

        @provider.capability("stop.async")
        async def _(ctx: Context) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                assert ctx.cancelled
                stopped.set()

        @provider.capability("stop.sync")
        def _(ctx: SyncContext) -> None:
            thread_began.set()
            ctx.wait_cancelled()
            thread_stopped.set()

        async with provider, caller:
            task = asyncio.create_task(caller.call("stop.async"))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stopped.wait()
            with pytest.raises(ProcessingTimeout):
                await caller.call("stop.async", timeout=0.05, retries=0)
            task = asyncio.create_task(caller.call("stop.sync"))
            await asyncio.to_thread(thread_began.wait)
            task.cancel()
            await asyncio.to_thread(thread_stopped.wait)

    run(test())


def test_a_cancelled_handler_that_takes_no_notice_is_answered_without_it(shared_hub: Hub) -> None:
    """PROV-9."""

    async def test() -> None:
        provider, caller = shared_hub.agent("deaf", cancel_grace=0.05), shared_hub.agent("deaf-caller")
        release = threading.Event()
        provider.capability("deaf.work")(lambda: release.wait(30))
        async with provider, caller:
            pending = caller.start("deaf.work")
            await pending.accepted()
            with pytest.raises(agent_reach.errors.Cancelled):
                await pending.cancel()
            release.set()

    run(test())


def test_a_stream_is_whole_and_its_provider_never_far_ahead(shared_hub: Hub) -> None:
    """STREAM-1, STREAM-3, STREAM-4, PROV-10."""

    async def test() -> None:
        provider, caller = shared_hub.agent("stream"), shared_hub.agent("stream-caller")
        produced = {"async": 0, "sync": 0}
        ended = threading.Event()

        @provider.capability("stream.async")
        async def _(n: int) -> AsyncIterator[int]:
            for piece in range(n):
                yield piece
                produced["async"] += 1

        @provider.capability("stream.sync")
        def _(n: int) -> Generator[int, None, str]:
            try:
                for piece in range(n):
                    yield piece
                    produced["sync"] += 1
            finally:
                ended.set()
            return "the end"

        @provider.capability("stream.emit")
        async def _(ctx: Context, n: int) -> str:
            assert ctx.wants_stream
            for piece in range(n):
                await ctx.emit(piece)
            return "emitted"

        async with provider, caller:
            for name, end in (("async", None), ("sync", "the end"), ("emit", "emitted")):
                stream = caller.stream(f"stream.{name}", 100, window=5)
                assert [piece async for piece in stream] == list(range(100))
                assert (await stream.end()).body == end
            produced["sync"] = 0
            ended.clear()
            async with caller.stream("stream.sync", 1000, window=8) as stream:
                taken = [await stream.__anext__() for _ in range(3)]
                assert taken == [0, 1, 2]
            await asyncio.to_thread(ended.wait)
            assert produced["sync"] <= 8 + 3

    run(test())


def test_a_stream_that_breaks_off_says_so(shared_hub: Hub) -> None:
    """STREAM-2."""

    async def test() -> None:
        provider, caller = shared_hub.agent("breaking"), shared_hub.agent("breaking-caller")

        @provider.capability("stream.breaks")
        def _() -> Iterator[int]:
            yield 1
            raise ValueError("torn")

        async with provider, caller:
            stream = caller.stream("stream.breaks")
            pieces = []
            with pytest.raises(agent_reach.errors.HandlerFailed, match="torn"):
                async for piece in stream:
                    pieces.append(piece)
            assert pieces == [1]
            with pytest.raises(agent_reach.errors.HandlerFailed):
                await stream.end()

    run(test())


def test_calls_beyond_the_hubs_limit_wait_in_order(shared_hub: Hub) -> None:
    """CALL-6, PROV-4."""

    async def test() -> None:
        provider, caller = shared_hub.agent("many", max_concurrency=4), shared_hub.agent("many-caller")
        running = 0
        most = 0

        @provider.capability("many.work", max_concurrency=2)
        async def _(n: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return n

        async with provider, caller:
            results = await asyncio.gather(*(caller.call("many.work", n) for n in range(1500)))
            assert results == list(range(1500))
            assert most == 2

    run(test())


def test_capabilities_come_and_go_while_connected(shared_hub: Hub) -> None:
    """PROV-13, LIVE-5."""

    async def test() -> None:
        provider, caller = shared_hub.agent("changing"), shared_hub.agent("changing-caller")
        async with provider, caller:
            provider.capability("change.added")(lambda: "added")
            assert await caller.call("change.added", wait_for_agent=20) == "added"
            provider.update_load(cpu=0.5, levels={"change.added": 0.25})
            provider.update_status("degraded")

            async def degraded() -> Any:
                (own,) = [own for own in await caller.agents() if own.agent_id == "changing"]
                return own.status == "degraded" and own.load.get("cpu") == 0.5

            await until("the status", degraded)
            provider.remove_capability("change.added")

            async def gone() -> bool:
                return all("change.added" not in own.capabilities for own in await caller.agents())

            await until("its withdrawal", gone)

    run(test())
