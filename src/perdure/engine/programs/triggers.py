"""The first step of a run, if its program has one."""

from typing import Any

from perdure.authoring.graphs.program import GraphProgram
from perdure.authoring.program import Program
from perdure.core.graph.vertex import NO_PLANE
from perdure.core.ids import Guid, RunId, StepId, message_guid


def trigger_of(program: Program[..., Any], run_id: RunId) -> tuple[StepId | None, Guid | None]:
    """The step that a run's start enters, and the GUID that this entry counts as; none if the program is a workflow."""
    if isinstance(program, GraphProgram):
        return program.lowered.trigger.step(NO_PLANE), message_guid(run_id, "start")
    return None, None
