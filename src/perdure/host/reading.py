"""Reading runs for many who ask at the same time, with few questions to the store."""

import asyncio
from collections import deque
from typing import Any

from perdure.core.ids import RunId
from perdure.core.journal.entry import Entry
from perdure.store.records import Run
from perdure.store.store import Store

Stored = tuple[Run, list[Entry]]

TOGETHER = 32
"""Runs that are read at a time. Their journals may be long."""


class Reader:
    """While runs are read, others queue; then they are read together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._asked: deque[tuple[RunId, asyncio.Future[Stored | None]]] = deque()
        self._reading: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> set[asyncio.Future[Any]]:
        """What goes on by itself."""
        return set() if self._reading is None else {self._reading}

    async def read(self, run_id: RunId) -> Stored | None:
        """The run's row and its journal; `None` if there is no such run."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Stored | None] = loop.create_future()
        self._asked.append((run_id, answer))
        if self._reading is None:
            self._reading = loop.create_task(self._read_all())
        return await answer

    async def _read_all(self) -> None:
        try:
            while self._asked:
                await self._read_some()
        finally:
            self._reading = None
            while self._asked:  # it was cut short
                self._asked.popleft()[1].cancel()

    async def _read_some(self) -> None:
        some = [self._asked.popleft() for _ in range(min(len(self._asked), TOGETHER))]
        try:
            found = await self._store.load([run_id for run_id, _ in some])
        except BaseException as error:
            for _, answer in some:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        stored = {run.run_id: (run, entries) for run, entries in found}
        for run_id, answer in some:
            if not answer.done():
                answer.set_result(stored.get(run_id))
