"""Results that were erased."""

from perdure.core.errors import InputError
from perdure.core.ids import RunId
from perdure.store.store import Store


async def require_result(store: Store, run_id: RunId, payload: bytes | None) -> None:
    """Raise `InputError` if the result of a run was erased."""
    if payload is None and (await store.retention.get([run_id])):
        raise InputError(
            f"the result of run {run_id!r} was erased",
            "see the receipt: `engine.retention.get(run_id)`",
        )
