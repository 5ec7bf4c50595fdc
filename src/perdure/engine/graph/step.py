"""Activities under way."""

from perdure.core.graph.walk import Begun
from perdure.core.ids import Guid, StepId
from perdure.engine.replay.promise import DurablePromise


class Step:
    """An activity under way: it has asked, and waits for its answer."""

    __slots__ = (
        "entries",
        "guid",
        "is_entered",
        "key",
        "plane",
        "promise",
        "scope",
        "step",
        "vertex",
    )

    def __init__(self, begun: Begun, step: StepId) -> None:
        self.vertex = begun.vertex
        self.plane = begun.plane
        self.scope = begun.scope
        self.step = step
        self.guid: Guid | None = None
        """Of its answer, if that is not a message of its own."""
        self.entries = 0
        self.is_entered = False
        """Whether an answer was entered that is not known yet: it comes first, whatever else comes meanwhile."""
        self.promise: DurablePromise | None = None
        self.key: str | None = None
        """By which others find its hook."""
