"""Reads runs from the store, several in one request."""

import asyncio
from collections import deque
from typing import Any

from perdure.core.errors import StoreDamaged
from perdure.core.ids import RunId
from perdure.store.rows.records import StoredRun
from perdure.store.store import Store

ReadRequest = tuple[RunId, "asyncio.Future[StoredRun | None]"]

BATCH_RUNS = 32
"""Runs in one request. More could need much memory: journals may be long."""


class RunReader:
    """Requests that arrive during a read wait, and are then read together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._requests: deque[ReadRequest] = deque()
        self._reading: asyncio.Task[None] | None = None
        self._batch_runs = BATCH_RUNS

    @property
    def tasks(self) -> set[asyncio.Future[Any]]:
        """The background task that reads, if there is one."""
        return set() if self._reading is None else {self._reading}

    async def read(self, run_id: RunId) -> StoredRun | None:
        """The run as stored; `None` if there is none."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[StoredRun | None] = loop.create_future()
        self._requests.append((run_id, future))
        if self._reading is None:
            self._reading = loop.create_task(self._read_all())
        return await future

    async def _read_all(self) -> None:
        try:
            while self._requests:
                await self._read_some()
        finally:
            self._reading = None
            self._batch_runs = BATCH_RUNS
            while self._requests:  # this task was cancelled
                self._requests.popleft()[1].cancel()

    async def _read_some(self) -> None:
        """Read the next batch. If a row is damaged, read the runs one by one, so that only that run's callers fail."""
        batch = [
            self._requests.popleft() for _ in range(min(len(self._requests), self._batch_runs))
        ]
        try:
            found = await self._store.load_all([run_id for run_id, _ in batch])
        except StoreDamaged as error:
            if len(batch) > 1:
                self._batch_runs = 1
                self._requests.extendleft(reversed(batch))
                return
            _fail(batch, error)
            return
        except BaseException as error:
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
            return
        stored = {each.run.run_id: each for each in found}
        for run_id, future in batch:
            if not future.done():
                future.set_result(stored.get(run_id))


def _fail(batch: list[ReadRequest], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
