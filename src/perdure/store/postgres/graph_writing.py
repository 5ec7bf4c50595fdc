"""Applying to Postgres what a group changes of graphs."""

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.store.graph_index import GraphIndex
from perdure.store.graph_rows import (
    broadcast_rows,
    cleared_runs,
    cleared_steps,
    delivered_rows,
    hook_rows,
    tracked_rows,
    unhooked_runs,
    unhooked_steps,
)

Run = Callable[[str, list[Any]], Awaitable[int]]
"""Runs a statement with rows, if there are any; returns how many were changed."""


async def write_index(run: Run, index: GraphIndex) -> bool:
    """False if nodes would have more predecessors resolved than they require."""
    tracked = tracked_rows(index)
    await run("clear_runs", cleared_runs(index))
    await run("clear_steps", cleared_steps(index))
    if await run("track", tracked) != len(tracked):
        return False
    await run("deliver", delivered_rows(index))
    await run("unhook_runs", unhooked_runs(index))
    await run("unhook_steps", unhooked_steps(index))
    await run("hook", hook_rows(index))
    await run("broadcast", broadcast_rows(index))
    return True
