"""A step under way in a graph run."""

from perdure.core.graph.transition import StartingStep
from perdure.core.ids import Guid, StepId
from perdure.engine.runs.promise import DurablePromise


class ActiveStep:
    """An activity under way: it has requested an answer and waits for it."""

    __slots__ = (
        "entries",
        "guid",
        "is_entered",
        "key",
        "plane",
        "promise",
        "scope",
        "step",
        "topic",
        "vertex",
    )

    def __init__(self, begun: StartingStep, step: StepId) -> None:
        self.vertex = begun.vertex
        self.plane = begun.plane
        self.scope = begun.scope
        self.step = step
        self.topic = begun.name or getattr(begun.vertex.request, "topic", "")
        """The topic of the signal that the step waits for, if any."""
        self.guid: Guid | None = None
        """The GUID of the answer, unless the answer's own message has one."""
        self.entries = 0
        self.is_entered = False
        """Whether an answer was entered but not fed yet; no other answer may come before it."""
        self.promise: DurablePromise | None = None
        self.key: str | None = None
        """The key of its hook, if it waits by topic and key."""
