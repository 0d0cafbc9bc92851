"""How quickly calls go out after the hub ended the connection as a slow consumer's.

Everything that was open would be answered at once, and would be too much at once again. So the next call goes out when
one has ended, or when its pause is over: results of any size come one after the other, and what takes long holds up
nothing.
"""

#: The pause after a call, doubled by each time that this call was cut off; at most MOST.
STEP = 0.1
MOST = 2.0
#: A call that was cut off so often, by sessions that lived shortly, fails.
CUTS_MAX = 5


class Pace:
    """Whether the next call may go out."""

    def __init__(self) -> None:
        self._slow = False
        #: When it may at the latest.
        self.at: float | None = None

    def cut(self) -> None:
        """The connection was ended as a slow consumer's."""
        self._slow = True
        self.at = None

    def sent(self, now: float, cuts: int) -> None:
        """A call went out, which was cut off so often."""
        if self._slow:
            self.at = now + min(STEP * (1 << cuts), MOST)

    def go(self) -> None:
        """A call ended, or the connection."""
        self.at = None

    def passes(self, now: float) -> None:
        """Time passes."""
        if self.at is not None and self.at <= now:
            self.at = None

    def caught_up(self) -> None:
        """Everything went out."""
        self._slow = False
        self.at = None
