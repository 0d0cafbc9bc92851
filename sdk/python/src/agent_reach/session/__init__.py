"""Every decision of the SDK, with time and chance passed in. No socket, no clock, no task.

`agent_reach.session.machine` has the session itself. Nothing is loaded here, since most of the package needs the types
alone.
"""
