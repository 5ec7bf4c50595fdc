"""Who may ask something of an engine."""

from asyncio import get_running_loop

from perdure.authoring.context import WORKFLOW
from perdure.core.errors import ForeignAwait, InputError
from perdure.host.hosting import Hosting


def require_no_workflow() -> None:
    """Before anything is submitted: a workflow can't await it, and would do it again in each replay."""
    turn = WORKFLOW.get()
    if turn is not None:
        raise ForeignAwait(
            f"workflow {turn.info.program!r} uses an engine",
            "start child runs with perdure.start(...), and use engines in tasks",
        )


def require_own_loop(hosting: Hosting) -> None:
    """Before anything is submitted: on another loop nobody would be told that it was done, and might do it again."""
    if get_running_loop() is not hosting.loop:
        raise InputError(
            "an engine, or a handle of it, is used in another event loop than the one that opened the engine",
            "await it in that loop: in an `async def` task, or from a thread by "
            "asyncio.run_coroutine_threadsafe(..., loop); or use a SyncEngine",
        )
