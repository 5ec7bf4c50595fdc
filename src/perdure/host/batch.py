"""What a host commits at once: a run's turn, the turns of the runs that it spawns, and what follows from them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.authoring.workflow import Workflow
from perdure.core.ids import StepId
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


class Turn(NamedTuple):
    """Attempts of one run that begin, and bodies that end, once a commit is durable."""

    run: WarmRun
    starts: list[tuple[DurablePromise, int]]
    unwanted: Sequence[StepId]


class Batch:
    """What commits together, and what may happen once it has."""

    __slots__ = ("bundle", "children", "endings", "messages", "turns")

    def __init__(self) -> None:
        self.bundle = Bundle()
        self.turns: list[Turn] = []
        self.children: Sequence[WarmRun] = ()
        self.messages: Sequence[Message] = ()
        self.endings: Sequence[tuple[WarmRun, Ending]] = ()
