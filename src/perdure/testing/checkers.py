"""Checkers: what must hold of a store after anything at all has happened to it."""

from perdure.authoring.upcaster import reading_old_shapes
from perdure.core.codec import JsonCodec
from perdure.core.journal.events import ExecutionStarted
from perdure.store.inspection import audit, verify
from perdure.store.store import Store
from perdure.testing.graphs import stray_rows


async def assert_sound(store: Store) -> None:
    """The 20 invariants hold, the books balance, every hash chain is whole, and graphs wait for what their rows say."""
    for report in (await audit(store), await verify(store)):
        if not report.is_clean:
            raise AssertionError(str(report))
    codec = reading_old_shapes(JsonCodec())
    async for books in store.books():
        event = books.entries[0].event if books.entries else None
        if isinstance(event, ExecutionStarted) and event.trigger is not None:
            strays = await stray_rows(store, books.run_id, codec)
            if strays:
                raise AssertionError("\n".join(strays))
