"""Checks of where a caller runs. Each call of an engine or a handle makes them before it submits anything."""

from asyncio import get_running_loop

from perdure.authoring.context import WORKFLOW
from perdure.core.errors import ForeignAwait, InputError
from perdure.host.host import Host


def require_no_workflow() -> None:
    """Raise inside a workflow: it can't await an engine, and each replay would repeat the call."""
    running = WORKFLOW.get()
    if running is not None:
        raise ForeignAwait(
            f"workflow {running.info.program!r} uses an engine",
            "start child runs with perdure.start(...), and use engines in tasks",
        )


def require_own_loop(host: Host) -> None:
    """Raise in another process or event loop than the host's.

    On another loop the caller would never learn that its call is done, and might repeat it.
    """
    host.process.require()
    if get_running_loop() is not host.loop:
        raise InputError(
            "an engine, or a handle of it, is used in another event loop than the one that opened the engine",
            "await it in that loop: in an `async def` task, or from a thread by "
            "asyncio.run_coroutine_threadsafe(..., loop); or use a SyncEngine",
        )
