"""How many commits an engine makes, and how many bundles share them."""

from collections.abc import Awaitable, Sequence

from perdure import Engine
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.writer import BundleOutcomes
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.probe import Probe


class Counter:
    """Bundles, and the groups that they went in, from now on. A group is one commit."""

    def __init__(self, engine: Engine) -> None:
        self.bundles = 0
        self.groups = 0
        store = Probe(engine).store
        assert isinstance(store, SqliteStore | PostgresStore)
        self._write = store._committer._write
        store._committer._write = self._count

    def _count(self, bundles: Sequence[Bundle]) -> Awaitable[BundleOutcomes]:
        self.groups += 1
        self.bundles += len(bundles)
        return self._write(bundles)
