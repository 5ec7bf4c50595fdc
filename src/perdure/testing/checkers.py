"""Checkers: what must hold of every store, whatever happened to it."""

from perdure.authoring.values.upcaster import reading_old_shapes
from perdure.core.codec import JsonCodec
from perdure.core.journal.events import started_of
from perdure.store.inspection import audit_store, verify_store
from perdure.store.store import Store
from perdure.testing.graphs import ReplayCache, row_mismatches


async def assert_sound(store: Store) -> None:
    """Assert the 20 invariants, balanced books, whole hash chains, and graph rows that agree with the journals."""
    for report in (await audit_store(store), await verify_store(store)):
        if not report.is_clean:
            raise AssertionError(str(report))
    codec = reading_old_shapes(JsonCodec())
    async for books in store.books():
        event = started_of([entry.event for entry in books.entries[:2]])
        if event is not None and event.trigger is not None:
            mismatches = await row_mismatches(store, books.run_id, codec, ReplayCache())
            if mismatches:
                raise AssertionError("\n".join(mismatches))
