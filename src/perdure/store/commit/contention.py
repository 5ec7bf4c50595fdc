"""Contended bundles: they wait for another transaction to end, while other bundles commit.

Example: a user's open transaction has started a run under a key, and another caller starts a run under the same key.
The second start is decided only when the first transaction ends, which may take as long as its user likes. Only
bundles that must not overtake a contended one wait with it: those that share a conflict key with it.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.errors import StoreClosed
from perdure.store.commit.bundle import Bundle
from perdure.store.commit.conflict_keys import ConflictKeys
from perdure.store.commit.group import break_fences
from perdure.store.commit.writer import Undecided

if TYPE_CHECKING:
    from perdure.store.commit.committer import SubmittedBundle, Write


class ContendedBundles:
    """Retries its bundles until each is decided. Belongs to one event loop."""

    def __init__(self, write: "Write") -> None:
        self._write = write
        self.bundles: list[SubmittedBundle] = []
        """In the order in which they must be written."""
        self._keys = ConflictKeys()
        self._retrying: asyncio.Task[None] | None = None
        self._is_closing = False

    def precedes(self, bundle: Bundle) -> bool:
        """Whether the bundle must come after one that waits here."""
        return self._keys.overlap(bundle)

    def add(self, submitted: "SubmittedBundle") -> None:
        """Add a bundle behind all others."""
        self.bundles.append(submitted)
        self._keys.add(submitted[0])
        if self._retrying is None:
            self._retrying = asyncio.ensure_future(self._retry())

    async def close(self) -> None:
        """Decide all: bundles that the next attempt leaves undecided fail with `StoreClosed`."""
        self._is_closing = True
        if self._retrying is not None:
            await asyncio.wait([self._retrying])

    async def _retry(self) -> None:
        while self.bundles:
            tried, is_last = list(self.bundles), self._is_closing
            outcomes: Sequence[BaseException | Undecided | None]
            try:
                outcomes = await self._write([bundle for bundle, _ in tried])
            except Exception as failure:
                outcomes = [failure] * len(tried)
            self._settle(tried, [_given_up(o) if is_last else o for o in outcomes])
        self._retrying = None

    def _settle(
        self,
        tried: "Sequence[SubmittedBundle]",
        outcomes: Sequence[BaseException | Undecided | None],
    ) -> None:
        """Report the decided bundles; keep the others, before those that were added meanwhile."""
        added = self.bundles[len(tried) :]
        decided = list(zip(tried, outcomes, strict=True))
        self.bundles = [one for one, outcome in decided if isinstance(outcome, Undecided)] + added
        self._keys = ConflictKeys()
        for bundle, _ in self.bundles:
            self._keys.add(bundle)
        for (bundle, on_decided), outcome in decided:
            if isinstance(outcome, StoreClosed):
                break_fences(bundle)
            if not isinstance(outcome, Undecided):
                on_decided(outcome)


def _given_up(outcome: BaseException | Undecided | None) -> BaseException | None:
    if isinstance(outcome, Undecided):
        return StoreClosed(
            "the store was closed while another transaction held a lock that this commit needs",
            "end that transaction, and commit again: nothing of this commit was written",
        )
    return outcome
