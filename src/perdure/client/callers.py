"""Who may ask something of an engine."""

from perdure.authoring.context import WORKFLOW
from perdure.core.errors import ForeignAwait


def require_no_workflow() -> None:
    """Before anything is submitted: a workflow can't await it, and would do it again in each replay."""
    turn = WORKFLOW.get()
    if turn is not None:
        raise ForeignAwait(
            f"workflow {turn.info.program!r} uses an engine",
            "start child runs with perdure.start(...), and use engines in tasks",
        )
