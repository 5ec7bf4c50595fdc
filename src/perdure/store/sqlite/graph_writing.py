"""What a group changes of graphs, as statements of SQLite."""

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
from perdure.store.sqlite.connection import Part


def index_parts(index: GraphIndex) -> list[Part]:
    """In order. Nodes that would have more predecessors resolved than they require are not changed: the count tells."""
    runs, steps, tracked = cleared_runs(index), cleared_steps(index), tracked_rows(index)
    broadcasts = broadcast_rows(index)
    return [
        Part("clear_runs", runs),
        Part("empty_runs", runs),
        Part("clear_steps", steps),
        Part("empty_steps", steps),
        Part("track", tracked, len(tracked)),
        Part("deliver", delivered_rows(index)),
        Part("unhook_runs", unhooked_runs(index)),
        Part("unhook_steps", unhooked_steps(index)),
        Part("hook", hook_rows(index)),
        Part("broadcast", [row[:5] for row in broadcasts]),
        Part("scrub", [(mailbox,) for mailbox, *_, scrub in broadcasts if scrub]),
    ]
