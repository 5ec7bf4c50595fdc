"""The input of a run: in its first entries, or in the message that waits for its beginning."""

from perdure.core.admission.input import unpack_input
from perdure.core.ids import RunId
from perdure.core.journal.events import ExecutionStarted, started_of
from perdure.core.messages import START
from perdure.store.store import Store


async def input_of(store: Store, run_id: RunId) -> bytes | None:
    """The arguments that a run was started with; `None` if they were erased."""
    started = await _started(store, run_id)
    if started is None:
        for message, state, _ in await store.messages(run_id):
            if message.kind == START and state == "pending":
                return unpack_input(run_id, message.payload).payload
        started = await _started(store, run_id)  # it may have begun between the two statements
    return None if started is None else started.payload


async def _started(store: Store, run_id: RunId) -> ExecutionStarted | None:
    return started_of([entry.event for entry in await store.entries(run_id, 0, 2)])
