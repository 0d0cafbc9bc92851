"""What waits to be written, as data: control first, bodies in order."""

from collections import deque

#: Past this many queued bytes the session takes no further work from callers and handlers.
ROOM_BYTES = 256 * 1024
#: Past this many queued bytes the socket is not read either: what is read can ask for answers.
READ_BYTES = 4 * 1024 * 1024


class Outbound:
    """The queue of one connection. Emptied when the connection ends: what must survive is sent anew."""

    __slots__ = ("_bodies", "_control", "bytes")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets all."""
        self._control: deque[bytes] = deque()
        self._bodies: deque[tuple[int | None, bytes]] = deque()
        self.bytes = 0

    def control(self, message: bytes) -> None:
        """ACCEPT, CREDIT, CANCEL, UPDATE, RECEIPT: never waits behind bodies."""
        self.bytes += len(message)
        self._control.append(message)

    def body(self, message: bytes, call: int | None = None) -> None:
        """RESULT, CHUNK, GOODBYE, and CALL with its id: in the order sent."""
        self.bytes += len(message)
        self._bodies.append((call, message))

    def withdraw(self, call: int) -> bool:
        """Takes back a CALL that was not written yet. A CANCEL would overtake it otherwise."""
        for place, (own, message) in enumerate(self._bodies):
            if own == call:
                del self._bodies[place]
                self.bytes -= len(message)
                return True
        return False

    def pop(self) -> bytes | None:
        """The next message to write."""
        if self._control:
            message = self._control.popleft()
        elif self._bodies:
            message = self._bodies.popleft()[1]
        else:
            return None
        self.bytes -= len(message)
        return message

    def __bool__(self) -> bool:
        return bool(self._control or self._bodies)

    @property
    def has_room(self) -> bool:
        """Whether callers and handlers may hand in more."""
        return self.bytes < ROOM_BYTES

    @property
    def may_read(self) -> bool:
        """Whether the socket may be read."""
        return self.bytes < READ_BYTES
