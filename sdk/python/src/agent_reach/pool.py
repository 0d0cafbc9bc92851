"""Threads for sync handlers. Unlike the standard library's pool a stuck one does not keep the process alive."""

import threading
from collections import deque
from collections.abc import Callable


class Pool:
    """At most so many daemon threads, started as they are needed, and a line before them."""

    def __init__(self, most: int, name: str) -> None:
        self._most = max(most, 1)
        self._name = name
        self._lock = threading.Condition(threading.Lock())
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Has a thread run this. What it raises is its own affair: it must raise nothing."""
        with self._lock:
            self._jobs.append(job)
            if self._idle > 0:
                self._lock.notify()
            elif self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()

    def close(self) -> None:
        """No more jobs: those that wait are left out, idle threads end."""
        with self._lock:
            self._closed = True
            self._jobs.clear()
            self._lock.notify_all()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                while not self._jobs and not self._closed:
                    self._lock.wait()
                self._idle -= 1
                if self._closed:
                    self._threads -= 1
                    return
                job = self._jobs.popleft()
            job()
