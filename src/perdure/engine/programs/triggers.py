"""What a graph does to its new run: the first step, and search keys."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.core.graph.vertex import NO_PLANE
from perdure.core.ids import Guid, RunId, StepId, message_guid


def search_keys_of(program: Program[..., Any]) -> frozenset[str]:
    """The names of the search keys that the program itself gives its runs; none if it is a workflow."""
    if isinstance(program, GraphProgram):
        return frozenset(name for name, _ in program.lowered.keys)
    return frozenset()


def trigger_of(program: Program[..., Any], run_id: RunId) -> tuple[StepId | None, Guid | None]:
    """The step that a run's start enters, and the GUID that this entry counts as; none if the program is a workflow."""
    if isinstance(program, GraphProgram):
        return program.lowered.trigger.step(NO_PLANE), message_guid(run_id, "start")
    return None, None
