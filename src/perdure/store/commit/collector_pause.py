"""Keeps Python's garbage collector from starting in the middle of work that makes many objects at once.

The automatic collector looks at the young objects after every 700 new ones. A round of turns, or a group that is
decided, makes some thousand that all are needed until the next one: collections in its midst would find nothing, and
move the objects on to the old generation, whose collections are dear. After the pause the collector starts as usual.
"""

import gc
from types import TracebackType


class CollectorPause:
    """No automatic collection inside `with`. Does nothing if the program itself has disabled the collector.

    The collector belongs to the whole process, so what is inside must be short and must not wait.
    """

    __slots__ = ("_pauses",)

    def __enter__(self) -> None:
        self._pauses = gc.isenabled()
        if self._pauses:
            gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pauses:
            gc.enable()
