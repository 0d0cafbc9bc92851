"""What was served, kept for another life of the process: a store, and the thread that writes into it."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgpack import packb, unpackb

from .errors import ConnectError
from .session.memory import BYTES_MAX, KEEP_ON_DISK
from .session.types import Failure, Note, Outcome, Past, Payload

#: How long the end of a call counts that is no task's, in seconds: while the hub may still ask for it again.
CALL_KEEP = 600.0
#: Of an intent that an earlier life of the process began and did not end.
INTERRUPTED = Failure(
    "handler_error",
    "the agent was restarted while it worked on this: whether it is done is unknown",
    details={"code": "interrupted", "message": "the agent was restarted while it worked on this"},
)


class Opened(NamedTuple):
    """What opening a store gives."""

    #: The instance that this life of the process is, too.
    instance: str
    #: What earlier lives served, the oldest first.
    past: Sequence[Past]


class DedupeStore(Protocol):
    """Where an agent keeps what it served. `write` and `close` are called on one thread."""

    def open(self, agent_id: str, instance: str) -> Opened:
        """Opens it for an agent; ``instance`` is the one to keep where there is none yet.

        Raises:
            ConnectError: it cannot be used, is another agent's, or another process has it.
        """

    def write(self, notes: Sequence[Note]) -> None:
        """Keeps these. When it returns they are safe from the end of the process, and where a task is among them from
        that of the machine.
        """

    def close(self) -> None:
        """Lets others have it."""


class SqliteDedupe:
    """A SQLite file of one agent and one process at a time.

    Ends of tasks are kept for 24 h, of calls for 10 min, and 64 MiB of them, the newest.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._db: Any = None

    def open(self, agent_id: str, instance: str) -> Opened:
        """See `DedupeStore.open`."""
        import sqlite3

        db = None
        try:
            # Autocommit; the lock is held until the file is closed, so another process fails at once.
            db = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
            owner, instance, past = _opened(db, agent_id, instance)
            if owner != agent_id:
                raise ConnectError("config", f"dedupe file {self._path} is of agent {owner!r}")
        except (sqlite3.Error, ConnectError) as error:
            if db is not None:
                db.close()
            if isinstance(error, ConnectError):
                raise
            raise ConnectError("config", f"dedupe file {self._path}: {error}") from error
        self._db = db
        return Opened(instance, past)

    def write(self, notes: Sequence[Note]) -> None:
        """See `DedupeStore.write`."""
        db, now = self._db, time.time()
        # A crash of the machine may cost the last calls, and never a task.
        db.execute(f"PRAGMA synchronous = {'FULL' if any(note.task for note in notes) else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        for note in notes:
            if note.word == "free":
                db.execute("DELETE FROM intents WHERE intent = ?", (note.intent,))
                continue
            outcome = None if note.outcome is None else _packed(note.outcome)
            line = (note.intent, now, note.fingerprint, note.word, note.task, note.execution, outcome)
            db.execute("INSERT OR REPLACE INTO intents VALUES (?, ?, ?, ?, ?, ?, ?)", line)
        db.execute("COMMIT")

    def close(self) -> None:
        """See `DedupeStore.close`."""
        if self._db is not None:
            self._db.close()
            self._db = None


def _opened(db: Any, agent_id: str, instance: str) -> tuple[str, str, list[Past]]:
    """Whose file it is, which instance is kept in it, and what still counts; makes what is not there yet."""
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE IF NOT EXISTS head (agent_id TEXT NOT NULL, instance TEXT NOT NULL)")
    db.execute(
        "CREATE TABLE IF NOT EXISTS intents (intent TEXT PRIMARY KEY, at REAL NOT NULL,"
        " fingerprint BLOB NOT NULL, word TEXT NOT NULL, task INTEGER NOT NULL, execution REAL NOT NULL,"
        " outcome BLOB) WITHOUT ROWID"
    )
    row = db.execute("SELECT agent_id, instance FROM head").fetchone()
    if row is None:
        row = agent_id, instance
        db.execute("INSERT INTO head VALUES (?, ?)", row)
    past = _past(db) if row[0] == agent_id else []
    db.execute("COMMIT")
    return row[0], row[1], past


def _past(db: Any) -> list[Past]:
    """What still counts, the oldest first; the rest is deleted."""
    now = time.time()
    db.execute("DELETE FROM intents WHERE at < ?", (now - KEEP_ON_DISK,))
    db.execute("DELETE FROM intents WHERE at < ? AND task = 0 AND word = 'ended'", (now - CALL_KEEP,))
    past: list[Past] = []
    size = 0
    for intent, at, fingerprint, word, execution, outcome in db.execute(
        "SELECT intent, at, fingerprint, word, execution, outcome FROM intents ORDER BY at DESC"
    ).fetchall():
        size += len(intent) + len(outcome or b"") + 256
        if size > BYTES_MAX // 2:
            db.execute("DELETE FROM intents WHERE at <= ?", (at,))
            break
        ended = INTERRUPTED if word == "begun" else _unpacked(outcome)
        # Zero when the clock was set back.
        past.append(Past(intent, fingerprint, ended, execution, max(now - at, 0.0)))
    past.reverse()
    return past


def _packed(outcome: Outcome) -> bytes:
    packed: bytes = packb(list(outcome))
    return packed


def _unpacked(data: bytes) -> Outcome:
    fields = unpackb(data, strict_map_key=False)
    return Payload(*fields) if len(fields) == 2 else Failure(*fields)


class Writer:
    """Writes notes in batches, on a thread of its own.

    ``noted`` hears of each run whose note is written. What cannot be written counts as written: the handler runs, and
    the next life of the process may run it again. That is said in ``failed``.
    """

    def __init__(self, store: DedupeStore, noted: Callable[[int], None], failed: Callable[[Exception], None]) -> None:
        self._store = store
        self._noted = noted
        self._failed = failed
        self._notes: deque[Note] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="agent-reach-dedupe", daemon=True)
        self._thread.start()

    def write(self, note: Note) -> None:
        """Has this written. From any thread."""
        with self._changed:
            self._notes.append(note)
            self._changed.notify()

    def close(self) -> None:
        """Writes what is left, and lets the store go. Returns at once; see `join`."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self) -> None:
        """Waits for the end of it: whoever is told of the agent's end may open the store again."""
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._notes and not self._closed:
                    self._changed.wait()
                batch = list(self._notes)
                self._notes.clear()
            if not batch:
                break
            try:
                self._store.write(batch)
            except Exception as error:
                self._failed(error)
            for note in batch:
                if note.run is not None:
                    self._noted(note.run)
        try:
            self._store.close()
        except Exception as error:
            self._failed(error)
