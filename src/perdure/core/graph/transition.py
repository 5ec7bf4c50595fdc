"""Input and output of a transition: step responses, activities that begin, values for joins."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from perdure.core.graph.state import VariableScope
from perdure.core.graph.step_error import StepError
from perdure.core.graph.vertex import Plane, Vertex
from perdure.core.ids import StepId


class StepResponse(msgspec.Struct, frozen=True):
    """One response of a step: a result with a code, or an error."""

    result: Any = None
    code: int = 200
    error: StepError | None = None
    is_timeout: bool = False

    @property
    def is_pending(self) -> bool:
        """Whether the response announces another one (202). `Walk.stays` says whether the step waits for that."""
        return self.error is None and self.code == 202

    def specials(self) -> dict[str, Any]:
        """Names that only the step's own expressions can read."""
        if self.error is None:
            return {"result": self.result, "code": self.code, "error": None}
        return {"result": self.result, "code": self.error.code, "error": self.error.value}


PASSED: Final = StepResponse()


class StartingStep(msgspec.Struct, frozen=True, gc=False):
    """An activity about to begin, with evaluated arguments. `name` is the computed name of its task, program or topic;
    empty if the name is fixed."""

    vertex: Vertex
    plane: Plane
    scope: VariableScope
    arguments: Any
    name: str = ""


class InboxValue(msgspec.Struct, frozen=True, gc=False):
    """A value for a waiting join, as the inbox table stores it."""

    step: StepId
    source: str
    variable: str
    position: int
    value: bytes


class PendingItems(msgspec.Struct, gc=False):
    """Items of a spread that are not sent yet: `next` is the index of the first."""

    spread: Vertex
    plane: Plane
    scope: VariableScope
    items: Sequence[Any]
    next: int = 0
