"""Applies a group's changes of the graph tables to Postgres."""

from collections.abc import Awaitable, Callable
from typing import Any

from perdure.store.commit.graph_index import GraphIndex
from perdure.store.commit.graph_row_values import (
    broadcast_rows,
    cleared_runs,
    cleared_steps,
    delivered_rows,
    dropped_key_rows,
    hook_rows,
    tracked_rows,
    unhooked_runs,
    unhooked_steps,
)

RunStatement = Callable[[str, list[Any]], Awaitable[int]]
"""Runs a named statement with rows, if there are any; returns how many rows it changed."""


async def write_index(run: RunStatement, index: GraphIndex) -> bool:
    """Write the changes in order. False if a node would have more predecessors resolved than it requires."""
    tracked = tracked_rows(index)
    await run("clear_runs", cleared_runs(index))
    await run("clear_steps", cleared_steps(index))
    if await run("track", tracked) != len(tracked):
        return False
    await run("deliver", delivered_rows(index))
    await run("unhook_runs", unhooked_runs(index))
    await run("unhook_steps", unhooked_steps(index))
    await run("drop_keys", dropped_key_rows(index))
    await run("hook", hook_rows(index))
    await run("broadcast", broadcast_rows(index))
    return True
