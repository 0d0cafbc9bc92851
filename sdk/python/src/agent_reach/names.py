"""Capability names: how they are folded, and which are taken."""

from .limits import ID_BYTES_MAX

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def fold(name: str) -> str:
    """The name as the hub reads it: ``_`` to ``-``, upper case of ASCII to lower."""
    return "".join(c.lower() if c.isascii() else c for c in name.replace("_", "-"))


def problem_of(name: str) -> str | None:
    """What is wrong with a folded capability name that an agent wants to offer, in words; ``None``: nothing."""
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= ID_BYTES_MAX:
        return f"must have 1 to {ID_BYTES_MAX} bytes"
    if not all(word and _ALLOWED.issuperset(word) for word in name.split(".")):
        return "must be words of a-z, 0-9 and - joined by dots"
    if name.split(".", maxsplit=1)[0] == "hub":
        return "begins with hub., which is the hub's own"
    return None
