"""What a host commits at once: a run's turn, the turns of the runs that it spawns, and what follows from them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.authoring.workflow import Workflow
from perdure.core.ids import RunId, StepId
from perdure.core.messages import Message
from perdure.engine.replay.promise import DurablePromise
from perdure.engine.replay.warm import WarmRun
from perdure.host.watching import Ending
from perdure.store.bundle import Bundle


class Start(NamedTuple):
    """A run to be started."""

    workflow: Workflow[..., Any]
    payload: bytes
    key: str | None = None
    scope: str = ""


class Batch:
    """What commits together for one run, and what may happen once it has.

    Most are one step of one run: what they have none of costs nothing.
    """

    __slots__ = ("bundle", "children", "endings", "messages", "run", "starts", "unwanted")

    def __init__(self, run: WarmRun) -> None:
        self.run = run
        self.bundle = Bundle()
        self.starts: list[tuple[WarmRun, DurablePromise, int]] = []
        """Attempts that begin."""
        self.unwanted: Sequence[tuple[RunId, StepId]] = ()
        """Bodies that end."""
        self.children: Sequence[WarmRun] = ()
        self.messages: Sequence[Message] = ()
        self.endings: Sequence[tuple[WarmRun, Ending]] = ()
