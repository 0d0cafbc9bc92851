"""The one connection: which phase it is in, whether the other end lives, when to dial again."""

from enum import Enum
from random import Random

from .. import limits
from ..codes import GOODBYES
from ..errors import CloseReason
from ..frames import Header
from .backoff import Backoff

#: HELLO must be answered in this time.
GREETING = 10.0
#: After the hub's GOODBYE open calls may end on the old connection for this long.
LEAVING = 15.0
#: After our own GOODBYE the hub's close is waited for so long.
CLOSING = 2.0
#: Longest window for coming back that a hub's GOODBYE is believed.
AWAY_MAX = 3600.0


class Phase(Enum):
    """Where the connection stands."""

    #: No socket; dial when the time comes.
    WAITING = 1
    #: A dial is under way; its own bound is the transport's.
    DIALING = 2
    #: HELLO is sent, WELCOME must come.
    GREETING = 3
    READY = 4
    #: The hub said GOODBYE with leave to come back; what is open may end.
    LEAVING = 5
    #: Nothing is open any more on a connection that the hub leaves; its close is waited for.
    PARTING = 6
    #: We said GOODBYE.
    CLOSING = 7
    #: Never again.
    STOPPED = 8


class Terms:
    """Limits and times that WELCOME gave."""

    __slots__ = ("gone", "keepalive", "max_in_flight", "max_message", "suspect")

    def __init__(self, welcome: Header | None = None) -> None:
        told = welcome or {}

        def seconds(key: str, default: int) -> float:
            # A hub that says zero must not make a busy loop of us.
            return max(int(told.get(key, default)), 10) / 1000

        self.keepalive = seconds("keepalive_ms", 5000)
        self.suspect = seconds("suspect_ms", 15000)
        self.gone = seconds("gone_ms", 30000)
        self.max_message = int(told.get("max_message", limits.MESSAGE_BYTES_DEFAULT))
        self.max_in_flight = max(int(told.get("max_in_flight", 1024)), 1)

    @property
    def patience(self) -> float:
        """How long the hub may be silent before its link is given up: half way between suspect and gone.

        The hub gives up at gone, and settles what is open then: who comes back before that carries its calls on.
        """
        return self.suspect + max(self.gone - self.suspect, 0.0) / 2


class Link:
    """The connection's state."""

    def __init__(self, backoff: Backoff) -> None:
        self.phase = Phase.WAITING
        #: When the phase ends by itself; of `Phase.READY`: when it began.
        self.at = 0.0
        self.terms = Terms()
        self.heard = 0.0
        self.wrote = 0.0
        self._pinged = False
        self._backoff = backoff
        self._not_before: float | None = None
        #: A GOODBYE with a word that is not in our table: the close code will say what it means.
        self.unknown_goodbye: tuple[str, str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether envelopes may be written at all."""
        return self.phase in (Phase.GREETING, Phase.READY, Phase.LEAVING)

    @property
    def is_ready(self) -> bool:
        """In session: new calls may go out."""
        return self.phase is Phase.READY

    @property
    def can_answer(self) -> bool:
        """Whether answers to what the hub asked can be sent."""
        return self.phase in (Phase.READY, Phase.LEAVING)

    def opened(self, now: float) -> None:
        """The socket is there, and HELLO goes out."""
        self.phase, self.at = Phase.GREETING, now + GREETING
        self.hear(now)
        self.wrote = now
        self._not_before = None
        self.unknown_goodbye = None

    def hear(self, now: float) -> None:
        """Something came: the other end lives."""
        self.heard = now
        self._pinged = False

    def leave(self, now: float, within: float | None, random: Random) -> None:
        """The hub goes, and we may come back."""
        self._judge_life(now)
        self.phase, self.at = Phase.LEAVING, now + LEAVING
        self._not_before = None if within is None else now + random.uniform(0, min(within, AWAY_MAX))

    def part(self, now: float) -> None:
        """The connection that the hub leaves is no longer needed."""
        self.phase, self.at = Phase.PARTING, now + CLOSING

    def close(self, now: float) -> None:
        """Our GOODBYE is written."""
        self.phase, self.at = Phase.CLOSING, now + CLOSING

    def _judge_life(self, now: float) -> None:
        # Only a session that lived a while makes the waits short again: a hub that greets and throws out would
        # otherwise be dialled once a second for ever.
        if self.phase is Phase.READY and now - self.at >= self.terms.gone / 2:
            self._backoff.reset()

    def lost(self, now: float, random: Random) -> None:
        """The socket is gone, or never came: waits before the next dial."""
        self._judge_life(now)
        wait = self._backoff.next(random)
        # A window that the hub gave replaces our own wait: it knows when the next hub is there.
        at, self._not_before = self._not_before, None
        self.phase, self.at = Phase.WAITING, now + wait if at is None else max(at, now)

    def is_dead(self, now: float) -> bool:
        """Whether the hub has been silent for too long."""
        return self.can_answer and now - self.heard >= self.terms.patience

    def must_ping(self, now: float) -> bool:
        """Whether the hub is to be asked for a sign of life, once for each silence."""
        if self.can_answer and now - self.heard >= self.terms.suspect and not self._pinged:
            self._pinged = True
            return True
        return False

    def must_speak(self, now: float) -> bool:
        """Whether the hub must hear from us: two thirds of what it allows, so that one late wake-up costs nothing."""
        return self.can_answer and now >= self._speak_at

    @property
    def _speak_at(self) -> float:
        return self.wrote + self.terms.keepalive * 2 / 3

    @property
    def next_timeout(self) -> float | None:
        """When to look again."""
        if self.phase in (Phase.DIALING, Phase.STOPPED):
            return None
        if not self.can_answer:
            return self.at
        silent = self.heard + (self.terms.patience if self._pinged else self.terms.suspect)
        at = min(self._speak_at, silent)
        return min(at, self.at) if self.phase is Phase.LEAVING else at


def verdict(word: str, reason: str, close_code: int | None) -> CloseReason | None:
    """What the end of a session means by its GOODBYE word, else by the close code. ``None``: come back."""
    known = GOODBYES.get(word)
    by_number = close_code is None or not 4500 <= close_code <= 4999
    comes_back = by_number if known is None else known[1]
    return None if comes_back else CloseReason(word, reason)
