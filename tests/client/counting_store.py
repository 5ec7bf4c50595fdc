"""Counts the bundles that an engine commits, and their rows."""

from perdure import Engine
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.committer import OnDecided
from perdure.store.store import Store
from perdure.testing.probe import Probe
from tests.store.builders import TABLES, raw


class Till:
    """Every bundle that is committed through the engine's store from now on."""

    def __init__(self, engine: Engine | Store) -> None:
        self.store: Store = Probe(engine).store if isinstance(engine, Engine) else engine
        self.bundles: list[Bundle] = []
        self._commit, self._submit = self.store.commit, self.store.submit
        self.store.commit = self.commit  # type: ignore[method-assign]
        self.store.submit = self.submit  # type: ignore[method-assign]

    async def commit(self, bundle: Bundle) -> None:
        self.bundles.append(bundle)
        await self._commit(bundle)

    def submit(self, bundle: Bundle, on_decided: OnDecided) -> None:
        self.bundles.append(bundle)
        self._submit(bundle, on_decided)

    async def rows(self) -> dict[str, int]:
        counts = {t: (await raw(self.store, f"SELECT count(*) FROM {{}}{t}"))[0][0] for t in TABLES}
        return {table: count for table, count in counts.items() if table != "meta"}


def written(bundle: Bundle) -> dict[str, int]:
    """The rows that the bundle writes: journal and ledger rows by table, the others by kind."""
    books = {
        "event": sum(len(appended.entries) for _, appended in bundle.appends),
        "ledger": sum(len(appended.postings) for _, appended in bundle.appends),
        "run": len({fence.run_id for fence, _ in bundle.appends}),
    }
    others = set(Bundle.__struct_fields__) - {"appends", "other_fences", "has_more"}
    return books | {part: len(getattr(bundle, part)) for part in others if getattr(bundle, part)}
