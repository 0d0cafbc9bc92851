"""When to dial again, and the chance in it."""

from random import Random

#: Ceiling of the first wait, and of every one, in seconds.
FIRST = 1.0
MOST = 60.0


class Backoff:
    """Counts the failures in a row; the ceiling doubles with each."""

    def __init__(self, first: float = FIRST, most: float = MOST) -> None:
        self._first, self._most = first, most
        self._failures = 0

    @property
    def window(self) -> float:
        """Ceiling of the next wait."""
        return min(self._first * (1 << min(self._failures, 20)), self._most)

    def next(self, random: Random) -> float:
        """The next wait: jittered from the first on, so that a fleet never comes back in one second."""
        wait = random.uniform(0, self.window)
        self._failures += 1
        return wait

    def reset(self) -> None:
        """A session lived long enough to count as a success."""
        self._failures = 0
