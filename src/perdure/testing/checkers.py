"""Checkers: what must hold of a store after anything at all has happened to it."""

from perdure.store.inspection import audit, verify
from perdure.store.store import Store


async def assert_sound(store: Store) -> None:
    """The 20 invariants hold, the books balance, and every hash chain is whole."""
    for report in (await audit(store), await verify(store)):
        if not report.is_clean:
            raise AssertionError(str(report))
