"""Preflight: checks whether every open run can resume with the registered code.

It reads runs one at a time, each in its own snapshot, without owning them. So a long check blocks nothing, disturbs no
host, and needs no more memory than the longest journal and its own results.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from perdure.core.codec import Codec
from perdure.core.errors import UnknownName
from perdure.engine.known_programs import KnownPrograms
from perdure.engine.programs.rehearsal import DivergedRun, Rehearsal, StrandedRun, rehearse
from perdure.engine.sources import Sources
from perdure.store.store import Store

PAGE = 500
"""Run ids read at a time."""


class VersionUse(msgspec.Struct, frozen=True):
    """How many open runs began with a version, and the version that they were replayed on; `None` if on none."""

    program: str
    version: str
    replayed_on: str | None
    runs: int


class PatchUse(msgspec.Struct, frozen=True):
    """How many open runs of a program follow a patch, and how many passed it before it existed and need the old code.

    `unknown` runs can't be replayed. Runs that have not reached the patch yet are not counted.
    """

    program: str
    patch: str
    follow: int
    missed: int
    unknown: int

    @property
    def is_retirable(self) -> bool:
        """Whether no open run needs the old code: remove `if patched(...)` and keep the new code."""
        return not (self.missed or self.unknown)


class Preflight(msgspec.Struct, frozen=True):
    """The result: `runs` of the store `place` were replayed, each as it was when it was read."""

    place: str
    runs: int
    divergences: list[DivergedRun]
    stranded: list[StrandedRun]
    versions: list[VersionUse]
    patches: list[PatchUse]

    @property
    def is_clean(self) -> bool:
        """Whether every run can resume."""
        return not (self.divergences or self.stranded)

    def __str__(self) -> str:
        stuck = [*self.divergences, *self.stranded]
        verdict = "all can resume" if self.is_clean else f"{len(stuck):,} can't resume"
        return "\n".join([f"{self.place}: open runs {self.runs:,}, {verdict}", *map(str, stuck)])


async def preflight(
    store: Store,
    codec: Codec,
    sources: Sources,
    known: KnownPrograms,
    programs: Sequence[str] | None = None,
    *,
    reveal: bool = False,
    on_run: Callable[[Rehearsal], None] | None = None,
) -> Preflight:
    """Rehearse every open run, or those of `programs`, and sum up. `on_run` gets each rehearsal, for progress.

    Texts show the shapes of payloads; with `reveal` they show the payloads.
    Raises `UnknownName` for a program that is neither registered here nor has open runs.
    """
    runs = 0
    divergences: list[DivergedRun] = []
    stranded: list[StrandedRun] = []
    versions: Counter[tuple[str, str, str | None]] = Counter()
    patches = _PatchCounts()
    async for rehearsal in rehearsals(store, codec, sources, known, programs, reveal=reveal):
        runs += 1
        if on_run is not None:
            on_run(rehearsal)
        versions[rehearsal.program, rehearsal.version, rehearsal.replayed_on] += 1
        patches.add(rehearsal)
        if isinstance(rehearsal.problem, DivergedRun):
            divergences.append(rehearsal.problem)
        elif rehearsal.problem is not None:
            stranded.append(rehearsal.problem)
    for name in programs or ():
        if known.find(name) is None and not any(name == program for program, *_ in versions):
            raise UnknownName(
                f"no workflow {name!r} is registered here, and it has no open runs",
                "check the name, or import the module that defines it",
            )
    used = [VersionUse(*use, count) for use, count in versions.items()]
    used.sort(key=lambda use: (use.program, use.version, use.replayed_on or ""))
    return Preflight(store.name, runs, divergences, stranded, used, patches.sum_up())


async def rehearsals(
    store: Store,
    codec: Codec,
    sources: Sources,
    known: KnownPrograms,
    programs: Sequence[str] | None = None,
    *,
    reveal: bool = False,
) -> AsyncIterator[Rehearsal]:
    """Rehearse every open run, in the order of ids. Runs that end before they are read are left out."""
    after = None
    while ids := await store.open_ids(after, PAGE, programs):
        for run_id in ids:
            for run, entries in await store.load([run_id]):
                if run.closed_at_ms is None:
                    yield rehearse(run, entries, codec, sources, known, reveal=reveal)
            # A store in memory never suspends; this lets other asyncio tasks run.
            await asyncio.sleep(0)
        after = ids[-1]


class _PatchCounts:
    """Counts runs by program and patch."""

    def __init__(self) -> None:
        self._follow: Counter[tuple[str, str]] = Counter()
        self._missed: Counter[tuple[str, str]] = Counter()
        self._stuck: Counter[str] = Counter()
        self._stuck_but_marked: Counter[tuple[str, str]] = Counter()

    def add(self, rehearsal: Rehearsal) -> None:
        program = rehearsal.program
        marked = [(program, patch) for patch in rehearsal.marked]
        self._follow.update(marked)
        self._missed.update((program, patch) for patch in rehearsal.missed)
        if rehearsal.problem is not None:
            self._stuck[program] += 1
            self._stuck_but_marked.update(marked)

    def sum_up(self) -> list[PatchUse]:
        uses = []
        for use in sorted({*self._follow, *self._missed}):
            unknown = self._stuck[use[0]] - self._stuck_but_marked[use]
            uses.append(PatchUse(*use, self._follow[use], self._missed[use], unknown))
        return uses
