"""What the parts of a session work on together."""

from .link import Link
from .outbound import Outbound
from .types import Effect


class Context:
    """Filled anew for each input."""

    __slots__ = ("effects", "link", "now", "outbound")

    def __init__(self, link: Link) -> None:
        self.now = 0.0
        self.link = link
        self.outbound = Outbound()
        self.effects: list[Effect] = []
