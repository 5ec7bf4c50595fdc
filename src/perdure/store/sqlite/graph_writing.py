"""A group's changes of the graph tables, as SQLite statements."""

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
from perdure.store.sqlite.connections.bulk_statements import GroupStatement


def index_statements(index: GraphIndex) -> list[GroupStatement]:
    """The statements, in order. `track` skips nodes that would exceed their required number: its count shows that."""
    runs, steps, tracked = cleared_runs(index), cleared_steps(index), tracked_rows(index)
    broadcasts = broadcast_rows(index)
    return [
        GroupStatement("clear_runs", runs),
        GroupStatement("empty_runs", runs),
        GroupStatement("clear_steps", steps),
        GroupStatement("empty_steps", steps),
        GroupStatement("track", tracked, len(tracked)),
        GroupStatement("deliver", delivered_rows(index)),
        GroupStatement("unhook_runs", unhooked_runs(index)),
        GroupStatement("unhook_steps", unhooked_steps(index)),
        GroupStatement("take_hooks", dropped_key_rows(index)),
        GroupStatement("hook", hook_rows(index)),
        GroupStatement("broadcast", [row[:6] for row in broadcasts]),
        GroupStatement("scrub", [(mailbox,) for mailbox, *_, scrub in broadcasts if scrub]),
    ]
