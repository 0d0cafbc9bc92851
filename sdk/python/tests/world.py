"""A real hub for tests: the binary of AGENT_REACH_BIN, else the debug build of this checkout."""

import asyncio
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import agent_reach

ROOT = Path(__file__).parents[3]
BIN = Path(os.environ.get("AGENT_REACH_BIN") or ROOT / "target" / "debug" / "agent-reach")
#: Nothing here waits for longer: a hub or an agent that does not come is a failed test.
PATIENCE = 30.0

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a test, which fails when it does not end."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


async def until(what: str, look: Callable[[], Awaitable[T]]) -> T:
    """Looks again and again, by something that takes its time such as a call, until there is something to see."""
    end = time.monotonic() + PATIENCE
    while not (seen := await look()):
        assert time.monotonic() < end, f"{what} did not come"
        await asyncio.sleep(0)
    return seen


class Hub:
    """One hub, that can be killed and started again at the same address."""

    def __init__(self, *, config: dict[str, str] | None = None) -> None:
        assert BIN.exists(), f"there is no hub at {BIN}: build it, or set AGENT_REACH_BIN"
        self._folder = tempfile.TemporaryDirectory(prefix="agent-reach-")
        self.dir = Path(self._folder.name)
        self._addresses: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._config = config or {}
        self.start()

    def start(self) -> None:
        """Starts it, and waits for its ready line."""
        at = self._addresses
        flags = [f"--{name}={at.get(name, '127.0.0.1:0')}" for name in ("agents", "http", "metrics")]
        with (self.dir / "hub.log").open("ab") as log:
            self._process = subprocess.Popen(
                [BIN, "dev", "--dir", self.dir, *flags], stdout=subprocess.PIPE, stderr=log, env=self._environment()
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if readable else b""
        assert line, (self.dir / "hub.log").read_text()
        ready = json.loads(line)
        self.url = str(ready["agents"])
        for name in ("agents", "http", "metrics"):
            self._addresses[name] = str(ready[name]).split("//")[1].split("/")[0]

    def _environment(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_REACH_")}
        return {**own, **{f"AGENT_REACH__{key}": value for key, value in self._config.items()}}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Ends it, and waits for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def issue(self, name: str) -> dict[str, Any]:
        """A certificate, as the options of an agent."""
        cert = self.dir / "agents" / f"{name}.pem"
        if not cert.exists():
            subprocess.run([BIN, "certs", "issue", name, "--dir", self.dir], check=True, capture_output=True)
        key = cert.with_name(f"{name}-key.pem")
        return {"hub": self.url, "ca": self.dir / "ca.pem", "cert": cert, "key": key}

    def environment(self, name: str) -> dict[str, str]:
        """The same as variables of the environment."""
        own = self.issue(name)
        return {f"AGENT_REACH_{key.upper()}": str(value) for key, value in own.items()}

    def agent(self, name: str, **options: Any) -> agent_reach.Agent:
        """An agent of this hub, that comes back soon after a loss."""
        return agent_reach.Agent(name, **{"reconnect_waits": (0.05, 0.2), **self.issue(name), **options})

    def __enter__(self) -> "Hub":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()
        self._folder.cleanup()
