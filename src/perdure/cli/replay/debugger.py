"""A debugger that stops in the user's own code at a step of a replay."""

import bdb
import pdb
import sys
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import IO, Any

from perdure.authoring.interruption import Evicted
from perdure.core.ids import StepId


class StepDebugger(pdb.Pdb):
    """Stops where a step begins, where the replay ends, and where the program raised.

    At a step the frames are the running ones: `n`, `s` and breakpoints continue with the recorded values. At the end of
    the replay the frames are those of a coroutine that waits: nothing follows it.
    """

    def __init__(
        self,
        stop_at: StepId | None,
        *,
        stdin: IO[str] | None = None,
        stdout: IO[str] | None = None,
    ) -> None:
        skipped = ["perdure", "perdure.*", "contextlib", "asyncio.*", "msgspec.*"]
        super().__init__(stdin=stdin, stdout=stdout, skip=skipped, nosigint=True)
        self._stop_at = stop_at
        self._frames: Sequence[FrameType] = ()
        self._goes_on = False
        """Whether the last command was `continue`."""

    # What the replay tells

    def step_begins(self, step: StepId, frames: Sequence[FrameType]) -> bool:
        if step != self._stop_at:
            return True
        self.message(f"step {step} begins here; its recorded value follows with `n`")
        self.reset()
        self._frames = frames
        # The debugger ends at the program's outermost frame: what is below is Perdure's.
        self.botframe = frames[-1]
        for frame in frames:
            frame.f_trace = self.trace_dispatch
        self._goes_on = False
        self.interaction(frames[0], None)
        if not self.quitting and (not self._goes_on or self.get_all_breaks()):
            self._frames = ()
            sys.settrace(self.trace_dispatch)
        return not self.quitting

    def replay_ends(self, frames: Sequence[FrameType]) -> None:
        sys.settrace(None)
        if self._stop_at is not None or not frames:
            return
        self.message("the journal ends here; the program waits")
        self.reset()
        self._frames = frames
        self.interaction(frames[0], None)

    def program_raised(self, error: BaseException, traceback: TracebackType | None) -> None:
        sys.settrace(None)
        if self._stop_at is not None or traceback is None:
            return
        self.message(f"the program raised {type(error).__name__}: {error}")
        self.reset()
        self._frames = ()
        self.interaction(None, traceback)

    def finish(self) -> None:
        """End the debugging, also of code that runs after the replay."""
        sys.settrace(None)
        self.clear_all_breaks()

    # Parts of pdb

    def do_continue(self, arg: str) -> bool | None:
        self._goes_on = True
        return super().do_continue(arg)

    do_c = do_cont = do_continue

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """The frames of the program alone. A coroutine that waits has no link to the one that awaits it."""
        if not self._frames or f not in self._frames:
            return super().get_stack(f, t)
        stack = [(frame, frame.f_lineno) for frame in reversed(self._frames)]
        return stack, len(stack) - 1

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            # An ordinary exception would be an outcome of the program.
            sys.settrace(None)
            raise Evicted from None
