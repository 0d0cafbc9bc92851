"""A hub in memory, for the tests of programs: no sockets, no certificates, no binary.

    hub = FakeHub()
    provider, caller = hub.agent("shouter"), hub.agent("caller")
    provider.capability("text.upper")(str.upper)
    with provider.sync, caller.sync as agent:
        assert agent.call("text.upper", "hello") == "HELLO"

It speaks the protocol with the agents' own sessions: calls, notify, streams with credit, fan-out, cancelling, tasks,
tries again, open calls carried over a lost connection (`FakeHub.drop`), and ``hub.agents.list``,
``hub.capabilities.list``, ``hub.tasks.get`` and ``hub.tasks.cancel``. It has no policy, no queue, no timeouts and no
store: what a real hub decides about time and rights is the real hub's.
"""

from .hub import FakeHub

__all__ = ["FakeHub"]
