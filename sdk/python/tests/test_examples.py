"""The examples of the README, as programs of their own against a real hub."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from world import PATIENCE, Hub

import agent_reach

FOLDER = Path(__file__).parents[1]
EXAMPLES = FOLDER / "examples"


def program(hub: Hub, name: str, *command: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **hub.environment(name), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True)


def output(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return said


def test_the_first_agent_has_fifteen_lines_and_the_first_caller_ten_and_the_readme_shows_them() -> None:
    readme = (FOLDER / "README.md").read_text()
    for name, most in (("agent.py", 15), ("caller.py", 10)):
        text = (EXAMPLES / name).read_text()
        assert len(text.splitlines()) <= most
        assert f"```python\n{text}```" in readme, f"the README shows another {name}"


def test_the_first_caller_calls_the_first_agent_and_sigterm_drains_it(shared_hub: Hub) -> None:
    """END-2."""
    agent = program(shared_hub, "shouter", str(EXAMPLES / "agent.py"))
    with shared_hub.agent("waiting").sync as waiting:
        assert waiting.call("text.upper", "are you there", wait_for_agent=PATIENCE) == "ARE YOU THERE"
    assert output(program(shared_hub, "caller", str(EXAMPLES / "caller.py"))) == "HELLO\n"
    agent.send_signal(signal.SIGTERM)
    assert output(agent) == "closed: closed by this program\n"


SLOW = """
import sys, threading
import agent_reach
agent = agent_reach.Agent("slow", drain_timeout=60)
release = threading.Event()
@agent.capability("slow.work")
def work(seconds):
    release.wait(seconds)
    return "ended"
print(agent.run())
"""


@pytest.mark.parametrize("seconds", [0.5, 1000])
def test_sigterm_lets_a_handler_end_and_a_second_one_does_without_it(shared_hub: Hub, seconds: float) -> None:
    """END-2, END-3."""
    agent = program(shared_hub, "slow", "-c", SLOW)
    with shared_hub.agent("slow-caller").sync as caller:
        pending = caller.start("slow.work", seconds, wait_for_agent=PATIENCE, retries=0)
        pending.accepted()
        agent.send_signal(signal.SIGTERM)
        while any(own.agent_id == "slow" and own.status == "ready" for own in caller.agents()):
            pass
        if seconds < 1:
            assert pending.result() == "ended"
        else:
            agent.send_signal(signal.SIGTERM)
        assert output(agent) == "closed: closed by this program\n"


def example(hub: Hub, name: str, agent: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for key, value in hub.environment(agent).items():
        monkeypatch.setenv(key, value)
    return runpy.run_path(str(EXAMPLES / name))


def test_a_web_service_is_an_agent_too(shared_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    shouter = shared_hub.agent("asgi-shouter")
    shouter.capability("text.upper")(str.upper)
    app = example(shared_hub, "asgi.py", "orders", monkeypatch)["app"]
    with shouter.sync, shared_hub.agent("asgi-caller").sync as caller, TestClient(app) as web:
        assert web.get("/price", params={"item": "tea", "amount": 4}).json() == {"price": 3.0}
        assert caller.call("order.price", {"item": "tea", "amount": 4}) == {"price": 3.0}
        assert web.get("/shout/hello").json() == "HELLO"
        shouter.remove_capability("text.upper")
        while any("text.upper" in own.capabilities for own in caller.agents()):
            pass
        assert web.get("/shout/hello").status_code == 503


def test_an_agent_of_a_framework_is_asked_over_the_hub_and_asks_others(
    shared_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    shouter = shared_hub.agent("framework-shouter")

    @shouter.capability("text.upper")
    def _(text: str) -> str:
        said.append(text)
        return text.upper()

    assistant: agent_reach.Agent = example(shared_hub, "framework.py", "assistant", monkeypatch)["agent"]
    with shouter.sync, assistant.sync, shared_hub.agent("framework-caller").sync as caller:
        answer = caller.call("assistant.ask", "what?")
        assert set(answer) == {"text", "sources"}
        assert said
        (offer,) = [own.agents[0] for own in caller.capabilities() if own.name == "assistant.ask"]
        assert offer.input_schema == {"type": "string"}
        assert offer.output_schema["required"] == ["text", "sources"]


def test_both_halves_of_a_pair_agree_over_a_hub_that_is_killed(own_hub: Hub) -> None:
    """PAIR-1, PAIR-2, PAIR-3, PAIR-4, PAIR-5, PAIR-6, PAIR-7, PAIR-8, PAIR-9."""
    provider = program(own_hub, "pair-provider", str(FOLDER / "conformance" / "provider.py"), "pair-provider")
    assert provider.stdout is not None
    assert provider.stdout.readline() == "ready\n"
    command = (str(FOLDER / "conformance" / "caller.py"), "pair-caller", "pair-provider")
    caller = program(own_hub, "pair-caller", *command)
    assert caller.stdout is not None
    said = []
    with caller:
        for line in caller.stdout:
            said.append(line.strip())
            if line == "restart\n":
                own_hub.kill()
                own_hub.start()
        assert caller.wait(PATIENCE) == 0
    assert [line for line in said if line != "restart"] == [f"PAIR-{n} ok" for n in range(1, 10)]
    provider.send_signal(signal.SIGTERM)
    assert output(provider) == ""
