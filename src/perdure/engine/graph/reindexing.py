"""Repairs the stored index of a graph run that was just replayed."""

from typing import TYPE_CHECKING

from perdure.engine.graph.index import index_of, stored_index
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.fence import Fence
from perdure.store.rows.records import GraphRows, StoredRun

if TYPE_CHECKING:
    from perdure.engine.graph.machine import GraphMachine


def reindex(machine: "GraphMachine", bundle: Bundle, fence: Fence, stored: StoredRun) -> bool:
    """Write the missing rows of the run's index, and delete the surplus ones. False if the index is right."""
    rows = stored.index or GraphRows()
    # Changes that are decided and not written yet bring their own rows.
    undecided = machine.record.changes
    expected, held = index_of(machine), stored_index(rows.readiness, rows.inbox, rows.hooks)
    held.follow(undecided)
    # A signal that met its hook deleted the hook's row; its message is pending.
    served = {
        message.step
        for message in stored.messages.values()
        if message.is_pending and message.kind != "timer"  # its time limit deletes no hook
    }
    lost = expected.hooks.keys() - held.hooks.keys() - served
    surplus = held.hooks.keys() - expected.hooks.keys()
    is_wrong = (held.waiting, held.given) != (expected.waiting, expected.given)
    if undecided or not (is_wrong or lost or surplus):
        return False
    if is_wrong:
        bundle.rebuild(fence, expected.readiness, expected.inbox)
    for step in surplus:
        bundle.unhook(fence, step)
    for step in lost:
        bundle.hook(fence, *machine.hook_of(machine.steps[step]))
    return True
