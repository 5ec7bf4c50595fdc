"""The committer with the rows of a real step: every submitter owns a run and takes it step by step.

`python -m bench.committer URL SUBMITTERS STEPS` prints as JSON the steps per second and the median time of one
commit as its submitter sees it. The bundles were made before, so that only the committer and the database are measured.
The figures whose names begin with `journal_` are of a second turn, in which each bundle is made when it is due: events,
digits, checks, hashes and all.
"""

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Iterable

from perdure.core.ids import HostId, StepId, new_run_id
from perdure.core.journal.entry import NONCE_BYTES
from perdure.core.journal.events import (
    Event,
    ExecutionAwaiting,
    ExecutionResumed,
    ExecutionStarted,
    InvokeCompleted,
    InvokeScheduled,
    InvokeStarted,
)
from perdure.core.journal.journal import Appended, Journal
from perdure.store.commit.bundle import Bundle
from perdure.store.opening import open_store
from perdure.store.rows.records import NewRun
from perdure.store.store import Store

INPUT = b'{"order": "order-42", "items": 3}'
RESULT = b'{"total": 42, "currency": "EUR"}'


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Entropy:
    """Random bytes, drawn from the system in large pieces: each draw is a system call."""

    PIECE = 1 << 16

    def __init__(self) -> None:
        self._bytes = b""
        self._used = 0

    def __call__(self, count: int) -> bytes:
        start, self._used = self._used, self._used + count
        if self._used > len(self._bytes):
            self._bytes = os.urandom(self.PIECE)
            start, self._used = 0, count
        return self._bytes[start : self._used]


entropy = Entropy()


class Submitter:
    """One run on the warm path: each step is one bundle."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._journal = Journal(new_run_id(now_ms(), os.urandom(10)))
        self._step = 0
        self.times: list[float] = []

    async def start(self) -> None:
        bundle = Bundle()
        started = ExecutionStarted("bench", "digest", "00" * 32, payload=INPUT)
        run = NewRun(self._journal.run_id, "bench", now_ms(), owner=HostId("bench"))
        self._fence = bundle.create_run(run, self._append([started, *self._ask(0)]))
        await self._store.commit(bundle)

    def step(self) -> Bundle:
        """The result of one step and the intent of the next."""
        done = InvokeCompleted(StepId(f"root.{self._step}"), 1, payload=RESULT)
        self._step += 1
        bundle = Bundle()
        events = [done, ExecutionResumed(), *self._ask(self._step)]
        bundle.append(self._fence, self._append(events))
        return bundle

    async def commit_prepared(self, bundles: list[Bundle]) -> None:
        for bundle in bundles:
            await self._commit(bundle)

    async def commit_steps(self, count: int) -> None:
        for _ in range(count):
            await self._commit(self.step())

    async def _commit(self, bundle: Bundle) -> None:
        began = time.perf_counter()
        await self._store.commit(bundle)
        self.times.append(time.perf_counter() - began)

    def _ask(self, step: int) -> list[Event]:
        place = StepId(f"root.{step}")
        return [
            InvokeScheduled(place, "charge", payload=INPUT),
            ExecutionAwaiting((place,)),
            InvokeStarted(place, 1),
        ]

    def _append(self, events: list[Event]) -> Appended:
        return self._journal.append(events, now_ms(), entropy(NONCE_BYTES * len(events)))


Figures = dict[str, float]


async def timed(team: list[Submitter], work: Iterable[Awaitable[None]]) -> Figures:
    for member in team:
        member.times.clear()
    began = time.perf_counter()
    await asyncio.gather(*work)
    spent = time.perf_counter() - began
    times = [taken for member in team for taken in member.times]
    return {"steps_per_s": len(times) / spent, "commit_ms": statistics.median(times) * 1000}


async def start_team(store: Store, size: int) -> list[Submitter]:
    team = [Submitter(store) for _ in range(size)]
    await asyncio.gather(*(member.start() for member in team))
    return team


async def measure(url: str, submitters: int, steps: int) -> Figures:
    store = await open_store(url)
    team = await start_team(store, submitters)
    with_journal = await timed(team, [member.commit_steps(steps) for member in team])
    team = await start_team(store, submitters)
    prepared = [[member.step() for _ in range(steps)] for member in team]
    work = [m.commit_prepared(b) for m, b in zip(team, prepared, strict=True)]
    committer = await timed(team, work)
    await store.close()
    return committer | {f"journal_{name}": value for name, value in with_journal.items()}


def main() -> None:
    url, submitters, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    figures = asyncio.run(measure(url, submitters, steps))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
