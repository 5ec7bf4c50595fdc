"""The rows of a group's graph index, with values in the order of the statements' parameters."""

from typing import Final

from perdure.store.commit.graph_index import KEY, GraphIndex
from perdure.store.rows.values import RowValues

SCRUBBED: Final = "scrubbed "
"""What `broadcast` puts before the mailbox of a key that is scrubbed."""


def cleared_runs(index: GraphIndex) -> list[RowValues]:
    return [(run_id,) for run_id, run in index.runs.items() if run.clears]


def unhooked_runs(index: GraphIndex) -> list[RowValues]:
    return [(run_id,) for run_id, run in index.runs.items() if run.unhooks]


def cleared_steps(index: GraphIndex) -> list[RowValues]:
    return [(run_id, step) for run_id, step, change in index.steps() if change.clears]


def unhooked_steps(index: GraphIndex) -> list[RowValues]:
    return [(run_id, step) for run_id, step, change in index.steps() if change.unhooks]


def tracked_rows(index: GraphIndex) -> list[RowValues]:
    return [
        (run_id, step, change.required, change.resolved)
        for run_id, step, change in index.steps()
        if change.resolved
    ]


def delivered_rows(index: GraphIndex) -> list[RowValues]:
    return [
        (run_id, step, d.position, d.source, d.variable, d.value)
        for run_id, step, change in index.steps()
        for d in change.deliveries
    ]


def dropped_key_rows(index: GraphIndex) -> list[RowValues]:
    """Also under the form that a scrubbed key has. In the order in which broadcasts lock them."""
    return sorted(
        (run_id, step, KEY, form)
        for run_id, run in index.runs.items()
        for step, mailbox in run.dropped_keys
        for form in (mailbox, f"{SCRUBBED}{mailbox}")
    )


def hook_rows(index: GraphIndex) -> list[RowValues]:
    return [
        (hook.run_id, hook.step, hook.kind, hook.mailbox, hook.topic, hook.key, hook.since_ms)
        for hook in index.hooks()
    ]


def broadcast_rows(index: GraphIndex) -> list[RowValues]:
    """Each with its position in the group: one statement does not see the rows it inserts itself."""
    return [
        (b.mailbox, b.kind, b.payload, b.suffix, b.now_ms, position, b.scrub)
        for position, b in enumerate(index.broadcasts, 1)
    ]
