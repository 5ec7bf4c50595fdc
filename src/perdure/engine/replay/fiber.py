"""Fibers: the coroutines of a run. The body is one; every branch is another, on ids of its own."""

from collections.abc import Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from perdure.authoring.call import Branch
from perdure.authoring.context import Wait
from perdure.authoring.failures import OUR_FILES
from perdure.core.ids import StepId
from perdure.engine.replay.promise import DurablePromise


async def _nothing() -> None:
    """What is left of a coroutine."""


_NOTHING = _nothing()
_NOTHING.close()


class Fiber:
    """A coroutine, the place in the call tree under which it takes ids, and what it waits for.

    `missing` counts the promises that must still settle before it goes on. `thrown` is what it gets then, in
    place of going on. `open` is what it began and is not settled. `ending` is its outcome, once it has one and
    only its branches keep it. `context` is the branch's own, as it was where it began; the body has the machine's.
    """

    __slots__ = (
        "context",
        "coroutine",
        "depth",
        "ending",
        "is_interrupted",
        "missing",
        "next_seq",
        "open",
        "prefix",
        "promise",
        "thrown",
        "wait",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        prefix: str,
        depth: int,
        promise: DurablePromise | None = None,
        context: Context | None = None,
    ) -> None:
        self.coroutine = coroutine
        self.prefix = prefix
        self.depth = depth
        self.promise = promise
        self.context = context
        self.next_seq = 0
        self.wait: Wait | None = None
        self.missing = 0
        self.is_interrupted = False
        self.open: dict[StepId, DurablePromise] = {}
        self.thrown: BaseException | None = None
        self.ending: tuple[Any, BaseException | None] | None = None

    def close_coroutine(self) -> None:
        """Close the coroutine and let go of it, in the context that it runs in, and of that.

        One that will not be closed is dropped here, where its verbs still find their machine, and stop it.
        """
        context, self.context = self.context, None
        if context is None:
            self._close_coroutine()
        else:
            context.run(self._close_coroutine)

    def _close_coroutine(self) -> None:
        # Whatever it says while it is closed, it is not the run's word.
        with suppress(BaseException):
            self.coroutine.close()
        self.coroutine = _NOTHING
        if self.promise is not None and isinstance(self.promise.operation, Branch):
            self.promise.operation.coroutine = _NOTHING

    def take_place(self) -> StepId:
        """The next id below this fiber's own."""
        step = StepId(f"{self.prefix}.{self.next_seq}")
        self.next_seq += 1
        return step

    @property
    def is_cleaning_up(self) -> bool:
        """Whether it was interrupted, or belongs to one that was."""
        if self.is_interrupted or self.promise is None:
            return self.is_interrupted
        above: Fiber = self.promise.owner
        return above.is_cleaning_up

    @property
    def is_ours(self) -> bool:
        """Whether its code is not the program's, but ours: what waits for an operation, or refuses to begin."""
        code = getattr(self.coroutine, "cr_code", None)
        return code is not None and code.co_filename.startswith(OUR_FILES)

    @property
    def line(self) -> str:
        """Where its code is now, for people."""
        frame = getattr(self.coroutine, "cr_frame", None)
        code = getattr(self.coroutine, "cr_code", None)
        if code is None:
            return "in the program"
        line = code.co_firstlineno if frame is None else frame.f_lineno
        return f"{code.co_filename}:{line} in {code.co_name}"
