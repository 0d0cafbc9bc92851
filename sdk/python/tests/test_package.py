"""What the package says of itself, and its small parts."""

import asyncio
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from world import run

import agent_reach
from agent_reach import errors, limits
from agent_reach.codes import ACCEPTED_BY_CODE, GOODBYES, RETRYABLE, Kind
from agent_reach.dedupe import SqliteDedupe, Writer
from agent_reach.inbox import Mailbox
from agent_reach.loops import LoopMail
from agent_reach.pool import Pool
from agent_reach.session.memory import BYTES_MAX, KEEP, Memory, Served
from agent_reach.session.types import CallSpec, Failure, Note, Past, Payload, TaskEnd
from agent_reach.waits import Latch, in_loop, in_thread, run_blocking

DOCS = Path(__file__).parents[3] / "docs"


def test_everything_that_is_exported_is_there_and_documented() -> None:
    assert sorted(agent_reach.__all__) == agent_reach.__all__
    for name in agent_reach.__all__:
        own = getattr(agent_reach, name)
        assert own.__doc__, f"{name} says nothing of itself"


def test_importing_loads_neither_sockets_nor_what_is_optional() -> None:
    heavy = ["websockets", "ssl", "asyncio", "sqlite3", "pydantic", "jsonschema", "agent_reach.driver"]
    code = f"import agent_reach, sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def rows(heading: str) -> list[list[str]]:
    text = (DOCS / "protocol.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [
        [cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    return found[2:]


def test_the_tables_are_those_of_the_protocol() -> None:
    assert {row[1]: int(row[0]) for row in rows("Kinds")} == {kind.name: kind.value for kind in Kind}
    told = {row[0]: row[1] for row in rows("Error codes")}
    assert told.keys() == RETRYABLE.keys()
    assert all((told[code] == "yes") == retryable for code, retryable in RETRYABLE.items())
    assert ACCEPTED_BY_CODE.keys() - {"completed"} <= RETRYABLE.keys()
    goodbyes = {row[0]: (int(row[1]), row[2] == "yes") for row in rows("GOODBYE codes")}
    assert goodbyes == GOODBYES
    bounds = {row[0]: row[1] for row in rows("Limits")}
    for name in ("VERSION", "CONNECT_PATH", "MESSAGE_BYTES_DEFAULT", "HEADER_DEPTH_MAX", "KEEP_MS_MADE", "LABELS_MAX"):
        assert str(getattr(limits, name)) == bounds[name]


def test_every_requirement_is_named_by_a_test() -> None:
    wanted = set(re.findall(r"\*\*([A-Z]+-\d+)\*\*", (DOCS / "sdk-behaviour.md").read_text()))
    assert len(wanted) > 60
    named = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        named |= set(re.findall(r"[A-Z]+-\d+", file.read_text()))
    assert wanted - named == set()


def test_each_code_has_an_error_of_its_own_that_travels_whole() -> None:
    """ERR-1."""
    for code in RETRYABLE.keys() - {"unknown_kind"}:
        error = errors.CallError.of(code, "m", details={"a": 1}, request_id="r")
        assert type(error) is not errors.CallError
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.__dict__) == (type(error), error.__dict__)
        assert str(copy) == f"{code}: m"
    unknown = errors.CallError.of("news", "m", retryable=True)
    assert (type(unknown), unknown.code, unknown.retryable) == (errors.CallError, "news", True)


def test_memory_forgets_the_oldest_when_it_is_full_and_each_after_its_time() -> None:
    """ONCE-2, BOUND-1."""
    memory = Memory()
    half = Served(Payload(b"x" * (BYTES_MAX // 2 - 1000)), (), 0.0)
    for n, intent in enumerate("abc"):
        memory.keep(float(n), intent, half)
    assert [memory.find(own) is not None for own in "abc"] == [False, True, True]
    assert memory.next_timeout == 1.0 + KEEP
    memory.expire(1.0 + KEEP)
    assert [memory.find(own) is not None for own in "bc"] == [False, True]
    memory.keep(2.0, "c", half)
    memory.expire(2.0 + KEEP)
    assert memory._bytes == 0
    assert memory.next_timeout is None


def note(run: int | None, intent: str, word: str, outcome: Any = None, task: bool = False) -> Note:
    return Note(run, intent, b"f", word, outcome, 0.5, task)


def test_the_dedupe_file_keeps_what_still_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONCE-6."""
    file = tmp_path / "dedupe.db"
    failure = Failure("handler_error", "m", False, {"code": "x", 1: b"\x00"})
    store = SqliteDedupe(file)
    assert store.open("me", "life") == ("life", [])
    store.write([note(1, "cut", "begun"), note(2, "free", "begun"), note(3, "done", "begun", task=True)])
    store.write([note(2, "free", "free"), note(3, "done", "ended", Payload(b"\x07"), task=True)])
    store.write([note(None, "call", "ended", failure)])
    store.close()
    instance, past = store.open("me", "another life")
    store.close()
    assert instance == "life"
    found = {own.intent: own.outcome for own in past}
    assert found.keys() == {"cut", "done", "call"}
    assert (found["done"], found["call"]) == (Payload(b"\x07"), failure)
    assert isinstance(found["cut"], Failure)
    assert found["cut"].details["code"] == "interrupted"
    assert all(isinstance(own, Past) and own.age >= 0 for own in past)


def test_a_store_that_cannot_be_written_holds_nobody_up() -> None:
    """ONCE-6."""
    noted: list[int] = []
    problems: list[Exception] = []

    class Full(SqliteDedupe):
        def write(self, notes: Any) -> None:
            raise OSError("full")

    writer = Writer(Full("unused"), noted.append, problems.append)
    writer.write(note(7, "a", "begun"))
    writer.write(note(None, "b", "free"))
    writer.close()
    writer.join()
    assert noted == [7]
    assert {str(own) for own in problems} == {"full"}


def test_a_pool_starts_so_many_threads_and_leaves_out_what_waits_when_it_closes() -> None:
    """PROV-4, END-3."""
    pool = Pool(2, "t")
    entered = threading.Semaphore(0)
    release = threading.Event()
    done: list[int] = []

    def job(n: int) -> None:
        entered.release()
        release.wait(30)
        done.append(n)
        entered.release()

    for n in range(3):
        pool.submit(lambda n=n: job(n))  # type: ignore[misc]
    assert all(entered.acquire(timeout=30) for _ in range(2))
    assert not entered.acquire(blocking=False)
    pool.close()
    release.set()
    assert all(entered.acquire(timeout=30) for _ in range(2))
    assert sorted(done) == [0, 1]


def test_one_function_that_fails_in_the_programs_loop_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        mail = LoopMail.of(asyncio.get_running_loop())
        done = asyncio.Event()
        mail.post(lambda: 1 / 0)
        mail.post(done.set)
        await done.wait()

    run(test())
    assert "event loop failed" in caplog.text
    closed = asyncio.new_event_loop()
    mail = LoopMail.of(closed)
    closed.close()
    assert not mail.post(print)


def test_a_latch_and_a_mailbox_wake_whoever_waits_in_loops_and_threads() -> None:
    """TASK-4."""
    latch, mailbox = Latch(), Mailbox()
    end = TaskEnd("t", errors.CallError.of("cancelled", "m"))

    async def test() -> None:
        loop = asyncio.get_running_loop()
        thread = loop.run_in_executor(None, lambda: run_blocking(latch.wait(in_thread)))
        stopped = asyncio.create_task(latch.wait(in_loop))
        await asyncio.sleep(0)
        stopped.cancel()
        task = asyncio.create_task(latch.wait(in_loop))
        latch.set(1)
        latch.set(2)
        assert [await thread, await task, await latch.wait(in_loop)] == [1, 1, 1]
        taker = asyncio.create_task(mailbox.next(in_loop))
        await asyncio.sleep(0)
        mailbox.put(end)
        assert await taker is end
        mailbox.put(end)
        assert mailbox.take("other") is None
        assert mailbox.take("t") is end
        mailbox.close()
        assert await mailbox.next(in_loop) is None

    run(test())
    with pytest.raises(RuntimeError, match="event loop"):
        run_blocking(asyncio.sleep(1))


def test_a_call_knows_whether_it_is_a_watch_a_task_or_a_fan_out() -> None:
    assert CallSpec("hub.events.watch", {}, b"").watch
    assert not CallSpec("my.watch", {}, b"").watch
    assert CallSpec("x", {"mode": "task"}, b"").task
    assert CallSpec("x", {"select": 2}, b"").fan_out
    assert CallSpec("x", {"agents": ["a", "b"]}, b"").fan_out
    assert not CallSpec("x", {"agents": ["a"], "select": "one"}, b"").fan_out
