"""Results of tasks: to the handles that wait for them, else to the program's inbox, each once.

The hub sends a result until it has its RECEIPT, so the same one may come several times. The receipt goes out when a
handle holds the result or the program took it from its inbox, and again for each repetition: the first one may have
been lost.
"""

from collections import OrderedDict

from ..codec import encode
from ..codes import Kind
from ..errors import CallError
from .context import Context
from .types import Arrived, Ended, Hand, TaskEnd, Tell

#: Most results that wait in the inbox, and most bytes of their bodies. The hub keeps the others, and sends them again.
HELD_MAX = 256
HELD_BYTES = 64 * 1024 * 1024
#: Tasks whose result was given out that are known, so that a repetition is not given out again.
TAKEN_MAX = 4096


class Results:
    """Who waits for which task, and what became of each."""

    def __init__(self) -> None:
        self._handles: dict[str, list[int]] = {}
        self._by_key: dict[int, str] = {}
        self._held: dict[str, int] = {}
        self._held_bytes = 0
        self._taken: OrderedDict[str, None] = OrderedDict()

    def wait(self, key: int, task_id: str) -> None:
        """A handle waits for this task."""
        self._by_key[key] = task_id
        self._handles.setdefault(task_id, []).append(key)

    def claim(self, cx: Context, key: int, task_id: str) -> None:
        """The same for a handle that was made from an id: its result may be here already."""
        self.wait(key, task_id)
        if task_id in self._held:
            cx.effects.append(Hand(key, task_id))

    def forget(self, key: int) -> bool:
        """A handle is gone. ``False``: there was none of this key."""
        task_id = self._by_key.pop(key, None)
        if task_id is None:
            return False
        keys = self._handles[task_id]
        keys.remove(key)
        if not keys:
            del self._handles[task_id]
        return True

    def arrive(self, cx: Context, asked: int | None, end: TaskEnd) -> None:
        """A result comes home. ``asked``: the call that it answers by its id, if there is one."""
        task_id = end.task_id
        keys = self._handles.pop(task_id, [])
        for key in keys:
            del self._by_key[key]
        if asked is not None:
            keys.append(asked)
        if keys:
            alone = task_id if len(keys) == 1 else None
            cx.effects.extend(Tell(key, Ended(end.result, alone)) for key in keys)
            return self.taken(cx, task_id)
        if task_id in self._taken:
            return _receipt(cx, task_id)
        size = _size(end)
        if task_id in self._held or len(self._held) >= HELD_MAX or self._held_bytes + size > HELD_BYTES:
            return None
        self._held[task_id] = size
        self._held_bytes += size
        cx.effects.append(Arrived(end))
        return None

    def taken(self, cx: Context, task_id: str) -> None:
        """A result is in the program's hands."""
        self._held_bytes -= self._held.pop(task_id, 0)
        self._taken[task_id] = None
        while len(self._taken) > TAKEN_MAX:
            self._taken.popitem(last=False)
        _receipt(cx, task_id)

    def drain(self) -> list[int]:
        """Every handle that waits, in the order they were made; none does any more."""
        keys = sorted(self._by_key)
        self._by_key.clear()
        self._handles.clear()
        return keys


def _size(end: TaskEnd) -> int:
    return 512 + (len(end.result.message) if isinstance(end.result, CallError) else len(end.result.payload.body))


def _receipt(cx: Context, task_id: str) -> None:
    if cx.link.can_answer:
        cx.outbound.control(encode(Kind.RECEIPT, {"task_id": task_id}))
