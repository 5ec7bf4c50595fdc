"""Applying to SQLite what a group changes of graphs."""

from collections.abc import Callable
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

Run = Callable[[str, list[Any]], int]
"""Runs a statement with rows, if there are any; returns how many were changed."""


def write_index(run: Run, index: GraphIndex) -> bool:
    """False if nodes would have more predecessors resolved than they require."""
    runs, steps, tracked = cleared_runs(index), cleared_steps(index), tracked_rows(index)
    run("clear_runs", runs)
    run("empty_runs", runs)
    run("clear_steps", steps)
    run("empty_steps", steps)
    if run("track", tracked) != len(tracked):
        return False
    run("deliver", delivered_rows(index))
    run("unhook_runs", unhooked_runs(index))
    run("unhook_steps", unhooked_steps(index))
    run("hook", hook_rows(index))
    if index.broadcasts:
        run("broadcast", [row[:5] for row in broadcast_rows(index)])
        run("scrub", [(mailbox,) for mailbox, *_, scrub in broadcast_rows(index) if scrub])
    return True
