"""The thread where connections live: one event loop for all agents of the process, apart from the program's code."""

import asyncio
import logging
import os
import threading

log = logging.getLogger("agent_reach")


class IoThread:
    """An event loop on a thread of its own. It ends when its last user lets go, and never keeps the process alive."""

    _lock = threading.Lock()
    _shared: "IoThread | None" = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._users = 0
        # The present process: after a fork there is no such thread in the child.
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="agent-reach", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> "IoThread":
        """The thread of this process, started if it is not there. Each needs a `release`."""
        with cls._lock:
            shared = cls._shared
            if shared is None or shared._pid != os.getpid() or not shared._thread.is_alive():
                shared = cls._shared = IoThread()
            shared._users += 1
            return shared

    def release(self) -> None:
        """One user less. From any thread, this one too."""
        with IoThread._lock:
            self._users -= 1
            if self._users > 0:
                return
            if IoThread._shared is self:
                IoThread._shared = None
        self.loop.call_soon_threadsafe(self.loop.stop)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            # What was closed a moment ago says so to the other end.
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except Exception:
            log.exception("the connection's thread ended")
        finally:
            self.loop.close()
