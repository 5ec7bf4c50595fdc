"""Bundles that wait for the end of somebody else's transaction, apart from all others.

That may take as long as its owner likes: a transaction of a user's has started a run under a key, and somebody starts
that run again meanwhile. Only the end of the first tells what the second comes to, so its caller waits. Nobody
else does, save for who would overtake it: bundles of the same run, or about the same key or message.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core.errors import StoreClosed
from perdure.store.bundle import Bundle
from perdure.store.group import break_fences
from perdure.store.subjects import Subjects
from perdure.store.writer import SetAside

if TYPE_CHECKING:
    from perdure.store.committer import Waiting, Write


class Aside:
    """Tries what it holds, again and again, until each is decided. Belongs to one event loop."""

    def __init__(self, write: "Write") -> None:
        self._write = write
        self._waiting: list[Waiting] = []
        self._subjects = Subjects()
        self._trying: asyncio.Task[None] | None = None
        self._is_closing = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def precedes(self, bundle: Bundle) -> bool:
        """Whether the bundle must come after one that waits here."""
        return self._subjects.concern(bundle)

    def add(self, waiting: "Waiting") -> None:
        """Take a bundle in, behind all others."""
        self._waiting.append(waiting)
        self._subjects.add(waiting[0])
        if self._trying is None:
            self._trying = asyncio.ensure_future(self._try())

    async def close(self) -> None:
        """Decide all: what the next try does not bring about is given up."""
        self._is_closing = True
        if self._trying is not None:
            await asyncio.wait([self._trying])

    async def _try(self) -> None:
        while self._waiting:
            tried, is_last = list(self._waiting), self._is_closing
            outcomes: Sequence[BaseException | SetAside | None]
            try:
                outcomes = await self._write([bundle for bundle, _ in tried])
            except Exception as failure:
                outcomes = [failure] * len(tried)
            self._settle(tried, [_given_up(o) if is_last else o for o in outcomes])
        self._trying = None

    def _settle(
        self, tried: "Sequence[Waiting]", outcomes: Sequence[BaseException | SetAside | None]
    ) -> None:
        """Tell those that are decided; keep the others, before what came meanwhile."""
        came = self._waiting[len(tried) :]
        decided = list(zip(tried, outcomes, strict=True))
        self._waiting = [one for one, outcome in decided if isinstance(outcome, SetAside)] + came
        self._subjects = Subjects()
        for bundle, _ in self._waiting:
            self._subjects.add(bundle)
        for (bundle, tell), outcome in decided:
            if isinstance(outcome, StoreClosed):
                break_fences(bundle)
            if not isinstance(outcome, SetAside):
                tell(outcome)


def _given_up(outcome: BaseException | SetAside | None) -> BaseException | None:
    if isinstance(outcome, SetAside):
        return StoreClosed(
            "the store was closed while somebody else's transaction held what this commit needs",
            "commit or roll that back; what was asked for here has not happened",
        )
    return outcome
